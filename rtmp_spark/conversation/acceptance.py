"""Decides whether what was decoded proves that a connection is RTMP."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from rtmp_spark.codec.handshake import PACKET_SIZE
from rtmp_spark.conversation.decoding.directions import Directions


def is_proven(directions: Directions, *, encrypted: bool) -> bool:
    """True after the first message of a synchronised direction, or after a handshake in which one side echoes the
    other. RTMPE (`encrypted`) needs C1 and S1 only."""
    if any(d is not None and d.messages_seen and d.synchronised for d in directions.decoders):
        return True
    parts = [directions.handshake_parts(number) for number in (0, 1)]
    if 1 not in parts[0] or 1 not in parts[1]:
        return False
    return encrypted or _echoes(parts[0], parts[1]) or _echoes(parts[1], parts[0])


def is_plausible(directions: Directions, bytes_in: Sequence[int], *, on_rtmp_port: bool) -> bool:
    """Whether a connection that ended unproven counts as RTMP: both sides sent a handshake, or one did on a port of
    RTMP."""
    parts = [directions.handshake_parts(number) for number in (0, 1)]
    versions = [p[0][:1] for p in parts if 0 in p]
    answered = len(versions) == 2 and all(1 in p for p in parts)
    long_enough = max(bytes_in) > PACKET_SIZE
    return bool(versions) and (answered or (on_rtmp_port and (long_enough or versions[0] == b"\x03")))


def _echoes(own: dict[int, bytes], peer: dict[int, bytes]) -> bool:
    return 2 in own and hmac.compare_digest(own[2][8:], peer[1][8:])
