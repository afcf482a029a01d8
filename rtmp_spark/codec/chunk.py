"""The dechunker: bytes of one direction after the handshake -> messages (RTMP 1.0 5.3).

State changes only when a whole chunk is there, so events never depend on where the input was cut. Where the
bytes alone do not tell how to read a chunk (a continuation that may or may not repeat its extended timestamp,
a header inside an unfinished message, a chunk size announced but perhaps not used) the dechunker looks ahead to
the next header and takes the reading after which that one makes sense; what was reported is never revised.

It does not look inside messages, except for Set Chunk Size and Abort, which change how the rest is read. When a
header cannot be true it stops with `lost` set; finding the next message is the work of resync/.
"""

from __future__ import annotations

from struct import Struct

from .errors import Severity, ViolationCode
from .events import ABORTED, COMPLETE, GAP, TRUNCATED, Event, MessageReceived, Skipped, Violation
from .limits import DEFAULT_LIMITS, Limits
from .message import (
    ABORT,
    AUDIO,
    CONTROL_TYPES,
    DEFAULT_CHUNK_SIZE,
    MAX_CHUNK_SIZE,
    SET_CHUNK_SIZE,
    TYPE_NAMES,
    USER_CONTROL,
    parse_control,
)
from .resync.cuts import COMMON_SIZES, believable_size, cuts_ahead, orphan_end, split_sizes
from .resync.evidence import is_strong, looks_like_start, payload_bits
from .resync.header import HEADER_BYTES, Head, continuation

EXTENDED = 0xFFFFFF
MEDIA_TYPES = frozenset((8, 9, 15, 18, 22))
SHORTEST_CONTROL = 2  # an event type without anything
LONGEST_CONTROL = 64  # above this a control message is taken for noise until the next header confirms it
CONFIRM_BYTES = 65536  # how far a doubtful header may reach before it is given up
STALE_BITS = 20  # of proof that a header from before a loss still holds
SETTLE_BYTES = 1 << 20  # the longest message that is held back to see whether a new chunk size is used
SIZE_AHEAD = 1 << 15  # bytes in which a second message must show a chunk size
SHORT_STREAMS = 8  # more csids >= 64 at a time has nobody who writes them wrong
REPEAT_MS = 1000  # an fmt 0 time up to this is read as the delta of a following fmt 3
WRAP31_MS = 60_000  # SRS masks to 31 bits: a drop of 2^31 by less than this is its wrap
ABSOLUTE_MS = 10_000  # so near to a time before, a delta of hours is a time itself

UNKNOWN, PRESENT, ABSENT = "unknown", "present", "absent"  # does fmt 3 repeat the extended timestamp?

WAITING, RESTARTS, CONTINUES = -1, 0, 1  # how to read a header inside an unfinished message
UNSEEN = 2  # nothing speaks against a length from before a loss, and nothing for it

_new = tuple.__new__
_LONG_HEADER = Struct(">II").unpack_from  # basic header and timestamp, length and type of fmt 0 and 1
_STREAM_ID = Struct("<I").unpack_from  # the one little-endian field


class ChunkStream:
    """What one csid remembers, and the message that is under way on it."""

    __slots__ = (
        "absolute",
        "active",
        "based",
        "basic_bytes",
        "chunk_size",
        "chunks",
        "csid",
        "delta",
        "drifted",
        "dropping",
        "ext",
        "field",
        "first",
        "flagged",
        "fmt",
        "got",
        "length",
        "orphan",
        "payload",
        "rule",
        "stale",
        "start",
        "stream_id",
        "timestamp",
        "type_id",
        "used_delta",
    )

    def __init__(self, csid: int) -> None:
        self.csid = csid
        self.basic_bytes = 1 + (csid >= 64) + (csid >= 320)  # of a continuation's basic header, as its sender has it
        self.timestamp = 0  # ms, unwrapped
        self.based = False  # an absolute time was seen
        self.drifted = False  # deltas were lost since
        self.field = 0  # the last 24-bit timestamp field
        self.ext: int | None = None  # the last extended timestamp, when that field was 0xFFFFFF
        self.delta = 0
        self.absolute = False  # the last header told a time: fmt 0, or a delta that can only be one
        self.length = 0  # -1: not known
        self.type_id = 0
        self.stream_id = 0
        self.first = -1  # byte of the last payload
        self.stale = False  # a header that changed these may have been lost
        self.orphan = False  # the rest of a message whose beginning was lost is still to come
        self.active = False
        self.got = 0
        self.start = 0
        self.fmt = 0
        self.chunks = 0
        self.chunk_size = 0
        self.rule = ""
        self.used_delta: int | None = None
        self.dropping = False  # over budget: counted, no longer kept
        self.flagged = False
        self.payload = bytearray()

    def set_time(self, value: int) -> None:
        """An absolute time (fmt 0): of all that have these 32 bits, the one nearest to the time before."""
        if self.based:
            step = (value - self.timestamp + 0x80000000 & 0xFFFFFFFF) - 0x80000000
            if step <= WRAP31_MS - 0x80000000:
                step += 0x80000000
            self.timestamp += step
        else:
            self.timestamp = value
            self.based = True
        self.absolute = True
        self.drifted = False


