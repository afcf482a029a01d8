"""Answers that were recorded before what they answer.

A tap for each direction with clocks of their own, or a network card with several queues, writes an answer down before
its question. Who reads in the order of the recording then finds a command without an answer, and media that nobody
asked for. Here such an answer, and all that its sender said after it, is put off until the question. Nothing else
moves, and no recorded time is changed: what has no question nearby stays where it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from rtmp_spark.capture.facts import NEARBY_US, CommandFact, Notable

Placed = tuple[int, int, int, Notable]  # where it became known, direction, sequence, fact
_STREAM_QUESTIONS = frozenset({"publish", "play", "play2"})
_ANSWERS = frozenset({"_result", "_error", "onStatus"})


def put_off_answers(
    notable: list[Placed], media_at: list[list[int]], unasked: Callable[[int, CommandFact], bool], newest_us: int
) -> int | None:
    """`notable` and `media_at` of both directions in their order; `unasked` knows the questions before these: what
    was ever asked before is answered, however often.

    Where the first answer stands whose question may still come, by the newest time that was recorded.
    """
    questions: dict[tuple[int, bool, float], tuple[int, int]] = {}  # the first of each
    answers: list[tuple[int, int, CommandFact]] = []  # without a question so far
    for at, number, _, fact in notable:
        if type(fact) is not CommandFact:
            continue
        if fact.name not in _ANSWERS:
            for about in questions_of(fact):
                questions.setdefault((number, *about), (at, fact.ts))
        elif (1 - number, *answered(fact)) not in questions:
            answers.append((at, number, fact))
    late: dict[int, dict[int, int]] = {}  # direction, where the answer is: where it belongs
    waits_at: int | None = None
    for at, number, fact in answers:
        asked_at, asked_ts = questions.get((1 - number, *answered(fact)), (-1, 0))
        if asked_at == at:
            continue
        if asked_at > at and asked_ts - fact.ts <= NEARBY_US:
            if unasked(number, fact):
                belongs = late.setdefault(number, {})
                belongs[at] = max(asked_at + 1, belongs.get(at, 0))
        elif waits_at is None and newest_us <= fact.ts + NEARBY_US and unasked(number, fact):
            waits_at = at
    for number, belongs in late.items():
        _put_off(notable, media_at[number], number, belongs)
    if late:
        notable.sort()
    return waits_at


def _put_off(notable: list[Placed], media_at: list[int], number: int, belongs: dict[int, int]) -> None:
    until = 0
    for index, (at, own, sequence, fact) in enumerate(notable):
        if own == number:
            until = max(until, belongs.get(at, 0))
            if at < until:
                notable[index] = until, own, sequence, fact
    places = sorted(belongs)
    until = passed = 0
    for index in range(bisect_left(media_at, places[0]), len(media_at)):
        while passed < len(places) and places[passed] <= media_at[index]:
            until = max(until, belongs[places[passed]])
            passed += 1
        media_at[index] = max(media_at[index], until)


def questions_of(fact: CommandFact) -> tuple[tuple[bool, float], ...]:
    """Whether it is about a stream, and its number or else that of the transaction. Some servers answer what was asked
    about any stream on stream 0."""
    if fact.name in _STREAM_QUESTIONS:
        return (True, fact.stream_id), (True, 0)
    return ((False, fact.transaction_id),) if fact.transaction_id else ()


def answered(fact: CommandFact) -> tuple[bool, float]:
    return (True, fact.stream_id) if fact.name == "onStatus" else (False, fact.transaction_id or 0.0)
