"""Figures of the wire of one connection, from its rows of `intervals` and `controls`: bitrate, acknowledgements, TCP.

A second without a row is a second without packets and is drawn as zero between the first and the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rtmp_spark.report import text
from rtmp_spark.report.figure import BARS, DOTS, LINE, Figure, Lane, Mark, Series, thinned
from rtmp_spark.report.thin import Numbers

Row = dict[str, Any]
WAYS = {"c2s": "client → server", "s2c": "server → client"}
OTHER = {"c2s": "s2c", "s2c": "c2s"}
_BARS_UP_TO = 900  # seconds; longer sessions are drawn as lines
_LONGEST = 1_000_000  # seconds, to either side of the middle
_WRAP = 1 << 32
_LANE_SPANS = 400
_KEYS_DRAWN = 150  # more would be a solid bar
_TROUBLE: tuple[tuple[str, str, str, Callable[[float], str]], ...] = (
    ("sent again", "retransmitted_bytes", "warn", lambda value: f"{text.size(value)} sent again"),
    ("missing", "gap_bytes", "bad", lambda value: f"{text.size(value)} in no packet"),
    ("zero window", "zero_window_ms", "warn", lambda value: f"window closed for {text.span(value)}"),
)


_TAPPED = "The TCP headers of this recording were made up by a tap, and tell nothing about a network."


def is_tap(intervals: Sequence[Row]) -> bool:
    """Whether the packets were written by a program: a real peer takes some time to acknowledge."""
    trips = {row["rtt_ms"] for row in intervals} - {None}
    windows = {row["window_min"] for row in intervals} - {None}
    return trips == {0} and len(windows) == 1


class Seconds:
    """The intervals of one direction as columns over an unbroken run of seconds."""

    def __init__(self, rows: Sequence[Row], start: int, end: int | None = None) -> None:
        self.rows = sorted(rows, key=lambda row: row["ts_second"])
        if self.rows:  # where a clock jumped by years, what is far from the rest is not drawn
            middle = self.rows[len(self.rows) // 2]["ts_second"]
            self.rows = [row for row in self.rows if abs(row["ts_second"] - middle) <= _LONGEST * 1_000_000]
        first = self.rows[0]["ts_second"] // 1_000_000 if self.rows else 0
        last = self.rows[-1]["ts_second"] // 1_000_000 if self.rows else -1
        self.places = [row["ts_second"] // 1_000_000 - first for row in self.rows]
        self.length = last - first + 1
        self.x = np.arange(self.length) + (first - start / 1e6)
        # A second that the connection began or ended in counts only as far as it was there.
        self.begins = np.maximum(self.x, 0.0)
        self.ends = self.x + 1 if end is None else np.minimum(self.x + 1, (end - start) / 1e6)
        self.middles = (self.begins + self.ends) / 2

    def column(self, name: str, empty: float = 0.0) -> Numbers:
        values = np.full(self.length, empty)
        for place, row in zip(self.places, self.rows):
            if row[name] is not None:
                values[place] = row[name]
        return values


def seconds_of(intervals: Sequence[Row], start: int, end: int | None = None) -> dict[str, Seconds]:
    return {way: Seconds([row for row in intervals if row["direction"] == way], start, end) for way in WAYS}


def media_way(ways: dict[str, Seconds]) -> str | None:
    """The direction that carries the media."""
    sums = {way: float((s.column("audio_bytes") + s.column("video_bytes")).sum()) for way, s in ways.items()}
    best = max(sums, key=lambda way: sums[way])
    return best if sums[best] else None


def bitrate(intervals: Sequence[Row], start: int, keys: Sequence[float] = ()) -> Figure:
    """What arrived per second, audio and video; beneath it the times of key frames and what disturbed it."""
    ways = seconds_of(intervals, start)
    way = media_way(ways)
    title = "Media bitrate per second"
    if way is None:
        return Figure("bitrate", title, "b/s", missing="No audio or video crossed it while it was recorded.")
    seconds = ways[way]
    audio, video = seconds.column("audio_bytes") * 8, seconds.column("video_bytes") * 8
    kinds = [("video", video, audio), ("audio", audio, np.zeros(seconds.length))]
    kinds = [kind for kind in kinds if kind[1].any()]
    if seconds.length <= _BARS_UP_TO:
        x = [round(float(v), 3) for v in seconds.x]
        series = [
            Series(name, name, BARS, x, values.tolist(), seconds.length, base.tolist() if len(kinds) > 1 else [])
            for name, values, base in kinds
        ]
    else:
        series = [thinned(name, name, LINE, seconds.x + 0.5, values) for name, values, _ in kinds]
    lanes = [Lane("key frames", "key", [(x, x, f"key frame at {x:.3f} s") for x in keys])]
    lanes = lanes if 0 < len(keys) <= _KEYS_DRAWN else []
    lanes += _trouble(ways)
    silent = _silences(seconds, audio + video)
    if silent:
        lanes.append(Lane("no media", "bad", silent))
    return Figure("bitrate", f"{title}, {WAYS[way]}", "b/s", series, lanes, note=_mean(seconds, audio, video))


def _mean(seconds: Seconds, audio: Numbers, video: Numbers) -> str:
    total = audio + video
    busy = np.flatnonzero(total)
    whole = total[busy[0] + 1 : busy[-1]]
    if not len(whole):
        return ""
    return (
        f"Whole seconds: mean {text.bitrate(float(whole.mean()))}, lowest {text.bitrate(float(whole.min()))}, "
        f"highest {text.bitrate(float(whole.max()))}."
    )


def _trouble(ways: dict[str, Seconds]) -> list[Lane]:
    lanes = []
    for name, column, role, say in _TROUBLE:
        spans = [
            (round(float(x), 3), round(float(x) + 1, 3), f"{WAYS[way]}: {say(float(value))}")
            for way, seconds in ways.items()
            for x, value in zip(seconds.x, seconds.column(column))
            if value
        ]
        if spans:
            lanes.append(Lane(name, role, sorted(spans)[:_LANE_SPANS]))
    return lanes


def _silences(seconds: Seconds, media: Numbers) -> list[tuple[float, float, str]]:
    """Whole seconds without media between the first and the last that had some."""
    busy = np.flatnonzero(media)
    holes = [(a, b) for a, b in pairwise(busy.tolist()) if b - a > 1]
    return [
        (round(float(seconds.x[a]) + 1, 3), round(float(seconds.x[b]), 3), f"nothing for about {int(b - a - 1)} s")
        for a, b in holes[:_LANE_SPANS]
    ]


def acknowledgements(intervals: Sequence[Row], controls: Sequence[Row], start: int, end: int) -> Figure:
    """Bytes sent in the direction of the media, what RTMP acknowledged of them, and what the window allows."""
    ways = seconds_of(intervals, start, end)
    way = media_way(ways) or max(ways, key=lambda w: float(ways[w].column("bytes").sum()))
    seconds = ways[way]
    title = f"Bytes sent and acknowledged (RTMP), {WAYS[way]}"
    if not seconds.length:
        return Figure("acks", title, "B", missing="No packets of this direction were recorded.")
    sent = np.cumsum(seconds.column("bytes") - seconds.column("retransmitted_bytes"))
    places, sums = np.append(seconds.begins[0], seconds.ends), np.append(0.0, sent)
    series = [thinned("sent", "sent", LINE, places, sums)]
    windows = [row for row in controls if row["kind"] == "window_ack_size" and row["direction"] == way]
    window = windows[-1]["value"] if windows else None
    acks = [row for row in controls if row["kind"] == "acknowledgement" and row["direction"] == OTHER[way]]
    if acks:
        when = np.array([(row["ts"] - start) / 1e6 for row in acks])
        value = unwrapped(np.array([row["value"] or 0 for row in acks], np.int64))
        series.append(thinned("acknowledged", "acked", DOTS, when, value))
        if window:
            series.append(thinned("allowed: acknowledged + window", "window", LINE, when, value + window))
    note = f"{text.one_of(len(acks), 'Acknowledgement')}. "
    if window:
        note += f"The sender announced a window of {text.size(window)}; {text.size(float(sent[-1]))} were sent."
    else:
        note += "The sender of the data announced no window, so nobody had to acknowledge."
    return Figure("acks", title, "B", series, note=note)


def unwrapped(values: Numbers) -> Numbers:
    """32-bit counters without their wraps."""
    if not len(values):
        return values
    steps = np.diff(values)
    return values + np.concatenate(([0], np.cumsum((steps < -_WRAP // 2) * _WRAP)))


def tcp(intervals: Sequence[Row], start: int, end: int) -> Figure:
    """What the receiver's TCP allowed and what was under way."""
    ways = seconds_of(intervals, start, end)
    way = media_way(ways) or max(ways, key=lambda w: float(ways[w].column("bytes").sum()))
    seconds = ways[way]
    title = f"TCP: receiver's window and bytes in flight, {WAYS[way]}"
    if not seconds.length:
        return Figure("tcp", title, "B", missing="No packets of this direction were recorded.")
    if is_tap(intervals):
        return Figure("tcp", title, "B", missing=_TAPPED)
    series = []
    wanted = (("smallest window", "window_min", "window"), ("most in flight", "in_flight_max", "sent"))
    for name, column, role in wanted:
        values = seconds.column(column, float("nan"))
        known = ~np.isnan(values)
        if known.any():
            series.append(thinned(name, role, LINE, seconds.middles[known], values[known]))
    closed = float(seconds.column("zero_window_ms").sum())
    note = f"The receiver's window was closed for {text.span(closed)} in all." if closed else "The window never closed."
    missing = "Windows are told by the receiver's packets, and those were not recorded."
    return Figure("tcp", title, "B", series, _trouble(ways), note=note, missing=missing)


