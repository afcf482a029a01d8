"""HTTP/1 messages in one direction of a TCP connection, as far as RTMPT needs them.

Bytes in order and gaps in; first lines, pieces of bodies and ends of messages out. Bodies are passed on as they
arrive and not kept. Bytes that are not HTTP are skipped up to the next message, and counted.
"""

from __future__ import annotations

import base64
import re
from typing import Any, NamedTuple

from rtmp_spark.codec.limits import HTTP_HEAD_BYTES, HTTP_LINE_BYTES

_REQUEST = re.compile(rb"(POST|GET|HEAD|PUT|OPTIONS|DELETE|PATCH) (\S{1,4096}) HTTP/1\.[01]\r?\n")
_RESPONSE = re.compile(rb"(HTTP)/1\.[01] (\d{3})[^\r\n]{0,512}\r?\n")
_BLANK = re.compile(rb"\r?\n\r?\n")
_LENGTH = re.compile(rb"\r?\ncontent-length:[ \t]*(\d{1,15})[ \t]*\r?\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r?\ntransfer-encoding:[^\r\n]*chunked[ \t]*\r?\n", re.IGNORECASE)
_NO_BODY = (b"204", b"304")

UNKNOWN = -1
HEAD, BODY, SIZE, CHUNK, CHUNK_END, TRAILER, REST, SEARCH = (
    "head", "body", "size", "chunk", "chunk_end", "trailer", "rest", "search",
)  # fmt: skip


class First(NamedTuple):
    """The head of a message: its method or `HTTP`, and its path or status."""

    word: str
    target: str
    offset: int  # of its first byte


class Body(NamedTuple):
    offset: int
    data: bytes


class Missing(NamedTuple):
    """Bytes of a body that no packet contains."""

    offset: int
    length: int  # or UNKNOWN


class Finished(NamedTuple):
    """The end of a message; `whole` if no byte of it is missing."""

    offset: int
    whole: bool


class Skipped(NamedTuple):
    """Bytes that are not HTTP."""

    offset: int
    length: int


class Unsure(NamedTuple):
    """Whole messages may be missing before this offset."""

    offset: int


HttpEvent = First | Body | Missing | Finished | Skipped | Unsure


