"""The per-second facts of one connection: what TCP did and what media arrived, merged into rows of `intervals`.

Partial figures of a second are added up as they come; a second becomes a row when no packet can change it any more, or
when the connection ends. Nothing is interpolated: a second without packets and messages has no row.
"""

from __future__ import annotations

from typing import Any

from rtmp_spark.capture.facts import Row, add_seconds

SETTLED_SECONDS = 300  # behind the newest packet a second counts as final
# packets, bytes, retransmitted, gap, zero window ns, least window, most in flight, rtt sum ns, rtt samples
_EMPTY_TCP = (0, 0, 0, 0, 0, -1, -1, 0, 0)
# audio bytes, video bytes, frames, key frames, first dts, last dts, acknowledgement
_EMPTY_MEDIA = (0, 0, 0, 0, None, None, None)


class Seconds:
    """Seconds of one direction that are still open."""

    __slots__ = ("_media", "_tcp")

    def __init__(self) -> None:
        self._tcp: dict[int, list[Any]] = {}
        self._media: dict[int, list[Any]] = {}

    @property
    def empty(self) -> bool:
        return not self._tcp and not self._media

    def add_tcp(self, second: int, values: tuple[Any, ...]) -> None:
        known = self._tcp.get(second)
        if known is None:
            self._tcp[second] = list(values)
            return
        for index in (0, 1, 2, 3, 4, 7, 8):
            known[index] += values[index]
        if values[5] >= 0:
            known[5] = values[5] if known[5] < 0 else min(known[5], values[5])
        known[6] = max(known[6], values[6])

    def add_media(self, seconds: dict[int, list[Any]]) -> None:
        add_seconds(self._media, seconds)

    def take(self, uid: str, direction: str, before: int | None = None) -> list[Row]:
        """Rows of the seconds before `before`, or of all."""
        chosen = sorted(s for s in self._tcp.keys() | self._media.keys() if before is None or s < before)
        rows: list[Row] = []
        for second in chosen:
            tcp = self._tcp.pop(second, _EMPTY_TCP)
            media = self._media.pop(second, _EMPTY_MEDIA)
            rtt = tcp[7] / tcp[8] / 1e6 if tcp[8] else None
            rows.append(
                (
                    uid, direction, second * 1_000_000, *tcp[:4], tcp[4] / 1e6, None if tcp[5] < 0 else tcp[5],
                    None if tcp[6] < 0 else tcp[6], rtt, *media,
                )
            )  # fmt: skip
        return rows

    def state(self) -> list[Any]:
        return [list(self._tcp.items()), list(self._media.items())]

    @classmethod
    def resume(cls, state: list[Any]) -> Seconds:
        seconds = cls()
        seconds._tcp = dict(state[0])
        seconds._media = dict(state[1])
        return seconds
