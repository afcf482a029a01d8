"""Reads the last bytes of a connection that asyncio closes too early.

A peer that closes its socket with unread input resets the connection. Our next write then fails, and asyncio drops the
transport together with the bytes that the peer sent before and we have not read. The kernel still holds them.
"""

from __future__ import annotations

import asyncio
import socket

_READ_BYTES = 1 << 16


def unread_bytes(transport: asyncio.BaseTransport) -> bytes:
    """Return the unread bytes; call it in `connection_lost`, while the socket is still open. Empty inside TLS."""
    if transport.get_extra_info("sslcontext") is not None:
        return b""
    wrapped = transport.get_extra_info("socket")
    pieces = []
    try:
        spare: socket.socket = wrapped.dup()
        with spare:
            spare.setblocking(False)
            while data := spare.recv(_READ_BYTES):
                pieces.append(data)
    except OSError:
        pass  # no more bytes, or the reset
    return b"".join(pieces)
