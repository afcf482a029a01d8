"""The whole analyzer over one live connection: its rules of both directions, judged when the connection ends.

The bytes are given to the analyzer as the packets of the tap would bring them, one after another, so it holds no more
than it does for a capture. Only `--validate` loads this, and with it numpy and pyarrow.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, NamedTuple

from rtmp_spark.codec.errors import Severity, ViolationCode

_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16
_WINDOW = 1 << 30  # nobody waits for a window here: flow control of TCP is not what is judged


class Told(NamedTuple):
    """One finding of the analyzer."""

    code: ViolationCode
    severity: Severity
    at_fault: str | None
    detail: str


class _NoRows:
    """A place for rows that keeps none: only the judgement is wanted."""

    def wants(self, table: str) -> bool:
        return False

    def add_group(self, table: str, uid: str, direction: str, rows: Sequence[Any]) -> None:
        pass

    def add(self, table: str, rows: Sequence[Any]) -> None:
        pass

    add_late = add


def _packed(address: tuple[str, int]) -> bytes:
    try:
        ip = ipaddress.ip_address(address[0].partition("%")[0])
    except ValueError:
        ip = ipaddress.ip_address("127.0.0.1")
    if ip.version == 4:
        ip = ipaddress.IPv6Address(f"::ffff:{ip}")
    return ip.packed + address[1].to_bytes(2, "big")


class LiveAnalysis:
    """`data` in the order of time, then `close`, which gives the findings."""

    def __init__(self, number: int, client: tuple[str, int], server: tuple[str, int], time_ns: int) -> None:
        from rtmp_spark.capture.connection import Connection
        from rtmp_spark.capture.conversation import Conversation
        from rtmp_spark.capture.settings import Settings
        from rtmp_spark.forensics.judge import Judge

        ends = _packed(client), _packed(server)
        self._client_side = 0 if ends[0] <= ends[1] else 1
        self._connection = Connection(b"".join(sorted(ends)), number)
        told: list[Told] = []

        class Listening(Judge):
            def end(self, ending: Any, cause: str, findings: Any) -> None:
                super().end(ending, cause, findings)
                told.extend(
                    Told(f.code, f.severity or f.code.severity, f.at_fault, f.detail) for f in findings.first_ones()
                )

        self._told = told
        settings = Settings(judge=Listening, message_rows=False, command_rows=False)
        self._conversation = Conversation(self._connection, settings)
        self._sink: Any = _NoRows()
        self._frame = 0
        self._next = [0, 0]  # sequence numbers, by side
        self._segment(self._client_side, _SYN, b"", time_ns)
        self._segment(1 - self._client_side, _SYN | _ACK, b"", time_ns)

    def _segment(self, side: int, flags: int, data: bytes, time_ns: int) -> None:
        out: list[Any] = []
        self._frame += 1
        seq, ack = self._next[side] & 0xFFFFFFFF, self._next[1 - side] & 0xFFFFFFFF
        self._connection.receive(side, self._frame, time_ns, seq, ack, flags, _WINDOW, data, 0, -1, -1, out)
        self._connection.flush(out)
        self._next[side] += len(data) + bool(flags & (_SYN | _FIN))
        self._tell(out)

    def _tell(self, items: list[Any]) -> None:
        from rtmp_spark.capture.items import Closed

        for item in items:
            if not isinstance(item, Closed):
                self._conversation.receive(item)

    def data(self, from_client: bool, data: bytes, time_ns: int) -> None:
        side = self._client_side if from_client else 1 - self._client_side
        self._segment(side, _ACK, data, time_ns)
        self._conversation.advance(self._sink, self._frame, time_ns // 1_000_000_000)

    def close(self, by_client: bool, reset: bool, time_ns: int) -> list[Told]:
        first = self._client_side if by_client else 1 - self._client_side
        self._segment(first, (_RST if reset else _FIN) | _ACK, b"", time_ns)
        if not reset:
            self._segment(1 - first, _FIN | _ACK, b"", time_ns)
        out: list[Any] = []
        self._connection.finish(out)
        self._tell(out)
        self._conversation.close(self._sink)
        return self._told
