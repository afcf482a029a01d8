"""What one direction of a TLS connection gives: the content of its records, and what of it was lost."""

from __future__ import annotations

from typing import NamedTuple


class Content(NamedTuple):
    """The content of a record, or a loss; `end` is the TLS offset after it."""

    kind: int  # content type; 0: content was lost
    end: int
    data: bytes
    length: int = 0  # of the lost content
    records: int = 0  # that were lost; 0: the bytes were not a record and nothing is missing
    start: int = -1  # TLS offset of the record that shows it


class LostContent:
    """What was lost and not reported yet."""

    __slots__ = ("foreign", "length", "records")

    def __init__(self) -> None:
        self.length = 0  # of content
        self.records = 0
        self.foreign = 0  # bytes between records that are not part of a record of this connection

    def add(self, length: int, records: int) -> None:
        self.length += max(length, 0)
        self.records += records

    def take(self, end: int, start: int) -> list[Content]:
        """Report it, up to the TLS offset `end`; `start` is where the record begins that shows it."""
        lost = []
        if self.records:
            lost.append(Content(0, end, b"", max(self.length, 1), self.records, min(start, end - 1)))
        if self.foreign:
            lost.append(Content(0, end, b"", self.foreign, 0, min(start, end - 1)))
        self.length = self.records = self.foreign = 0
        return lost
