"""`relay --validate`: what passes is decoded by the analyzer, and what is wrong with it is said.

What one direction's messages show is said at once; what needs both directions or hindsight (answers, times, flow
control) is said when the connection ends. A fault that repeats is said ten times, then counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from rtmp_spark.codec.command import parse_command
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.events import COMPLETE, HandshakePart, MessageReceived, Violation
from rtmp_spark.codec.handshake import CLIENT, SERVER, examine
from rtmp_spark.codec.media.reader import TagReader
from rtmp_spark.codec.message import (
    AGGREGATE,
    AUDIO,
    COMMANDS,
    DATA_AMF0,
    DATA_AMF3,
    VIDEO,
    parse_aggregate,
)

from .analysis import LiveAnalysis, Told

log = logging.getLogger(__name__)

_SAID_AT_MOST = 10
_IN_AMF = COMMANDS | {DATA_AMF0, DATA_AMF3}


class _Direction:
    def __init__(self) -> None:
        self._decoder = RtmpDecoder()
        self._tags = TagReader()
        self.parts: dict[int, bytes] = {}  # of the handshake

    def receive(self, data: bytes) -> list[tuple[ViolationCode, Severity, str]]:
        found: list[tuple[ViolationCode, Severity, str]] = []
        for event in self._decoder.receive_data(data):
            if isinstance(event, Violation):
                found.append((event.code, event.severity, event.detail))
            elif isinstance(event, MessageReceived):
                if event.status == COMPLETE:
                    found += self._message(event)
            elif isinstance(event, HandshakePart):
                self.parts[event.part] = event.data
        return found

    def close(self) -> list[tuple[ViolationCode, Severity, str]]:
        events = self._decoder.receive_eof()
        return [(e.code, e.severity, e.detail) for e in events if isinstance(e, Violation)]

    def _message(self, message: MessageReceived) -> list[tuple[ViolationCode, Severity, str]]:
        type_id, payload = message.type_id, message.payload
        if type_id in (AUDIO, VIDEO):
            return self._tags.read(type_id, message.stream_id, message.timestamp, payload)[1]
        if type_id == AGGREGATE:
            aggregate = parse_aggregate(payload, message.timestamp)
            found = [(code, code.severity, text) for code, _, text in aggregate.violations]
            for part in aggregate.parts:
                if part.type_id in (AUDIO, VIDEO):
                    found += self._tags.read(part.type_id, message.stream_id, part.timestamp, part.payload)[1]
            return found
        if type_id in _IN_AMF:
            return [(code, code.severity, text) for code, _, text in parse_command(type_id, payload).violations]
        return []  # the decoder has judged control messages


class Validator:
    """An `Observer` that says what it finds through `say`, a line each."""

    def __init__(self, say: Callable[[str], None], whole: bool = True) -> None:
        """`whole`: also the rules that need both directions."""
        self._say = say
        self._whole = whole
        self._analyses: dict[int, LiveAnalysis] = {}
        self._directions: dict[tuple[int, bool], _Direction] = {}
        self.counts: Counter[tuple[int, bool, ViolationCode]] = Counter()

    def opened(self, number: int, client: tuple[str, int], server: tuple[str, int], time_ns: int) -> None:
        for from_client in (True, False):
            self._directions[number, from_client] = _Direction()
        if self._whole:
            self._analyses[number] = LiveAnalysis(number, client, server, time_ns)

    def data(self, number: int, from_client: bool, data: bytes, time_ns: int) -> None:
        analysis = self._analyses.get(number)
        if analysis is not None:
            try:
                analysis.data(from_client, data, time_ns)
            except Exception:  # a mistake in a rule must not stop the traffic
                log.exception("connection %d is no longer judged as a whole", number)
                del self._analyses[number]
        direction = self._directions[number, from_client]
        in_handshake = 2 not in direction.parts
        self._report(number, from_client, direction.receive(data))
        if in_handshake and 2 in direction.parts:
            self._handshake(number, from_client, direction.parts, self._directions[number, not from_client].parts)

    def _handshake(self, number: int, from_client: bool, own: dict[int, bytes], peer: dict[int, bytes]) -> None:
        side = CLIENT if from_client else SERVER
        verdict = examine(side, own[0][0], own[1], own[2], peer.get(1))
        said = (ViolationCode.HS_VERSION, ViolationCode.HS_ENCRYPTED)  # by the decoder, as soon as it saw them
        found = [(code, code.severity, text) for code, text in verdict.violations if code not in said]
        self._report(number, from_client, found)

    def closed(self, number: int, by_client: bool, reset: bool, time_ns: int) -> None:
        for from_client in (True, False):
            direction = self._directions.pop((number, from_client), None)
            if direction is not None:
                self._report(number, from_client, direction.close())
        analysis = self._analyses.pop(number, None)
        if analysis is not None:
            try:
                self._judgement(number, analysis.close(by_client, reset, time_ns))
            except Exception:
                log.exception("connection %d cannot be judged as a whole", number)
        for (connection, from_client, code), count in list(self.counts.items()):
            if connection == number:
                if count > _SAID_AT_MOST:
                    self._say(f"{self._who(number, from_client)} {code.value} {count} times in all")
                del self.counts[connection, from_client, code]

    def _judgement(self, number: int, told: list[Told]) -> None:
        """What has not been said yet."""
        for finding in told:
            said = any((number, side, finding.code) in self.counts for side in (True, False))
            if said or finding.code is ViolationCode.SESSION_END:
                continue
            who = {"client": "client:", "server": "relay:"}.get(finding.at_fault or "", "both sides:")
            self._say(f"connection {number} {who} {finding.severity.value} {finding.code.value}: {finding.detail}")

    def _report(self, number: int, from_client: bool, found: list[tuple[ViolationCode, Severity, str]]) -> None:
        for code, severity, detail in found:
            self.counts[number, from_client, code] += 1
            if self.counts[number, from_client, code] <= _SAID_AT_MOST:
                self._say(f"{self._who(number, from_client)} {severity.value} {code.value}: {detail}")

    @staticmethod
    def _who(number: int, from_client: bool) -> str:
        return f"connection {number} {'client' if from_client else 'relay'}:"
