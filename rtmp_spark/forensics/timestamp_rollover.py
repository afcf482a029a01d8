"""TIME_EXT_BREAK: a sender that will lose its peer when its timestamps pass 16,777,215 ms.

The finding is a warning if the sender already omits the extended timestamp from continuation chunks, and info if its
software version is known to do so.
"""

from __future__ import annotations

from collections.abc import Sequence

from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.conversation.facts import SENDER
from rtmp_spark.forensics.findings import Finding

# Software that omits the field, and the first version that does not (None: no fixed version is known).
FIXED_IN: dict[str, tuple[int, ...] | None] = {"OBS": (30, 1)}


def extension_break(direction: str, place: Sequence[int | None], software: str | None = None) -> list[Finding]:
    """Return the finding for a sender that omitted the field, or, with `software`, for one that will omit it.

    Args:
        direction: Direction of the sender.
        place: Message, packet and time at which the field was omitted, or at which the software was named.
        software: Name and version; None if the field was seen omitted.
    """
    msg_no, frame, ts = place
    if software is None:
        return [
            Finding(
                ViolationCode.TIME_EXT_BREAK,
                "continuation chunks without the extended timestamp: peers that expect it fail at 4 h 39 min",
                None, SENDER[direction], direction, None, msg_no, frame, ts,
            )
        ]  # fmt: skip
    if not omits_extended_timestamp(software):
        return []
    return [
        Finding(
            ViolationCode.TIME_EXT_BREAK,
            f"{software} omits the extended timestamp from continuation chunks: peers may fail at 4 h 39 min",
            Severity.INFO, SENDER[direction], direction, None, msg_no, frame, ts,
        )
    ]  # fmt: skip


def omits_extended_timestamp(software: str) -> bool:
    """True if this software, given as name/version, is known to omit the field."""
    name, _, version = software.partition("/")
    if name not in FIXED_IN or not version:
        return False
    fixed_in = FIXED_IN[name]
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    return fixed_in is None or numbers < fixed_in
