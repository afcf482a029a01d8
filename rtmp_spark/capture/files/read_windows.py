"""A file as overlapping windows: what was not taken from one stands at the start of the next.

Where the source can step back, a window is exactly what one read gave: joining the rest of the last one, the fresh
bytes and the padding would copy every byte of a capture once more, a tenth of the cost of decoding it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from rtmp_spark.capture.block import PADDING


class Source(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def back(self, size: int, /) -> bool:
        """Give the last `size` bytes again by the next `read`; False where that cannot be."""
        ...


class Window(NamedTuple):
    data: bytes  # with padding, or more of the file, behind what counts
    size: int  # of what counts
    last: bool  # nothing new came


class Windows:
    def __init__(self, source: Source, window_bytes: int) -> None:
        self._source = source
        self._window_bytes = window_bytes
        self._data = b""
        self._end = 0  # of what was read
        self._more = False  # the file went on behind the last window

    def after(self, taken: int) -> Window:
        """The next window; `taken` bytes of the last one are done with."""
        rest = b""
        if not (self._more and taken and self._source.back(self._end - taken)):
            rest = self._data[taken : self._end]
        fresh = self._source.read(self._window_bytes)
        self._more = len(fresh) == self._window_bytes
        if self._more and not rest:
            self._data, self._end = fresh, len(fresh)
            return Window(fresh, len(fresh) - len(PADDING), False)
        self._data = b"".join((rest, fresh, PADDING))
        self._end = len(self._data) - len(PADDING)
        return Window(self._data, self._end, not fresh)
