"""The cases, one section per file."""
