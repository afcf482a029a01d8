"""A window of a capture as columns, and the word for what is wrong with one.

Everything after the walk over a file works on these columns; nobody makes an object per packet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rtmp_spark.codec.errors import Severity, ViolationCode

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

PADDING = bytes(256)  # stands after the bytes of every window, so that a header view of a short packet stays inside


def often(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


@dataclass
class Problem:
    """Something a capture did wrong; becomes a finding and the reason in the ledger."""

    code: ViolationCode
    detail: str
    hint: str = ""
    count: int = 1
    frame: int | None = None
    ts_ns: int | None = None
    severity: Severity | None = None  # None: the usual one of the code

    @property
    def remedy(self) -> str | None:
        """The hint as a sentence of its own."""
        return f"{self.hint[0].upper()}{self.hint[1:].rstrip('.')}." if self.hint else None


@dataclass
class PacketBlock:
    """Packets of one window. `start` points into `data`; frames are 1-based in the file."""

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
        """Where a finding about this packet stands: its number and time."""
        return int(self.frame[index]), int(self.ts_ns[index])

    def select(self, wanted: Any) -> PacketBlock:
        """The packets that a mask or an index array picks; the bytes are shared."""
        return PacketBlock(
            self.data,
            self.frame[wanted],
            self.ts_ns[wanted],
            self.start[wanted],
            self.caplen[wanted],
            self.origlen[wanted],
            self.link_type[wanted],
        )


def rows_at(data: bytes, offsets: Ints, width: int) -> Bytes:
    """Copy `width` bytes at each offset: one row per offset. The data must reach `width` beyond every offset."""
    # A row as one element: numpy copies those twice as fast as rows of bytes.
    rows = np.ndarray((max(len(data) - width + 1, 0),), np.dtype((np.void, width)), data, strides=(1,))
    return rows[offsets].view(np.uint8).reshape(-1, width)
