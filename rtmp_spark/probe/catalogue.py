"""Every section and case, and the choice of cases by `--only` and `--skip`."""

from __future__ import annotations

from collections.abc import Sequence

from rtmp_spark.codec.errors import UserError

from .case import Case, Section
from .cases import (
    amf,
    chunk_headers,
    chunks,
    commands,
    control,
    enhanced,
    handshake,
    lifecycle,
    media,
    playing,
    publishing,
    robustness,
)

_FILES = (
    handshake, chunks, chunk_headers, control, amf, commands, publishing, playing, enhanced, media, lifecycle,
    robustness,
)  # fmt: skip
SECTIONS: tuple[Section, ...] = tuple(dict.fromkeys(file.case for file in _FILES))  # a section may have several files
CASES = tuple(case for section in SECTIONS for case in sorted(section.cases, key=lambda one: one.number))


def choose(only: Sequence[str] = (), skip: Sequence[str] = (), hostile: bool = False) -> list[Case]:
    """The cases to run. A choice is a section or a case id. A hostile case runs only if asked for. Raises UserError."""
    known = {section.name for section in SECTIONS} | {case.id for case in CASES}
    for choice in (*only, *skip):
        if choice not in known:
            raise UserError(f"Unknown case {choice}.", "`rtmp-spark probe --list` lists the cases.")

    def named(case: Case, choices: Sequence[str]) -> bool:
        return case.id in choices or case.section in choices

    return [
        case
        for case in CASES
        if (not only or named(case, only)) and not named(case, skip) and (hostile or not case.hostile)
    ]
