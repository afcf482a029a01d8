"""`--validate` and `--live`: decodes live traffic with the analyzer, reports findings and follows the streams.

Findings from the messages of one direction are reported at once. Findings that need both directions or the whole
connection (responses, timestamps, flow control) are reported when the connection ends. A repeated finding is reported
ten times and then counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.handshake import CLIENT, SERVER, examine
from rtmp_spark.codec.media.tag import MediaTag
from rtmp_spark.redact import Redactor, load_key

from .live_analysis import LiveAnalysis
from .live_direction import FoundViolation, LiveDirection, ReceivedCommand
from .observed_streams import ConnectionStreams, ObservedStream

log = logging.getLogger(__name__)

_REPORTED_PER_RULE = 10


class ReportedFinding(NamedTuple):
    """A finding about live traffic, without secrets."""

    time_ns: int
    connection: int
    stream: str | None  # app/name with the name hashed; None: not known, or about no single stream
    role: str | None  # of the stream
    at_fault: str | None
    severity: Severity
    code: ViolationCode
    detail: str


class _Connection:
    def __init__(self, redactor: Redactor, analysis: LiveAnalysis | None) -> None:
        self.directions = {True: LiveDirection(), False: LiveDirection()}  # by "from the client"
        self.streams = ConnectionStreams(redactor)
        self.analysis = analysis
        self.counts: Counter[tuple[bool, ViolationCode]] = Counter()
        self.last: dict[tuple[bool, ViolationCode], ReportedFinding] = {}


class Validator:
    """An `Observer` that passes each finding to `report`."""

    def __init__(self, report: Callable[[ReportedFinding], None], whole: bool = True) -> None:
        """`whole`: also apply the rules that need both directions."""
        self._report = report
        self._whole = whole
        self._redactor = Redactor(load_key())
        self._connections: dict[int, _Connection] = {}

    def active_streams(self) -> Iterator[ObservedStream]:
        return (stream for connection in self._connections.values() for stream in connection.streams.active())

    def opened(self, number: int, client: tuple[str, int], server: tuple[str, int], time_ns: int) -> None:
        analysis = LiveAnalysis(number, client, server, time_ns) if self._whole else None
        self._connections[number] = _Connection(self._redactor, analysis)

    def data(self, number: int, from_client: bool, data: bytes, time_ns: int) -> None:
        connection = self._connections[number]
        if connection.analysis is not None:
            try:
                connection.analysis.data(from_client, data, time_ns)
            except Exception:  # a bug in a rule must not stop the traffic
                log.exception("connection %d: analysis of both directions stopped", number)
                connection.analysis = None
        direction = connection.directions[from_client]
        in_handshake = 2 not in direction.parts
        for item in direction.receive(data):
            if isinstance(item, MediaTag):
                connection.streams.media(from_client, item, time_ns)
            elif isinstance(item, ReceivedCommand):
                connection.streams.command(from_client, item.stream_id, item.command)
            else:
                self._count(number, connection, from_client, item, time_ns)
        if in_handshake and 2 in direction.parts:
            for violation in _handshake(from_client, direction.parts, connection.directions[not from_client].parts):
                self._count(number, connection, from_client, violation, time_ns)

    def closed(self, number: int, by_client: bool, reset: bool, time_ns: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is None:
            return
        for from_client, direction in connection.directions.items():
            for violation in direction.close():
                self._count(number, connection, from_client, violation, time_ns)
        if connection.analysis is not None:
            try:
                self._report_analysis(number, connection, connection.analysis, (by_client, reset, time_ns))
            except Exception:
                log.exception("connection %d: analysis of both directions failed", number)
        for kind, count in connection.counts.items():
            if count > _REPORTED_PER_RULE:
                self._report(connection.last[kind]._replace(time_ns=time_ns, detail=f"{count} times in total"))

    def _report_analysis(
        self, number: int, connection: _Connection, analysis: LiveAnalysis, end: tuple[bool, bool, int]
    ) -> None:
        """Report the findings of the whole connection that were not reported before."""
        for finding in analysis.close(*end):
            known = any((side, finding.code) in connection.counts for side in (True, False))
            if known or finding.code is ViolationCode.SESSION_END:
                continue
            stream = connection.streams.find(finding.stream_id, finding.from_client is not False)
            time_ns = end[2] if finding.time_us is None else finding.time_us * 1000
            violation = FoundViolation(finding.code, finding.severity, finding.detail)
            self._report(_reported(number, connection, stream, finding.at_fault, violation, time_ns))

    def _count(
        self, number: int, connection: _Connection, from_client: bool, found: FoundViolation, time_ns: int
    ) -> None:
        """Report a violation unless it has been reported often enough."""
        kind = from_client, found.code
        connection.counts[kind] += 1
        stream = connection.streams.find(found.stream_id, from_client)
        if stream is not None:
            stream.last_finding = found.code, found.severity
        if connection.counts[kind] <= _REPORTED_PER_RULE:
            at_fault = CLIENT if from_client else SERVER
            connection.last[kind] = _reported(number, connection, stream, at_fault, found, time_ns)
            self._report(connection.last[kind])


def _reported(
    number: int,
    connection: _Connection,
    stream: ObservedStream | None,
    at_fault: str | None,
    found: FoundViolation,
    time_ns: int,
) -> ReportedFinding:
    name, role = (stream.name, stream.role) if stream is not None else (None, None)
    detail = connection.streams.hide_secrets(found.detail)
    return ReportedFinding(time_ns, number, name, role, at_fault, found.severity, found.code, detail)


def _handshake(from_client: bool, own: dict[int, bytes], peer: dict[int, bytes]) -> list[FoundViolation]:
    """Violations of a complete handshake that the decoder has not reported already."""
    verdict = examine(CLIENT if from_client else SERVER, own[0][0], own[1], own[2], peer.get(1))
    reported = (ViolationCode.HS_VERSION, ViolationCode.HS_ENCRYPTED)
    return [FoundViolation(code, code.severity, text) for code, text in verdict.violations if code not in reported]
