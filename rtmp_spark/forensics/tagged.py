"""Reading values in the tagged JSON of AMF, whatever kind of object they came as."""

from __future__ import annotations

from typing import Any

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
