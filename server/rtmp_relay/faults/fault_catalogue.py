"""The catalogue: every rule that a sender can break, and the fault that makes a client or the relay break it.

`factory(code, side)` returns a function that makes one fault per connection. A fault breaks its own rule and no other,
unless its description states otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

from rtmp_spark.codec.errors import UserError, ViolationCode

from .amf_faults import AMF_FAULTS
from .chunk_faults import CHUNK_FAULTS
from .control_faults import CONTROL_FAULTS
from .fault import NO_FAULT, Fault, FaultEntry
from .handshake_faults import HANDSHAKE_FAULTS
from .media_faults import MEDIA_FAULTS
from .session_faults import SESSION_FAULTS, AuthRounds, SecondPublisher
from .timestamp_faults import TIMESTAMP_FAULTS

__all__ = ["CATALOGUE", "SecondPublisher", "factory", "listing"]

_LAYERS = (
    HANDSHAKE_FAULTS,
    CHUNK_FAULTS,
    CONTROL_FAULTS,
    AMF_FAULTS,
    SESSION_FAULTS,
    MEDIA_FAULTS,
    TIMESTAMP_FAULTS,
)
CATALOGUE: dict[ViolationCode, FaultEntry] = {
    ViolationCode[code]: entry for layer in _LAYERS for code, entry in layer.items()
}
# One cause, two findings: the omitted extended timestamp also breaks the stream at 4 h 39 min.
CATALOGUE[ViolationCode.TIME_EXT_BREAK] = CATALOGUE[ViolationCode.CHUNK_EXT_TS_MISSING]


def factory(code: str | None, side: str) -> Callable[[], Fault]:
    """Return a function that makes a fault for each new connection of this side. Raises UserError."""
    if code is None:
        return lambda: NO_FAULT
    remedy = "`--fault help` lists the available faults."
    if code not in ViolationCode.__members__:
        raise UserError(f"Unknown rule {code}.", remedy)
    rule = ViolationCode[code]
    entry = CATALOGUE.get(rule)
    if entry is None:
        raise UserError(f"No sender can cause {code}.", remedy)
    if side not in entry.sides:
        command = "relay" if entry.sides == ("server",) else "publish"
        raise UserError(f"{code} is a fault of the other side.", f"Use `rtmp-spark {command} --fault {code}`.")
    return AuthRounds() if rule is ViolationCode.CMD_AUTH_ROUND else entry.make


def listing(side: str) -> str:
    """Return the text of `--fault help`: the faults of this side, then those of the other."""
    width = max(len(code.value) for code in CATALOGUE)
    lines = {code: f"{code.value:<{width}}  {entry.what}" for code, entry in CATALOGUE.items()}
    own = [line for code, line in lines.items() if side in CATALOGUE[code].sides]
    other = [line for code, line in lines.items() if side not in CATALOGUE[code].sides]
    command = "relay" if side == "client" else "publish"
    return "\n".join([*own, *(["", f"with `rtmp-spark {command} --fault`:", *other] if other else [])])