class Dechunker:
    __slots__ = (
        "announced", "base", "chunk_size", "cut", "dialect", "held", "high_active", "inferred", "limit_told",
        "limits", "lost", "need", "old_size", "size_announced", "size_floor", "streams",
    )  # fmt: skip

    def __init__(self, limits: Limits = DEFAULT_LIMITS, chunk_size: int = DEFAULT_CHUNK_SIZE) -> None:
        self.limits = limits
        self.streams: dict[int, ChunkStream] = {}
        self.chunk_size = chunk_size
        self.size_announced = True  # by Set Chunk Size, or it is the default; False: inferred
        self.size_floor = 0  # after a resync: the size is a guess, but at least this; 0 when it is known
        self.old_size = 0  # the size before the last change, while nobody has seen the new one in use
        self.dialect = UNKNOWN
        self.held = 0  # bytes of unfinished messages
        self.announced = 0  # their lengths, as announced
        self.limit_told = False
        self.high_active: dict[int, ChunkStream] = {}  # csids >= 64 with a message under way
        self.inferred = False
        self.base = 0  # stream offset of buffer position 0
        self.need = 1  # bytes the buffer must hold before another try is worth it
        self.lost = ""
        self.cut: tuple[ChunkStream, int] | None = None  # the chunk that the end of the buffer cut, bytes it lacks

    # -- the loop ------------------------------------------------------------------------------------------

    def run(self, buf: bytes, pos: int, final: bool, out: list[Event]) -> int:
        """Consume whole chunks from `pos`; with `final` also the cut one. Returns the first byte not consumed."""
        end = len(buf)
        streams = self.streams
        self.need = 0
        while pos < end:
            byte = buf[pos]
            if byte >= 0xC2:  # the bulk of any stream: a plain continuation, alone or with all that follow it
                cs = streams.get(byte & 63)
                if cs is not None and cs.active and cs.ext is None and not cs.orphan and not self.size_floor:
                    size = self.chunk_size
                    data = pos + 1
                    rest = cs.length - cs.got
                    if rest > size:
                        following = (rest - 1) // size
                        stop = data + rest + following
                        if stop > end:  # as many whole chunks as there are
                            following = (end - data + 1) // (size + 1) - 1
                            stop = data + following + (following + 1) * size
                        if (
                            following > 0
                            and buf[data + size] == byte
                            and buf[data + size : stop : size + 1].count(byte) == following
                            and self.held + stop - data - following <= self.limits.partial_bytes
                        ):
                            whole = bytearray(buf[data:stop])
                            del whole[size :: size + 1]
                            cs.chunks += following + 1
                            cs.got += len(whole)
                            pos = stop
                            self._store(cs, whole)
                            if cs.got == cs.length:
                                self._finish(cs, self.base + pos, out)
                            continue
                        if data + size <= end:
                            pos = data + size
                            cs.got += size
                            cs.chunks += 1
                            self._store(cs, buf[data:pos])
                            continue
                    elif data + rest <= end:
                        pos = data + rest
                        cs.chunks += 1
                        cs.got = cs.length
                        self._store(cs, buf[data:pos])
                        self._finish(cs, self.base + pos, out)
                        continue
            after = self._whole_message(buf, pos, end, out)
            if after < 0:
                after = self._chunk(buf, pos, end, final, out)
                if after < 0:
                    break
            pos = after
        self.need = max(self.need - pos, 1)
        return pos

    def _wait(self, position: int) -> int:
        """Nothing can be said before the buffer reaches beyond `position`."""
        self.need = position
        return -1

    def _lose(self, why: str) -> int:
        self.lost = why
        return -1

    def _flag(
        self,
        out: list[Event],
        code: ViolationCode,
        offset: int,
        detail: str,
        message: int | None,
        severity: Severity | None = None,
    ) -> None:
        out.append(Violation(code, severity or code.severity, offset, detail, message))

    # -- one message, as nearly all are -----------------------------------------------------------------------

    def _whole_message(self, buf: bytes, pos: int, end: int, out: list[Event]) -> int:
        """The message that begins at `pos`, when all of it is here and nothing about it is unusual.

        -1 leaves it, with nothing changed, to `_chunk`, which would tell the same in many more steps."""
        byte = buf[pos]
        csid = byte & 63
        cs = self.streams.get(csid)
        if cs is None:
            if byte >= 64 or csid < 2:
                return -1
            cs = ChunkStream(csid)
        elif cs.active or cs.ext is not None or cs.stale or cs.orphan:
            return -1
        delta: int | None = None
        if byte < 128:
            data = pos + 12 if byte < 64 else pos + 8
            if data > end:
                return -1
            first: int
            second: int
            first, second = _LONG_HEADER(buf, pos)
            field, length, type_id = first & 0xFFFFFF, second >> 8, second & 0xFF
            stream_id: int = _STREAM_ID(buf, pos + 8)[0] if byte < 64 else cs.stream_id
        else:
            length, type_id, stream_id = cs.length, cs.type_id, cs.stream_id
            if byte < 192:
                data = pos + 4
                field = int.from_bytes(buf[pos + 1 : data], "big")
            else:
                data, field = pos + 1, cs.field
        size = self.chunk_size
        if (
            type_id not in TYPE_NAMES
            or type_id == ABORT  # which ends another message
            or (type_id < AUDIO and length > LONGEST_CONTROL)
            or field == EXTENDED
            or self.size_floor
            or (self.old_size and length > min(self.old_size, size, DEFAULT_CHUNK_SIZE))
            or not 0 <= length <= self.limits.message_bytes
            or (stream_id >= 1 << 24 and csid not in self.streams)
            or (byte >= 192 and self.high_active)
        ):
            return -1
        if length <= size:
            stop, chunks = data + length, 1
            if stop > end:
                return -1
            payload = buf[data:stop]
        else:
            following = (length - 1) // size
            stop, chunks = data + length + following, following + 1
            mark = 0xC0 | csid
            if (
                stop > end
                or buf[data + size] != mark
                or buf[data + size : stop : size + 1].count(mark) != following
                or self.announced + length > self.limits.partial_bytes  # so that limits bite wherever it is cut
            ):
                return -1
            # Counting the continuation headers has proved the whole message at once.
            whole = bytearray(memoryview(buf)[data:stop])
            del whole[size :: size + 1]
            payload = bytes(whole)
        if byte < 64:
            self.streams[csid] = cs
            rule = "absolute"
            cs.set_time(field)
        else:
            rule, delta = "delta", field
            if byte >= 192:
                rule = "repeat_delta"
                if not cs.absolute:
                    delta = cs.delta
                elif field > REPEAT_MS:
                    rule, delta = "repeat_zero", 0
            if cs.drifted:
                rule = "inferred"
            cs.absolute = False
            cs.delta = delta
            cs.timestamp += delta
        cs.field = field
        cs.length = length
        cs.type_id = type_id
        cs.stream_id = stream_id
        if payload:
            cs.first = payload[0]
        base = self.base
        message = _new(
            MessageReceived,
            (
                base + pos, base + stop, byte >> 6, csid, type_id, stream_id, cs.timestamp, field, delta, rule,
                None, length, chunks, size, COMPLETE, 0, self.inferred, payload,
            ),
        )  # fmt: skip
        out.append(message)
        if type_id < AUDIO:
            self._check_control(message, out)
            if type_id == SET_CHUNK_SIZE:
                self._resize(payload)
        return stop

    # -- one chunk -----------------------------------------------------------------------------------------

    def _chunk(self, buf: bytes, pos: int, end: int, final: bool, out: list[Event]) -> int:
        byte = buf[pos]
        fmt = byte >> 6
        csid = byte & 63
        data = pos + 1
        if csid < 2:  # RTMP 1.0 5.3.1.1
            data += 1 + csid
            if data > end:
                return self._wait(data)
            csid = 64 + buf[pos + 1] + (buf[pos + 2] << 8 if csid else 0)
        cs = self.streams.get(csid)
        if fmt == 3:
            if byte < 0xC2 or cs is None or not cs.active:
                short, certain = self._short_continuation(buf, pos, data, cs, end, final)
                if not certain:
                    return -1
                if short is not None:
                    return self._continue(short, buf, pos, pos + 1, end, final, out, short_form=True)
            if cs is None:
                if data + 24 > end and not final:
                    return self._wait(data + 24)
                known_size = self.chunk_size < MAX_CHUNK_SIZE
                if self.inferred and known_size and csid < 64 and not looks_like_start(buf[data : data + 24]):
                    cs = self.streams[csid] = ChunkStream(csid)
                    cs.orphan = cs.stale = cs.drifted = True
                    cs.length = -1
                else:
                    return self._fresh(pos, fmt, csid, out)
            if cs.orphan:
                return self._orphan(cs, buf, pos, data, end, final, out)
            if cs.active:
                return self._continue(cs, buf, pos, data, end, final, out)
            return self._repeat(cs, buf, pos, data, end, final, out)

        header = data
        data += HEADER_BYTES[fmt]
        if data > end:
            return self._wait(data)
        field = buf[header] << 16 | buf[header + 1] << 8 | buf[header + 2]
        ext: int | None = None
        if field == EXTENDED:  # RTMP 1.0 5.3.1.3
            data += 4
            if data > end:
                return self._wait(data)
            ext = int.from_bytes(buf[data - 4 : data], "big")
        if fmt == 2:
            if cs is None:
                return self._fresh(pos, fmt, csid, out)
            if cs.active and not cs.orphan:
                if self.inferred:
                    return self._lose("fmt 2 inside an unfinished message")
                return self._continue(cs, buf, pos, data, end, final, out, fmt=fmt)
            return self._begin(
                cs, buf, pos, data, end, final, out, fmt, field, ext, cs.length, cs.type_id, cs.stream_id
            )
        length = buf[header + 3] << 16 | buf[header + 4] << 8 | buf[header + 5]
        type_id = buf[header + 6]
        if fmt == 0:
            stream_id = int.from_bytes(buf[header + 7 : header + 11], "little")  # the one little-endian field
        elif cs is not None:
            stream_id = cs.stream_id
        else:
            stream_id = self.assumed_stream_id(type_id)
        if cs is not None and cs.active and not cs.orphan:
            reading = self._inside_message(cs, buf, data, end, final, fmt, length, type_id)
            if reading == WAITING:
                return -1
            if reading == CONTINUES and not self.inferred:
                return self._continue(cs, buf, pos, data, end, final, out, fmt=fmt)
        doubtful = (
            type_id not in TYPE_NAMES
            or (type_id in CONTROL_TYPES and length > LONGEST_CONTROL)
            or (cs is None and stream_id >= 1 << 24)
        )
        if doubtful:
            count = min(self.chunk_size, length)
            verdict = 0 if count > CONFIRM_BYTES else self.header_ok(buf, data + count, end, final)
            if verdict < 0:
                return self._wait(max(data + count, end) + 1)
            if not verdict:
                return self._lose("a message header that cannot be true")
        if cs is None:
            cs = ChunkStream(csid)
            cs.drifted = self.inferred
        return self._begin(cs, buf, pos, data, end, final, out, fmt, field, ext, length, type_id, stream_id)

    def assumed_stream_id(self, type_id: int) -> int:
        """fmt 1 on a csid whose fmt 0 was not seen: media has a stream, and nearly always it is the first."""
        return 1 if self.inferred and type_id in MEDIA_TYPES else 0

    def _fresh(self, pos: int, fmt: int, csid: int, out: list[Event]) -> int:
        # after a handshake this can only mean that sync is lost
        if not self.inferred:
            self._flag(
                out,
                ViolationCode.CHUNK_FRESH_CSID,
                self.base + pos,
                f"the first chunk on csid {csid} has fmt {fmt}, which refers to an earlier header",
                None,
                Severity.ERROR,
            )
        return self._lose(f"fmt {fmt} on csid {csid}, which has no earlier header")

    def _begin(
        self,
        cs: ChunkStream,
        buf: bytes,
        pos: int,
        data: int,
        end: int,
        final: bool,
        out: list[Event],
        fmt: int,
        field: int,
        ext: int | None,
        length: int,
        type_id: int,
        stream_id: int,
        omitted: bool = False,
    ) -> int:
        """A header of fmt 0, 1 or 2 that starts a message, or fmt 3 with what it repeats."""
        confirmed = 1
        if cs.stale and fmt >= 2:
            confirmed = self._confirm_stale(cs, buf, data, end, final, fmt)
            if confirmed < 0:
                return -1
            if not confirmed:
                if fmt == 3 and self.chunk_size < MAX_CHUNK_SIZE and not looks_like_start(buf[data : data + 24]):
                    cs.orphan = True
                    return self._orphan(cs, buf, pos, data, end, final, out)
                return self._lose(f"fmt {fmt} on csid {cs.csid}, whose last header may have been lost")
        size = self.chunk_size
        if self.size_floor:
            unsettled = length > self.size_floor
        else:
            unsettled = self.old_size > 0 and length > min(self.old_size, size, DEFAULT_CHUNK_SIZE)
        if unsettled:
            settled = self._settle_size(buf, pos, data, cs.csid, length, end, final, out, ext)
            if settled < 0:
                return -1
            size = self.chunk_size
        count = length if length <= size else size
        stop = data + count
        if stop > end and not final:
            return self._wait(stop)

        start = self.base + pos
        fresh = cs.csid not in self.streams
        if fresh:
            self.streams[cs.csid] = cs
            if fmt == 1 and not self.inferred:
                self._flag(
                    out, ViolationCode.CHUNK_FRESH_CSID, start, f"the first chunk on csid {cs.csid} has fmt 1", start
                )
        if cs.basic_bytes > 1:  # else its continuations were seen in the short form, whatever begins them
            cs.basic_bytes = 2 + (buf[pos] & 63)
        if buf[pos] & 63 == 1 and cs.csid < 320:
            self._flag(
                out, ViolationCode.CHUNK_CSID_FORM, start, f"csid {cs.csid} in three bytes where two would do", start
            )
        if cs.active and not cs.orphan:
            self._give_up(cs, start, out)
        self._time(cs, fmt, field, ext, start, out)
        cs.length = length
        cs.type_id = type_id
        cs.stream_id = stream_id
        cs.start = start
        cs.fmt = fmt
        cs.chunk_size = size
        cs.flagged = cs.orphan = False
        cs.stale = confirmed == UNSEEN
        if type_id not in TYPE_NAMES:
            self._flag(out, ViolationCode.MSG_TYPE_UNKNOWN, start, f"message type {type_id} has no meaning", start)
        if length > self.limits.message_bytes:
            self._flag(
                out,
                ViolationCode.CHUNK_LIMIT,
                start,
                f"a message of {length} bytes passes the limit of {self.limits.message_bytes}",
                start,
            )
            cs.dropping = True
        if omitted:
            cs.flagged = True
            self._flag(
                out,
                ViolationCode.CHUNK_EXT_TS_MISSING,
                start,
                "a message that starts with fmt 3 does not repeat the extended timestamp",
                start,
            )
        if fmt == 3 and ext is not None and self.dialect == UNKNOWN:
            self.dialect = ABSENT if omitted else PRESENT
        if stop > end:
            self.cut = (cs, stop - end)
            stop = end
            count = stop - data
        elif length <= size and not cs.dropping:
            cs.chunks = 1
            self._emit(cs, self.base + stop, COMPLETE, 0, buf[data:stop], out)
            return stop
        cs.active = True
        if cs.csid >= 64:
            self.high_active[cs.csid] = cs
        cs.got = count
        cs.chunks = 1
        self.announced += length
        if self.announced > self.limits.partial_bytes and not self.limit_told:
            self.limit_told = True
            self._flag(
                out,
                ViolationCode.CHUNK_LIMIT,
                start,
                f"unfinished messages announce more than {self.limits.partial_bytes} bytes",
                start,
            )
        self._store(cs, buf[data:stop])
        if cs.got == cs.length:
            self._finish(cs, self.base + stop, out)
        return stop

    def _continue(
        self,
        cs: ChunkStream,
        buf: bytes,
        pos: int,
        data: int,
        end: int,
        final: bool,
        out: list[Event],
        fmt: int = 3,
        short_form: bool = False,
    ) -> int:
        count = min(self.chunk_size, cs.length - cs.got)
        basic_bytes = data - pos
        omitted = False
        if fmt == 3 and cs.ext is not None:
            present = self._ext_repeated(cs, buf, pos, data, count, end, final)
            if present == WAITING:
                return -1
            if present:
                data += 4
            else:
                omitted = True
        stop = data + count
        if stop > end and not final:
            return self._wait(stop)
        offset = self.base + pos
        if fmt == 3:
            cs.basic_bytes = basic_bytes
        if fmt == 3 and cs.ext is not None:
            self.dialect = ABSENT if omitted else PRESENT
            if omitted and not cs.flagged:
                cs.flagged = True
                self._flag(
                    out,
                    ViolationCode.CHUNK_EXT_TS_MISSING,
                    offset,
                    "a continuation chunk does not repeat the extended timestamp of its message",
                    cs.start,
                )
        elif fmt != 3:
            self._flag(
                out,
                ViolationCode.CHUNK_CONTINUATION_FMT,
                offset,
                f"a message goes on with a header of fmt {fmt}",
                cs.start,
            )
        if short_form:
            self._flag(
                out,
                ViolationCode.CHUNK_CSID_SHORT_CONTINUATION,
                offset,
                f"a continuation header of csid {cs.csid} written in one byte",
                cs.start,
            )
        if stop > end:
            self.cut = (cs, stop - end)
            stop = end
            count = max(0, stop - data)
        cs.got += count
        cs.chunks += 1
        self._store(cs, buf[data:stop])
        if cs.got == cs.length:
            self._finish(cs, self.base + stop, out)
        return stop

    def _repeat(self, cs: ChunkStream, buf: bytes, pos: int, data: int, end: int, final: bool, out: list[Event]) -> int:
        """fmt 3 that starts a message: everything is repeated."""
        ext = cs.ext
        omitted = False
        if ext is not None:
            present = int(self.dialect == PRESENT)
            if self.dialect == UNKNOWN:
                present = self._ext_repeated(cs, buf, pos, data, min(self.chunk_size, cs.length), end, final)
                if present == WAITING:
                    return -1
            omitted = not present
            if present:
                data += 4
                if data > end:
                    return self._wait(data)
                ext = int.from_bytes(buf[data - 4 : data], "big")
        return self._begin(
            cs, buf, pos, data, end, final, out, 3, cs.field, ext, cs.length, cs.type_id, cs.stream_id, omitted
        )

    def _orphan(self, cs: ChunkStream, buf: bytes, pos: int, data: int, end: int, final: bool, out: list[Event]) -> int:
        """A chunk of a message whose beginning was lost: a whole chunk, or as much as there is to the next header."""
        size = self.chunk_size
        if data + size + 40 > end and not final:
            return self._wait(data + size + 40)
        pending = {0xC0 | s.csid: s.length - s.got for s in self.streams.values() if s.active and not s.orphan}
        stop = orphan_end(buf, data, size, pending, {0xC0 | s.csid for s in self.streams.values() if s.orphan})
        if cs.length > 0 and (stop is None or stop >= data + size):
            last = data + (cs.length - 1) % size + 1  # known from before the loss: so long its last chunk must be
            if self.header_ok(buf, last, end, final) > self.header_ok(buf, data + size, end, final):
                stop = last
        if stop is None and self.header_ok(buf, data + size, end, final) > 1:
            stop = data + size
        if stop is None:
            return self._lose("the rest of a message whose beginning was lost")
        if stop < data + size:
            cs.orphan = False
        out.append(Skipped(self.base + pos, self.base + stop, "rest of a message whose beginning was lost"))
        return stop

    # -- readings that need a look ahead ---------------------------------------------------------------------

    def header_ok(self, buf: bytes, pos: int, end: int, final: bool) -> int:
        """Could a chunk header stand at `pos`? 2 it looks like one, 1 it may, 0 no, -1 the bytes are not there yet."""
        if pos >= end:
            return int(pos == end) if final else -1
        byte = buf[pos]
        fmt = byte >> 6
        csid = byte & 63
        data = pos + 1
        if csid < 2:
            data += 1 + csid
            if data > end:
                return 1 if final else -1
            csid = 64 + buf[pos + 1] + (buf[pos + 2] << 8 if csid else 0)
        cs = self.streams.get(csid)
        if fmt == 3:
            return 0 if cs is None else 1 + (cs.active or cs.orphan)
        if cs is None and fmt == 2:
            return 0
        if data + HEADER_BYTES[fmt] > end:
            return 1 if final else -1
        if fmt and 0x0F < buf[data] < 0xFF:  # a delta of more than 17 minutes
            return 0
        if fmt == 2:
            return 1
        type_id = buf[data + 6]
        if type_id not in TYPE_NAMES:
            return 0
        length = buf[data + 3] << 16 | buf[data + 4] << 8 | buf[data + 5]
        if type_id in CONTROL_TYPES and not SHORTEST_CONTROL <= length <= LONGEST_CONTROL:
            return 0
        if fmt == 0:
            if int.from_bytes(buf[data + 7 : data + 11], "little") >= 1 << 16:
                return 0
            return 2 if csid < 64 or cs is not None else 1
        return 2 if cs is not None else int(csid < 64)

    def _ext_repeated(self, cs: ChunkStream, buf: bytes, pos: int, data: int, count: int, end: int, final: bool) -> int:
        """Does this fmt 3 chunk repeat the extended timestamp (1), or not (0)?"""
        if data + 4 > end and not final:
            return self._wait(data + 4)
        same = int.from_bytes(buf[data : data + 4], "big") == cs.ext
        if same and self.dialect != ABSENT:
            return 1
        with_it = self.header_ok(buf, data + 4 + count, end, final)
        without = self.header_ok(buf, data + count, end, final)
        if with_it < 0 or without < 0:
            return self._wait(max(data + 4 + count, end) + 1)
        if cs.active and not same:  # on a continuation another value is none: only a header behind it says otherwise
            return int(not without and with_it > 0)
        if with_it != without:
            return int(with_it > without)
        return int(same or (not cs.active and self.dialect != ABSENT))

    def _inside_message(
        self, cs: ChunkStream, buf: bytes, data: int, end: int, final: bool, fmt: int, length: int, type_id: int
    ) -> int:
        """A header of fmt 0 or 1 inside an unfinished message: does it go on or restart?"""
        if fmt == 1 and length == cs.length and type_id == cs.type_id:
            return CONTINUES
        goes_on = data + min(self.chunk_size, cs.length - cs.got)
        restarts = data + min(self.chunk_size, length)
        if goes_on == restarts:
            return RESTARTS
        as_restart = self.header_ok(buf, restarts, end, final)
        as_continuation = self.header_ok(buf, goes_on, end, final)
        if as_restart < 0 or as_continuation < 0:
            return self._wait(max(goes_on, restarts, end) + 1)
        return CONTINUES if as_continuation > as_restart else RESTARTS

    def _short_continuation(
        self, buf: bytes, pos: int, data: int, regular: ChunkStream | None, end: int, final: bool
    ) -> tuple[ChunkStream | None, bool]:
        """FFmpeg writes continuation headers of csid >= 64 in one byte, (0xC0 | csid) & 0xFF.

        Returns the chunk stream such a byte belongs to, if any, and whether that can be said already."""
        if len(self.high_active) > SHORT_STREAMS:
            return None, True
        for cs in self.high_active.values():
            if (0xC0 | cs.csid) & 0xFF != buf[pos]:
                continue
            if regular is None:
                return cs, True
            count = min(self.chunk_size, cs.length - cs.got)
            rest = min(self.chunk_size, regular.length - regular.got)
            as_short = self.header_ok(buf, pos + 1 + count, end, final)
            as_regular = self.header_ok(buf, data + rest, end, final)
            if regular.ext is not None and as_regular >= 0:  # its continuation may repeat the extended timestamp
                repeated = self.header_ok(buf, data + 4 + rest, end, final)
                as_regular = max(as_regular, repeated) if repeated >= 0 else -1
            if as_short < 0 or as_regular < 0:
                self._wait(max(data + 4 + max(count, rest), end) + 1)
                return None, False
            if as_short > as_regular and (not as_regular or buf[pos] >= 0xC2):  # a longer form is believed if it can be
                return cs, True
        return None, True

    def _confirm_stale(self, cs: ChunkStream, buf: bytes, data: int, end: int, final: bool, fmt: int) -> int:
        """After a loss: a length from before it is used only where the headers after it stand right."""
        if cs.type_id in (SET_CHUNK_SIZE, ABORT):  # too much hangs on them
            return 0
        proof, first = 0, True  # what stands at its beginning says nothing of its length
        while True:
            length, size = cs.length, self.chunk_size
            if length < 0 or cs.csid >= 64 or length > SETTLE_BYTES:
                return int(proof >= STALE_BITS)
            cuts = max(length - 1, 0) // size
            stop = data + length + cuts
            if cs.ext is not None and self.dialect != ABSENT:
                stop += 4 * cuts
            elif stop <= end and buf[data + size : stop : size + 1].count(0xC0 | cs.csid) != cuts:
                return 0
            inside = payload_bits(cs.type_id, length, buf[data : data + 24])
            if inside < 0 or (cs.type_id == AUDIO and data < end and cs.first not in (-1, buf[data])):
                return 0
            if not first:
                proof += (14 if fmt == 2 else 0) + (0 if cs.type_id in CONTROL_TYPES else min(inside, 8))
            first = False
            if final and stop >= end:
                return UNSEEN  # a gap cuts it: the first header beyond will tell
            ok = self.header_ok(buf, stop, end, final)
            if ok < 0:
                return self._wait(max(stop, end) + 1)
            if not ok:
                return 0
            fmt = buf[stop] >> 6
            if stop + 1 + HEADER_BYTES[fmt] > end and buf[stop] & 63 not in self.streams:
                return int(proof >= STALE_BITS)  # a few bytes before a gap or the end, of a csid that nobody used
            proof += 6
            if fmt < 2 or proof >= STALE_BITS:
                return 1
            data = stop + 1 + HEADER_BYTES[fmt]
            cs = self.streams[buf[stop] & 63] if buf[stop] & 63 > 1 else cs
            if cs.active or cs.orphan or buf[stop] & 63 < 2:
                return int(proof >= STALE_BITS)
            if cs.ext is not None and self.dialect != ABSENT:
                data += 4

    def _settle_size(
        self,
        buf: bytes,
        pos: int,
        data: int,
        csid: int,
        length: int,
        end: int,
        final: bool,
        out: list[Event],
        ext: int | None,
    ) -> int:
        """Look at the first message whose cutting tells whether the chunk size in force is really used."""
        if self.size_floor and length <= SETTLE_BYTES:
            return self._infer_size(buf, data, continuation(buf, pos), length, end, final, ext)
        if csid >= 64 or length > SETTLE_BYTES:
            self.old_size = self.size_floor = 0
            return 1
        mark = 0xC0 | csid
        new, old = self.chunk_size, self.old_size
        if length <= min(new, old):  # neither cuts it: a sender that heeds neither still cuts at the default
            return self._settle_default(buf, pos, data, mark, length, end, final, out)
        first = data + min(new, old)
        if first >= end:
            if not final:
                return self._wait(first + 1)
            return 1
        if (buf[first] == mark) == (new < old):
            self.old_size = 0
            return 1
        if new < old:  # cut where it should be, with another message in between?
            between = self.header_ok(buf, first, end, final)
            if between < 0:
                return self._wait(end + 1)
            if between == 2 or (between and buf[first] < 0x80):
                self.old_size = 0
                return 1
        stops = [data + length + (length - 1) // size for size in (new, old)]
        if max(stops) + 18 > end and not final:
            return self._wait(max(stops) + 18)
        fits = [
            self.header_ok(buf, stop, end, final) > 0
            and buf[data + size : stop : size + 1].count(mark) == (length - 1) // size
            for size, stop in ((new, stops[0]), (old, stops[1]))
        ]
        if fits[1] and not fits[0]:
            self._not_applied(old, pos, data, out)
        elif not fits[0] and old > DEFAULT_CHUNK_SIZE < new:
            settled = self._settle_default(buf, pos, data, mark, length, end, final, out)
            if settled < 0:
                return -1
        self.old_size = 0
        return 1

    def _settle_default(
        self, buf: bytes, pos: int, data: int, mark: int, length: int, end: int, final: bool, out: list[Event]
    ) -> int:
        """Is a message cut at 128, whatever was announced?"""
        size = DEFAULT_CHUNK_SIZE
        if buf[data + size : data + size + 1] != bytes((mark,)):
            return self._wait(data + size + 1) if data + size >= end and not final else 1
        stop = data + length + (length - 1) // size
        if stop + 18 > end and not final:
            return self._wait(stop + 18)
        uncut = self.header_ok(buf, data + length, end, final) > 0
        cut = self.header_ok(buf, stop, end, final) > 0
        if cut and not uncut and buf[data + size : stop : size + 1].count(mark) == (length - 1) // size:
            self._not_applied(size, pos, data, out)
            self.old_size = 0
        return 1

    def _not_applied(self, used: int, pos: int, data: int, out: list[Event]) -> None:
        self._flag(
            out,
            ViolationCode.CHUNK_SIZE_NOT_APPLIED,
            self.base + data,
            f"chunk size {self.chunk_size} was announced, yet chunks are still cut at {used}",
            self.base + pos,
        )
        self.chunk_size = used

    def _infer_size(
        self, buf: bytes, data: int, mark: bytes, length: int, end: int, final: bool, ext: int | None
    ) -> int:
        """After a resync: the first message longer than any before shows where it is cut, or that it is not."""
        floor = self.size_floor
        if ext is not None and self.dialect == ABSENT:
            ext = None
        mark_bytes = len(mark) if ext is None else len(mark) + 4
        sizes = split_sizes(buf[: data + length + mark_bytes * (length // floor) + 1], data, mark, length, floor, ext)
        far = data + length + mark_bytes * ((length - 1) // min(sizes, default=length)) + 18
        if far > end and not final:
            return self._wait(far)
        uncut = self.header_ok(buf, data + length, end, final)
        guess = self.chunk_size
        if guess < length and not is_strong(buf, data + length):
            after = self.header_ok(buf, data + guess, end, final)
            if buf.startswith(mark, data + guess) or after >= max(uncut, 1):
                self.size_floor = 0
                return 1
        best, best_size = 8 * uncut - 1, 0
        for size in sizes:
            cuts = (length - 1) // size
            stop = data + length + mark_bytes * cuts
            ok = self.header_ok(buf, stop, end, final)
            seen = 60 if is_strong(buf, stop) else 0 if len(mark) == 1 else 8 * len(mark) * cuts
            # it is cut somewhere, with or without proof behind it; or so that it ends where the recorded bytes do
            common = size in COMMON_SIZES and (uncut <= 0 or stop == end)
            if ext is None and not common and not believable_size(size, cuts, seen):
                continue
            if ok > 0 and 8 * (ok + cuts - 1) > best:
                best, best_size = 8 * (ok + cuts - 1), size
        if not best_size and uncut <= 0:  # cut, with another message in between
            best_size = next(
                (size for size in COMMON_SIZES if floor <= size < length and is_strong(buf, data + size)), 0
            )
        if not best_size and uncut < 2 and ext is None:  # its last byte may look like a header
            best_size = self._size_ahead(buf, data + length, mark_bytes, length, sizes, end, final)
            if best_size < 0:
                return -1
        if best_size:
            self.chunk_size, self.size_floor = best_size, 0
        elif uncut > 0:
            self.chunk_size, self.size_floor = MAX_CHUNK_SIZE, length
        elif final and data + length > end:  # cut by a loss: it is whole so far, or the guess cannot be judged
            if data + guess < end:
                self.chunk_size, self.size_floor = MAX_CHUNK_SIZE, max(floor, end - data)
        else:
            return self._lose("a message that ends nowhere, cut or not")
        return 1

    def _size_ahead(
        self, buf: bytes, uncut: int, mark_bytes: int, length: int, sizes: list[int], end: int, final: bool
    ) -> int:
        """A size that nobody uses, and one message that is cut once or twice: do the next ones show the same?"""
        stops = {size: uncut + mark_bytes * ((length - 1) // size) for size in sizes}
        stops = {size: stop for size, stop in stops.items() if is_strong(buf, stop)}
        if not stops:
            return 0
        if end < uncut + SIZE_AHEAD and not final:
            return self._wait(uncut + SIZE_AHEAD)
        heads = {
            cs.csid: Head(cs.length, cs.type_id, cs.stream_id)
            for cs in self.streams.values()
            if not cs.stale and cs.length >= 0
        }
        seen = {size: cuts_ahead(buf, stop, size, heads) for size, stop in stops.items()}
        best = max(seen, key=lambda size: seen[size])
        return best if seen[best] > 1 and list(seen.values()).count(seen[best]) == 1 else 0

    # -- time ------------------------------------------------------------------------------------------------

    def _time(self, cs: ChunkStream, fmt: int, field: int, ext: int | None, start: int, out: list[Event]) -> None:
        value = field if ext is None else ext
        absolute = False
        if ext is not None and ext < EXTENDED and fmt != 3:
            self._flag(
                out,
                ViolationCode.CHUNK_EXT_TS_NEEDLESS,
                start,
                f"an extended timestamp for {ext}, which fits into 24 bits",
                start,
            )
        if fmt == 0:
            cs.rule = "absolute" if ext is None else "ext_absolute"
            cs.used_delta = None
            cs.set_time(value)
            cs.field = field
            cs.ext = ext
            return
        if fmt == 3 and (ext is None or ext == cs.ext):
            cs.rule = "repeat_delta"
            if not cs.absolute:
                value = cs.delta
            elif value > REPEAT_MS:
                value = 0
                cs.rule = "repeat_zero"
        else:
            cs.rule = "delta" if ext is None else "ext_delta"
            if ext is not None:
                absolute = fmt != 3 and self._is_absolute(cs, ext)
                if absolute:
                    self._flag(
                        out,
                        ViolationCode.CHUNK_EXT_DELTA_ABSOLUTE,
                        start,
                        f"the extended delta {ext} makes sense only as an absolute time",
                        start,
                    )
                if ext >= 0x80000000:
                    value = ext - 0x100000000
                    self._flag(
                        out,
                        ViolationCode.CHUNK_DELTA_NEGATIVE,
                        start,
                        f"a delta of {ext} is a step back of {-value} ms",
                        start,
                    )
        cs.absolute = absolute
        cs.delta = value
        cs.used_delta = value
        cs.timestamp += value
        cs.field = field
        cs.ext = ext
        if cs.drifted:
            cs.rule = "inferred"

    @staticmethod
    def _is_absolute(cs: ChunkStream, delta: int) -> bool:
        """Is this extended delta near the time before, as it is or as the last header had it?"""
        if cs.timestamp > ABSOLUTE_MS and abs(delta - (cs.timestamp & 0xFFFFFFFF)) <= ABSOLUTE_MS:
            return True
        return cs.absolute and cs.ext is not None and abs(delta - cs.ext) <= ABSOLUTE_MS

    # -- messages that end -------------------------------------------------------------------------------------

    def _emit(self, cs: ChunkStream, stop: int, status: str, missing: int, payload: bytes, out: list[Event]) -> None:
        type_id = cs.type_id
        if payload:
            cs.first = payload[0]
        if type_id == ABORT and status == COMPLETE:
            self._abort(payload, cs.start, out)
        event = _new(
            MessageReceived,
            (
                cs.start,
                stop,
                cs.fmt,
                cs.csid,
                type_id,
                cs.stream_id,
                cs.timestamp,
                cs.field,
                cs.used_delta,
                cs.rule,
                cs.ext,
                cs.length,
                cs.chunks,
                cs.chunk_size,
                status,
                missing,
                self.inferred,
                payload,
            ),
        )
        out.append(event)
        if type_id in CONTROL_TYPES and status == COMPLETE:
            self._check_control(event, out)
            if type_id == SET_CHUNK_SIZE:
                self._resize(payload)

    def _check_control(self, message: MessageReceived, out: list[Event]) -> None:
        start, type_id = message.start, message.type_id
        for code, detail in parse_control(type_id, message.payload).violations:
            self._flag(out, code, start, detail, start)
        if message.csid == 2 and not message.stream_id:
            return
        weight = Severity.INFO if type_id == USER_CONTROL else Severity.WARNING
        if message.csid != 2:
            detail = f"a control message on csid {message.csid}, not 2"
            self._flag(out, ViolationCode.CTRL_CSID, start, detail, start, weight)
        if message.stream_id:
            detail = f"a control message on stream {message.stream_id}, not 0"
            self._flag(out, ViolationCode.CTRL_STREAM_ID, start, detail, start, weight)

    def _store(self, cs: ChunkStream, chunk: bytes | bytearray) -> None:
        if not cs.dropping:
            if self.held + len(chunk) <= self.limits.partial_bytes:
                cs.payload += chunk
                self.held += len(chunk)
                return
            cs.dropping = True  # CHUNK_LIMIT was told when it was announced

    def _finish(self, cs: ChunkStream, stop: int, out: list[Event]) -> None:
        self.close_partial(cs, COMPLETE if len(cs.payload) == cs.length else TRUNCATED, stop, out)

    def close_partial(self, cs: ChunkStream, status: str, stop: int, out: list[Event], unread: int = 0) -> None:
        """Report what arrived of a message, `unread` bytes beside its payload, and forget it. What nobody could confirm
        is none."""
        payload = bytes(cs.payload)
        self.held -= len(payload)
        self.announced -= cs.length
        cs.active = cs.dropping = False
        self.high_active.pop(cs.csid, None)
        cs.got = 0
        cs.payload = bytearray()
        if cs.stale and status != COMPLETE:
            arrived = cs.start + HEADER_BYTES[cs.fmt] + cs.chunks + len(payload)
            out.append(Skipped(cs.start, min(stop, arrived), "a message whose length may have changed in a loss"))
            return
        self._emit(cs, stop, status, cs.length - len(payload) - unread, payload, out)

    def _give_up(self, cs: ChunkStream, offset: int, out: list[Event]) -> None:
        if self.inferred:  # more likely ours than the sender's fault
            self.close_partial(cs, GAP, offset, out)
            return
        self._flag(
            out,
            ViolationCode.CHUNK_INTERRUPTED,
            offset,
            f"a new message begins on csid {cs.csid} with {cs.length - cs.got} bytes of the last one to come",
            cs.start,
        )
        self.close_partial(cs, TRUNCATED, offset, out)

    def _abort(self, payload: bytes, offset: int, out: list[Event]) -> None:
        if len(payload) != 4:
            return
        cs = self.streams.get(int.from_bytes(payload, "big"))
        if cs is None or not cs.active:
            if self.inferred:  # it may have begun where nothing was recorded
                return
            self._flag(
                out,
                ViolationCode.CTRL_ABORT_IDLE,
                offset,
                f"nothing is pending on csid {int.from_bytes(payload, 'big')}",
                offset,
            )
            return
        self._flag(out, ViolationCode.MSG_ABORTED, offset, f"{cs.length - cs.got} bytes were still to come", cs.start)
        self.close_partial(cs, ABORTED, offset, out)

    def _resize(self, payload: bytes) -> None:
        """Bit 31 is masked, 0 keeps the size; message.parse_control finds the fault in either."""
        if len(payload) < 4:
            return
        size = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
        if not size:
            return
        self.old_size = self.chunk_size if self.size_floor == 0 else 0
        self.chunk_size = min(size, MAX_CHUNK_SIZE)
        self.size_floor = 0
        self.size_announced = True
        if self.old_size == self.chunk_size:
            self.old_size = 0
