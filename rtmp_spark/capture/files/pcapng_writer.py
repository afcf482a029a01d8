"""A small pcapng writer: packets with nanosecond times, one interface per link type, comments.

Little-endian, one section. It writes what it is given and reads nothing.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

_SECTION, _INTERFACE, _PACKET, _SECRETS = 0x0A0D0D0A, 1, 6, 10
_COMMENT, _APPLICATION, _RESOLUTION = 1, 4, 9
_OPTION_BYTES = 65_000  # an option's length is 16 bits


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _options(options: list[tuple[int, bytes]]) -> bytes:
    if not options:
        return b""
    parts = [struct.pack("<HH", code, len(value)) + _padded(value) for code, value in options]
    return b"".join(parts) + bytes(4)


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:_OPTION_BYTES].decode("utf-8", "ignore").encode()


class PcapngWriter:
    def __init__(self, file: BinaryIO, application: str, comments: list[str] | None = None) -> None:
        self._file = file
        self._interfaces: dict[int, int] = {}
        options = [(_COMMENT, _text(comment)) for comment in comments or []]
        options.append((_APPLICATION, _text(application)))
        self._block(_SECTION, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + _options(options))

    def _block(self, kind: int, body: bytes) -> None:
        size = 12 + len(body)
        self._file.write(struct.pack("<II", kind, size) + body + struct.pack("<I", size))

    def write_secrets(self, kind: int, secrets: bytes) -> None:
        """A Decryption Secrets Block; readers want it before the packets that need it."""
        self._block(_SECRETS, struct.pack("<II", kind, len(secrets)) + _padded(secrets))

    def write(self, ts_ns: int, data: bytes, origlen: int, link_type: int, comments: list[str] | None = None) -> None:
        interface = self._interfaces.get(link_type)
        if interface is None:
            interface = self._interfaces[link_type] = len(self._interfaces)
            body = struct.pack("<HHI", link_type, 0, 0) + _options([(_RESOLUTION, b"\x09")])
            self._block(_INTERFACE, body)
        header = struct.pack("<IIIII", interface, ts_ns >> 32, ts_ns & 0xFFFFFFFF, len(data), origlen)
        options = _options([(_COMMENT, _text(comment)) for comment in comments or []])
        self._block(_PACKET, header + _padded(data) + options)
