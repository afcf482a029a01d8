"""Decoding of both directions of a connection: items of TCP to facts, in this process or in a helper process."""
