"""Faults of commands and sessions (CMD_ and SESSION_ rules)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rtmp_relay.frames import Tag
from rtmp_spark.codec.command import dump_command
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.message import AUDIO, COMMAND_AMF0, Message

from .fault import CLIENT, EITHER, SERVER, Fault, FaultEntry, OnMessage
from .message_choice import command_named, during_stream
from .replacement_bytes import nothing, preceded_by


def _command(name: str, transaction_id: float, *args: object) -> Message:
    return Message(3, 0, COMMAND_AMF0, 0, dump_command(name, transaction_id, *args))


def _twice(encoder: RtmpEncoder, message: Message) -> bytes:
    return encoder.send(message, fmt=0) * 2


def _denied(encoder: RtmpEncoder, message: Message) -> bytes:
    info = {"level": "error", "code": "NetStream.Publish.Denied", "description": "This relay denies it on purpose."}
    return encoder.send(replace(message, payload=dump_command("onStatus", 0.0, None, info)), fmt=0)


def _on_stream_0(encoder: RtmpEncoder, message: Message) -> bytes:
    return encoder.send(replace(message, stream_id=0), fmt=0)


def _without_name(encoder: RtmpEncoder, message: Message) -> bytes:
    return encoder.send(replace(message, payload=dump_command("publish", 0.0, None, "", "live")), fmt=0)


class AuthRounds:
    """A server with Adobe authentication: each call returns the fault for the next of three connections."""

    DESCRIPTIONS = (
        "[ AccessManager.Reject ] : [ code=403 need auth; authmod=adobe ] : ",
        "[ AccessManager.Reject ] : [ authmod=adobe ] : ?reason=needauth&user=someone&salt=c2FsdA==&challenge=Y2hhbA==",
    )

    def __init__(self) -> None:
        self._round = 0

    def __call__(self) -> Fault:
        number, self._round = self._round, self._round + 1
        if number >= len(self.DESCRIPTIONS):
            return Fault()
        info = {"level": "error", "code": "NetConnection.Connect.Rejected", "description": self.DESCRIPTIONS[number]}

        def reject(encoder: RtmpEncoder, message: Message) -> bytes:
            return encoder.send(replace(message, payload=dump_command("_error", 1.0, None, info)), fmt=0)

        return OnMessage(command_named("_result"), reject, then_close=True)


class _NoMedia(Fault):
    """Publishes for two seconds without sending media."""

    def changed_tags(self, tags: Iterable[Tag]) -> Iterable[Tag]:
        return (Tag(AUDIO, ms, b"") for ms in (0, 2000))

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        return b"" if message.type_id == AUDIO else super().encode(encoder, message)


class SecondPublisher(Fault):
    """Marks that the caller must publish the same name on a second connection; this connection is correct."""


SESSION_FAULTS = {
    "CMD_BEFORE_CONNECT": FaultEntry(
        CLIENT,
        "sends createStream before connect",
        lambda: OnMessage(command_named("connect"), preceded_by(_command("createStream", 99.0, None))),
    ),
    "CMD_TRANSACTION_REUSED": FaultEntry(
        CLIENT,
        "sends createStream twice with the same transaction id",
        lambda: OnMessage(command_named("createStream"), _twice),
    ),
    "CMD_NO_RESPONSE": FaultEntry(
        SERVER,
        "does not answer publish or play",
        lambda: OnMessage(command_named("onStatus"), nothing, times=2),
    ),
    "CMD_RESPONSE_UNEXPECTED": FaultEntry(
        EITHER,
        "sends a response without a request",
        lambda: OnMessage(during_stream, preceded_by(_command("_result", 777.0, None, None))),
    ),
    "CMD_STREAM_ID": FaultEntry(
        CLIENT, "publishes on stream 0", lambda: OnMessage(command_named("publish"), _on_stream_0)
    ),
    "CMD_STREAM_NAME": FaultEntry(
        CLIENT, "publishes with an empty stream name", lambda: OnMessage(command_named("publish"), _without_name)
    ),
    "CMD_REFUSED": FaultEntry(
        SERVER, "denies publishing or playing", lambda: OnMessage(command_named("onStatus"), _denied)
    ),
    # One `AuthRounds` serves several connections, so `fault_catalogue.factory` creates it.
    "CMD_AUTH_ROUND": FaultEntry(SERVER, "asks for Adobe authentication on the first two connections", Fault),
    "SESSION_NO_MEDIA": FaultEntry(CLIENT, "publishes a stream without media", _NoMedia),
    "SESSION_BAD_NAME": FaultEntry(CLIENT, "publishes the same name on a second connection", SecondPublisher),
}
