"""What a decoder reports about one direction of one connection, in the order of completion.

Offsets count bytes of the direction from its first one (the first byte of C0 or S0, or the first captured byte if the
capture starts later); missing bytes count too. They lead back to the packets. Events are NamedTuples: cheap to build,
and equal if all their fields are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .errors import Severity, ViolationCode

COMPLETE: Final = "complete"
TRUNCATED: Final = "truncated"
ABORTED: Final = "aborted"
GAP: Final = "gap"


class HandshakePart(NamedTuple):
    """C0/S0 (`part` 0, one byte), C1/S1 (1) or C2/S2 (2), 1536 bytes each."""

    start: int
    end: int
    part: int
    data: bytes


class MessageReceived(NamedTuple):
    """An RTMP message, complete or not; the fields are columns of the table `messages`."""

    start: int
    end: int
    fmt: int  # of its first chunk
    csid: int
    type_id: int
    stream_id: int
    timestamp: int  # ms, unwrapped to 64 bits
    timestamp_raw: int  # the 24-bit field in effect, as sent
    timestamp_delta: int | None  # what was added to the timestamp before; None for an absolute timestamp
    timestamp_rule: str
    ext_timestamp: int | None  # the 32-bit field in effect, if there is one
    length: int  # as announced
    chunks: int
    chunk_size: int  # in effect at its first chunk
    status: str  # COMPLETE, TRUNCATED, ABORTED, GAP
    missing_bytes: int
    inferred: bool  # decoded after a resynchronisation
    payload: bytes  # the bytes that arrived


class Violation(NamedTuple):
    """A broken rule. `message_start` is the start of the message it belongs to, if any."""

    code: ViolationCode
    severity: Severity
    offset: int
    detail: str
    message_start: int | None = None


class Skipped(NamedTuple):
    """Received bytes that no other event covers."""

    start: int
    end: int
    reason: str


class Synchronised(NamedTuple):
    """Decoding continues at `offset`, an inferred boundary that was verified; the chunk size is in the interval."""

    offset: int
    chunk_size_min: int
    chunk_size_max: int


Event = HandshakePart | MessageReceived | Violation | Skipped | Synchronised
