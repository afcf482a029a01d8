"""Relays that are broken on purpose, each for one case of the conformance suite.

A `Variant` is a defect on the relay's `Fault` interface (what it makes of received bytes and messages, what it sends),
or a patch of one of its methods, plus relay options. Defects leave other connections alone: the suite takes silence
for a failure only if a new connection is answered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from rtmp_relay.faults.fault import NO_FAULT, Fault
from rtmp_relay.frames import Frame
from rtmp_relay.relay.relay_server import Relay, RelayOptions
from rtmp_relay.relay.server_connection import ConnectionOptions
from rtmp_spark.codec.command import parse_command
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.events import MessageReceived
from rtmp_spark.codec.message import AUDIO, COMMANDS, VIDEO, Message
from rtmp_spark.probe.wire import Target

Received = Callable[[MessageReceived], bool]
Sent = Callable[[Message], bool]


@dataclass(frozen=True)
class Variant:
    """A broken relay: one fault per connection, patched methods, options of the connections."""

    fault: Callable[[], Fault] = lambda: NO_FAULT
    shared_fault: Callable[[], Callable[[], Fault]] | None = None  # if its connections share a state: makes `fault`
    patches: tuple[tuple[Any, str, Any], ...] = ()
    connection: ConnectionOptions = field(default_factory=ConnectionOptions)


GOOD = Variant()


@asynccontextmanager
async def running(variant: Variant, timeout_s: float = 5.0, **target: Any) -> AsyncIterator[Target]:
    """Run the relay of a variant in this event loop."""
    with ExitStack() as stack:
        for owner, name, value in variant.patches:
            stack.enter_context(patch.object(owner, name, value))
        fault = variant.fault if variant.shared_fault is None else variant.shared_fault()
        relay = Relay(RelayOptions(port=0, connection=variant.connection, new_fault=fault))
        await relay.start()
        try:
            url = f"rtmp://127.0.0.1:{relay.port}/live"
            yield Target("127.0.0.1", relay.port, "live", url, timeout_s=timeout_s, **target)
        finally:
            await relay.stop()


# -- which messages ---------------------------------------------------------------------------------------------------


def is_command(*names: str, holding: bytes = b"") -> Received:
    """Chooses commands with one of these names (any, if none) whose payload contains `holding`."""

    def choice(message: MessageReceived) -> bool:
        if message.type_id not in COMMANDS or holding not in message.payload:
            return False
        return not names or parse_command(message.type_id, message.payload).name in names

    return choice


def is_type(*type_ids: int) -> Callable[[Any], bool]:
    return lambda message: message.type_id in type_ids


def holds(text: bytes) -> Callable[[Any], bool]:
    return lambda message: text in message.payload


# -- defects of the receiver ------------------------------------------------------------------------------------------


class OnReceived(Fault):
    """Applies `change` to chosen messages; None ignores them."""

    def __init__(self, choice: Received, change: Callable[[MessageReceived], MessageReceived | None]) -> None:
        self._choice, self._change = choice, change

    def received_message(self, message: MessageReceived) -> MessageReceived | None:
        return self._change(message) if self._choice(message) else message


def ignores(choice: Received) -> Variant:
    return Variant(lambda: OnReceived(choice, lambda _: None))


def changes(choice: Received, change: Callable[[bytes], bytes]) -> Variant:
    """Takes the chosen messages for others."""
    return Variant(lambda: OnReceived(choice, lambda one: one._replace(payload=change(one.payload))))


class _Deaf(Fault):
    def __init__(self, choice: Received, closes: bool) -> None:
        self._choice, self._closes, self._deaf = choice, closes, False

    def received_message(self, message: MessageReceived) -> MessageReceived | None:
        self._deaf = self._deaf or self._choice(message)
        self.closes_connection = self.closes_connection or (self._deaf and self._closes)
        return None if self._deaf else message


def deaf_after(choice: Received) -> Variant:
    """Ignores the chosen message and all that follow."""
    return Variant(lambda: _Deaf(choice, False))


def closes_on(choice: Received) -> Variant:
    return Variant(lambda: _Deaf(choice, True))


class _Count(Fault):
    def __init__(self, choice: Received, shared: list[int], which: int) -> None:
        self._choice, self._shared, self._which = choice, shared, which

    def received_message(self, message: MessageReceived) -> MessageReceived | None:
        if self._choice(message):
            self._shared[0] += 1
            if self._shared[0] >= self._which:
                return None
        return message


def ignores_from(which: int, choice: Received) -> Variant:
    """Ignores the chosen messages from number `which` on, counted over all connections."""

    def shared_fault() -> Callable[[], Fault]:
        shared = [0]
        return lambda: _Count(choice, shared, which)

    return Variant(shared_fault=shared_fault)


def only_first(count: int) -> Variant:
    """Serves `count` connections and closes all later ones, as a server that has crashed."""

    def shared_fault() -> Callable[[], Fault]:
        made = [0]

        def fault() -> Fault:
            made[0] += 1
            found = Fault()
            found.closes_connection = made[0] > count
            return found

        return fault

    return Variant(shared_fault=shared_fault)


def _damage(one: MessageReceived) -> MessageReceived:
    if not one.payload or Frame(one.type_id, 0, one.payload).is_header:
        return one
    return one._replace(payload=one.payload[:-1] + bytes((one.payload[-1] ^ 0x55,)))


DAMAGED_MEDIA = Variant(lambda: OnReceived(is_type(AUDIO, VIDEO), _damage))


class _Drift(Fault):
    def __init__(self) -> None:
        self._frames = 0

    def received_message(self, message: MessageReceived) -> MessageReceived | None:
        if message.type_id in (AUDIO, VIDEO):
            self._frames += 1
            return message._replace(timestamp=message.timestamp + 7 * self._frames)
        return message


WRONG_TIMESTAMPS = Variant(_Drift)


class OnBytes(Fault):
    """Sees the bytes of the client before anything else. `total` counts them."""

    def __init__(self, change: Callable[[OnBytes, bytes], bytes]) -> None:
        self._change = change
        self.total = 0
        self.first = b""  # the first bytes that arrived
        self.s1 = b""
        self.on_part: Callable[[OnBytes, int, bytes], bytes] = lambda _self, _part, data: data

    def received_bytes(self, data: bytes) -> bytes:
        self.first = self.first or data
        self.total += len(data)
        return self._change(self, data)

    def handshake_part(self, part: int, data: bytes) -> bytes:
        if part == 1:
            self.s1 = data
        return self.on_part(self, part, data)


def on_bytes(
    change: Callable[[OnBytes, bytes], bytes] = lambda _fault, data: data,
    on_part: Callable[[OnBytes, int, bytes], bytes] | None = None,
) -> Variant:
    def fault() -> Fault:
        made = OnBytes(change)
        if on_part is not None:
            made.on_part = on_part
        return made

    return Variant(fault)


def closing(fault: OnBytes, wrong: bool, data: bytes) -> bytes:
    """Close the connection if something is wrong."""
    fault.closes_connection = fault.closes_connection or wrong
    return b"" if wrong else data


# -- defects of the sender --------------------------------------------------------------------------------------------


class OnSent(Fault):
    """Sends the bytes of `make` for chosen messages."""

    def __init__(self, choice: Sent, make: Callable[[RtmpEncoder, Message], bytes]) -> None:
        self._choice, self._make = choice, make

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        return self._make(encoder, message) if self._choice(message) else encoder.send(message, fmt=0)


def sends(choice: Sent, make: Callable[[RtmpEncoder, Message], bytes]) -> Variant:
    return Variant(lambda: OnSent(choice, make))


def omits(choice: Sent) -> Variant:
    return sends(choice, lambda _encoder, _message: b"")


def sends_changed(choice: Sent, **fields: Any) -> Variant:
    """Sends the chosen messages with other fields, for example csid=3."""
    return sends(choice, lambda encoder, message: encoder.send(replace(message, **fields), fmt=0))


def sends_text(old: bytes, new: bytes) -> Variant:
    """Replaces text of the same length in what it sends."""
    assert len(old) == len(new)
    return sends(holds(old), lambda encoder, m: encoder.send(replace(m, payload=m.payload.replace(old, new)), fmt=0))


def in_handshake(part: int, change: Callable[[bytes], bytes]) -> Variant:
    return on_bytes(on_part=lambda _fault, number, data: change(data) if number == part else data)
