"""RtmpDecoder: one direction of one connection, bytes in, events out.

It knows the handshake parts, hands the rest to the dechunker, and finds its feet again after a loss. It never
replies, never raises on peer bytes, has no clock. Its whole state is a value: `state()` gives versioned bytes,
`resume()` goes on from them in any other process.

Phases: `handshake` (next is C0 or S0), `part1`, `part2` (C1/S1, C2/S2), `chunks`, `search` (looking for a message
boundary), `bridge` (a gap lies inside one message whose end is known), `opaque` (encrypted, or no RTMP).
"""

from __future__ import annotations

import json
import struct
from operator import attrgetter
from typing import Any

from .chunk.dechunker import Dechunker
from .chunk.lookahead import header_ok
from .chunk.state import ABSENT
from .chunk.stream import ChunkStream
from .errors import RtmpSparkError, ViolationCode
from .events import GAP, TRUNCATED, Event, HandshakePart, Skipped, Synchronised, Violation
from .limits import DEFAULT_LIMITS, Limits
from .message import COMMAND_AMF0, DATA_AMF3, DEFAULT_CHUNK_SIZE, MAX_CHUNK_SIZE
from .resync.header import Head
from .resync.search import find

PACKET_SIZE = 1536
PLAIN_VERSION = 3
ENCRYPTED_VERSIONS = (6, 8, 9)
FIRST_TEXT_VERSION = 32  # RTMP 1.0 5.2.2: so that text protocols are told apart

STATE_VERSION = 2
_STATE_HEAD = struct.Struct(">3sBI")
SEARCH_WINDOWS = (2048, 8192, 32768, 131072, 524288, 2097152)  # tried in turn, so that cuts of the input do not matter
SEARCH_KEEP = 131072  # of a window without a boundary
BRIDGE_BYTES = 1 << 21
# Of a message, at most, tell what it is: what lies behind a gap must not be read as these. AMF values follow one
# another to the end: nothing behind a gap can be told from what was lost.
HEAD_BYTES = 64
FREE_EFFORT = 50_000  # steps of searching, each some microseconds; beyond them searching must not cost more
EFFORT_PER_BYTE = 1 / 8  # than in proportion to what arrives, whatever the bytes are
EFFORT_PER_GAP = 200  # each is at least a packet
MANY_STREAMS = 256

_new = tuple.__new__  # a NamedTuple at a third of its constructor's cost


class StateError(RtmpSparkError):
    """A decoder state that this version cannot resume."""