class HttpReader:
    """Reads one direction: requests or responses."""

    def __init__(self, requests: bool, from_start: bool = True) -> None:
        self._first = _REQUEST if requests else _RESPONSE
        self._requests = requests
        self._phase = HEAD if from_start else SEARCH
        self._pending = b""
        self._offset = -1  # of the first pending byte
        self._left = 0  # of the body or chunk
        self._whole = True
        self._skipped = 0

    def receive(self, data: bytes, offset: int) -> list[HttpEvent]:
        out: list[HttpEvent] = []
        if self._offset < 0:
            self._offset = offset
        data = self._pending + data
        base, at = self._offset, 0
        while True:
            begun, phase = at, self._phase
            at = self._step(data, at, base, out)
            if at == begun and phase == self._phase:
                break
        self._pending, self._offset = data[at:], base + at
        return out

    def receive_gap(self, length: int) -> list[HttpEvent]:
        out: list[HttpEvent] = []
        at = max(self._offset, 0)
        self._offset = at + len(self._pending) + length
        self._pending = b""
        if self._phase == REST:
            out.append(Missing(at, length))
            self._whole = False
            return out
        inside = min(length, self._left) if self._phase in (BODY, CHUNK) else 0
        if inside:
            out.append(Missing(at, inside))
            self._whole = False
            self._left -= inside
            if inside == length:
                if not self._left:
                    self._end_of_part(self._offset, out)
                return out
        if self._phase in (CHUNK, CHUNK_END, SIZE):
            out.append(Missing(at, UNKNOWN))
        if self._phase not in (HEAD, SEARCH):
            self._whole = False
            out.append(Finished(at, False))
        out.append(Unsure(self._offset))
        self._phase, self._left, self._whole = SEARCH, 0, True
        return out

    def receive_lost(self, length: int) -> list[HttpEvent]:
        """Take a gap of about this length: it is unknown where in a body it ends."""
        out: list[HttpEvent] = []
        at = max(self._offset, 0)
        if self._phase in (BODY, CHUNK, REST):
            out.append(Missing(at, UNKNOWN))
        if self._phase not in (HEAD, SEARCH):
            out.append(Finished(at, False))
        self._offset = at + len(self._pending) + length
        out.append(Unsure(self._offset))
        self._pending, self._left, self._skipped = b"", 0, 0
        self._phase, self._whole = SEARCH, True
        return out

    def receive_end(self) -> list[HttpEvent]:
        out: list[HttpEvent] = []
        self._report_skipped(self._offset, out)
        if self._phase == REST:
            out.append(Finished(self._offset, self._whole))
        elif self._phase not in (HEAD, SEARCH):
            out.append(Finished(self._offset, False))
        self._phase = SEARCH
        return out

    def _step(self, data: bytes, at: int, base: int, out: list[HttpEvent]) -> int:
        phase = self._phase
        if phase in (HEAD, SEARCH):
            return self._head(data, at, base, out)
        if phase in (BODY, CHUNK, REST):
            piece = data[at:] if phase == REST else data[at : at + self._left]
            if piece:
                out.append(Body(base + at, piece))
            if phase != REST:
                self._left -= len(piece)
                if not self._left:
                    self._end_of_part(base + at + len(piece), out)
            return at + len(piece)
        end = data.find(b"\n", at)
        if end < 0:
            if len(data) - at > HTTP_HEAD_BYTES:
                self._phase = SEARCH
            return at
        line = data[at:end].strip()
        if phase == SIZE:
            digits = line.partition(b";")[0].strip()
            try:
                self._left = int(digits, 16) if len(digits) <= 15 else -1
            except ValueError:
                self._left = -1
            if self._left < 0:
                out.append(Finished(base + at, False))
                self._phase, self._left = SEARCH, 0
                return at
            self._phase = CHUNK if self._left else TRAILER
        elif phase == CHUNK_END:
            self._phase = SIZE
        elif not line:
            out.append(Finished(base + end + 1, self._whole))
            self._phase, self._whole = HEAD, True
        return end + 1

    def _end_of_part(self, offset: int, out: list[HttpEvent]) -> None:
        if self._phase == CHUNK:
            self._phase = CHUNK_END
        else:
            out.append(Finished(offset, self._whole))
            self._phase, self._whole = HEAD, True

    def _head(self, data: bytes, at: int, base: int, out: list[HttpEvent]) -> int:
        while self._phase == HEAD and data[at : at + 2] == b"\r\n":
            at += 2  # empty lines between messages are allowed (RFC 9112 2.2)
        match = self._first.match(data, at)
        if match is None:
            known = (b"POST ", b"GET ", b"HEAD ", b"PUT ", b"OPTIONS ", b"DELETE ", b"PATCH ") if self._requests else (
                b"HTTP/1.",
            )  # fmt: skip
            begun = data[at : at + 8]
            may_be = any(word.startswith(begun) or begun.startswith(word) for word in known)
            if may_be and b"\n" not in data[at : at + HTTP_LINE_BYTES] and len(data) - at < HTTP_LINE_BYTES:
                return at
            match = self._first.search(data, at + (self._phase == HEAD))
            self._phase = SEARCH
            if match is None:
                kept = max(at, len(data) - HTTP_LINE_BYTES)
                line = data.rfind(b"\n", at, kept)
                to = max(kept, line + 1) if kept > at else at
                self._skipped += to - at
                return to
            self._skipped += match.start() - at
            at = match.start()
        blank = _BLANK.search(data, match.end() - 2)
        if blank is None:
            if len(data) - at > HTTP_HEAD_BYTES:
                self._skipped += match.end() - at
                self._phase = SEARCH
                return match.end()
            return at
        self._report_skipped(base + at, out)
        word, target = match[1].decode("latin-1"), match[2].decode("latin-1")
        out.append(First(word, target, base + at))
        head = data[match.end() - 2 : blank.end()]
        length = _LENGTH.search(head)
        self._whole = True
        if _CHUNKED.search(head):
            self._phase = SIZE
        elif not self._requests and (match[2] in _NO_BODY or match[2][:1] == b"1"):
            self._left = 0
            self._phase = BODY
            self._end_of_part(base + blank.end(), out)
        elif length is not None or self._requests:
            self._left = int(length[1]) if length is not None else 0
            self._phase = BODY
            if not self._left:
                self._end_of_part(base + blank.end(), out)
        else:
            self._phase = REST
        return blank.end()

    def _report_skipped(self, offset: int, out: list[HttpEvent]) -> None:
        if self._skipped:
            out.append(Skipped(offset - self._skipped, self._skipped))
            self._skipped = 0

    def state(self) -> list[Any]:
        pending = base64.b64encode(self._pending).decode()
        return [self._requests, self._phase, pending, self._offset, self._left, self._whole, self._skipped]

    @classmethod
    def resume(cls, state: list[Any]) -> HttpReader:
        own = cls(state[0])
        own._phase, own._pending, own._offset = state[1], base64.b64decode(state[2]), state[3]
        own._left, own._whole, own._skipped = state[4:]
        return own
