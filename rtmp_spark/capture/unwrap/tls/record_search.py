"""Find the key and the number of a TLS record after a loss, or in a direction that starts midstream.

A record that decrypts under a key and a number is proven to be that record, because its tag authenticates it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from rtmp_spark.capture.unwrap.tls.cipher_suites import APPLICATION_DATA
from rtmp_spark.capture.unwrap.tls.key_epochs import Epoch, after
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.codec.limits import (
    TLS_FRAGMENT_BYTES,
    TLS_GUESSES_TRIED,
    TLS_LEAST_FRAGMENT_BYTES,
    TLS_NUMBERS_FOR_UPDATES,
    TLS_NUMBERS_TRIED,
)

HEADER = 5  # bytes: content type, version, length
_HEADERS = re.compile(rb"[\x14-\x17]\x03[\x01-\x03]")
_ANY_NUMBER = 1 << 62


def possible_records(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """(start, end) of everything from `at` on that may be a record; `end` may be beyond the data."""
    for match in _HEADERS.finditer(data, at):
        start = match.start()
        yield start, start + HEADER + int.from_bytes(data[start + 3 : start + HEADER], "big")


def another_follows(data: bytes, start: int, end: int) -> bool:
    """Whether this looks like an unprotected record that is followed by another one."""
    if data[start] == APPLICATION_DATA or end - start - HEADER > TLS_FRAGMENT_BYTES:
        return False
    return len(data) - end >= HEADER and _HEADERS.match(data, end) is not None


class HandshakeContext(Protocol):
    """What a direction needs to know about the connection."""

    log: KeyLog

    def protected(self, role: int, handshake: int) -> Epoch | None:
        """The first keyed epoch of this handshake; None while one of its hellos is missing."""

    def guesses(self, direction: int) -> Iterator[Epoch]:
        """The epochs that the key log offers for a direction whose hellos are not known."""

    def receive_handshake(self, direction: int, kind: int, body: bytes) -> None:
        """Take a handshake message."""

    @property
    def retried(self) -> bool:
        """Whether the server asked for another ClientHello and has not answered that one yet."""

    @property
    def early_data(self) -> bool:
        """Whether the client sends data with its first flight (0-RTT, RFC 8446 2.3)."""


class Record(NamedTuple):
    kind: int
    fragment: bytes


class Proof(NamedTuple):
    """The epoch and number under which a record decrypts."""

    epoch: Epoch
    number: int


class RecordSearch:
    """Tries keys and numbers for the records of one direction, within a budget of tries."""

    def __init__(self, context: HandshakeContext) -> None:
        self._context = context
        self.tries = TLS_GUESSES_TRIED

    def first_record(self, record: Record, known: Epoch | None, direction: int, lost_bytes: int) -> Proof | None:
        """A record before any key was used; `known` is the first epoch if the hellos are known."""
        tried = [known, *after(known)] if known is not None else list(self._context.guesses(direction))
        # From the start of a connection the lost bytes bound the number; midstream nothing does.
        bound = _ANY_NUMBER if known is None else lost_bytes // TLS_LEAST_FRAGMENT_BYTES + 2
        share = max(1, self.tries // max(1, len(tried)))
        for epoch in tried:
            key = epoch.key(self._context.log)
            if key is None:
                continue
            high = min(bound, TLS_NUMBERS_TRIED, share) if key.searches() else bound
            number = key.number_of(record.kind, record.fragment, 0, high)
            self.tries -= high if key.searches() else 1
            if number is not None:
                return Proof(epoch, number)
        return None

    def later_record(self, record: Record, current: Epoch, number: int, lost_records: int) -> Proof | None:
        """A record after a loss of at most about `lost_records` records; `number` would have been the next."""
        for epoch in (current, *after(current)):
            key = epoch.key(self._context.log)
            if key is None:
                continue
            updates = epoch.generation - current.generation
            if key.searches() and updates > 1 and lost_records > TLS_NUMBERS_FOR_UPDATES:
                break
            low = number if epoch == current else 0
            high = low + (min(lost_records, TLS_NUMBERS_TRIED) if key.searches() else lost_records)
            found = key.number_of(record.kind, record.fragment, low, high)
            if found is not None:
                return Proof(epoch, found)
        return None
