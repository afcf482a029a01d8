"""Reads chosen records of a classic pcap, by their offsets, in windows.

A bucket may need every packet of a stretch of the file or one in a hundred. The cost of a window hardly depends on how
much it holds, so where packets are sparse, those of several stretches form one window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import BinaryIO

import numpy as np

from rtmp_spark.capture.files.pcap import PcapHeader
from rtmp_spark.capture.packet_block import PADDING, Ints, PacketBlock, rows_at
from rtmp_spark.codec.limits import LIKELY_PACKET_BYTES, READ_WINDOW_BYTES

NEAR_BYTES = 256 << 10  # records closer than this are read in one go
_RECORD_FIELDS = 16


def read_packets(file: BinaryIO, header: PcapHeader, offsets: Ints, frames: Ints) -> Iterator[PacketBlock]:
    """The records at these ascending offsets. Bytes between them are skipped where that pays."""
    held: list[PacketBlock] = []
    size = 0
    for first, until, data in _read_ahead(file, header, offsets):
        block = _block(data, header, offsets[first:until], frames[first:until])
        wanted = int(block.caplen.sum())
        full = wanted > NEAR_BYTES and 5 * wanted > int(block.start[-1] - block.start[0])
        if held and (full or size + wanted > READ_WINDOW_BYTES):
            yield _joined(held)
            held, size = [], 0
        if full:
            yield block
        else:
            held.append(_alone(block, header.record_header_bytes))
            size += wanted
    if held:
        yield _joined(held)


def _stretches(offsets: Ints) -> Iterator[tuple[int, int]]:
    """Parts of the file to read at once: the first record, and the one after the last."""
    far = np.flatnonzero(np.diff(offsets) > NEAR_BYTES) + 1
    starts = [0, *far.tolist()]
    for first, last in zip(starts, [*starts[1:], len(offsets)]):
        while first < last:
            until = int(np.searchsorted(offsets[first:last], offsets[first] + READ_WINDOW_BYTES)) + first
            yield first, until
            first = until


def _read_ahead(file: BinaryIO, header: PcapHeader, offsets: Ints) -> Iterator[tuple[int, int, bytes]]:
    """Stretches with their bytes; the next one is read while one is decoded."""
    stretches = list(_stretches(offsets))
    if len(stretches) == 1:
        ((first, until),) = stretches
        yield first, until, _read(file, header, int(offsets[first]), int(offsets[until - 1]))
        return
    with ThreadPoolExecutor(1) as reader:
        coming: tuple[int, int, Future[bytes]] | None = None
        for first, until in stretches:
            reading = reader.submit(_read, file, header, int(offsets[first]), int(offsets[until - 1]))
            if coming is not None:
                yield coming[0], coming[1], coming[2].result()
            coming = first, until, reading
        if coming is not None:
            yield coming[0], coming[1], coming[2].result()


def _read(file: BinaryIO, header: PcapHeader, first: int, last: int) -> bytes:
    """From one record to another, whole and padded."""
    file.seek(first)
    body = last - first + header.record_header_bytes
    data = file.read(body + LIKELY_PACKET_BYTES + len(PADDING))
    order = "little" if header.byte_order == "<" else "big"
    caplen_at = last - first + 8
    needed = body + int.from_bytes(data[caplen_at : caplen_at + 4], order) + len(PADDING)  # type: ignore[arg-type]
    if len(data) < needed:  # a very long packet, or the end of the file; else nothing is copied
        data = b"".join((data, file.read(needed - len(data)), PADDING))
    return data


def _block(data: bytes, header: PcapHeader, offsets: Ints, frames: Ints) -> PacketBlock:
    at = offsets - offsets[0]
    fields = rows_at(data, at, _RECORD_FIELDS).view(header.byte_order + "u4").astype(np.int64)
    caplen = fields[:, 2]
    return PacketBlock(
        data,
        frames,
        fields[:, 0] * 1_000_000_000 + fields[:, 1] * (1 if header.nanosecond else 1000),
        at + header.record_header_bytes,
        caplen,
        np.maximum(fields[:, 3], caplen),
        np.full(len(at), header.link_type, np.int64),
    )


def _alone(block: PacketBlock, record_header_bytes: int) -> PacketBlock:
    """Without the bytes between the records, and without padding."""
    lengths = record_header_bytes + block.caplen
    begins, ends = block.start - record_header_bytes, block.start + block.caplen
    apart = np.flatnonzero(begins[1:] != ends[:-1])
    slices = zip(begins[np.append(0, apart + 1)].tolist(), ends[np.append(apart, -1)].tolist())
    view = memoryview(block.data)
    data = b"".join([view[begin:end] for begin, end in slices])
    return replace(block, data=data, start=np.cumsum(lengths) - block.caplen)


def _joined(blocks: Sequence[PacketBlock]) -> PacketBlock:
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
