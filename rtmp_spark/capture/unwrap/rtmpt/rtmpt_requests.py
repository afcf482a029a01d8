"""Requests and responses of RTMPT on one connection, and the pieces of their bodies, as values that can be saved."""

from __future__ import annotations

from collections import deque
from itertools import islice, takewhile
from typing import Any, NamedTuple

import numpy as np

from rtmp_spark.capture.tcp.stream_items import Run
from rtmp_spark.capture.unwrap.rtmpt.http_reader import (
    UNKNOWN,
    Body,
    Finished,
    First,
    HttpEvent,
    Missing,
    Skipped,
    Unsure,
)
from rtmp_spark.capture.unwrap.rtmpt.rtmpt_session import Entry, Piece, RtmptSession, piece_of, piece_state
from rtmp_spark.codec.limits import RTMPT_PIPELINED, RTMPT_RESPONSES_COUNTED

OPEN, SEND, CLOSE, OTHER, IDENT = "open", "send", "close", "other", "ident"


class Asked:
    """A request that waits for its response."""

    __slots__ = ("answer", "body", "frame", "kind", "session", "ts_ns")

    def __init__(self, kind: str, frame: int, ts_ns: int) -> None:
        self.kind = kind
        self.frame = frame
        self.ts_ns = ts_ns
        self.session: RtmptSession | None = None
        self.body: Entry | None = None
        self.answer: Entry | None = None


class Placed(NamedTuple):
    """An HTTP event with the packet it came from, and the bytes of a body."""

    event: HttpEvent
    frame: int
    ts_ns: int
    piece: Piece | None = None


class Match(NamedTuple):
    """The request of a response (None: it was lost), and older requests that have no response."""

    request: Asked | None
    unanswered: list[Asked]


class RequestQueue:
    """Requests that wait for their responses, and events of responses that wait for their requests."""

    def __init__(self) -> None:
        self.asked: deque[Asked] = deque()
        self.responses: deque[Placed] = deque()
        self.unsure = False  # packets are missing, so a request or a response may be missing
        self.requests_high = 0  # the latest packet with a request
        self.requests_over = False

    @property
    def ahead_bytes(self) -> int:
        """Bytes of responses whose requests were not read yet."""
        return sum(len(placed.piece.data) for placed in self.responses if placed.piece is not None)

    def match(self, frame: int) -> Match | None:
        """Remove the request of a response in this packet from the queue; None if it may still be unread.

        It is the oldest open request. After a loss, it is the oldest of those that the responses before the next
        request can belong to.
        """
        asked = self.asked
        if not self.unsure:
            if asked:
                return Match(asked.popleft(), [])
            return Match(None, []) if self.requests_over else None
        if self.requests_high <= frame and not self.requests_over:
            return None
        unanswered = []
        while len(asked) > RTMPT_PIPELINED and asked[RTMPT_PIPELINED].frame <= frame:
            unanswered.append(asked.popleft())
        known = sum(1 for _ in takewhile(lambda request: request.frame <= frame, asked))
        responses = self._responses_before(asked[known].frame if known < len(asked) else None, known)
        unanswered += [asked.popleft() for _ in range(known - responses)]
        # With more responses than requests, the requests of the first responses were lost.
        return Match(asked.popleft() if 0 < responses <= known else None, unanswered)

    def _responses_before(self, frame: int | None, enough: int) -> int:
        """How many responses wait that came before the next request, counted up to `enough` + 1."""
        found = 0
        for placed in islice(self.responses, RTMPT_RESPONSES_COUNTED):
            if frame is not None and placed.frame >= frame:
                break
            found += isinstance(placed.event, First) and placed.event.target >= "200"
            if found > enough:
                break
        return found


def asked_state(asked: Asked) -> list[Any]:
    session_id = None if asked.session is None else asked.session.session_id
    return [asked.kind, asked.frame, asked.ts_ns, session_id, None if asked.body is None else asked.body.number]


_EVENTS: dict[str, Any] = {kind.__name__: kind for kind in (First, Body, Missing, Finished, Skipped, Unsure)}


def placed_state(placed: Placed) -> list[Any]:
    values = [v.decode("latin-1") if isinstance(v, bytes) else v for v in placed.event]
    piece = None if placed.piece is None else piece_state(placed.piece)
    return [type(placed.event).__name__, values, placed.frame, placed.ts_ns, piece]


def placed_from_state(saved: list[Any]) -> Placed:
    kind, values, frame, ts_ns, piece = saved
    if kind == Body.__name__:
        values = [values[0], values[1].encode("latin-1")]
    return Placed(_EVENTS[kind](*values), frame, ts_ns, None if piece is None else piece_of(piece))


def body_piece(run: Run, body: Body) -> Piece:
    """The bytes of a body with their packets."""
    end = body.offset + len(body.data)
    first = max(int(np.searchsorted(run.seg_offsets, body.offset, "right")) - 1, 0)
    last = int(np.searchsorted(run.seg_offsets, end, "left"))
    starts = np.maximum(run.seg_offsets[first:last] - body.offset, 0)
    return Piece(body.data, starts, run.seg_frames[first:last], run.seg_ts_ns[first:last])


def missing_piece(length: int, frame: int, ts_ns: int) -> Piece:
    """A piece that no packet contains."""
    return Piece(b"", np.zeros(1, np.int64), np.array([frame]), np.array([ts_ns]), length)


def without_first_byte(piece: Piece) -> Piece | None:
    """A piece without the first byte of a response, which is the polling interval; None if that was all."""
    if piece.length == UNKNOWN:
        return piece
    if piece.length:
        return piece._replace(length=piece.length - 1) if piece.length > 1 else None
    if len(piece.data) == 1:
        return None
    keep = 1 if len(piece.starts) > 1 and piece.starts[1] == 1 else 0
    starts = np.maximum(piece.starts[keep:] - 1, 0)
    return Piece(piece.data[1:], starts, piece.frames[keep:], piece.times[keep:])
