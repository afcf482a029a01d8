"""Reads chosen records of an uncompressed capture, by their offsets, in windows.

A bucket may need every packet of a stretch of the file or one in a hundred. The cost of a window hardly depends on how
much it holds. So a stretch is longer if only a part of its packets is wanted, and where packets are sparse, those of
several stretches form one window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import BinaryIO

import numpy as np

from rtmp_spark.capture.files.record_layout import RecordLayout
from rtmp_spark.capture.packet_block import PADDING, Ints, PacketBlock, gathered
from rtmp_spark.codec.limits import LIKELY_PACKET_BYTES, READ_WINDOW_BYTES

NEAR_BYTES = 256 << 10  # records closer than this are read in one go
STRETCH_BYTES = 24 << 20  # read in one go at most


def read_packets(file: BinaryIO, layout: RecordLayout, offsets: Ints, frames: Ints) -> Iterator[PacketBlock]:
    """The records at these ascending offsets. Bytes between them are skipped where that pays."""
    held: list[PacketBlock] = []
    size = 0
    for first, until, data in _read_ahead(file, layout, offsets, frames):
        block = layout.block(data, offsets[first:until] - offsets[first], frames[first:until])
        wanted = int(block.caplen.sum())
        full = wanted > NEAR_BYTES and 5 * wanted > int(block.start[-1] - block.start[0])
        if held and (full or size + wanted > READ_WINDOW_BYTES):
            yield in_one_window(held)
            held, size = [], 0
        if full:
            yield block
        else:
            held.append(_alone(block))
            size += wanted
    if held:
        yield in_one_window(held)


def _stretches(offsets: Ints, frames: Ints) -> Iterator[tuple[int, int]]:
    """Parts of the file to read at once, each with about a window of wanted packets: the first record, and the one
    after the last."""
    packets = int(frames[-1] - frames[0]) + 1
    most = max(min(READ_WINDOW_BYTES * packets // len(frames), STRETCH_BYTES), READ_WINDOW_BYTES)
    far = np.flatnonzero(np.diff(offsets) > NEAR_BYTES) + 1
    starts = [0, *far.tolist()]
    for first, last in zip(starts, [*starts[1:], len(offsets)]):
        size = int(offsets[last - 1] - offsets[first]) + 1
        step = -(-size // -(-size // most))  # equal parts: a short one at the end would cost as much as the others
        while first < last:
            until = int(np.searchsorted(offsets[first:last], offsets[first] + step)) + first
            yield first, until
            first = until


def _read_ahead(file: BinaryIO, layout: RecordLayout, offsets: Ints, frames: Ints) -> Iterator[tuple[int, int, bytes]]:
    """Stretches with their bytes; the next one is read while one is decoded."""
    stretches = list(_stretches(offsets, frames))
    if len(stretches) == 1:
        ((first, until),) = stretches
        yield first, until, _read(file, layout, int(offsets[first]), int(offsets[until - 1]))
        return
    with ThreadPoolExecutor(1) as reader:
        coming: tuple[int, int, Future[bytes]] | None = None
        for first, until in stretches:
            reading = reader.submit(_read, file, layout, int(offsets[first]), int(offsets[until - 1]))
            if coming is not None:
                yield coming[0], coming[1], coming[2].result()
            coming = first, until, reading
        if coming is not None:
            yield coming[0], coming[1], coming[2].result()


def _read(file: BinaryIO, layout: RecordLayout, first: int, last: int) -> bytes:
    """From one record to another, whole and padded."""
    file.seek(first)
    before = last - first
    data = file.read(before + layout.header_bytes + LIKELY_PACKET_BYTES + len(PADDING))
    needed = before + layout.size(data, before) + len(PADDING)
    if len(data) < needed:  # a very long packet, or the end of the file; else nothing is copied
        data = b"".join((data, file.read(needed - len(data)), PADDING))
    return data


def _alone(block: PacketBlock) -> PacketBlock:
    """Without the bytes between the packets, except the few between packets that follow each other."""
    (data, start) = gathered([block.data], np.zeros(len(block), np.int64), block.start, block.caplen)
    return replace(block, data=data, start=start)


def in_one_window(blocks: Sequence[PacketBlock]) -> PacketBlock:
    """Blocks with bytes of their own, in order, as one block."""
    sizes = np.array([len(block.data) for block in blocks])
    before = np.cumsum(sizes) - sizes
    return PacketBlock(
        b"".join([*(block.data for block in blocks), PADDING]),
        np.concatenate([block.frame for block in blocks]),
        np.concatenate([block.ts_ns for block in blocks]),
        np.concatenate([block.start + shift for block, shift in zip(blocks, before)]),
        np.concatenate([block.caplen for block in blocks]),
        np.concatenate([block.origlen for block in blocks]),
        np.concatenate([block.link_type for block in blocks]),
    )
