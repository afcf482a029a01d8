"""The whole analyzer over one live connection: its rules of both directions are applied when the connection ends.

The bytes are given to the analyzer like the packets of the tap, one after another, so it keeps no more in memory than
for a capture. Only `--validate` and `--live` load this module, and with it numpy and pyarrow.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from rtmp_spark.capture.tcp.stream_items import Closed, Item, ItemList
from rtmp_spark.capture.tcp.tcp_connection import Connection, Packet
from rtmp_spark.codec.errors import Severity, ViolationCode

_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16
_WINDOW = 1 << 30  # never the limit: flow control of TCP is not analyzed here


class LiveFinding(NamedTuple):
    """One finding of the analyzer."""

    code: ViolationCode
    severity: Severity
    at_fault: str | None
    detail: str
    from_client: bool | None
    stream_id: int | None
    time_us: int | None


def _packed(address: tuple[str, int]) -> bytes:
    try:
        ip = ipaddress.ip_address(address[0].partition("%")[0])
    except ValueError:
        ip = ipaddress.ip_address("127.0.0.1")
    if ip.version == 4:
        ip = ipaddress.IPv6Address(f"::ffff:{ip}")
    return ip.packed + address[1].to_bytes(2, "big")


class LiveAnalysis:
    """Call `data` in the order of time, then `close`, which returns the findings."""

    def __init__(self, number: int, client: tuple[str, int], server: tuple[str, int], time_ns: int) -> None:
        from rtmp_spark.analysis.connection_analysis import single_connection

        ends = _packed(client), _packed(server)
        self._client_side = 0 if ends[0] <= ends[1] else 1
        self._connection = Connection(b"".join(sorted(ends)), number)
        self._analysis = single_connection(self._connection)
        self._frame = 0
        self._next = [0, 0]  # sequence numbers, by side
        self._segment(self._client_side, _SYN, b"", time_ns)
        self._segment(1 - self._client_side, _SYN | _ACK, b"", time_ns)

    def _segment(self, side: int, flags: int, data: bytes, time_ns: int) -> None:
        items = ItemList(self._connection, [])
        self._frame += 1
        seq, ack = self._next[side] & 0xFFFFFFFF, self._next[1 - side] & 0xFFFFFFFF
        self._connection.receive(Packet(side, self._frame, time_ns, seq, ack, flags, _WINDOW), data, items)
        self._connection.flush(items)
        self._next[side] += len(data) + bool(flags & (_SYN | _FIN))
        self._deliver(items.out)

    def _deliver(self, items: list[Item]) -> None:
        for item in items:
            if not isinstance(item, Closed):
                self._analysis.receive(item)

    def data(self, from_client: bool, data: bytes, time_ns: int) -> None:
        side = self._client_side if from_client else 1 - self._client_side
        self._segment(side, _ACK, data, time_ns)
        self._analysis.advance(self._frame, time_ns // 1_000_000_000)

    def close(self, by_client: bool, reset: bool, time_ns: int) -> list[LiveFinding]:
        first = self._client_side if by_client else 1 - self._client_side
        self._segment(first, (_RST if reset else _FIN) | _ACK, b"", time_ns)
        if not reset:
            self._segment(1 - first, _FIN | _ACK, b"", time_ns)
        items = ItemList(self._connection, [])
        items.finish()
        self._deliver(items.out)
        if not self._analysis.close():
            return []
        return [
            LiveFinding(
                f.code,
                f.severity or f.code.severity,
                f.at_fault,
                f.detail,
                None if f.direction is None else f.direction == "c2s",
                f.stream_id,
                f.ts,
            )
            for f in self._analysis.findings.first_ones()
        ]
