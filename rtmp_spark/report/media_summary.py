"""The media of one connection in numbers and figures, from its rows of `media_tags`.

It runs where the rows are: in this process, or on a Spark executor. The result is small however long the session is:
downsampled points and a few numbers. It reports no problems; findings do.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.report.figures.downsampling import Numbers
from rtmp_spark.report.figures.figure import Figure
from rtmp_spark.report.figures.media_figures import stream_figures
from rtmp_spark.report.figures.tag_columns import flags, integers, keyframes, strings

COLUMNS = (
    "uid", "direction", "msg_no", "part_no", "ts", "frame", "stream_id", "kind", "codec", "enhanced", "track_id",
    "packet_type", "frame_type", "is_key", "is_config", "dts", "cts", "size", "width", "height", "profile", "level",
    "sample_rate", "channels",
)  # fmt: skip
MOST_STREAMS = 4
MOST_PACKETS = 400  # whose numbers the tooltips know
Event = tuple[int, str, int]  # a step of the ladder: time (µs), direction, msg_no


@dataclass
class TrackFacts:
    """Measured properties of the audio or the video of one stream."""

    kind: str
    codec: str | None
    enhanced: bool
    tracks: int
    frames: int
    bytes: int
    seconds: float  # last timestamp minus first
    rate: float | None  # frames per second
    bitrate: float | None
    backwards: int
    key_interval_p50: float | None = None
    key_interval_max: float | None = None
    keys: int = 0
    first_is_key: bool | None = None
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
    """One message stream in one direction: its tracks and its figures."""

    direction: str
    stream_id: int
    tracks: list[TrackFacts]
    figures: list[Figure]


@dataclass
class Media:
    """All media of a connection.

    `runs`: (audio, video, bytes) of the messages between two steps of the ladder. `packets`: (seconds, packet number)
    of some tags, in order of time.
    """

    streams: list[StreamMedia] = field(default_factory=list)
    left_out: int = 0
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    packets: list[tuple[float, int]] = field(default_factory=list)

    def dump(self) -> str:
        streams = [
            {**asdict(s), "tracks": [asdict(t) for t in s.tracks], "figures": [f.as_json() for f in s.figures]}
            for s in self.streams
        ]
        return json.dumps({"streams": streams, "left_out": self.left_out, "runs": self.runs, "packets": self.packets})

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
        packets = [(x, frame) for x, frame in value["packets"]]
        return cls(streams, value["left_out"], [(a, v, b) for a, v, b in value["runs"]], packets)


def measure(tags: pa.Table, start: int, events: list[Event]) -> Media:
    """Summarise the `tags` of one connection, which may be in any order.

    `start` is the time of its first packet; `events` are the steps of its ladder, in order.
    """
    if not tags.num_rows:
        return Media(runs=[(0, 0, 0)] * (len(events) + 1))
    tags = tags.take(pa.array(np.lexsort([integers(tags[name]) for name in ("part_no", "msg_no")])))
    columns = {name: tags[name] for name in tags.column_names}
    ts = integers(columns["ts"])
    order = np.argsort(ts, kind="stable")
    direction, stream_id = strings(columns["direction"]), integers(columns["stream_id"])
    cuts = _cuts(ts[order], direction[order], integers(columns["msg_no"])[order], events)
    runs = _runs(flags(columns["kind"], "video")[order], integers(columns["size"])[order], cuts)
    sizes: dict[tuple[str, int], int] = {}
    for one_direction in ("c2s", "s2c"):
        numbers, counts = np.unique(stream_id[direction == one_direction], return_counts=True)
        sizes.update(((one_direction, number), count) for number, count in zip(numbers.tolist(), counts.tolist()))
    found = []
    for key in sorted(sorted(sizes, key=lambda key: -sizes[key])[:MOST_STREAMS]):
        own = np.flatnonzero((direction == key[0]) & (stream_id == key[1]))
        found.append(_stream(key, tags.take(pa.array(own)), start))
    return Media(found, max(len(sizes) - MOST_STREAMS, 0), runs, _packets(ts[order], columns["frame"], order, start))


def _packets(ts: Numbers, frame: pa.ChunkedArray, order: Numbers, start: int) -> list[tuple[float, int]]:
    chosen = np.unique(np.linspace(0, len(ts) - 1, min(len(ts), MOST_PACKETS)).astype(np.int64))
    frames = integers(frame)[order][chosen]
    return [(round(float(at), 3), int(number)) for at, number in zip((ts[chosen] - start) / 1e6, frames)]


def _cuts(ts: Numbers, direction: Numbers, msg_no: Numbers, events: list[Event]) -> list[int]:
    """The number of media messages before each event: by time, and within one packet by message number."""
    times = np.asarray([event[0] for event in events], np.int64)
    low, high = np.searchsorted(ts, times, "left").tolist(), np.searchsorted(ts, times, "right").tolist()
    cuts = [0]
    for (_, event_direction, number), a, b in zip(events, low, high):
        before = int(((direction[a:b] == event_direction) & (msg_no[a:b] < number)).sum())
        cuts.append(max(a + before, cuts[-1]))
    return [*cuts, len(ts)]


def _runs(video: Numbers, size: Numbers, cuts: list[int]) -> list[tuple[int, int, int]]:
    return [(int(b - a - video[a:b].sum()), int(video[a:b].sum()), int(size[a:b].sum())) for a, b in pairwise(cuts)]


def _stream(key: tuple[str, int], tags: pa.Table, start: int) -> StreamMedia:
    """Summarise one stream. A message counts as received when all messages before it were received."""
    at = tags.schema.get_field_index("ts")
    tags = tags.set_column(at, "ts", pa.array(np.maximum.accumulate(integers(tags["ts"]))))
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
    return StreamMedia(key[0], key[1], tracks, stream_figures(frames, start))


def _track(kind: str, own: pa.Table, main: pa.Table, coded: pa.Table) -> TrackFacts:
    described = main.filter(pc.equal(main["is_config"], True))
    configured = described if described.num_rows else main
    last = configured.slice(configured.num_rows - 1)
    about = {name: last[name][0].as_py() for name in ("width", "height", "profile", "level", "sample_rate", "channels")}
    codecs = pc.drop_null(main["codec"])
    dts = integers(coded["dts"])
    length = (int(dts.max()) - int(dts.min())) / 1000 if len(dts) > 1 else 0.0
    size = int(pc.sum(coded["size"]).as_py() or 0)
    seen = pc.unique(main["width"]), pc.unique(main["height"])
    facts = TrackFacts(
        kind=kind,
        codec=codecs[0].as_py() if len(codecs) else None,
        enhanced=bool(main["enhanced"][0].as_py()),
        tracks=len(pc.unique(own["track_id"])),
        frames=coded.num_rows,
        bytes=size,
        seconds=length,
        rate=(len(dts) - 1) / length if length > 0 else None,
        bitrate=size * 8 / length if length > 0 else None,
        backwards=int((np.diff(dts) < 0).sum()),
        configs=described.num_rows,
        **about,
    )
    if kind == "video":
        keys = keyframes(coded)
        steps = np.diff(dts[keys])
        facts.keys = int(keys.sum())
        facts.key_interval_p50 = float(np.median(steps)) if len(steps) else None
        facts.key_interval_max = float(steps.max()) if len(steps) else None
        facts.first_is_key = bool(keys[0]) if len(keys) else None
        if len(seen[0]) > 1 or len(seen[1]) > 1:
            pairs = zip(main["width"].to_pylist(), main["height"].to_pylist())
            facts.sizes_seen = list(dict.fromkeys(f"{w}×{h}" for w, h in pairs if w and h))
    return facts
