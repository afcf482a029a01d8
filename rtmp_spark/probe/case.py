"""A case: data (id, level, clause, what is expected and why) and a short script that runs against a live server.

A `Section` is in one file or a few in `cases/`. To add a case, write a coroutine there and decorate it:

    @case(12, "Chunk size 65536", MUST, "RTMP 1.0 5.4.1", "Valid sizes are 1 to 2147483647 (0x7FFFFFFF) inclusive")
    async def chunk_size_65536(p: Probe) -> Result:
        \"\"\"A command in chunks of up to 65536 bytes is answered.

        Encoders announce large chunks to save headers.\"\"\"

The first line of the docstring says what is expected, the rest why it matters. A script that returns None passes. It
returns another `Outcome` for a reaction that is legal but not the expected one, and raises `Failed` for a wrong one.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .outcome import Result


class Level(Enum):
    """How binding a requirement is."""

    MUST = "MUST"  # a sentence of the specification, quoted
    SHOULD = "SHOULD"  # a recommendation of the specification
    PRACTICE = "PRACTICE"  # what clients rely on; it never fails a run


MUST, SHOULD, PRACTICE = Level.MUST, Level.SHOULD, Level.PRACTICE


Script = Callable[[Any], Awaitable[Result]]  # takes a `Probe`, or a `ListeningPeer` for clients


@dataclass(frozen=True)
class Case:
    section: str
    number: int
    title: str
    level: Level
    clause: str
    requirement: str  # the sentence of the specification; empty if it is only practice
    expected: str
    rationale: str
    script: Script
    hostile: bool = False  # runs only with --hostile

    @property
    def id(self) -> str:
        return f"{self.section}/{self.number}"


class Section:
    """The cases of one file; calling it registers a case."""

    def __init__(self, name: str, about: str, hostile: bool = False) -> None:
        self.name = name
        self.about = about
        self.cases: list[Case] = []
        self._hostile = hostile

    def __call__(
        self,
        number: int,
        title: str,
        level: Level,
        clause: str,
        requirement: str = "",
        *,
        hostile: bool = False,
    ) -> Callable[[Script], Script]:
        def register(script: Script) -> Script:
            if any(case.number == number for case in self.cases):
                raise ValueError(f"{self.name}/{number} exists twice")
            expected, _, rest = (inspect.getdoc(script) or "").partition("\n")
            rationale = " ".join(rest.split())
            self.cases.append(
                Case(
                    section=self.name,
                    number=number,
                    title=title,
                    level=level,
                    clause=clause,
                    requirement=requirement,
                    expected=expected,
                    rationale=rationale,
                    script=script,
                    hostile=hostile or self._hostile,
                )
            )
            return script

        return register
