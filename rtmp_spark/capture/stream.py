"""One direction of a TCP connection: sequence numbers in, bytes in order out.

Offsets count from the byte after the SYN. Bytes that arrive behind a hole wait; the hole becomes a gap only when too
much waits, for too long, or when the owner says that nothing more can come, so the outcome depends on the packets and
their order alone, never on how they were handed over. Of two packets for one place the first wins. Nothing is
invented: a gap is reported as its length.
"""

from __future__ import annotations

import base64
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from rtmp_spark.capture.items import Conflict, Gap, Item, Run

if TYPE_CHECKING:
    from rtmp_spark.capture.connection import Connection

MASK = 0xFFFFFFFF
_HALF = 1 << 31
_REORDERED_WITHIN_NS = 3_000_000  # later than this, a filled hole was a retransmission (Wireshark's threshold)
_LEAST_COST = 256  # what a held piece costs in memory however short it is
HISTORY_BYTES = 1 << 16  # delivered bytes kept to compare retransmissions with
_FARTHEST_ACK = 1 << 30
_AWAITED_NS = 60_000_000_000  # nothing is recorded so much later than what was sent after it

Piece = tuple[int, int, "bytes | None", int, int]  # offset, end, bytes (None: cut by the snapshot length), frame, ts_ns


def distance(seq: int, reference: int) -> int:
    """How far `seq` lies after `reference`, as a signed number: sequence numbers wrap (RFC 9293 3.4)."""
    return ((seq - reference + _HALF) & MASK) - _HALF


_COUNTERS = (
    "packets",
    "captured_bytes",
    "delivered_bytes",
    "duplicate_bytes",
    "conflict_bytes",
    "skipped_bytes",
    "missed_bytes",
    "cut_bytes",
    "retransmitted_bytes",
    "out_of_order_packets",
    "gaps",
    "conflicts",
    "zero_windows",
    "zero_window_ns",
)
_PLACES = (
    "base",
    "synced",
    "syn",
    "next_offset",
    "top",
    "top_ts_ns",
    "acked_seq",
    "heard_seq",
    "fin",
    "fin_frame",
    "fin_ts_ns",
    "scale",
    "window",
    "zero_since_ns",
    "zero_frame",
    "zero_ts_ns",
    "ts_first_ns",
    "ts_last_ns",
    "frame_last",
)
_NUMBERS = (*_COUNTERS, *_PLACES)
_numbers = attrgetter(*_NUMBERS)