class RtmpDecoder:
    __slots__ = (
        "_base", "_bridge", "_buffer", "_chunks", "_damaged", "_effort", "_finished", "_lost_at", "_need",
        "_search_size", "_search_start", "_search_why", "_tried", "limits", "phase",
    )  # fmt: skip

    def __init__(
        self, limits: Limits = DEFAULT_LIMITS, *, phase: str = "handshake", chunk_size: int = DEFAULT_CHUNK_SIZE
    ) -> None:
        self.limits = limits
        self.phase = "search" if phase == "midstream" else phase
        self._chunks = Dechunker(limits, chunk_size)
        self._buffer = bytearray()
        self._need = 1
        self._base = 0  # stream offset of the first byte in the buffer
        self._finished = False
        self._search_start = 0  # stream offset from which bytes are being skipped
        self._search_size = 0  # the chunk size known before the loss; 0 when the recording starts here
        self._search_why = "the recording starts inside the stream"
        self._tried = 0
        self._effort = 0  # spent on searches
        self._lost_at = -1  # where sync was lost last
        self._damaged = 0  # bytes still to come of a handshake part that lost some
        self._bridge: list[int] = []  # csid, wire bytes to its end, payload bytes to the next mark, mark bytes, lost
        if phase == "midstream":
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
    def pending_start(self) -> int | None:
        """Stream offset at which the oldest unfinished message begins; None when there is none."""
        if not self._chunks.announced:
            return None
        return min([cs.start for cs in self._chunks.streams.values() if cs.active], default=None)

    def forget_headers(self) -> None:
        """What chunk streams remember for bytes to come, when none will."""
        self._chunks.streams = {}

    # -- input -----------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[Event]:
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
        """`length` bytes are known to be lost here; unless that is `exact`, nothing behind them is where it must be."""
        out: list[Event] = []
        if length <= 0:
            return out
        self._effort = max(self._effort - EFFORT_PER_GAP, 0)
        self._advance(bytes(self._buffer), True, out)
        arrived = len(self._buffer)
        self._drop_rest("cut by a gap", out)
        if self.phase == "search":
            self._report_search(self._base, out)
            self._base += length
            self._search_start = self._base
            self._tried = 0
        elif self.phase == "chunks" and exact:
            self._lose_bytes(length, out)
        elif self.phase in ("chunks", "bridge"):
            self._chunks.cut = None
            self._base += length
            self._give_up_partials(out)
        else:
            self._base += length
            if self.phase != "opaque" and exact:
                self._lose_handshake(arrived + length)
            elif self.phase != "opaque":
                self._damaged = 0
                self._enter_search("an unknown part of the handshake was lost", 0)
        return out

    def receive_eof(self) -> list[Event]:
        out: list[Event] = []
        if self._finished:
            return out
        self._finished = True
        begun = self.offset > 0
        self._advance(bytes(self._buffer), True, out)
        if self.phase in ("handshake", "part1", "part2"):
            if begun:
                part = {"handshake": 0, "part1": 1, "part2": 2}[self.phase]
                self._flag(out, ViolationCode.HS_INCOMPLETE, f"the stream ends before handshake part {part} is whole")
            self._drop_rest("unfinished handshake", out)
            return out
        self._drop_rest("the stream ends inside a chunk header", out)
        if self.phase == "search":
            self._report_search(self._base, out)
        for cs in self._unfinished():
            if cs.stale:
                self._chunks.close_partial(cs, TRUNCATED, self._base, out)
                continue
            out.append(
                Violation(
                    ViolationCode.MSG_TRUNCATED,
                    ViolationCode.MSG_TRUNCATED.severity,
                    cs.start,
                    f"the stream ends with {cs.length - cs.got} bytes of the message to come",
                    cs.start,
                )
            )
            self._chunks.close_partial(cs, TRUNCATED, self._base, out)
        if self.phase == "opaque" and self._base > self._search_start:
            out.append(Skipped(self._search_start, self._base, self._search_why))
        return out

    # -- the phases --------------------------------------------------------------------------------------------

    def _advance(self, buf: bytes, final: bool, out: list[Event]) -> None:
        """Consume what can be consumed of `buf`, which begins at `_base`; keep the rest."""
        pos = 0
        self._need = 1
        while True:
            phase = self.phase
            if phase == "chunks":
                chunks = self._chunks
                chunks.base = self._base
                chunks.cut = None
                pos = chunks.run(buf, pos, final, out)
                if chunks.lost:
                    why, chunks.lost = chunks.lost, ""
                    for cs in self._unfinished():
                        chunks.close_partial(cs, TRUNCATED, self._base + pos, out)
                        cs.orphan = chunks.inferred and cs.length > chunks.chunk_size
                    self._enter_search(why, self._likely_size(), self._base + pos)
                    again = self._lost_at == self._base + pos
                    self._lost_at = self._base + pos
                    if again:  # the guess of last time led back here
                        pos += 1
                    continue
                self._need = chunks.need
                break
            if phase == "search":
                found = self._search(buf, pos, final, out)
                if found < 0:
                    break
                pos = found
                if self.phase == "search":
                    break
            elif phase == "bridge":
                pos, waiting = self._cross(buf, pos, final, out)
                if waiting:
                    break
            elif phase == "opaque":
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

    def _handshake(self, buf: bytes, pos: int, out: list[Event]) -> int:
        start = self._base + pos
        if self.phase == "handshake":
            if pos >= len(buf):
                return -1
            version = buf[pos]
            out.append(_new(HandshakePart, (start, start + 1, 0, buf[pos : pos + 1])))
            if version != PLAIN_VERSION and version not in ENCRYPTED_VERSIONS:
                self._flag(out, ViolationCode.HS_VERSION, f"version {version}, not 3", start)
            if version >= FIRST_TEXT_VERSION:
                self._enter_opaque("not RTMP", start + 1)
            else:
                self.phase = "part1"
                self._search_size = version  # until C1 is whole
            return pos + 1
        wanted = self._damaged or PACKET_SIZE
        if len(buf) - pos < wanted:
            self._need = wanted
            return -1
        part = 1 if self.phase == "part1" else 2
        stop = pos + wanted
        if self._damaged:
            self._damaged = 0
            out.append(Skipped(start, start + wanted, "a handshake part with lost bytes"))
        else:
            out.append(_new(HandshakePart, (start, start + wanted, part, buf[pos:stop])))
        if part == 2:
            self.phase = "chunks"
        elif self._search_size in ENCRYPTED_VERSIONS:
            self._flag(
                out, ViolationCode.HS_ENCRYPTED, f"RTMPE (version {self._search_size}): the rest is encrypted", start
            )
            self._enter_opaque("encrypted", start + wanted)
        else:
            self.phase = "part2"
        return stop

    def _lose_handshake(self, gone: int) -> None:
        """A gap inside the handshake, whose parts have known lengths: step over the damaged ones."""
        gone += PACKET_SIZE - self._damaged if self._damaged else 0
        self._damaged = 0
        if self.phase == "handshake":
            self.phase = "part1"
            gone -= 1
        if self.phase == "part1" and gone >= PACKET_SIZE:
            self.phase = "part2"
            gone -= PACKET_SIZE
        if gone >= PACKET_SIZE:
            gone -= PACKET_SIZE
            self.phase = "chunks"
            if gone:
                self._enter_search("bytes after the handshake were lost", 0)
            return
        self._damaged = PACKET_SIZE - gone if gone else 0

    def _enter_opaque(self, why: str, offset: int) -> None:
        self.phase = "opaque"
        self._search_why = why
        self._search_start = offset

    def _drop_rest(self, why: str, out: list[Event]) -> None:
        """Bytes that no phase could use before a gap or the end."""
        if self._buffer and self.phase != "search":
            out.append(Skipped(self._base, self.offset, why))
        self._base += len(self._buffer)
        self._buffer = bytearray()

    def _unfinished(self) -> list[ChunkStream]:
        active = [cs for cs in self._chunks.streams.values() if cs.active]
        return sorted(active, key=lambda cs: cs.start)

    def _flag(self, out: list[Event], code: ViolationCode, detail: str, offset: int | None = None) -> None:
        out.append(Violation(code, code.severity, self._base if offset is None else offset, detail))

    # -- a gap inside one message ------------------------------------------------------------------------------

    def _lose_bytes(self, length: int, out: list[Event]) -> None:
        """A gap between or inside chunks: cross it when it lies inside one message, else look for the next."""
        chunks = self._chunks
        cut, chunks.cut = chunks.cut, None
        unfinished = self._unfinished()
        if cut is not None:
            cs, lacking = cut
        elif len(unfinished) == 1:
            cs, lacking = unfinished[0], 0
        else:
            cs, lacking = None, 0
        others = any(other is not cs and (other.active or other.orphan) for other in chunks.streams.values())
        if cs is not None and not cs.dropping and not (others and length > lacking):  # theirs may be in the gap, too
            mark = cs.basic_bytes
            if cs.ext is not None and chunks.dialect != ABSENT:
                mark += 4
            rest = cs.length - cs.got - lacking
            wire = lacking + rest + mark * -(-rest // chunks.chunk_size)
            if length <= wire and wire - length <= BRIDGE_BYTES:
                self.phase = "bridge"
                self._bridge = [cs.csid, wire, lacking, mark, length]
                self._base += length
                return
        self._base += length
        self._give_up_partials(out)

    def _likely_size(self) -> int:
        size, floor = self._chunks.chunk_size, self._chunks.size_floor
        if not floor or size < MAX_CHUNK_SIZE:
            return size
        return self._search_size if self._search_size >= floor else 0  # what was known last, unless it was refuted

    def _give_up_partials(self, out: list[Event]) -> None:
        for cs in self._unfinished():
            self._chunks.close_partial(cs, GAP, self._base, out)
            cs.orphan = cs.length > self._chunks.chunk_size
        self._enter_search("gap", self._likely_size())

    def _cross(self, buf: bytes, pos: int, final: bool, out: list[Event]) -> tuple[int, bool]:
        """Beyond a gap inside one message: are its marks and the next header where they must be?"""
        csid, wire, lacking, mark_bytes, lost = self._bridge
        chunks = self._chunks
        cs = chunks.streams[csid]
        left = wire - lost
        stop = pos + left
        ok = header_ok(chunks, buf, stop, len(buf), final)
        if ok < 0:
            self._need = max(stop, len(buf)) + 1 - pos
            return pos, True
        # walk the layout of the rest of the message: payload, mark, payload, ...
        rest = cs.length - cs.got
        pieces = bytearray()
        at = -lost  # wire position relative to the first byte after the gap
        count = lacking
        marks_right = True
        whole = 0
        while True:
            a, b = max(at, 0), min(at + count, len(buf) - pos)
            if b > a:
                pieces += buf[pos + a : pos + b]
            at += count
            whole += count
            if whole >= rest:
                break
            if 0 <= at < len(buf) - pos and mark_bytes in (1, 5) and buf[pos + at] != (0xC0 | csid) & 0xFF:
                marks_right = False
            at += mark_bytes
            cs.chunks += 1
            count = min(chunks.chunk_size, rest - whole)
        cut_short = final and stop > len(buf) and not cs.stale
        if marks_right and (ok or cut_short):
            self.phase = "chunks"
            cs.stale = False
            stop = min(stop, len(buf))
            if len(cs.payload) < HEAD_BYTES or DATA_AMF3 <= cs.type_id <= COMMAND_AMF0:
                chunks.close_partial(cs, GAP, self._base + stop, out, unread=len(pieces))
                return stop, False
            cs.payload += pieces
            chunks.held += len(pieces)
            chunks.close_partial(cs, GAP, self._base + stop, out)
            return stop, False
        self._give_up_partials(out)
        return pos, False

    # -- looking for a boundary --------------------------------------------------------------------------------

    def _enter_search(self, why: str, size: int, offset: int | None = None) -> None:
        self.phase = "search"
        self._search_why = why
        self._search_size = size
        self._search_start = self._base if offset is None else offset
        self._tried = 0
        for cs in self._chunks.streams.values():
            cs.stale = cs.drifted = True

    def _search(self, buf: bytes, pos: int, final: bool, out: list[Event]) -> int:
        """Returns where to go on, or -1 to wait for more."""
        skip = int(self._base + pos == self._lost_at)  # no header with a length made us lose sync
        available = len(buf) - pos
        for window in SEARCH_WINDOWS:
            if window <= self._tried:
                continue
            if available < window:
                break
            found = self._boundary(buf, pos, pos + window, skip, False, out)
            if found >= 0:
                return found
            self._tried = window
            if window == SEARCH_WINDOWS[-1]:
                self._tried = 0
                return pos + window - SEARCH_KEEP
        if final:
            found = self._boundary(buf, pos, len(buf), skip, True, out)
            return found if found >= 0 else len(buf)
        self._need = next((window for window in SEARCH_WINDOWS if window > available), SEARCH_WINDOWS[-1])
        return -1

    def _boundary(self, buf: bytes, pos: int, end: int, skip: int, final: bool, out: list[Event]) -> int:
        """Returns the boundary in the window from `pos` to `end`, or -1."""
        if self._effort > FREE_EFFORT + (self._base + end) * EFFORT_PER_BYTE:
            return -1
        chunks = self._chunks
        few = len(chunks.streams) <= MANY_STREAMS
        heads = {
            cs.csid: Head(cs.length, cs.type_id, cs.stream_id)
            for cs in chunks.streams.values()
            if cs.length >= 0 and (few or cs.csid < 64)
        }
        orphans = any(cs.orphan for cs in chunks.streams.values())
        sync, effort = find(buf[pos:end], skip, heads, self._search_size, chunks.dialect == ABSENT, final, orphans)
        self._effort += effort + len(chunks.streams) // 16
        if sync is None:
            return -1
        offset = self._base + pos + sync.position
        self._report_search(offset, out)
        out.append(
            Synchronised(
                offset, sync.size_floor or sync.chunk_size, MAX_CHUNK_SIZE if sync.size_floor else sync.chunk_size
            )
        )
        for csid, head in sync.heads.items():
            cs = chunks.streams.get(csid)
            if cs is None:
                cs = chunks.streams[csid] = ChunkStream(csid)
                cs.drifted = True
            if cs.orphan and (head.length < 0 or csid in sync.orphans or head == heads.get(csid)):
                continue
            cs.orphan = False
            cs.length, cs.type_id, cs.stream_id = head
            cs.stale = True
        for csid in sync.orphans:
            cs = chunks.streams.setdefault(csid, ChunkStream(csid))
            cs.orphan = cs.stale = cs.drifted = True
        chunks.chunk_size, chunks.size_floor = sync.chunk_size, sync.size_floor
        chunks.size_announced = chunks.size_announced and sync.chunk_size == self._search_size
        chunks.old_size = 0
        chunks.inferred = True
        self.phase = "chunks"
        return pos + sync.position

    def _report_search(self, offset: int, out: list[Event]) -> None:
        if offset > self._search_start:
            out.append(Skipped(self._search_start, offset, self._search_why))
            self._flag(
                out,
                ViolationCode.CHUNK_RESYNC,
                f"{offset - self._search_start} bytes skipped to find the next message: {self._search_why}",
                self._search_start,
            )

    # -- state ---------------------------------------------------------------------------------------------------

    def state(self) -> bytes:
        """Everything needed to go on elsewhere, as versioned bytes."""
        chunks = self._chunks
        blobs = [bytes(self._buffer)]
        streams = []
        for cs in chunks.streams.values():
            streams.append(_stream_fields(cs))
            blobs.append(bytes(cs.payload))
        fields: dict[str, Any] = {
            "decoder": _decoder_fields(self),
            "chunks": _chunks_fields(chunks),
            "streams": streams,
            "blobs": [len(blob) for blob in blobs],
        }
        text = json.dumps(fields, separators=(",", ":")).encode()
        return b"".join((_STATE_HEAD.pack(b"RSD", STATE_VERSION, len(text)), text, *blobs))

    @classmethod
    def resume(cls, state: bytes, limits: Limits = DEFAULT_LIMITS) -> RtmpDecoder:
        try:
            magic, version, size = _STATE_HEAD.unpack_from(state)
            if magic != b"RSD":
                raise StateError("this is no decoder state")
            if version != STATE_VERSION:
                raise StateError(f"a decoder state of version {version}; this program reads version {STATE_VERSION}")
            at = _STATE_HEAD.size + size
            fields = json.loads(state[_STATE_HEAD.size : at])
            decoder = cls(limits)
            chunks = decoder._chunks
            for name, value in zip(_DECODER_FIELDS, fields["decoder"], strict=True):
                setattr(decoder, name, value)
            for name, value in zip(_CHUNKS_FIELDS, fields["chunks"], strict=True):
                setattr(chunks, name, value)
            blobs = []
            for length in fields["blobs"]:
                blobs.append(bytearray(state[at : at + length]))
                at += length
            if at != len(state):
                raise StateError(f"a damaged decoder state: {len(state)} bytes, not {at}")
            decoder._buffer = blobs[0]
            for values, payload in zip(fields["streams"], blobs[1:], strict=True):
                cs = ChunkStream(values[0])
                for name, value in zip(_STREAM_FIELDS, values, strict=True):
                    setattr(cs, name, value)
                cs.payload = payload
                chunks.streams[cs.csid] = cs
                if cs.active and cs.csid >= 64:
                    chunks.high_active[cs.csid] = cs
        except (struct.error, ValueError, KeyError, IndexError, TypeError) as error:
            raise StateError(f"a damaged decoder state: {error}") from error
        return decoder


_DECODER_FIELDS = (
    "phase",
    "_need",
    "_base",
    "_finished",
    "_search_start",
    "_search_size",
    "_search_why",
    "_tried",
    "_effort",
    "_lost_at",
    "_damaged",
    "_bridge",
)
_CHUNKS_FIELDS = (
    "chunk_size",
    "size_announced",
    "size_floor",
    "old_size",
    "dialect",
    "held",
    "announced",
    "limit_told",
    "inferred",
)
_STREAM_FIELDS = ("csid", *(name for name in ChunkStream.__slots__ if name not in ("csid", "payload")))
_decoder_fields, _chunks_fields, _stream_fields = (
    attrgetter(*names) for names in (_DECODER_FIELDS, _CHUNKS_FIELDS, _STREAM_FIELDS)
)
