"""Reassembly of one direction of a TCP connection: segments in, bytes in order out.

Bytes after a hole are held. The hole becomes a gap when too many bytes are held, when they are held for too long, or
when no more packets can come. The result depends only on the packets and their order, never on how they were divided
into windows. If two packets have bytes for the same offset, the first one wins. No bytes are invented: a gap is
reported with its length.
"""

from __future__ import annotations

import base64
from bisect import bisect_left
from typing import Any, NamedTuple, Protocol

import numpy as np

from rtmp_spark.capture.packet_block import Ints
from rtmp_spark.capture.tcp.loss_counter import LossCounter
from rtmp_spark.capture.tcp.sequence_numbers import HALF, MASK, distance
from rtmp_spark.capture.tcp.stream_counters import StreamCounters
from rtmp_spark.codec.limits import (
    FARTHEST_ACK_BYTES,
    HELD_SEGMENT_COST,
    HOLE_WAIT_NS,
    KEPT_CONFLICTS,
    NEAR_IP_IDS,
    REORDERED_WITHIN_NS,
    TCP_HISTORY_BYTES,
)


class Piece(NamedTuple):
    """The bytes of one packet for [offset, end) of a stream."""

    offset: int
    end: int
    data: bytes | None  # None: cut off by the snapshot length
    frame: int
    ts_ns: int
    ip_id: int = 0  # of the IP packet; 0 if it has none

    def part(self, offset: int, end: int) -> Piece:
        data = None if self.data is None else self.data[offset - self.offset : end - self.offset]
        return self._replace(offset=offset, end=end, data=data)

    @property
    def cost(self) -> int:
        return max(HELD_SEGMENT_COST, 0 if self.data is None else len(self.data))


class Ready(NamedTuple):
    """Bytes in order that are not handed over yet."""

    offset: int
    data: bytes
    frame: int
    ts_ns: int


class Output(Protocol):
    """Takes what a stream delivers."""

    def add_run(self, stream: Stream, data: bytes, offsets: Ints, frames: Ints, times: Ints) -> None:
        """Contiguous bytes; the columns give the offset, frame number and time of each segment."""

    def add_gap(self, stream: Stream, length: int, after: Piece, acked: bool | None, cut: bool) -> None:
        """`length` missing bytes at the stream's next offset; `after` tells the packet that shows it."""

    def add_conflict(self, stream: Stream, differing: Piece, before: bytes) -> None:
        """Different bytes for an offset that had `before`, which was delivered."""


