"""What a decoder reports: one direction of one connection, in the order of completion.

Offsets count bytes of the direction from its first one (the first byte of C0 or S0, or the first byte seen
when the recording starts later); lost bytes count too. They are the thread back to the packets. Events are
plain tuples with names: cheap to make, equal when they say the same.
"""

from __future__ import annotations

from typing import NamedTuple

from .errors import Severity, ViolationCode

COMPLETE, TRUNCATED, ABORTED, GAP = "complete", "truncated", "aborted", "gap"


class HandshakePart(NamedTuple):
    """C0/S0 (`part` 0, one byte), C1/S1 (1) or C2/S2 (2), 1536 bytes each."""

    start: int
    end: int
    part: int
    data: bytes


class MessageReceived(NamedTuple):
    """An RTMP message, whole or not; the fields are the columns of the table `messages`."""

    start: int
    end: int
    fmt: int  # of its first chunk
    csid: int
    type_id: int
    stream_id: int
    timestamp: int  # ms, unwrapped to 64 bits
    timestamp_raw: int  # the 24-bit field in effect, as sent
    timestamp_delta: int | None  # what was added; None for an absolute time
    timestamp_rule: str
    ext_timestamp: int | None  # the 32-bit field in effect, where there is one
    length: int  # as announced
    chunks: int
    chunk_size: int  # in effect at its first chunk
    status: str  # COMPLETE, TRUNCATED, ABORTED, GAP
    missing_bytes: int
    inferred: bool  # decoded after a resynchronisation
    payload: bytes  # what arrived of it


class Violation(NamedTuple):
    """A rule that was broken. `message_start` is the start of the message it belongs to, if any."""

    code: ViolationCode
    severity: Severity
    offset: int
    detail: str
    message_start: int | None = None


class Skipped(NamedTuple):
    """Bytes that were given to us and that no other event accounts for."""

    start: int
    end: int
    reason: str


class Synchronised(NamedTuple):
    """Decoding starts at `offset` on a guess that verified; the true chunk size lies in the interval."""

    offset: int
    chunk_size_min: int
    chunk_size_max: int


Event = HandshakePart | MessageReceived | Violation | Skipped | Synchronised
