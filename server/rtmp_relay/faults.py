"""The catalogue: every finding that a sender can cause, and how to make a client or the relay cause it.

`factory(code, side)` gives what makes one fault per connection. A fault is meant to break its one rule and no
other; where that cannot be (an early end, a refusal), its line says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rtmp_spark.codec.errors import UserError, ViolationCode

from .fault import NO_FAULT, Fault
from .faults_content import CONTENT_FAULTS, AuthRounds, SecondPublisher
from .faults_wire import WIRE_FAULTS

__all__ = ["CATALOGUE", "Recipe", "SecondPublisher", "factory", "listing"]


class Recipe(NamedTuple):
    code: ViolationCode
    sides: tuple[str, ...]  # client, server
    what: str
    make: Callable[[], Fault]


CATALOGUE: dict[ViolationCode, Recipe] = {
    ViolationCode[code]: Recipe(ViolationCode[code], sides, what, make)
    for code, (sides, what, make) in {**WIRE_FAULTS, **CONTENT_FAULTS}.items()
}
# One cause, two findings: the omitted field is also what will break at 4 h 39 min.
CATALOGUE[ViolationCode.TIME_EXT_BREAK] = CATALOGUE[ViolationCode.CHUNK_EXT_TS_MISSING]._replace(
    code=ViolationCode.TIME_EXT_BREAK
)


def factory(code: str | None, side: str) -> Callable[[], Fault]:
    """What makes a fault for each new connection of this side; UserError when there is none."""
    if code is None:
        return lambda: NO_FAULT
    try:
        recipe = CATALOGUE[ViolationCode[code]]
    except KeyError:
        known = code in ViolationCode.__members__
        text = f"No sender can cause {code}." if known else f"{code} is no finding."
        raise UserError(text, "`--fault help` lists those that can be caused.") from None
    if side not in recipe.sides:
        command = "relay" if recipe.sides == ("server",) else "publish"
        raise UserError(f"{code} is a fault of the other side.", f"Use `rtmp-spark {command} --fault {code}`.")
    return AuthRounds() if recipe.code is ViolationCode.CMD_AUTH_ROUND else recipe.make


def listing(side: str) -> str:
    """What a person reads after `--fault help`."""
    width = max(len(code.value) for code in CATALOGUE)
    own = [r for r in CATALOGUE.values() if side in r.sides]
    other = [r for r in CATALOGUE.values() if side not in r.sides]
    command = "relay" if side == "client" else "publish"
    lines = [f"{recipe.code.value:<{width}}  {recipe.what}" for recipe in own]
    if other:
        lines += ["", f"with `rtmp-spark {command} --fault`:"]
        lines += [f"{recipe.code.value:<{width}}  {recipe.what}" for recipe in other]
    return "\n".join(lines)
