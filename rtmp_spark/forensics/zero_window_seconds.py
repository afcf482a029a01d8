"""Seconds in which the receiver's window was zero. The stall rules use them to find causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.codec.limits import MAX_TROUBLED_SECONDS
from rtmp_spark.conversation.facts import Row
from rtmp_spark.schema import column_names

_COLUMNS = column_names("intervals")
_SECOND, _ZERO_WINDOW = (_COLUMNS.index(name) for name in ("ts_second", "zero_window_ms"))


class ZeroWindowSeconds:
    __slots__ = ("_closed_ms",)

    def __init__(self) -> None:
        self._closed_ms: dict[str, dict[int, float]] = {}  # direction -> {second: ms}

    def add(self, direction: str, rows: Sequence[Row]) -> None:
        """Rows of `intervals` that will not change any more."""
        for row in rows:
            if row[_ZERO_WINDOW]:
                second = row[_SECOND] // 1_000_000
                closed = self._closed_ms.setdefault(direction, {})
                if len(closed) < MAX_TROUBLED_SECONDS:
                    closed[second] = closed.get(second, 0.0) + row[_ZERO_WINDOW]  # a long one comes in parts

    def closed_ms(self, direction: str) -> Mapping[int, float]:
        return self._closed_ms.get(direction, {})

    def state(self) -> dict[str, list[tuple[int, float]]]:
        return {direction: sorted(seconds.items()) for direction, seconds in self._closed_ms.items()}

    @classmethod
    def resume(cls, state: Mapping[str, SavedFields]) -> ZeroWindowSeconds:
        own = cls()
        own._closed_ms = {direction: dict(seconds) for direction, seconds in state.items()}
        return own
