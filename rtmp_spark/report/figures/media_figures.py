"""Figures of the media of one stream: keyframe interval, frame sizes, timestamps, audio against video, jitter.

All functions take the coded frames of one stream (rows of `media_tags`) and the time of the connection's first packet.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rtmp_spark.report.figures.figure import DOTS, STEMS, Figure, Mark, Series, downsampled, median_line
from rtmp_spark.report.figures.tag_columns import integers, keyframes, seconds, strings

_WRAPS = ((1 << 24, "2²⁴ ms"), (1 << 31, "2³¹ ms"), (1 << 32, "2³² ms"))
_FRAME_ROLES = (("key", "key"), ("inter", "inter"), ("disposable", "disposable"), ("generated", "key"))
_DRAWN_FRAMES = 300  # slices per frame type
_STEMS_UP_TO = 400


def stream_figures(frames: dict[str, pa.Table], start: int) -> list[Figure]:
    """All figures of one stream. `frames` are its coded frames by kind (`video`, `audio`), in message order."""
    return [*_gop(frames.get("video"), start), _clocks(frames, start), _skew(frames, start), _jitter(frames, start)]


def _gop(video: pa.Table | None, start: int) -> list[Figure]:
    """Keyframe intervals, and frame sizes coloured by frame type."""
    without = "This stream has no video."
    if video is None:
        return [
            Figure("gop", "Keyframe interval", "s", missing=without),
            Figure("frames", "Frame sizes", "B", missing=without),
        ]
    when, dts, size = seconds(video, start), integers(video["dts"]), integers(video["size"])
    keys = keyframes(video)
    steps = np.diff(dts[keys]) / 1000
    gop = Figure("gop", "Keyframe interval (by timestamps)", "s", missing="Fewer than two keyframes were recorded.")
    if len(steps):
        gop = Figure(
            "gop", gop.title, "s", [downsampled("interval", "key", _style(len(steps)), when[keys][1:], steps)],
            height=110,
            note=f"{int(keys.sum())} keyframes; median {np.median(steps):.2f} s, longest {steps.max():.2f} s.",
        )  # fmt: skip
    kinds = strings(video["frame_type"])
    series: list[Series] = []
    for kind, role in _FRAME_ROLES[::-1]:
        chosen = kinds == kind
        if chosen.any():
            drawn = when[chosen], size[chosen]
            series.append(downsampled(f"{kind} frames", role, _style(len(kinds)), *drawn, _DRAWN_FRAMES))
    return [gop, Figure("frames", "Frame sizes by type", "B", series)]


def _style(points: int) -> str:
    """Stems for few points; dots where stems would overlap."""
    return STEMS if points <= _STEMS_UP_TO else DOTS


def _clocks(frames: dict[str, pa.Table], start: int) -> Figure:
    """Timestamps minus arrival time. Marks show where timestamps go backwards or pass 2^24, 2^31 or 2^32 ms."""
    title = "Timestamps minus arrival time"
    if not frames:
        return Figure("clock", title, "ms", missing="No coded frames were recorded.")
    series, marks = [], []
    backwards: list[tuple[float, float]] = []
    origin = min(float(integers(f["dts"])[0]) - float(seconds(f, start)[0]) * 1000 for f in frames.values())
    for kind, rows in frames.items():
        when, dts = seconds(rows, start), integers(rows["dts"])
        ahead = dts - when * 1000 - origin
        series += median_line(kind, kind, when, ahead)
        back = np.flatnonzero(np.diff(dts) < 0) + 1
        backwards += list(zip(when[back].tolist(), ahead[back].tolist()))
        for boundary, name in _WRAPS:
            crossed = np.flatnonzero((dts[:-1] < boundary) & (dts[1:] >= boundary)) + 1
            marks += [Mark(round(float(when[i]), 3), "wrap", f"{kind} passes {name}") for i in crossed[:3].tolist()]
    if backwards:
        x, y = np.array([p[0] for p in backwards]), np.array([p[1] for p in backwards])
        series.append(downsampled("timestamp goes backwards", "bad", DOTS, x, y))
    ends = [integers(rows["dts"]) for rows in frames.values()]
    low, high = min(int(dts.min()) for dts in ends), max(int(dts.max()) for dts in ends)
    note = f"Timestamps from {low:,} to {high:,} ms{' (extended timestamps)' if high >= 1 << 24 else ''}."
    hint = "Level: media arrives at its own pace. Falling: media arrives late or stalls. A step: timestamps jump."
    return Figure("clock", title, "ms", series, marks=marks, note=note, hint=hint)


def _skew(frames: dict[str, pa.Table], start: int) -> Figure:
    """Audio timestamp minus video timestamp at the arrival of each video frame."""
    title = "Interleaving: audio timestamp minus video timestamp on arrival"
    if len(frames) < 2:
        only = next(iter(frames), None)
        why = f"The stream has {only} only." if only else "No coded frames were recorded."
        return Figure("skew", title, "ms", missing=why)
    video, audio = frames["video"], frames["audio"]
    video_at, audio_at = integers(video["ts"]), integers(audio["ts"])
    before = np.searchsorted(audio_at, video_at, "right") - 1
    known = before >= 0
    if not known.any():
        return Figure("skew", title, "ms", missing="All audio arrived after all video.")
    ahead = integers(audio["dts"])[before[known]] - integers(video["dts"])[known]
    note = f"Median {np.median(ahead):.0f} ms, from {ahead.min():.0f} to {ahead.max():.0f} ms."
    when = seconds(video, start)[known]
    series = median_line("audio − video", "skew", when, ahead)
    return Figure("skew", title, "ms", series, note=note, hint="A slope means that audio and video drift apart.")


def _jitter(frames: dict[str, pa.Table], start: int) -> Figure:
    """Difference between arrival interval and timestamp interval, frame by frame."""
    series = []
    for kind, rows in frames.items():
        when, dts = seconds(rows, start), integers(rows["dts"])
        if len(dts) > 1:
            jitter = np.abs(np.diff(when) * 1000 - np.diff(dts))
            series.append(downsampled(kind, kind, DOTS, when[1:], jitter))
    title = "Jitter: arrival interval minus timestamp interval"
    return Figure("jitter", title, "ms", series, missing="Fewer than two frames were recorded.")
