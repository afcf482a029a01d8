"""Identifiers of connections that do not depend on where, how often or in which pieces a capture is decoded."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUV"  # base32hex (RFC 4648): its order is the order of bytes
_PAIRS: Final = [a + b for a in _DIGITS for b in _DIGITS]
_SECOND_BITS, _HASH_BITS = 35, 65  # 7 and 13 digits
_LAST_SECOND: Final = (1 << _SECOND_BITS) - 1


def make_uid(sensor: str, client: tuple[str, int], server: tuple[str, int], ts_start: int) -> str:
    """`C` and 20 digits: the second of the connection's start, then a hash. `ts_start` is in microseconds.

    Uids sort by start time, so that a table sorted by uid keeps connections of the same time together.
    """
    text = f"{sensor}\n{client[0]}\n{client[1]}\n{server[0]}\n{server[1]}\n{ts_start}"
    hashed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:9], "big") >> (72 - _HASH_BITS)
    second = min(max(ts_start // 1_000_000, 0), _LAST_SECOND)
    number = second << _HASH_BITS | hashed
    return "C" + "".join([_PAIRS[number >> shift & 1023] for shift in range(90, -1, -10)])


@lru_cache(4096)
def _packed(host: str) -> bytes:
    return ip_address(host).packed if ":" in host else bytes(map(int, host.split(".")))


def community_id(a: tuple[str, int], b: tuple[str, int]) -> str:
    """Community ID v1 with seed 0: the same for both directions, as Zeek and Suricata write it."""
    ends = sorted([(_packed(a[0]), a[1]), (_packed(b[0]), b[1])])
    text = b"\0\0" + ends[0][0] + ends[1][0] + b"\x06\0" + ends[0][1].to_bytes(2, "big") + ends[1][1].to_bytes(2, "big")
    return "1:" + base64.b64encode(hashlib.sha1(text).digest()).decode()
