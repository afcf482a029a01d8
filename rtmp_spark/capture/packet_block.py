"""The packets of one window of a capture as columns.

All later steps work on these columns; no step creates an object per packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

RECORD_GAP_BYTES = 64  # between two packets that follow each other in a file: a record header, padding, options
PADDING = bytes(256)  # follows the bytes of every window, so that a header view of a short packet stays inside


@dataclass
class PacketBlock:
    """Packets of one window. `start` is an index into `data`; frame numbers are 1-based in the file."""

    data: bytes
    frame: Ints
    ts_ns: Ints
    start: Ints
    caplen: Ints
    origlen: Ints
    link_type: Ints

    def __len__(self) -> int:
        return len(self.frame)

    def packet(self, index: int) -> bytes:
        start = int(self.start[index])
        return self.data[start : start + int(self.caplen[index])]

    def place(self, index: int) -> tuple[int, int]:
        """Frame number and time of a packet, for findings about it."""
        return int(self.frame[index]), int(self.ts_ns[index])

    def select(self, wanted: Any) -> PacketBlock:
        """The packets selected by a mask or an index array; the bytes are shared."""
        return PacketBlock(
            self.data,
            self.frame[wanted],
            self.ts_ns[wanted],
            self.start[wanted],
            self.caplen[wanted],
            self.origlen[wanted],
            self.link_type[wanted],
        )


def joined(blocks: Sequence[PacketBlock]) -> PacketBlock:
    """Blocks of one window, in order, as one block."""
    if len(blocks) == 1:
        return blocks[0]
    columns = zip(*((b.frame, b.ts_ns, b.start, b.caplen, b.origlen, b.link_type) for b in blocks))
    return PacketBlock(blocks[0].data, *map(np.concatenate, columns))


def rows_at(data: bytes, offsets: Ints, width: int) -> Bytes:
    """Copy `width` bytes at each offset: one row per offset. The data must reach `width` beyond every offset."""
    # One element per row: numpy copies those twice as fast as rows of bytes.
    rows = np.ndarray((max(len(data) - width + 1, 0),), np.dtype((np.void, width)), data, strides=(1,))
    return rows[offsets].view(np.uint8).reshape(-1, width)


def gathered(windows: Sequence[bytes], window: Ints, start: Ints, caplen: Ints) -> tuple[bytes, Ints]:
    """The bytes of packets, and where each of them begins there. `window` is the index of its window.

    Packets that follow each other in their file are copied together, with the record headers between them: copying
    one by one takes twice as long.
    """
    if not len(start):
        return b"", start
    end = start + caplen
    gap = start[1:] - end[:-1]
    first = np.flatnonzero(np.append(True, (gap < 0) | (gap > RECORD_GAP_BYTES) | (window[1:] != window[:-1])))
    begins, ends = start[first], end[np.append(first[1:], len(start)) - 1]
    views = [memoryview(data) for data in windows]
    slices = zip(window[first].tolist(), begins.tolist(), ends.tolist())
    sizes = ends - begins
    shift = np.repeat(np.cumsum(sizes) - sizes - begins, np.diff(np.append(first, len(start))))
    return b"".join([views[w][s:e] for w, s, e in slices]), start + shift
