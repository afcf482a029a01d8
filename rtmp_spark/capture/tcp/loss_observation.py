"""What the packets of a batch add to the loss counters: bytes per second, and reports of duplicates (DSACK)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rtmp_spark.capture.packet_block import Ints, rows_at
from rtmp_spark.capture.packets.connection_groups import Flows
from rtmp_spark.capture.packets.tcp_segments import ACK, SYN, Segments
from rtmp_spark.capture.tcp.interval_counters import SECOND_NS
from rtmp_spark.capture.tcp.sequence_numbers import distance
from rtmp_spark.capture.tcp.tcp_connection import Connection

_TIMESTAMPS_ONLY = 32  # length of a TCP header with the timestamp option and no other
_TIMESTAMPS = np.frombuffer(b"\x01\x01\x08\x0a", np.uint8)
_END, _PADDING, _SACK = 0, 1, 5  # kinds of options


def note_sent(segments: Segments, flows: Flows, slots: Sequence[Connection], slot: Ints, rows: Ints) -> None:
    """Count the data packets of these rows (sorted by slot) for each direction and second."""
    size = (segments.length + segments.missing)[flows.order[rows]]
    for side in (0, 1):
        chosen = np.flatnonzero((flows.side[rows] == side) & (size > 0))
        if not len(chosen):
            continue
        owner, sizes = slot[rows[chosen]], size[chosen]
        second = segments.ts_ns[flows.order[rows[chosen]]] // SECOND_NS
        changes = np.ones(len(chosen), bool)
        changes[1:] = (owner[1:] != owner[:-1]) | (second[1:] != second[:-1])
        starts = np.flatnonzero(changes)
        packets = np.diff(np.append(starts, len(chosen)))
        columns = (owner[starts], second[starts], packets, np.add.reduceat(sizes, starts))
        for number, when, count, total in zip(*(column.tolist() for column in columns)):
            slots[number].sides[side].loss.add_sent(when, count, total)


def take_duplicate_reports(
    segments: Segments, flows: Flows, slots: Sequence[Connection], slot: Ints, rows: Ints
) -> None:  # fmt: skip
    """Take back losses of which the receiver reports that the data arrived twice (RFC 2883)."""
    waiting = np.array([[stream.loss.may_be_corrected for stream in c.sides] for c in slots], bool)
    if not waiting.any():
        return
    packet = flows.order[rows]
    long = segments.start - segments.header
    chosen = waiting[slot[rows], 1 - flows.side[rows]] & (long[packet] >= _TIMESTAMPS_ONLY)
    chosen &= segments.flags[packet] & (ACK | SYN) == ACK
    rows, packet = rows[chosen], packet[chosen]
    options = rows_at(segments.data, segments.header[packet] + 20, 4)
    chosen = (long[packet] > _TIMESTAMPS_ONLY) | (options != _TIMESTAMPS).any(axis=1)
    for row, index in zip(rows[chosen].tolist(), packet[chosen].tolist()):
        report = _duplicate_report(segments, index)
        if report is not None:
            stream = slots[int(slot[row])].sides[1 - int(flows.side[row])]
            stream.loss.add_duplicate_report(*report, int(segments.frame[index]), int(segments.ts_ns[index]))


def _duplicate_report(segments: Segments, index: int) -> tuple[int, int] | None:
    """The sequence numbers that this acknowledgement reports as received twice: its first block, if that is below the
    acknowledgement or inside the second block (RFC 2883 4)."""
    blocks = list(_blocks(segments.data, int(segments.header[index]) + 20, int(segments.start[index])))
    if not blocks:
        return None
    left, right = blocks[0]
    if distance(right, int(segments.ack[index])) <= 0:
        return left, right
    inside = len(blocks) > 1 and distance(left, blocks[1][0]) >= 0 and distance(right, blocks[1][1]) <= 0
    return (left, right) if inside else None


def _blocks(data: bytes, at: int, end: int) -> Iterator[tuple[int, int]]:
    """The blocks of the SACK option (RFC 2018 3)."""
    while at < end and data[at] != _END:
        if data[at] == _PADDING:
            at += 1
            continue
        size = max(data[at + 1], 2)
        if data[at] == _SACK:
            for block in range(at + 2, min(at + size, end) - 7, 8):
                yield int.from_bytes(data[block : block + 4], "big"), int.from_bytes(data[block + 4 : block + 8], "big")
        at += size
