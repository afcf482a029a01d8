"""One direction of one connection through the RTMP decoder: items of TCP in, facts out.

Facts are local to the direction: which side is the client, which request an answer belongs to and why the connection
ended is decided elsewhere. The state is a value: `state()` can be saved and resumed in another process or after another
file.
"""

from __future__ import annotations

import base64
from typing import ClassVar, Final, TypedDict

from rtmp_spark.capture.tcp.stream_items import Conflict, End, Gap, Item, Lost, Run
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.events import TRUNCATED, Event, HandshakePart, MessageReceived, Synchronised, Violation
from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.codec.limits import MAX_WAITING_VIOLATIONS
from rtmp_spark.codec.phase import CHUNKS
from rtmp_spark.conversation.decoding.decode_options import DEFAULT_OPTIONS, DecodeOptions
from rtmp_spark.conversation.decoding.message_facts import MessageFacts, MessageHook, MessagesState
from rtmp_spark.conversation.decoding.segment_places import PlacesState, SegmentPlaces
from rtmp_spark.conversation.facts import ConflictFact, Facts, FaultFact, GapFact, HandshakeFact, Unread

_new: Final = tuple.__new__  # creates a NamedTuple at a third of its constructor's cost


class DirectionState(TypedDict):
    version: int
    decoder: str
    messages: MessagesState
    midstream: bool
    synchronised: bool
    places: PlacesState
    waiting: list[SavedFields]  # of a `Violation`


