"""One stream of decompressed bytes of a plain, gzip or zstd file. Only a plain file can step back.

Decompression is streamed, stops at the ratio and size limits and never trusts a length in the file. Damage inside
compressed data does not raise: the stream ends there, and `problem` says why.
"""

from __future__ import annotations

import importlib
import zlib
from abc import ABC, abstractmethod
from os import SEEK_CUR
from typing import Any, BinaryIO

from rtmp_spark.codec.errors import CaptureError, ViolationCode
from rtmp_spark.codec.limits import (
    COMPRESSED_READ_BYTES,
    DECOMPRESS_GRACE_BYTES,
    DECOMPRESS_STEP_BYTES,
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
        return self._some(size) if self.live else self.read(size)

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            part = self._some(size)
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _some(self, size: int) -> bytes:
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


class _Decompressing(ByteStream, ABC):
    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        super().__init__(file)
        self._limits = limits
        self._bytes_in = 0
        self._bytes_out = 0
        self._pending = b""
        self._input_ended = False

    def read_some(self, size: int) -> bytes:
        if not self.live:
            return self.read(size)
        out = self._some(size)
        while self._pending and len(out) < size:  # without waiting for more compressed bytes
            part = self._some(size - len(out))
            if not part:
                break
            out += part
        return out

    def _some(self, size: int) -> bytes:
        while self.problem is None:
            if not self._pending and not self._input_ended:
                self._pending = self._file.read(COMPRESSED_READ_BYTES)
                self._bytes_in += len(self._pending)
                self._input_ended = not self._pending
            try:
                out = self._inflate(min(size, DECOMPRESS_STEP_BYTES))
            except (zlib.error, ValueError) as error:
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

    def back(self, size: int) -> bool:
        return False

    @abstractmethod
    def _inflate(self, size: int) -> bytes: ...

    @abstractmethod
    def _unfinished(self) -> bool:
        """True if compressed data must follow."""


class _Gzip(_Decompressing):
    compression = "gzip"

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        super().__init__(file, limits)
        self._member = zlib.decompressobj(31)
        self._started = False

    def _inflate(self, size: int) -> bytes:
        if self._member.eof:  # members may be concatenated, and zeros may follow the last one
            self._pending = self._pending.lstrip(b"\0")
            if not self._pending:
                return b""
            self._member = zlib.decompressobj(31)
            self._started = False
        self._started = self._started or bool(self._pending)
        out = self._member.decompress(self._pending, size)
        self._pending = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return out

    def _unfinished(self) -> bool:
        return self._started and not self._member.eof


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
            step, rest = self._pending[:ZSTD_INPUT_BYTES], self._pending[ZSTD_INPUT_BYTES:]
            try:
                self._ready = self._member.decompress(step)
            except self._library.ZstdError as error:
                raise ValueError(str(error)) from None
            self._pending = self._member.unused_data + rest if self._member.eof else rest
        out, self._ready = self._ready[:size], self._ready[size:]
        return out

    def _unfinished(self) -> bool:
        return self._member is not None and not self._member.eof


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
