"""One order of time for the facts of both directions, independent of where the windows of the reader end.

Facts are added as the directions are decoded and released up to a packet, in the order in which the packets made them
known. Media rows are released in runs, as long as possible.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import count, repeat
from operator import itemgetter
from typing import Final, NamedTuple, TypedDict, cast

from rtmp_spark.codec.json_value import Json, SavedFields
from rtmp_spark.conversation.answer_order import PlacedFact, Requests, put_off_answers
from rtmp_spark.conversation.fact_json import from_json, to_json
from rtmp_spark.conversation.facts import (
    CommandFact,
    ControlFact,
    Facts,
    FaultFact,
    HandshakeFact,
    LagFact,
    MediaRows,
    Notable,
    Row,
    Unread,
)
from rtmp_spark.conversation.media_row import MSG_NO

_NEVER: Final = 1 << 62  # later than every packet
_known_at = itemgetter(0)  # of every fact
OrderedFact = tuple[int, int, int, Notable | MediaRows]  # as PlacedFact


class OrderState(TypedDict):
    notable: list[SavedFields]  # of a `PlacedFact`
    media: Json
    media_at: list[list[int]]
    requests: list[SavedFields]  # of a `Subject`
    sequence: int


class Release(NamedTuple):
    """Facts in the order of time. All facts up to packet `up_to` (None: all facts) have been released now."""

    up_to: int | None
    facts: list[OrderedFact]


class FactOrder:
    """Facts of both directions that have not been released yet."""

    __slots__ = ("_all_released", "_media", "_media_at", "_notable", "_requests", "_sequence")

    def __init__(self) -> None:
        self._notable: list[PlacedFact] = []
        self._media: list[list[Row]] = [[], []]
        self._media_at: list[list[int]] = [[], []]
        self._requests = Requests()
        self._sequence = 0
        self._all_released = False

    @property
    def waiting_media(self) -> tuple[int, int]:
        """How many media rows of each direction have not been released."""
        return len(self._media[0]), len(self._media[1])

    def add(self, direction: int, facts: Facts) -> None:
        self._all_released = False
        self._media[direction] += facts.media
        self._media_at[direction] += facts.media_at
        notable = facts.notable
        self._notable += zip(map(_known_at, notable), repeat(direction), count(self._sequence), notable)
        self._sequence += len(notable)

    def release(
        self, up_to: int | None, newest_us: int, unread: Unread | None = None, *, is_last: bool = False
    ) -> Release | None:
        """Release the facts known at packet `up_to` (None: all of them); None if there was nothing new.

        `unread`: facts from this packet or time on may still be missing. `newest_us`: the newest recorded time.
        `is_last`: no more commands will come.
        """
        if self._all_released:
            return None
        self._all_released = up_to is None
        self._notable.sort()
        waits_at = self._put_off_answers(newest_us, unread)
        if up_to is not None and waits_at is not None:  # otherwise rows would depend on where windows end
            up_to = min(up_to, waits_at - 1)
        cut = len(self._notable) if up_to is None else bisect_right(self._notable, (up_to, 2, 0))
        out: list[OrderedFact] = []
        done = [0, 0]  # media rows released of each direction; deleted at once at the end, not one by one
        media_next = self._next_media(done)
        for placed in self._notable[:cut]:
            at, direction, _, fact = placed
            if media_next <= at:
                # A fault precedes the media of its packet: it may say that a timestamp there is wrong. So does the
                # handshake. Messages keep the order in which their sender sent them.
                msg_no = fact.msg_no if isinstance(fact, (CommandFact, ControlFact, LagFact)) else None
                before = at - 1 if msg_no is not None or type(fact) in (FaultFact, HandshakeFact) else at
                if media_next <= before:
                    self._release_media(before, done, out)
                if msg_no is not None:
                    self._release_media_before(direction, at, msg_no, done, out)
                media_next = self._next_media(done)
            out.append(placed)
            if type(fact) is CommandFact and not is_last:
                self._requests.add(direction, fact)
        del self._notable[:cut]
        self._release_media(up_to, done, out)
        for direction, end in enumerate(done):
            if end:
                del self._media[direction][:end], self._media_at[direction][:end]
        if is_last:
            self._requests = Requests()
        return Release(up_to, out)

    def _put_off_answers(self, newest_us: int, unread: Unread | None) -> int | None:
        beyond: list[PlacedFact] = []
        if unread is not None:
            newest_us = min(newest_us, unread.ts)
            known = bisect_left(self._notable, (unread.at,))
            beyond, self._notable = self._notable[known:], self._notable[:known]
        waits_at = put_off_answers(self._notable, self._media_at, self._requests.is_unasked, newest_us, beyond)
        if beyond:
            self._notable = sorted(self._notable + beyond)
        return waits_at

    def _next_media(self, done: list[int]) -> int:
        """The packet that made the next media row known that is not released yet."""
        (first, second), (sent, received) = self._media_at, done
        one = first[sent] if sent < len(first) else _NEVER
        other = second[received] if received < len(second) else _NEVER
        return one if one < other else other

    def _release_media(self, up_to: int | None, done: list[int], out: list[OrderedFact]) -> None:
        for direction in (0, 1):
            known = self._media_at[direction]
            if done[direction] < len(known):
                end = len(known) if up_to is None else bisect_right(known, up_to, done[direction])
                self._release_rows(direction, end, done, out)

    def _release_media_before(
        self, direction: int, at: int, msg_no: int, done: list[int], out: list[OrderedFact]
    ) -> None:
        """Release the media rows of packet `at` that belong to messages of this direction before `msg_no`."""
        rows, known = self._media[direction], self._media_at[direction]
        end = done[direction]
        while end < len(rows) and known[end] == at and rows[end][MSG_NO] < msg_no:
            end += 1
        self._release_rows(direction, end, done, out)

    def _release_rows(self, direction: int, end: int, done: list[int], out: list[OrderedFact]) -> None:
        begin, done[direction] = done[direction], end
        if begin < end:
            known = self._media_at[direction][begin:end]
            out.append((known[0], direction, 0, MediaRows(self._media[direction][begin:end], known)))

    def state(self, redacted: Callable[[Notable], Notable]) -> OrderState:
        """`redacted` is applied to every fact: sessions have not seen these facts, so they may hold secrets."""
        return {
            "notable": [
                (at, direction, n, to_json(redacted(fact))) for at, direction, n, fact in sorted(self._notable)
            ],
            "media": to_json(self._media),
            "media_at": self._media_at,
            "requests": self._requests.state(),
            "sequence": self._sequence,
        }

    @classmethod
    def resume(cls, state: OrderState) -> FactOrder:
        own = cls()
        own._notable = [
            (at, direction, n, cast(Notable, from_json(fact))) for at, direction, n, fact in state["notable"]
        ]
        own._media = cast("list[list[Row]]", from_json(state["media"]))
        own._media_at = state["media_at"]
        own._requests = Requests.resume(state["requests"])
        own._sequence = state["sequence"]
        return own
