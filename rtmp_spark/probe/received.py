"""The messages that arrive on one connection, parsed and kept, and functions that choose among them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from rtmp_relay.endpoint import Endpoint
from rtmp_spark.codec.amf import AmfObject
from rtmp_spark.codec.command import Command, parse_command
from rtmp_spark.codec.events import MessageReceived, Violation
from rtmp_spark.codec.message import COMMANDS, Control, Message, parse_control

from .outcome import Failed
from .transcript import Transcript, describe
from .wire import Silence, Wire


class Received:
    """A message from the other side, parsed if it is a command or a control message."""

    __slots__ = ("command", "control", "message")

    def __init__(self, message: MessageReceived) -> None:
        self.message = message
        of_command = message.type_id in COMMANDS
        self.command: Command | None = parse_command(message.type_id, message.payload) if of_command else None
        of_control = message.type_id <= 6 and message.type_id > 0
        self.control: Control | None = parse_control(message.type_id, message.payload) if of_control else None

    @property
    def name(self) -> str:
        return self.command.name if self.command is not None else ""

    @property
    def info(self) -> AmfObject | None:
        """The object of an onStatus, `_result` or `_error` that has a code."""
        for value in self.command.args if self.command is not None else ():
            if isinstance(value, AmfObject) and ("code" in value or "level" in value):
                return value
        return None

    @property
    def code(self) -> str:
        found = self.info.get("code") if self.info is not None else None
        return found if isinstance(found, str) else ""

    @property
    def is_error(self) -> bool:
        level = self.info.get("level") if self.info is not None else None
        return self.name == "_error" or (self.name == "onStatus" and level == "error")


Choice = Callable[[Received], bool]


def status(*codes: str) -> Choice:
    """Chooses an onStatus with one of these codes; without codes, any."""
    return lambda one: one.name == "onStatus" and (not codes or one.code in codes)


def event(event_type: int) -> Choice:
    return lambda one: one.control is not None and one.control.event_type == event_type


def of_type(type_id: int) -> Choice:
    return lambda one: one.message.type_id == type_id


class RtmpSide:
    """One side of an RTMP connection. It keeps everything that arrives and notes what is sent and received."""

    def __init__(self, wire: Wire, transcript: Transcript, role: str) -> None:
        self.wire = wire
        self.inbox: list[Received] = []
        self.violations: list[Violation] = []
        self._transcript = transcript
        self._pieces: list[bytes] = []
        self.endpoint = Endpoint(role, self._pieces.append, os.urandom)
        self._started = time.monotonic()

    def decode(self, data: bytes) -> None:
        for message in self.endpoint.receive_data(data, int((time.monotonic() - self._started) * 1000)):
            self.inbox.append(Received(message))
            line = describe(message.type_id, message.stream_id, message.timestamp, message.payload)
            self._transcript.note(False, line)
        self.violations += self.endpoint.violations

    async def flush(self, note: str = "") -> None:
        """Send what the endpoint has written."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        await self.wire.send(data, note)

    async def send(self, message: Message, fmt: int | None = None, csid_form: int | None = None) -> None:
        data = self.endpoint.encoder.send(message, fmt, csid_form)
        await self.wire.send(data, describe(message.type_id, message.stream_id, message.timestamp, message.payload))

    async def control(self, type_id: int, payload: bytes, timestamp: int = 0) -> None:
        await self.send(Message(2, timestamp, type_id, 0, payload))

    async def wait(self, choice: Choice, what: str, since: int = 0, timeout_s: float | None = None) -> Received:
        """The first message from index `since` on that fits. Raises Closed or Silence."""
        raise NotImplementedError

    def silence(self, choice: Choice, what: str, since: int, waited_s: float) -> Silence:
        """What to raise if a message did not arrive; it can wait for the message again."""

        async def arrives(seconds: float) -> bool:
            try:
                await self.wait(choice, "it", since, seconds)
            except (Failed, Silence):
                return False
            return True

        return Silence(f"{what} did not arrive within {waited_s:g} s", arrives)
