"""RtmpDecoder: one direction of one connection, bytes in, events out.

The decoder splits off the handshake, passes the rest to the dechunker, and finds the next message after a loss. It
never replies, never raises on peer bytes, and has no clock. Its whole state is a value: `state()` returns versioned
bytes, and `resume()` continues from them in any other process. phase.py has its phases and all transitions.
"""

from __future__ import annotations

from typing import Any, Final

from .boundary_search import BoundarySearch
from .chunk.assembly import close_partial
from .chunk.bridge import REFUTED, Bridge, bridge_over, cross, unfinished
from .chunk.cursor import Cursor
from .chunk.dechunker import Dechunker
from .errors import ViolationCode
from .events import GAP, TRUNCATED, Event, HandshakePart, Skipped, Synchronised, Violation
from .handshake import FIRST_TEXT_VERSION, PACKET_SIZE, PLAIN_VERSION, RTMPE_VERSIONS
from .limits import DEFAULT_LIMITS, Limits
from .message import DEFAULT_CHUNK_SIZE, MAX_CHUNK_SIZE, TYPE_NAMES
from .phase import BRIDGE, CHUNKS, HANDSHAKE, HANDSHAKE_PHASES, MIDSTREAM, OPAQUE, PART1, PART2, SEARCH, Phase
from .saved_state import STATE_VERSION, StateError, pack, unpack

__all__ = ["STATE_VERSION", "RtmpDecoder", "StateError"]

_new: Final = tuple.__new__  # builds a NamedTuple at a third of its constructor's cost


