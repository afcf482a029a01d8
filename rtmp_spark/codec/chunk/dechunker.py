"""The dechunker: bytes of one direction after the handshake -> messages (RTMP 1.0 5.3).

State changes only when a whole chunk is there, so events never depend on where the input was cut. Where the bytes
alone do not tell how to read a chunk it asks lookahead.py and size.py; what was reported is never revised.

It does not look inside messages, except for Set Chunk Size and Abort, which change how the rest is read. When a
header cannot be true it stops with `lost` set; finding the next message is the work of resync/.
"""

from __future__ import annotations

from struct import Struct

from ..errors import Severity, ViolationCode
from ..events import ABORTED, COMPLETE, GAP, TRUNCATED, Event, MessageReceived, Skipped
from ..message import (
    ABORT,
    AUDIO,
    CONTROL_TYPES,
    DEFAULT_CHUNK_SIZE,
    MAX_CHUNK_SIZE,
    SET_CHUNK_SIZE,
    TYPE_NAMES,
)
from ..resync.evidence import looks_like_start
from ..resync.header import HEADER_BYTES
from .control import check_control
from .lookahead import (
    CONTINUES,
    LONGEST_CONTROL,
    UNSEEN,
    WAITING,
    confirm_stale,
    ext_repeated,
    header_ok,
    inside_message,
    orphan_stop,
    short_continuation,
)
from .size import resize, settle_size
from .state import ABSENT, PRESENT, UNKNOWN, ChunkState
from .stream import EXTENDED, REPEAT_MS, ChunkStream

MEDIA_TYPES = frozenset((8, 9, 15, 18, 22))
CONFIRM_BYTES = 65536  # how far a doubtful header may reach before it is given up

_new = tuple.__new__
_LONG_HEADER = Struct(">II").unpack_from  # basic header and timestamp, length and type of fmt 0 and 1
_STREAM_ID = Struct("<I").unpack_from  # the one little-endian field


