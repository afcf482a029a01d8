"""Answers that were recorded before the request they answer.

If each direction is captured by its own tap with its own clock, or by a network card with several queues, an answer may
be recorded before its request. Read in the order of the capture, this looks like a request without an answer and media
without a request. `put_off_answers` moves such an answer, and everything its sender sent after it, to a place
after the request. Nothing else moves and no recorded time changes. An answer without a request nearby is not moved.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.codec.limits import MAX_KNOWN_REQUESTS, NEARBY_US
from rtmp_spark.conversation.command_arguments import status
from rtmp_spark.conversation.facts import CommandFact, Notable

_STREAM_REQUESTS: Final = frozenset({"publish", "play", "play2"})
_ANSWERS: Final = frozenset({"_result", "_error", "onStatus"})
_NO_REQUESTS: Final = _ANSWERS | {"onFCPublish", "onFCUnpublish", "onFCSubscribe"}
_STARTS: Final = frozenset({"NetStream.Play.Start", "NetStream.Publish.Start"})
_NO_REQUEST: Final = (-1, 0, 0, None)


# A fact and its place in the order of both directions: (packet, direction, sequence, fact). The sequence orders the
# facts of one packet.
PlacedFact = tuple[int, int, int, Notable]

# What a request is about and its answer refers to: the direction of the request, whether the number is a stream id (or
# else a transaction id), and the number.
Subject = tuple[int, bool, float]


class Requests:
    """The subjects of all requests of both directions so far."""

    __slots__ = ("_subjects",)

    def __init__(self) -> None:
        self._subjects: set[Subject] = set()

    def add(self, direction: int, fact: CommandFact) -> None:
        if fact.name in _NO_REQUESTS:
            return
        for subject in subjects_of(direction, fact):
            if len(self._subjects) < MAX_KNOWN_REQUESTS:
                self._subjects.add(subject)

    def is_unasked(self, direction: int, answer: CommandFact) -> bool:
        """True if no request so far has this answer."""
        if len(self._subjects) >= MAX_KNOWN_REQUESTS or subject_of_answer(direction, answer) in self._subjects:
            return False
        given = status(answer.args)
        return answer.name != "onStatus" or given.level == "error" or given.code in _STARTS

    def state(self) -> list[SavedFields]:
        return [*sorted(self._subjects)]

    @classmethod
    def resume(cls, state: list[SavedFields]) -> Requests:
        own = cls()
        own._subjects = {(direction, is_stream, number) for direction, is_stream, number in state}
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
    requests: dict[Subject, PlacedFact] = {}  # the first of each
    answers: list[PlacedFact] = []  # without a request so far
    for placed in notable:
        fact = placed[3]
        if type(fact) is not CommandFact:
            continue
        direction = placed[1]
        if fact.name not in _ANSWERS:
            for subject in subjects_of(direction, fact):
                requests.setdefault(subject, placed)
        elif subject_of_answer(direction, fact) not in requests:
            answers.append(placed)
    if not answers:
        return None
    expected = {  # the earliest time of answers to the requests in `beyond`
        subject: fact.ts - NEARBY_US
        for _, direction, _, fact in reversed(beyond)
        if type(fact) is CommandFact and fact.name not in _ANSWERS
        for subject in subjects_of(direction, fact)
    }
    late: dict[int, dict[int, int]] = {}  # direction -> {place of the answer: where it belongs}
    waits_at: int | None = None
    for at, direction, _, fact in answers:
        assert type(fact) is CommandFact
        subject = subject_of_answer(direction, fact)
        asked_at, _, _, request = requests.get(subject, _NO_REQUEST)
        if asked_at == at:
            continue
        if request is not None and asked_at > at and request.ts - fact.ts <= NEARBY_US:
            if is_unasked(direction, fact):
                belongs = late.setdefault(direction, {})
                belongs[at] = max(asked_at + 1, belongs.get(at, 0))
        elif waits_at is None and is_unasked(direction, fact):
            first_answer = expected.get(subject, newest_us - NEARBY_US)
            if fact.ts >= min(first_answer, newest_us - NEARBY_US):
                waits_at = at
    for direction, belongs in late.items():
        _put_off(notable, media_at[direction], direction, belongs)
    if late:
        notable.sort()
    return waits_at


def _put_off(notable: list[PlacedFact], media_at: list[int], direction: int, belongs: dict[int, int]) -> None:
    until = 0
    for index, (at, sender, sequence, fact) in enumerate(notable):
        if sender == direction:
            until = max(until, belongs.get(at, 0))
            if at < until:
                notable[index] = until, sender, sequence, fact._replace(at=until)
    places = sorted(belongs)
    until = passed = 0
    for index in range(bisect_left(media_at, places[0]), len(media_at)):
        while passed < len(places) and places[passed] <= media_at[index]:
            until = max(until, belongs[places[passed]])
            passed += 1
        media_at[index] = max(media_at[index], until)


def subjects_of(direction: int, request: CommandFact) -> tuple[Subject, ...]:
    """Subjects that an answer to this command may refer to. Some servers answer on stream 0 what was asked about
    another stream."""
    if request.name in _STREAM_REQUESTS:
        return (direction, True, request.stream_id), (direction, True, 0)
    return ((direction, False, request.transaction_id),) if request.transaction_id else ()


def subject_of_answer(direction: int, answer: CommandFact) -> Subject:
    if answer.name == "onStatus":
        return 1 - direction, True, answer.stream_id
    return 1 - direction, False, answer.transaction_id or 0.0
