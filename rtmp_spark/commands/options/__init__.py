"""Command-line options that several commands share, and parsers for their values."""
