"""One stream of decompressed bytes of a plain, gzip or zstd file.

Decompression is streamed, stops at the ratio and size limits and never trusts a length in the file. Damage inside
compressed data does not raise: the stream ends there, and `problem` says why.
"""

from __future__ import annotations

import importlib
import zlib
from abc import ABC, abstractmethod
from collections import deque
from os import SEEK_CUR
from typing import Any, BinaryIO, cast

from rtmp_spark.codec.errors import CaptureError, ViolationCode
from rtmp_spark.codec.limits import (
    COMPRESSED_HEAD_BYTES,
    COMPRESSED_READ_BYTES,
    DECOMPRESS_GRACE_BYTES,
    DECOMPRESS_STEP_BYTES,
    GZIP_STEP_BYTES,
    READ_WINDOW_BYTES,
    ZSTD_INPUT_BYTES,
    ZSTD_WINDOW_BYTES,
    Limits,
)

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class ByteStream:
    """`read(n)` returns n decompressed bytes, fewer only at the end; `problem` is set if that came early.

    `read_some(n)` of a file that is still being written returns what is there, and nothing only at the end.
    """

    compression = ""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.live = getattr(file, "live", False)
        self.problem: tuple[ViolationCode, str, str] | None = None

    def read_some(self, size: int) -> bytes:
        return self.read_part(size) if self.live else self.read(size)

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            part = self.read_part(size)
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_part(self, size: int) -> bytes:
        """At most so many bytes, as they come; none at the end."""
        return self._file.read(size)

    def back(self, size: int) -> bool:
        """Make the next `read` repeat the last `size` bytes; False if the file cannot seek."""
        if not self._file.seekable():
            return False
        self._file.seek(-size, SEEK_CUR)
        return True


class _Prefixed:
    """A file whose first bytes were already read, to recognise its format."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head = head
        self._file = file
        self.live = getattr(file, "live", False)

    def read(self, size: int) -> bytes:
        if self._head:
            part, self._head = self._head[:size], self._head[size:]
            return part
        return self._file.read(size)

    def seekable(self) -> bool:
        return not self._head and self._file.seekable()

    def seek(self, offset: int, whence: int) -> int:
        return self._file.seek(offset, whence)


class _Remembered(ByteStream):
    """Steps back within its last `read`, which its reader holds as well. Subclasses define `_next`."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._last = b""
        self._again = b""  # the next bytes, which were read before

    def read(self, size: int) -> bytes:
        self._last = super().read(size)
        return self._last

    def back(self, size: int) -> bool:
        if self.live or size > len(self._last):
            return False
        self._again, self._last = self._last[len(self._last) - size :], b""
        return True

    def read_part(self, size: int) -> bytes:
        if self._again:
            part, self._again = self._again[:size], self._again[size:]
            return part
        return self._next(size)

    @abstractmethod
    def _next(self, size: int) -> bytes: ...


class _Decompressing(_Remembered, ABC):
    _step = DECOMPRESS_STEP_BYTES

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        super().__init__(file)
        self._limits = limits
        self._bytes_in = 0
        self._bytes_out = 0
        self._pending = memoryview(b"")
        self._read_bytes = COMPRESSED_HEAD_BYTES
        self._input_ended = False

    def read_some(self, size: int) -> bytes:
        if not self.live:
            return self.read(size)
        out = self.read_part(size)
        while self._pending and len(out) < size:  # without waiting for more compressed bytes
            part = self.read_part(size - len(out))
            if not part:
                break
            out += part
        return out

    def _next(self, size: int) -> bytes:
        while self.problem is None:
            if not self._pending and not self._input_ended:
                self._pending = memoryview(self._file.read(self._read_bytes))
                self._read_bytes = min(2 * self._read_bytes, COMPRESSED_READ_BYTES)
                self._bytes_in += len(self._pending)
                self._input_ended = not self._pending
            try:
                out = self._inflate(min(size, self._step))
            except ValueError as error:
                what = f"the {self.compression} data is damaged: {error}"
                return self._stop(ViolationCode.CAPTURE_TRUNCATED, what, "copy the file again; all before it was read")
            self._bytes_out += len(out)
            limits = self._limits
            most = min(max(DECOMPRESS_GRACE_BYTES, self._bytes_in * limits.decompress_ratio), limits.decompress_bytes)
            if self._bytes_out > most:
                self._stop(
                    ViolationCode.CAPTURE_LIMIT,
                    f"{self._bytes_in} compressed bytes decompress to more than {most} bytes",
                    "decompress the file yourself if you trust it",
                )
                return out[: len(out) - (self._bytes_out - most)]
            if out:
                return out
            if self._input_ended:
                if self._unfinished():
                    what = f"the {self.compression} data is incomplete"
                    hint = "wait until the file is complete, or copy the file again; all before it was read"
                    return self._stop(ViolationCode.CAPTURE_TRUNCATED, what, hint)
                return b""
        return b""

    def _stop(self, code: ViolationCode, detail: str, hint: str = "") -> bytes:
        self.problem = (code, detail, hint)
        return b""

    @abstractmethod
    def _inflate(self, size: int) -> bytes: ...

    @abstractmethod
    def _unfinished(self) -> bool:
        """True if compressed data must follow."""


