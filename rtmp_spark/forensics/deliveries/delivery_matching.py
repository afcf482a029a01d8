"""Matches played streams with published ones by content: the rows of `deliveries`.

Frames are compared by checksum, length and type. Names and times select the streams that a play may come from
(`name_scopes`), and an index of checksums those that it is compared with (`shared_frames`). Frames with the same bytes
(silence) are distinguished by timestamp: frames that occur only once show the shift between the timestamps of both
streams. The frames are kept as columns of numbers, at most `MATCHED_FRAMES` in total; later frames are not matched.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.limits import MATCHED_FRAMES
from rtmp_spark.codec.message import AUDIO, VIDEO
from rtmp_spark.conversation.facts import Row
from rtmp_spark.conversation.media_row import IS_CONFIG, MSG_NO, PACKET_TYPE
from rtmp_spark.forensics.deliveries.delivery_frames import (
    CODED,
    CONFIG,
    LENGTH,
    MESSAGE_NO,
    STREAM_ID,
    TYPE_ID,
    Frames,
    Stream,
)
from rtmp_spark.forensics.deliveries.frame_matching import FrameMatches, match_frames
from rtmp_spark.forensics.deliveries.name_scopes import scopes
from rtmp_spark.forensics.deliveries.shared_frames import Found, SharedFrames, search_order
from rtmp_spark.forensics.findings import CAPTURE, Finding, FindingFold
from rtmp_spark.forensics.thresholds import (
    FIRST_LATENCIES,
    IN_FLIGHT_MS,
    REPEAT_US,
)
from rtmp_spark.schema import column_names

_STREAMS = column_names("streams")


class Matched(NamedTuple):
    rows: list[Row]  # of `deliveries`
    findings: list[Row]  # about plays that were not compared with every stream that has their frames


class Deliveries:
    """Collects the frames of a recording; `rows` matches them at its end."""

    def __init__(self) -> None:
        self._frames: dict[tuple[str, str], dict[int, Frames]] = {}  # by (uid, direction) and message stream id
        self._left = MATCHED_FRAMES
        self.ignored = 0  # media messages that were not collected

    def collect(self, uid: str, direction: str, messages: Sequence[Row], media: Sequence[Row]) -> None:
        """Add the media of a direction: rows of `messages` and `media_tags` without uid and direction."""
        if self._left <= 0:
            self.ignored += sum(row[TYPE_ID] in (AUDIO, VIDEO) and row[LENGTH] > 0 for row in messages)
            return
        kinds: dict[int, int] = {}
        for row in media:
            if row[PACKET_TYPE] == "frame":
                kinds[row[MSG_NO]] = CODED
            elif row[IS_CONFIG]:
                kinds.setdefault(row[MSG_NO], CONFIG)
        streams = self._frames.setdefault((uid, direction), {})
        for row in messages:
            if row[TYPE_ID] in (AUDIO, VIDEO) and row[LENGTH]:
                streams.setdefault(row[STREAM_ID], Frames()).add(row, kinds.get(row[MESSAGE_NO], 0))
                self._left -= 1

    def matched(self, streams: Sequence[Row]) -> Matched:
        """Rows of `deliveries`, given the rows of `streams` of the same recording."""
        published: list[Stream] = []
        played: list[Stream] = []
        known = [dict(zip(_STREAMS, row)) for row in streams]
        streams_of_direction = Counter((row["uid"], row["direction"]) for row in known)
        for row in known:
            place = row["uid"], row["direction"]
            if row["audio_messages"] or row["video_messages"]:
                own = row["name"], row["direction"]
                stream = Stream(row["uid"], row["stream_id"], row["ts_start"], Frames(), row["ts_end"], *own)
                stream = with_frames(stream, self._frames.get(place, {}), streams_of_direction[place] == 1)
                (published if row["role"] == "publish" else played).append(stream)
        return match_all(published, played)


def with_frames(stream: Stream, frames: Mapping[int, Frames], alone: bool) -> Stream:
    """The stream with its frames; `frames` are those of its direction by message stream id. A stream that is `alone` in
    its direction also owns media on another id."""
    own = frames.get(stream.stream_id)
    if own is None and len(frames) == 1 and alone:
        own = next(iter(frames.values()))
    return stream if own is None else stream._replace(frames=own.between(stream.ts_start, stream.ts_end))


def match_all(published: Sequence[Stream], played: Sequence[Stream]) -> Matched:
    """Rows of `deliveries` for all pairs of streams with the same content."""
    published, played = sorted(published, key=search_order), sorted(played, key=search_order)
    findings: list[Row] = []
    pairs: list[tuple[int, int]] = []
    for scope in scopes(published, played):
        search = SharedFrames([played[n] for n in scope.played])
        search.add([published[n] for n in scope.published])
        for number, found in zip(scope.played, search.found):
            pairs += [(number, scope.published[n]) for n in found.compared]
            findings += limit_finding(played[number], found)
    compared = (delivery(published[b], played[a]) for a, b in sorted(pairs))
    return Matched([row for row in compared if row is not None], findings)


def limit_finding(play: Stream, found: Found) -> list[Row]:
    """The finding about a play whose frames too many published streams have."""
    compared = len(found.compared)
    if found.complete and found.streams == compared:
        return []
    streams = f"{found.streams} published streams" if found.complete else "very many published streams"
    detail = f"the frames of this play are in {streams}; it was compared with {compared} of them"
    fold = FindingFold()
    fold.add(
        Finding(
            ViolationCode.CAPTURE_LIMIT, detail, None, CAPTURE, play.direction, play.stream_id, None, None,
            play.ts_start, max(found.streams - compared, 1),
        )
    )  # fmt: skip
    return fold.rows(play.uid)


def delivery(publish: Stream, play: Stream) -> Row | None:
    """The row of `deliveries` for a pair; None if they have too little in common."""
    publish = publish._replace(frames=publish.frames.within_reach(play.ts_start, play.ts_end))
    found = match_frames(publish.frames, play.frames)
    if found is None or _is_repeated_publish(publish.frames, play.frames, found.pairs, play.ts_start):
        return None
    return _row(publish, play, found)


def _is_repeated_publish(sent: Frames, received: Frames, matched: Mapping[int, int], play_start: int) -> bool:
    """True if all matched frames were published before the play started but arrived at the pace of the media. A cache
    sends faster: these frames come from a second publish of the same content."""
    if any(sent.ts[s] >= play_start for s in matched):
        return False
    arrived, times = [received.ts[r] for r in matched.values()], [received.dts[r] for r in matched.values()]
    media_us = (max(times) - min(times)) * 1000
    return media_us >= REPEAT_US and max(arrived) - min(arrived) > media_us / 2


def _row(publish: Stream, play: Stream, found: FrameMatches) -> Row:
    """The row of `deliveries`."""
    sent, received = publish.frames, play.frames
    matched, shift, unknown = found
    latencies = [(received.ts[r] - sent.ts[s]) / 1000 for s, r in matched.items() if sent.ts[s] >= play.ts_start]
    first, last = min(matched), max(max(matched), _last_due(sent, latencies, play.ts_end))
    published_meanwhile = [i for i in range(first, last + 1) if sent.kind[i] == CODED]
    missing = [i for i in published_meanwhile if i not in matched]
    changed = _count_changed(sent, missing, Counter((received.type_id(i), received.dts[i] - shift) for i in unknown))
    cached = [sent.dts[s] for s in matched if sent.ts[s] < play.ts_start]
    configs = {sent.key[i] for i in sent.of_kind(CONFIG) if sent.ts[i] < play.ts_start}
    return (
        play.uid,
        publish.uid,
        publish.stream_id,
        play.uid,
        play.stream_id,
        *(np.percentile(latencies, (50, 95, 99)).tolist() if latencies else (None, None, None)),
        (received.ts[min(received.of_kind(CODED))] - play.ts_start) / 1000,
        float(max(cached) - min(cached)) if cached else 0.0,
        sum(received.key[i] in configs for i in received.of_kind(CONFIG)),
        len(published_meanwhile),
        len(missing) - changed,
        changed,
    )


def _count_changed(sent: Frames, missing: Iterable[int], unknown: Counter[tuple[int, int]]) -> int:
    """How many missing frames have an unknown frame of the same type and timestamp in their place."""
    changed = 0
    for i in missing:
        place = (sent.type_id(i), sent.dts[i])
        if unknown[place]:
            unknown[place] -= 1
            changed += 1
    return changed


def _last_due(sent: Frames, latencies_ms: Sequence[float], play_end: int) -> int:
    """Index of the last frame that had enough time to arrive before the play ended; -1 if the latency is unknown."""
    if not latencies_ms:
        return -1
    flight_ms = max(2 * float(np.median(latencies_ms[:FIRST_LATENCIES])), IN_FLIGHT_MS)
    return bisect_left(sent.ts, play_end - flight_ms * 1000) - 1
