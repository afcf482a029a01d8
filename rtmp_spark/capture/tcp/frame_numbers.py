"""Frame numbers of a recording: one integer with the number of the file in the upper bits.

Several capture files make one recording. The lower bits are the 1-based number of the packet in its file, as
Wireshark counts.
"""

from __future__ import annotations

from typing import Final

FRAME_BITS: Final = 40
FRAME_MASK: Final = (1 << FRAME_BITS) - 1


def frame_no(frame: int) -> int:
    """The number of the packet in its file."""
    return frame & FRAME_MASK


def file_no(frame: int) -> int:
    """The number of the file in the recording."""
    return frame >> FRAME_BITS
