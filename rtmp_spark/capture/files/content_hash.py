"""capture_id: the hash of a capture's decompressed bytes, made of blocks that can be hashed in different processes.

It is the SHA-256 over the SHA-256 of each 1 MiB block and the length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import BinaryIO

BLOCK_BYTES = 1 << 20


class TreeHash:
    """Hashes bytes that arrive in pieces of any size."""

    def __init__(self) -> None:
        self._leaves: list[bytes] = []
        self._rest = bytearray()
        self._length = 0

    def update(self, data: bytes | memoryview) -> None:
        self._length += len(data)
        view = memoryview(data)
        if self._rest:
            take = min(BLOCK_BYTES - len(self._rest), len(view))
            self._rest += view[:take]
            view = view[take:]
            if len(self._rest) < BLOCK_BYTES:
                return
            self._leaves.append(hash_block(self._rest))
            self._rest = bytearray()
        whole = len(view) - len(view) % BLOCK_BYTES
        for start in range(0, whole, BLOCK_BYTES):
            self._leaves.append(hash_block(view[start : start + BLOCK_BYTES]))
        self._rest += view[whole:]

    def result(self) -> str:
        leaves = self._leaves + ([hash_block(self._rest)] if self._rest else [])
        return hash_of_blocks(leaves, self._length)


def hash_block(block: bytes | bytearray | memoryview) -> bytes:
    return hashlib.sha256(block).digest()


def hash_of_blocks(leaves: Iterable[bytes], length: int) -> str:
    """The capture_id of `length` bytes with these block hashes."""
    return hashlib.sha256(b"".join(leaves) + length.to_bytes(8, "big")).hexdigest()[:32]


class RangeHash:
    """A file that is read from the start of a byte range on; hashes the blocks that start in the range.

    Bytes that are read again are not hashed again.
    """

    def __init__(self, file: BinaryIO, start: int, end: int) -> None:
        self._file = file
        self._at = -(-start // BLOCK_BYTES) * BLOCK_BYTES  # hashed up to here
        self._end = max(-(-end // BLOCK_BYTES) * BLOCK_BYTES, self._at)
        self._block = hashlib.sha256()
        self._leaves: list[str] = []

    def read(self, size: int) -> bytes:
        position = self._file.tell()
        data = self._file.read(size)
        if position <= self._at:
            self._add(memoryview(data)[self._at - position :])
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return self._file.seekable()

    def _add(self, view: memoryview) -> None:
        view = view[: self._end - self._at]
        while len(view):
            part = view[: BLOCK_BYTES - self._at % BLOCK_BYTES]
            self._block.update(part)
            self._at += len(part)
            view = view[len(part) :]
            if not self._at % BLOCK_BYTES:
                self._leaves.append(self._block.hexdigest())
                self._block = hashlib.sha256()

    def leaves(self) -> list[str]:
        """The hashes, after the rest of the last block was read."""
        if self._at < self._end:  # files of object stores refuse to seek beyond their end
            self._file.seek(self._at)
        while self._at < self._end:
            data = self._file.read(self._end - self._at)
            if not data:
                break
            self._add(memoryview(data))
        return [*self._leaves, self._block.hexdigest()] if self._at % BLOCK_BYTES else self._leaves
