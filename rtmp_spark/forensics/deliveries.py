"""Which played stream is which published one, by content, and how it got there: the rows of `deliveries`.

Frames are compared by checksum, length and kind. Names and times only say which pairs are looked at (`candidates`): a
stream that is played while the same name is published, else any that is published then, because a relay may rename and
a player may be told another name. Frames with the same bytes (silence) are told apart by the shift between the
timestamps of both streams, which the frames that are unlike all others reveal. Whole streams are held as columns of
numbers, at most `MOST_FRAMES` frames in all: what comes later is not matched.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rtmp_spark.capture.facts import Row
from rtmp_spark.codec.message import AUDIO, VIDEO
from rtmp_spark.forensics.media_row import IS_CONFIG, MSG_NO, PACKET_TYPE
from rtmp_spark.schema import column_names

MOST_FRAMES = 2_000_000
_LEAST_COMMON = 3  # different frames that both streams have
_LEAST_SHARE = 0.2  # of the played frames
_SHIFT_MS = 1000  # a frame whose time is off by more is another one with the same bytes
_NEAR = 4  # how many frames with the same bytes are looked at on either side
_EARLY_US = 1_000_000  # a frame that arrives so long before it was published is another one: clocks differ less
_BEHIND_US = 2_000_000  # or so long after one of its track that was published later: TCP and servers keep the order
_USUAL_OVER = 25  # frames at the beginning, before a slow way has filled its queues
_IN_FLIGHT_MS = 500.0  # what was published this shortly before the end, or twice the usual latency, may be on its way
CACHE_US = 60_000_000  # how far back a server may begin when somebody asks for a stream
CODED, CONFIG = 1, 2

_MESSAGES = column_names("messages")[2:]
_NO, _TS, _TYPE_ID = _MESSAGES.index("msg_no"), _MESSAGES.index("ts_last"), _MESSAGES.index("type_id")
_STREAM_ID, _TIMESTAMP = _MESSAGES.index("stream_id"), _MESSAGES.index("timestamp")
_LENGTH, _CRC = _MESSAGES.index("length"), _MESSAGES.index("payload_crc32")
_STREAMS = column_names("streams")


class Frames:
    """The media messages of one direction and message stream id, in their order."""

    __slots__ = ("dts", "key", "kind", "ts")

    def __init__(self) -> None:
        self.key = array("Q")  # checksum, length and type in one number
        self.ts = array("q")  # arrival, microseconds
        self.dts = array("q")  # ms
        self.kind = array("b")  # coded frame, configuration, or neither

    def add(self, row: Row, kind: int) -> None:
        self.key.append((row[_LENGTH] << 8 | row[_TYPE_ID]) << 32 | row[_CRC])
        self.ts.append(row[_TS])
        self.dts.append(row[_TIMESTAMP])
        self.kind.append(kind)

    @classmethod
    def filled(cls, *columns: npt.NDArray[np.generic]) -> Frames:
        """From columns of the right types, in the order key, ts, dts, kind."""
        own = cls()
        for place, column in zip((own.key, own.ts, own.dts, own.kind), columns):
            place.frombytes(column.tobytes())
        return own

    def within_reach(self, play_start: int, play_end: int) -> Frames:
        """What a player of that time can have been sent: frames of then, and the configuration from before."""
        first, last = play_start - CACHE_US, play_end
        ts, kind = np.array(self.ts), np.array(self.kind)
        chosen = (ts <= last) & ((ts >= first) | (kind == CONFIG))
        if chosen.all():
            return self
        return Frames.filled(np.array(self.key)[chosen], ts[chosen], np.array(self.dts)[chosen], kind[chosen])

    def between(self, start: int, end: int) -> Frames:
        first, last = bisect_left(self.ts, start), bisect_left(self.ts, end + 1)
        part = Frames()
        for name in self.__slots__:
            setattr(part, name, getattr(self, name)[first:last])
        return part

    def of(self, kind: int) -> list[int]:
        """Positions of the messages of a kind."""
        return [index for index, one in enumerate(self.kind) if one == kind]

    def __len__(self) -> int:
        return len(self.key)


class Stream(NamedTuple):
    """One published or played stream with its frames."""

    uid: str
    stream_id: int
    ts_start: int
    frames: Frames
    ts_end: int = 1 << 62
    name: str | None = None


class Deliveries:
    """Collects the frames of a recording; `rows` matches them when it is over."""

    def __init__(self) -> None:
        self._frames: dict[tuple[str, str], dict[int, Frames]] = {}
        self._left = MOST_FRAMES

    def collect(self, uid: str, direction: str, messages: Sequence[Row], media: Sequence[Row]) -> None:
        if self._left <= 0:
            return
        kinds: dict[int, int] = {}
        for row in media:
            if row[PACKET_TYPE] == "frame":
                kinds[row[MSG_NO]] = CODED
            elif row[IS_CONFIG]:
                kinds.setdefault(row[MSG_NO], CONFIG)
        streams = self._frames.setdefault((uid, direction), {})
        for row in messages:
            if row[_TYPE_ID] in (AUDIO, VIDEO) and row[_LENGTH]:
                streams.setdefault(row[_STREAM_ID], Frames()).add(row, kinds.get(row[_NO], 0))
                self._left -= 1

    def rows(self, streams: Sequence[Row]) -> list[Row]:
        """Rows of `deliveries`, from the rows of `streams` of the same recording."""
        return match_all(*self._by_role(streams))

    def _by_role(self, streams: Sequence[Row]) -> tuple[list[Stream], list[Stream]]:
        published: list[Stream] = []
        played: list[Stream] = []
        alone = Counter((s[_STREAMS.index("uid")], s[_STREAMS.index("direction")]) for s in streams)
        for row in streams:
            one = dict(zip(_STREAMS, row))
            place = one["uid"], one["direction"]
            if one["audio_messages"] or one["video_messages"]:
                stream = stream_of(one, self._frames.get(place, {}), alone[place] == 1)
                (published if one["role"] == "publish" else played).append(stream)
        return published, played


def stream_of(row: Mapping[str, Any], frames: Mapping[int, Frames], alone: bool) -> Stream:
    """A row of `streams` with its part of the frames of its direction, which come by message stream id."""
    own = frames.get(row["stream_id"])
    if own is None and len(frames) == 1 and alone:
        own = next(iter(frames.values()))  # media on another id than the command's
    part = Frames() if own is None else own.between(row["ts_start"], row["ts_end"])
    return Stream(row["uid"], row["stream_id"], row["ts_start"], part, row["ts_end"], row["name"])


class Lasting(Protocol):
    """What `candidates` asks of a stream."""

    @property
    def name(self) -> str | None: ...

    @property
    def ts_start(self) -> int: ...

    @property
    def ts_end(self) -> int: ...


def candidates(published: Sequence[Lasting], played: Sequence[Lasting]) -> list[tuple[int, int]]:
    """Pairs (published, played), by their places, whose frames are worth comparing."""
    starts = np.array([stream.ts_start for stream in published], np.int64)
    ends = np.array([stream.ts_end for stream in published], np.int64)
    nameless = np.array([stream.name is None for stream in published], bool)
    named: dict[str | None, list[int]] = {}
    for number, stream in enumerate(published):
        named.setdefault(stream.name, []).append(number)
    pairs = []
    for place, play in enumerate(played):
        then = (starts <= play.ts_end) & (ends >= play.ts_start - CACHE_US)
        same = [n for n in named.get(play.name, ()) if then[n]] if play.name is not None else []
        if same:
            pairs += [(n, place) for n in sorted({*same, *np.flatnonzero(then & nameless).tolist()})]
        else:
            pairs += [(n, place) for n in np.flatnonzero(then).tolist()]
    return pairs


def match_all(published: Sequence[Stream], played: Sequence[Stream]) -> list[Row]:
    keys: dict[int, set[int]] = {}
    rows = []
    for number, place in candidates(published, played):
        publish, play = published[number], played[place]
        if number not in keys:
            keys[number] = set(publish.frames.key)
        coded = {play.frames.key[i] for i in play.frames.of(CODED)}
        if len(coded & keys[number]) >= _LEAST_COMMON:
            row = delivery(publish, play)
            if row is not None:
                rows.append(row)
    return rows


def delivery(publish: Stream, play: Stream) -> Row | None:
    """The row of a pair, or None when they have too little in common."""
    publish = publish._replace(frames=publish.frames.within_reach(play.ts_start, play.ts_end))
    sent, got = publish.frames, play.frames
    places: dict[int, list[int]] = {}
    for index in sorted(sent.of(CODED), key=lambda i: sent.dts[i]):
        places.setdefault(sent.key[index], []).append(index)
    wanted = got.of(CODED)
    shifts: dict[int, int] = {}  # by frames that are unlike all others, each as it first came
    for i in wanted:
        found = places.get(got.key[i], ())
        if len(found) == 1 and got.key[i] not in shifts and got.ts[i] >= sent.ts[found[0]] - _EARLY_US:
            shifts[got.key[i]] = got.dts[i] - sent.dts[found[0]]
    if len(shifts) < _LEAST_COMMON:
        return None
    shift = int(np.median(list(shifts.values())))
    matched: dict[int, int] = {}  # published -> played
    for i in wanted:
        near = _nearest(places.get(got.key[i], ()), sent, got.dts[i] - shift, got.ts[i], matched)
        if near is not None:
            matched[near] = i
    matched = _in_order(sent, got, matched)
    if len(matched) < max(_LEAST_COMMON, _LEAST_SHARE * len(wanted)) or _is_repeat(sent, got, matched, play.ts_start):
        return None
    return _row(publish, play, matched, (i for i in wanted if got.key[i] not in places), shift)


def _in_order(sent: Frames, got: Frames, matched: Mapping[int, int]) -> dict[int, int]:
    """Without frames that came long after a later one of their track: they are of one who published the same again."""
    first_after: dict[int, int] = {}  # by track: when the first of those that were published later came
    kept = []
    for s in sorted(matched, reverse=True):
        track, ts = sent.key[s] >> 32 & 0xFF, got.ts[matched[s]]
        if ts <= first_after.get(track, ts) + _BEHIND_US:
            kept.append((s, matched[s]))
            first_after[track] = min(ts, first_after.get(track, ts))
    return dict(reversed(kept))


def _is_repeat(sent: Frames, got: Frames, matched: Mapping[int, int], play_start: int) -> bool:
    """All of it was published before the play began, and yet it came at the pace of its media: no server's cache sends
    like that, but somebody who publishes the same again."""
    if any(sent.ts[s] >= play_start for s in matched):
        return False
    arrived, times = [got.ts[g] for g in matched.values()], [got.dts[g] for g in matched.values()]
    media_us = (max(times) - min(times)) * 1000
    return media_us >= 1_000_000 and max(arrived) - min(arrived) > media_us / 2


def _nearest(places: Sequence[int], sent: Frames, time: int, arrived: int, taken: Mapping[int, int]) -> int | None:
    """The frame nearest in time of those with the same bytes that is not taken and was published by then; `places` are
    in order of time."""
    dts, latest = sent.dts, arrived + _EARLY_US
    middle = bisect_left(places, time, key=lambda p: dts[p])
    near = [p for p in places[max(middle - _NEAR, 0) : middle + _NEAR] if p not in taken and sent.ts[p] <= latest]
    best = min(near, key=lambda p: abs(dts[p] - time), default=None)
    return best if best is not None and abs(dts[best] - time) <= _SHIFT_MS else None


def _row(publish: Stream, play: Stream, matched: dict[int, int], other: Iterable[int], shift: int) -> Row:
    sent, got = publish.frames, play.frames
    live = [(got.ts[g] - sent.ts[s]) / 1000 for s, g in matched.items() if sent.ts[s] >= play.ts_start]
    first, last = min(matched), max(max(matched), _last_due(sent, live, play.ts_end))
    while_played = [i for i in sent.of(CODED) if first <= i <= last]
    missing = [i for i in while_played if i not in matched]
    at_time = Counter((got.key[i] >> 32 & 0xFF, got.dts[i] - shift) for i in other)
    changed = 0
    for i in missing:
        place = (sent.key[i] >> 32 & 0xFF, sent.dts[i])
        if at_time[place]:
            at_time[place] -= 1
            changed += 1
    cached = [sent.dts[s] for s in matched if sent.ts[s] < play.ts_start]
    late = np.percentile(live, (50, 95, 99)).tolist() if live else [None, None, None]
    first_frame = (got.ts[min(got.of(CODED))] - play.ts_start) / 1000
    headers = {sent.key[i] for i in sent.of(CONFIG) if sent.ts[i] < play.ts_start}
    replayed = sum(got.key[i] in headers for i in got.of(CONFIG))
    burst = float(max(cached) - min(cached)) if cached else 0.0
    values: tuple[Any, ...] = (
        play.uid, publish.uid, publish.stream_id, play.uid, play.stream_id, *late, first_frame, burst, replayed,
        len(while_played), len(missing) - changed, changed,
    )  # fmt: skip
    return values


def _last_due(sent: Frames, live_ms: Sequence[float], play_end: int) -> int:
    """The last frame that had the time to arrive before the play ended; -1 where nothing tells how long one takes."""
    if not live_ms:
        return -1
    flight_ms = max(2 * float(np.median(live_ms[:_USUAL_OVER])), _IN_FLIGHT_MS)
    return bisect_left(sent.ts, play_end - flight_ms * 1000) - 1
