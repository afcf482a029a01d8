"""Rows of tables that are built from what is known of a connection."""
