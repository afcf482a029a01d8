"""What commands print: tables, progress, colours, escaping of untrusted text."""
