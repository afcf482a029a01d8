"""One RTMPT session: the bodies of its requests and responses, in the order of their numbers.

Requests may use several TCP connections and be answered out of order; each has a number in its path. The next body in
order is delivered as it arrives; others wait, within limits. Missing bodies are reported as gaps.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from rtmp_spark.capture.packet_block import Ints
from rtmp_spark.capture.tcp.stream_items import End, Gap, Item, Run
from rtmp_spark.capture.unwrap.rtmpt.http_reader import UNKNOWN
from rtmp_spark.capture.unwrap.wrapping import Noted
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.limits import RTMPT_CHECKSUMS, RTMPT_HELD_BODIES, RTMPT_HELD_BYTES, RTMPT_NOTES

REQUESTS, ANSWERS = 0, 1

Sink = Callable[[Item], None]


class Piece(NamedTuple):
    """Bytes of a body and their packets; without data, `length` bytes (or UNKNOWN) that no packet contains."""

    data: bytes
    starts: Ints  # of segments, in `data`
    frames: Ints
    times: Ints
    length: int = 0


class Entry:
    """The body of one request or response."""

    __slots__ = ("complete", "crc", "late", "number", "pieces", "size")

    def __init__(self, number: int, late: bool = False) -> None:
        self.number = number
        self.late = late  # there was one with this number already
        self.pieces: list[Piece] = []
        self.size = 0
        self.crc = 0
        self.complete = False


class Lane:
    """The bodies of one direction."""

    def __init__(self) -> None:
        self.next: int | None = None
        self.waiting: dict[int, list[Entry]] = {}  # more than one where numbers repeat
        self.recent: dict[int, int] = {}  # checksums of the last delivered bodies
        self.offset = 0
        self.lost_at = -1  # the offset after a gap of unknown length, where another one is not reported
        self.place = (0, 0)

    def held_bytes(self) -> int:
        return sum(entry.size for entries in self.waiting.values() for entry in entries)


class RtmptSession:
    """`connection` is the one that the rows belong to, `requests` the direction of the requests on it."""

    def __init__(self, session_id: str, connection: Any, requests: int, sink: Sink, opened: bool) -> None:
        self.session_id = session_id
        self.connection = connection
        self.requests = requests
        self._sink = sink
        self.opened = opened
        self.open_seen = opened
        self._first: int | None = None  # the first number that was delivered
        self.members: set[int] = set()  # numbers of its open TCP connections
        self.carriers: list[Any] = []  # all its TCP connections, in the order they joined
        self.unsure = False  # packets are missing, so requests may be missing too
        self._lanes = (Lane(), Lane())
        self._noted: list[Noted] = []
        self.finished = False
        self.goodbye_ns: int | None = None  # time of /close
        self.heard_ns = 0  # time of the last request

    @property
    def from_start(self) -> bool:
        """Whether it began in the recording. Clients count requests from 0 or 1."""
        return self.open_seen or (self._first is not None and self._first <= 1)

    @property
    def _began_elsewhere(self) -> bool:
        """It continues on a connection that opened in the recording: earlier numbers are on other connections, whose
        bytes come later because they start midstream."""
        return not self.open_seen and not all(connection.midstream for connection in self.carriers)

    @property
    def held(self) -> list[tuple[int, int]]:
        """The first packet and time of each body that waits for bodies before it."""
        entries = [entry for lane in self._lanes for waiting in lane.waiting.values() for entry in waiting]
        pieces = [entry.pieces[0] for entry in entries if entry.pieces]
        return [(int(piece.frames[0]), int(piece.times[0])) for piece in pieces]

    def join(self, connection: Any) -> None:
        """Add a TCP connection that carries the session."""
        self.members.add(connection.number)
        if connection not in self.carriers:
            self.carriers.append(connection)

    def begin(self, which: int, number: int, frame: int, ts_ns: int) -> Entry:
        """Begin a request or its response; `add` adds to its body and `finish` ends it."""
        lane = self._lanes[which]
        self.heard_ns = max(ts_ns, self.heard_ns)
        over = lane.next is not None and number < lane.next
        entry = Entry(number, over or number in lane.waiting)
        if entry.late and which == REQUESTS:
            self._note(f"request number {number} is repeated", frame, ts_ns)
        if not over:
            lane.waiting.setdefault(number, []).append(entry)
        return entry

    def add(self, which: int, entry: Entry, piece: Piece) -> None:
        entry.pieces.append(piece)
        entry.size += len(piece.data)
        self._advance(which)

    def finish(self, which: int, entry: Entry) -> None:
        entry.complete = True
        lane = self._lanes[which]
        if entry.late and lane.next is not None and entry.number < lane.next:
            self._release_late(which, entry)
        self._advance(which)

    def settle(self) -> None:
        """All packets up to now were read."""
        for which, lane in enumerate(self._lanes):
            if lane.next is None and lane.waiting:
                first = min(lane.waiting)
                other = self._lanes[1 - which].next
                if other is not None and which == ANSWERS:
                    self._start(lane, min(other, first))
                elif first <= 1 or self._overfull(lane) or not (self.opened or self._began_elsewhere):
                    self._start(lane, first)
            self._advance(which)
            if self._stuck(lane):
                alone = len(self.members) < 2
                for first in sorted(lane.waiting):
                    if not self._stuck(lane) or not (alone or self._overfull(lane)):
                        break
                    if first in lane.waiting:
                        self._pass_over(which, first)

    def flush(self, kind: str, frame: int, ts_ns: int) -> None:
        """The session is over: deliver the waiting bodies in order, then end both directions."""
        if self.finished:
            return
        self.finished = True
        for which, lane in enumerate(self._lanes):
            if lane.next is None and lane.waiting:
                self._start(lane, min(lane.waiting))
            for first in sorted(lane.waiting):
                self._advance(which)
                while first in lane.waiting:
                    if self._stuck(lane):
                        self._pass_over(which, first)
                    else:
                        lane.waiting[first][0].complete = True
                        self._advance(which)
            self._sink(End(self.connection, self._direction(which), kind, lane.offset, frame, ts_ns))

    def take_noted(self) -> list[Noted]:
        noted, self._noted = self._noted, []
        return noted

    def _start(self, lane: Lane, number: int) -> None:
        lane.next = number
        if self._first is None:
            self._first = number

    # -- order ------------------------------------------------------------------------------------------------------

    def _advance(self, which: int) -> None:
        lane = self._lanes[which]
        while lane.next is not None:
            entries = lane.waiting.get(lane.next)
            if entries is None:
                return
            while entries:
                entry = entries[0]
                if not entry.late:
                    self._release(which, entry)
                if not entry.complete:
                    return
                if entry.late:
                    self._release_late(which, entry)
                else:
                    self._remember(lane, entry)
                entries.pop(0)
            del lane.waiting[lane.next]
            lane.next += 1

    def _remember(self, lane: Lane, entry: Entry) -> None:
        lane.recent[entry.number] = entry.crc
        while len(lane.recent) > RTMPT_CHECKSUMS:
            del lane.recent[next(iter(lane.recent))]

    def _release_late(self, which: int, entry: Entry) -> None:
        """Deliver a body whose number was used before, unless it repeats the same body."""
        crc = 0
        for piece in entry.pieces:
            crc = crc32(piece.data, crc)
        if entry.size and crc != self._lanes[which].recent.get(entry.number):
            self._release(which, entry)
            self._remember(self._lanes[which], entry)

    def _stuck(self, lane: Lane) -> bool:
        return lane.next is not None and bool(lane.waiting) and lane.next not in lane.waiting

    def _overfull(self, lane: Lane) -> bool:
        return len(lane.waiting) > RTMPT_HELD_BODIES or lane.held_bytes() > RTMPT_HELD_BYTES

    def _pass_over(self, which: int, first: int) -> None:
        """Bodies before `first` will not come: report a gap of unknown length, unless numbers were only skipped."""
        lane = self._lanes[which]
        assert lane.next is not None
        # The numbers may be on connections that were not recorded, or come later where TCP waits for a packet.
        if self.unsure or not self.from_start or (len(self.members) > 1 and not self.finished):
            self._gap(which, UNKNOWN)
        elif which == REQUESTS:
            frame, ts_ns = lane.place
            self._note(f"request number {lane.next - 1} is followed by {first}", frame or None, ts_ns or None)
        lane.next = first
        self._advance(which)

    # -- items --------------------------------------------------------------------------------------------------------

    def _direction(self, which: int) -> int:
        return self.requests if which == REQUESTS else 1 - self.requests

    def _release(self, which: int, entry: Entry) -> None:
        lane = self._lanes[which]
        pieces, entry.pieces = entry.pieces, []
        entry.size = 0
        for piece in pieces:
            if piece.length:
                lane.place = (int(piece.frames[0]), int(piece.times[0]))
                self._gap(which, piece.length)
                continue
            entry.crc = crc32(piece.data, entry.crc)
            lane.place = (int(piece.frames[-1]), int(piece.times[-1]))
            run = Run(
                self.connection, self._direction(which), lane.offset, piece.data, piece.starts + lane.offset,
                piece.frames, piece.times,
            )  # fmt: skip
            lane.offset += len(piece.data)
            self._sink(run)

    def _gap(self, which: int, length: int) -> None:
        lane = self._lanes[which]
        # `cut`: not a loss of its own; the connection with the missing TCP data reports that one.
        exact = length != UNKNOWN
        if not exact and lane.offset == lane.lost_at:
            return
        length = length if exact else 1
        gap = Gap(self.connection, self._direction(which), lane.offset, length, *lane.place, None, True, exact=exact)
        lane.offset += length
        lane.lost_at = -1 if exact else lane.offset
        self._sink(gap)

    def _note(self, detail: str, frame: int | None, ts_ns: int | None) -> None:
        if len(self._noted) < RTMPT_NOTES:
            self._noted.append(Noted(ViolationCode.RTMPT_SEQUENCE, self.requests, detail, frame, ts_ns))

    # -- state --------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "requests": self.requests,
            "opened": self.opened,
            "began": [self.open_seen, self._first],
            "unsure": self.unsure,
            "goodbye_ns": self.goodbye_ns,
            "heard_ns": self.heard_ns,
            "noted": [note.state() for note in self._noted],
            "lanes": [
                [lane.next, lane.offset, lane.lost_at, lane.place, list(lane.recent.items()), _entries(lane)]
                for lane in self._lanes
            ],
        }

    @classmethod
    def resume(cls, state: dict[str, Any], connection: Any, sink: Sink) -> RtmptSession:
        own = cls(state["session_id"], connection, state["requests"], sink, state["opened"])
        own.unsure, own.goodbye_ns = state["unsure"], state["goodbye_ns"]
        own.heard_ns = state["heard_ns"]
        own.open_seen, own._first = state["began"]
        own._noted = [Noted.resume(note) for note in state["noted"]]
        for lane, (number, offset, lost_at, place, recent, waiting) in zip(own._lanes, state["lanes"], strict=True):
            lane.next, lane.offset, lane.lost_at, lane.place = number, offset, lost_at, (place[0], place[1])
            lane.recent = dict(recent)
            for entry in waiting:
                lane.waiting.setdefault(entry[0], []).append(_made(entry))
        return own

    def again(self, which: int, number: int) -> Entry:
        """The body with this number that was incomplete when the state was saved."""
        entries = self._lanes[which].waiting.get(number)
        return entries[-1] if entries else Entry(number, True)


def _entries(lane: Lane) -> list[list[Any]]:
    return [_entry(entry) for entries in lane.waiting.values() for entry in entries]


def _entry(entry: Entry) -> list[Any]:
    pieces = [piece_state(piece) for piece in entry.pieces]
    return [entry.number, entry.late, pieces, entry.crc, entry.complete]


def piece_state(piece: Piece) -> list[Any]:
    data = base64.b64encode(piece.data).decode()
    return [data, piece.starts.tolist(), piece.frames.tolist(), piece.times.tolist(), piece.length]


def piece_of(state: list[Any]) -> Piece:
    data, starts, frames, times, length = state
    place = (np.array(starts, np.int64), np.array(frames, np.int64), np.array(times, np.int64))
    return Piece(base64.b64decode(data), *place, length)


def _made(state: list[Any]) -> Entry:
    entry = Entry(state[0], state[1])
    entry.pieces = [piece_of(piece) for piece in state[2]]
    entry.size = sum(len(piece.data) for piece in entry.pieces)
    entry.crc, entry.complete = state[3], state[4]
    return entry
