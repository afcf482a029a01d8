"""Parses command payloads, each distinct payload once: commands repeat byte by byte from connection to connection."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from rtmp_spark.codec.amf import AmfViolation, to_json_values
from rtmp_spark.codec.command import parse_command
from rtmp_spark.codec.json_value import Json
from rtmp_spark.codec.limits import CACHED_COMMANDS, DEFAULT_LIMITS, REPEATED_COMMAND_BYTES, Limits
from rtmp_spark.codec.shared_arguments import Arguments

_PLAY_STARTS: Final = (b"NetStream.Play.Start", b"NetStream.Play.Reset")


class ParsedCommand(NamedTuple):
    """What a payload says, whatever connection it is from. It is shared: callers must not change it."""

    name: str | None
    transaction_id: float | None
    amf_version: int
    args: list[Json]
    violations: tuple[AmfViolation, ...]
    starts_play: bool


def read_command(type_id: int, payload: bytes, limits: Limits) -> ParsedCommand:
    if limits is DEFAULT_LIMITS and len(payload) <= REPEATED_COMMAND_BYTES:
        return _read_repeated(type_id, payload)
    return _read(type_id, payload, limits)


def _read(type_id: int, payload: bytes, limits: Limits) -> ParsedCommand:
    command = parse_command(type_id, payload, limits)
    args = Arguments(to_json_values(command.args))
    starts_play = command.name == "onStatus" and any(code in payload for code in _PLAY_STARTS)
    return ParsedCommand(
        command.name or None, command.transaction_id, command.amf_version, args, command.violations, starts_play
    )


@lru_cache(CACHED_COMMANDS)
def _read_repeated(type_id: int, payload: bytes) -> ParsedCommand:
    return _read(type_id, payload, DEFAULT_LIMITS)