class Stream:
    """What one side sent."""

    __slots__ = (
        *_NUMBERS, "connection", "held", "held_cost", "history", "ready", "side", "skipped_reasons", "syn_frame",
    )  # fmt: skip

    def __init__(self, connection: Connection, side: int) -> None:
        self.connection = connection
        self.side = side
        self.packets = 0
        self.captured_bytes = 0
        self.delivered_bytes = 0
        self.duplicate_bytes = 0
        self.conflict_bytes = 0
        self.skipped_bytes = 0
        self.missed_bytes = 0
        self.cut_bytes = 0
        self.retransmitted_bytes = 0
        self.out_of_order_packets = 0
        self.gaps = 0
        self.conflicts = 0
        self.zero_windows = 0
        self.zero_window_ns = 0
        self.base: int | None = None  # sequence number of offset 0; a guess until `synced`
        self.synced = False
        self.syn = False
        self.next_offset = 0
        self.top = 0  # the highest end of any segment
        self.top_ts_ns = 0
        self.acked_seq: int | None = None
        self.heard_seq: int | None = None  # by acknowledgements alone, where a reset told more; -1: none
        self.fin: int | None = None  # offset where the stream ends
        self.fin_frame = 0
        self.fin_ts_ns = 0
        self.syn_frame = 0
        self.scale = -1
        self.window = -1  # last advertised by this side, scaled
        self.zero_since_ns: int | None = None
        self.zero_frame: int | None = None  # where its receiver first closed the window
        self.zero_ts_ns = 0
        self.ts_first_ns: int | None = None
        self.ts_last_ns: int | None = None
        self.frame_last = 0
        self.held: list[Piece] = []
        self.held_cost = 0
        self.history = b""
        self.ready: list[tuple[int, bytes, int, int]] = []
        self.skipped_reasons: Counter[str] | None = None

    @property
    def direction(self) -> int:
        """0 from the originator, 1 back. Whoever was told a direction keeps it: the roles are settled now."""
        self.connection.emitted = True
        return self.side ^ self.connection.origin

    def offset_of(self, seq: int) -> int:
        assert self.base is not None
        return self.next_offset + distance(seq, self.base + self.next_offset)

    @property
    def acked_offset(self) -> int | None:
        """How far the receiver acknowledged this stream (a FIN counts as one)."""
        if self.acked_seq is None or self.base is None:
            return None
        return self.offset_of(self.acked_seq)

    def sent_before(self, seq: int, length: int) -> bool:
        """Whether these bytes are older than something recorded already: what followed them, or their receipt."""
        if self.base is None or not length:
            return False
        return self.offset_of(seq) + length <= max(self.top, self.fin or 0, self.acked_offset or 0)

    @property
    def settled(self) -> bool:
        """All of it was delivered and its receiver has acknowledged the FIN: nothing sent again can change anything."""
        if self.fin is None or self.next_offset < self.fin:
            return False
        acked = self.acked_offset
        return acked is not None and acked > self.fin

    @property
    def unacked_bytes(self) -> int | None:
        acked = self.acked_offset
        if acked is None:
            return None
        return max(0, max(self.top, self.next_offset) - max(acked, 0))

    @property
    def expected_seq(self) -> int | None:
        """The sequence number that continues this stream in order; None when it is not that simple."""
        if not self.synced or self.held or self.base is None:
            return None
        if self.fin is None:
            return (self.base + self.next_offset) & MASK
        return (self.base + self.next_offset + 1) & MASK if self.fin == self.next_offset else None

    def note(self, first_frame: int, first_ts_ns: int, last_frame: int, last_ts_ns: int) -> None:
        if self.ts_first_ns is None or first_ts_ns < self.ts_first_ns:
            self.ts_first_ns = first_ts_ns
        if self.ts_last_ns is None or (last_ts_ns, last_frame) > (self.ts_last_ns, self.frame_last):
            self.ts_last_ns, self.frame_last = last_ts_ns, last_frame

    def take(self, data: bytes, ts_ns: int) -> None:
        """Bytes known to continue this stream, delivered by the caller."""
        self.captured_bytes += len(data)
        self.delivered_bytes += len(data)
        self.next_offset += len(data)
        self.top, self.top_ts_ns = self.next_offset, ts_ns
        self.remember(data)

    def skip(self, count: int, why: str) -> None:
        if count:
            self.skipped_bytes += count
            if self.skipped_reasons is None:
                self.skipped_reasons = Counter()
            self.skipped_reasons[why] += count

    def begin(self, base: int, out: list[Item]) -> None:
        """Offset 0 is known now: what was held on a guess finds its true place."""
        if self.base is not None:
            shift = distance(base, self.base)
            self.top = max(self._seen_to() - shift, 0)
            self.fin = None if self.fin is None else self.fin - shift
            held, self.held, self.held_cost = self.held, [], 0
            self.base, self.synced = base, True
            for offset, end, data, frame, ts_ns in held:
                offset, end = offset - shift, end - shift
                if offset < 0:
                    self.skip(len(data[: min(-offset, len(data))]) if data is not None else 0, "before_start")
                    data = None if data is None else data[-offset:]
                    offset = 0
                if offset < end:
                    self._hold(len(self.held), offset, end, data, frame, ts_ns)
        self.base, self.synced = base, True
        self.drain(out)

    def receive(
        self, seq: int, data: bytes, missing: int, fin: bool, frame: int, ts_ns: int, out: list[Item]
    ) -> tuple[int, int]:
        """Take one segment's payload; gives (its end offset, bytes that were sent before)."""
        if self.base is None:
            self.base = seq
        offset = self.offset_of(seq)
        end = offset + len(data)
        if fin and self.fin is None and end + missing >= self._seen_to():
            self.fin, self.fin_frame, self.fin_ts_ns = end + missing, frame, ts_ns
        retransmitted = 0
        if end + missing > offset:
            retransmitted = self._payload(offset, end, end + missing, data, frame, ts_ns, out)
        return end + missing, retransmitted

    def _seen_to(self) -> int:
        """Up to where there were bytes. Offset 0 may be a guess by a packet without any, behind all that have some."""
        if self.synced or self.top:
            return self.top
        return self.held[-1][1] if self.held else -_HALF

    def _payload(
        self, offset: int, end: int, wire_end: int, data: bytes, frame: int, ts_ns: int, out: list[Item]
    ) -> int:
        if self.synced and wire_end - offset == 1 and offset == self.next_offset - 1:
            self.duplicate_bytes += end - offset  # a keep-alive: its byte is none of the stream (RFC 9293 3.8.4)
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
        below_top = offset < self.top
        late = ts_ns - self.top_ts_ns
        if wire_end > self.top:
            self.top, self.top_ts_ns = wire_end, ts_ns
        if self.synced and not self.held and offset == self.next_offset and end == wire_end:
            self._deliver(offset, end, data, frame, ts_ns)
            return 0
        fresh = self._place(offset, end, data, frame, ts_ns, out) if end > offset else 0
        if wire_end > end:
            self._place(end, wire_end, None, frame, ts_ns, out)
        retransmitted = len(data) - fresh
        if fresh and below_top:
            if late < _REORDERED_WITHIN_NS:
                self.out_of_order_packets += 1
            else:
                retransmitted = len(data)
        self.retransmitted_bytes += retransmitted
        self.drain(out)
        return retransmitted

    def _place(self, offset: int, end: int, data: bytes | None, frame: int, ts_ns: int, out: list[Item]) -> int:
        """Put what is new of a piece among the held ones and compare the rest; gives how much was new."""
        start, fresh = offset, 0

        def part(a: int, b: int) -> bytes | None:
            return None if data is None else data[a - start : b - start]

        if self.synced and offset < self.next_offset:
            stop = min(end, self.next_offset)
            self._compare(offset, stop, part(offset, stop), self._delivered(offset, stop), frame, ts_ns, out)
            offset = stop
        held = self.held
        index = bisect_left(held, (offset,))
        if index and held[index - 1][1] > offset:
            index -= 1
        while offset < end:
            if index < len(held) and held[index][0] <= offset:
                first, stop = held[index], min(end, held[index][1])
                before = None if first[2] is None else first[2][offset - first[0] : stop - first[0]]
                self._compare(offset, stop, part(offset, stop), before, frame, ts_ns, out, cut=first[2] is None)
            else:
                stop = min(end, held[index][0]) if index < len(held) else end
                self._hold(index, offset, stop, part(offset, stop), frame, ts_ns)
                fresh += stop - offset
            index += 1
            offset = stop
        return fresh

    def _hold(self, index: int, offset: int, end: int, data: bytes | None, frame: int, ts_ns: int) -> None:
        self.held.insert(index, (offset, end, data, frame, ts_ns))
        self.held_cost += max(_LEAST_COST, 0 if data is None else len(data))

    def _compare(
        self,
        offset: int,
        end: int,
        data: bytes | None,
        before: bytes | None,
        frame: int,
        ts_ns: int,
        out: list[Item],
        *,
        cut: bool = False,
    ) -> None:
        """The same place for the second time: `before` is what was there, None when it is no longer known."""
        if data is None:
            return
        if cut:
            self.skip(len(data), "place_was_cut")
        elif before is None or data == before:
            self.duplicate_bytes += len(data)
        else:
            differs = np.flatnonzero(np.frombuffer(data, np.uint8) != np.frombuffer(before, np.uint8))
            low, high = int(differs[0]), int(differs[-1]) + 1
            self.conflict_bytes += high - low
            self.duplicate_bytes += len(data) - (high - low)
            self.conflicts += 1
            self.flush(out)
            crcs = zlib.crc32(before[low:high]), zlib.crc32(data[low:high])
            out.append(Conflict(self.connection, self.direction, offset + low, high - low, frame, ts_ns, *crcs))

    def _delivered(self, offset: int, end: int) -> bytes | None:
        """Bytes of this stream that were delivered already, None when they are too long ago."""
        start = self.next_offset
        if offset < start - HISTORY_BYTES or self.settled:
            return None
        parts: list[bytes] = []
        for at, data, _frame, _ts_ns in reversed(self.ready):
            if start <= offset:
                break
            parts.append(data)
            start = at
        if start > offset:
            if start - len(self.history) > offset:
                return None
            parts.append(self.history)
            start -= len(self.history)
        whole = b"".join(reversed(parts))[offset - start : end - start]
        return whole

    def drain(self, out: list[Item]) -> None:
        """Deliver what has become contiguous."""
        if not self.synced:
            return
        done = 0
        for offset, end, data, frame, ts_ns in self.held:
            if offset > self.next_offset:
                break
            done += 1
            if data is None:
                self.gap(end, frame, ts_ns, out, cut=True)
            else:
                self._deliver(offset, end, data, frame, ts_ns)
            self.held_cost -= max(_LEAST_COST, 0 if data is None else len(data))
        if done:
            del self.held[:done]

    def _deliver(self, offset: int, end: int, data: bytes, frame: int, ts_ns: int) -> None:
        self.connection.emitted = True  # by this packet, whenever it is handed over
        self.ready.append((offset, data, frame, ts_ns))
        self.next_offset = end

    def release(self, most_cost: int, out: list[Item]) -> None:
        """Declare holes to be gaps, the first one first, until no more than `most_cost` waits behind them."""
        while self.held and self.held_cost > most_cost:
            self._release_first(out)

    def give_up(self, now_ns: int, out: list[Item]) -> None:
        """Declare holes to be gaps that nobody waits for any more: what follows them was sent long ago, and their
        receiver does not miss them."""
        while self.held and now_ns - self.held[0][4] > _AWAITED_NS:
            acked = self.acked_offset
            if self.synced and acked is not None and acked < self.held[0][0]:
                return
            self._release_first(out)

    def _release_first(self, out: list[Item]) -> None:
        offset, _end, _data, frame, ts_ns = self.held[0]
        if not self.synced:
            assert self.base is not None
            self.begin((self.base + offset) & MASK, out)
            return
        self.gap(offset, frame, ts_ns, out)
        self.drain(out)

    def gap(self, end: int, frame: int, ts_ns: int, out: list[Item], *, cut: bool = False) -> None:
        self.flush(out)
        length = end - self.next_offset
        acked = self.acked_offset
        covered = True if cut else None if acked is None else acked >= end
        out.append(Gap(self.connection, self.direction, self.next_offset, length, frame, ts_ns, covered, cut))
        self.missed_bytes += length
        self.gaps += 1
        if cut:
            self.cut_bytes += length
        self.history = b""
        self.next_offset = end

    def finish(self, out: list[Item]) -> None:
        """Nothing more will come: all holes are gaps, and so is a tail that only acknowledgements tell of."""
        self.release(-1, out)
        end = self.fin
        if end is None and self.synced and self.packets:
            acked = self.acked_offset
            # One byte beyond the last one is a FIN that was not recorded.
            if acked is not None and 1 < acked - self.next_offset < _FARTHEST_ACK:
                end = acked
        if end is not None and self.synced and end > self.next_offset:
            self.gap(end, self.frame_last, self.ts_last_ns or 0, out)
        self.flush(out)

    def flush(self, out: list[Item]) -> None:
        """Hand over what is ready as one run."""
        if not self.ready:
            return
        offsets, parts, frames, times = zip(*self.ready, strict=True)
        self.ready = []
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.remember(data)
        self.delivered_bytes += len(data)
        if self.connection.dropped:
            return
        columns = (np.array(column, np.int64) for column in (offsets, frames, times))
        out.append(Run(self.connection, self.direction, offsets[0], data, *columns))

    def remember(self, data: bytes) -> None:
        if len(data) >= HISTORY_BYTES:
            self.history = data[-HISTORY_BYTES:]
        else:
            self.history = (self.history + data)[-HISTORY_BYTES:]

    def forget(self) -> None:
        """Keep the numbers only."""
        waiting = sum(len(piece[2]) for piece in self.held if piece[2] is not None)
        self.skip(waiting + sum(len(piece[1]) for piece in self.ready), "not_wanted")
        self.held, self.held_cost, self.ready, self.history = [], 0, [], b""

    def leave(self) -> None:
        """The connection is over and told: only numbers remain."""
        self.held, self.ready, self.history = [], [], b""
        del self.connection

    def state(self) -> list[Any]:
        """Plain data to go on from; whatever is ready must have been flushed."""
        held = [(o, e, None if d is None else _text(d), f, t) for o, e, d, f, t in self.held]
        return [*_numbers(self), dict(self.skipped_reasons or {}), held, _text(self.history)]

    def restore(self, values: list[Any]) -> None:
        *numbers, reasons, held, history = values
        for name, value in zip(_NUMBERS, numbers, strict=True):
            setattr(self, name, value)
        self._restore_held(held)
        self.history = base64.b64decode(history)
        self.skipped_reasons = Counter(reasons) or None

    def _restore_held(self, pieces: Iterable[tuple[int, int, str | None, int, int]]) -> None:
        for offset, end, data, frame, ts_ns in pieces:
            self._hold(len(self.held), offset, end, None if data is None else base64.b64decode(data), frame, ts_ns)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
