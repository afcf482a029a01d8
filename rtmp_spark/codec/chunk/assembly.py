"""Payloads of unfinished messages, and the messages that end: complete, truncated, aborted or damaged by a gap."""

from __future__ import annotations

from typing import Final

from ..errors import ViolationCode
from ..events import ABORTED, COMPLETE, GAP, TRUNCATED, Event, MessageReceived, Skipped
from ..message import ABORT, CONTROL_TYPES, SET_CHUNK_SIZE
from .control import check_control
from .header import HEADER_BYTES
from .size import resize
from .state import ChunkState
from .stream import ChunkStream

_new: Final = tuple.__new__


def open_partial(state: ChunkState, cs: ChunkStream, chunk: bytes, out: list[Event]) -> None:
    """Begin an unfinished message, whose header is in `cs`, with the payload of its first chunk."""
    cs.active = True
    if cs.csid >= 64:
        state.high_active[cs.csid] = cs
    cs.got = len(chunk)
    cs.chunks = 1
    state.announced += cs.length
    if state.announced > state.limits.partial_bytes and not state.limit_reported:
        state.limit_reported = True
        detail = f"unfinished messages announce more than {state.limits.partial_bytes} bytes"
        state.flag(out, ViolationCode.CHUNK_LIMIT, cs.start, detail, cs.start)
    store(state, cs, chunk)


def store(state: ChunkState, cs: ChunkStream, chunk: bytes | bytearray) -> None:
    """Keep the payload of a chunk, unless the unfinished messages exceed their limit."""
    if not cs.dropping:
        if state.held + len(chunk) <= state.limits.partial_bytes:
            cs.payload += chunk
            state.held += len(chunk)
            return
        cs.dropping = True  # CHUNK_LIMIT was reported when the message began


def finish(state: ChunkState, cs: ChunkStream, stop: int, out: list[Event]) -> None:
    """Report the message of `cs`, whose last chunk ends at stream offset `stop`."""
    close_partial(state, cs, COMPLETE if len(cs.payload) == cs.length else TRUNCATED, stop, out)


def close_partial(
    state: ChunkState, cs: ChunkStream, status: str, stop: int, out: list[Event], dropped: int = 0
) -> None:
    """Report what arrived of an unfinished message and forget it. `dropped` bytes arrived but are not in its payload.

    If the message relies on a header from before a loss that nothing confirmed, its bytes are reported as skipped."""
    payload = bytes(cs.payload)
    state.held -= len(payload)
    state.announced -= cs.length
    cs.active = cs.dropping = False
    state.high_active.pop(cs.csid, None)
    cs.got = 0
    cs.payload = bytearray()
    if cs.stale and status != COMPLETE:
        arrived = cs.start + HEADER_BYTES[cs.fmt] + cs.chunks + len(payload)
        out.append(Skipped(cs.start, min(stop, arrived), "a message whose length may have changed during a loss"))
        return
    emit(state, cs, stop, status, cs.length - len(payload) - dropped, payload, out)


def emit(
    state: ChunkState, cs: ChunkStream, stop: int, status: str, missing: int, payload: bytes, out: list[Event]
) -> None:
    """Report the message of `cs` and apply it if it is Set Chunk Size or Abort."""
    type_id = cs.type_id
    if payload:
        cs.first = payload[0]
    if type_id == ABORT and status == COMPLETE:
        _abort(state, payload, cs.start, out)
    event = _new(
        MessageReceived,
        (
            cs.start, stop, cs.fmt, cs.csid, type_id, cs.stream_id, cs.timestamp, cs.field, cs.used_delta, cs.rule,
            cs.ext, cs.length, cs.chunks, cs.chunk_size, status, missing, state.inferred, payload,
        ),
    )  # fmt: skip
    out.append(event)
    if type_id in CONTROL_TYPES and status == COMPLETE:
        check_control(event, out)
        if type_id == SET_CHUNK_SIZE:
            resize(state, payload)


def interrupt(state: ChunkState, cs: ChunkStream, offset: int, out: list[Event]) -> None:
    """Close the unfinished message of `cs` because another one starts on its csid at `offset`."""
    if state.inferred:  # a wrong inference is more likely than a wrong sender
        close_partial(state, cs, GAP, offset, out)
        return
    state.flag(
        out,
        ViolationCode.CHUNK_INTERRUPTED,
        offset,
        f"a new message starts on csid {cs.csid} while {cs.length - cs.got} bytes of the previous one are missing",
        cs.start,
    )
    close_partial(state, cs, TRUNCATED, offset, out)


def _abort(state: ChunkState, payload: bytes, offset: int, out: list[Event]) -> None:
    if len(payload) != 4:
        return
    csid = int.from_bytes(payload, "big")
    cs = state.streams.get(csid)
    if cs is None or not cs.active:
        if not state.inferred:  # else the message may have started before the first decoded byte
            detail = f"Abort for csid {csid}, which has no unfinished message"
            state.flag(out, ViolationCode.CTRL_ABORT_IDLE, offset, detail, offset)
        return
    detail = f"Abort drops a message with {cs.length - cs.got} bytes missing"
    state.flag(out, ViolationCode.MSG_ABORTED, offset, detail, cs.start)
    close_partial(state, cs, ABORTED, offset, out)
