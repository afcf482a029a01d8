"""Which software the client and the server are: traits, known programs, and their comparison."""
