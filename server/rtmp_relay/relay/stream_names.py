"""App and stream names that clients send: which are accepted, and which keys permit access.

A name comes from an untrusted peer. It is checked before it becomes part of a path, and keys are compared in constant
time.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from urllib.parse import parse_qs

from rtmp_spark.codec.limits import STREAM_NAME_BYTES


class BadName(Exception):
    """The name is not accepted; the text is the reason that the client receives."""


def checked_name(value: object, what: str) -> str:
    """Return the name if it is a plain relative name. Raises BadName."""
    if not isinstance(value, str):
        raise BadName(f"the {what} is not a string")
    if not value:
        raise BadName(f"the {what} is empty")
    if len(value.encode("utf-8", "surrogatepass")) > STREAM_NAME_BYTES:
        raise BadName(f"the {what} is longer than {STREAM_NAME_BYTES} bytes")
    if any(ord(c) < 0x20 or ord(c) == 0x7F or 0xD800 <= ord(c) <= 0xDFFF for c in value):
        raise BadName(f"the {what} contains control characters")
    if "\\" in value or any(part in ("", ".", "..") for part in value.split("/")):
        raise BadName(f"the {what} contains a backslash, or an empty, '.' or '..' path part")
    return value


def split_query(value: object) -> tuple[object, str]:
    """Split `cam?key=x` into the name `cam` and the query `key=x`."""
    if isinstance(value, str) and "?" in value:
        name, _, query = value.partition("?")
        return name, query
    return value, ""


def has_valid_key(keys: Iterable[str], *queries: str) -> bool:
    """True if no key is required or a query contains `key=` with one of them. Every key is compared."""
    required = [key.encode() for key in keys]
    if not required:
        return True
    valid = False
    for query in queries:
        for given in parse_qs(query, keep_blank_values=True).get("key", ()):
            for key in required:
                valid |= hmac.compare_digest(given.encode("utf-8", "surrogatepass"), key)
    return valid
