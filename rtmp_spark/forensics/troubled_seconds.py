"""Seconds in which TCP retransmitted or the receiver's window was zero. The stall rules use them to find causes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rtmp_spark.codec.limits import MAX_TROUBLED_SECONDS
from rtmp_spark.conversation.facts import Row
from rtmp_spark.schema import column_names

_COLUMNS = column_names("intervals")
_SECOND, _RETRANSMITTED, _ZERO_WINDOW = (
    _COLUMNS.index(name) for name in ("ts_second", "retransmitted_bytes", "zero_window_ms")
)


class TroubledSeconds:
    __slots__ = ("_retransmitted", "_window_closed_ms")

    def __init__(self) -> None:
        self._retransmitted: dict[str, set[int]] = {}
        self._window_closed_ms: dict[str, dict[int, float]] = {}  # direction -> {second: ms}

    def add(self, direction: str, rows: Sequence[Row]) -> None:
        """Rows of `intervals` that will not change any more."""
        for row in rows:
            second = row[_SECOND] // 1_000_000
            if row[_RETRANSMITTED]:
                # The link was bad for both directions: of the other one only a stall may be visible.
                for way in ("c2s", "s2c"):
                    troubled = self._retransmitted.setdefault(way, set())
                    if len(troubled) < MAX_TROUBLED_SECONDS:
                        troubled.add(second)
            if row[_ZERO_WINDOW]:
                closed = self._window_closed_ms.setdefault(direction, {})
                if len(closed) < MAX_TROUBLED_SECONDS:
                    closed[second] = closed.get(second, 0.0) + row[_ZERO_WINDOW]  # a long one comes in parts

    def retransmitted(self, direction: str) -> Collection[int]:
        return self._retransmitted.get(direction, ())

    def window_closed_ms(self, direction: str) -> Mapping[int, float]:
        return self._window_closed_ms.get(direction, {})

    def state(self) -> dict[str, Any]:
        return {
            "retransmitted": {d: sorted(seconds) for d, seconds in self._retransmitted.items()},
            "window_closed_ms": {d: sorted(seconds.items()) for d, seconds in self._window_closed_ms.items()},
        }

    @classmethod
    def resume(cls, state: dict[str, Any]) -> TroubledSeconds:
        own = cls()
        own._retransmitted = {d: set(seconds) for d, seconds in state["retransmitted"].items()}
        own._window_closed_ms = {d: dict(seconds) for d, seconds in state["window_closed_ms"].items()}
        return own
