"""A small live RTMP relay, a client, a tap and a generator of faulty traffic: the project's laboratory.

The protocol logic (`endpoint`, `session`, `hub`, `outbox`, `connection`, `caller`) is pure: bytes and times in,
bytes out. Only `relay`, `client` and `proxy` know sockets. Nothing here transcodes, and nothing here is meant to
carry production traffic.
"""
