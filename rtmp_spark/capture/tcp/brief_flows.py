"""Flows that carry almost nothing: their packets wait here, packed, until there are more of them.

A SYN flood, a port scan or a flood of single packets must not cost an object per connection. A flow with a few packets
and at most one short payload in each direction is a string of bytes. Its next packet, or the end of the recording,
turns it into segments again, which are reassembled as if they had just been read.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Container, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from rtmp_spark.capture.packet_block import PADDING, Ints
from rtmp_spark.capture.packets.connection_groups import Flows
from rtmp_spark.capture.packets.tcp_segments import ACK, RST, SYN, Segments
from rtmp_spark.capture.tcp.frame_numbers import file_no
from rtmp_spark.capture.tcp.sequence_numbers import MASK
from rtmp_spark.capture.tcp.tcp_connection import Key
from rtmp_spark.codec.limits import (
    BRIEF_FLOW_COST,
    BRIEF_FLOW_PACKETS,
    BRIEF_FLOW_PAYLOAD,
    BRIEF_NS,
    LINGER_NS,
    SILENT_FLOW_PACKETS,
)

_PACKED = np.dtype(
    [
        ("frame", "<i8"), ("ts_ns", "<i8"), ("seq", "<u4"), ("ack", "<u4"), ("flags", "<u2"), ("window", "<u2"),
        ("length", "<u2"), ("vlan", "<i2"), ("wscale", "i1"), ("ip_id", "<u4"), ("side", "u1"), ("header", "u1"),
    ]
)  # fmt: skip
_HEADER = struct.Struct("<qqIIHHHhbIBB")  # the same
_COLUMNS = ("frame", "ts_ns", "seq", "ack", "flags", "window", "length", "vlan", "wscale", "ip_id")
_SIZE = _PACKED.itemsize
_COUNT = 0x3F  # in the first byte of a packed flow; the upper bits tell which sides sent a payload
_SPOKE = (0x40, 0x80)


class BriefFlow(NamedTuple):
    """A connection that never became longer."""

    key: Key
    payloads: tuple[bytes, ...]  # of one direction each
    files: set[int]  # numbers of the files with packets of it
    is_refused: bool = False  # a RST answered its SYN


class SavedBriefFlow(NamedTuple):
    """A connection that is brief so far, and its packets as `BriefFlows.resume` takes them."""

    flow: BriefFlow
    ts_last_ns: int
    packed: bytes


class BriefFlows:
    """Takes the packets of brief flows out of batches. The caller bounds `bytes`: it ends the `oldest` flows."""

    def __init__(self) -> None:
        self._flows: dict[Key, bytes] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._flows)

    def sift(self, segments: Segments, flows: Flows, is_open: Container[Key]) -> Segments:
        """The segments to reassemble now: without those of brief flows, and with earlier segments of flows that are no
        longer brief."""
        brief = self._brief_groups(segments, flows)
        held: list[int] = []
        woken: list[Key] = []
        for number, (key, is_brief) in enumerate(zip(flows.keys, brief, strict=True)):
            if key in is_open:
                continue
            if is_brief and self._fits(key, is_brief):
                held.append(number)
            elif key in self._flows:
                woken.append(key)
        if held:
            segments = self._hold(segments, flows, held, brief)
        return self.wake(woken).joined(segments) if woken else segments

    def _brief_groups(self, segments: Segments, flows: Flows) -> list[int]:
        """Per group of the batch, the first byte of its packed form if it is brief, else 0."""
        length, side = segments.length[flows.order], flows.side
        count = np.diff(np.append(flows.starts, len(length)))
        spoke = [np.add.reduceat((length > 0) & (side == s), flows.starts, dtype=np.int64) for s in (0, 1)]
        brief = (spoke[0] <= 1) & (spoke[1] <= 1)
        brief &= count <= np.where(spoke[0] | spoke[1], BRIEF_FLOW_PACKETS, SILENT_FLOW_PACKETS)
        brief &= np.add.reduceat(length, flows.starts) <= BRIEF_FLOW_PAYLOAD
        brief &= np.add.reduceat(segments.missing[flows.order], flows.starts) == 0
        heads: list[int] = np.where(brief, count | spoke[0] * _SPOKE[0] | spoke[1] * _SPOKE[1], 0).tolist()
        return heads

    def _fits(self, key: Key, head: int) -> bool:
        """Whether a flow stays brief with these packets added."""
        before = self._flows.get(key)
        if before is None:
            return True
        both = (before[0] & _COUNT) + (head & _COUNT)
        most = BRIEF_FLOW_PACKETS if (before[0] | head) & ~_COUNT else SILENT_FLOW_PACKETS
        return both <= most and not before[0] & head & ~_COUNT

    def _hold(self, segments: Segments, flows: Flows, held: list[int], heads: list[int]) -> Segments:
        """Pack the packets of these groups; returns the other segments."""
        is_held = np.zeros(len(flows.keys), bool)
        is_held[held] = True
        rows = is_held[flows.group]
        packets = flows.order[rows]
        packed = np.empty(len(packets), _PACKED)
        for name in _COLUMNS:
            packed[name] = getattr(segments, name)[packets]
        packed["side"] = flows.side[rows]
        header, start = segments.header[packets], segments.start[packets]
        packed["header"] = start - header
        raw, data = packed.tobytes(), segments.data
        first, last = header.tolist(), (start + segments.length[packets]).tolist()
        at = 0
        for number in held:
            head = heads[number]
            end = at + (head & _COUNT)
            wire = b"".join([data[first[i] : last[i]] for i in range(at, end)])  # TCP headers and payloads
            self._add(flows.keys[number], head, raw[at * _SIZE : end * _SIZE], wire)
            at = end
        others = np.ones(len(segments), bool)
        others[packets] = False
        return segments.select(others)

    def _add(self, key: Key, head: int, packets: bytes, wire: bytes) -> None:
        before = self._flows.get(key)
        if before is None:
            self._flows[key] = value = b"%c%b%b" % (head, packets, wire)
            self.bytes += BRIEF_FLOW_COST + len(value)
            return
        split = 1 + (before[0] & _COUNT) * _SIZE
        head = (before[0] | head) & ~_COUNT | (before[0] & _COUNT) + (head & _COUNT)
        self._flows[key] = b"%c%b%b%b%b" % (head, before[1:split], packets, before[split:], wire)
        self.bytes += len(packets) + len(wire)

    def wake(self, keys: list[Key]) -> Segments:
        """The segments of these flows, which are no longer kept here."""
        values = [self._flows.pop(key) for key in keys]
        self.bytes -= sum(map(len, values)) + BRIEF_FLOW_COST * len(values)
        counts = [value[0] & _COUNT for value in values]
        splits = [1 + count * _SIZE for count in counts]
        raw = b"".join([value[1:split] for value, split in zip(values, splits, strict=True)])
        data = b"".join([*(value[split:] for value, split in zip(values, splits, strict=True)), PADDING])
        packed = np.frombuffer(raw, _PACKED)
        column = {name: packed[name].astype(np.int64) for name in _COLUMNS}
        ends = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 36).repeat(counts, axis=0)
        low, high, from_low = ends[:, :18], ends[:, 18:], (packed["side"] == 0)[:, np.newaxis]
        sender, receiver = np.where(from_low, low, high), np.where(from_low, high, low)
        size = packed["header"].astype(np.int64)
        header = np.cumsum(size + column["length"]) - size - column["length"]
        segments = Segments(
            data=data, src=np.ascontiguousarray(sender[:, :16]), dst=np.ascontiguousarray(receiver[:, :16]),
            sport=_port(sender), dport=_port(receiver), start=header + size,
            missing=np.zeros(len(packed), np.int64), header=header, **column,
        )  # fmt: skip
        return segments.select(np.argsort(segments.frame, kind="stable"))

    def lasting(self, newest_ns: int, keys: Iterable[Key] | None = None) -> list[Key]:
        """Those of these flows (default: all) whose next packet may still come."""
        return [
            key for key in (self._flows if keys is None else keys) if _last_ns(self._flows[key]) + BRIEF_NS >= newest_ns
        ]

    def packed_to_save(self, newest_ns: int, wanted: Callable[[BriefFlow], bool]) -> Iterator[SavedBriefFlow]:
        """The `lasting` flows that are one connection each and, by their packets so far, not `wanted`."""
        for key in self.lasting(newest_ns):
            value = self._flows[key]
            flow = _flow(key, value)
            if flow is not None and not wanted(flow):
                yield SavedBriefFlow(flow, _last_ns(value), value)

    def resume(self, key: Key, packed: bytes) -> None:
        """Continue a flow of an earlier recording."""
        self._flows[key] = packed
        self.bytes += BRIEF_FLOW_COST + len(packed)

    def oldest(self, count: int) -> list[Key]:
        return list(itertools.islice(self._flows, count))

    def end(self, keys: list[Key], wanted: Callable[[BriefFlow], bool]) -> list[Key]:
        """Remove the flows that are one connection each and not `wanted`; returns the keys of the others."""
        others = []
        for key in keys:
            value = self._flows[key]
            flow = _flow(key, value)
            if flow is None or wanted(flow):
                others.append(key)
            else:
                del self._flows[key]
                self.bytes -= BRIEF_FLOW_COST + len(value)
        return others


def _port(ends: Ints) -> Ints:
    port: Ints = ends[:, 16].astype(np.int64) << 8 | ends[:, 17]
    return port


def _packets(value: bytes) -> Iterator[tuple[int, ...]]:
    return _HEADER.iter_unpack(value[1 : 1 + (value[0] & _COUNT) * _SIZE])


def _last_ns(value: bytes) -> int:
    if value[0] & _COUNT == 1:
        last: int = _HEADER.unpack_from(value, 1)[1]
        return last
    return max(packet[1] for packet in _packets(value))


def _flow(key: Key, value: bytes) -> BriefFlow | None:
    """What a packed flow is; None if only its reassembly can tell: it may be several connections, or the place of its
    payload matters."""
    if value[0] == 1:  # one packet without payload
        return BriefFlow(key, (), {file_no(_HEADER.unpack_from(value, 1)[0])})
    at = 1 + (value[0] & _COUNT) * _SIZE
    payloads: list[bytes] = []
    files: set[int] = set()
    flags_seen = 0
    times: list[int] = []
    syn = syn_ack = None
    reset_by = 0  # a bit for each side
    for frame, ts_ns, seq, ack, flags, _, length, _, _, _, side, header in _packets(value):
        files.add(file_no(frame))
        times.append(ts_ns)
        if flags & SYN:
            if flags & ACK:
                fits = syn_ack in (None, (side, seq, ack)) and (syn is None or (1 - side, ack) == syn)
                syn_ack = (side, seq, ack)
            else:
                fits = syn in (None, (side, (seq + 1) & MASK)) and syn_ack is None
                syn = (side, (seq + 1) & MASK)
            if not fits or (not flags_seen & SYN and len(times) > 1):
                return None
        if flags & RST:
            reset_by |= 1 << side
        flags_seen |= flags
        at += header
        if length:
            payloads.append(value[at : at + length])
            at += length
    if max(times) - min(times) > LINGER_NS or (payloads and flags_seen & (SYN | RST)):
        return None
    is_refused = syn is not None and syn_ack is None and bool(reset_by & 1 << (1 - syn[0]))
    return BriefFlow(key, tuple(payloads), files, is_refused)
