"""The dechunker: bytes of one direction after the handshake -> messages (RTMP 1.0 5.3).

This module is the loop and the fast path: plain continuations, and messages whose header has nothing unusual about it,
which is nearly all of them. Everything else is read by one_chunk.py. Both give the same events, so the fast path may
decline anything.

The dechunker does not look inside messages, except for Set Chunk Size and Abort, which change how the following chunks
are read. Reported events are never revised. At a header that cannot be valid it stops with `lost` set; resync/ finds
the next message.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ..events import COMPLETE, Event, MessageReceived
from ..limits import LONGEST_CONTROL
from ..message import ABORT, AUDIO, DEFAULT_CHUNK_SIZE, SET_CHUNK_SIZE, TYPE_NAMES
from .assembly import finish, open_partial, store
from .control import check_control
from .cursor import Cursor
from .header import EXTENDED
from .one_chunk import read_chunk
from .size import resize, settle_at_first_cut
from .state import ChunkState
from .stream import ChunkStream

_new: Final = tuple.__new__  # builds a NamedTuple at a third of its constructor's cost
_LONG_HEADER: Final = Struct(">II").unpack_from  # basic header and timestamp, length and type of fmt 0 and 1
_STREAM_ID: Final = Struct("<I").unpack_from  # the only little-endian field
_PLAIN_TYPES: Final = frozenset(TYPE_NAMES) - {ABORT}  # Abort ends another message


class Dechunker(ChunkState):
    __slots__ = ()

    def run(self, buf: bytes, pos: int, final: bool, out: list[Event]) -> int:
        """Read whole chunks from `pos`; with `final` also the one that the end cuts. Returns the first unread byte."""
        end = len(buf)
        streams = self.streams
        cursor: Cursor | None = None
        self.need = 0
        while pos < end:
            byte = buf[pos]
            if byte >= 0xC2:  # most chunks: a plain continuation, alone or together with all that follow it
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
                            store(self, cs, whole)
                            if cs.got == cs.length:
                                finish(self, cs, self.base + pos, out)
                            continue
                        if data + size <= end:
                            pos = data + size
                            cs.got += size
                            cs.chunks += 1
                            # `store` written out: interleaved messages consist of these chunks
                            if not cs.dropping and self.held + size <= self.limits.partial_bytes:
                                cs.payload += buf[data:pos]
                                self.held += size
                            else:
                                cs.dropping = True
                            continue
                    elif data + rest <= end:
                        pos = data + rest
                        cs.chunks += 1
                        cs.got = cs.length
                        store(self, cs, buf[data:pos])
                        finish(self, cs, self.base + pos, out)
                        continue
                    if not final:
                        self.need = data + (rest if rest < size else size)
                        break
            after = self._plain_messages(buf, pos, end, out)
            if after == pos:
                if cursor is None:
                    cursor = Cursor(buf, pos, end, final, out)
                else:
                    cursor.pos = pos
                after = read_chunk(self, cursor)
                if after < 0:
                    break
            pos = after
        self.need = max(self.need - pos, 1)
        return pos

    def _plain_messages(self, buf: bytes, pos: int, end: int, out: list[Event]) -> int:
        """The messages from `pos` on as long as nothing about them is unusual; of the last one perhaps only its first
        chunk.

        Returns the position after them: `read_chunk` reads what is there. The function is long because every call in it
        would cost more than 5 % of a message."""
        streams, size, base, inferred = self.streams, self.chunk_size, self.base, self.inferred
        longest = self.limits.message_bytes
        settled = min(self.old_size, size, DEFAULT_CHUNK_SIZE) if self.old_size else longest
        if self.size_floor:
            return pos
        while pos < end:
            byte = buf[pos]
            csid = byte & 63
            cs = streams.get(csid)
            if cs is None:
                if byte >= 64 or csid < 2:
                    return pos
                cs = ChunkStream(csid)
            elif cs.active or cs.ext is not None or cs.stale or cs.orphan:
                return pos
            if byte < 128:
                data = pos + 12 if byte < 64 else pos + 8
                if data > end:
                    return pos
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
            if (
                type_id not in _PLAIN_TYPES
                or (type_id < AUDIO and length > LONGEST_CONTROL)
                or field == EXTENDED
                or not 0 <= length <= longest
                or (stream_id >= 1 << 24 and csid not in streams)
                or (byte >= 192 and self.high_active)
            ):
                return pos
            if length > settled:
                if not settle_at_first_cut(self, buf, data, length, csid):
                    return pos
                settled = longest
            whole = True
            if length <= size:
                stop, chunks = data + length, 1
                if stop > end:
                    return pos
                payload = buf[data:stop]
            else:
                # Limits must apply wherever the input is split, so a message that exceeds one takes the slow path.
                if data + size > end or self.announced + length > self.limits.partial_bytes:
                    return pos
                chunks = (length - 1) // size + 1
                stop = data + length + chunks - 1
                mark = 0xC0 | csid
                payload = _joined(buf, data, stop, size, mark) if stop <= end and buf[data + size] == mark else b""
                if not payload:
                    whole, stop = False, data + size
            delta: int | None = None
            if byte < 64:
                rule = "absolute"
                streams[csid] = cs
                cs.set_time(field)
            else:
                rule, delta = ("delta", field) if byte < 192 else cs.repeated_delta(field)
                if cs.drifted:
                    rule = "inferred"
                cs.absolute = False
                cs.delta = delta
                cs.timestamp += delta
            cs.field = field
            cs.length = length
            cs.type_id = type_id
            cs.stream_id = stream_id
            if not whole:
                cs.rule, cs.used_delta = rule, delta
                cs.start, cs.fmt, cs.chunk_size = base + pos, byte >> 6, size
                cs.flagged = False
                open_partial(self, cs, buf[data:stop], out)
                return stop
            if payload:
                cs.first = payload[0]
            message = _new(
                MessageReceived,
                (
                    base + pos, base + stop, byte >> 6, csid, type_id, stream_id, cs.timestamp, field, delta, rule,
                    None, length, chunks, size, COMPLETE, 0, inferred, payload,
                ),
            )  # fmt: skip
            out.append(message)
            pos = stop
            if type_id < AUDIO:
                check_control(message, out)
                if type_id == SET_CHUNK_SIZE:
                    resize(self, payload)
                    return pos
        return pos


def _joined(buf: bytes, data: int, stop: int, size: int, mark: int) -> bytes:
    """The payload of a message split into chunks of `size` bytes, or nothing if a continuation header is not `mark`.

    Counting the continuation headers verifies the whole message at once."""
    marks = buf[data + size : stop : size + 1]
    if marks.count(mark) != len(marks):
        return b""
    whole = bytearray(memoryview(buf)[data:stop])
    del whole[size :: size + 1]
    return bytes(whole)
