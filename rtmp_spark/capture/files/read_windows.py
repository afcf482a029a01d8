"""Read a file in overlapping windows: bytes that were not used from one window begin the next.

Where the source can step back, a window is exactly the result of one read. Joining the unused bytes, the new bytes
and the padding would copy every byte of a capture once more, a tenth of the cost of decoding it.

A window is read into the memory of the one before it, which the processor still has in its cache, if nothing refers to
that one any more. So the readers of pcap forget a block before they ask for the next one.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from rtmp_spark.capture.packet_block import PADDING


class Source(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def back(self, size: int, /) -> bool:
        """Make the next `read` repeat the last `size` bytes; False if that is not possible."""
        ...


class Window(NamedTuple):
    data: bytes  # followed by padding or by later bytes of the file
    size: int  # bytes of `data` that belong to the window
    last: bool  # the file has no more bytes


class Windows:
    def __init__(self, source: Source, window_bytes: int) -> None:
        self._source = source
        self._window_bytes = window_bytes
        self._data = b""
        self._end = 0  # of the bytes in `_data` that were read
        self._more = False  # the last read was a full one

    def after(self, taken: int) -> Window:
        """The next window, given that `taken` bytes of the last one were used."""
        rest = b""
        if not (self._more and taken and self._source.back(self._end - taken)):
            rest = self._data[taken : self._end]
        self._data = b""
        fresh = self._source.read(self._window_bytes)
        self._more = len(fresh) == self._window_bytes
        if self._more and not rest:
            self._data, self._end = fresh, len(fresh)
            return Window(fresh, len(fresh) - len(PADDING), False)
        self._data = b"".join((rest, fresh, PADDING))
        self._end = len(self._data) - len(PADDING)
        return Window(self._data, self._end, not fresh)