class Dechunker(ChunkState):
    __slots__ = ()

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
            check_control(message, out)
            if type_id == SET_CHUNK_SIZE:
                resize(self, payload)
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
                return self.wait(data)
            csid = 64 + buf[pos + 1] + (buf[pos + 2] << 8 if csid else 0)
        cs = self.streams.get(csid)
        if fmt == 3:
            if byte < 0xC2 or cs is None or not cs.active:
                short, certain = short_continuation(self, buf, pos, data, cs, end, final)
                if not certain:
                    return -1
                if short is not None:
                    return self._continue(short, buf, pos, pos + 1, end, final, out, short_form=True)
            if cs is None:
                if data + 24 > end and not final:
                    return self.wait(data + 24)
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
            return self.wait(data)
        field = buf[header] << 16 | buf[header + 1] << 8 | buf[header + 2]
        ext: int | None = None
        if field == EXTENDED:  # RTMP 1.0 5.3.1.3
            data += 4
            if data > end:
                return self.wait(data)
            ext = int.from_bytes(buf[data - 4 : data], "big")
        if fmt == 2:
            if cs is None:
                return self._fresh(pos, fmt, csid, out)
            if cs.active and not cs.orphan:
                if self.inferred:
                    return self.lose("fmt 2 inside an unfinished message")
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
            reading = inside_message(self, cs, buf, data, end, final, fmt, length, type_id)
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
            verdict = 0 if count > CONFIRM_BYTES else header_ok(self, buf, data + count, end, final)
            if verdict < 0:
                return self.wait(max(data + count, end) + 1)
            if not verdict:
                return self.lose("a message header that cannot be true")
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
            self.flag(
                out,
                ViolationCode.CHUNK_FRESH_CSID,
                self.base + pos,
                f"the first chunk on csid {csid} has fmt {fmt}, which refers to an earlier header",
                None,
                Severity.ERROR,
            )
        return self.lose(f"fmt {fmt} on csid {csid}, which has no earlier header")

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
            confirmed = confirm_stale(self, cs, buf, data, end, final, fmt)
            if confirmed < 0:
                return -1
            if not confirmed:
                if fmt == 3 and self.chunk_size < MAX_CHUNK_SIZE and not looks_like_start(buf[data : data + 24]):
                    cs.orphan = True
                    return self._orphan(cs, buf, pos, data, end, final, out)
                return self.lose(f"fmt {fmt} on csid {cs.csid}, whose last header may have been lost")
        size = self.chunk_size
        if self.size_floor:
            unsettled = length > self.size_floor
        else:
            unsettled = self.old_size > 0 and length > min(self.old_size, size, DEFAULT_CHUNK_SIZE)
        if unsettled:
            settled = settle_size(self, buf, pos, data, cs.csid, length, end, final, out, ext)
            if settled < 0:
                return -1
            size = self.chunk_size
        count = length if length <= size else size
        stop = data + count
        if stop > end and not final:
            return self.wait(stop)

        start = self.base + pos
        fresh = cs.csid not in self.streams
        if fresh:
            self.streams[cs.csid] = cs
            if fmt == 1 and not self.inferred:
                self.flag(
                    out, ViolationCode.CHUNK_FRESH_CSID, start, f"the first chunk on csid {cs.csid} has fmt 1", start
                )
        if cs.basic_bytes > 1:  # else its continuations were seen in the short form, whatever begins them
            cs.basic_bytes = 2 + (buf[pos] & 63)
        if buf[pos] & 63 == 1 and cs.csid < 320:
            self.flag(
                out, ViolationCode.CHUNK_CSID_FORM, start, f"csid {cs.csid} in three bytes where two would do", start
            )
        if cs.active and not cs.orphan:
            self._give_up(cs, start, out)
        cs.take_time(fmt, field, ext, start, out)
        cs.length = length
        cs.type_id = type_id
        cs.stream_id = stream_id
        cs.start = start
        cs.fmt = fmt
        cs.chunk_size = size
        cs.flagged = cs.orphan = False
        cs.stale = confirmed == UNSEEN
        if type_id not in TYPE_NAMES:
            self.flag(out, ViolationCode.MSG_TYPE_UNKNOWN, start, f"message type {type_id} has no meaning", start)
        if length > self.limits.message_bytes:
            self.flag(
                out,
                ViolationCode.CHUNK_LIMIT,
                start,
                f"a message of {length} bytes passes the limit of {self.limits.message_bytes}",
                start,
            )
            cs.dropping = True
        if omitted:
            cs.flagged = True
            self.flag(
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
            self.flag(
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
            present = ext_repeated(self, cs, buf, pos, data, count, end, final)
            if present == WAITING:
                return -1
            if present:
                data += 4
            else:
                omitted = True
        stop = data + count
        if stop > end and not final:
            return self.wait(stop)
        offset = self.base + pos
        if fmt == 3:
            cs.basic_bytes = basic_bytes
        if fmt == 3 and cs.ext is not None:
            self.dialect = ABSENT if omitted else PRESENT
            if omitted and not cs.flagged:
                cs.flagged = True
                self.flag(
                    out,
                    ViolationCode.CHUNK_EXT_TS_MISSING,
                    offset,
                    "a continuation chunk does not repeat the extended timestamp of its message",
                    cs.start,
                )
        elif fmt != 3:
            self.flag(
                out,
                ViolationCode.CHUNK_CONTINUATION_FMT,
                offset,
                f"a message goes on with a header of fmt {fmt}",
                cs.start,
            )
        if short_form:
            self.flag(
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
                present = ext_repeated(self, cs, buf, pos, data, min(self.chunk_size, cs.length), end, final)
                if present == WAITING:
                    return -1
            omitted = not present
            if present:
                data += 4
                if data > end:
                    return self.wait(data)
                ext = int.from_bytes(buf[data - 4 : data], "big")
        return self._begin(
            cs, buf, pos, data, end, final, out, 3, cs.field, ext, cs.length, cs.type_id, cs.stream_id, omitted
        )

    def _orphan(self, cs: ChunkStream, buf: bytes, pos: int, data: int, end: int, final: bool, out: list[Event]) -> int:
        """A chunk of a message whose beginning was lost."""
        stop = orphan_stop(self, cs, buf, data, end, final)
        if stop < 0:
            return -1
        if stop < data + self.chunk_size:
            cs.orphan = False
        out.append(Skipped(self.base + pos, self.base + stop, "rest of a message whose beginning was lost"))
        return stop

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
                cs.start, stop, cs.fmt, cs.csid, type_id, cs.stream_id, cs.timestamp, cs.field, cs.used_delta, cs.rule,
                cs.ext, cs.length, cs.chunks, cs.chunk_size, status, missing, self.inferred, payload,
            ),
        )  # fmt: skip
        out.append(event)
        if type_id in CONTROL_TYPES and status == COMPLETE:
            check_control(event, out)
            if type_id == SET_CHUNK_SIZE:
                resize(self, payload)

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
        self.flag(
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
            self.flag(
                out,
                ViolationCode.CTRL_ABORT_IDLE,
                offset,
                f"nothing is pending on csid {int.from_bytes(payload, 'big')}",
                offset,
            )
            return
        self.flag(out, ViolationCode.MSG_ABORTED, offset, f"{cs.length - cs.got} bytes were still to come", cs.start)
        self.close_partial(cs, ABORTED, offset, out)
