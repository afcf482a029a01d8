"""Arithmetic of TCP sequence numbers, which wrap at 2^32 (RFC 9293 3.4)."""

from __future__ import annotations

from typing import Final

from rtmp_spark.capture.packet_block import Ints

MASK: Final = 0xFFFFFFFF
HALF: Final = 1 << 31


def distance(seq: int, reference: int) -> int:
    """How far `seq` lies after `reference`, as a signed number."""
    return ((seq - reference + HALF) & MASK) - HALF


def signed(difference: Ints) -> Ints:
    """Differences of sequence numbers as signed numbers."""
    return ((difference + HALF) & MASK) - HALF
