"""One TCP connection: two streams, how it began and how it ended.

A connection is one incarnation of its two endpoints: a SYN with another sequence number begins the next one.
Packets are taken in the order of the recording, but beginnings and ends are judged by their times, so that
packets recorded out of order give the same connection.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from operator import attrgetter
from typing import Any

from rtmp_spark.capture.items import FRAME_BITS, Closed, End, Item
from rtmp_spark.capture.packet import ACK, FIN, RST, SYN
from rtmp_spark.capture.stream import MASK, Stream, distance
from rtmp_spark.codec.errors import CaptureError

STATE_VERSION = 3
LINGER_NS = 60_000_000_000  # a closed connection still owns its packets for so long (TIME_WAIT)
SILENT_NS = 86_400_000_000_000  # an open one too; nobody could keep all that were never closed
_OPENING = 1000  # packets, among which the SYN may be recorded in any place
BRIEF_NS = 240_000_000_000  # and one that said nothing yet (RFC 5382 5, REQ-5: partially open connections)
_LEAST_WINDOW = 65_535
_IPV4_MAPPED = bytes(10) + b"\xff\xff"

Key = bytes  # both endpoints, the lower one first: 16 bytes of address and 2 of port each
Endpoint = tuple[str, int]


def endpoint(packed: bytes) -> Endpoint:
    return _host(packed[:16]), int.from_bytes(packed[16:18], "big")


@lru_cache(4096)
def _host(packed: bytes) -> str:
    if packed.startswith(_IPV4_MAPPED):
        return "{}.{}.{}.{}".format(*packed[12:])
    return str(ipaddress.IPv6Address(packed))


class Connection:
    __slots__ = (
        "client_randoms",
        "dropped",
        "emitted",
        "files",
        "frame_first",
        "frame_last",
        "key",
        "number",
        "origin",
        "origin_known",
        "resets_ignored",
        "reset_frame",
        "reset_side",
        "reset_ts_ns",
        "sides",
        "tag",
        "ts_first_ns",
        "ts_last_ns",
        "vlan",
        "weight",
    )

    def __init__(self, key: Key, number: int) -> None:
        self.key = key
        self.number = number
        self.sides = (Stream(self, 0), Stream(self, 1))
        self.origin = 0  # the side that opened it
        self.origin_known = False
        self.emitted = False
        self.files: list[int] = []  # that hold packets of it, in the order they were read
        self.dropped = False
        self.reset_side: int | None = None
        self.reset_frame = 0
        self.reset_ts_ns = 0
        self.resets_ignored = 0
        self.ts_first_ns: int | None = None
        self.ts_last_ns: int | None = None
        self.frame_first = 0
        self.frame_last = 0
        self.vlan: int | None = None
        self.weight = (0, 0)
        self.tag: Any = None
        self.client_randoms: list[bytes] = []  # of the TLS handshakes on it, once it is over

    # What the consumer sees

    @property
    def streams(self) -> tuple[Stream, Stream]:
        """From the originator and back."""
        return self.sides[self.origin], self.sides[1 - self.origin]

    @property
    def a(self) -> Endpoint:
        return endpoint(self.key[18 * self.origin :])

    @property
    def b(self) -> Endpoint:
        return endpoint(self.key[18 * (1 - self.origin) :])

    @property
    def midstream(self) -> bool:
        """Nobody's SYN was recorded."""
        return not (self.sides[0].syn or self.sides[1].syn)

    @property
    def named(self) -> bool:
        """When it began is settled, as rows are told by that: a SYN that is recorded still later changes nothing."""
        if not self.emitted:
            return False
        low, high = self.sides
        return self.sides[self.origin].syn or low.packets + high.packets > _OPENING

    @property
    def _first_end(self) -> tuple[int, str, int] | None:
        ends = [(side.fin_ts_ns, "fin", side.side ^ self.origin) for side in self.sides if side.fin is not None]
        if self.reset_side is not None:
            ends.append((self.reset_ts_ns, "rst", self.reset_side ^ self.origin))
        return min(ends, default=None)

    @property
    def close_kind(self) -> str:
        first = self._first_end
        return "open" if first is None else first[1]

    @property
    def closed_by(self) -> int | None:
        """The direction of the first FIN or RST."""
        first = self._first_end
        return None if first is None else first[2]

    @property
    def closed_ts_ns(self) -> int | None:
        """When the last of both sides ended, None while one may go on."""
        if self.reset_side is not None:
            return self.reset_ts_ns
        low, high = self.sides
        if low.fin is None or high.fin is None:
            return None
        return max(low.fin_ts_ns, high.fin_ts_ns)

    @property
    def over_ns(self) -> int:
        """The time up to which packets between these endpoints are its own."""
        closed = self.closed_ts_ns
        if closed is not None:
            return closed + LINGER_NS
        return (self.ts_last_ns or 0) + (BRIEF_NS if self.unheard else SILENT_NS)

    @property
    def half_open(self) -> bool:
        return not (self.sides[0].captured_bytes or self.sides[1].captured_bytes)

    @property
    def unheard(self) -> bool:
        """Nothing of it was delivered, and nothing waits to be."""
        return not self.emitted and self.half_open

    def drop(self) -> None:
        """The consumer does not want these bytes: from now on they are counted, not joined."""
        self.dropped = True
        for side in self.sides:
            side.forget()

    # Taking packets

    def begins_anew(self, side: int, seq: int, ack: int, flags: int, ts_ns: int) -> bool:
        """Whether this packet belongs to the next connection between the same endpoints."""
        if self.ts_last_ns is not None and ts_ns > self.over_ns:
            return True
        if not flags & SYN or flags & RST:
            return False
        stream, other = self.sides[side], self.sides[1 - side]
        if stream.syn:
            return stream.base != (seq + 1) & MASK
        if flags & ACK:
            if other.syn:  # it may acknowledge data that came with the SYN (RFC 7413)
                return not 0 <= other.offset_of(ack) <= other.top
        elif stream.synced and stream.base is not None:
            # Told by the other side's SYN-ACK, else guessed in the middle of a connection.
            return not other.syn or stream.base != (seq + 1) & MASK
        if self.half_open and self.closed_ts_ns is None:
            return False
        return self.ts_first_ns is not None and ts_ns > self.ts_first_ns

    def weigh(self, *, gone: bool = False) -> tuple[int, int]:
        """By how much the bytes held and remembered here have grown since the last time."""
        low, high = self.sides
        weight = (0, 0) if gone else (low.held_cost + high.held_cost, len(low.history) + len(high.history))
        change = weight[0] - self.weight[0], weight[1] - self.weight[1]
        self.weight = weight
        return change

    def flush(self, out: list[Item]) -> None:
        for side in self.sides:
            side.flush(out)

    def note(self, side: int, frame: int, ts_ns: int, vlan: int) -> None:
        first = self.ts_first_ns
        if first is None or ((ts_ns, frame) < (first, self.frame_first) and not self.named):
            self.ts_first_ns = ts_ns
            self.frame_first = frame
            if not self.origin_known and not self.emitted:
                self.origin = side
        if vlan >= 0 and self.vlan is None:
            self.vlan = vlan
        self.note_last(frame, ts_ns)

    def note_last(self, frame: int, ts_ns: int) -> None:
        """A packet that may be its last, never its first."""
        number = frame >> FRAME_BITS
        if not self.files or (self.files[-1] != number and number not in self.files):
            self.files.append(number)
        last = self.ts_last_ns
        if last is None or ts_ns > last or (ts_ns == last and frame > self.frame_last):
            self.ts_last_ns = ts_ns
            self.frame_last = frame

    def opened_by(self, side: int) -> None:
        if not self.origin_known and not self.emitted:
            self.origin, self.origin_known = side, True

    def receive(
        self,
        side: int,
        frame: int,
        ts_ns: int,
        seq: int,
        ack: int,
        flags: int,
        window: int,
        data: bytes,
        missing: int,
        vlan: int,
        wscale: int,
        out: list[Item],
    ) -> tuple[int, int]:
        """One packet, the careful way; gives (end offset of its payload or -1, retransmitted bytes)."""
        stream, other = self.sides[side], self.sides[1 - side]
        self.note(side, frame, ts_ns, vlan)
        stream.packets += 1
        stream.captured_bytes += len(data)
        stream.note(frame, ts_ns, frame, ts_ns)
        if flags & ACK:
            self.acknowledge(other, ack)
        if flags & RST:
            stream.skip(len(data), "in_reset")  # some systems explain a reset in words
            self._reset(stream, other, seq, ack, flags, frame, ts_ns)
            return -1, 0
        if flags & SYN:
            self.synchronise(side, frame, seq, ack, flags, wscale, out)
            seq = (seq + 1) & MASK
        stream.window = self.scaled(stream, window, flags)
        if self.dropped:
            stream.skip(len(data), "not_wanted")
            if flags & FIN and stream.fin is None:
                stream.fin, stream.fin_frame, stream.fin_ts_ns = stream.next_offset, frame, ts_ns
            return -1, 0
        if self.reset_side is not None and ts_ns > self.reset_ts_ns:
            if not stream.sent_before(seq, len(data) + missing):
                stream.skip(len(data), "after_reset")
                return -1, 0
        if not data and not missing and not flags & FIN:
            if stream.base is None:
                stream.base = seq
            return -1, 0
        end, retransmitted = stream.receive(seq, data, missing, bool(flags & FIN), frame, ts_ns, out)
        return (end if data or missing else -1), retransmitted

    def scaled(self, stream: Stream, window: int, flags: int) -> int:
        both = self.sides[0].scale >= 0 and self.sides[1].scale >= 0
        return window if flags & SYN or not both else window << stream.scale

    def window_shift(self, stream: Stream) -> int:
        """By how much the windows that this side announces are shifted (RFC 7323 2.2), -1 where nothing tells."""
        other = self.sides[1 - stream.side]
        if (stream.syn and stream.scale < 0) or (other.syn and other.scale < 0):
            return 0  # one side without the option: none scales
        answers = self.origin_known and stream.side != self.origin  # a SYN-ACK has it only where the SYN had
        return stream.scale if stream.syn and (other.syn or answers) else -1

    def scaled_since(self, stream: Stream) -> int:
        """The packet that told `window_shift` for this side."""
        other = self.sides[1 - stream.side]
        plain = [side.syn_frame for side in self.sides if side.syn and side.scale < 0]
        if plain:
            return min(plain)
        answers = self.origin_known and stream.side != self.origin
        return stream.syn_frame if answers else max(stream.syn_frame, other.syn_frame)

    def acknowledge(self, stream: Stream, ack: int) -> None:
        if stream.acked_seq is None or distance(ack, stream.acked_seq) > 0:
            stream.acked_seq = ack
        heard = stream.heard_seq
        if heard is not None and (heard < 0 or distance(ack, heard) > 0):
            stream.heard_seq = ack

    def synchronise(self, side: int, frame: int, seq: int, ack: int, flags: int, wscale: int, out: list[Item]) -> None:
        stream, other = self.sides[side], self.sides[1 - side]
        if stream.syn:
            return
        self.opened_by(1 - stream.side if flags & ACK else stream.side)
        stream.syn, stream.syn_frame = True, frame
        stream.scale = wscale
        if not stream.synced:
            stream.begin((seq + 1) & MASK, out)
        if flags & ACK and not other.synced:
            other.begin(ack, out)

    def _reset(self, stream: Stream, other: Stream, seq: int, ack: int, flags: int, frame: int, ts_ns: int) -> None:
        if self.reset_side is not None:
            return
        if stream.synced and stream.base is not None:
            offset = stream.offset_of(seq)
            acked = stream.acked_offset
            low = stream.next_offset if acked is None else min(stream.next_offset, acked)
            high = max(stream.top, stream.next_offset, acked or 0) + max(other.window, _LEAST_WINDOW)
            acceptable = low <= offset <= high
            if acceptable and not flags & ACK:
                heard = -1 if stream.acked_seq is None else stream.acked_seq
                self.acknowledge(stream, seq)  # it is what the other acknowledged last (RFC 9293 3.10.7.1)
                stream.heard_seq = heard
        elif flags & ACK and other.synced and other.base is not None:
            # The refusal of a SYN: its own sequence number is 0 and says nothing (RFC 9293 3.5.2).
            acceptable = abs(distance(ack, other.base + other.next_offset)) <= _LEAST_WINDOW
        else:
            acceptable = True
        if acceptable:
            self.reset_side, self.reset_frame, self.reset_ts_ns = stream.side, frame, ts_ns
        else:
            self.resets_ignored += 1

    def finish(self, out: list[Item]) -> None:
        """No packet will come any more: holes are gaps, both streams end."""
        if not self.dropped:
            for stream in self.streams:
                stream.finish(out)
                stream.history = b""
                if stream.packets:
                    out.append(self._end(stream))
        out.append(Closed(self))

    def _end(self, stream: Stream) -> End:
        if stream.fin is not None:
            return End(self, stream.direction, "fin", stream.next_offset, stream.fin_frame, stream.fin_ts_ns)
        if self.reset_side is not None:
            return End(self, stream.direction, "rst", stream.next_offset, self.reset_frame, self.reset_ts_ns)
        return End(self, stream.direction, "open", stream.next_offset, stream.frame_last, stream.ts_last_ns or 0)

    # The state as a value

    def state(self) -> list[Any]:
        """Everything needed to go on in another process; take it between two feeds, before `finish`."""
        return [STATE_VERSION, self.key.hex(), *_kept(self), *(side.state() for side in self.sides)]

    @classmethod
    def resume(cls, state: list[Any], number: int) -> Connection:
        try:
            version, key, *kept, low, high = state
            if version != STATE_VERSION:
                raise ValueError(f"version {version}")
            connection = cls(bytes.fromhex(key), number)
            for name, value in zip(_KEPT, kept, strict=True):
                setattr(connection, name, value)
            for side, saved in zip(connection.sides, (low, high)):
                side.restore(saved)
        except (ValueError, TypeError) as error:
            detail = f"the saved state of a connection cannot be used: {error}"
            raise CaptureError(None, detail, "ingest again with --redo") from None
        return connection


_KEPT = (
    "origin",
    "origin_known",
    "emitted",
    "files",
    "dropped",
    "reset_side",
    "reset_frame",
    "reset_ts_ns",
    "resets_ignored",
    "ts_first_ns",
    "ts_last_ns",
    "frame_first",
    "frame_last",
    "vlan",
)
_kept = attrgetter(*_KEPT)
