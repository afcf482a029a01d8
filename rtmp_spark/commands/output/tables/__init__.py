"""Rows of tables as aligned text, CSV and JSON Lines."""
