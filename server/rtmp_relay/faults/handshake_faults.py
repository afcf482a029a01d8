"""Faults of the handshake (HS_ rules)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rtmp_relay.client.client_options import ClientOptions
from rtmp_spark.codec.handshake import DIGEST1, PLAIN

from .fault import CLIENT, EITHER, Fault, FaultEntry


class HandshakeFault(Fault):
    """Changes one part of a handshake of the given scheme."""

    def __init__(self, part: int, change: Callable[[bytes], bytes], scheme: str, then_close: bool = False) -> None:
        self._part = part
        self._change = change
        self._scheme = scheme
        self._then_close = then_close

    def client_options(self, options: ClientOptions) -> ClientOptions:
        return replace(options, scheme=self._scheme)

    def answer_scheme(self, scheme: str) -> str:
        return PLAIN if self._scheme == PLAIN else scheme

    def handshake_part(self, part: int, data: bytes) -> bytes:
        if part != self._part:
            return data
        self.closes_connection = self._then_close
        return self._change(data)


def _inverted(data: bytes) -> bytes:
    return bytes(255 - byte for byte in data)


HANDSHAKE_FAULTS = {
    "HS_VERSION": FaultEntry(EITHER, "sends version 5 in C0 or S0", lambda: HandshakeFault(0, lambda _: b"\5", PLAIN)),
    "HS_INCOMPLETE": FaultEntry(
        CLIENT,
        "closes the connection in the middle of C2",
        lambda: HandshakeFault(2, lambda data: data[:700], PLAIN, then_close=True),
    ),
    "HS_ECHO": FaultEntry(
        EITHER,
        "sends a C2 or S2 that does not echo the peer, in a plain handshake",
        lambda: HandshakeFault(2, _inverted, PLAIN),
    ),
    "HS_DIGEST": FaultEntry(
        EITHER,
        "sends a C2 or S2 with a wrong signature, in a digest handshake",
        lambda: HandshakeFault(2, _inverted, DIGEST1),
    ),
}