class DirectionDecoder:
    """Decodes one direction. `phase` is where its first byte is: "handshake", "chunks" or "midstream"."""

    __slots__ = ("_decoder", "_messages", "_places", "_settled", "_waiting", "midstream", "options", "synchronised")

    STATE_VERSION: ClassVar[int] = 3

    def __init__(
        self, phase: str, options: DecodeOptions = DEFAULT_OPTIONS, *, hook: MessageHook | None = None
    ) -> None:
        self.options = options
        self._decoder = RtmpDecoder(options.limits, phase=phase)
        self.midstream = phase == "midstream"
        self.synchronised = not self.midstream
        self._places = SegmentPlaces()
        self._messages = MessageFacts(self._places, options, hook, midstream=self.midstream)
        self._settled = False
        self._waiting: list[Violation] = []  # their message is not complete yet

    # -- what arrives ---------------------------------------------------------------------------------------

    def receive(self, item: Item) -> None:
        if isinstance(item, Run):
            self.receive_run(item)
        elif isinstance(item, Gap):
            self.receive_gap(item)
        elif isinstance(item, Conflict):
            self.receive_conflict(item)
        elif isinstance(item, Lost):
            self.receive_lost(item)
        elif isinstance(item, End):
            self.receive_end()

    def receive_run(self, run: Run) -> None:
        messages, decoder = self._messages, self._decoder
        if messages.base < 0:
            messages.base = run.offset
        self._settled = False
        self._places.add(run)
        self._take(decoder.receive_data(run.data))
        undecoded = decoder.undecoded_from
        self._places.forget_before(messages.base + (decoder.offset if undecoded is None else undecoded))

    def receive_gap(self, gap: Gap) -> None:
        places = self._places
        at = gap.frame
        if not gap.outer:  # else the wrapping may still hold bytes that were sent before
            places.raise_to(gap.frame)
            at = places.high
            places.high += 1  # facts from the same packet come after the gap
        fact = GapFact(at, gap.ts_ns // 1000, gap.frame, gap.offset, gap.length, gap.acked, gap.cut)
        self.facts.notable.append(fact)
        if not gap.outer:
            self._lose(gap.length, gap.exact)

    def receive_lost(self, lost: Lost) -> None:
        """Bytes that a wrapping (TLS, HTTP) could not give: a gap, and a fault that says why."""
        places = self._places
        places.raise_to(lost.frame)
        at, ts = places.high, lost.ts_ns // 1000
        severity = lost.code.severity
        self.facts.notable += [
            GapFact(at, ts, lost.frame, lost.offset, lost.length, None, True),
            FaultFact(at, ts, lost.frame, lost.offset, lost.code, severity, lost.detail, None, None),
        ]
        places.high += 1
        if not lost.outer:
            self._lose(lost.length)

    def _lose(self, length: int, exact: bool = True) -> None:
        self._settled = False
        if self._messages.base >= 0:
            self._messages.receive_gap()
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
        """The stream is over. A message that the end cuts is a violation but not a row: its receiver never got it, and
        it may continue in another file of the recording."""
        if self._settled:
            return
        events = self._decoder.receive_eof()
        cut = {e.start for e in events if isinstance(e, MessageReceived) and e.status == TRUNCATED}
        kept: list[Event] = []
        events.reverse()
        while events:  # payloads are freed one by one
            event = events.pop()
            if isinstance(event, Violation) and event.message_start in cut:
                kept.append(event._replace(message_start=None))
            elif not isinstance(event, MessageReceived) or event.status != TRUNCATED:
                kept.append(event)
        self._take(kept)
        waiting, self._waiting = self._waiting, []
        for violation in waiting:
            self._fault(violation, None, None)

    def settle(self) -> None:
        """All bytes are here: unless a message is incomplete, drop what only later bytes would need."""
        decoder = self._decoder
        if decoder.phase is CHUNKS and decoder.undecoded_from is None and not self._waiting:
            decoder.forget_headers()
            self._places.forget_all()
            self._settled = True

    # -- what is known --------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether all bytes are here, and all of them are decoded."""
        return self._settled

    @property
    def facts(self) -> Facts:
        """The facts since `take_facts` was called last."""
        return self._messages.facts

    @facts.setter
    def facts(self, facts: Facts) -> None:
        self._messages.facts = facts

    def take_facts(self) -> Facts:
        facts, self._messages.facts = self._messages.facts, Facts()
        return facts

    @property
    def unread(self) -> Unread | None:
        """The first byte that is not decoded: it waits for the rest of its message, which may show what is wrong with
        the beginning, or for more bytes to find a message in."""
        start = self._decoder.undecoded_from
        if start is None:
            return None
        at, _, ts = self._find(start)
        return Unread(at, ts)

    @property
    def buffered_since_us(self) -> int | None:
        """The time of the oldest packet whose bytes wait until a message is found; None if no bytes wait."""
        decoder = self._decoder
        if decoder.offset == decoder.buffered_from:
            return None
        return self._places.oldest_since(self._messages.base + decoder.buffered_from)

    @property
    def messages_seen(self) -> int:
        return self._messages.msg_no

    @property
    def type_counts(self) -> dict[int, int]:
        """How many messages of each type id there were."""
        return self._messages.type_counts

    @property
    def phase(self) -> str:
        return self._decoder.phase

    # -- events to facts ------------------------------------------------------------------------------------

    def _take(self, events: list[Event]) -> None:
        first_no = self._messages.msg_no
        violations: list[Violation] = []
        complete: list[MessageReceived] = []
        for event in events:
            kind = type(event)
            if kind is MessageReceived:
                complete.append(event)  # type: ignore[arg-type]
            elif kind is Violation:
                violations.append(event)  # type: ignore[arg-type]
            elif kind is HandshakePart:
                self._handshake(event)  # type: ignore[arg-type]
            elif kind is Synchronised:
                self._messages.add(complete)
                complete = []
                self.synchronised = True
                self._messages.resynchronised()
        self._messages.add(complete)
        if violations or (self._waiting and self._messages.msg_no > first_no):
            violations, self._waiting = self._waiting + violations, []
            messages = [event for event in events if isinstance(event, MessageReceived)]
            numbers = {message.start: (no, message.stream_id) for no, message in enumerate(messages, first_no)}
            for violation in violations:
                start = violation.message_start
                if start is None:
                    self._fault(violation, None, None)
                elif start in numbers:
                    self._fault(violation, *numbers[start])
                elif len(self._waiting) < MAX_WAITING_VIOLATIONS:
                    self._waiting.append(violation)

    def _find(self, offset: int) -> tuple[int, int, int]:
        """(at, frame, ts) of an offset of the decoder."""
        return self._places.find(self._messages.base + offset)

    def _handshake(self, event: HandshakePart) -> None:
        start, end, part, data = event[:]
        at, frame, ts = self._find(end - 1)
        if part == 1 and start == 0:  # the capture begins with it
            _, frame, ts = self._find(start)
        self.facts.notable.append(_new(HandshakeFact, (at, ts, frame, part, data)))

    def _fault(self, violation: Violation, msg_no: int | None, stream_id: int | None) -> None:
        at, frame, ts = self._find(violation.offset)
        self.facts.notable.append(
            FaultFact(
                max(at, 0), ts, frame, self._messages.base + violation.offset, violation.code, violation.severity,
                violation.detail, msg_no, stream_id,
            )
        )  # fmt: skip

    # -- state ----------------------------------------------------------------------------------------------

    def state(self) -> DirectionState:
        """Everything that later bytes need. Facts that were not taken yet are not part of it."""
        return {
            "version": self.STATE_VERSION,
            "decoder": base64.b64encode(self._decoder.state()).decode(),
            "messages": self._messages.state(),
            "midstream": self.midstream,
            "synchronised": self.synchronised,
            "places": self._places.state(),
            "waiting": [(v.code.value, v.severity.value, v.offset, v.detail, v.message_start) for v in self._waiting],
        }

    @classmethod
    def resume(
        cls, state: DirectionState, options: DecodeOptions = DEFAULT_OPTIONS, *, hook: MessageHook | None = None
    ) -> DirectionDecoder:
        if state["version"] != cls.STATE_VERSION:
            raise ValueError(f"direction state has version {state['version']}, expected {cls.STATE_VERSION}")
        own = cls("midstream", options, hook=hook)
        own._decoder = RtmpDecoder.resume(base64.b64decode(state["decoder"]), options.limits)
        own.midstream = state["midstream"]
        own.synchronised = state["synchronised"]
        own._places = SegmentPlaces.resume(state["places"])
        own._messages = MessageFacts.resume(state["messages"], own._places, options, hook)
        own._waiting = [
            Violation(ViolationCode[code], Severity(severity), offset, detail, start)
            for code, severity, offset, detail, start in state["waiting"]
        ]
        return own
