"""Which stream is another attempt of which earlier one: attempt_no, prev_uid and down_ms of `streams`.

An attempt follows a stream of the same app, name and role that had ended when it began; simultaneous streams are
counted separately. Players are distinguished by their addresses. Streams whose names were not captured have no
attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

from rtmp_spark.conversation.facts import Row
from rtmp_spark.schema import column_names

_COLUMNS = column_names("streams")
_UID, _STREAM_ID, _APP, _NAME, _ROLE, _ATTEMPT, _START, _END = (
    _COLUMNS.index(c) for c in ("uid", "stream_id", "app", "name", "role", "attempt_no", "ts_start", "ts_end")
)


class _Attempts:
    """The streams of one app, name and role, in the order in which they began."""

    __slots__ = ("_count", "_ended", "_running")

    def __init__(self) -> None:
        self._count = 0
        self._running: list[tuple[int, int, Row]] = []  # (end, number, row), the first to end first
        self._ended: list[Row] = []  # without a following attempt, the last to end last

    def follow(self, row: Row) -> Row:
        """The row with its previous attempt; no other stream follows the same one."""
        while self._running and self._running[0][0] <= row[_START]:
            self._ended.append(heappop(self._running)[2])
        attempt: tuple[object, ...] = (1, None, None)
        if self._ended:
            before = self._ended.pop()
            attempt = (before[_ATTEMPT] + 1, before[_UID], (row[_START] - before[_END]) / 1000)
        row = (*row[:_ATTEMPT], *attempt, *row[_ATTEMPT + 3 :])
        self._count += 1
        heappush(self._running, (row[_END], self._count, row))
        return row


def number_attempts(rows: Iterable[Row], hosts: Mapping[str, str]) -> list[Row]:
    """Rows of `streams` in the order of time, with their attempts; `hosts` are the client addresses by uid."""
    attempts: dict[tuple[object, ...], _Attempts] = {}
    numbered: list[Row] = []
    for row in sorted(rows, key=lambda r: (r[_START], r[_UID], r[_STREAM_ID])):
        if row[_NAME] is not None:
            host = hosts.get(row[_UID]) if row[_ROLE] == "play" else None
            row = attempts.setdefault((row[_APP], row[_NAME], row[_ROLE], host), _Attempts()).follow(row)
        numbered.append(row)
    return numbered
