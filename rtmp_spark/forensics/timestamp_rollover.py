"""TIME_EXT_BREAK: a sender that will lose its peer when its times pass 16,777,215 ms.

Seen where the extended timestamp is left out of continuations already, predicted where the software is known for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rtmp_spark.capture.findings import SENDER, Finding
from rtmp_spark.codec.errors import Severity, ViolationCode

# Software whose chunk writer leaves the field out, and the first version that does not (None: not known to be mended).
LEAVES_OUT: dict[str, tuple[int, ...] | None] = {"OBS": (30, 1)}


def extension_break(direction: str, place: Sequence[int | None], software: str | None = None) -> list[Finding]:
    """`place` is where the field was left out, or where the software that will leave it out was named: message,
    packet, time."""
    msg_no, frame, ts = place
    if software is None:
        return [
            Finding(
                ViolationCode.TIME_EXT_BREAK,
                "continuations without the extended timestamp: peers that expect it lose this sender at 4 h 39 min",
                None, SENDER[direction], direction, None, msg_no, frame, ts,
            )
        ]  # fmt: skip
    if not predicted(software):
        return []
    return [
        Finding(
            ViolationCode.TIME_EXT_BREAK,
            f"{software} leaves the extended timestamp out of continuations: peers may lose it at 4 h 39 min",
            Severity.INFO, SENDER[direction], direction, None, msg_no, frame, ts,
        )
    ]  # fmt: skip


def predicted(software: str) -> bool:
    name, _, version = software.partition("/")
    if name not in LEAVES_OUT or not version:
        return False
    mended = LEAVES_OUT[name]
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    return mended is None or numbers < mended
