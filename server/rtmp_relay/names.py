"""Names that clients give us: which are accepted, what file a record gets, and which keys open the door.

A name is data from a stranger. It is never joined to a path unchecked, and a key is never compared in a time that
depends on it.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import parse_qs, quote

MAX_NAME_BYTES = 255


class BadName(Exception):
    """Why a name is refused, in words for the client."""


def checked_name(value: object, what: str) -> str:
    """The name, or BadName."""
    if not isinstance(value, str):
        raise BadName(f"the {what} is not a string")
    if not value:
        raise BadName(f"the {what} is empty")
    if len(value.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise BadName(f"the {what} is longer than {MAX_NAME_BYTES} bytes")
    if any(ord(c) < 0x20 or ord(c) == 0x7F or 0xD800 <= ord(c) <= 0xDFFF for c in value):
        raise BadName(f"the {what} holds control characters")
    if "\\" in value or any(part in ("", ".", "..") for part in value.split("/")):
        raise BadName(f"the {what} is no plain relative name")
    return value


def split_query(value: object) -> tuple[object, str]:
    """`cam?key=x` is the name `cam` with the query `key=x`."""
    if isinstance(value, str) and "?" in value:
        name, _, query = value.partition("?")
        return name, query
    return value, ""


def key_fits(keys: Iterable[str], *queries: str) -> bool:
    """Does any query carry one of the keys as `key=...`? Every key is compared, in constant time."""
    wanted = [key.encode() for key in keys]
    if not wanted:
        return True
    fits = False
    for query in queries:
        for given in parse_qs(query, keep_blank_values=True).get("key", ()):
            for key in wanted:
                fits |= hmac.compare_digest(given.encode("utf-8", "surrogatepass"), key)
    return fits


def record_path(root: Path, key: str, suffix: str) -> Path:
    """`root/app/name<suffix>`, each part quoted; BadName unless it resolves to a place inside the root."""
    parts = [quote(part, safe=" @+=,") for part in key.split("/")]
    parts[-1] = parts[-1][:200] + suffix
    path = root.joinpath(*parts)
    if not path.resolve().is_relative_to(root.resolve()):
        raise BadName("the record would lie outside its directory")
    return path
