"""What the arguments of a command say, in the tagged JSON of AMF values, whatever kind of object they came as."""

from __future__ import annotations

from typing import Any

from rtmp_spark.capture.facts import noted

_TAGS = frozenset(("$ecma", "value", "assoc", "$pairs"))


def fields(value: Any) -> dict[str, Any]:
    """The named fields of an object, an ECMA array, a typed object or an AMF3 array; none of anything else."""
    if not isinstance(value, dict):
        return {}
    if _TAGS.isdisjoint(value):
        return value
    for tag in ("$ecma", "value", "assoc"):
        if isinstance(value.get(tag), dict) and (tag == "$ecma" or "$class" in value or "$array" in value):
            return fields(value[tag])
    if isinstance(value.get("$pairs"), list):
        return {str(pair[0]): pair[1] for pair in value["$pairs"]}
    return value


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


@noted
def connects(args: list[Any]) -> tuple[str | None, str | None, str | None]:
    """Application, URL and version of the client, as a connect tells them."""
    given = fields(args[0]) if args else {}
    return text(given.get("app")), text(given.get("tcUrl")), text(given.get("flashVer"))


@noted
def server_version(args: list[Any]) -> str | None:
    version = None
    for value in args:
        version = version or text(fields(value).get("fmsVer"))
    return version


@noted
def status(args: list[Any]) -> tuple[Any, Any, Any]:
    """Level, code and description of the first argument that has any of them."""
    for value in args:
        given = fields(value)
        if "code" in given or "level" in given:
            return text(given.get("level")), text(given.get("code")), text(given.get("description"))
    return None, None, None
