"""Progress of a command on standard error."""
