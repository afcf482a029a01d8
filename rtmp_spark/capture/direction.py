"""One directed stream through the RTMP decoder: bytes with their packets in, facts out.

It maps stream offsets back to packets, numbers the messages and reads what is inside them. Facts are local to the
direction: who is client, which command an answer belongs to and why the connection ended is not known here. Its
state is a value: `state()` can be kept and resumed in another process or after another file.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from rtmp_spark.capture.facts import (
    FRAME_BITS,
    FRAME_MASK,
    Arguments,
    CommandFact,
    ConflictFact,
    ControlFact,
    Facts,
    FaultFact,
    GapFact,
    HandshakeFact,
    LagFact,
)
from rtmp_spark.capture.items import Conflict, Gap, Lost, Run
from rtmp_spark.codec.amf import AmfViolation, to_json
from rtmp_spark.codec.command import parse_command
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.events import COMPLETE, TRUNCATED, Event, HandshakePart, MessageReceived, Synchronised, Violation
from rtmp_spark.codec.limits import DEFAULT_LIMITS, Limits
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

_FEW = 32
_REPEATED_BYTES = 4096  # of a command that is worth remembering
KEPT_PLACES = 1 << 18  # segments remembered for messages that are still under way
_CONTROL_LAST = 6
_LONGEST_HEADER = 18
_MEDIA = (AUDIO, VIDEO, AGGREGATE)
_MOST_LAGGING = 1024  # csids, and stream ids of each
_NAME_CHARS = 40
_ENDS_STREAM = frozenset({"deleteStream", "closeStream", "publish"})  # publish the one that had its id before
_PLAY_BEGINS = (b"NetStream.Play.Start", b"NetStream.Play.Reset")
_new = tuple.__new__  # a NamedTuple at a third of its constructor's cost

# Called with (direction decoder, message row, event) of each message; how payloads leave without being kept.
MessageHook = Callable[[int, MessageReceived, int], None]


class _Read(NamedTuple):
    """What the bytes of a command tell, in whichever connection: the end of its fact, what is wrong with it, and
    whether it lets a stream begin to play."""

    said: tuple[str | None, float | None, int, list[Any]]
    violations: tuple[AmfViolation, ...]
    plays: bool


def _read_command(type_id: int, payload: bytes, limits: Limits) -> _Read:
    command = parse_command(type_id, payload, limits)
    args = Arguments([to_json(value) for value in command.args])
    said = (command.name or None, command.transaction_id, command.amf_version, args)
    plays = command.name == "onStatus" and any(code in payload for code in _PLAY_BEGINS)
    return _Read(said, command.violations, plays)


@lru_cache(1024)  # commands repeat from connection to connection, byte by byte; what they give is never changed
def _read_repeated(type_id: int, payload: bytes) -> _Read:
    return _read_command(type_id, payload, DEFAULT_LIMITS)


class Places:
    """Which packet carried a byte: stream offset -> frame, time, and the packet that made it known."""

    __slots__ = ("at", "frames", "high", "offsets", "times")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.frames: list[int] = []
        self.times: list[int] = []
        self.at: list[int] = []
        self.high = 0

    def add(self, run: Run) -> None:
        if len(run.seg_frames) <= _FEW:
            self._add_few(run)
            return
        known = np.maximum.accumulate(run.seg_frames)
        if len(known) and known[0] < self.high:
            known = np.maximum(known, self.high)
        self.offsets += run.seg_offsets.tolist()
        self.frames += run.seg_frames.tolist()
        self.times += (run.seg_ts_ns // 1000).tolist()
        self.at += known.tolist()
        if self.at:
            self.high = self.at[-1]

    def _add_few(self, run: Run) -> None:
        """The same without numpy, whose calls cost more than so few numbers."""
        frames = run.seg_frames.tolist()
        self.offsets += run.seg_offsets.tolist()
        self.frames += frames
        self.times += [ts_ns // 1000 for ts_ns in run.seg_ts_ns.tolist()]
        high = self.high
        if frames and frames[0] >= high and frames == sorted(frames):
            self.at += frames
            self.high = frames[-1]
            return
        for frame in frames:
            if frame > high:
                high = frame
            self.at.append(high)
        self.high = high

    def raise_to(self, frame: int) -> None:
        self.high = max(self.high, frame)

    def forget_before(self, offset: int) -> None:
        keep = bisect_right(self.offsets, offset) - 1
        keep = max(keep, len(self.offsets) - KEPT_PLACES)
        if keep > 0:
            del self.offsets[:keep], self.frames[:keep], self.times[:keep], self.at[:keep]

    def forget_all(self) -> None:
        for column in (self.offsets, self.frames, self.times, self.at):
            column.clear()


class DirectionDecoder:
    """One direction of one connection."""

    __slots__ = (
        "_base", "_decoder", "_headed", "_hook", "_interval_rows", "_keep_payloads", "_lagging", "_last", "_limits",
        "_message_rows", "_msg_no", "_places", "_settled", "_tags", "_usual_limits", "_waiting",
        "facts", "midstream", "synchronised", "type_counts",
    )  # fmt: skip

    STATE_VERSION = 2

    def __init__(
        self,
        phase: str,
        *,
        limits: Limits = DEFAULT_LIMITS,
        keep_payloads: bool = False,
        message_rows: bool = True,
        interval_rows: bool = True,
        hook: MessageHook | None = None,
    ) -> None:
        self._limits = limits
        self._usual_limits = limits == DEFAULT_LIMITS
        self._decoder = RtmpDecoder(limits, phase=phase)
        self.midstream = phase == "midstream"
        self.synchronised = not self.midstream
        self._tags = TagReader(midstream=self.midstream)
        self._base = -1  # stream offset of the decoder's first byte
        self._msg_no = 0
        self._headed: set[int] = set()  # csids with a header that tells a length, behind the last loss
        self._places = Places()
        self._last = (0, 0)  # frame and time where nothing else is known
        self._settled = False
        self._waiting: list[Violation] = []  # their message has not been reported yet
        self._lagging: dict[int, set[int]] = {}  # csid and stream ids of media whose times lag
        self._keep_payloads = keep_payloads
        self._message_rows = message_rows
        self._interval_rows = interval_rows
        self._hook = hook
        self.type_counts: dict[int, int] = {}
        self.facts = Facts()

    # -- what arrives ---------------------------------------------------------------------------------------

    def receive_run(self, run: Run) -> None:
        if self._base < 0:
            self._base = run.offset
        self._settled = False
        self._places.add(run)
        self._take(self._decoder.receive_data(run.data))
        pending = self._decoder.pending_start
        if pending is None:
            pending = self._decoder.buffered_from
        self._places.forget_before(self._base + pending)

    def receive_gap(self, gap: Gap) -> None:
        self._places.raise_to(gap.frame)
        ts = gap.ts_ns // 1000
        self.facts.notable.append(GapFact(self._places.high, ts, gap.frame, gap.offset, gap.length, gap.acked, gap.cut))
        self._places.high += 1  # what the same packet brings comes after the gap
        if not gap.outer:
            self._lose(gap.length, gap.exact)

    def receive_lost(self, lost: Lost) -> None:
        """Bytes inside a wrapping that cannot be read: a gap for everyone above, told in the wrapping's own words."""
        self._places.raise_to(lost.frame)
        at, ts = self._places.high, lost.ts_ns // 1000
        self.facts.notable.append(GapFact(at, ts, lost.frame, lost.offset, lost.length, None, True))
        severity = lost.code.severity
        self.facts.notable.append(
            FaultFact(at, ts, lost.frame, lost.offset, lost.code, severity, lost.detail, None, None)
        )
        self._places.high += 1
        if not lost.outer:
            self._lose(lost.length)

    def _lose(self, length: int, exact: bool = True) -> None:
        self._settled = False
        if self._base >= 0:
            self._tags.receive_gap()
            self._take(self._decoder.receive_gap(length, exact))

    def receive_conflict(self, conflict: Conflict) -> None:
        self._places.raise_to(conflict.frame)
        self.facts.notable.append(
            ConflictFact(
                self._places.high, conflict.ts_ns // 1000, conflict.frame, conflict.offset, conflict.length,
                conflict.crc_first, conflict.crc_second, conflict.intact,
            )
        )  # fmt: skip

    def receive_end(self) -> None:
        """The stream is over. A message that it cut is told as a finding and is no row: nobody ever got it, and in
        a recording that goes on in another file it is not over yet."""
        if self._settled:
            return
        events = self._decoder.receive_eof()
        cut = {e.start: e for e in events if isinstance(e, MessageReceived) and e.status == TRUNCATED}
        told: list[Event] = []
        for event in events:
            if isinstance(event, Violation) and event.message_start in cut:
                message = cut[event.message_start]
                words = (
                    f"{TYPE_NAMES.get(message.type_id, 'unknown')} message of {message.length} bytes on csid "
                    f"{message.csid}: the stream ends with {message.missing_bytes} of them to come"
                )
                told.append(event._replace(detail=words, message_start=None))
            elif not isinstance(event, MessageReceived) or event.status != TRUNCATED:
                told.append(event)
        self._take(told)
        waiting, self._waiting = self._waiting, []
        for violation in waiting:
            self._fault(violation, None, None)

    def settle(self) -> None:
        """All bytes are here: unless something is unfinished, no packet of a byte will be asked for any more."""
        decoder = self._decoder
        whole = decoder.phase == "chunks" and decoder.pending_start is None and decoder.offset == decoder.buffered_from
        if whole and not self._waiting:
            decoder.forget_headers()
            self._places.forget_all()
            self._settled = True

    def take_facts(self) -> Facts:
        facts, self.facts = self.facts, Facts()
        return facts

    @property
    def unread(self) -> tuple[int, int] | None:
        """Packet and time that later facts are not older than, where bytes wait: for the rest of their message, which
        may show what is wrong with its beginning, or for more of them to find a message in."""
        decoder = self._decoder
        start = decoder.pending_start
        if start is None:
            if decoder.offset == decoder.buffered_from:
                return None
            start = decoder.buffered_from
        at, _, ts = self._place(start)
        return at, ts

    @property
    def messages_seen(self) -> int:
        return self._msg_no

    @property
    def phase(self) -> str:
        return self._decoder.phase

    # -- events to facts ------------------------------------------------------------------------------------

    def _take(self, events: list[Event]) -> None:
        first_no = self._msg_no
        violations = self._waiting
        message = self._message
        for event in events:
            kind = type(event)
            if kind is MessageReceived:
                message(event)  # type: ignore[arg-type]
            elif kind is Violation:
                violations.append(event)  # type: ignore[arg-type]
            elif kind is HandshakePart:
                self._handshake(event)  # type: ignore[arg-type]
            elif kind is Synchronised:
                self.synchronised = True
                self._headed.clear()
                self._tags.receive_gap()
        if violations:
            self._waiting = []
            messages = [event for event in events if isinstance(event, MessageReceived)]
            numbers = {message.start: (no, message.stream_id) for no, message in enumerate(messages, first_no)}
            for violation in violations:
                start = violation.message_start
                if start is None:
                    self._fault(violation, None, None)
                elif start in numbers:
                    self._fault(violation, *numbers[start])
                elif len(self._waiting) < 1024:
                    self._waiting.append(violation)

    def _place(self, offset: int) -> tuple[int, int, int]:
        places = self._places
        if not places.offsets:
            return places.high, places.high, self._last[1]
        index = max(bisect_right(places.offsets, self._base + offset) - 1, 0)
        return places.at[index], places.frames[index], places.times[index]

    def _handshake(self, event: HandshakePart) -> None:
        start, end, part, data = event
        at, frame, ts = self._place(end - 1)
        if part == 0 or (part == 1 and start == 0):
            _, frame, ts = self._place(start)
        self.facts.notable.append(_new(HandshakeFact, (at, ts, frame, part, data)))

    def _fault(self, violation: Violation, msg_no: int | None, stream_id: int | None) -> None:
        at, frame, ts = self._place(violation.offset)
        self.facts.notable.append(
            FaultFact(
                max(at, 0), ts, frame, self._base + violation.offset, violation.code, violation.severity,
                violation.detail, msg_no, stream_id,
            )
        )  # fmt: skip

    def _message(self, event: MessageReceived) -> None:
        (
            begin, stop, fmt, csid, type_id, stream_id, timestamp, _, _, _, _, length, chunks, _, status, _, inferred,
            payload,
        ) = event  # fmt: skip
        places, facts, base = self._places, self.facts, self._base
        start = base + begin
        last = bisect_right(places.offsets, base + stop - 1) - 1
        if last < 0:
            last = 0
        frame, ts, at = places.frames[last], places.times[last], places.at[last]
        msg_no = self._msg_no
        self._msg_no = msg_no + 1
        passed = (at, ts, start, start + length + _LONGEST_HEADER * chunks, msg_no, frame, csid, type_id, stream_id)
        facts.passed.append(passed)
        counts = self.type_counts
        if type_id in counts:
            counts[type_id] += 1
        else:
            counts[type_id] = 1
            facts.firsts.append(passed)
        if self._message_rows:
            first = max(bisect_right(places.offsets, start) - 1, 0)
            frame_first = places.frames[first]
            facts.messages.append(
                (
                    msg_no, frame_first >> FRAME_BITS, frame >> FRAME_BITS, places.times[first], ts,
                    frame_first & FRAME_MASK, frame & FRAME_MASK, start, fmt, csid, type_id,
                    TYPE_NAMES.get(type_id, "unknown"), *event[5:17], crc32(payload),
                )
            )  # fmt: skip
        if inferred:
            if fmt < 2:
                self._headed.add(csid)
            if type_id in _MEDIA:
                self._follow_time(event, msg_no, at, frame, ts)
        if type_id == AUDIO or type_id == VIDEO:
            self._media(event, type_id, msg_no, 0, timestamp, payload, at, frame, ts)
        elif type_id <= _CONTROL_LAST:
            if status == COMPLETE and type_id > 0:
                self._control(event, msg_no, at, frame, ts)
        elif type_id == AGGREGATE:
            if status == COMPLETE:
                self._aggregate(event, msg_no, at, frame, ts)
        elif DATA_AMF3 <= type_id <= COMMAND_AMF0:
            self._command(event, msg_no, at, frame, ts)
        if self._keep_payloads:
            facts.payloads.append((msg_no, payload))
        if self._hook is not None:
            self._hook(msg_no, event, frame)

    def _follow_time(self, event: MessageReceived, msg_no: int, at: int, frame: int, ts: int) -> None:
        csid, stream_id = event.csid, event.stream_id
        if event.timestamp_rule == "inferred":
            if csid not in self._lagging and len(self._lagging) >= _MOST_LAGGING:
                return
            lagging = self._lagging.setdefault(csid, set())
            if stream_id not in lagging and len(lagging) < _MOST_LAGGING:
                lagging.add(stream_id)
                self.facts.notable.append(LagFact(at, msg_no + 1, ts, frame, csid, stream_id, False))
            return
        for lagged in sorted(self._lagging.pop(csid, ())):
            self.facts.notable.append(LagFact(at, msg_no, ts, frame, csid, lagged, True))

    def _blame(
        self, code: ViolationCode, severity: Severity, detail: str, event: MessageReceived, msg_no: int,
        at: int, frame: int, ts: int,
    ) -> None:  # fmt: skip
        self.facts.notable.append(
            FaultFact(at, ts, frame, self._base + event.start, code, severity, detail, msg_no, event.stream_id)
        )

    def _media(
        self, event: MessageReceived, type_id: int, msg_no: int, part_no: int, timestamp: int, payload: bytes,
        at: int, frame: int, ts: int,
    ) -> int:  # fmt: skip
        complete = event[14] == COMPLETE
        tags, faults = self._tags.read(type_id, event[5], timestamp, payload, complete=complete)
        facts = self.facts
        own_frame = frame & FRAME_MASK
        for tag in tags:
            facts.media.append((msg_no, part_no, ts, own_frame, *tag[:22]))
            facts.media_at.append(at)
            part_no += 1
        if self._interval_rows:
            self._add_second(type_id, timestamp, len(payload), ts, tags)
        if faults and event.inferred and event.fmt >= 2 and event.csid not in self._headed:
            faults = []  # its length stood in a header that was not recorded, and may be guessed wrong
        for code, severity, detail in faults:
            self._blame(code, severity, detail, event, msg_no, at, frame, ts)
        return part_no

    def _add_second(self, type_id: int, timestamp: int, size: int, ts: int, tags: list[MediaTag]) -> None:
        seconds = self.facts.seconds
        second = seconds.get(ts // 1_000_000)
        if second is None:
            second = seconds[ts // 1_000_000] = [0, 0, 0, 0, None, None, None]
        second[0 if type_id == AUDIO else 1] += size
        if second[4] is None:
            second[4] = timestamp
        second[5] = timestamp
        for tag in tags:
            if tag.frame_type is not None and tag.packet_type == "frame":
                second[2] += 1
                second[3] += tag.is_key

    def _aggregate(self, event: MessageReceived, msg_no: int, at: int, frame: int, ts: int) -> None:
        aggregate = parse_aggregate(event.payload, event.timestamp)
        part_no = 0
        for part in aggregate.parts:
            if part.type_id == AUDIO or part.type_id == VIDEO:
                part_no = self._media(event, part.type_id, msg_no, part_no, part.timestamp, part.payload, at, frame, ts)
        for code, _, detail in aggregate.violations:
            self._blame(code, code.severity, detail, event, msg_no, at, frame, ts)

    def _control(self, event: MessageReceived, msg_no: int, at: int, frame: int, ts: int) -> None:
        control = parse_control(event[4], event[17])
        values = control[:6]
        facts = self.facts
        facts.controls.append((msg_no, ts, frame & FRAME_MASK, *values))
        facts.notable.append(_new(ControlFact, (at, msg_no, ts, frame, self._base + event[1], *values)))
        if event[4] == ACKNOWLEDGEMENT and self._interval_rows:
            second = facts.seconds.setdefault(ts // 1_000_000, [0, 0, 0, 0, None, None, None])
            second[6] = control.value

    def _command(self, event: MessageReceived, msg_no: int, at: int, frame: int, ts: int) -> None:
        type_id, payload = event[4], event[17]
        if self._usual_limits and len(payload) <= _REPEATED_BYTES:
            said, violations, plays = _read_repeated(type_id, payload)
        else:
            said, violations, plays = _read_command(type_id, payload, self._limits)
        self.facts.notable.append(_new(CommandFact, (at, msg_no, ts, frame, event[5], type_id, *said, event[3])))
        name = said[0]
        if violations and event[14] == COMPLETE:
            where = name[:_NAME_CHARS] if name else TYPE_NAMES[type_id]
            for code, _, detail in violations:
                self._blame(code, code.severity, f"{where}: {detail}", event, msg_no, at, frame, ts)
        if name in _ENDS_STREAM:
            args = said[3]
            closed = args[1] if name == "deleteStream" and len(args) > 1 else event.stream_id
            if isinstance(closed, (int, float)):
                self._tags.forget(int(closed))
        elif plays:
            self._tags.renew(event.stream_id)

    # -- state ----------------------------------------------------------------------------------------------

    @property
    def settings(self) -> dict[str, Any]:
        """What `resume` must be given, besides the state, to go on in another process."""
        return {
            "limits": self._limits,
            "keep_payloads": self._keep_payloads,
            "message_rows": self._message_rows,
            "interval_rows": self._interval_rows,
        }

    def state(self) -> dict[str, Any]:
        """Everything that later bytes need; take the facts first, they are not part of it."""
        places = self._places
        return {
            "version": self.STATE_VERSION,
            "decoder": base64.b64encode(self._decoder.state()).decode(),
            "tags": self._tags.state(),
            "base": self._base,
            "msg_no": self._msg_no,
            "midstream": self.midstream,
            "synchronised": self.synchronised,
            "headed": sorted(self._headed),
            "type_counts": list(self.type_counts.items()),
            "lagging": [(csid, sorted(stream_ids)) for csid, stream_ids in self._lagging.items()],
            "places": [places.offsets, places.frames, places.times, places.at, places.high],
            "waiting": [[v.code.value, v.severity.value, v.offset, v.detail, v.message_start] for v in self._waiting],
        }

    @classmethod
    def resume(
        cls,
        state: dict[str, Any],
        *,
        limits: Limits = DEFAULT_LIMITS,
        keep_payloads: bool = False,
        message_rows: bool = True,
        interval_rows: bool = True,
        hook: MessageHook | None = None,
    ) -> DirectionDecoder:
        if state["version"] != cls.STATE_VERSION:
            raise ValueError(f"state of a direction, version {state['version']}")
        direction = cls(
            "midstream",
            limits=limits,
            keep_payloads=keep_payloads,
            message_rows=message_rows,
            interval_rows=interval_rows,
            hook=hook,
        )
        direction._decoder = RtmpDecoder.resume(base64.b64decode(state["decoder"]), limits)
        direction._tags = TagReader.resume(state["tags"])
        direction._base = state["base"]
        direction._msg_no = state["msg_no"]
        direction.midstream = state["midstream"]
        direction.synchronised = state["synchronised"]
        direction._headed = set(state["headed"])
        direction.type_counts = dict(state["type_counts"])
        direction._lagging = {csid: set(stream_ids) for csid, stream_ids in state["lagging"]}
        places = direction._places
        places.offsets, places.frames, places.times, places.at, places.high = state["places"]
        direction._waiting = [
            Violation(ViolationCode[code], Severity(severity), offset, detail, start)
            for code, severity, offset, detail, start in state["waiting"]
        ]
        return direction
