"""A small pcapng writer: packets with nanosecond timestamps, one interface per link type, comments.

It writes one little-endian section.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from rtmp_spark.capture.files.pcapng import BYTE_ORDER_MAGIC, ENHANCED, IF_TSRESOL, INTERFACE, SECRETS, SECTION_HEADER
from rtmp_spark.codec.limits import PCAPNG_OPTION_BYTES

_COMMENT, _APPLICATION = 1, 4


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _options(options: list[tuple[int, bytes]]) -> bytes:
    if not options:
        return b""
    parts = [struct.pack("<HH", code, len(value)) + _padded(value) for code, value in options]
    return b"".join(parts) + bytes(4)


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:PCAPNG_OPTION_BYTES].decode("utf-8", "ignore").encode()


class PcapngWriter:
    def __init__(self, file: BinaryIO, application: str, comments: list[str] | None = None) -> None:
        self._file = file
        self._interfaces: dict[int, int] = {}
        options = [(_COMMENT, _text(comment)) for comment in comments or []]
        options.append((_APPLICATION, _text(application)))
        self._block(SECTION_HEADER, struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, -1) + _options(options))

    def _block(self, kind: int, body: bytes) -> None:
        size = 12 + len(body)
        self._file.write(struct.pack("<II", kind, size) + body + struct.pack("<I", size))

    def write_secrets(self, kind: int, secrets: bytes) -> None:
        """Write a Decryption Secrets Block; readers expect it before the packets that need it."""
        self._block(SECRETS, struct.pack("<II", kind, len(secrets)) + _padded(secrets))

    def write(self, ts_ns: int, data: bytes, origlen: int, link_type: int, comments: list[str] | None = None) -> None:
        interface = self._interfaces.get(link_type)
        if interface is None:
            interface = self._interfaces[link_type] = len(self._interfaces)
            body = struct.pack("<HHI", link_type, 0, 0) + _options([(IF_TSRESOL, b"\x09")])
            self._block(INTERFACE, body)
        header = struct.pack("<IIIII", interface, ts_ns >> 32, ts_ns & 0xFFFFFFFF, len(data), origlen)
        options = _options([(_COMMENT, _text(comment)) for comment in comments or []])
        self._block(ENHANCED, header + _padded(data) + options)