class _Gzip(_Decompressing):
    compression = "gzip"
    _step = GZIP_STEP_BYTES
    _member: Any
    _started: bool  # the member has compressed bytes
    _input_bytes: int  # of the next step

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        super().__init__(file, limits)
        self._library = _inflating_library()
        self._begin_member()

    def _inflate(self, size: int) -> bytes:
        if self._member.eof:  # members may be concatenated, and zeros may follow the last one
            head = bytes(self._pending[:COMPRESSED_HEAD_BYTES])
            self._pending = self._pending[len(head) - len(head.lstrip(b"\0")) :]
            if not self._pending:
                return b""
            self._begin_member()
        self._started = self._started or bool(self._pending)
        given = self._pending[: self._input_bytes]
        if self._input_bytes == COMPRESSED_HEAD_BYTES:  # the first step of a member
            size = min(size, DECOMPRESS_STEP_BYTES)
        before = self._member.copy()
        try:
            out: bytes = self._member.decompress(given, size)
        except self._library.error as error:
            if size == 1:
                raise ValueError(str(error)) from None
            # The output of the step is lost. Smaller steps read all before the damage, whatever the window.
            self._member, self._step = before, max(size // 64, 1)
            return self._inflate(self._step)
        left = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        self._pending = self._pending[len(given) - len(left) :]
        self._input_bytes = min(2 * self._input_bytes, COMPRESSED_READ_BYTES)
        return out

    def _begin_member(self) -> None:
        self._member = self._library.decompressobj(31)
        self._started = False
        self._input_bytes = COMPRESSED_HEAD_BYTES  # the rest of it is copied if the member ends: many may be tiny

    def _unfinished(self) -> bool:
        return self._started and not self._member.eof


def _inflating_library() -> Any:
    """zlib-ng, if it is installed, takes a sixth to a third less time than zlib."""
    try:
        return importlib.import_module("zlib_ng.zlib_ng")
    except ImportError:
        return zlib


class _Zstd(_Decompressing):
    compression = "zstd"

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        super().__init__(file, limits)
        try:
            self._library: Any = importlib.import_module("zstandard")
        except ImportError:
            raise CaptureError(
                None, "the file is compressed with zstd", "pip install zstandard, or unzstd the file"
            ) from None
        self._context = self._library.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
        self._member: Any = None
        self._ready = b""

    def _inflate(self, size: int) -> bytes:
        if not self._ready and self._pending:
            if self._member is None or self._member.eof:
                self._member = self._context.decompressobj()
            step = self._pending[:ZSTD_INPUT_BYTES]
            try:
                self._ready = self._member.decompress(step)
            except self._library.ZstdError as error:
                raise ValueError(str(error)) from None
            left = self._member.unused_data if self._member.eof else b""
            self._pending = self._pending[len(step) - len(left) :]
        out, self._ready = self._ready[:size], self._ready[size:]
        return out

    def _unfinished(self) -> bool:
        return self._member is not None and not self._member.eof


class ReadAhead(_Remembered):
    """Reads a compressed stream in a thread, some bytes ahead: decompression takes a core while another works on what
    came before."""

    def __init__(self, stream: ByteStream) -> None:
        from concurrent.futures import ThreadPoolExecutor  # a start-up without it takes 2 ms less

        super().__init__(cast(BinaryIO, stream))
        self._stream = stream
        self.compression = stream.compression
        self._parts: deque[bytes] = deque()
        self._reader = ThreadPoolExecutor(1)
        self._coming = self._reader.submit(self._read_parts)

    def _read_parts(self) -> list[bytes]:
        """As small as they come: joining them here would copy every byte once more."""
        parts: list[bytes] = []
        size = READ_WINDOW_BYTES
        while size > 0 and (part := self._stream.read_part(size)):
            parts.append(part)
            size -= len(part)
        return parts

    def _next(self, size: int) -> bytes:
        if not self._parts:
            self._parts.extend(self._coming.result())
            if not self._parts:
                self.problem = self._stream.problem
                return b""
            self._coming = self._reader.submit(self._read_parts)
        part = self._parts.popleft()
        if len(part) > size:
            self._parts.appendleft(part[size:])
            part = part[:size]
        return part


def open_stream(file: BinaryIO, limits: Limits) -> ByteStream:
    """The decompressed stream; the first bytes tell which compression it is."""
    head = b""
    while len(head) < 4:
        part = file.read(4 - len(head))
        if not part:
            break
        head += part
    whole: Any = _Prefixed(head, file)
    if head.startswith(_GZIP):
        return _Gzip(whole, limits)
    if head == _ZSTD:
        return _Zstd(whole, limits)
    return ByteStream(whole)
