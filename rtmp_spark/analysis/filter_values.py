"""Times, addresses and ports as users write them, for filters of connections."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from ipaddress import IPv6Address, ip_address

from rtmp_spark.codec.errors import UserError
from rtmp_spark.codec.message import EVERY_TYPE, TYPE_NAMES

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST_SECOND = 253_402_300_799  # of the year 9999


def parse_time(text: str) -> int:
    """ISO 8601 (UTC unless it has a time zone) or seconds since the epoch, as microseconds since the epoch."""
    try:
        seconds = float(text)
        if abs(seconds) <= _LAST_SECOND:
            return round(seconds * 1_000_000)
    except ValueError:
        pass
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise UserError(f"Invalid time {text!r}.", "Use 2026-01-31T12:00:00.") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=timezone.utc)
    return (when - _EPOCH) // timedelta(microseconds=1)


def parse_host(text: str) -> str:
    """An IP address in the form that the tables use."""
    try:
        address = ip_address(text)
    except ValueError:
        raise UserError(f"Invalid address {text!r}.", "Use 192.0.2.1 or 2001:db8::1.") from None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise UserError(f"Invalid port {text!r}.", "Use a number up to 65535.")
    return int(text)


def parse_message_types(text: str) -> frozenset[int]:
    """Type ids of message types that are given by name or number, with commas between them."""
    by_word = {name: type_id for type_id, name in TYPE_NAMES.items()} | {
        str(type_id): type_id for type_id in EVERY_TYPE
    }
    words = [word.strip().lower() for word in text.split(",")]
    for word in words:
        if word not in by_word:
            raise UserError(f"Unknown message type {word!r}.", f"Use numbers or {', '.join(TYPE_NAMES.values())}.")
    return frozenset(by_word[word] for word in words)
