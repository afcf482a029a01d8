"""Decodes one direction of a live connection into commands, media tags and violations, in the order of the bytes."""

from __future__ import annotations

from typing import NamedTuple

from rtmp_spark.codec.command import Command, parse_command
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.events import COMPLETE, HandshakePart, MessageReceived, Violation
from rtmp_spark.codec.media.reader import TagReader
from rtmp_spark.codec.media.tag import MediaTag
from rtmp_spark.codec.message import (
    AGGREGATE,
    AUDIO,
    COMMANDS,
    DATA_AMF0,
    DATA_AMF3,
    VIDEO,
    parse_aggregate,
)

_IN_AMF = COMMANDS | {DATA_AMF0, DATA_AMF3}


class FoundViolation(NamedTuple):
    code: ViolationCode
    severity: Severity
    detail: str
    stream_id: int | None = None  # of the message, if the violation belongs to one


class ReceivedCommand(NamedTuple):
    stream_id: int
    command: Command


Decoded = FoundViolation | ReceivedCommand | MediaTag


class LiveDirection:
    """`parts` holds the handshake messages that have arrived."""

    def __init__(self) -> None:
        self._decoder = RtmpDecoder()
        self._tags = TagReader()
        self.parts: dict[int, bytes] = {}

    def receive(self, data: bytes) -> list[Decoded]:
        found: list[Decoded] = []
        for event in self._decoder.receive_data(data):
            if isinstance(event, Violation):
                found.append(FoundViolation(event.code, event.severity, event.detail))
            elif isinstance(event, MessageReceived):
                if event.status == COMPLETE:
                    self._message(event, found)
            elif isinstance(event, HandshakePart):
                self.parts[event.part] = event.data
        return found

    def close(self) -> list[FoundViolation]:
        events = self._decoder.receive_eof()
        return [FoundViolation(e.code, e.severity, e.detail) for e in events if isinstance(e, Violation)]

    def _message(self, message: MessageReceived, found: list[Decoded]) -> None:
        """Add what a message holds; the decoder has already checked control messages."""
        type_id, stream_id, payload = message.type_id, message.stream_id, message.payload
        if type_id in (AUDIO, VIDEO):
            self._media(type_id, stream_id, message.timestamp, payload, found)
        elif type_id == AGGREGATE:
            aggregate = parse_aggregate(payload, message.timestamp)
            found += [FoundViolation(code, code.severity, text, stream_id) for code, _, text in aggregate.violations]
            for part in aggregate.parts:
                if part.type_id in (AUDIO, VIDEO):
                    self._media(part.type_id, stream_id, part.timestamp, part.payload, found)
        elif type_id in _IN_AMF:
            command = parse_command(type_id, payload)
            if type_id in COMMANDS:
                found.append(ReceivedCommand(stream_id, command))
            found += [FoundViolation(code, code.severity, text, stream_id) for code, _, text in command.violations]

    def _media(self, type_id: int, stream_id: int, timestamp: int, payload: bytes, found: list[Decoded]) -> None:
        tags, faults = self._tags.read(type_id, stream_id, timestamp, payload)
        found += tags
        found += [FoundViolation(code, severity, detail, stream_id) for code, severity, detail in faults]
