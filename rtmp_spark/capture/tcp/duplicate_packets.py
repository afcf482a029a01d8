"""Finds packets that were recorded more than once: by two capture tools, a mirror port, or in overlapping files.

A duplicate is the same datagram: its IP id, the TCP header with the timestamp option, and its payload length are equal
(TTL, DSCP, VLAN and MAC addresses may differ), within 1 s in one file or at any distance between two files. A
retransmission gets a new IP id. Where the IP id is 0 (IPv6 has none), a retransmission differs in its timestamp option;
without that option only packets with the same capture time are duplicates.

Most connections of a batch have no packet that repeats sequence and acknowledgement numbers. They cost a few column
operations; only the others are searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rtmp_spark.capture.packet_block import Flags, Ints, rows_at
from rtmp_spark.capture.packets.connection_groups import Flows
from rtmp_spark.capture.packets.tcp_segments import ACK, FIN, RST, SYN, Segments
from rtmp_spark.capture.tcp.frame_numbers import file_no
from rtmp_spark.capture.tcp.packet_history import Chunk, Hashes, PacketHistory
from rtmp_spark.capture.tcp.sequence_numbers import MASK, signed
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.codec.limits import BRIEF_NS

_HEADER = 32  # bytes of the TCP header that are compared: with the timestamp option
_TIMESTAMPS = 0x0101080A  # the usual beginning of the options
_ODD = tuple(np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xFF51AFD7ED558CCD))
_SPAN = 1 << 34  # larger than any difference of sequence numbers; separates directions in running maxima
_NOTHING = -(1 << 33)
_FAR = 1 << 30  # the order of sequence numbers farther apart is uncertain


class Repeated(NamedTuple):
    """Packets of a batch, by index; and by group, whether the connection may end or another one begin in it."""

    duplicates: Flags
    same_id: Flags  # retransmissions that repeat the IP id: the network doubled them
    eventful: Flags

    def mark(self, segments: Segments, packets: Ints, again: Flags, same_id: Flags) -> None:
        """Note which of these packets are duplicates."""
        for index in np.flatnonzero(again).tolist():  # a damaged copy is compared with the first packet later
            again[index] = segments.intact(int(packets[index])) is not False
        self.duplicates[packets] = again
        self.same_id[packets] = same_id & (segments.ip_id[packets] != 0)

    def select(self, wanted: Flags) -> Repeated:
        return Repeated(self.duplicates[wanted], self.same_id[wanted], self.eventful)


def find_duplicates(
    segments: Segments, flows: Flows, connections: Sequence[Connection], by_flow: Ints, remembered: int
) -> Repeated | None:
    """The packets of a batch that were recorded before; None if there are none. Adds all packets to the histories.

    `connections` are those of the groups, `by_flow` the rows sorted by direction. `remembered`: packets of each
    connection that are kept for comparison with later files.
    """
    hashes = _hashes(segments)[flows.order]
    times = segments.ts_ns[flows.order]
    oldest, newest = (part.reduceat(times, flows.starts).tolist() for part in (np.minimum, np.maximum))
    happens = (np.bitwise_or.reduceat(segments.flags[flows.order], flows.starts) & (SYN | FIN | RST)).tolist()
    bounds = [*flows.starts.tolist(), len(times)]
    first_frames = segments.frame[flows.order[flows.starts]].tolist()
    eventful = []
    for number, connection in enumerate(connections):
        last_ns = connection.ts_last_ns
        if last_ns is not None and times[bounds[number]] > connection.over_ns:
            connection.seen = PacketHistory()  # these packets begin the next connection
        silence = newest[number] - (oldest[number] if last_ns is None else last_ns)
        eventful.append(happens[number] != 0 or silence > BRIEF_NS or connection.closed_ts_ns is not None)
    suspected = _connections_with_repetition(segments, flows, connections, by_flow)
    found: Repeated | None = None
    for number, connection in enumerate(connections):
        if connection.dropped and not eventful[number]:
            continue
        rows = slice(bounds[number], bounds[number + 1])
        history = connection.seen
        history.begin_file(file_no(first_frames[number]))
        own = hashes[rows]
        if suspected[number]:
            again, same_id = history.find(own, times[rows])
            if again.any() or same_id.any():
                if found is None:
                    nothing = np.zeros(len(segments), bool)
                    found = Repeated(nothing, nothing.copy(), np.array(eventful, bool))
                found.mark(segments, flows.order[rows], again, same_id)
        history.add(Chunk(oldest[number], newest[number], own.copy(), times[rows].copy()), remembered)
    return found


def count_duplicates(
    segments: Segments, flows: Flows, connections: Sequence[Connection], duplicates: Flags
) -> None:  # fmt: skip
    """Count packets that were recorded before; they are not delivered."""
    rows = np.flatnonzero(duplicates[flows.order])
    flow = (flows.group * 2 + flows.side)[rows]
    packet = flows.order[rows]
    for one in np.unique(flow).tolist():
        own = packet[flow == one]
        first = int(own[0])
        place = int(segments.frame[first]), int(segments.ts_ns[first])
        connections[one >> 1].count_duplicates(one & 1, len(own), int(segments.length[own].sum()), *place)


def _hashes(segments: Segments) -> Hashes:
    """One number per packet: the upper half from ports, sequence number, IP id and length, the lower half from the
    rest of the TCP header."""
    data = segments.data
    header = rows_at(data, np.minimum(segments.header, len(data) - _HEADER), _HEADER)
    words: Hashes = header.view(">u8").astype(np.uint64)
    options = segments.start - segments.header >= _HEADER
    third: Hashes = np.where(options, words[:, 2], words[:, 2] >> np.uint64(32))
    fourth: Hashes = np.where(options, words[:, 3], np.uint64(0))
    place: Hashes = (segments.ip_id << 32 | segments.length + segments.missing).astype(np.uint64)
    upper = _mixed(words[:, 0] * _ODD[0] ^ place * _ODD[1])
    rest = _mixed(words[:, 1] * _ODD[2] + third * _ODD[0]) ^ _mixed(fourth * _ODD[3] + third)
    undecided = (segments.ip_id == 0) & ~_has_timestamp(header, options)
    if undecided.any():
        rest = np.where(undecided, rest ^ _mixed(segments.ts_ns.astype(np.uint64) * _ODD[1]), rest)
    return (upper >> np.uint64(32) << np.uint64(32)) | (rest >> np.uint64(32))


def _mixed(values: Hashes) -> Hashes:
    values = values ^ (values >> np.uint64(29))
    return values * _ODD[3]


def _has_timestamp(header: npt.NDArray[np.uint8], options: Flags) -> Flags:
    """Whether the timestamp option is at one of its usual places: first, or in a SYN after MSS and SACK permitted."""
    first: Flags = header[:, 20:24].view(">u4")[:, 0] == _TIMESTAMPS
    after: Flags = (header[:, 26] == 8) & (header[:, 27] == 10) & (header[:, 20] == 2)
    found: Flags = options & (first | after)
    return found


def _connections_with_repetition(
    segments: Segments, flows: Flows, connections: Sequence[Connection], by_flow: Ints
) -> list[bool]:
    """Whether a connection has a packet that advances neither its sequence numbers nor its acknowledgements.

    The second copy of a packet never does.
    """
    packet = flows.order[by_flow]
    flow = (flows.group * 2 + flows.side)[by_flow]
    flags = segments.flags[packet]
    ends = segments.seq[packet] + segments.length[packet] + segments.missing[packet]
    ends += ((flags & SYN) != 0) * 1 + ((flags & FIN) != 0)
    first = np.ones(len(flow), bool)
    first[1:] = flow[1:] != flow[:-1]
    starts = np.flatnonzero(first)
    run = np.cumsum(first) - 1
    directions = [(connections[one >> 1].seen, 2 * (one & 1)) for one in flow[starts].tolist()]
    repeats = np.ones(len(flow), bool)
    jumps = np.zeros(len(flow), bool)
    columns = ((ends, np.ones(len(flow), bool)), (segments.ack[packet], (flags & ACK) != 0))
    for column, (numbers, is_given) in enumerate(columns):
        known = np.array([seen.reached[at + column] for seen, at in directions], np.int64)
        given = np.minimum.reduceat(np.where(is_given, np.arange(len(flow)), len(flow) - 1), starts)
        reference = np.where(known < 0, numbers[given], known)
        relative = np.where(is_given, signed(numbers - reference[run]), _NOTHING)
        floor = np.where(known < 0, _NOTHING, 0)
        highest = np.maximum(np.maximum.accumulate(relative + run * _SPAN) - run * _SPAN, floor[run])
        before = np.empty_like(highest)
        before[1:] = highest[:-1]
        before[starts] = floor
        repeats &= relative <= before
        jumps |= is_given & (np.abs(relative) > _FAR)
        last = highest[np.append(starts[1:], len(flow)) - 1]
        reached = np.where(last == _NOTHING, -1, (reference + last) & MASK).tolist()
        for (seen, at), number in zip(directions, reached, strict=True):
            seen.reached[at + column] = number
    for one in np.unique(flow[jumps] >> 1).tolist():
        connections[one].seen.is_irregular = True
    suspected = np.zeros(len(connections), bool)
    suspected[flow[repeats] >> 1] = True
    return [a or connection.seen.is_irregular for a, connection in zip(suspected.tolist(), connections)]
