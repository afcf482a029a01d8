"""TCP segments to directed byte streams, one connection at a time."""
