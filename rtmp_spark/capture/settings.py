"""What a recording is asked for, in one value that every layer below can be given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rtmp_spark.capture.beside import Helpers
from rtmp_spark.capture.direction import MessageHook
from rtmp_spark.capture.findings import Catalogue, plain_entry
from rtmp_spark.capture.judging import Frames, Hindsight, JudgeFactory
from rtmp_spark.capture.keylog import KeyLog
from rtmp_spark.capture.redact import Redactor
from rtmp_spark.codec.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from rtmp_spark.capture.conversation import Conversation


@dataclass
class Settings:
    """What a recording wants to know and how."""

    sensor: str = ""
    limits: Limits = DEFAULT_LIMITS
    redactor: Redactor = field(default_factory=lambda: Redactor(None))
    keep_payloads: bool = False
    keylog: KeyLog = field(default_factory=KeyLog)  # TLS secrets; those inside captures are added to it
    message_rows: bool = True  # False: messages are counted, not listed
    interval_rows: bool = True  # False: of what happened each second only trouble is told
    command_rows: bool = True  # False: only the first commands of a connection are kept, for show
    judge: JudgeFactory | None = None  # the rules; none: what needs them stays null
    hindsight: Hindsight | None = None  # rules over several connections, at the end of a recording
    deliveries: Callable[[], Frames] | None = None  # what matches played streams with published ones
    frames: Frames | None = None  # the one of this recording
    catalogue: Catalogue = plain_entry
    hook: Callable[[Conversation, int], MessageHook | None] | None = None  # sees every message of a direction
    closed: Callable[[Conversation], None] | None = None  # sees every connection that gave rows, at its end
    helpers: Helpers | None = None  # processes that decode long runs beside this one
    shown: Callable[[Conversation], bool] | None = None  # whether anybody will look at its rows; None: yes
    uid: str | None = None
    host: str | None = None
    port: int | None = None
    stream: str | None = None
    since: int | None = None  # microseconds
    until: int | None = None

    @property
    def filters_late(self) -> bool:
        """Whether a connection may turn out unwanted only at its end."""
        return self.stream is not None or self.since is not None or self.until is not None

    def in_time(self, ts: int | None) -> bool:
        """Whether something that happened at `ts` was asked for."""
        if ts is None:
            return True
        return (self.since is None or ts >= self.since) and (self.until is None or ts <= self.until)
