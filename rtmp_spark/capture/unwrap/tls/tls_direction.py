"""One direction of a TLS connection: its records, their keys, and what becomes readable.

Bytes in order go in, with gaps; content of opened records comes out. After a loss the next record is found by its
header and proven by its tag under one of the numbers that the lost bytes leave open, so only records that lack bytes
are lost. Which hellos and secrets exist is the business of tls.py, which this asks through `Hellos`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rtmp_spark.capture.keylog import KeyLog
from rtmp_spark.capture.tls_epochs import EARLY, MASTER, PLAIN, SERVER, TRAFFIC, Epoch, after
from rtmp_spark.capture.tls_epochs import HANDSHAKE as HANDSHAKE_EPOCH
from rtmp_spark.capture.tls_handshake import END_OF_EARLY_DATA, FINISHED, KEY_UPDATE, HandshakeReader
from rtmp_spark.capture.tls_suites import ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE

if TYPE_CHECKING:
    from rtmp_spark.capture.tls_ciphers import Opened, RecordKey

HEADER = 5
MOST_BYTES = (1 << 14) + 2048  # of a legal record's fragment (RFC 5246 6.2.3)
NUMBERS_TRIED = 1 << 16  # record numbers tried for one record where they must be searched
_FEW_NUMBERS = 1 << 12  # up to these it is tried whether several KeyUpdates were lost
GUESSES_TRIED = 1 << 18  # tries in all to find the place of a direction joined in the middle
SEARCHED_BYTES = 256 << 10  # without a record that opens: there is no key for it
_HOPELESS = 8  # records in a row that do not open, and none ever did
_LEAST_BYTES = 17
_MOST_EARLY = 64  # records held; servers allow 16 KB or little more
_HEADERS = re.compile(rb"[\x14-\x17]\x03[\x01-\x03]")
_HELLO = re.compile(rb"\x16\x03[\x00-\x04]..[\x01\x02]\x00", re.DOTALL)
_ANY_NUMBER = 1 << 62


class Content(NamedTuple):
    """Something to report about a place in the direction: `end` is the TLS offset just after it."""

    kind: int  # content type; 0: content was lost
    end: int
    data: bytes
    length: int = 0  # of what was lost
    records: int = 0  # that were lost; 0: the bytes were no record and nothing is missing
    start: int = -1  # TLS offset of the record that shows it


class Hellos(Protocol):
    log: KeyLog

    def protected(self, role: int, handshake: int) -> Epoch | None:
        """The first keyed epoch of this handshake; None while one of its hellos is missing."""

    def guesses(self, direction: int) -> Iterator[Epoch]: ...

    def told(self, direction: int, kind: int, body: bytes) -> None:
        """A handshake message."""

    @property
    def retried(self) -> bool:
        """Whether the server asked for another hello and did not answer that one yet."""

    @property
    def early_data(self) -> bool:
        """Whether the client said that it sends data with its first flight (0-RTT, RFC 8446 2.3)."""


class TlsSide:
    """Feed it `receive` and `receive_gap`; it says `blocked` when it cannot go on without the other direction."""

    def __init__(self, direction: int, hellos: Hellos, from_start: bool) -> None:
        self.direction = direction
        self._hellos = hellos
        self.role = direction
        self.epoch = Epoch(PLAIN)
        self._key: RecordKey | None = None
        self.number = 0
        self.handshakes = 0  # changes of keys by hellos, begun so far
        self.pending = b""
        self.offset = -1  # TLS offset of the first pending byte
        self._start = -1  # TLS offset of the record that is being read
        self._from_start = from_start
        self.searching = not from_start
        self._lost_from = -1  # TLS offset after the last record that was read, while searching
        self._skip = 0  # rest of a record whose beginning was lost
        self._lost = [0, 0]  # content bytes and records, not yet reported
        self._strange = 0  # bytes that were no record of this connection, not yet reported
        self._refused_bytes = 0
        self.opened = 0
        self.failed = 0  # records in a row
        self.searched = 0
        self._tries = GUESSES_TRIED
        self.blocked = False
        self._changing = False  # a renegotiation ended, its hellos are not known yet
        self._hellos_lost = False
        self.hopeless = False
        self._reader = HandshakeReader()
        self._early: list[Content] = []  # 0-RTT data, held until it shows whether the server took it
        self.early_refused = 0  # records of it that the log has no secret for

    # -- what arrives ---------------------------------------------------------------------------------------

    def receive(self, data: bytes, offset: int, final: bool = False) -> list[Content]:
        """Read what became complete; when `blocked`, the rest stays pending."""
        out: list[Content] = []
        if self.offset < 0:
            self.offset = offset
            if self.searching:
                self._lost_from = offset
                self.searching = _HELLO.match(data) is None
        if self._skip:
            passed = min(self._skip, len(data))
            self._skip -= passed
            self.offset += passed
            data = data[passed:]
        data = self.pending + data if self.pending else data
        base = self.offset
        at = 0
        self.blocked = False
        if self._changing:
            self._change_cipher()
        while not self.blocked and not self.hopeless:
            if self.searching:
                at = self._search(data, at, base, final, out)
                if self.searching:
                    break
            at, go_on = self._read(data, at, base, out)
            if not go_on:
                break
        if self.hopeless:
            at = len(data)
        self.pending = data[at:]
        self.offset = base + at
        if final:
            if self.searching and self.opened and self._lost_from < base + at:
                self._lose(base + at - self._lost_from, 1)  # no record behind the loss tells how many
                self._lost_from = base + at
            self._report_lost(base + at, out)
            self._release_early(out)
        return out

    def stop_waiting(self) -> None:
        """The hellos that it waits for will not come: what the log offers is tried."""
        if self.blocked:
            self.blocked = self._changing = False
            self._hellos_lost = True
            self.searching, self._lost_from = True, self.offset

    def receive_gap(self, length: int) -> list[Content]:
        """`length` bytes are lost here."""
        out: list[Content] = []
        begun, self.pending = self.pending, b""
        start = self.offset
        if start < 0:
            self.offset = start = 0
        end = start + len(begun) + length
        self.offset = end
        if self._skip:
            if length <= self._skip:
                self._skip -= length
                return out
            start += self._skip
            self._skip = 0
        self._reader.forget()
        if not self.searching:
            size = HEADER + int.from_bytes(begun[3:5], "big") if len(begun) >= HEADER else 0
            if start + size >= end:
                # The gap lies inside one record whose header is known: the next one begins where it ends.
                if self.epoch.kind != PLAIN:
                    self._lose(size, 1)
                    self.number += 1
                self._skip = start + size - end
                return out
            self.searching, self._lost_from = True, start
        self.searched = 0
        return out

    # -- records in order -----------------------------------------------------------------------------------

    def _read(self, data: bytes, at: int, base: int, out: list[Content]) -> tuple[int, bool]:
        """Records from `at` on while they are whole and make sense; False: there is nothing more to do."""
        size = len(data)
        while size - at >= HEADER:
            kind = data[at]
            if not CHANGE_CIPHER_SPEC <= kind <= 24 or data[at + 1] != 3:
                self.searching, self._lost_from = True, base + at
                return at, True
            end = at + HEADER + (data[at + 3] << 8 | data[at + 4])
            if end > size:
                return at, False
            fragment = data[at + HEADER : end]
            self._start = base + at
            if self._key is not None and not (kind == CHANGE_CIPHER_SPEC and self.epoch.kind != MASTER):
                opened = self._key.open(self.number, kind, fragment)
                if opened is not None:
                    self.number += 1
                    self._accept(opened, base + end, out)
                else:
                    self._refused(kind, fragment, base + end, out)
            elif self.epoch.kind == PLAIN:
                self._unprotected(kind, fragment, base + end, out)
                if self.blocked or self.searching:
                    return at, self.searching
            elif kind != CHANGE_CIPHER_SPEC:
                self._refused(kind, fragment, base + end, out)
            at = end
            if self.hopeless or self.blocked:
                return at, False
        return at, False

    def _accept(self, opened: Opened, end: int, out: list[Content]) -> None:
        self.opened += 1
        self.failed = 0
        if self._lost[1] or self._strange:
            self._report_lost(end, out)
        kind, content = opened
        if self.epoch.kind != EARLY:
            self._release_early(out)
        if kind == APPLICATION_DATA:
            (self._early if self.epoch.kind == EARLY else out).append(self._content(kind, end, content))
            if len(self._early) > _MOST_EARLY:
                self._release_early(out)
        elif kind == ALERT:
            out.append(self._content(kind, end, content))
        elif kind == HANDSHAKE:
            self._handshake(content)
        elif kind == CHANGE_CIPHER_SPEC and self.epoch.kind == MASTER:
            self._change_cipher()

    def _content(self, kind: int, end: int, data: bytes, length: int = 0, records: int = 0) -> Content:
        return Content(kind, end, data, length, records, min(self._start, end - 1))

    def _release_early(self, out: list[Content]) -> None:
        out += self._early
        self._early.clear()

    def _unprotected(self, kind: int, fragment: bytes, end: int, out: list[Content]) -> None:
        if kind == HANDSHAKE:
            self._handshake(fragment)
        elif kind == ALERT:
            out.append(self._content(kind, end, fragment))
        else:
            epoch = self._hellos.protected(self.role, self.handshakes)
            if epoch is None:
                # Behind a HelloRetryRequest it means nothing either, and what the keys come from is yet to be said.
                self.blocked = not (kind == CHANGE_CIPHER_SPEC and self.role == SERVER and self._hellos.retried)
            elif kind == CHANGE_CIPHER_SPEC:
                if epoch.kind == MASTER:  # in TLS 1.3 it means nothing (RFC 8446 D.4)
                    self._enter(epoch)
                    self.handshakes += 1
            elif kind == APPLICATION_DATA and epoch.kind == HANDSHAKE_EPOCH:
                self.handshakes += 1
                early = epoch._replace(kind=EARLY)
                self._enter(early if self.role == 0 and early.key(self._hellos.log) is not None else epoch)
                if self._key is None:
                    self._refused(kind, fragment, end, out)
                    return
                opened = self._key.open(0, kind, fragment)
                if opened is None:
                    self._refused(kind, fragment, end, out)
                else:
                    self.number = 1
                    self._accept(opened, end, out)
            else:  # protected data without a change of keys: that one was lost
                self.searching, self._lost_from = True, end - HEADER - len(fragment)

    def _change_cipher(self) -> None:
        """A handshake inside the connection ends (TLS 1.2 renegotiation)."""
        epoch = self._hellos.protected(self.role, self.handshakes)
        self.blocked = self._changing = epoch is None
        if epoch is not None:
            self._enter(epoch)
            self.handshakes += 1

    def _handshake(self, content: bytes) -> None:
        for kind, body in self._reader.receive(content):
            if kind == FINISHED and self.epoch.kind in (HANDSHAKE_EPOCH, EARLY):
                self._enter(self.epoch.traffic())
            elif kind == END_OF_EARLY_DATA and self.epoch.kind == EARLY:
                self._enter(self.epoch._replace(kind=HANDSHAKE_EPOCH))
            elif kind == KEY_UPDATE and self.epoch.kind == TRAFFIC:
                self._enter(self.epoch.updated())
            else:
                self._hellos.told(self.direction, kind, body)

    def _enter(self, epoch: Epoch, number: int = 0) -> None:
        self.epoch, self.number = epoch, number
        self._key = epoch.key(self._hellos.log)

    # -- records that do not open ---------------------------------------------------------------------------

    def _refused(self, kind: int, fragment: bytes, end: int, out: list[Content]) -> None:
        """A whole record that the next number of this key does not open."""
        if kind == ALERT and len(fragment) == 2:  # told before its sender had keys
            out.append(self._content(kind, end, fragment))
            return
        for epoch in after(self.epoch):
            key = epoch.key(self._hellos.log)
            if key is None or (epoch.kind == TRAFFIC and self.epoch.kind == TRAFFIC):
                continue  # a KeyUpdate cannot be missed without a gap
            opened = key.open(0, kind, fragment)
            if opened is not None:
                if self.epoch.kind == EARLY:  # no EndOfEarlyData: the server did not take it, and it is sent again
                    self._early.clear()
                self._enter(epoch, 1)
                self._accept(opened, end, out)
                return
        may_be_early = self.epoch.kind == HANDSHAKE_EPOCH and self.role == 0 and self._hellos.early_data
        if may_be_early and self._key is not None and not self.opened:
            self.early_refused += 1
            self._lost[0] += max(len(fragment) - _LEAST_BYTES, 0)
            self._lost[1] += 1
            return
        if self.epoch.kind in (EARLY, HANDSHAKE_EPOCH) and self._key is None:
            if self.epoch.traffic().key(self._hellos.log) is None:
                self.hopeless = True  # neither the handshake nor what follows can be read
            return  # no secret of the handshake in the log: passed over until the data begin
        if self._key is not None and self.opened and self.failed < _HOPELESS:
            # What was refused before may have been no record of this connection, or more than one.
            number = self._key.number_of(kind, fragment, self.number - self.failed, self.number + 1 + _HOPELESS)
            if number is not None:
                if number > self.number:
                    self._lose(0, number - self.number)
                elif number < self.number:
                    self._lost = [0, 0]
                    self._strange += self._refused_bytes
                self.number = number + 1
                opened = self._key.open(number, kind, fragment)
                assert opened is not None
                self._accept(opened, end, out)
                return
        self.failed += 1
        self._refused_bytes = (self._refused_bytes if self.failed > 1 else 0) + HEADER + len(fragment)
        self._lose(HEADER + len(fragment), 1)
        self.number += 1
        if self._key is None or (not self.opened and self.failed >= _HOPELESS):
            self.hopeless = True

    def _lose(self, tls_bytes: int, records: int) -> None:
        if self.epoch.carries_data:
            overhead = self._key.overhead if self._key is not None else HEADER + 17
            self._lost[0] += max(tls_bytes - records * overhead, 0)
            self._lost[1] += records

    def _report_lost(self, end: int, out: list[Content]) -> None:
        length, records = self._lost
        if records:
            out.append(self._content(0, end, b"", max(length, 1), records))
        if self._strange:
            out.append(self._content(0, end, b"", self._strange))
        self._lost, self._strange = [0, 0], 0

    # -- after a loss, or joined in the middle ----------------------------------------------------------------

    def _search(self, data: bytes, at: int, base: int, final: bool, out: list[Content]) -> int:
        """Find the next record that opens; where it starts, or where to go on when more bytes are there."""
        for match in _HEADERS.finditer(data, at):
            start = match.start()
            end = start + HEADER + int.from_bytes(data[start + 3 : start + HEADER], "big")
            if len(data) - start < HEADER or end > len(data):
                if final or (len(data) - start >= HEADER and end - start - HEADER > MOST_BYTES):
                    continue
                return self._passed(start, at, base)
            found = None
            if _LEAST_BYTES <= end - start - HEADER <= MOST_BYTES:
                found = self._prove(data[start], data[start + HEADER : end], base + start - self._lost_from)
            if found is not None:
                self._account(*found, base + start - self._lost_from)
                if self.epoch.kind == PLAIN:
                    self.handshakes += 1
                self._enter(*found)
                self.role = self.epoch.role
                self.searching = False
                return start
            if self.epoch.kind == PLAIN and not self._hellos_lost and self._follows(data, start, end):
                self.searching = False  # a plain record of the handshake cannot be proven, only believed
                return start
        return self._passed(len(data) if final else max(at, len(data) - HEADER + 1), at, base)

    def _passed(self, to: int, at: int, base: int) -> int:
        self.searched += to - at
        if not self.opened and self.searched > SEARCHED_BYTES:
            self.hopeless = True
        return to

    def _follows(self, data: bytes, start: int, end: int) -> bool:
        """Whether this looks like an unprotected record with another one behind it."""
        kind = data[start]
        if kind == APPLICATION_DATA or end - start - HEADER > MOST_BYTES:
            return False
        return len(data) - end >= HEADER and _HEADERS.match(data, end) is not None

    def _prove(self, kind: int, fragment: bytes, lost: int) -> tuple[Epoch, int] | None:
        """The epoch and number under which this record opens."""
        if self.epoch.kind == PLAIN:
            hellos = self._hellos
            known = hellos.protected(self.role, self.handshakes)
            tried = [known, *after(known)] if known is not None else list(hellos.guesses(self.direction))
            # From the start of a connection the lost bytes bound the number; joined in the middle nothing does.
            bound = _ANY_NUMBER if known is None else lost // _LEAST_BYTES + 2
            share = max(1, self._tries // max(1, len(tried)))
            for epoch in tried:
                key = epoch.key(hellos.log)
                if key is None:
                    continue
                high = min(bound, NUMBERS_TRIED, share) if key.searches() else bound
                number = key.number_of(kind, fragment, 0, high)
                self._tries -= high if key.searches() else 1
                if number is not None:
                    return epoch, number
            return None
        nearest = lost // (self._key.overhead if self._key is not None else _LEAST_BYTES) + 2
        for epoch in (self.epoch, *after(self.epoch)):
            key = epoch.key(self._hellos.log)
            if key is None:
                continue
            if key.searches() and epoch.generation > self.epoch.generation + 1 and nearest > _FEW_NUMBERS:
                break
            low = self.number if epoch == self.epoch else 0
            high = low + (min(nearest, NUMBERS_TRIED) if key.searches() else nearest)
            number = key.number_of(kind, fragment, low, high)
            if number is not None:
                return epoch, number
        return None

    def _account(self, epoch: Epoch, number: int, lost: int) -> None:
        """What the bytes before the record that was found held, as far as the record's number tells."""
        if not lost or not epoch.carries_data or (self.epoch.kind == PLAIN and not self._from_start):
            return
        key = epoch.key(self._hellos.log)
        assert key is not None
        if epoch == self.epoch:
            records = number - self.number
        elif self.epoch.carries_data:
            records = number + 1  # at least the KeyUpdate
        else:
            records = number
        if records:
            self._lost[0] += max(lost - records * key.overhead, 0)
            self._lost[1] += records
        elif epoch == self.epoch:
            self._strange += lost

    # -- state --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            "role": self.role, "epoch": self.epoch.state(), "number": self.number, "handshakes": self.handshakes,
            "pending": base64.b64encode(self.pending).decode(), "offset": self.offset, "searching": self.searching,
            "lost_from": self._lost_from, "skip": self._skip, "opened": self.opened, "failed": self.failed,
            "lost": [*self._lost, self._strange, self._refused_bytes], "searched": self.searched,
            "tries": self._tries, "blocked": self.blocked,
            "hopeless": self.hopeless, "from_start": self._from_start, "changing": self._changing,
            "hellos_lost": self._hellos_lost, "reader": self._reader.state(),
            "early": [[c.end, base64.b64encode(c.data).decode(), c.start] for c in self._early],
            "early_refused": self.early_refused,
        }  # fmt: skip

    @classmethod
    def resume(cls, state: dict[str, Any], direction: int, hellos: Hellos) -> TlsSide:
        side = cls(direction, hellos, state["from_start"])
        side._changing, side._hellos_lost = state["changing"], state["hellos_lost"]
        side.role, side.number, side.handshakes = state["role"], state["number"], state["handshakes"]
        side.pending, side.offset = base64.b64decode(state["pending"]), state["offset"]
        side.searching, side._lost_from, side._skip = state["searching"], state["lost_from"], state["skip"]
        side._lost, (side._strange, side._refused_bytes) = list(state["lost"][:2]), state["lost"][2:]
        side.opened, side.failed = state["opened"], state["failed"]
        side.searched, side._tries = state["searched"], state["tries"]
        side.blocked, side.hopeless = state["blocked"], state["hopeless"]
        side._reader = HandshakeReader.resume(state["reader"])
        side._early = [
            Content(APPLICATION_DATA, end, base64.b64decode(data), start=start) for end, data, start in state["early"]
        ]
        side.early_refused = state["early_refused"]
        side._enter(Epoch.resume(state["epoch"]), side.number)
        return side
