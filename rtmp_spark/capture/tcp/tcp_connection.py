"""One TCP connection: two streams, how it began and how it ended.

Two endpoints may have several connections after each other: a SYN with another sequence number begins the next one.
Packets are taken in the order of the recording, but beginning and end are decided by packet times, so that packets
recorded out of order give the same connection.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from rtmp_spark.capture.packets.tcp_segments import ACK, FIN, RST, SYN
from rtmp_spark.capture.tcp.frame_numbers import file_no
from rtmp_spark.capture.tcp.half_stream import Output, Piece, Stream
from rtmp_spark.capture.tcp.packet_history import PacketHistory
from rtmp_spark.capture.tcp.sequence_numbers import MASK, distance
from rtmp_spark.codec.errors import CaptureError
from rtmp_spark.codec.limits import BRIEF_NS, LEAST_RESET_WINDOW, LINGER_NS, OPENING_PACKETS, SILENT_NS

STATE_VERSION = 8
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


class Packet(NamedTuple):
    """The TCP header of one packet, with its place in the recording; its payload is passed separately."""

    side: int  # which endpoint of the key sent it
    frame: int
    ts_ns: int
    seq: int
    ack: int
    flags: int
    window: int
    missing: int = 0  # bytes of the payload that the snapshot length cut off
    vlan: int = -1
    wscale: int = -1  # window scale option; -1: none
    ip_id: int = 0


class Closing(NamedTuple):
    """A FIN or RST."""

    ts_ns: int
    kind: str
    direction: int


class Connection:
    __slots__ = (
        "client_randoms", "dropped", "files", "frame_first", "frame_last", "key", "number", "origin", "origin_known",
        "reset_frame", "reset_side", "reset_ts_ns", "resets_ignored", "seen", "sides", "tag", "ts_first_ns",
        "ts_last_ns", "vlan", "weight",
    )  # fmt: skip

    def __init__(self, key: Key, number: int) -> None:
        self.key = key
        self.number = number
        self.sides = (Stream(0), Stream(1))
        self.origin = 0  # the side that opened it
        self.origin_known = False
        self.files: list[int] = []  # numbers of the files with packets of it, in reading order
        self.dropped = False
        self.seen = PacketHistory()
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
        self.tag: Any = None  # for the consumer of the items
        self.client_randoms: list[bytes] = []  # of its TLS handshakes, set at its end

    # -- what the consumer sees ----------------------------------------------------------------------------------------

    @property
    def emitted(self) -> bool:
        """Something was delivered, so the direction of the streams must not change any more."""
        return self.sides[0].emitted or self.sides[1].emitted

    @emitted.setter
    def emitted(self, value: bool) -> None:
        self.sides[0].emitted = value

    @property
    def streams(self) -> tuple[Stream, Stream]:
        """The stream from the originator and the stream to it."""
        return self.sides[self.origin], self.sides[1 - self.origin]

    @property
    def a(self) -> Endpoint:
        return endpoint(self.key[18 * self.origin :])

    @property
    def b(self) -> Endpoint:
        return endpoint(self.key[18 * (1 - self.origin) :])

    @property
    def midstream(self) -> bool:
        """No SYN was recorded."""
        return not (self.sides[0].syn or self.sides[1].syn)

    @property
    def named(self) -> bool:
        """Its first packet is final, because rows are identified by it: a SYN recorded still later changes nothing."""
        if not self.emitted:
            return False
        low, high = self.sides
        return self.sides[self.origin].syn or low.packets + high.packets > OPENING_PACKETS

    @property
    def _first_closing(self) -> Closing | None:
        closings = [Closing(s.fin_ts_ns, "fin", s.side ^ self.origin) for s in self.sides if s.fin is not None]
        if self.reset_side is not None:
            closings.append(Closing(self.reset_ts_ns, "rst", self.reset_side ^ self.origin))
        return min(closings, default=None)

    @property
    def close_kind(self) -> str:
        first = self._first_closing
        return "open" if first is None else first.kind

    @property
    def closed_by(self) -> int | None:
        """The direction of the first FIN or RST."""
        first = self._first_closing
        return None if first is None else first.direction

    @property
    def closed_ts_ns(self) -> int | None:
        """When the last of both sides ended; None while one may continue."""
        if self.reset_side is not None:
            return self.reset_ts_ns
        low, high = self.sides
        if low.fin is None or high.fin is None:
            return None
        return max(low.fin_ts_ns, high.fin_ts_ns)

    @property
    def over_ns(self) -> int:
        """The time until which packets between its endpoints belong to it."""
        closed = self.closed_ts_ns
        if closed is not None:
            return closed + LINGER_NS
        return (self.ts_last_ns or 0) + (BRIEF_NS if self.unheard else SILENT_NS)

    @property
    def half_open(self) -> bool:
        return not (self.sides[0].captured_bytes or self.sides[1].captured_bytes)

    @property
    def unheard(self) -> bool:
        """No payload of it was delivered or is held."""
        return not self.emitted and self.half_open

    @property
    def is_refused(self) -> bool:
        """A RST answered the SYN."""
        by = self.reset_side
        return by is not None and self.sides[1 - by].syn and not self.sides[by].syn

    def drop(self) -> None:
        """The consumer does not want these bytes: from now on they are only counted."""
        self.dropped = True
        self.seen = PacketHistory()
        for side in self.sides:
            side.forget()

    # -- packets ---------------------------------------------------------------------------------------------------

    def is_over_at(self, ts_ns: int) -> bool:
        """Whether packets of this time belong to the next connection between the same endpoints."""
        return self.ts_last_ns is not None and ts_ns > self.over_ns

    def begins_anew(self, packet: Packet) -> bool:
        """Whether this packet opens the next connection between the same endpoints, although this one is not over."""
        ts_ns, flags = packet.ts_ns, packet.flags
        if not flags & SYN or flags & RST:
            return False
        stream, other = self.sides[packet.side], self.sides[1 - packet.side]
        if stream.syn:
            return stream.base != (packet.seq + 1) & MASK
        if flags & ACK:
            if other.syn:  # it may acknowledge data that came with the SYN (RFC 7413)
                return not 0 <= other.offset_of(packet.ack) <= other.top
        elif stream.synced and stream.base is not None:
            # The base is known from the other side's SYN-ACK, else guessed in the middle of a connection.
            return not other.syn or stream.base != (packet.seq + 1) & MASK
        if self.half_open and self.closed_ts_ns is None:
            return False
        return self.ts_first_ns is not None and ts_ns > self.ts_first_ns

    def weigh(self, *, gone: bool = False) -> tuple[int, int]:
        """By how much (held bytes, history bytes) have grown since the last call."""
        low, high = self.sides
        history = len(low.history) + len(high.history) + self.seen.size_bytes
        weight = (0, 0) if gone else (low.held_cost + high.held_cost, history)
        change = weight[0] - self.weight[0], weight[1] - self.weight[1]
        self.weight = weight
        return change

    def flush(self, out: Output) -> None:
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
        self.note_file(file_no(frame))
        last = self.ts_last_ns
        if last is None or ts_ns > last or (ts_ns == last and frame > self.frame_last):
            self.ts_last_ns = ts_ns
            self.frame_last = frame

    def note_file(self, number: int) -> None:
        if not self.files or (self.files[-1] != number and number not in self.files):
            self.files.append(number)

    def count_duplicates(self, side: int, packets: int, size: int, frame: int, ts_ns: int) -> None:
        """Packets of one side that were recorded before; the first of them is `frame`."""
        stream = self.sides[side]
        stream.duplicate_packets += packets
        stream.duplicate_bytes += size
        stream.captured_bytes += size
        self.note_file(file_no(frame))
        if stream.duplicate_frame is None:
            stream.duplicate_frame, stream.duplicate_ts_ns = frame, ts_ns

    def opened_by(self, side: int) -> None:
        if not self.origin_known and not self.emitted:
            self.origin, self.origin_known = side, True

    def receive(self, packet: Packet, data: bytes, out: Output) -> tuple[int, int]:
        """Take any packet; returns (end offset of its payload or -1, retransmitted bytes)."""
        side, frame, ts_ns, seq, ack, flags, window, missing, vlan, wscale, ip_id = packet
        stream, other = self.sides[side], self.sides[1 - side]
        self.note(side, frame, ts_ns, vlan)
        stream.packets += 1
        stream.captured_bytes += len(data)
        stream.note(ts_ns, frame, ts_ns)
        if flags & ACK:
            self.acknowledge(other, ack)
        if flags & RST:
            stream.skip(len(data), "in_reset")  # some systems explain a reset in text
            self._reset(packet)
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
        payload = Piece(0, len(data), data, frame, ts_ns, ip_id)
        end, retransmitted = stream.receive(seq, payload, missing, bool(flags & FIN), out)
        return (end if data or missing else -1), retransmitted

    def scaled(self, stream: Stream, window: int, flags: int) -> int:
        both = self.sides[0].scale >= 0 and self.sides[1].scale >= 0
        return window if flags & SYN or not both else window << stream.scale

    def window_shift(self, stream: Stream) -> int:
        """The scale of the windows that this side advertises (RFC 7323 2.2); -1 if it is unknown."""
        other = self.sides[1 - stream.side]
        if (stream.syn and stream.scale < 0) or (other.syn and other.scale < 0):
            return 0  # without the option on one side, neither scales
        answers = self.origin_known and stream.side != self.origin  # a SYN-ACK has the option only if the SYN had it
        return stream.scale if stream.syn and (other.syn or answers) else -1

    def scaled_since(self, stream: Stream) -> int:
        """The packet from which `window_shift` of this side is known."""
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

    def synchronise(self, side: int, frame: int, seq: int, ack: int, flags: int, wscale: int, out: Output) -> None:
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

    def _reset(self, packet: Packet) -> None:
        if self.reset_side is not None:
            return
        stream, other = self.sides[packet.side], self.sides[1 - packet.side]
        if stream.synced and stream.base is not None:
            offset = stream.offset_of(packet.seq)
            acked = stream.acked_offset
            low = stream.next_offset if acked is None else min(stream.next_offset, acked)
            high = max(stream.top, stream.next_offset, acked or 0) + max(other.window, LEAST_RESET_WINDOW)
            acceptable = low <= offset <= high
            if acceptable and not packet.flags & ACK:
                heard = -1 if stream.acked_seq is None else stream.acked_seq
                self.acknowledge(stream, packet.seq)  # the last acknowledgement of the other (RFC 9293 3.10.7.1)
                stream.heard_seq = heard
        elif packet.flags & ACK and other.synced and other.base is not None:
            # The SYN was refused: the sequence number of this RST is 0 and means nothing (RFC 9293 3.5.2).
            acceptable = abs(distance(packet.ack, other.base + other.next_offset)) <= LEAST_RESET_WINDOW
        else:
            acceptable = True
        if acceptable:
            self.reset_side, self.reset_frame, self.reset_ts_ns = stream.side, packet.frame, packet.ts_ns
        else:
            self.resets_ignored += 1

    # -- state -----------------------------------------------------------------------------------------------------

    def state(self, next_head_ns: int | None = None) -> list[Any]:
        """Plain data to resume from in another process; take it between two feeds. `next_head_ns`: when the next file
        begins; it may repeat packets since then."""
        overlaps = next_head_ns is not None and (self.ts_last_ns or 0) >= next_head_ns
        sides = [side.state() for side in self.sides]
        return [STATE_VERSION, self.key.hex(), *_kept(self), self.seen.state(overlaps), *sides]

    @classmethod
    def resume(cls, state: list[Any], number: int) -> Connection:
        try:
            version, key, *kept, seen, low, high = state
            if version != STATE_VERSION:
                raise ValueError(f"version {version}")
            connection = cls(bytes.fromhex(key), number)
            connection.seen = PacketHistory.resume(seen)
            for side, saved in zip(connection.sides, (low, high)):
                side.restore(saved)
            for name, value in zip(_KEPT, kept, strict=True):
                setattr(connection, name, value)
        except (ValueError, TypeError) as error:
            detail = f"the saved state of a connection cannot be read: {error}"
            raise CaptureError(None, detail, "ingest again with --redo") from None
        return connection


_KEPT = (
    "origin", "origin_known", "emitted", "files", "dropped", "reset_side", "reset_frame", "reset_ts_ns",
    "resets_ignored", "ts_first_ns", "ts_last_ns", "frame_first", "frame_last", "vlan",
)  # fmt: skip
_kept = attrgetter(*_KEPT)
