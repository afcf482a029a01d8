"""Acknowledgements against windows, and pings: FLOW_ACK_*, CTRL_PING_UNANSWERED.

Bytes are counted as the stream offset at which messages end, so headers, the handshake and lost bytes count as they do
for the peers. A direction's rules need its window (the last Window Acknowledgement Size that the sender of the data
sent) and a recording of both sides from the start.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Any

from rtmp_spark.capture.facts import ControlFact, Place
from rtmp_spark.capture.findings import CLIENT, SERVER, Finding
from rtmp_spark.codec.errors import Severity, ViolationCode

OTHER_WAY = {"c2s": "s2c", "s2c": "c2s"}
RECEIVER = {"c2s": SERVER, "s2c": CLIENT}
_STOPPED_US = 1_000_000
_PING_US = 1_000_000
_RESTART = 0xF0000000  # nginx-rtmp and SRS begin again at 0 from here on
_WRAP = 1 << 32
_MOST_PINGS = 256
_MOST_WAITS = 256
_known_at, _start = itemgetter(0), itemgetter(2)


class _Sent:
    """What one direction has sent, and what was acknowledged of it."""

    __slots__ = (
        "ack", "acked_at", "early", "episodes", "last_ts", "most", "offset", "queue", "stopped", "waits",
        "window", "worst",
    )  # fmt: skip

    def __init__(self) -> None:
        self.queue: list[Place] = []  # messages that the fold of time has not reached
        self.offset = 0  # where the last message began that is known to be sent
        self.last_ts: int | None = None
        self.window: int | None = None
        self.acked_at: int | None = None  # offset when the last acknowledgement, or the window, was seen
        self.ack: int | None = None  # its value
        self.early: list[list[int]] = []  # acknowledgements that are judged by the message under way at their time
        self.episodes = 0
        self.most = 0  # bytes without an acknowledgement
        self.worst: list[int] | None = None  # place where it was first too much
        self.stopped = False
        self.waits: list[list[int]] = []  # from when to when it waited for an acknowledgement, a second or longer

    def state(self) -> list[Any]:
        return list(_values(self))

    @classmethod
    def resume(cls, state: list[Any]) -> _Sent:
        sent = cls()
        for name, value in zip(cls.__slots__, state):
            setattr(sent, name, [tuple(m) for m in value] if name == "queue" else value)
        return sent


_values = attrgetter(*_Sent.__slots__)


class FlowRules:
    __slots__ = ("_deaf", "_pings", "_sent", "found")

    def __init__(self) -> None:
        self._sent = {"c2s": _Sent(), "s2c": _Sent()}
        self._pings: dict[str, list[list[int]]] = {}
        self._deaf: frozenset[str] = frozenset()  # bytes of it are missing
        self.found: list[Finding] = []

    def passed(self, direction: str, messages: Sequence[Place]) -> None:
        """The messages of a direction in their order; they wait here until the fold of time reaches them."""
        self._sent[direction].queue += messages

    def advance(self, at: int | None) -> None:
        """Nothing known at packet `at` waits any longer."""
        for direction, sent in self._sent.items():
            if sent.queue:
                self._pass(direction, at)

    def starving(self, direction: str) -> bool:
        """Whether this direction waits for an acknowledgement that is two windows late."""
        return self._sent[direction].worst is not None and OTHER_WAY[direction] not in self._deaf

    def gap(self, direction: str) -> None:
        self._deaf |= {direction}
        self._pings.pop(OTHER_WAY[direction], None)

    def control(self, direction: str, fact: ControlFact) -> list[Finding]:
        kind = fact.kind
        if kind == "acknowledgement":
            return self._acknowledged(OTHER_WAY[direction], direction, fact)
        if kind == "window_ack_size" and fact.value:
            sent = self._sent[direction]
            self._pass(direction, fact.at)
            sent.window = fact.value
            if sent.acked_at is None:
                sent.acked_at = sent.offset
        elif kind == "ping_request":
            pings = self._pings.setdefault(direction, [])
            if len(pings) < _MOST_PINGS:
                pings.append([fact.event_value or 0, fact.ts, fact.msg_no, fact.frame])
        elif kind == "ping_response":
            pings = self._pings.get(OTHER_WAY[direction], [])
            answered = next((ping for ping in pings if ping[0] == fact.event_value), pings[0] if pings else None)
            if answered is not None:
                del pings[: pings.index(answered) + 1]
        return []

    # -- bytes ------------------------------------------------------------------------------------------------

    def _pass(self, direction: str, at: int | None) -> None:
        """Take the messages that were known at packet `at` as sent."""
        sent = self._sent[direction]
        queue = sent.queue
        count = len(queue) if at is None else bisect_right(queue, at, key=_known_at)
        if not count:
            return
        messages = queue[:count]
        del queue[:count]
        if not self._may_starve(sent, messages):
            sent.last_ts, sent.offset = messages[-1][1:3]
            return
        for _, ts, offset, end, msg_no, frame, *_ in messages:
            if sent.early:
                self._judge_early(direction, end)
            starved = sent.worst is not None and sent.acked_at is not None
            if starved and sent.last_ts is not None and ts - sent.last_ts >= _STOPPED_US and sent.window:
                if offset - (sent.acked_at or 0) > 2 * sent.window:
                    self._waited(sent, ts)
            sent.offset, sent.last_ts = offset, ts
            if sent.window is not None and sent.acked_at is not None:
                unacknowledged = offset - sent.acked_at
                if unacknowledged > 2 * sent.window:
                    if unacknowledged > sent.most:
                        sent.most = unacknowledged
                    if sent.worst is None:
                        sent.worst = [msg_no, frame, ts]
                        sent.episodes += 1

    @staticmethod
    def _may_starve(sent: _Sent, messages: Sequence[Place]) -> bool:
        """Whether these must be looked at one by one: mostly nothing waits for one, and all fit into the window."""
        if sent.early or sent.worst is not None:
            return True
        if sent.window is None or sent.acked_at is None:
            return False
        highest: int = max(map(_start, messages))
        return highest - sent.acked_at > 2 * sent.window

    def _acknowledged(self, direction: str, from_direction: str, fact: ControlFact) -> list[Finding]:
        """An Acknowledgement of what `direction` sent."""
        self._pass(direction, fact.at)
        sent = self._sent[direction]
        found: list[Finding] = []
        value, before = fact.value or 0, sent.ack
        place = (from_direction, None, fact.msg_no, fact.frame, fact.ts)
        if before is not None and value < before and before < _RESTART and before - value < _WRAP // 2:
            detail = f"acknowledges {value} bytes after {before}"
            found.append(
                Finding(
                    ViolationCode.FLOW_ACK_BACKWARDS, detail, None, RECEIVER[direction], *place,
                    expected=f"{before} or more", actual=str(value),
                )
            )  # fmt: skip
        sent.ack = value
        sent.acked_at = sent.offset if sent.window is not None else None
        if sent.worst is not None and sent.window is not None:
            if sent.last_ts is not None and fact.ts - sent.last_ts >= _STOPPED_US:
                self._waited(sent, fact.ts)
            found += self._starved(direction)
        if len(sent.early) < _MOST_PINGS:
            sent.early.append([value, fact.msg_no, fact.frame, fact.ts])
        return found

    @staticmethod
    def _waited(sent: _Sent, until: int) -> None:
        sent.stopped = True
        if sent.last_ts is not None and len(sent.waits) < _MOST_WAITS:
            sent.waits.append([sent.last_ts, until])

    def waits(self, direction: str) -> list[list[int]]:
        """When this direction stood still for lack of acknowledgements: from, to."""
        return [] if OTHER_WAY[direction] in self._deaf else self._sent[direction].waits

    def _judge_early(self, direction: str, bound: int) -> None:
        """`bound` is the end of what was sent; a message under way when the acknowledgement came counts whole."""
        sent = self._sent[direction]
        waiting, sent.early = sent.early, []
        if direction in self._deaf:
            return
        for value, msg_no, frame, ts in waiting:
            ahead = (value - bound) % _WRAP
            if 0 < ahead < _WRAP // 2:
                self.found.append(
                    Finding(
                        ViolationCode.FLOW_ACK_EARLY, f"acknowledges {value} bytes of {bound} sent", None,
                        RECEIVER[direction], OTHER_WAY[direction], None, msg_no, frame, ts,
                        expected=f"at most {bound}", actual=str(value),
                    )
                )  # fmt: skip

    def _starved(self, direction: str) -> list[Finding]:
        sent = self._sent[direction]
        place, sent.worst = sent.worst, None
        most, sent.most = sent.most, 0
        stopped, sent.stopped = sent.stopped, False
        if place is None or OTHER_WAY[direction] in self._deaf:
            return []
        msg_no, frame, ts = place
        detail = f"{most} bytes sent without an Acknowledgement, the window is {sent.window}"
        severity = None
        if stopped:
            detail += "; the sender stopped for a second or more"
            severity = Severity.ERROR
        return [
            Finding(
                ViolationCode.FLOW_ACK_STARVED, detail, severity, RECEIVER[direction], direction, None, msg_no,
                frame, ts, expected=f"an Acknowledgement every {sent.window} bytes", actual=f"{most} bytes without one",
            )
        ]  # fmt: skip

    # -- the end ------------------------------------------------------------------------------------------------

    def end(
        self, until: dict[str, int], silence_us: dict[str, int | None], total: dict[str, int], goodbye: bool
    ) -> list[Finding]:
        """Both sides were recorded from the start; else this is not asked. `until` when its peer could answer a
        direction; `total` is what each sent in all."""
        for direction in self._sent:
            self._pass(direction, None)
            self._judge_early(direction, total[direction])
        found, self.found = self.found, []
        for direction, sent in self._sent.items():
            if sent.worst is not None:
                silent = silence_us[direction]
                sent.stopped = sent.stopped or (not goodbye and silent is not None and silent >= _STOPPED_US)
            found += self._starved(direction)
            for _, ts, msg_no, frame in self._pings.get(direction, ()):
                waited = until[direction] - ts
                if waited >= _PING_US and OTHER_WAY[direction] not in self._deaf:
                    detail = f"a ping got no answer in {waited / 1e6:.1f} s"
                    found.append(
                        Finding(
                            ViolationCode.CTRL_PING_UNANSWERED, detail, None, RECEIVER[direction], direction, None,
                            msg_no, frame, ts, expected="a Ping Response with the same time", actual="none",
                        )
                    )  # fmt: skip
        return found

    # -- state ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            "sent": {direction: sent.state() for direction, sent in self._sent.items()},
            "pings": {direction: self._pings.get(direction, []) for direction in OTHER_WAY},
            "deaf": {direction: direction in self._deaf for direction in OTHER_WAY},
            "found": [finding.plain() for finding in self.found],
        }

    def resume(self, state: dict[str, Any]) -> None:
        self._sent = {direction: _Sent.resume(sent) for direction, sent in state["sent"].items()}
        self._pings = dict(state["pings"])
        self._deaf = frozenset(direction for direction, deaf in state["deaf"].items() if deaf)
        self.found = [Finding.from_plain(finding) for finding in state["found"]]
