"""One direction of a TLS connection: bytes in order and gaps in, the content of decrypted records out.

After a loss, the next record is found by its header and proven by its tag under one of the record numbers that the
lost bytes allow (record_search.py). So only records with missing bytes are lost. Hellos and secrets belong to both
directions: they come from a `HandshakeContext`.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from rtmp_spark.capture.unwrap.tls.cipher_suites import ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE
from rtmp_spark.capture.unwrap.tls.key_epochs import EARLY, MASTER, PLAIN, SERVER, TRAFFIC, Epoch, after
from rtmp_spark.capture.unwrap.tls.key_epochs import HANDSHAKE as HANDSHAKE_EPOCH
from rtmp_spark.capture.unwrap.tls.record_content import Content, LostContent
from rtmp_spark.capture.unwrap.tls.record_search import (
    HEADER,
    HandshakeContext,
    Proof,
    Record,
    RecordSearch,
    another_follows,
    possible_records,
)
from rtmp_spark.capture.unwrap.tls.tls_handshake import END_OF_EARLY_DATA, FINISHED, KEY_UPDATE, HandshakeReader
from rtmp_spark.codec.limits import (
    TLS_EARLY_RECORDS,
    TLS_FAILED_RECORDS,
    TLS_FRAGMENT_BYTES,
    TLS_LEAST_FRAGMENT_BYTES,
    TLS_SEARCHED_BYTES,
)

if TYPE_CHECKING:
    from rtmp_spark.capture.unwrap.tls.record_ciphers import Opened, RecordKey

_HELLO = re.compile(rb"\x16\x03[\x00-\x04]..[\x01\x02]\x00", re.DOTALL)


class TlsSide:
    """Call `receive` and `receive_gap`; `blocked` is set while it needs a hello of the other direction."""

    def __init__(self, direction: int, context: HandshakeContext, from_start: bool) -> None:
        self.direction = direction
        self._context = context
        self._records = RecordSearch(context)
        self.role = direction
        self.epoch = Epoch(PLAIN)
        self._key: RecordKey | None = None
        self.number = 0
        self.handshakes = 0  # handshakes whose keys were used so far
        self.pending = b""
        self.offset = -1  # TLS offset of the first pending byte
        self._start = -1  # TLS offset of the record that is being read
        self._from_start = from_start
        self.searching = not from_start
        self._lost_from = -1  # while searching: TLS offset after the last record that was read
        self._skip = 0  # bytes that remain of a record with a gap inside
        self._lost = LostContent()
        self._refused_bytes = 0
        self.opened = 0
        self.failed = 0  # records in a row
        self.searched = 0
        self.blocked = False
        self._changing = False  # a renegotiation ended, but its hellos are not known yet
        self._hellos_lost = False
        self.hopeless = False
        self._reader = HandshakeReader()
        self._early: list[Content] = []  # 0-RTT data, held until it is known whether the server accepted it
        self.early_refused = 0  # records of 0-RTT data without a secret in the log

    # -- what arrives ---------------------------------------------------------------------------------------

    def receive(self, data: bytes, offset: int, final: bool = False) -> list[Content]:
        """Read the records that became complete; when `blocked`, the rest stays pending."""
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
                self._lose(base + at - self._lost_from, 1)  # no later record tells how many were lost
                self._lost_from = base + at
            out += self._lost.take(base + at, self._start)
            self._release_early(out)
        return out

    def stop_waiting(self) -> None:
        """The missing hellos will not come: try the secrets of the key log."""
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
                # The gap is inside one record whose header is known: the next record begins where that one ends.
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
        """Read complete and plausible records from `at` on; returns the new offset and whether to continue."""
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
        out += self._lost.take(end, self._start)
        kind, content = opened
        if self.epoch.kind != EARLY:
            self._release_early(out)
        if kind == APPLICATION_DATA:
            (self._early if self.epoch.kind == EARLY else out).append(self._content(kind, end, content))
            if len(self._early) > TLS_EARLY_RECORDS:
                self._release_early(out)
        elif kind == ALERT:
            out.append(self._content(kind, end, content))
        elif kind == HANDSHAKE:
            self._handshake(content)
        elif kind == CHANGE_CIPHER_SPEC and self.epoch.kind == MASTER:
            self._change_cipher()

    def _content(self, kind: int, end: int, data: bytes) -> Content:
        return Content(kind, end, data, start=min(self._start, end - 1))

    def _release_early(self, out: list[Content]) -> None:
        out += self._early
        self._early.clear()

    def _unprotected(self, kind: int, fragment: bytes, end: int, out: list[Content]) -> None:
        if kind == HANDSHAKE:
            self._handshake(fragment)
        elif kind == ALERT:
            out.append(self._content(kind, end, fragment))
        else:
            epoch = self._context.protected(self.role, self.handshakes)
            if epoch is None:
                # After a HelloRetryRequest a ChangeCipherSpec has no meaning; the hellos with the keys follow.
                self.blocked = not (kind == CHANGE_CIPHER_SPEC and self.role == SERVER and self._context.retried)
            elif kind == CHANGE_CIPHER_SPEC:
                if epoch.kind == MASTER:  # in TLS 1.3 it has no meaning (RFC 8446 D.4)
                    self._enter(epoch)
                    self.handshakes += 1
            elif kind == APPLICATION_DATA and epoch.kind == HANDSHAKE_EPOCH:
                self.handshakes += 1
                early = epoch._replace(kind=EARLY)
                self._enter(early if self.role == 0 and early.key(self._context.log) is not None else epoch)
                if self._key is None:
                    self._refused(kind, fragment, end, out)
                    return
                opened = self._key.open(0, kind, fragment)
                if opened is None:
                    self._refused(kind, fragment, end, out)
                else:
                    self.number = 1
                    self._accept(opened, end, out)
            else:  # protected data without a ChangeCipherSpec, which was lost
                self.searching, self._lost_from = True, end - HEADER - len(fragment)

    def _change_cipher(self) -> None:
        """A renegotiation ends (TLS 1.2)."""
        epoch = self._context.protected(self.role, self.handshakes)
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
                self._context.receive_handshake(self.direction, kind, body)

    def _enter(self, epoch: Epoch, number: int = 0) -> None:
        self.epoch, self.number = epoch, number
        self._key = epoch.key(self._context.log)

    # -- records that do not open ---------------------------------------------------------------------------

    def _refused(self, kind: int, fragment: bytes, end: int, out: list[Content]) -> None:
        """Handle a complete record that does not decrypt under the next number of this key."""
        if kind == ALERT and len(fragment) == 2:  # sent before its sender had keys
            out.append(self._content(kind, end, fragment))
            return
        for epoch in after(self.epoch):
            key = epoch.key(self._context.log)
            if key is None or (epoch.kind == TRAFFIC and self.epoch.kind == TRAFFIC):
                continue  # a KeyUpdate cannot be lost without a gap
            opened = key.open(0, kind, fragment)
            if opened is not None:
                if self.epoch.kind == EARLY:  # no EndOfEarlyData: the server refused it, and the client sends it again
                    self._early.clear()
                self._enter(epoch, 1)
                self._accept(opened, end, out)
                return
        may_be_early = self.epoch.kind == HANDSHAKE_EPOCH and self.role == 0 and self._context.early_data
        if may_be_early and self._key is not None and not self.opened:
            self.early_refused += 1
            self._lost.add(len(fragment) - TLS_LEAST_FRAGMENT_BYTES, 1)
            return
        if self.epoch.kind in (EARLY, HANDSHAKE_EPOCH) and self._key is None:
            if self.epoch.traffic().key(self._context.log) is None:
                self.hopeless = True  # neither the handshake nor the data can be decrypted
            return  # the log has no handshake secret: skip records until the data begin
        if self._key is not None and self.opened and self.failed < TLS_FAILED_RECORDS:
            # The bytes refused before may not have been a record of this connection, or more than one.
            number = self._key.number_of(
                kind, fragment, self.number - self.failed, self.number + 1 + TLS_FAILED_RECORDS
            )
            if number is not None:
                if number > self.number:
                    self._lose(0, number - self.number)
                elif number < self.number:
                    self._lost.length = self._lost.records = 0
                    self._lost.foreign += self._refused_bytes
                self.number = number + 1
                opened = self._key.open(number, kind, fragment)
                assert opened is not None
                self._accept(opened, end, out)
                return
        self.failed += 1
        self._refused_bytes = (self._refused_bytes if self.failed > 1 else 0) + HEADER + len(fragment)
        self._lose(HEADER + len(fragment), 1)
        self.number += 1
        if self._key is None or (not self.opened and self.failed >= TLS_FAILED_RECORDS):
            self.hopeless = True

    def _lose(self, tls_bytes: int, records: int) -> None:
        if self.epoch.carries_data:
            overhead = self._key.overhead if self._key is not None else HEADER + 17
            self._lost.add(tls_bytes - records * overhead, records)

    # -- after a loss, or midstream ---------------------------------------------------------------------------

    def _search(self, data: bytes, at: int, base: int, final: bool, out: list[Content]) -> int:
        """Find the next record that decrypts; returns its start, or where to continue when more bytes have arrived."""
        for start, end in possible_records(data, at):
            if len(data) - start < HEADER or end > len(data):
                if final or (len(data) - start >= HEADER and end - start - HEADER > TLS_FRAGMENT_BYTES):
                    continue
                return self._passed(start, at, base)
            found = None
            if TLS_LEAST_FRAGMENT_BYTES <= end - start - HEADER <= TLS_FRAGMENT_BYTES:
                record = Record(data[start], data[start + HEADER : end])
                found = self._prove(record, base + start - self._lost_from)
            if found is not None:
                self._account(found, base + start - self._lost_from)
                if self.epoch.kind == PLAIN:
                    self.handshakes += 1
                self._enter(*found)
                self.role = self.epoch.role
                self.searching = False
                return start
            if self.epoch.kind == PLAIN and not self._hellos_lost and another_follows(data, start, end):
                self.searching = False  # a plain record of the handshake cannot be proven, only assumed
                return start
        return self._passed(len(data) if final else max(at, len(data) - HEADER + 1), at, base)

    def _passed(self, to: int, at: int, base: int) -> int:
        self.searched += to - at
        if not self.opened and self.searched > TLS_SEARCHED_BYTES:
            self.hopeless = True
        return to

    def _prove(self, record: Record, lost_bytes: int) -> Proof | None:
        """The epoch and number under which a record after a loss decrypts."""
        if self.epoch.kind == PLAIN:
            known = self._context.protected(self.role, self.handshakes)
            return self._records.first_record(record, known, self.direction, lost_bytes)
        per_record = self._key.overhead if self._key is not None else TLS_LEAST_FRAGMENT_BYTES
        return self._records.later_record(record, self.epoch, self.number, lost_bytes // per_record + 2)

    def _account(self, found: Proof, lost_bytes: int) -> None:
        """Count what was lost before the record that was found, as far as its number tells."""
        epoch, number = found
        if not lost_bytes or not epoch.carries_data or (self.epoch.kind == PLAIN and not self._from_start):
            return
        key = epoch.key(self._context.log)
        assert key is not None
        if epoch == self.epoch:
            records = number - self.number
        elif self.epoch.carries_data:
            records = number + 1  # at least the KeyUpdate
        else:
            records = number
        if records:
            self._lost.add(lost_bytes - records * key.overhead, records)
        elif epoch == self.epoch:
            self._lost.foreign += lost_bytes

    # -- state --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            "role": self.role, "epoch": self.epoch.state(), "number": self.number, "handshakes": self.handshakes,
            "pending": base64.b64encode(self.pending).decode(), "offset": self.offset, "searching": self.searching,
            "lost_from": self._lost_from, "skip": self._skip, "opened": self.opened, "failed": self.failed,
            "lost": [self._lost.length, self._lost.records, self._lost.foreign, self._refused_bytes],
            "searched": self.searched,
            "tries": self._records.tries, "blocked": self.blocked,
            "hopeless": self.hopeless, "from_start": self._from_start, "changing": self._changing,
            "hellos_lost": self._hellos_lost, "reader": self._reader.state(),
            "early": [[c.end, base64.b64encode(c.data).decode(), c.start] for c in self._early],
            "early_refused": self.early_refused,
        }  # fmt: skip

    @classmethod
    def resume(cls, state: dict[str, Any], direction: int, context: HandshakeContext) -> TlsSide:
        own = cls(direction, context, state["from_start"])
        own._changing, own._hellos_lost = state["changing"], state["hellos_lost"]
        own.role, own.number, own.handshakes = state["role"], state["number"], state["handshakes"]
        own.pending, own.offset = base64.b64decode(state["pending"]), state["offset"]
        own.searching, own._lost_from, own._skip = state["searching"], state["lost_from"], state["skip"]
        own._lost.length, own._lost.records, own._lost.foreign, own._refused_bytes = state["lost"]
        own.opened, own.failed = state["opened"], state["failed"]
        own.searched, own._records.tries = state["searched"], state["tries"]
        own.blocked, own.hopeless = state["blocked"], state["hopeless"]
        own._reader = HandshakeReader.resume(state["reader"])
        own._early = [
            Content(APPLICATION_DATA, end, base64.b64decode(data), start=start) for end, data, start in state["early"]
        ]
        own.early_refused = state["early_refused"]
        own._enter(Epoch.resume(state["epoch"]), own.number)
        return own
