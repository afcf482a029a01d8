"""Analyzes live traffic (`--validate` and `--live` of `relay` and `tap`)."""