class RtmpDecoder:
    """Decodes one direction. `phase` is where it starts: "handshake", "chunks" (after it), or "midstream"."""

    __slots__ = (
        "_base", "_bridge", "_buffer", "_chunks", "_damaged", "_finished", "_need", "_search", "_skip_from",
        "_skip_why", "_version", "limits", "phase",
    )  # fmt: skip

    def __init__(
        self, limits: Limits = DEFAULT_LIMITS, *, phase: str = HANDSHAKE, chunk_size: int = DEFAULT_CHUNK_SIZE
    ) -> None:
        self.limits = limits
        self.phase = SEARCH if phase == MIDSTREAM else Phase(phase)
        self._chunks = Dechunker(limits, chunk_size)
        self._search = BoundarySearch()
        self._buffer = bytearray()
        self._need = 1  # bytes the buffer must hold before another attempt is worthwhile
        self._base = 0  # stream offset of the first byte in the buffer
        self._finished = False
        self._version = 0  # C0 or S0
        self._damaged = 0  # bytes still to come of a handshake part that lost some
        self._bridge: Bridge | None = None  # in phase BRIDGE
        self._skip_from = 0  # in phases SEARCH and OPAQUE: stream offset from which bytes are skipped, ...
        self._skip_why = "the capture starts inside the stream"  # ... and the reason
        if phase == MIDSTREAM:
            self._chunks.inferred = True
            self._chunks.size_announced = False

    @property
    def offset(self) -> int:
        """Stream offset of the next byte that will be received."""
        return self._base + len(self._buffer)

    @property
    def chunk_size(self) -> int:
        return self._chunks.chunk_size

    @property
    def buffered_from(self) -> int:
        """Stream offset of the first byte that is not decoded yet."""
        return self._base

    @property
    def undecoded_from(self) -> int | None:
        """Stream offset of the first byte of an unfinished message or of bytes that are not decoded yet; None if all
        bytes are decoded."""
        if self._chunks.announced:
            starts = [cs.start for cs in self._chunks.streams.values() if cs.active]
            if starts:
                return min(starts)
        return self._base if self._buffer else None

    def forget_headers(self) -> None:
        """Drop the headers kept for later chunks, when no more bytes will follow."""
        self._chunks.streams = {}

    # -- input -----------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes | bytearray | memoryview) -> list[Event]:
        out: list[Event] = []
        if self._buffer:
            if len(self._buffer) + len(data) < self._need:
                self._buffer += data
                return out
            data = b"".join((self._buffer, data))
        elif not isinstance(data, bytes):
            data = bytes(data)
        if data:
            self._advance(data, False, out)
        return out

    def receive_gap(self, length: int, exact: bool = True) -> list[Event]:
        """`length` bytes are missing here. If that is not `exact`, positions after them cannot be computed."""
        out: list[Event] = []
        if length <= 0:
            return out
        self._search.after_gap()
        self._advance(bytes(self._buffer), True, out)
        arrived = len(self._buffer)
        self._drop_rest("cut by a gap", out)
        if self.phase is SEARCH:
            self._report_skipped(self._base, out)
            self._base += length
            self._skip_from = self._base
            self._search.tried = 0
        elif self.phase is CHUNKS and exact:
            self._lose_bytes(length, out)
        elif self.phase in (CHUNKS, BRIDGE):
            self._chunks.cut = None
            self._base += length
            self._give_up_partials(out)
        else:
            self._base += length
            if self.phase is not OPAQUE and exact:
                self._lose_handshake(arrived + length)
            elif self.phase is not OPAQUE:
                self._damaged = 0
                self._enter_search("an unknown part of the handshake was lost", 0)
        return out

    def receive_eof(self) -> list[Event]:
        """The stream ends: report what is unfinished. Further calls report nothing."""
        out: list[Event] = []
        if self._finished:
            return out
        self._finished = True
        begun = self.offset > 0
        self._advance(bytes(self._buffer), True, out)
        if self.phase in HANDSHAKE_PHASES:
            if begun:
                part = HANDSHAKE_PHASES.index(self.phase)
                self._flag(
                    out, ViolationCode.HS_INCOMPLETE, f"the stream ends before handshake part {part} is complete"
                )
            self._drop_rest("unfinished handshake", out)
            return out
        self._drop_rest("the stream ends inside a chunk header", out)
        if self.phase is SEARCH:
            self._report_skipped(self._base, out)
        pending = unfinished(self._chunks)[::-1]
        while pending:  # each is freed when it is reported: there may be one on every csid
            cs = pending.pop()
            if not cs.stale:
                code = ViolationCode.MSG_TRUNCATED
                name, missing = TYPE_NAMES.get(cs.type_id, "unknown"), cs.length - cs.got
                detail = (
                    f"{name} message of {cs.length} bytes on csid {cs.csid}: the last {missing} bytes never arrived"
                )
                out.append(Violation(code, code.severity, cs.start, detail, cs.start))
            close_partial(self._chunks, cs, TRUNCATED, self._base, out)
            self._chunks.streams.pop(cs.csid, None)
        if self.phase is OPAQUE and self._base > self._skip_from:
            out.append(Skipped(self._skip_from, self._base, self._skip_why))
        return out

    # -- the phases --------------------------------------------------------------------------------------------

    def _enter(self, phase: Phase) -> None:
        self.phase = phase

    def _advance(self, buf: bytes, final: bool, out: list[Event]) -> None:
        """Decode what can be decoded of `buf`, which begins at `_base`; keep the rest in the buffer."""
        pos = 0
        self._need = 1
        while True:
            phase = self.phase
            if phase is CHUNKS:
                chunks = self._chunks
                chunks.base = self._base
                chunks.cut = None
                pos = chunks.run(buf, pos, final, out)
                if not chunks.lost:
                    self._need = chunks.need
                    break
                pos = self._lose_sync(pos, out)
            elif phase is SEARCH:
                found = self._look(buf, pos, final, out)
                if found < 0:
                    break
                pos = found
                if self.phase is SEARCH:
                    break
            elif phase is BRIDGE:
                after = self._cross(buf, pos, final, out)
                if after < 0:
                    break
                pos = after
            elif phase is OPAQUE:
                pos = len(buf)
                break
            else:
                after = self._handshake(buf, pos, out)
                if after < 0:
                    break
                pos = after
        if self._buffer or pos < len(buf):
            self._buffer = bytearray(buf[pos:] if pos else buf)
        self._base += pos

    def _drop_rest(self, why: str, out: list[Event]) -> None:
        """Report bytes that cannot be decoded before a gap or the end."""
        if self._buffer and self.phase is not SEARCH:
            out.append(Skipped(self._base, self.offset, why))
        self._base += len(self._buffer)
        self._buffer = bytearray()

    def _flag(self, out: list[Event], code: ViolationCode, detail: str, offset: int | None = None) -> None:
        out.append(Violation(code, code.severity, self._base if offset is None else offset, detail))

    # -- handshake ---------------------------------------------------------------------------------------------

    def _handshake(self, buf: bytes, pos: int, out: list[Event]) -> int:
        """Read the next handshake part. Returns the position after it, or -1 to wait."""
        start = self._base + pos
        if self.phase is HANDSHAKE:
            if pos >= len(buf):
                return -1
            version = self._version = buf[pos]
            out.append(_new(HandshakePart, (start, start + 1, 0, buf[pos : pos + 1])))
            if version != PLAIN_VERSION and version not in RTMPE_VERSIONS:
                self._flag(out, ViolationCode.HS_VERSION, f"version {version} instead of 3", start)
            if version >= FIRST_TEXT_VERSION:
                self._enter_opaque("not RTMP", start + 1)
            else:
                self._enter(PART1)
            return pos + 1
        wanted = self._damaged or PACKET_SIZE
        if len(buf) - pos < wanted:
            self._need = wanted
            return -1
        part = HANDSHAKE_PHASES.index(self.phase)
        stop = pos + wanted
        if self._damaged:
            self._damaged = 0
            out.append(Skipped(start, start + wanted, "a handshake part with missing bytes"))
        else:
            out.append(_new(HandshakePart, (start, start + wanted, part, buf[pos:stop])))
        if part == 2:
            self._enter(CHUNKS)
        elif self._version in RTMPE_VERSIONS:
            detail = f"RTMPE (version {self._version}): the rest of the stream is encrypted"
            self._flag(out, ViolationCode.HS_ENCRYPTED, detail, start)
            self._enter_opaque("encrypted", start + wanted)
        else:
            self._enter(PART2)
        return stop

    def _lose_handshake(self, gone: int) -> None:
        """A gap inside the handshake, whose parts have known lengths: step over the damaged parts.

        `gone` counts from the start of the current part, or of what was still to come of a damaged one."""
        gone += PACKET_SIZE - self._damaged if self._damaged else 0
        self._damaged = 0
        phase = self.phase
        if phase is HANDSHAKE:
            phase = PART1
            gone -= 1
        if phase is PART1 and gone >= PACKET_SIZE:
            phase = PART2
            gone -= PACKET_SIZE
        if gone < PACKET_SIZE:
            self._damaged = PACKET_SIZE - gone if gone else 0
            self._enter(phase)
        elif gone == PACKET_SIZE:
            self._enter(CHUNKS)
        else:
            self._enter_search("bytes after the handshake were lost", 0)

    def _enter_opaque(self, why: str, offset: int) -> None:
        self._enter(OPAQUE)
        self._skip_why = why
        self._skip_from = offset

    # -- a gap inside one message ------------------------------------------------------------------------------

    def _lose_bytes(self, length: int, out: list[Event]) -> None:
        """A gap between or inside chunks: bridge it if it is inside one message, otherwise search the next message."""
        chunks = self._chunks
        cut, chunks.cut = chunks.cut, None
        self._bridge = bridge_over(chunks, cut, length)
        self._base += length
        if self._bridge is None:
            self._give_up_partials(out)
        else:
            self._enter(BRIDGE)

    def _cross(self, buf: bytes, pos: int, final: bool, out: list[Event]) -> int:
        """Check whether the bytes after the gap are the rest of the message. Returns where to continue, or -1."""
        chunks = self._chunks
        assert self._bridge is not None
        after = cross(chunks, self._bridge, Cursor(buf, pos, len(buf), final, out), self._base)
        if after >= 0:
            self._bridge = None
            self._enter(CHUNKS)
        elif after == REFUTED:
            self._give_up_partials(out)
            return pos
        else:
            self._need = chunks.need
        return after

    def _give_up_partials(self, out: list[Event]) -> None:
        """Report every unfinished message as damaged, and search the next one."""
        self._bridge = None
        for cs in unfinished(self._chunks):
            close_partial(self._chunks, cs, GAP, self._base, out)
            cs.orphan = cs.length > self._chunks.chunk_size
        self._enter_search("gap", self._search.likely_size(self._chunks))

    # -- searching a boundary ----------------------------------------------------------------------------------

    def _lose_sync(self, pos: int, out: list[Event]) -> int:
        """The header at `pos` cannot be valid. Returns where to start searching."""
        chunks = self._chunks
        why, chunks.lost = chunks.lost, ""
        for cs in unfinished(chunks):
            close_partial(chunks, cs, TRUNCATED, self._base + pos, out)
            cs.orphan = chunks.inferred and cs.length > chunks.chunk_size
        self._enter_search(why, self._search.likely_size(chunks), self._base + pos)
        return pos + self._search.lose(self._base + pos)  # the second time, the search must not lead back here

    def _enter_search(self, why: str, size: int, offset: int | None = None) -> None:
        self._enter(SEARCH)
        self._skip_why = why
        self._skip_from = self._base if offset is None else offset
        self._search.begin(size)
        for cs in self._chunks.streams.values():
            cs.stale = cs.drifted = True

    def _look(self, buf: bytes, pos: int, final: bool, out: list[Event]) -> int:
        """Search a boundary from `pos` on. Returns where to continue, or -1 to wait."""
        looked = self._search.look(self._chunks, buf, pos, self._base, final)
        if looked is None:
            self._need = self._chunks.need
            return -1
        position, sync, known = looked
        if sync is not None:
            self._report_skipped(self._base + position, out)
            largest = MAX_CHUNK_SIZE if sync.size_floor else sync.chunk_size
            out.append(Synchronised(self._base + position, sync.size_floor or sync.chunk_size, largest))
            self._search.apply(self._chunks, sync, known)
            self._enter(CHUNKS)
        return position

    def _report_skipped(self, offset: int, out: list[Event]) -> None:
        start, why = self._skip_from, self._skip_why
        if offset > start:
            out.append(Skipped(start, offset, why))
            detail = f"{offset - start} bytes skipped to find the next message: {why}"
            self._flag(out, ViolationCode.CHUNK_RESYNC, detail, start)

    # -- state ---------------------------------------------------------------------------------------------------

    def state(self) -> bytes:
        """Everything needed to continue elsewhere, as versioned bytes."""
        search = self._search
        fields: list[Any] = [
            self.phase,
            self._need,
            self._base,
            self._finished,
            self._version,
            self._damaged,
            self._bridge,
            self._skip_from,
            self._skip_why,
            [search.chunk_size, search.tried, search.effort, search.lost_at],
        ]
        return pack(fields, self._buffer, self._chunks)

    @classmethod
    def resume(cls, state: bytes, limits: Limits = DEFAULT_LIMITS) -> RtmpDecoder:
        """Continue from saved bytes. Raises StateError if another version saved them, or if they are damaged."""
        saved = unpack(state, limits)
        self = cls(limits)
        try:
            (
                phase, self._need, self._base, self._finished, self._version, self._damaged, bridge, self._skip_from,
                self._skip_why, search,
            ) = saved.decoder  # fmt: skip
            self.phase = Phase(phase)
            self._bridge = None if bridge is None else Bridge(*bridge)
            self._search = BoundarySearch(*search)
        except (ValueError, TypeError) as error:
            raise StateError(f"Damaged decoder state: {error}") from error
        self._buffer, self._chunks = saved.buffer, saved.chunks
        return self
