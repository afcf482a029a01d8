"""The handshake messages that are needed to decrypt with known secrets: hellos, Finished, KeyUpdate.

A message may be divided over several records, and a record may contain several messages. All other messages
(certificates, tickets) are skipped by their length. Nothing is verified: the peers did that.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

from rtmp_spark.codec.limits import TLS_HELLO_BYTES

CLIENT_HELLO, SERVER_HELLO, END_OF_EARLY_DATA, FINISHED, KEY_UPDATE = 1, 2, 5, 20, 24
_KEPT = frozenset({CLIENT_HELLO, SERVER_HELLO, END_OF_EARLY_DATA, FINISHED, KEY_UPDATE})
_SERVER_NAME, _ENCRYPT_THEN_MAC, _EARLY_DATA, _SUPPORTED_VERSIONS = 0, 22, 42, 43
# SHA-256 of "HelloRetryRequest" (RFC 8446 4.1.3)
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")


class ClientHello(NamedTuple):
    random: bytes
    server_name: str | None
    early_data: bool


class ServerHello(NamedTuple):
    random: bytes
    version: int
    suite: int
    encrypt_then_mac: bool
    retry: bool = False  # a HelloRetryRequest: another hello follows


def parse_client_hello(body: bytes) -> ClientHello | None:
    """Parse the body of the message, without its type and length; None if it is invalid."""
    try:
        at = 34
        at += 1 + body[at]
        at += 2 + int.from_bytes(body[at : at + 2], "big")
        at += 1 + body[at]
    except IndexError:
        return None
    extensions = _extensions(body, at)
    return ClientHello(body[2:34], _host(extensions.get(_SERVER_NAME)), _EARLY_DATA in extensions)


def parse_server_hello(body: bytes) -> ServerHello | None:
    try:
        at = 34
        at += 1 + body[at]
        suite = int.from_bytes(body[at : at + 2], "big")
        at += 3
    except IndexError:
        return None
    if at > len(body):
        return None
    extensions = _extensions(body, at)
    version = int.from_bytes(extensions.get(_SUPPORTED_VERSIONS, body[:2])[:2], "big")
    random = body[2:34]
    return ServerHello(random, version, suite, _ENCRYPT_THEN_MAC in extensions, random == _RETRY)


def _extensions(body: bytes, at: int) -> dict[int, bytes]:
    end = min(len(body), at + 2 + int.from_bytes(body[at : at + 2], "big"))
    found: dict[int, bytes] = {}
    at += 2
    while at + 4 <= end:
        kind, size = int.from_bytes(body[at : at + 2], "big"), int.from_bytes(body[at + 2 : at + 4], "big")
        found.setdefault(kind, body[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def _host(extension: bytes | None) -> str | None:
    """RFC 6066 3."""
    if extension is None or len(extension) < 5 or extension[2] != 0:
        return None
    size = int.from_bytes(extension[3:5], "big")
    return extension[5 : 5 + size].decode("ascii", "replace").lower() or None


class HandshakeReader:
    """Divides the handshake bytes of one direction into messages."""

    __slots__ = ("_kept", "_skip")

    def __init__(self) -> None:
        self._kept = b""
        self._skip = 0

    def receive(self, data: bytes) -> list[tuple[int, bytes]]:
        """Complete messages: their type, and the body of those in `_KEPT` (empty for others)."""
        found: list[tuple[int, bytes]] = []
        if self._skip:
            passed = min(self._skip, len(data))
            self._skip -= passed
            data = data[passed:]
        data = self._kept + data
        at = 0
        while len(data) - at >= 4:
            kind, size = data[at], int.from_bytes(data[at + 1 : at + 4], "big")
            if kind not in _KEPT or size > TLS_HELLO_BYTES:
                found.append((kind, b""))
                self._skip = max(0, at + 4 + size - len(data))
            elif len(data) - at < 4 + size:
                break
            else:
                found.append((kind, data[at + 4 : at + 4 + size]))
            at += 4 + size
        self._kept = data[at:]
        return found

    def forget(self) -> None:
        """Bytes were lost: assume that the next record begins a message."""
        self._kept, self._skip = b"", 0

    @property
    def between(self) -> bool:
        return not self._kept and not self._skip

    def state(self) -> list[Any]:
        return [base64.b64encode(self._kept).decode(), self._skip]

    @classmethod
    def resume(cls, state: list[Any]) -> HandshakeReader:
        own = cls()
        own._kept, own._skip = base64.b64decode(state[0]), state[1]
        return own
