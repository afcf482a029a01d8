"""Names of connections that are the same wherever and however often they are decoded."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from ipaddress import ip_address

_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PAIRS = [a + b for a in _BASE32 for b in _BASE32]


def make_uid(sensor: str, client: tuple[str, int], server: tuple[str, int], ts_start: int) -> str:
    text = "\n".join([sensor, client[0], str(client[1]), server[0], str(server[1]), str(ts_start)])
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:13], "big") >> 4  # 100 bits: 20 characters of 5
    return "C" + "".join([_PAIRS[number >> shift & 1023] for shift in range(90, -1, -10)])


@lru_cache(4096)
def _packed(host: str) -> bytes:
    return ip_address(host).packed if ":" in host else bytes(map(int, host.split(".")))


def community_id(a: tuple[str, int], b: tuple[str, int]) -> str:
    """Community ID v1 with seed 0: the same for both directions, as Zeek and Suricata write it."""
    ends = sorted([(_packed(a[0]), a[1]), (_packed(b[0]), b[1])])
    text = b"\0\0" + ends[0][0] + ends[1][0] + b"\x06\0" + ends[0][1].to_bytes(2, "big") + ends[1][1].to_bytes(2, "big")
    return "1:" + base64.b64encode(hashlib.sha1(text).digest()).decode()
