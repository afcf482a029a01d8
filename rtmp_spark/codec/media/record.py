"""Configuration records: the values taken from them, and a reader of bits.

Each codec has its own record for profile, level, size, sample rate and channels; here is only what all of them share.
Offsets in a DecodeError count from the record's first byte.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import DecodeError, ViolationCode


def bad(offset: int, detail: str, code: ViolationCode = ViolationCode.MEDIA_TAG) -> DecodeError:
    """The error to raise for an invalid tag, record or frame."""
    return DecodeError(code, offset, detail)


class VideoConfig(NamedTuple):
    """Numbers as the bitstream has them: profile_idc and level_idc, seq_profile and seq_level_idx, ..."""

    profile: int | None = None
    level: int | None = None
    width: int | None = None
    height: int | None = None
    fps: float | None = None
    length_size: int | None = None  # bytes of a NAL unit's length, where the codec has NAL units


class AudioConfig(NamedTuple):
    """`profile` is the MPEG-4 audio object type; `sample_rate` and `channels` are those of the decoded audio."""

    profile: int | None = None
    sample_rate: int | None = None
    channels: int | None = None
    frame_samples: int | None = None


class Bits:
    """Bits of a byte string from the left; refuses to read past the end."""

    def __init__(self, data: bytes, start: int = 0) -> None:
        self._value = int.from_bytes(data, "big")
        self._left = len(data) * 8 - start * 8
        self._size = len(data)

    @property
    def offset(self) -> int:
        return self._size - (self._left + 7) // 8

    @property
    def left(self) -> int:
        return self._left

    def read(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise bad(self._size, "the configuration record ends too early")
        return (self._value >> self._left) & ((1 << count) - 1)

    def ue(self) -> int:
        zeros = 0
        while not self.read(1):
            zeros += 1
            if zeros > 32:
                raise bad(self.offset, "an Exp-Golomb code has more than 32 bits")
        return (1 << zeros) - 1 + self.read(zeros)

    def se(self) -> int:
        code = self.ue()
        return (code + 1) // 2 if code & 1 else -(code // 2)

    def align(self) -> None:
        self._left -= self._left % 8
