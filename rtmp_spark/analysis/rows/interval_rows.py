"""The rows of `intervals`: figures of TCP and media for each second of one direction.

Partial figures of a second are added up as they arrive. A second becomes a row when no packet can change it any more,
or when the connection ends. Nothing is interpolated: a second without packets and messages has no row.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.conversation.facts import MediaSecond, Row, add_seconds


class TcpSecond(NamedTuple):
    """Figures of TCP in one second, in the order of the reassembler's columns. -1: unknown."""

    packets: int
    bytes: int
    retransmitted_bytes: int
    gap_bytes: int
    zero_window_ns: int
    window_min: int
    in_flight_max: int
    rtt_sum_ns: int
    rtt_samples: int

    def plus(self, more: TcpSecond) -> TcpSecond:
        windows = [window for window in (self.window_min, more.window_min) if window >= 0]
        return TcpSecond(
            self.packets + more.packets, self.bytes + more.bytes, self.retransmitted_bytes + more.retransmitted_bytes,
            self.gap_bytes + more.gap_bytes, self.zero_window_ns + more.zero_window_ns, min(windows, default=-1),
            max(self.in_flight_max, more.in_flight_max), self.rtt_sum_ns + more.rtt_sum_ns,
            self.rtt_samples + more.rtt_samples,
        )  # fmt: skip

    def columns(self) -> tuple[float | None, ...]:
        """In the column order of `intervals`."""
        return (
            self.packets, self.bytes, self.retransmitted_bytes, self.gap_bytes, self.zero_window_ns / 1e6,
            None if self.window_min < 0 else self.window_min, None if self.in_flight_max < 0 else self.in_flight_max,
            self.rtt_sum_ns / self.rtt_samples / 1e6 if self.rtt_samples else None,
        )  # fmt: skip


SecondsState = SavedFields  # seconds and their figures, of TCP and of media
_NO_TCP: Final = TcpSecond(0, 0, 0, 0, 0, -1, -1, 0, 0)
_NO_MEDIA: Final = MediaSecond()


class OpenSeconds:
    """Seconds of one direction that are not rows yet."""

    __slots__ = ("_media", "_tcp")

    def __init__(self) -> None:
        self._tcp: dict[int, TcpSecond] = {}
        self._media: dict[int, MediaSecond] = {}

    @property
    def empty(self) -> bool:
        return not self._tcp and not self._media

    @property
    def first(self) -> int:
        """The first second; call it only if there are seconds."""
        return min((*self._tcp, *self._media))

    def latest(self, count: int) -> int:
        """The first of the latest `count` seconds; 0: there are not more."""
        if len(self._tcp) + len(self._media) <= count:
            return 0
        return sorted(self._tcp.keys() | self._media.keys())[-count:][0]

    def add_tcp(self, second: int, figures: TcpSecond) -> None:
        known = self._tcp.get(second)
        self._tcp[second] = figures if known is None else known.plus(figures)

    def add_media(self, seconds: dict[int, MediaSecond]) -> None:
        add_seconds(self._media, seconds)

    def take(self, uid: str, direction: str, before: int | None = None) -> list[Row]:
        """Rows of the seconds before `before`, or of all."""
        chosen = sorted(s for s in self._tcp.keys() | self._media.keys() if before is None or s < before)
        return [
            (
                uid, direction, second * 1_000_000, *self._tcp.pop(second, _NO_TCP).columns(),
                *self._media.pop(second, _NO_MEDIA).values(),
            )
            for second in chosen
        ]  # fmt: skip

    def state(self) -> SecondsState:
        return list(self._tcp.items()), [(second, media.values()) for second, media in self._media.items()]

    @classmethod
    def resume(cls, state: SecondsState) -> OpenSeconds:
        own = cls()
        own._tcp = {second: TcpSecond(*figures) for second, figures in state[0]}
        own._media = {second: MediaSecond.resume(values) for second, values in state[1]}
        return own
