"""Decrypt a TLS connection: items with TLS bytes of both directions in, the same kind of items with their content out.

Offsets of the output count the decrypted bytes. A byte belongs to the packet that completes its record, as in
Wireshark. Bytes that cannot be decrypted are reported as `Lost`. Nothing is guessed: every byte of the output was
authenticated by its record. The package `cryptography` is only needed if there is a secret to use; a connection
without keys can be described without it.

The state is a value without secrets: to resume it, pass the key log again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rtmp_spark.capture.packet_block import Ints
from rtmp_spark.capture.service import RTMPS, TLS
from rtmp_spark.capture.tcp.stream_items import Conflict, End, Gap, Item, Lost, Run, item_from_state, item_state
from rtmp_spark.capture.unwrap.tls import keylog
from rtmp_spark.capture.unwrap.tls.cipher_suites import (
    ALERT,
    ALERT_MEANINGS,
    ALERT_NAMES,
    APPLICATION_DATA,
    CLOSE_NOTIFY,
)
from rtmp_spark.capture.unwrap.tls.key_epochs import CLIENT, SERVER, Epoch, guesses
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.capture.unwrap.tls.record_content import Content
from rtmp_spark.capture.unwrap.tls.record_places import RecordPlaces
from rtmp_spark.capture.unwrap.tls.tls_direction import TlsSide
from rtmp_spark.capture.unwrap.tls.tls_hellos import TlsHellos
from rtmp_spark.capture.unwrap.wrapping import Noted, WrappingFacts
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.limits import TLS_NOTES, TLS_WAITING_BYTES


class TlsSession:
    """One TLS connection. Call `receive` with every item of both directions, then `finish`."""

    STATE_VERSION = 3
    refusal = TLS

    def __init__(self, connection: Any, log: KeyLog) -> None:
        self._connection = connection
        self.log = log
        self._hellos = TlsHellos()
        self._sides: list[TlsSide | None] = [None, None]
        self._waiting: list[list[Item]] = [[], []]  # after a side that is blocked
        self._places = (RecordPlaces(), RecordPlaces())
        self._plain_offset = [0, 0]
        self._ended = [False, False]
        self._given_up = False
        self._gaps = [0, 0]
        self.noted: list[Noted] = []

    # -- what is known ------------------------------------------------------------------------------------------

    @property
    def server_name(self) -> str | None:
        return self._hellos.server_name

    @property
    def version(self) -> str | None:
        return self._hellos.version

    @property
    def cipher(self) -> str | None:
        return self._hellos.cipher

    @property
    def client_randoms(self) -> list[bytes]:
        """The client random of every handshake: a key log lists secrets under these."""
        found = self._hellos.client_randoms
        found |= {side.epoch.client_random for side in self._sides if side is not None and side.epoch.client_random}
        return sorted(found)

    @property
    def readable(self) -> bool | None:
        """True once a record was decrypted; False once it is certain that none can be; else None."""
        sides = [side for side in self._sides if side is not None]
        if any(side.opened for side in sides):
            return True
        if self._given_up or (len(sides) == 2 and all(side.hopeless for side in sides)):
            return False
        if any(side.hopeless for side in sides):
            epochs = [self.protected(role, 0) for role in (CLIENT, SERVER)]
            known = [epoch for epoch in epochs if epoch is not None]
            if known and not any(epoch.key(self.log) or epoch.traffic().key(self.log) for epoch in known):
                return False
        return None

    def why_unreadable(self) -> str:
        """One clause: what is known about the connection, and what is missing to decrypt it."""
        return self._hellos.why_unreadable(self.log)

    # -- HandshakeContext: what a side asks ------------------------------------------------------------------------

    def protected(self, role: int, handshake: int) -> Epoch | None:
        return self._hellos.protected(role, handshake)

    def guesses(self, direction: int) -> Iterator[Epoch]:
        roles = (self._side(direction).role,) if self._roles_known() else (CLIENT, SERVER)
        known = self._hellos.client_random
        other = self._sides[1 - direction]
        if other is not None and other.opened:
            known, roles = other.epoch.client_random, (1 - other.epoch.role,)
        return guesses(self.log, roles, known, self._hellos.server)

    def receive_handshake(self, direction: int, kind: int, body: bytes) -> None:
        role = self._hellos.add(kind, body)
        if role is not None:
            self._set_client(direction if role == CLIENT else 1 - direction)

    @property
    def retried(self) -> bool:
        return self._hellos.retried

    @property
    def early_data(self) -> bool:
        return self._hellos.early_data

    def _roles_known(self) -> bool:
        return bool(self._hellos) or not self._connection.midstream

    def _set_client(self, direction: int) -> None:
        for number, side in enumerate(self._sides):
            if side is not None and not side.opened:
                side.role = CLIENT if number == direction else SERVER

    def _side(self, direction: int, from_start: bool = True) -> TlsSide:
        side = self._sides[direction]
        if side is None:
            side = self._sides[direction] = TlsSide(direction, self, from_start)
            other = self._sides[1 - direction]
            if other is not None:
                side.role = 1 - other.role
        return side

    # -- items ----------------------------------------------------------------------------------------------------

    def receive(self, item: Item) -> list[Item]:
        out: list[Item] = []
        self._take(item, out)
        self._unblock(out)
        return out

    def finish(self) -> list[Item]:
        """No more items come: the waiting ones are read with the hellos that are known."""
        out: list[Item] = []
        for direction in (0, 1):
            side = self._sides[direction]
            if side is not None and side.blocked:
                side.stop_waiting()
                self._replay(direction, out)
        self._given_up = not any(side is not None and side.opened for side in self._sides)
        return out

    def _take(self, item: Item, out: list[Item]) -> None:
        direction = item.direction
        side = self._sides[direction]
        if side is not None and side.blocked:
            self._waiting[direction].append(item)
            if sum(len(i.data) for i in self._waiting[direction] if isinstance(i, Run)) > TLS_WAITING_BYTES:
                side.stop_waiting()
                self._replay(direction, out)
            return
        if isinstance(item, Run):
            if side is None:
                side = self._side(direction, item.offset == 0 and bool(self._connection.streams[direction].syn))
            places = self._places[direction]
            places.begun_ns = self._incomplete_ns(direction)
            contents = side.receive(item.data, item.offset)
            places.add_run(item)
            self._deliver(direction, contents, out)
        elif isinstance(item, Gap):
            self._gaps[direction] += 1
            self._places[direction].raise_to(item.frame, item.ts_ns)
            side = self._side(direction)
            self._deliver(direction, side.receive_gap(item.length), out)
            out.append(item._replace(outer=True))
        elif isinstance(item, End):
            if side is not None and not self._ended[direction]:
                contents = side.receive(b"", side.offset, final=True)
                self._deliver(direction, contents, out)
            self._ended[direction] = True
            offset = self._plain_offset[direction]
            out.append(End(item.connection, direction, item.kind, offset, item.frame, item.ts_ns))
        elif isinstance(item, Conflict):
            out.append(item)

    def _unblock(self, out: list[Item]) -> None:
        again = True
        while again:
            again = False
            for direction, side in enumerate(self._sides):
                if side is not None and side.blocked and self.protected(side.role, side.handshakes) is not None:
                    self._replay(direction, out)
                    again = True

    def _replay(self, direction: int, out: list[Item]) -> None:
        side = self._side(direction)
        self._deliver(direction, side.receive(b"", side.offset), out)
        waiting, self._waiting[direction] = self._waiting[direction], []
        for item in waiting:
            self._take(item, out)

    def _incomplete_ns(self, direction: int) -> int:
        side, places = self._sides[direction], self._places[direction]
        return places.begun_ns if side is None else places.incomplete_ns(bool(side.pending), side.offset)

    def _deliver(self, direction: int, contents: list[Content], out: list[Item]) -> None:
        if not contents:
            return
        ends = np.fromiter((content.end for content in contents), np.int64, len(contents))
        starts = np.fromiter((content.start for content in contents), np.int64, len(contents))
        frames, times = self._places[direction].of_records(starts, ends - 1)
        first = 0
        for index, content in enumerate(contents):
            if content.kind == APPLICATION_DATA:
                continue
            self._emit(direction, contents[first:index], frames[first:index], times[first:index], out)
            first = index + 1
            frame, ts_ns = int(frames[index]), int(times[index])
            if content.kind == ALERT:
                self._alert(direction, content.data, frame, ts_ns)
            elif not content.records:
                detail = f"{content.length} bytes between TLS records are not part of a record of this connection"
                self._note(Noted(ViolationCode.TLS_RECORD_LOST, direction, detail, frame, ts_ns))
            else:
                offset = self._plain_offset[direction]
                self._plain_offset[direction] += content.length
                out.append(
                    Lost(
                        self._connection, direction, offset, content.length, frame, ts_ns,
                        ViolationCode.TLS_RECORD_LOST, self._lost_detail(direction, content),
                    )
                )  # fmt: skip
        self._emit(direction, contents[first:], frames[first:], times[first:], out)

    def _emit(self, direction: int, contents: list[Content], frames: Ints, times: Ints, out: list[Item]) -> None:
        """Deliver application data as one run."""
        pieces = [content.data for content in contents]
        offset = self._plain_offset[direction]
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        total = int(lengths.sum())
        if not total:
            return
        kept = lengths > 0
        starts = (np.cumsum(lengths) - lengths + offset)[kept]
        self._plain_offset[direction] = offset + total
        out.append(Run(self._connection, direction, offset, b"".join(pieces), starts, frames[kept], times[kept]))

    def _lost_detail(self, direction: int, content: Content) -> str:
        inside = f"about {content.length} bytes inside"
        if self._gaps[direction]:
            return f"{content.records} TLS records are incomplete and cannot be decrypted, {inside}"
        return f"{content.records} TLS records fail authentication, {inside}"

    def _alert(self, direction: int, body: bytes, frame: int, ts_ns: int) -> None:
        if len(body) != 2 or body[1] == CLOSE_NOTIFY:
            return
        name = ALERT_NAMES.get(body[1], f"number {body[1]}")
        meaning = ALERT_MEANINGS.get(body[1])
        level = "fatal alert" if body[0] == 2 else "alert"
        detail = f"{level} {name}" + (f": {meaning}" if meaning else "")
        self._note(Noted(ViolationCode.TLS_ALERT, direction, detail, frame, ts_ns))

    def _note(self, noted: Noted) -> None:
        if len(self.noted) < TLS_NOTES:
            self.noted.append(noted)

    def take_noted(self) -> list[Noted]:
        noted, self.noted = self.noted, []
        return noted

    @property
    def facts(self) -> WrappingFacts:
        return WrappingFacts(RTMPS, None, self.server_name, self.version, self.cipher)

    @property
    def carriers(self) -> list[Any]:
        return []

    @property
    def held(self) -> list[tuple[int, int]]:
        runs = [next((item for item in items if isinstance(item, Run)), None) for items in self._waiting]
        return [(int(run.seg_frames[0]), int(run.seg_ts_ns[0])) for run in runs if run is not None]

    @property
    def joined(self) -> bool:
        return False

    def end_notes(self) -> list[Noted]:
        """Directions, or the whole connection, that could not be decrypted."""
        if self.readable:
            found = []
            for direction, side in enumerate(self._sides):
                if side is not None and side.hopeless and not side.opened:
                    found.append((direction, "the key log has no secret for this direction"))
                if side is not None and side.early_refused:
                    detail = f"the client sent early data (0-RTT), and the key log has no {keylog.EARLY}"
                    found.append((direction, detail))
            return [Noted(ViolationCode.TLS_NO_KEY, direction, detail, None, None) for direction, detail in found]
        detail = f"{self.why_unreadable()}; to get keys, {keylog.HOW_TO_GET_KEYS}"
        return [Noted(ViolationCode.TLS_NO_KEY, None, detail, None, None)]

    # -- state ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Plain data without secrets; take it between two items."""
        return {
            "version": self.STATE_VERSION,
            "sides": [None if side is None else side.state() for side in self._sides],
            "waiting": [[item_state(item) for item in items] for items in self._waiting],
            "last_run": [
                item_state(places.last_run, keep_data=False)
                if places.last_run is not None and side is not None and side.blocked
                else None
                for places, side in zip(self._places, self._sides)
            ],
            "plain_offset": self._plain_offset,
            "high": [places.high for places in self._places],
            "floor": [places.floor for places in self._places],
            "begun_ns": [
                places.begun_ns if side is not None and side.blocked else self._incomplete_ns(direction)
                for direction, (places, side) in enumerate(zip(self._places, self._sides))
            ],
            "ended": self._ended,
            "gaps": self._gaps,
            "given_up": self._given_up,
            "noted": [note.state() for note in self.noted],
            **self._hellos.state(),
        }

    @classmethod
    def resume(cls, state: dict[str, Any], connection: Any, log: KeyLog) -> TlsSession:
        if state["version"] != cls.STATE_VERSION:
            raise ValueError(f"the state of a TLS session has the unknown version {state['version']}")
        own = cls(connection, log)
        own._hellos = TlsHellos.resume(state)
        own._sides = [
            None if side is None else TlsSide.resume(side, direction, own)
            for direction, side in enumerate(state["sides"])
        ]
        own._waiting = [[item_from_state(item, connection) for item in items] for items in state["waiting"]]
        for direction, places in enumerate(own._places):
            run = state["last_run"][direction]
            restored = None if run is None else item_from_state(run, connection)
            places.last_run = restored if isinstance(restored, Run) else None
            frame, ts_ns = state["high"][direction]
            places.high = (frame, ts_ns)
            places.floor, places.begun_ns = state["floor"][direction], state["begun_ns"][direction]
        own._plain_offset = list(state["plain_offset"])
        own._given_up = state["given_up"]
        own.noted = [Noted.resume(note) for note in state["noted"]]
        own._ended, own._gaps = list(state["ended"]), list(state["gaps"])
        return own
