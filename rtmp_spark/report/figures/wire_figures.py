"""Figures of one connection from its rows of `intervals` and `controls`: bitrate, acknowledgements, TCP, round trips.

`intervals` has no row for a second without packets; such a second is drawn as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rtmp_spark.conversation.facts import OTHER_DIRECTION
from rtmp_spark.report import units
from rtmp_spark.report.figures.downsampling import Numbers
from rtmp_spark.report.figures.figure import BARS, DOTS, LINE, Figure, Lane, Series, downsampled

Row = dict[str, Any]
_BARS_UP_TO = 900  # seconds; longer sessions are drawn as lines
_LONGEST = 1_000_000  # seconds before and after the median row
_WRAP = 1 << 32
_LANE_SPANS = 400
_KEYS_DRAWN = 150  # more would look like a solid bar
_LEAST_HEIGHT = 0.15  # of the smallest bar in a lane
_PROBLEM_LANES: tuple[tuple[str, str, str, Callable[[float], str]], ...] = (
    ("retransmitted", "retransmitted_bytes", "warn", lambda value: f"{units.size(value)} retransmitted"),
    ("missing", "gap_bytes", "bad", lambda value: f"{units.size(value)} missing from the capture"),
    ("zero window", "zero_window_ms", "warn", lambda value: f"receive window zero for {units.duration(value)}"),
)


_TAPPED = "A tap wrote the TCP headers of this recording, so they say nothing about the network."


def is_tap(intervals: Sequence[Row]) -> bool:
    """True if a program such as `rtmp-spark tap` wrote the packets: round trips of 0 ms and a constant window."""
    trips = {row["rtt_ms"] for row in intervals} - {None}
    windows = {row["window_min"] for row in intervals} - {None}
    return trips == {0} and len(windows) == 1


class Seconds:
    """The intervals of one direction as columns with one value per second, including seconds without packets."""

    def __init__(self, rows: Sequence[Row], start: int, end: int | None = None) -> None:
        self.rows = sorted(rows, key=lambda row: row["ts_second"])
        if self.rows:  # rows far from the median time (after a clock jump) are not drawn
            middle = self.rows[len(self.rows) // 2]["ts_second"]
            self.rows = [row for row in self.rows if abs(row["ts_second"] - middle) <= _LONGEST * 1_000_000]
        first = self.rows[0]["ts_second"] // 1_000_000 if self.rows else 0
        last = self.rows[-1]["ts_second"] // 1_000_000 if self.rows else -1
        self.places = [row["ts_second"] // 1_000_000 - first for row in self.rows]
        self.length = last - first + 1
        self.x = np.arange(self.length) + (first - start / 1e6)
        # The first and the last second are drawn only as far as the connection existed.
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
    return {
        direction: Seconds([row for row in intervals if row["direction"] == direction], start, end)
        for direction in units.DIRECTION_LABELS
    }


def media_direction(directions: dict[str, Seconds]) -> str | None:
    """The direction with most audio and video bytes; None without media."""
    sums = {
        direction: float((s.column("audio_bytes") + s.column("video_bytes")).sum())
        for direction, s in directions.items()
    }
    best = max(sums, key=lambda direction: sums[direction])
    return best if sums[best] else None


def bitrate(intervals: Sequence[Row], start: int, until: int, keys: Sequence[float] = ()) -> Figure:
    """Audio and video bits per second, with lanes for keyframes, retransmissions, missing data and zero windows; media
    was expected until `until`."""
    directions = seconds_of(intervals, start)
    direction = media_direction(directions)
    title = "Media bitrate per second"
    if direction is None:
        return Figure("bitrate", title, "b/s", missing="No audio or video was recorded.")
    seconds = directions[direction]
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
        series = [downsampled(name, name, LINE, seconds.x + 0.5, values) for name, values, _ in kinds]
    lanes = [Lane("keyframes", "key", [(x, x, f"keyframe at {x:.3f} s") for x in keys])]
    lanes = lanes if 0 < len(keys) <= _KEYS_DRAWN else []
    lanes += _problem_lanes(directions)
    end = (until - start) / 1e6
    silent = _silences(seconds, audio + video, end)
    if silent:
        lanes.append(Lane("no media", "bad", silent))
    return Figure(
        "bitrate",
        f"{title}, {units.DIRECTION_LABELS[direction]}",
        "b/s",
        series,
        lanes,
        note=_mean(seconds, audio + video, end),
    )


def _mean(seconds: Seconds, total: Numbers, end: float) -> str:
    """Over the full seconds between the first media and `end`, at which media was still expected."""
    busy = np.flatnonzero(total)
    stop = max(int(busy[-1]), min(int(end - seconds.x[0]), _LONGEST))
    whole = np.pad(total, (0, max(stop - len(total), 0)))[busy[0] + 1 : stop]
    if not len(whole):
        return ""
    return (
        f"Per full second: mean {units.bitrate(float(whole.mean()))}, lowest {units.bitrate(float(whole.min()))}, "
        f"highest {units.bitrate(float(whole.max()))}."
    )


def _problem_lanes(directions: dict[str, Seconds]) -> list[Lane]:
    lanes = []
    for name, column, role, describe in _PROBLEM_LANES:
        found = sorted(
            (round(float(x), 3), float(value), f"{units.DIRECTION_LABELS[direction]}: {describe(float(value))}")
            for direction, seconds in directions.items()
            for x, value in zip(seconds.x, seconds.column(column))
            if value
        )[:_LANE_SPANS]
        if found:
            most = max(value for _, value, _ in found)
            heights = [round(max(value / most, _LEAST_HEIGHT), 3) for _, value, _ in found]
            lanes.append(Lane(name, role, [(x, round(x + 1, 3), what) for x, _, what in found], heights))
    return lanes


def _silences(seconds: Seconds, media: Numbers, end: float) -> list[tuple[float, float, str]]:
    """Full seconds without media between the first media and `end`, at which media was still expected."""
    busy = np.flatnonzero(media)
    silences = [(float(seconds.x[a]) + 1, float(seconds.x[b])) for a, b in pairwise(busy.tolist()) if b - a > 1]
    silences.append((float(seconds.x[busy[-1]]) + 1, end))
    return [
        (round(a, 3), round(b, 3), f"no media for about {b - a:.0f} s") for a, b in silences[:_LANE_SPANS] if b - a >= 1
    ]


def acknowledgements(intervals: Sequence[Row], controls: Sequence[Row], start: int, end: int) -> Figure:
    """Bytes sent in the media direction, bytes acknowledged by RTMP, and the limit set by the window."""
    directions = seconds_of(intervals, start, end)
    direction = media_direction(directions) or max(directions, key=lambda w: float(directions[w].column("bytes").sum()))
    seconds = directions[direction]
    title = f"Bytes sent and acknowledged (RTMP), {units.DIRECTION_LABELS[direction]}"
    if not seconds.length:
        return Figure("acks", title, "B", missing="No packets in this direction were recorded.")
    sent = np.cumsum(seconds.column("bytes") - seconds.column("retransmitted_bytes"))
    last = max(float(seconds.ends[-1]), (end - start) / 1e6)
    places, sums = np.concatenate(([seconds.begins[0]], seconds.ends, [last])), np.concatenate(([0.0], sent, sent[-1:]))
    series = [downsampled("sent", "sent", LINE, places, sums)]
    windows = [row for row in controls if row["kind"] == "window_ack_size" and row["direction"] == direction]
    window = windows[-1]["value"] if windows else None
    acks = [
        row for row in controls if row["kind"] == "acknowledgement" and row["direction"] == OTHER_DIRECTION[direction]
    ]
    when = np.array([(row["ts"] - start) / 1e6 for row in acks])
    value = unwrapped(np.array([row["value"] or 0 for row in acks], np.int64))
    if acks:
        series.append(downsampled("acknowledged", "acked", DOTS, when, value))
    if window:  # the sender may send this much: a staircase that begins with its announcement
        announced = (windows[0]["ts"] - start) / 1e6
        steps = np.concatenate(([0], value)) + window
        edges = np.concatenate(([announced], when, [max(last, announced)]))
        stairs = np.repeat(edges, 2)[1:-1], np.repeat(steps, 2)
        series.append(downsampled("limit: acknowledged + window", "window", LINE, *stairs))
    note = f"{units.counted(len(acks), 'Acknowledgement')}. "
    if window:
        note += f"The sender announced a window of {units.size(window)}; {units.size(float(sent[-1]))} were sent."
    else:
        note += "The sender announced no window, so the receiver need not acknowledge."
    return Figure("acks", title, "B", series, note=note)


def unwrapped(values: Numbers) -> Numbers:
    """32-bit counters with their wraparounds removed."""
    if not len(values):
        return values
    steps = np.diff(values)
    return values + np.concatenate(([0], np.cumsum((steps < -_WRAP // 2) * _WRAP)))


def tcp(intervals: Sequence[Row], start: int, end: int) -> Figure:
    """The TCP receive window and the bytes in flight."""
    directions = seconds_of(intervals, start, end)
    direction = media_direction(directions) or max(directions, key=lambda w: float(directions[w].column("bytes").sum()))
    seconds = directions[direction]
    title = f"TCP: receive window and bytes in flight, {units.DIRECTION_LABELS[direction]}"
    if not seconds.length:
        return Figure("tcp", title, "B", missing="No packets in this direction were recorded.")
    if is_tap(intervals):
        return Figure("tcp", title, "B", missing=_TAPPED)
    series = []
    wanted = (("smallest window", "window_min", "window"), ("most in flight", "in_flight_max", "sent"))
    for name, column, role in wanted:
        values = seconds.column(column, float("nan"))
        known = ~np.isnan(values)
        if known.any():
            series.append(downsampled(name, role, LINE, seconds.middles[known], values[known]))
    closed = float(seconds.column("zero_window_ms").sum())
    note = (
        f"The receive window was zero for {units.duration(closed)} in total."
        if closed
        else "The window was never zero."
    )
    missing = "The receiver's packets, which carry the window, were not recorded."
    return Figure("tcp", title, "B", series, _problem_lanes(directions), note=note, missing=missing)


def round_trips(intervals: Sequence[Row], controls: Sequence[Row], start: int, end: int) -> Figure:
    """Time from data to its TCP acknowledgement, per second and direction, and the response time of RTMP pings."""
    series = []
    tapped = is_tap(intervals)
    for direction, seconds in () if tapped else seconds_of(intervals, start, end).items():
        values = seconds.column("rtt_ms", float("nan"))
        known = ~np.isnan(values)
        if known.any():
            role = "video" if direction == "c2s" else "audio"
            series.append(
                downsampled(
                    f"TCP, {units.DIRECTION_LABELS[direction]}", role, LINE, seconds.middles[known], values[known]
                )
            )
    answered = pings(controls)
    if answered:
        x = np.array([(ts - start) / 1e6 for ts, _ in answered])
        series.append(downsampled("RTMP ping", "key", DOTS, x, np.array([ms for _, ms in answered])))
    missing = _TAPPED if tapped else "The recording has no acknowledged data and no pings."
    return Figure("rtt", "Round-trip time", "ms", series, missing=missing, height=120)


def pings(controls: Sequence[Row]) -> list[tuple[int, float]]:
    """(time of the request, ms until its response) for every answered ping."""
    waiting: dict[tuple[str, int | None], int] = {}
    answered = []
    for row in sorted(controls, key=lambda r: r["ts"]):
        if row["kind"] == "ping_request":
            waiting[row["direction"], row["event_value"]] = row["ts"]
        elif row["kind"] == "ping_response":
            asked = waiting.pop((OTHER_DIRECTION[row["direction"]], row["event_value"]), None)
            if asked is not None:
                answered.append((asked, (row["ts"] - asked) / 1000))
    return answered
