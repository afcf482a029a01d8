"""Which published or played stream is another try of which earlier one: attempt_no, prev_uid, down_ms of `streams`.

A try follows one that had ended when it began; what goes on at the same time is something else, and is counted on its
own. Players are told apart by the address they come from. Names that were not recorded are never the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

from rtmp_spark.capture.facts import Row
from rtmp_spark.schema import column_names

_COLUMNS = column_names("streams")
_UID, _STREAM_ID, _APP, _NAME, _ROLE, _ATTEMPT, _START, _END = (
    _COLUMNS.index(c) for c in ("uid", "stream_id", "app", "name", "role", "attempt_no", "ts_start", "ts_end")
)


class _Tries:
    """The streams of one app, name and role, as they begin."""

    __slots__ = ("_count", "_ended", "_running")

    def __init__(self) -> None:
        self._count = 0
        self._running: list[tuple[int, int, Row]] = []  # by their end, then in their order
        self._ended: list[Row] = []  # nobody followed yet; the last to end stands last

    def follow(self, row: Row) -> Row:
        """The row with the try before it, which nobody else follows then."""
        while self._running and self._running[0][0] <= row[_START]:
            self._ended.append(heappop(self._running)[2])
        tried: tuple[object, ...] = (1, None, None)
        if self._ended:
            before = self._ended.pop()
            tried = (before[_ATTEMPT] + 1, before[_UID], (row[_START] - before[_END]) / 1000)
        row = (*row[:_ATTEMPT], *tried, *row[_ATTEMPT + 3 :])
        self._count += 1
        heappush(self._running, (row[_END], self._count, row))
        return row


def number_attempts(rows: Iterable[Row], hosts: Mapping[str, str]) -> list[Row]:
    """Rows of `streams` in the order of time, each knowing the try before it; `hosts` are the clients by uid."""
    tries: dict[tuple[object, ...], _Tries] = {}
    numbered: list[Row] = []
    for row in sorted(rows, key=lambda r: (r[_START], r[_UID], r[_STREAM_ID])):
        if row[_NAME] is not None:
            host = hosts.get(row[_UID]) if row[_ROLE] == "play" else None
            row = tries.setdefault((row[_APP], row[_NAME], row[_ROLE], host), _Tries()).follow(row)
        numbered.append(row)
    return numbered
