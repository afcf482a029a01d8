"""Messages of one direction into facts: numbers them, finds their packets and reads what they contain.

Every message of every connection passes through `MessageFacts.add`, so its loop is plain on purpose.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final, TypedDict
from zlib import crc32

from rtmp_spark.capture.tcp.frame_numbers import FRAME_BITS, FRAME_MASK
from rtmp_spark.codec.chunk.header import LONGEST_HEADER
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.events import COMPLETE, MessageReceived
from rtmp_spark.codec.json_value import Json, SavedFields
from rtmp_spark.codec.limits import DEFAULT_LIMITS, MAX_LAGGING
from rtmp_spark.codec.media.reader import TagReader
from rtmp_spark.codec.media.tag import MediaTag
from rtmp_spark.codec.message import (
    ACKNOWLEDGEMENT,
    AGGREGATE,
    AUDIO,
    COMMAND_AMF0,
    DATA_AMF3,
    TYPE_NAMES,
    VIDEO,
    parse_aggregate,
    parse_control,
)
from rtmp_spark.conversation.decoding.decode_options import DecodeOptions
from rtmp_spark.conversation.decoding.parsed_commands import read_command
from rtmp_spark.conversation.decoding.segment_places import SegmentPlaces
from rtmp_spark.conversation.facts import CommandFact, ControlFact, Facts, FaultFact, LagFact, MediaSecond, Place

_CONTROL_LAST: Final = 6  # message types 1 to 6 are control messages
_MEDIA: Final = (AUDIO, VIDEO, AGGREGATE)
_NAME_CHARS: Final = 40  # of a command name in the detail of a finding
_ENDS_STREAM: Final = frozenset({"deleteStream", "closeStream", "publish"})  # publish ends what used its id before
# Fields of events that are columns of their tables, in the same order.
_FIRST_COLUMN: Final = MessageReceived._fields.index("stream_id")
_END_COLUMN: Final = MessageReceived._fields.index("payload")
_TAG_COLUMNS: Final = MediaTag._fields.index("body_start")
_ALL: Final = 1 << 62  # larger than every stream offset
_new: Final = tuple.__new__  # creates a NamedTuple at a third of its constructor's cost

# Called with (message number, event, frame) of each message, so that payloads need not be kept.
MessageHook = Callable[[int, MessageReceived, int], None]


class MessagesState(TypedDict):
    tags: dict[str, Json]
    base: int
    msg_no: int
    headed: list[int]
    type_counts: SavedFields  # pairs of type id and number of messages
    lagging: list[SavedFields]  # csid and stream ids


class MessageFacts:
    """Collects the facts of one direction's messages in `facts`."""

    __slots__ = (
        "_headed", "_hook", "_lagging", "_limits", "_options", "_places", "_tags", "base", "facts", "msg_no",
        "type_counts",
    )  # fmt: skip

    def __init__(
        self, places: SegmentPlaces, options: DecodeOptions, hook: MessageHook | None, *, midstream: bool
    ) -> None:
        self._places = places
        self._options = options
        limits = options.limits
        self._limits = limits if limits is DEFAULT_LIMITS or limits != DEFAULT_LIMITS else DEFAULT_LIMITS
        self._hook = hook
        self._tags = TagReader(midstream=midstream)
        self._headed: set[int] = set()  # csids that had a header with a length since the last loss
        self._lagging: dict[int, set[int]] = {}  # csid -> stream ids of media whose timestamps lag
        self.base = -1  # stream offset of the decoder's first byte
        self.msg_no = 0
        self.type_counts: dict[int, int] = {}
        self.facts = Facts()

    def receive_gap(self) -> None:
        self._tags.receive_gap()

    def resynchronised(self) -> None:
        self._headed.clear()
        self._tags.receive_gap()

    def add(self, events: Sequence[MessageReceived]) -> None:
        """Messages in the order in which they were completed."""
        places, facts, base, options = self._places, self.facts, self.base, self._options
        offsets, frames, times, known = places.offsets, places.frames, places.times, places.at
        passed, message_types, counts, hook = facts.passed.append, options.message_types, self.type_counts, self._hook
        at = frame = ts = 0
        newest = len(offsets) - 1
        low = high = -1  # the offsets at which the segment with the last byte of a message and the next one begin
        for event in events:
            (
                begin, stop, fmt, csid, type_id, stream_id, timestamp, _, _, _, _, length, chunks, _, status, _,
                inferred, payload,
            ) = event[:]  # a plain tuple is unpacked faster  # fmt: skip
            start, end = base + begin, base + stop
            if not low < end <= high:
                last = (bisect_left(offsets, end) or 1) - 1
                low, high = offsets[last], offsets[last + 1] if last < newest else _ALL
                at, frame, ts = known[last], frames[last], times[last]
            msg_no = self.msg_no
            self.msg_no = msg_no + 1
            longest = start + length + LONGEST_HEADER * chunks
            place: Place = _new(Place, (at, ts, start, longest, msg_no, frame, csid, type_id, stream_id))
            passed(place)
            if type_id in counts:
                counts[type_id] += 1
            else:
                counts[type_id] = 1
                facts.firsts.append(place)
            if type_id in message_types:
                first = max(bisect_right(offsets, start) - 1, 0)
                frame_first = frames[first]
                facts.messages.append(
                    (
                        msg_no, frame_first >> FRAME_BITS, frame >> FRAME_BITS, times[first], ts,
                        frame_first & FRAME_MASK, frame & FRAME_MASK, start, fmt, csid, type_id,
                        TYPE_NAMES.get(type_id, "unknown"), *event[_FIRST_COLUMN:_END_COLUMN], crc32(payload),
                    )
                )  # fmt: skip
            if inferred:
                if fmt < 2:
                    self._headed.add(csid)
                if type_id in _MEDIA:
                    self._follow_lag(event, place)
            if type_id == AUDIO or type_id == VIDEO:
                self._media(event, place, type_id, 0, timestamp, payload)
            elif type_id <= _CONTROL_LAST:
                if status == COMPLETE and type_id > 0:
                    self._control(place, end, payload)
            elif type_id == AGGREGATE:
                if status == COMPLETE:
                    self._aggregate(event, place)
            elif DATA_AMF3 <= type_id <= COMMAND_AMF0:
                self._command(place, payload, status)
            if options.keep_payloads:
                facts.payloads.append((msg_no, payload))
            if hook is not None:
                hook(msg_no, event, frame)

    def _follow_lag(self, event: MessageReceived, place: Place) -> None:
        """After a loss, deltas are missing: report where the timestamps of a csid begin to lag and where this ends."""
        at, ts, _, _, msg_no, frame, csid, _, stream_id = place
        if event.timestamp_rule == "inferred":
            if csid not in self._lagging and len(self._lagging) >= MAX_LAGGING:
                return
            lagging = self._lagging.setdefault(csid, set())
            if stream_id not in lagging and len(lagging) < MAX_LAGGING:
                lagging.add(stream_id)
                self.facts.notable.append(LagFact(at, msg_no + 1, ts, frame, csid, stream_id, False))
            return
        for lagged in sorted(self._lagging.pop(csid, ())):
            self.facts.notable.append(LagFact(at, msg_no, ts, frame, csid, lagged, True))

    def _fault(self, code: ViolationCode, severity: Severity, detail: str, place: Place) -> None:
        self.facts.notable.append(
            FaultFact(
                place.at, place.ts, place.frame, place.start, code, severity, detail, place.msg_no, place.stream_id
            )
        )

    def _media(
        self, event: MessageReceived, place: Place, type_id: int, part_no: int, timestamp: int, payload: bytes
    ) -> int:
        """Adds the tags of one media message or of one part of an aggregate; returns the next part number."""
        at, ts, _, _, msg_no, frame, _, _, stream_id = place[:]
        tags, faults = self._tags.read(type_id, stream_id, timestamp, payload, event.status == COMPLETE)
        facts = self.facts
        own_frame = frame & FRAME_MASK
        for tag in tags:
            place_columns = msg_no, part_no, ts, own_frame
            facts.media.append(place_columns + tag[:_TAG_COLUMNS])  # a third faster than unpacking the tag
            facts.media_at.append(at)
            part_no += 1
        if self._options.interval_rows:
            self._add_to_second(type_id, timestamp, len(payload), ts, tags)
        if faults and not (event.inferred and event.fmt >= 2 and event.csid not in self._headed):
            for code, severity, detail in faults:  # else the length is from a header that was lost, and may be wrong
                self._fault(code, severity, detail, place)
        return part_no

    def _add_to_second(self, type_id: int, timestamp: int, size: int, ts: int, tags: list[MediaTag]) -> None:
        seconds, number = self.facts.seconds, ts // 1_000_000
        second = seconds.get(number)
        if second is None:
            second = seconds[number] = MediaSecond()
        if type_id == AUDIO:
            second.audio_bytes += size
        else:
            second.video_bytes += size
        if second.first_dts is None:
            second.first_dts = timestamp
        second.last_dts = timestamp
        for tag in tags:
            if tag.frame_type is not None and tag.packet_type == "frame":
                second.frames += 1
                second.key_frames += tag.is_key

    def _aggregate(self, event: MessageReceived, place: Place) -> None:
        aggregate = parse_aggregate(event.payload, event.timestamp)
        part_no = 0
        for part in aggregate.parts:
            if part.type_id == AUDIO or part.type_id == VIDEO:
                part_no = self._media(event, place, part.type_id, part_no, part.timestamp, part.payload)
        for code, _, detail in aggregate.violations:
            self._fault(code, code.severity, detail, place)

    def _control(self, place: Place, end: int, payload: bytes) -> None:
        at, ts, _, _, msg_no, frame, _, type_id, _ = place[:]
        values = parse_control(type_id, payload)[:6]
        self.facts.controls.append((msg_no, ts, frame & FRAME_MASK, *values))
        self.facts.notable.append(_new(ControlFact, (at, msg_no, ts, frame, end, *values)))
        if type_id == ACKNOWLEDGEMENT and self._options.interval_rows:
            self.facts.seconds.setdefault(ts // 1_000_000, MediaSecond()).acknowledged = values[1]

    def _command(self, place: Place, payload: bytes, status: str) -> None:
        at, ts, _, _, msg_no, frame, csid, type_id, stream_id = place[:]
        name, number, amf_version, args, violations, starts_play = read_command(type_id, payload, self._limits)[:]
        said = (at, msg_no, ts, frame, stream_id, type_id, name, number, amf_version, args, csid)
        self.facts.notable.append(_new(CommandFact, said))
        if violations and status == COMPLETE:
            where = name[:_NAME_CHARS] if name else TYPE_NAMES[type_id]
            for code, _, detail in violations:
                self._fault(code, code.severity, f"{where}: {detail}", place)
        if name in _ENDS_STREAM:
            closed = args[1] if name == "deleteStream" and len(args) > 1 else stream_id
            if isinstance(closed, (int, float)):
                self._tags.forget(int(closed))
        elif starts_play:
            self._tags.renew(stream_id)

    def state(self) -> MessagesState:
        """What later messages need. The facts are not part of it."""
        return {
            "tags": self._tags.state(),
            "base": self.base,
            "msg_no": self.msg_no,
            "headed": sorted(self._headed),
            "type_counts": list(self.type_counts.items()),
            "lagging": [(csid, sorted(stream_ids)) for csid, stream_ids in self._lagging.items()],
        }

    @classmethod
    def resume(
        cls, state: MessagesState, places: SegmentPlaces, options: DecodeOptions, hook: MessageHook | None
    ) -> MessageFacts:
        own = cls(places, options, hook, midstream=True)
        own._tags = TagReader.resume(state["tags"])
        own.base = state["base"]
        own.msg_no = state["msg_no"]
        own._headed = set(state["headed"])
        own.type_counts = dict(state["type_counts"])
        own._lagging = {csid: set(stream_ids) for csid, stream_ids in state["lagging"]}
        return own
