"""TIME_JUMP and TIME_WRAP: two consecutive frames of a track whose timestamps differ by more than usual."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rtmp_spark.forensics.streams.track import Track
from rtmp_spark.forensics.thresholds import JUMP_KNOWN_STEPS, JUMP_MS, JUMP_STEPS, WRAP_STEP_MS


class Jump(NamedTuple):
    """A timestamp jump of `step_ms` within `arrival_ms`, and the usual frame interval before it."""

    step_ms: int
    arrival_ms: int
    usual_ms: float


class Boundary(NamedTuple):
    """A timestamp at which a field of the protocol or of an implementation overflows."""

    bits: int
    text: str


_BOUNDARIES = (
    Boundary(24, "2^24 ms (4 h 39 min)"),
    Boundary(31, "2^31 ms (24.8 days)"),
    Boundary(32, "2^32 ms (49.7 days)"),
)


def jump(track: Track, step_ms: int, ts: int) -> Jump | None:
    """The jump that a step of the timestamps to a frame that arrived at `ts` is; None if it is not one."""
    usual = track.usual_step_ms()
    arrival_ms = (ts - track.ts) // 1000
    if usual is None or track.steps.total < JUMP_KNOWN_STEPS:
        return None
    if step_ms - arrival_ms <= JUMP_MS or step_ms <= JUMP_STEPS * usual:
        return None
    if track.is_variable and not track.pace.is_ahead(ts, (track.dts or 0) + step_ms, JUMP_MS):
        return None  # an encoder that sends a frame when it knows the next one is late by one interval
    return Jump(step_ms, arrival_ms, usual)


def crossed_boundaries(before: int, dts: int) -> Iterator[Boundary]:
    """The field boundaries between two consecutive timestamps of a track."""
    if dts - before > WRAP_STEP_MS:
        return
    for boundary in _BOUNDARIES:
        bits = boundary.bits
        if bits == 24:  # only the first multiple: above it the 24-bit field stays at 0xFFFFFF
            crossed = before >> bits == 0 and dts >> bits == 1
        elif bits == 31:  # from below only: the even multiples are those of 2^32
            crossed = before >> bits != dts >> bits and dts >> bits & 1 == 1
        else:
            crossed = before >> bits != dts >> bits
        if crossed:
            yield boundary
