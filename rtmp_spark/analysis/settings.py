"""Settings of an analysis: which connections, how they are decoded, and how secrets are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from rtmp_spark.capture.tcp.tcp_connection import Endpoint
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.codec.limits import DEFAULT_LIMITS, Limits
from rtmp_spark.codec.message import EVERY_TYPE
from rtmp_spark.conversation.decoding.directions import HookFactory
from rtmp_spark.conversation.decoding.helper_process import HelperPool
from rtmp_spark.conversation.facts import Row
from rtmp_spark.redact import Redactor


class ConnectionFilter(NamedTuple):
    """Which connections, and which time, are wanted. None: no restriction."""

    uid: str | None = None
    host: str | None = None
    port: int | None = None
    stream: str | None = None
    since: int | None = None  # microseconds
    until: int | None = None

    @property
    def by_ends(self) -> bool:
        """Whether `admits_ends` may be False."""
        return self.host is not None or self.port is not None

    def admits_ends(self, ends: tuple[Endpoint, Endpoint]) -> bool:
        (host_a, port_a), (host_b, port_b) = ends
        return self.host in (None, host_a, host_b) and self.port in (None, port_a, port_b)

    @property
    def by_content(self) -> bool:
        """Whether a connection may turn out to be unwanted at its end."""
        return self.stream is not None or self.since is not None or self.until is not None

    def admits_time(self, ts: int | None) -> bool:
        if ts is None:
            return True
        return (self.since is None or ts >= self.since) and (self.until is None or ts <= self.until)

    def admits_span(self, ts_start: int, ts_end: int) -> bool:
        return (self.since is None or ts_end >= self.since) and (self.until is None or ts_start <= self.until)

    def rows_in_time(self, rows: list[Row], ts_column: int) -> list[Row]:
        if self.since is None and self.until is None:
            return rows
        return [row for row in rows if self.admits_time(row[ts_column])]


def _ignore(text: str) -> None:
    """Print nothing."""


@dataclass
class Settings:
    """Settings of an analysis. Which tables it fills is decided where it is started."""

    sensor: str = ""  # where the capture was recorded; part of the uid
    limits: Limits = DEFAULT_LIMITS
    redactor: Redactor = field(default_factory=lambda: Redactor(None))
    keep_payloads: bool = False
    keylog: KeyLog = field(default_factory=KeyLog)  # TLS secrets; those inside captures are added to it
    filter: ConnectionFilter = ConnectionFilter()
    message_types: frozenset[int] = EVERY_TYPE  # messages of other types have no rows in `messages`
    measured: bool = True  # False: streams are not measured; columns and rules that need measures stay empty
    rules_across_connections: bool = True  # False: a later step applies them, to more connections
    jobs: int = 1  # processes among which the connections of large captures are divided; the rows are the same
    warn: Callable[[str], None] = _ignore  # called with a sentence for the user
    helpers: HelperPool | None = None  # processes that decode long runs
    in_order: bool = False  # with helpers: rows of messages come in the same order as without
    hook: HookFactory | None = None  # called with every message
