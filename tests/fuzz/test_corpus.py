"""Replays the corpus of every fuzz target, then mutations of it that are the same in every run."""

from __future__ import annotations

import random

import pytest
from fuzz import corpus
from fuzz.targets import TARGETS

_NUMBERS = (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\x80\x00", b"\x00\x01")


def mutated(data: bytes, others: list[bytes], choose: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(choose.choice((1, 1, 2, 5))):
        at = choose.randrange(len(changed) + 1)
        kind = choose.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] = choose.randrange(256)
        elif kind == 1:
            del changed[at : at + choose.randrange(1, 40)]
        elif kind == 2:
            changed[at:at] = choose.randbytes(choose.randrange(1, 20))
        elif kind == 3:
            number = choose.choice(_NUMBERS)
            changed[at : at + len(number)] = number
        else:
            other = choose.choice(others)
            begin = choose.randrange(len(other) + 1)
            changed[at:] = other[begin:]
    return bytes(changed)


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_and_mutations_of_it(name: str) -> None:
    target = TARGETS[name]
    seeds = [*target.seeds(), *corpus.saved(name)]
    assert seeds
    for data in seeds:
        target.check(data)
    choose = random.Random(name)
    for _ in range(target.mutations):
        target.check(mutated(choose.choice(seeds), seeds, choose))
