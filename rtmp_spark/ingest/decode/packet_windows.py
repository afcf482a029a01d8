"""The packets of a bucket in windows, in the order of the files. Small files share a window.

The cost of a window hardly depends on how much it holds: in a window of its own, a file of a few packets costs several
times as much.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from rtmp_spark.capture.packet_block import PacketBlock
from rtmp_spark.capture.packets.connection_groups import group
from rtmp_spark.capture.packets.dissector import Dissector
from rtmp_spark.capture.packets.tcp_segments import Segments
from rtmp_spark.capture.tcp.frame_numbers import FRAME_BITS
from rtmp_spark.ingest.decode.decode_plan import Piece
from rtmp_spark.ingest.decode.read_packets import in_one_window

SMALL_BYTES = 256 << 10  # of packets of one file
SHARED_BYTES = 1 << 20  # of packets of small files in one window

Place = tuple[int, int]  # number of a file, and run
Read = Callable[[Piece], Iterable[PacketBlock]]


class Window(NamedTuple):
    """Packets and their TCP segments. Frame numbers contain the number of the file."""

    block: PacketBlock
    segments: Segments
    last: Piece


def windows(pieces: Iterable[Piece], read: Read, secrets: Sequence[Place]) -> Iterator[Window]:
    """`pieces` in the order of the files. `secrets`: the places of TLS secrets, in order; no window contains packets
    from both sides of one."""
    small: list[Piece] = []
    size = known = 0
    for _, of_file in groupby(pieces, key=lambda piece: piece.split.file.number):
        own = list(of_file)
        is_small = len(own) == 1 and own[0].size_bytes <= SMALL_BYTES
        before, known = known, bisect_right(secrets, own[0].place)
        if not is_small or known != before or size + own[0].size_bytes > SHARED_BYTES:
            yield from _of_small_files(small, read)
            small, size = [], 0
        if is_small:
            small += own
            size += own[0].size_bytes
        else:
            yield from _of_one_file(own, read)
    yield from _of_small_files(small, read)


def _of_one_file(pieces: Iterable[Piece], read: Read) -> Iterator[Window]:
    dissector = Dissector()  # IP fragments may continue in the next window
    for piece in pieces:
        for block in _numbered(piece, read):
            yield Window(block, dissector.segments(block), piece)


def _of_small_files(pieces: Sequence[Piece], read: Read) -> Iterator[Window]:
    """One window, unless the files have connections in common: packets are compared with those of earlier files."""
    blocks = [list(_numbered(piece, read)) for piece in pieces]
    if len(pieces) > 1:
        dissector = Dissector()
        block = in_one_window([block for own in blocks for block in own])
        segments = dissector.segments(block)
        if not dissector.fragments:  # those of two files must not make a packet
            yield from _apart(block, segments, pieces)
            return
    for piece, own in zip(pieces, blocks):
        dissector = Dissector()
        for block in own:
            yield Window(block, dissector.segments(block), piece)


def _apart(block: PacketBlock, segments: Segments, pieces: Sequence[Piece]) -> Iterator[Window]:
    """The packets of several files: in one window if no connection is in two of the files, else file by file."""
    if not _share_connections(segments):
        yield Window(block, segments, pieces[-1])
        return
    files = block.frame >> FRAME_BITS, segments.frame >> FRAME_BITS
    for piece in pieces:
        number = piece.split.file.number
        own, of_tcp = (slice(*np.searchsorted(column, [number, number + 1])) for column in files)
        yield Window(block.select(own), segments.select(of_tcp), piece)


def _share_connections(segments: Segments) -> bool:
    if not len(segments):
        return False
    flows = group(segments)
    files = segments.frame[flows.order] >> FRAME_BITS
    last = np.append(flows.starts[1:], len(files)) - 1
    return bool((files[flows.starts] != files[last]).any())


def _numbered(piece: Piece, read: Read) -> Iterator[PacketBlock]:
    for block in read(piece):
        yield replace(block, frame=block.frame | piece.split.file.number << FRAME_BITS)
