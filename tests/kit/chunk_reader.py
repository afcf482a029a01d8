"""A small chunk reader, written from the specification alone: decodes undamaged streams without our decoder.

It imports nothing of the project, takes a whole direction at once and raises ValueError for anything that the
specification does not allow, so its input must be complete.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

HANDSHAKE = 1 + 2 * 1536
HEADER_LENGTHS = (11, 7, 3, 0)


class Read(NamedTuple):
    start: int
    end: int
    csid: int
    type_id: int
    stream_id: int
    timestamp: int  # 32 bits, as the fields add up
    payload: bytes


class _Last:
    """The last header on one csid and the payload so far (RTMP 1.0 5.3.1.2)."""

    def __init__(self) -> None:
        self.timestamp = self.step = self.length = self.type_id = self.stream_id = 0
        self.extension: bytes | None = None
        self.payload: bytearray | None = None
        self.start = 0


def read_chunks(data: bytes, pos: int = HANDSHAKE) -> list[Read]:
    """Every whole message of a direction, in order of completion; the chunks begin at `pos`."""
    size = 128
    last: dict[int, _Last] = {}
    messages: list[Read] = []
    try:
        while pos < len(data):
            start = pos
            fmt, csid = data[pos] >> 6, data[pos] & 63
            pos += 1
            if csid == 0:
                csid, pos = 64 + data[pos], pos + 1
            elif csid == 1:
                csid, pos = 64 + struct.unpack_from("<H", data, pos)[0], pos + 2
            if csid not in last:
                if fmt > 1:
                    raise ValueError(f"fmt {fmt} on a new csid {csid} at {start}")
                last[csid] = _Last()
            cs = last[csid]
            if cs.payload is not None and fmt != 3:
                raise ValueError(f"fmt {fmt} inside a message at {start}")
            fields = data[pos : pos + HEADER_LENGTHS[fmt]]
            pos += len(fields)
            if fmt < 3:
                cs.extension = None
                value = int.from_bytes(fields[:3], "big")
                if value == 0xFFFFFF:
                    cs.extension = data[pos : pos + 4]
                    value = int.from_bytes(cs.extension, "big")
                    pos += 4
                cs.step = value
            elif cs.extension is not None and data[pos : pos + 4] == cs.extension:
                pos += 4
            if fmt < 2:
                cs.length, cs.type_id = int.from_bytes(fields[3:6], "big"), fields[6]
            if fmt == 0:
                cs.stream_id = struct.unpack_from("<I", fields, 7)[0]
            if cs.payload is None:
                cs.payload, cs.start = bytearray(), start
                cs.timestamp = cs.step if fmt == 0 else cs.timestamp + cs.step & 0xFFFFFFFF
            chunk = data[pos : pos + min(size, cs.length - len(cs.payload))]
            pos += len(chunk)
            cs.payload += chunk
            if len(cs.payload) < cs.length:
                continue
            payload, cs.payload = bytes(cs.payload), None
            messages.append(Read(cs.start, pos, csid, cs.type_id, cs.stream_id, cs.timestamp, payload))
            if cs.type_id == 1:
                size = int.from_bytes(payload, "big")
            elif cs.type_id == 2:
                last[int.from_bytes(payload, "big")].payload = None
    except (IndexError, struct.error):
        pass  # the last chunk is cut
    return messages