def round_trips(intervals: Sequence[Row], controls: Sequence[Row], start: int, end: int) -> Figure:
    """Data to its TCP acknowledgement, per second and direction; RTMP pings and their answers."""
    series = []
    tapped = is_tap(intervals)
    for way, seconds in () if tapped else seconds_of(intervals, start, end).items():
        values = seconds.column("rtt_ms", float("nan"))
        known = ~np.isnan(values)
        if known.any():
            role = "video" if way == "c2s" else "audio"
            series.append(thinned(f"TCP, {WAYS[way]}", role, LINE, seconds.middles[known], values[known]))
    answered = pings(controls)
    if answered:
        x = np.array([(ts - start) / 1e6 for ts, _ in answered])
        series.append(thinned("RTMP ping", "key", DOTS, x, np.array([ms for _, ms in answered])))
    missing = _TAPPED if tapped else "No data was acknowledged within the recording, and there were no pings."
    return Figure("rtt", "Round trips", "ms", series, missing=missing, height=120)


def pings(controls: Sequence[Row]) -> list[tuple[int, float]]:
    """(time of the request, ms until its response) of every ping that was answered."""
    waiting: dict[tuple[str, int | None], int] = {}
    answered = []
    for row in sorted(controls, key=lambda r: r["ts"]):
        if row["kind"] == "ping_request":
            waiting[row["direction"], row["event_value"]] = row["ts"]
        elif row["kind"] == "ping_response":
            asked = waiting.pop((OTHER[row["direction"]], row["event_value"]), None)
            if asked is not None:
                answered.append((asked, (row["ts"] - asked) / 1000))
    return answered


def finding_marks(findings: Sequence[Row], start: int) -> list[Mark]:
    """Where errors and warnings were found, for figures over time."""
    roles = {"error": "bad", "warning": "warn"}
    return [
        Mark(round((row["ts"] - start) / 1e6, 3), roles[row["severity"]], row["rule_id"])
        for row in findings
        if row["ts"] is not None and row["severity"] in roles
    ][:12]
