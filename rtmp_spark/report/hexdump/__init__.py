"""Hex dumps of messages and handshakes with named fields."""
