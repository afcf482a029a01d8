"""The relay: clients publish and play live streams; protocol logic without I/O, and the sockets around it."""
