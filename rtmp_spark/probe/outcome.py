"""How a case can end: a verdict with a detail, or one of the exceptions that scripts raise."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Verdict(Enum):
    OK = "ok"
    NON_STRICT = "non-strict"  # a legal reaction, but not the recommended one
    INFORMATIONAL = "informational"  # any reaction is legal; the detail says which one came
    UNIMPLEMENTED = "unimplemented"  # the server refused or ignored an optional feature
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"  # a precondition failed, or the machine or server was too slow


PASSED = frozenset((Verdict.OK, Verdict.NON_STRICT, Verdict.INFORMATIONAL))


class Outcome(NamedTuple):
    verdict: Verdict
    detail: str = ""


Result = Outcome | None  # of a script; None is ok


def non_strict(detail: str) -> Outcome:
    return Outcome(Verdict.NON_STRICT, detail)


def informational(detail: str) -> Outcome:
    return Outcome(Verdict.INFORMATIONAL, detail)


def unimplemented(detail: str) -> Outcome:
    return Outcome(Verdict.UNIMPLEMENTED, detail)


class Failed(Exception):
    """The server reacted in a way that the case does not allow."""


class Closed(Failed):
    """The server closed the connection."""


class Garbled(Failed):
    """The server sent bytes that cannot be decoded. It fails every case, also as a precondition."""


class Inconclusive(Exception):
    """The case could not be decided."""


class Unreachable(Inconclusive):
    """The server accepts no connection any more."""


class Unanswered(Inconclusive):
    """A new connection was not answered in time."""


class Slow(Inconclusive):
    """The server answered, but too late to draw conclusions."""
