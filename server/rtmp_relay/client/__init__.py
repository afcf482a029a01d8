"""The client: publishes and plays one stream; protocol logic without I/O, and the socket around it."""
