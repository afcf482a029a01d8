"""Reads the arguments of commands (the tagged JSON of AMF values), whatever kind of object they were sent as."""

from __future__ import annotations

import re
from typing import NamedTuple

from rtmp_spark.codec.json_value import Json
from rtmp_spark.codec.shared_arguments import noted

_TAGS = frozenset(("$ecma", "value", "assoc", "$pairs"))


class ConnectArguments(NamedTuple):
    app: str | None
    tc_url: str | None
    flash_ver: str | None


# NetStream.Play.Start, status: such a code or level is no secret, even if a stream is named "Start".
PLAIN_CODE = re.compile(r"[A-Za-z.]+")


class Status(NamedTuple):
    level: str | None = None
    code: str | None = None
    description: str | None = None


NO_STATUS = Status()


def fields(value: Json) -> dict[str, Json]:
    """The named fields of an object, an ECMA array, a typed object or an AMF3 array; empty for anything else."""
    if not isinstance(value, dict):
        return {}
    if _TAGS.isdisjoint(value):
        return value
    for tag in ("$ecma", "value", "assoc"):
        if isinstance(value.get(tag), dict) and (tag == "$ecma" or "$class" in value or "$array" in value):
            return fields(value[tag])
    pairs = value.get("$pairs")
    if isinstance(pairs, list):
        return {str(pair[0]): pair[1] for pair in pairs if isinstance(pair, list)}
    return value


def text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


@noted
def connect_arguments(args: list[Json]) -> ConnectArguments:
    """What the command object of `connect` names."""
    given = fields(args[0]) if args else {}
    return ConnectArguments(text(given.get("app")), text(given.get("tcUrl")), text(given.get("flashVer")))


@noted
def server_version(args: list[Json]) -> str | None:
    """`fmsVer` in the answer to `connect`."""
    version = None
    for value in args:
        version = version or text(fields(value).get("fmsVer"))
    return version


@noted
def status(args: list[Json]) -> Status:
    """Level, code and description of the first argument that has a level or a code."""
    for value in args:
        given = fields(value)
        if "code" in given or "level" in given:
            return Status(text(given.get("level")), text(given.get("code")), text(given.get("description")))
    return NO_STATUS
