"""Figures and numbers of the media of one connection, from its rows of `media_tags`.

Runs where the rows are: in this process, or on an executor beside them. What it returns is small whatever the length
of the session: thinned points, a few numbers. It judges nothing; findings do.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.report.figure import DOTS, STEMS, Figure, Mark, Series, summed_up, thinned
from rtmp_spark.report.thin import Numbers

COLUMNS = (
    "uid", "direction", "msg_no", "part_no", "ts", "stream_id", "kind", "codec", "enhanced", "track_id",
    "packet_type", "frame_type", "is_key", "is_config", "dts", "cts", "size", "width", "height", "profile", "level",
    "sample_rate", "channels",
)  # fmt: skip
MOST_STREAMS = 4
Event = tuple[int, str, int]  # something between the media: its time (µs), direction and message
_WRAPS = ((1 << 24, "2²⁴ ms"), (1 << 31, "2³¹ ms"), (1 << 32, "2³² ms"))
_FRAME_ROLES = (("key", "key"), ("inter", "inter"), ("disposable", "disposable"), ("generated", "key"))
_DRAWN_FRAMES = 300  # slices per frame type
_STEMS_UP_TO = 400


@dataclass
class TrackFacts:
    """What the wire says of one kind of media in one stream."""

    kind: str
    codec: str | None
    enhanced: bool
    tracks: int
    frames: int
    bytes: int
    seconds: float  # of media time
    rate: float | None  # frames a second
    bitrate: float | None
    backwards: int
    key_interval_p50: float | None = None
    key_interval_max: float | None = None
    keys: int = 0
    first_is_key: bool | None = None
    composition_max: int | None = None
    configs: int = 0
    width: int | None = None
    height: int | None = None
    profile: int | None = None
    level: int | None = None
    sample_rate: int | None = None
    channels: int | None = None
    sizes_seen: list[str] = field(default_factory=list)


@dataclass
class StreamMedia:
    """One message stream in one direction: its tracks and its plots."""

    direction: str
    stream_id: int
    tracks: list[TrackFacts]
    figures: list[Figure]


@dataclass
class Media:
    """All media of a connection. `runs` are its messages between the events of the ladder: (audio, video, bytes)."""

    streams: list[StreamMedia] = field(default_factory=list)
    left_out: int = 0
    runs: list[tuple[int, int, int]] = field(default_factory=list)

    def dump(self) -> str:
        streams = [
            {**asdict(s), "tracks": [asdict(t) for t in s.tracks], "figures": [f.as_json() for f in s.figures]}
            for s in self.streams
        ]
        return json.dumps({"streams": streams, "left_out": self.left_out, "runs": self.runs})

    @classmethod
    def load(cls, dumped: str) -> Media:
        value = json.loads(dumped)
        streams = [
            StreamMedia(
                s["direction"], s["stream_id"], [TrackFacts(**t) for t in s["tracks"]],
                [Figure.from_json(f) for f in s["figures"]],
            )
            for s in value["streams"]
        ]  # fmt: skip
        return cls(streams, value["left_out"], [(a, v, b) for a, v, b in value["runs"]])


def measure(tags: pa.Table, start: int, events: list[Event]) -> Media:
    """`tags` of one connection in any order; `start` its first packet; `events` the steps of the ladder, in order."""
    if not tags.num_rows:
        return Media(runs=[(0, 0, 0)] * (len(events) + 1))
    tags = tags.take(pa.array(np.lexsort([_integers(tags[name]) for name in ("part_no", "msg_no")])))
    columns = {name: tags[name] for name in tags.column_names}
    ts = _integers(columns["ts"])
    order = np.argsort(ts, kind="stable")
    streams: dict[tuple[str, int], Numbers] = {}
    direction, stream_id = _strings(columns["direction"]), _integers(columns["stream_id"])
    cuts = _cuts(ts[order], direction[order], _integers(columns["msg_no"])[order], events)
    runs = _runs(_flags(columns["kind"], "video")[order], _integers(columns["size"])[order], cuts)
    for way in ("c2s", "s2c"):
        for number in np.unique(stream_id[direction == way]).tolist():
            streams[way, number] = np.flatnonzero((direction == way) & (stream_id == number))
    largest = sorted(streams, key=lambda key: -len(streams[key]))
    found = [_stream(key, tags.take(pa.array(streams[key])), start) for key in sorted(largest[:MOST_STREAMS])]
    return Media(found, max(len(largest) - MOST_STREAMS, 0), runs)


def _cuts(ts: Numbers, direction: Numbers, msg_no: Numbers, events: list[Event]) -> list[int]:
    """How much media came before each event: by time, and within one packet by the order of its messages."""
    times = np.asarray([event[0] for event in events], np.int64)
    low, high = np.searchsorted(ts, times, "left").tolist(), np.searchsorted(ts, times, "right").tolist()
    cuts = [0]
    for (_, way, number), a, b in zip(events, low, high):
        before = int(((direction[a:b] == way) & (msg_no[a:b] < number)).sum())
        cuts.append(max(a + before, cuts[-1]))
    return [*cuts, len(ts)]


def _runs(video: Numbers, size: Numbers, cuts: list[int]) -> list[tuple[int, int, int]]:
    return [(int(b - a - video[a:b].sum()), int(video[a:b].sum()), int(size[a:b].sum())) for a, b in pairwise(cuts)]


def _stream(key: tuple[str, int], tags: pa.Table, start: int) -> StreamMedia:
    """`tags` in the order of their messages; none is there for the receiver before those in front of it are."""
    at = tags.schema.get_field_index("ts")
    tags = tags.set_column(at, "ts", pa.array(np.maximum.accumulate(_integers(tags["ts"]))))
    tracks, frames = [], {}
    for kind in ("video", "audio"):
        own = tags.filter(pc.equal(tags["kind"], kind))
        if not own.num_rows:
            continue
        main = own.filter(pc.equal(own["track_id"], pc.min(own["track_id"])))
        coded = main.filter(pc.equal(main["packet_type"], "frame"))
        tracks.append(_track(kind, own, main, coded))
        if coded.num_rows:
            frames[kind] = coded
    figures = [*_gop(frames.get("video"), start), _clocks(frames, start), _skew(frames, start), _jitter(frames, start)]
    return StreamMedia(key[0], key[1], tracks, figures)


# -- numbers ------------------------------------------------------------------------------------------------------


def _track(kind: str, own: pa.Table, main: pa.Table, coded: pa.Table) -> TrackFacts:
    described = main.filter(pc.equal(main["is_config"], True))
    telling = described if described.num_rows else main
    last = telling.slice(telling.num_rows - 1)
    about = {name: last[name][0].as_py() for name in ("width", "height", "profile", "level", "sample_rate", "channels")}
    codecs = pc.drop_null(main["codec"])
    dts = _integers(coded["dts"])
    length = (int(dts.max()) - int(dts.min())) / 1000 if len(dts) > 1 else 0.0
    size = int(pc.sum(coded["size"]).as_py() or 0)
    seen = pc.unique(main["width"]), pc.unique(main["height"])
    facts = TrackFacts(
        kind, codecs[0].as_py() if len(codecs) else None, bool(main["enhanced"][0].as_py()),
        len(pc.unique(own["track_id"])), coded.num_rows, size, length,
        (len(dts) - 1) / length if length > 0 else None, size * 8 / length if length > 0 else None,
        int((np.diff(dts) < 0).sum()), configs=described.num_rows, **about,
    )  # fmt: skip
    if kind == "video":
        keys = _keys(coded)
        steps = np.diff(dts[keys])
        facts.keys = int(keys.sum())
        facts.key_interval_p50 = float(np.median(steps)) if len(steps) else None
        facts.key_interval_max = float(steps.max()) if len(steps) else None
        facts.first_is_key = bool(keys[0]) if len(keys) else None
        composition = pc.max(pc.abs(coded["cts"])).as_py() if coded.num_rows else None
        facts.composition_max = composition
        if len(seen[0]) > 1 or len(seen[1]) > 1:
            pairs = zip(main["width"].to_pylist(), main["height"].to_pylist())
            facts.sizes_seen = list(dict.fromkeys(f"{w}×{h}" for w, h in pairs if w and h))
    return facts


# -- plots --------------------------------------------------------------------------------------------------------


def _gop(video: pa.Table | None, start: int) -> list[Figure]:
    """Key frame intervals, and frame sizes coloured by type."""
    without = "There is no video in this stream."
    if video is None:
        return [
            Figure("gop", "Key frame interval", "s", missing=without),
            Figure("frames", "Frame sizes", "B", missing=without),
        ]
    when, dts, size = _seconds(video, start), _integers(video["dts"]), _integers(video["size"])
    keys = _keys(video)
    steps = np.diff(dts[keys]) / 1000
    gop = Figure("gop", "Key frame interval (media time)", "s", missing="Fewer than two key frames were recorded.")
    if len(steps):
        gop = Figure(
            "gop", gop.title, "s", [thinned("interval", "key", _style(len(steps)), when[keys][1:], steps)], height=110,
            note=f"{int(keys.sum())} key frames; median {np.median(steps):.2f} s, longest {steps.max():.2f} s.",
        )  # fmt: skip
    kinds = _strings(video["frame_type"])
    series: list[Series] = []
    for kind, role in _FRAME_ROLES[::-1]:
        chosen = kinds == kind
        if chosen.any():
            drawn = when[chosen], size[chosen]
            series.append(thinned(f"{kind} frames", role, _style(len(kinds)), *drawn, _DRAWN_FRAMES))
    return [gop, Figure("frames", "Frame sizes by type", "B", series)]


def _style(points: int) -> str:
    """Stems that would touch each other say less than dots."""
    return STEMS if points <= _STEMS_UP_TO else DOTS


def _clocks(frames: dict[str, pa.Table], start: int) -> Figure:
    """Media time minus arrival time: flat when both clocks agree; where decoding times go back or cross a boundary."""
    title = "Media time minus arrival time"
    if not frames:
        return Figure("clock", title, "ms", missing="No coded frames were recorded.")
    series, marks = [], []
    late: list[tuple[float, float]] = []
    origin = min(float(_integers(f["dts"])[0]) - float(_seconds(f, start)[0]) * 1000 for f in frames.values())
    for kind, rows in frames.items():
        when, dts = _seconds(rows, start), _integers(rows["dts"])
        ahead = dts - when * 1000 - origin
        series += summed_up(kind, kind, when, ahead)
        back = np.flatnonzero(np.diff(dts) < 0) + 1
        late += list(zip(when[back].tolist(), ahead[back].tolist()))
        for boundary, name in _WRAPS:
            crossed = np.flatnonzero((dts[:-1] < boundary) & (dts[1:] >= boundary)) + 1
            marks += [Mark(round(float(when[i]), 3), "wrap", f"{kind} passes {name}") for i in crossed[:3].tolist()]
    if late:
        x, y = np.array([p[0] for p in late]), np.array([p[1] for p in late])
        series.append(thinned("goes back", "bad", DOTS, x, y))
    ends = [_integers(rows["dts"]) for rows in frames.values()]
    low, high = min(int(dts.min()) for dts in ends), max(int(dts.max()) for dts in ends)
    note = f"Timestamps from {low:,} to {high:,} ms{', beyond 2²⁴: extended ones' if high >= 1 << 24 else ''}."
    hint = "Level: media keep pace with the wall clock. Falling: late or stalled. A step: timestamps jump."
    return Figure("clock", title, "ms", series, marks=marks, note=note, hint=hint)


def _skew(frames: dict[str, pa.Table], start: int) -> Figure:
    """How far audio is ahead of video in media time, at each arrival."""
    title = "Interleaving: how far audio is ahead of video when a frame arrives"
    if len(frames) < 2:
        only = next(iter(frames), None)
        why = f"The stream has {only} only." if only else "No coded frames were recorded."
        return Figure("skew", title, "ms", missing=why)
    video, audio = frames["video"], frames["audio"]
    video_at, audio_at = _integers(video["ts"]), _integers(audio["ts"])
    before = np.searchsorted(audio_at, video_at, "right") - 1
    known = before >= 0
    if not known.any():
        return Figure("skew", title, "ms", missing="All audio came after all video.")
    ahead = _integers(audio["dts"])[before[known]] - _integers(video["dts"])[known]
    note = f"Median {np.median(ahead):.0f} ms, from {ahead.min():.0f} to {ahead.max():.0f} ms."
    when = _seconds(video, start)[known]
    series = summed_up("audio − video", "skew", when, ahead)
    return Figure("skew", title, "ms", series, note=note, hint="A slope is drift.")


def _jitter(frames: dict[str, pa.Table], start: int) -> Figure:
    """Distance of arrivals against distance of media times, frame by frame."""
    series = []
    for kind, rows in frames.items():
        when, dts = _seconds(rows, start), _integers(rows["dts"])
        if len(dts) > 1:
            late = np.abs(np.diff(when) * 1000 - np.diff(dts))
            series.append(thinned(kind, kind, DOTS, when[1:], late))
    title = "Inter-arrival jitter: arrival step against media step"
    return Figure("jitter", title, "ms", series, missing="Fewer than two frames were recorded.")


# -- columns ------------------------------------------------------------------------------------------------------


def _integers(column: Any) -> Numbers:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return np.asarray(pc.fill_null(column, 0).to_numpy(), np.int64)


def _strings(column: Any) -> Numbers:
    return np.asarray(pc.fill_null(column, "").to_pylist(), object)


def _flags(column: Any, word: str) -> Numbers:
    return np.asarray(pc.fill_null(pc.equal(column, word), False).to_pylist(), bool)


def _keys(video: pa.Table) -> Numbers:
    return np.asarray(video["is_key"].to_pylist(), bool)


def _seconds(rows: pa.Table, start: int) -> Numbers:
    return (_integers(rows["ts"]) - start) / 1e6