class Stream(StreamCounters):
    """What one side sent."""

    __slots__ = ("held", "held_cost", "history", "loss", "ready")

    def __init__(self, side: int) -> None:
        super().__init__(side)
        self.held: list[Piece] = []  # after a hole, by offset, without overlaps
        self.held_cost = 0
        self.history = b""  # the last delivered bytes
        self.ready: list[Ready] = []
        self.loss = LossCounter()

    @property
    def expected_seq(self) -> int | None:
        """The sequence number that continues this stream in order; None if it is not that simple."""
        if not self.synced or self.held or self.base is None:
            return None
        if self.fin is None:
            return (self.base + self.next_offset) & MASK
        return (self.base + self.next_offset + 1) & MASK if self.fin == self.next_offset else None

    def take(self, data: bytes, ts_ns: int) -> None:
        """Count bytes that continue this stream and that the caller delivers."""
        self.emitted = True
        self.captured_bytes += len(data)
        self.delivered_bytes += len(data)
        self.next_offset += len(data)
        self.top, self.top_ts_ns = self.next_offset, ts_ns
        self._remember(data)

    def begin(self, base: int, out: Output) -> None:
        """Offset 0 is known now: pieces that were held on a guess move to their true offsets."""
        if self.base is not None:
            shift = distance(base, self.base)
            self.top = max(self._seen_to() - shift, 0)
            self.fin = None if self.fin is None else self.fin - shift
            held, self.held, self.held_cost = self.held, [], 0
            self.base, self.synced = base, True
            for piece in held:
                moved = piece._replace(offset=piece.offset - shift, end=piece.end - shift)
                if moved.offset < 0:
                    if moved.data is not None:
                        self.skip(min(-moved.offset, len(moved.data)), "before_start")
                        moved = moved._replace(data=moved.data[-moved.offset :])
                    moved = moved._replace(offset=0)
                if moved.offset < moved.end:
                    self._hold(len(self.held), moved)
        self.base, self.synced = base, True
        self._drain(out)

    def receive(self, seq: int, payload: Piece, missing: int, fin: bool, out: Output) -> tuple[int, int]:
        """Take the payload of one segment, whose offsets count from `seq`; `missing` bytes were cut off it.

        Returns (its end offset, bytes that were sent before).
        """
        if self.base is None:
            self.base = seq
        offset = self.offset_of(seq)
        piece = payload._replace(offset=offset, end=offset + payload.end)
        wire_end = piece.end + missing
        if fin and self.fin is None and wire_end >= self._seen_to():
            self.fin, self.fin_frame, self.fin_ts_ns = wire_end, piece.frame, piece.ts_ns
        retransmitted = 0
        if wire_end > offset:
            retransmitted = self._payload(piece, wire_end, out)
        return wire_end, retransmitted

    def _seen_to(self) -> int:
        """The end of the known bytes. Offset 0 may be a guess from a packet without payload that came after them."""
        if self.synced or self.top:
            return self.top
        return self.held[-1].end if self.held else -HALF

    def _payload(self, piece: Piece, wire_end: int, out: Output) -> int:
        offset, end, data, frame, ts_ns, ip_id = piece
        assert data is not None
        if self.synced and wire_end - offset == 1 and offset == self.next_offset - 1:
            self.duplicate_bytes += end - offset  # a keep-alive: its byte is not part of the stream (RFC 9293 3.8.4)
            return 0
        if self.fin is not None and wire_end > self.fin:
            keep = max(self.fin - offset, 0)
            self.skip(len(data) - len(data[:keep]), "after_fin")
            data = data[:keep]
            end = offset + len(data)
            wire_end = max(min(wire_end, self.fin), end)
        if self.synced and offset < 0:
            self.skip(len(data[:-offset]), "before_start")
            data = data[-offset:]
            offset = 0
            end = len(data)
            wire_end = max(wire_end, end)
        if offset >= wire_end:
            return 0
        after = self._after(offset) if offset < self.top else None
        if wire_end > self.top:
            self.top, self.top_ts_ns = wire_end, ts_ns
        if self.synced and not self.held and offset == self.next_offset and end == wire_end:
            self._deliver(offset, end, data, frame, ts_ns)
            return 0
        fresh = self._place(Piece(offset, end, data, frame, ts_ns, ip_id), out) if end > offset else 0
        if wire_end > end:
            self._place(Piece(end, wire_end, None, frame, ts_ns, ip_id), out)
        retransmitted = len(data) - fresh
        if fresh and after is not None:
            if fresh == len(data) and _sent_before(piece, after):
                self.out_of_order_packets += 1
            else:
                retransmitted = len(data)
        self.retransmitted_bytes += retransmitted
        self._drain(out)
        return retransmitted

    def _after(self, offset: int) -> Piece | None:
        """The first held piece from this offset on; the hole before it is known since that piece came."""
        index = bisect_left(self.held, (offset,))
        return self.held[index] if index < len(self.held) else None

    def _place(self, piece: Piece, out: Output) -> int:
        """Hold the new parts of a piece and compare the others; returns how many bytes were new."""
        offset, end, fresh = piece.offset, piece.end, 0
        if self.synced and offset < self.next_offset:
            stop = min(end, self.next_offset)
            self._compare(piece.part(offset, stop), self._delivered(offset, stop), out)
            offset = stop
        held = self.held
        index = bisect_left(held, (offset,))
        if index and held[index - 1].end > offset:
            index -= 1
        while offset < end:
            if index < len(held) and held[index].offset <= offset:
                known, index = self._held_run(index, offset, end)
                if known is None:
                    stop = min(end, held[index - 1].end)
                    self.skip(0 if piece.data is None else stop - offset, "place_was_cut")
                else:
                    stop = offset + len(known)
                    self._compare(piece.part(offset, stop), known, out)
            else:
                stop = min(end, held[index].offset) if index < len(held) else end
                self._hold(index, piece.part(offset, stop))
                fresh += stop - offset
                index += 1
            offset = stop
        return fresh

    def _held_run(self, index: int, offset: int, end: int) -> tuple[bytes | None, int]:
        """The held bytes from `offset` to at most `end` that are contiguous, and the index of the piece after them;
        None if the piece was cut off. They may come from many short pieces, which are compared as one."""
        held = self.held
        first = held[index]
        if first.data is None or first.end >= end:
            return first.data and first.data[offset - first.offset : end - first.offset], index + 1
        parts, reached = [first.data[offset - first.offset :]], first.end
        index += 1
        count = 1
        while index < len(held) and reached < end:
            starts, ends, pieces, *_ = zip(*held[index : index + count], strict=True)
            if starts == (reached, *ends[:-1]) and None not in pieces:
                parts += pieces
                reached = ends[-1]
                index += len(pieces)
                count *= 2
            elif count == 1:
                break
            else:
                count = 1
        return b"".join(parts)[: end - offset], index

    def _hold(self, index: int, piece: Piece) -> None:
        self.held.insert(index, piece)
        self.held_cost += piece.cost

    def _compare(self, piece: Piece, before: bytes | None, out: Output) -> None:
        """Count bytes for an offset that had some; `before` is None if those are no longer known."""
        data = piece.data
        if data is None:
            return
        if before is None or data == before:
            self.duplicate_bytes += len(data)
        else:
            differs = np.flatnonzero(np.frombuffer(data, np.uint8) != np.frombuffer(before, np.uint8))
            low, high = int(differs[0]), int(differs[-1]) + 1
            self.conflict_bytes += high - low
            self.duplicate_bytes += len(data) - (high - low)
            self.conflicts += 1
            if self.conflicts <= KEPT_CONFLICTS:
                self.flush(out)
                self.emitted = True
                out.add_conflict(self, piece.part(piece.offset + low, piece.offset + high), before[low:high])

    def _delivered(self, offset: int, end: int) -> bytes | None:
        """Delivered bytes of this stream; None if they are no longer kept."""
        start = self.next_offset
        if offset < start - TCP_HISTORY_BYTES or self.settled:
            return None
        first = max(bisect_left(self.ready, (offset + 1,)) - 1, 0)
        parts: list[bytes] = []
        if self.ready:
            start = self.ready[first].offset
            parts = [ready.data for ready in self.ready[first : bisect_left(self.ready, (end,))]]
        if start > offset:
            if start - len(self.history) > offset:
                return None
            parts.insert(0, self.history)
            start -= len(self.history)
        return b"".join(parts)[offset - start : end - start]

    def _drain(self, out: Output) -> None:
        """Deliver the held pieces that have become contiguous."""
        if not self.synced:
            return
        done = 0
        for piece in self.held:
            if piece.offset > self.next_offset:
                break
            done += 1
            if piece.data is None:
                self._gap(piece.end, piece, out, cut=True)
            else:
                self._deliver(piece.offset, piece.end, piece.data, piece.frame, piece.ts_ns)
            self.held_cost -= piece.cost
        if done:
            del self.held[:done]

    def _deliver(self, offset: int, end: int, data: bytes, frame: int, ts_ns: int) -> None:
        self.emitted = True  # with this packet, whenever the bytes are handed over
        self.ready.append(Ready(offset, data, frame, ts_ns))
        self.next_offset = end

    def release(self, most_cost: int, out: Output) -> None:
        """Declare holes to be gaps, the first one first, until at most `most_cost` bytes are held."""
        while self.held and self.held_cost > most_cost:
            self._release_first(out)

    def give_up(self, now_ns: int, out: Output) -> None:
        """Declare holes to be gaps if the data after them was sent long ago and their receiver acknowledged them."""
        while self.held and now_ns - self.held[0].ts_ns > HOLE_WAIT_NS:
            acked = self.acked_offset
            if self.synced and acked is not None and acked < self.held[0].offset:
                return
            self._release_first(out)

    def _release_first(self, out: Output) -> None:
        first = self.held[0]
        if not self.synced:
            assert self.base is not None
            self.begin((self.base + first.offset) & MASK, out)
            return
        self._gap(first.offset, first, out)
        self._drain(out)

    def _gap(self, end: int, after: Piece, out: Output, *, cut: bool = False) -> None:
        self.flush(out)
        length = end - self.next_offset
        acked = self.acked_offset
        self.emitted = True
        out.add_gap(self, length, after, True if cut else None if acked is None else acked >= end, cut)
        self.missed_bytes += length
        self.gaps += 1
        if cut:
            self.cut_bytes += length
        self.history = b""
        self.next_offset = end

    def finish(self, out: Output) -> None:
        """No more packets will come: all holes become gaps, and so do bytes that were acknowledged but not recorded."""
        self.release(-1, out)
        end = self.missing_end
        if end is not None:
            self._gap(end, Piece(end, end, None, self.frame_last, self.ts_last_ns or 0), out)
        self.flush(out)
        self.history = b""

    @property
    def missing_end(self) -> int | None:
        """Where this stream ended, if the bytes before were not recorded: by its FIN, or by what was acknowledged."""
        end = self.fin
        if end is None and self.packets:
            acked = self.acked_offset
            # One byte after the last one is a FIN that was not recorded.
            if acked is not None and 1 < acked - self.next_offset < FARTHEST_ACK_BYTES:
                end = acked
        return end if end is not None and self.synced and end > self.next_offset else None

    def flush(self, out: Output) -> None:
        """Hand over the bytes in order as one run."""
        if not self.ready:
            return
        offsets, parts, frames, times = zip(*self.ready, strict=True)
        self.ready = []
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._remember(data)
        self.delivered_bytes += len(data)
        out.add_run(self, data, np.array(offsets, np.int64), np.array(frames, np.int64), np.array(times, np.int64))

    def _remember(self, data: bytes) -> None:
        if len(data) >= TCP_HISTORY_BYTES:
            self.history = data[-TCP_HISTORY_BYTES:]
        else:
            self.history = (self.history + data)[-TCP_HISTORY_BYTES:]

    def forget(self) -> None:
        """Drop all bytes and keep the numbers."""
        waiting = sum(len(piece.data) for piece in self.held if piece.data is not None)
        self.skip(waiting + sum(len(ready.data) for ready in self.ready), "not_wanted")
        self.held, self.held_cost, self.ready, self.history = [], 0, [], b""

    def state(self) -> list[Any]:
        """Plain data to resume from; `flush` first."""
        held = [(p.offset, p.end, None if p.data is None else _text(p.data), *p[3:]) for p in self.held]
        return [*self.saved_counters(), held, _text(self.history), self.loss.state()]

    def restore(self, values: list[Any]) -> None:
        *counters, held, history, loss = values
        self.loss.restore(loss)
        self.restore_counters(counters)
        for offset, end, data, *place in held:
            piece = Piece(offset, end, None if data is None else base64.b64decode(data), *place)
            self._hold(len(self.held), piece)
        self.history = base64.b64decode(history)


def _sent_before(piece: Piece, after: Piece) -> bool:
    """Whether a piece that fills a hole was sent before the data after the hole, and is no retransmission.

    IP ids of most systems count the packets of a connection or of all connections. Where they are random or 0, time
    decides.
    """
    if piece.ip_id and after.ip_id:
        later = ((piece.ip_id - after.ip_id + 0x8000) & 0xFFFF) - 0x8000
        if 0 < abs(later) <= NEAR_IP_IDS:
            return later < 0
    return piece.ts_ns - after.ts_ns < REORDERED_WITHIN_NS


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
