"""FLOW_ACK_*, CTRL_PING_UNANSWERED: Acknowledgements compared with windows, and unanswered pings.

Sent bytes are counted by the stream offset of messages, so headers, the handshake and missing bytes count as they do
for the peers. The rules of a direction need its window (the last Window Acknowledgement Size that the sender of the
data sent) and a capture of both directions from the start.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, Final, NamedTuple, TypedDict

from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.json_value import Json, SavedFields
from rtmp_spark.codec.limits import ACKNOWLEDGEMENT_WAITS, WAITING_ACKNOWLEDGEMENTS, WAITING_PINGS
from rtmp_spark.conversation.facts import OTHER_DIRECTION, RECEIVER, ControlFact, Place
from rtmp_spark.forensics.findings import Finding, SavedFinding
from rtmp_spark.forensics.position import Position
from rtmp_spark.forensics.thresholds import PING_US, STARVED_WINDOWS, STOPPED_US

_RESTART: Final = 0xF0000000  # above this nginx-rtmp and SRS restart their counter at 0
_WRAP: Final = 1 << 32
_NO_DIRECTIONS: Final[frozenset[str]] = frozenset()
_known_at, _start = itemgetter(0), itemgetter(2)  # of a Place


class _Ping(NamedTuple):
    time: int
    ts: int
    msg_no: int
    frame: int


class _Acknowledgement(NamedTuple):
    value: int
    msg_no: int
    frame: int
    ts: int


class _Sent:
    """What one direction sent, and what of it was acknowledged."""

    __slots__: ClassVar[tuple[str, ...]] = (
        "ack", "acked_at", "early", "last_ts", "most", "offset", "queue", "stopped", "waits",
        "window", "worst",
    )  # fmt: skip

    def __init__(self) -> None:
        self.queue: list[Place] = []  # messages not yet counted as sent
        self.offset = 0  # start of the last message counted as sent
        self.last_ts: int | None = None
        self.window: int | None = None
        self.acked_at: int | None = None  # offset at the last Acknowledgement, or at the first window
        self.ack: int | None = None  # value of the last Acknowledgement
        self.early: list[_Acknowledgement] = []  # to be compared with the end of the message in flight
        self.most = 0  # largest number of unacknowledged bytes since the last Acknowledgement
        self.worst: Position | None = None  # first message beyond the allowed windows
        self.stopped = False
        self.waits: list[tuple[int, int]] = []  # times (from, to) spent waiting for an Acknowledgement

    def unacknowledged_windows_exceeded(self, offset: int) -> bool:
        """True if data up to `offset` exceeds the windows that may be sent without an Acknowledgement."""
        if self.window is None or self.acked_at is None:
            return False
        return offset - self.acked_at > STARVED_WINDOWS * self.window

    def add_wait(self, until: int) -> None:
        self.stopped = True
        if self.last_ts is not None and len(self.waits) < ACKNOWLEDGEMENT_WAITS:
            self.waits.append((self.last_ts, until))

    def state(self) -> list[Json]:
        return list(_values(self))

    @classmethod
    def resume(cls, state: list[Json]) -> _Sent:
        sent = cls()
        values: dict[str, Any] = dict(zip(cls.__slots__, state))
        values["queue"] = [Place(*item) for item in values["queue"]]
        values["waits"] = [tuple(item) for item in values["waits"]]
        values["early"] = [_Acknowledgement(*one) for one in values["early"]]
        values["worst"] = None if values["worst"] is None else Position(*values["worst"])
        for name, value in values.items():
            setattr(sent, name, value)
        return sent


_values: Final = attrgetter(*_Sent.__slots__)


class FlowState(TypedDict):
    sent: dict[str, list[Json]]
    pings: Mapping[str, Sequence[SavedFields]]
    deaf: dict[str, bool]
    found: list[SavedFinding]


class FlowRules:
    """The rules for both directions of one connection. `found` are findings that became known while messages passed."""

    __slots__ = ("_incomplete", "_pings", "_sent", "found")

    def __init__(self) -> None:
        self._sent = {"c2s": _Sent(), "s2c": _Sent()}
        self._pings: dict[str, list[_Ping]] = {}  # unanswered, by the direction of the request
        self._incomplete = _NO_DIRECTIONS  # directions with missing bytes
        self.found: list[Finding] = []

    def passed(self, direction: str, messages: Sequence[Place]) -> None:
        """Queue the messages of a direction, in order, until `advance` reaches them."""
        self._sent[direction].queue += messages

    def advance(self, at: int | None) -> None:
        """Count the queued messages known at packet `at` as sent; None: all."""
        for direction, sent in self._sent.items():
            if sent.queue:
                self._count_sent(direction, at)

    def starving(self, direction: str) -> bool:
        """True if this direction has exceeded its windows and still waits for an Acknowledgement."""
        return self._sent[direction].worst is not None and OTHER_DIRECTION[direction] not in self._incomplete

    def waits(self, direction: str) -> list[tuple[int, int]]:
        """Times (from, to) in which this direction waited for an Acknowledgement."""
        return [] if OTHER_DIRECTION[direction] in self._incomplete else self._sent[direction].waits

    def gap(self, direction: str, at: int) -> None:
        self._count_sent(direction, at)  # these messages came before the gap
        self._incomplete |= {direction}
        self._pings.pop(OTHER_DIRECTION[direction], None)

    def control(self, direction: str, fact: ControlFact) -> list[Finding]:
        kind = fact.kind
        if kind == "acknowledgement":
            return self._acknowledged(OTHER_DIRECTION[direction], direction, fact)
        if kind == "window_ack_size" and fact.value:
            sent = self._sent[direction]
            self._count_sent(direction, fact.at)
            sent.window = fact.value
            if sent.acked_at is None:
                sent.acked_at = sent.offset
        elif kind == "ping_request":
            pings = self._pings.setdefault(direction, [])
            if len(pings) < WAITING_PINGS:
                pings.append(_Ping(fact.event_value or 0, fact.ts, fact.msg_no, fact.frame))
        elif kind == "ping_response":
            pings = self._pings.get(OTHER_DIRECTION[direction], [])
            answered = next((ping for ping in pings if ping.time == fact.event_value), pings[0] if pings else None)
            if answered is not None:
                del pings[: pings.index(answered) + 1]
        return []

    # -- bytes ------------------------------------------------------------------------------------------------

    def _count_sent(self, direction: str, at: int | None) -> None:
        """Count the queued messages known at packet `at` as sent."""
        sent = self._sent[direction]
        queue = sent.queue
        if not queue:
            return
        if at is None or queue[-1].at <= at:
            messages, sent.queue = queue, []
        else:
            count = bisect_right(queue, at, key=_known_at)
            if not count:
                return
            messages = queue[:count]
            del queue[:count]
        if not _must_check_each(sent, messages):
            sent.last_ts, sent.offset = messages[-1][1:3]
            return
        for _, ts, start, end, msg_no, frame, *_ in messages:
            if sent.early:
                self._check_early(direction, end)
            exceeded = sent.unacknowledged_windows_exceeded(start)
            if exceeded and sent.worst is not None and sent.last_ts is not None and ts - sent.last_ts >= STOPPED_US:
                sent.add_wait(ts)
            sent.offset, sent.last_ts = start, ts
            if exceeded:
                sent.most = max(sent.most, start - (sent.acked_at or 0))
                if sent.worst is None:
                    sent.worst = Position(msg_no, frame, ts)

    def _acknowledged(self, direction: str, from_direction: str, fact: ControlFact) -> list[Finding]:
        """An Acknowledgement of what `direction` sent."""
        self._count_sent(direction, fact.at)
        sent = self._sent[direction]
        found: list[Finding] = []
        value, before = fact.value or 0, sent.ack
        if before is not None and value < before and before < _RESTART and before - value < _WRAP // 2:
            found.append(
                Finding(
                    ViolationCode.FLOW_ACK_BACKWARDS, f"Acknowledgement of {value} bytes after one of {before} bytes",
                    None, RECEIVER[direction], from_direction, None, fact.msg_no, fact.frame, fact.ts,
                    expected=f"{before} or more", actual=str(value),
                )
            )  # fmt: skip
        sent.ack = value
        sent.acked_at = sent.offset if sent.window is not None else None
        if sent.worst is not None and sent.window is not None:
            if sent.last_ts is not None and fact.ts - sent.last_ts >= STOPPED_US:
                sent.add_wait(fact.ts)
            found += self._starved(direction)
        if len(sent.early) < WAITING_ACKNOWLEDGEMENTS:
            sent.early.append(_Acknowledgement(value, fact.msg_no, fact.frame, fact.ts))
        return found

    def _check_early(self, direction: str, sent_bytes: int) -> None:
        """Compare waiting Acknowledgements with `sent_bytes`, the end of the message that was in flight at the time of
        the Acknowledgement: its receiver may have had all of it."""
        sent = self._sent[direction]
        waiting, sent.early = sent.early, []
        if direction in self._incomplete:
            return
        for value, msg_no, frame, ts in waiting:
            ahead = (value - sent_bytes) % _WRAP
            if 0 < ahead < _WRAP // 2:
                self.found.append(
                    Finding(
                        ViolationCode.FLOW_ACK_EARLY, f"Acknowledgement of {value} bytes, only {sent_bytes} were sent",
                        None, RECEIVER[direction], OTHER_DIRECTION[direction], None, msg_no, frame, ts,
                        expected=f"at most {sent_bytes}", actual=str(value),
                    )
                )  # fmt: skip

    def _starved(self, direction: str) -> list[Finding]:
        """End an episode without Acknowledgements, and report it."""
        sent = self._sent[direction]
        position, sent.worst = sent.worst, None
        most, sent.most = sent.most, 0
        stopped, sent.stopped = sent.stopped, False
        if position is None or OTHER_DIRECTION[direction] in self._incomplete:
            return []
        detail = f"{most} bytes sent without an Acknowledgement; the window is {sent.window} bytes"
        severity = None
        if stopped:
            detail += "; the sender stopped for a second or more"
            severity = Severity.ERROR
        return [
            Finding(
                ViolationCode.FLOW_ACK_STARVED, detail, severity, RECEIVER[direction], direction, None, *position,
                expected=f"an Acknowledgement every {sent.window} bytes", actual=f"{most} bytes without one",
            )
        ]  # fmt: skip

    # -- the end ------------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether all messages, Acknowledgements and pings are judged, so that `end` finds nothing."""
        to_judge = any(sent.queue or sent.early or sent.worst for sent in self._sent.values())
        return not (to_judge or self.found or any(self._pings.values()))

    def end(
        self, until: dict[str, int], silence_us: dict[str, int | None], total: dict[str, int], teardown: bool
    ) -> list[Finding]:
        """Return the remaining findings. Call it only if both directions were captured from the start.

        Args:
            until: When the peer of each direction could send its last response.
            silence_us: Time from the last payload byte of each direction to the end.
            total: Bytes that each direction sent.
            teardown: A side ended the stream before it closed the connection.
        """
        for direction in self._sent:
            self._count_sent(direction, None)
            self._check_early(direction, total[direction])
        found, self.found = self.found, []
        for direction, sent in self._sent.items():
            if sent.worst is not None:
                silent = silence_us[direction]
                sent.stopped = sent.stopped or (not teardown and silent is not None and silent >= STOPPED_US)
            found += self._starved(direction)
            found += self._unanswered_pings(direction, until[direction])
        return found

    def _unanswered_pings(self, direction: str, until: int) -> list[Finding]:
        if OTHER_DIRECTION[direction] in self._incomplete:
            return []
        return [
            Finding(
                ViolationCode.CTRL_PING_UNANSWERED, f"no Ping Response within {(until - ping.ts) / 1e6:.1f} s", None,
                RECEIVER[direction], direction, None, ping.msg_no, ping.frame, ping.ts,
                expected="a Ping Response with the same timestamp", actual="none",
            )
            for ping in self._pings.get(direction, ())
            if until - ping.ts >= PING_US
        ]  # fmt: skip

    # -- state ----------------------------------------------------------------------------------------------------

    def state(self) -> FlowState:
        return {
            "sent": {direction: sent.state() for direction, sent in self._sent.items()},
            "pings": {direction: self._pings.get(direction, []) for direction in OTHER_DIRECTION},
            "deaf": {direction: direction in self._incomplete for direction in OTHER_DIRECTION},
            "found": [finding.plain() for finding in self.found],
        }

    def resume(self, state: FlowState) -> None:
        self._sent = {direction: _Sent.resume(sent) for direction, sent in state["sent"].items()}
        self._pings = {direction: [_Ping(*ping) for ping in pings] for direction, pings in state["pings"].items()}
        self._incomplete = frozenset(direction for direction, missing in state["deaf"].items() if missing)
        self.found = [Finding.from_plain(finding) for finding in state["found"]]


def _must_check_each(sent: _Sent, messages: Sequence[Place]) -> bool:
    """False if the messages can be counted at once: no Acknowledgement waits and all fit into the windows."""
    if sent.early or sent.worst is not None:
        return True
    return sent.window is not None and sent.unacknowledged_windows_exceeded(max(map(_start, messages)))
