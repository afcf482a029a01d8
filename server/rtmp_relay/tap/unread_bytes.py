"""The last bytes of a connection that asyncio gives up too early.

A peer that hangs up with something of ours unread resets the connection; a write of ours then fails, and asyncio
drops the transport together with everything that the peer had sent and we had not yet read. The kernel still has it.
"""

from __future__ import annotations

import asyncio
import socket

_READ_BYTES = 1 << 16


def unread_bytes(transport: asyncio.BaseTransport) -> bytes:
    """To be called in `connection_lost`, while the socket is still open; empty inside TLS."""
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
        pass  # nothing more, or the reset itself
    return b"".join(pieces)
