"""A capture changed as a bad network would have changed it: packets lost, out of order, doubled.

It works on classic pcap files of Ethernet, as the tap writes them, and touches only packets that carry TCP payload:
the handshake and the goodbye stay. Which packets are hit follows from the seed alone.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

_GLOBAL_HEADER = 24
_RECORD_HEADER = 16
_ETHERNET = 14


def _records(data: bytes) -> list[bytes]:
    records = []
    position = _GLOBAL_HEADER
    while position + _RECORD_HEADER <= len(data):
        size = _RECORD_HEADER + struct.unpack_from("<I", data, position + 8)[0]
        records.append(data[position : position + size])
        position += size
    return records


def _carries_data(record: bytes) -> bool:
    packet = record[_RECORD_HEADER:]
    ip = packet[_ETHERNET:]
    if packet[12:14] == b"\x08\x00":
        total, header = int.from_bytes(ip[2:4], "big"), (ip[0] & 15) * 4
    else:
        total, header = 40 + int.from_bytes(ip[4:6], "big"), 40
    return total > header + (ip[header + 12] >> 4) * 4


def rewrite_capture(
    source: Path,
    target: Path,
    *,
    lose: float = 0.0,
    reorder: float = 0.0,
    duplicate: float = 0.0,
    skip: int = 0,
    seed: int = 1,
) -> dict[str, int]:
    """Hit each data packet after the first `skip` with these probabilities; says how many were hit."""
    data = source.read_bytes()
    chance = random.Random(seed)
    counts = {"lost": 0, "reordered": 0, "duplicated": 0}
    out: list[bytes] = []
    held: bytes | None = None  # a packet that is overtaken by the next data packet
    seen = 0
    for record in _records(data):
        hit = _carries_data(record)
        seen += hit
        if hit and seen > skip:
            if chance.random() < lose:
                counts["lost"] += 1
                continue
            if held is None and chance.random() < reorder:
                held = record
                counts["reordered"] += 1
                continue
            out.append(record)
            if chance.random() < duplicate:
                out.append(record)
                counts["duplicated"] += 1
            if held is not None:
                out.append(held)
                held = None
        else:
            out.append(record)
    if held is not None:
        out.append(held)
    target.write_bytes(data[:_GLOBAL_HEADER] + b"".join(out))
    return counts
