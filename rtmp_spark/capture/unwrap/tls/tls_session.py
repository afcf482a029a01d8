"""TLS taken off: both directions of TLS bytes in, both directions of what they carried out, as the same kind of items.

Offsets of what comes out count the bytes inside. A byte belongs to the packet with which its record became readable
(the one that completes it), as Wireshark shows it too. What cannot be read is a `Lost`, never silence. Nothing is
guessed: every byte that leaves here was authenticated by its record. Needs the package `cryptography` only where
there is a secret to use; the names of a connection without keys can be had without.

The state is a value without secrets: whoever resumes it brings the key log again.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rtmp_spark.capture import keylog
from rtmp_spark.capture.items import Conflict, End, Gap, Item, Lost, Run
from rtmp_spark.capture.keylog import KeyLog
from rtmp_spark.capture.service import RTMPS, TLS
from rtmp_spark.capture.tls_epochs import CLIENT, SERVER, Epoch, guesses, protected
from rtmp_spark.capture.tls_handshake import (
    CLIENT_HELLO,
    SERVER_HELLO,
    ClientHello,
    ServerHello,
    parse_client_hello,
    parse_server_hello,
)
from rtmp_spark.capture.tls_side import Content, TlsSide
from rtmp_spark.capture.tls_suites import (
    ALERT,
    ALERT_MEANINGS,
    ALERT_NAMES,
    APPLICATION_DATA,
    CLOSE_NOTIFY,
    SUITES,
    TLS12,
    TLS13,
    VERSION_NAMES,
    suite_name,
)
from rtmp_spark.capture.wrapping import Noted, WrappingFacts
from rtmp_spark.codec.errors import ViolationCode

WAITING_BYTES = 4 << 20  # of one direction, for the hello of the other
_MOST_HANDSHAKES = 64
_MOST_FOUND = 64


class TlsSession:
    """One TLS connection. `receive` every item of both directions, `finish` when no more will come."""

    STATE_VERSION = 3
    refusal = TLS

    def __init__(self, connection: Any, log: KeyLog) -> None:
        self._connection = connection
        self.log = log
        self._sides: list[TlsSide | None] = [None, None]
        self._waiting: list[list[Item]] = [[], []]  # behind a side that is blocked
        self._last_run: list[Run | None] = [None, None]
        self._plain_offset = [0, 0]
        self._high = [(0, 0), (0, 0)]  # the latest packet of each direction, and its time
        self._floor = [0, 0]  # the latest packet before the last run
        self._begun_ns = [0, 0]  # the latest time of the bytes before the last run that belong to no whole record
        self._ended = [False, False]
        self._client_hellos: list[ClientHello] = []
        self._server_hellos: list[ServerHello] = []
        self._retried = False
        self._given_up = False
        self._gaps = [0, 0]
        self.noted: list[Noted] = []

    # -- what is known ------------------------------------------------------------------------------------------

    @property
    def server_name(self) -> str | None:
        return next((hello.server_name for hello in self._client_hellos if hello.server_name), None)

    @property
    def version(self) -> str | None:
        hello = self._server_hellos[0] if self._server_hellos else None
        return None if hello is None else VERSION_NAMES.get(hello.version, f"0x{hello.version:04X}")

    @property
    def cipher(self) -> str | None:
        return suite_name(self._server_hellos[-1].suite) if self._server_hellos else None

    @property
    def client_randoms(self) -> list[bytes]:
        """Of every handshake: under these its secrets stand in a key log."""
        found = {hello.random for hello in self._client_hellos}
        found |= {side.epoch.client_random for side in self._sides if side is not None and side.epoch.client_random}
        return sorted(found)

    @property
    def readable(self) -> bool | None:
        """True once a record opened; False once it is certain that none will; else None."""
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
        """One sentence: what is known about the connection, and what is missing."""
        about = ", ".join(x for x in (self.version, self.cipher, self.server_name and f"to {self.server_name}") if x)
        about = f"{about}: " if about else ""
        hello = self._server_hellos[0] if self._server_hellos else None
        if hello is not None and hello.version not in (TLS12, TLS13):
            return f"{about}only TLS 1.2 and 1.3 are read"
        if hello is not None and hello.suite not in SUITES:
            return f"{about}this cipher is not read"
        # Whether there are keys of other connections must not show: it depends on which files are read together.
        if not self._client_hellos or hello is None:
            return f"{about}the handshake is not whole in the recording, and no key opens a record"
        if not any(self.log.knows(hello.random) for hello in self._client_hellos):
            return f"{about}there is no key for this connection"
        return f"{about}the keys given for this connection do not open its records"

    # -- Hellos: what a side asks ---------------------------------------------------------------------------------

    def protected(self, role: int, handshake: int) -> Epoch | None:
        if not self._client_hellos or handshake >= len(self._server_hellos):
            return None
        hello = self._server_hellos[handshake]
        if hello.version == TLS13:
            return protected(role, self._client_hellos[0].random, hello)
        if handshake >= len(self._client_hellos):
            return None
        return protected(role, self._client_hellos[handshake].random, hello)

    def guesses(self, direction: int) -> Iterator[Epoch]:
        roles = (self._side(direction).role,) if self._roles_known() else (CLIENT, SERVER)
        known = self._client_hellos[0].random if self._client_hellos else None
        other = self._sides[1 - direction]
        if other is not None and other.opened:
            known, roles = other.epoch.client_random, (1 - other.epoch.role,)
        return guesses(self.log, roles, known, self._server_hellos[0] if self._server_hellos else None)

    def told(self, direction: int, kind: int, body: bytes) -> None:
        if kind == CLIENT_HELLO and len(self._client_hellos) < _MOST_HANDSHAKES:
            hello = parse_client_hello(body)
            retried = bool(self._client_hellos) and hello is not None and hello.random == self._client_hellos[-1].random
            if hello is not None and not retried:
                self._client_hellos.append(hello)
                self._set_client(direction)
        elif kind == SERVER_HELLO and len(self._server_hellos) < _MOST_HANDSHAKES:
            answer = parse_server_hello(body)
            if answer is not None:
                self._retried = answer.retry
                if not answer.retry:
                    self._server_hellos.append(answer)
                self._set_client(1 - direction)

    def _roles_known(self) -> bool:
        return bool(self._client_hellos or self._server_hellos) or not self._connection.midstream

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
        """Nothing more comes: what still waits is read with what is known."""
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
            if sum(len(i.data) for i in self._waiting[direction] if isinstance(i, Run)) > WAITING_BYTES:
                side.stop_waiting()
                self._replay(direction, out)
            return
        if isinstance(item, Run):
            if side is None:
                side = self._side(direction, item.offset == 0 and bool(self._connection.streams[direction].syn))
            self._begun_ns[direction] = self._begun(direction)
            contents = side.receive(item.data, item.offset)
            self._last_run[direction] = item
            self._floor[direction] = self._high[direction][0]
            if len(item.seg_frames):
                last = int(np.argmax(item.seg_frames))
                self._raise(direction, int(item.seg_frames[last]), int(item.seg_ts_ns[last]))
            self._deliver(direction, contents, item, out)
        elif isinstance(item, Gap):
            self._gaps[direction] += 1
            self._raise(direction, item.frame, item.ts_ns)
            side = self._side(direction)
            self._deliver(direction, side.receive_gap(item.length), self._last_run[direction], out)
            out.append(replace(item, outer=True))
        elif isinstance(item, End):
            if side is not None and not self._ended[direction]:
                contents = side.receive(b"", side.offset, final=True)
                self._deliver(direction, contents, self._last_run[direction], out)
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
        self._deliver(direction, side.receive(b"", side.offset), self._last_run[direction], out)
        waiting, self._waiting[direction] = self._waiting[direction], []
        for item in waiting:
            self._take(item, out)

    def _raise(self, direction: int, frame: int, ts_ns: int) -> None:
        if frame > self._high[direction][0]:
            self._high[direction] = (frame, ts_ns)

    def _deliver(self, direction: int, contents: list[Content], run: Run | None, out: list[Item]) -> None:
        if not contents:
            return
        ends = np.fromiter((content.end for content in contents), np.int64, len(contents))
        starts = np.fromiter((content.start for content in contents), np.int64, len(contents))
        frames, times = self._places(direction, run, starts, ends - 1)
        first = 0
        for index, content in enumerate(contents):
            if content.kind == APPLICATION_DATA:
                continue
            self._emit(direction, contents, frames, times, first, index, out)
            first = index + 1
            frame, ts_ns = int(frames[index]), int(times[index])
            if content.kind == ALERT:
                self._alert(direction, content.data, frame, ts_ns)
            elif not content.records:
                detail = f"{content.length} bytes between the records belong to none of this connection"
                self._note(Noted(ViolationCode.TLS_RECORD_LOST, direction, detail, frame, ts_ns))
            else:
                offset = self._plain_offset[direction]
                self._plain_offset[direction] += content.length
                out.append(
                    Lost(
                        self._connection, direction, offset, content.length, frame, ts_ns,
                        ViolationCode.TLS_RECORD_LOST, self._lost_words(direction, content),
                    )
                )  # fmt: skip
        self._emit(direction, contents, frames, times, first, len(contents), out)

    def _emit(
        self, direction: int, contents: list[Content], frames: Any, times: Any, first: int, last: int, out: list[Item]
    ) -> None:
        """Contents `first` to `last` are data: one run."""
        if first == last:
            return
        pieces = [content.data for content in contents[first:last]]
        offset = self._plain_offset[direction]
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        total = int(lengths.sum())
        if not total:
            return
        kept = lengths > 0
        starts = (np.cumsum(lengths) - lengths + offset)[kept]
        self._plain_offset[direction] = offset + total
        out.append(
            Run(
                self._connection, direction, offset, b"".join(pieces), starts, frames[first:last][kept],
                times[first:last][kept],
            )
        )  # fmt: skip

    def _places(self, direction: int, run: Run | None, starts: Any, lasts: Any) -> tuple[Any, Any]:
        """For each record the packet with which all bytes up to its last had arrived, and the latest time of its own.

        In a recording out of order these may be of two packets: the time must not depend on the order.
        """
        if run is None or not len(run.seg_frames):
            high = self._high[direction]
            return np.full(len(lasts), high[0], np.int64), np.full(len(lasts), high[1], np.int64)
        frames = np.maximum(np.maximum.accumulate(run.seg_frames), self._floor[direction])
        index = np.maximum(np.searchsorted(run.seg_offsets, lasts, "right") - 1, 0)
        times = run.seg_ts_ns[index]
        if (run.seg_ts_ns[1:] < run.seg_ts_ns[:-1]).any():
            first = np.maximum(np.searchsorted(run.seg_offsets, starts, "right") - 1, 0)
            between = np.stack((np.minimum(first, index), index + 1), 1).ravel()
            padded = np.append(run.seg_ts_ns, 0)  # so that every end is an index
            times = np.maximum.reduceat(padded, between)[::2]
        begun = starts < run.offset
        return frames[index], np.where(begun, np.maximum(times, self._begun_ns[direction]), times)

    def _begun(self, direction: int) -> int:
        """The latest time of the bytes so far that belong to no whole record."""
        side, run = self._sides[direction], self._last_run[direction]
        if run is None or side is None or not len(run.seg_ts_ns):
            return self._begun_ns[direction]
        if not side.pending:
            return 0
        first = max(int(np.searchsorted(run.seg_offsets, side.offset, "right")) - 1, 0)
        latest = int(run.seg_ts_ns[first:].max())
        return max(latest, self._begun_ns[direction]) if side.offset < run.offset else latest

    def _lost_words(self, direction: int, content: Content) -> str:
        inside = f"about {content.length} bytes inside"
        if self._gaps[direction]:
            return f"{content.records} TLS records lack bytes and cannot be read, {inside}"
        return f"{content.records} TLS records do not pass their authentication, {inside}"

    def _alert(self, direction: int, body: bytes, frame: int, ts_ns: int) -> None:
        if len(body) != 2 or body[1] == CLOSE_NOTIFY:
            return
        name = ALERT_NAMES.get(body[1], f"number {body[1]}")
        meaning = ALERT_MEANINGS.get(body[1])
        level = "fatal alert" if body[0] == 2 else "alert"
        detail = f"{level} {name}" + (f": {meaning}" if meaning else "")
        self._note(Noted(ViolationCode.TLS_ALERT, direction, detail, frame, ts_ns))

    def _note(self, noted: Noted) -> None:
        if len(self.noted) < _MOST_FOUND:
            self.noted.append(noted)

    def take_noted(self) -> list[Noted]:
        noted, self.noted = self.noted, []
        return noted

    @property
    def facts(self) -> WrappingFacts:
        return WrappingFacts(RTMPS, None, self.server_name, self.version, self.cipher)

    @property
    def retried(self) -> bool:
        return self._retried

    @property
    def early_data(self) -> bool:
        return any(hello.early_data for hello in self._client_hellos)

    @property
    def carriers(self) -> list[Any]:
        return []

    @property
    def joined(self) -> bool:
        return False

    def end_notes(self) -> list[Noted]:
        """What only the end shows: a direction, or all of it, that could not be read."""
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
        """Plain data without secrets; to be taken between two items."""
        return {
            "version": self.STATE_VERSION,
            "sides": [None if side is None else side.state() for side in self._sides],
            "waiting": [[_item_state(item) for item in items] for items in self._waiting],
            "last_run": [
                _item_state(run, keep_data=False) if run is not None and side is not None and side.blocked else None
                for run, side in zip(self._last_run, self._sides)
            ],
            "plain_offset": self._plain_offset,
            "high": self._high,
            "floor": self._floor,
            "begun_ns": [
                begun if side is not None and side.blocked else self._begun(direction)
                for direction, (begun, side) in enumerate(zip(self._begun_ns, self._sides))
            ],
            "ended": self._ended,
            "gaps": self._gaps,
            "given_up": self._given_up,
            "retried": self._retried,
            "noted": [note.state() for note in self.noted],
            "client_hellos": [[h.random.hex(), h.server_name, h.early_data] for h in self._client_hellos],
            "server_hellos": [[h.random.hex(), h.version, h.suite, h.encrypt_then_mac] for h in self._server_hellos],
        }

    @classmethod
    def resume(cls, state: dict[str, Any], connection: Any, log: KeyLog) -> TlsSession:
        if state["version"] != cls.STATE_VERSION:
            raise ValueError(f"state of a TLS session, version {state['version']}")
        session = cls(connection, log)
        session._client_hellos = [ClientHello(bytes.fromhex(r), *rest) for r, *rest in state["client_hellos"]]
        session._server_hellos = [ServerHello(bytes.fromhex(r), *rest) for r, *rest in state["server_hellos"]]
        session._sides = [
            None if side is None else TlsSide.resume(side, direction, session)
            for direction, side in enumerate(state["sides"])
        ]
        session._waiting = [[_item_of(item, connection) for item in items] for items in state["waiting"]]
        runs = [None if run is None else _item_of(run, connection) for run in state["last_run"]]
        session._last_run = [run if isinstance(run, Run) else None for run in runs]
        session._plain_offset = list(state["plain_offset"])
        session._high = [(frame, ts_ns) for frame, ts_ns in state["high"]]
        session._floor, session._begun_ns = list(state["floor"]), list(state["begun_ns"])
        session._given_up = state["given_up"]
        session._retried = state["retried"]
        session.noted = [Noted.resume(note) for note in state["noted"]]
        session._ended, session._gaps = list(state["ended"]), list(state["gaps"])
        return session


def _item_state(item: Item, keep_data: bool = True) -> list[Any]:
    if isinstance(item, Run):
        data = base64.b64encode(item.data if keep_data else b"").decode()
        columns = [column.tolist() for column in (item.seg_offsets, item.seg_frames, item.seg_ts_ns)]
        return ["run", item.direction, item.offset, data, *columns]
    if isinstance(item, Gap):
        return ["gap", item.direction, item.offset, item.length, item.frame, item.ts_ns, item.acked, item.cut]
    if isinstance(item, Conflict):
        places = [item.direction, item.offset, item.length, item.frame, item.ts_ns]
        return ["conflict", *places, item.crc_first, item.crc_second, item.intact]
    assert isinstance(item, End)
    return ["end", item.direction, item.kind, item.offset, item.frame, item.ts_ns]


def _item_of(state: list[Any], connection: Any) -> Item:
    kind, *values = state
    if kind == "run":
        direction, offset, data, *columns = values
        return Run(connection, direction, offset, base64.b64decode(data), *[np.array(c, np.int64) for c in columns])
    if kind == "gap":
        return Gap(connection, *values)
    return Conflict(connection, *values) if kind == "conflict" else End(connection, *values)
