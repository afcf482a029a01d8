"""Answers that were recorded before the request they answer.

If each direction is captured by its own tap with its own clock, or by a network card with several queues, an answer may
be recorded before its request. Read in the order of the capture, this looks like a request without an answer and media
without a request. `put_off_answers` moves such an answer, and everything its sender sent after it, to a place
after the request. Nothing else moves and no recorded time changes. An answer without a request nearby is not moved.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rtmp_spark.codec.limits import MAX_KNOWN_REQUESTS, NEARBY_US
from rtmp_spark.conversation.command_arguments import status
from rtmp_spark.conversation.facts import CommandFact, Notable

_STREAM_REQUESTS = frozenset({"publish", "play", "play2"})
_ANSWERS = frozenset({"_result", "_error", "onStatus"})
_NO_REQUESTS = _ANSWERS | {"onFCPublish", "onFCUnpublish", "onFCSubscribe"}
_STARTS = frozenset({"NetStream.Play.Start", "NetStream.Publish.Start"})


class PlacedFact(NamedTuple):
    """A fact and its place in the order of both directions. `sequence` orders the facts of one packet."""

    at: int
    direction: int
    sequence: int
    fact: Notable


class Subject(NamedTuple):
    """What a request is about and its answer refers to: a stream id, or else a transaction id."""

    is_stream: bool
    number: float


class _Request(NamedTuple):
    at: int
    ts: int


class Requests:
    """The subjects of all requests of both directions so far."""

    __slots__ = ("_subjects",)

    def __init__(self) -> None:
        self._subjects: set[tuple[int, Subject]] = set()  # direction of the request, its subject

    def add(self, direction: int, fact: CommandFact) -> None:
        if fact.name in _NO_REQUESTS:
            return
        for subject in subjects_of(fact):
            if len(self._subjects) < MAX_KNOWN_REQUESTS:
                self._subjects.add((direction, subject))

    def is_unasked(self, direction: int, answer: CommandFact) -> bool:
        """True if no request so far has this answer."""
        if len(self._subjects) >= MAX_KNOWN_REQUESTS or (1 - direction, subject_of_answer(answer)) in self._subjects:
            return False
        given = status(answer.args)
        return answer.name != "onStatus" or given.level == "error" or given.code in _STARTS

    def state(self) -> list[tuple[int, bool, float]]:
        return sorted((direction, *subject) for direction, subject in self._subjects)

    @classmethod
    def resume(cls, state: list[tuple[int, bool, float]]) -> Requests:
        own = cls()
        own._subjects = {(direction, Subject(is_stream, number)) for direction, is_stream, number in state}
        return own


def put_off_answers(
    notable: list[PlacedFact],
    media_at: list[list[int]],
    is_unasked: Callable[[int, CommandFact], bool],
    newest_us: int,
    beyond: Sequence[PlacedFact] = (),
) -> int | None:
    """Move answers, and what their sender sent after them, to after their requests.

    Args:
        notable: facts of both directions, sorted; changed in place.
        media_at: the packet of each media row, per direction; changed in place.
        is_unasked: whether no earlier request, before `notable`, has this answer. A request may be answered repeatedly.
        newest_us: the newest recorded time.
        beyond: facts after bytes that are not decoded yet. No answer is moved to these, but it waits for them.

    Returns:
        The place of the first answer whose request may still arrive, or None.
    """
    requests: dict[tuple[int, Subject], _Request] = {}  # the first of each
    answers: list[PlacedFact] = []  # without a request so far
    expected = {  # the earliest time of answers to the requests in `beyond`
        (placed.direction, subject): placed.fact.ts - NEARBY_US
        for placed in reversed(beyond)
        if type(placed.fact) is CommandFact and placed.fact.name not in _ANSWERS
        for subject in subjects_of(placed.fact)
    }
    for placed in notable:
        fact, direction = placed.fact, placed.direction
        if type(fact) is not CommandFact:
            continue
        if fact.name not in _ANSWERS:
            for subject in subjects_of(fact):
                requests.setdefault((direction, subject), _Request(placed.at, fact.ts))
        elif (1 - direction, subject_of_answer(fact)) not in requests:
            answers.append(placed)
    late: dict[int, dict[int, int]] = {}  # direction -> {place of the answer: where it belongs}
    waits_at: int | None = None
    for at, direction, _, fact in answers:
        assert type(fact) is CommandFact
        request = requests.get((1 - direction, subject_of_answer(fact)))
        if request is not None and request.at == at:
            continue
        if request is not None and request.at > at and request.ts - fact.ts <= NEARBY_US:
            if is_unasked(direction, fact):
                belongs = late.setdefault(direction, {})
                belongs[at] = max(request.at + 1, belongs.get(at, 0))
        elif waits_at is None and is_unasked(direction, fact):
            first_answer = expected.get((1 - direction, subject_of_answer(fact)), newest_us - NEARBY_US)
            if fact.ts >= min(first_answer, newest_us - NEARBY_US):
                waits_at = at
    for direction, belongs in late.items():
        _put_off(notable, media_at[direction], direction, belongs)
    if late:
        notable.sort()
    return waits_at


def _put_off(notable: list[PlacedFact], media_at: list[int], direction: int, belongs: dict[int, int]) -> None:
    until = 0
    for index, placed in enumerate(notable):
        if placed.direction == direction:
            until = max(until, belongs.get(placed.at, 0))
            if placed.at < until:
                notable[index] = placed._replace(at=until)
    places = sorted(belongs)
    until = passed = 0
    for index in range(bisect_left(media_at, places[0]), len(media_at)):
        while passed < len(places) and places[passed] <= media_at[index]:
            until = max(until, belongs[places[passed]])
            passed += 1
        media_at[index] = max(media_at[index], until)


def subjects_of(request: CommandFact) -> tuple[Subject, ...]:
    """Subjects that an answer to this command may refer to. Some servers answer on stream 0 what was asked about
    another stream."""
    if request.name in _STREAM_REQUESTS:
        return Subject(True, request.stream_id), Subject(True, 0)
    return (Subject(False, request.transaction_id),) if request.transaction_id else ()


def subject_of_answer(answer: CommandFact) -> Subject:
    if answer.name == "onStatus":
        return Subject(True, answer.stream_id)
    return Subject(False, answer.transaction_id or 0.0)
