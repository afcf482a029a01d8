"""Frame rate, bitrate, pace, audio/video offset and GOP length of one stream over its last seconds.

Frames are counted by second of arrival, so the memory does not depend on their number. There is no clock: the caller
gives the times.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

WINDOW_S = 5
_SECOND_NS = 1_000_000_000


class Measures(NamedTuple):
    """None: not known yet, or the stream has no such track."""

    frame_rate: float | None  # of video
    bitrate: float | None  # bits of audio and video per second of arrival
    pace: float | None  # media time over time of arrival
    skew_ms: float | None  # audio timestamps minus video timestamps
    gop_ms: int | None  # from the second last keyframe to the last one


class _Span:
    """The first and the last frame of a track in one second: time of arrival and decoding time."""

    __slots__ = ("first_dts", "first_ns", "last_dts", "last_ns")

    def __init__(self, time_ns: int, dts: int) -> None:
        self.first_ns = self.last_ns = time_ns
        self.first_dts = self.last_dts = dts


class _Second:
    __slots__ = ("bytes", "number", "skew_ms", "skew_samples", "spans", "video_frames")

    def __init__(self, number: int) -> None:
        self.number = number
        self.bytes = self.video_frames = self.skew_ms = self.skew_samples = 0
        self.spans: dict[str, _Span] = {}


class RecentMeasures:
    """Call `add` with each coded frame and `measures` whenever the numbers are shown."""

    def __init__(self) -> None:
        self._seconds: deque[_Second] = deque(maxlen=WINDOW_S + 1)
        self._first_ns: int | None = None
        self._kinds: set[str] = set()
        self._audio_dts: int | None = None  # of the last audio frame
        self._key_dts: int | None = None  # of the last keyframe
        self._gop_ms: int | None = None

    @property
    def kept_seconds(self) -> int:
        return len(self._seconds)

    def add(self, time_ns: int, kind: str, dts: int, size: int, is_key: bool = False) -> None:
        """Count a coded frame of `size` bytes; `kind` is audio or video."""
        if self._first_ns is None:
            self._first_ns = time_ns
        self._kinds.add(kind)
        if not self._seconds or time_ns // _SECOND_NS > self._seconds[-1].number:
            self._seconds.append(_Second(time_ns // _SECOND_NS))
        second = self._seconds[-1]  # if the clock stepped back, the latest one
        second.bytes += size
        span = second.spans.get(kind)
        if span is None:
            second.spans[kind] = _Span(time_ns, dts)
        else:
            span.last_ns, span.last_dts = time_ns, dts
        if kind == "audio":
            self._audio_dts = dts
            return
        second.video_frames += 1
        if self._audio_dts is not None:
            second.skew_ms += self._audio_dts - dts
            second.skew_samples += 1
        if is_key:
            if self._key_dts is not None and dts > self._key_dts:
                self._gop_ms = dts - self._key_dts
            self._key_dts = dts

    def measures(self, now_ns: int) -> Measures:
        """The measures of the last `WINDOW_S` seconds, the current one included."""
        first_second = now_ns // _SECOND_NS - WINDOW_S + 1
        seconds = [second for second in self._seconds if second.number >= first_second]
        if self._first_ns is None:
            return Measures(None, None, None, None, None)
        elapsed_s = (now_ns - max(self._first_ns, first_second * _SECOND_NS)) / _SECOND_NS
        if elapsed_s < 1:  # too short for a rate
            return Measures(None, None, None, _skew(seconds), self._gop_ms)
        has_video = "video" in self._kinds
        return Measures(
            sum(second.video_frames for second in seconds) / elapsed_s if has_video else None,
            8 * sum(second.bytes for second in seconds) / elapsed_s,
            _pace([s.spans[kind] for s in seconds if (kind := "video" if has_video else "audio") in s.spans], now_ns),
            _skew(seconds),
            self._gop_ms,
        )


def _pace(spans: list[_Span], now_ns: int) -> float | None:
    if not spans:
        return 0.0
    first, last = spans[0], spans[-1]
    silent = now_ns - last.last_ns > _SECOND_NS
    wall_ns = (now_ns if silent else last.last_ns) - first.first_ns
    return (last.last_dts - first.first_dts) * 1_000_000 / wall_ns if wall_ns >= _SECOND_NS // 2 else None


def _skew(seconds: list[_Second]) -> float | None:
    samples = sum(second.skew_samples for second in seconds)
    return sum(second.skew_ms for second in seconds) / samples if samples else None
