"""TCP segments of a window as columns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rtmp_spark.capture.packet_block import Bytes, Ints

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


@dataclass
class Segments:
    """TCP segments in packet order. IPv4 addresses are mapped into IPv6 (::ffff:a.b.c.d)."""

    data: bytes
    frame: Ints
    ts_ns: Ints
    src: Bytes
    dst: Bytes
    sport: Ints
    dport: Ints
    seq: Ints
    ack: Ints
    flags: Ints
    window: Ints
    start: Ints  # of the payload, in data
    length: Ints  # of the captured payload
    missing: Ints  # bytes of the payload that the snapshot length cut off
    vlan: Ints  # -1: none
    wscale: Ints  # on SYN only; -1: none
    header: Ints  # start of the TCP header, in data
    ip_id: Ints  # identification of the IP packet; 0 where it has none

    def __len__(self) -> int:
        return len(self.frame)

    def intact(self, row: int) -> bool | None:
        """Whether the TCP checksum is right (RFC 9293 3.1).

        None if that is unknown: bytes are missing, or the packet was captured on the sending machine, before its
        network card computed the checksum.
        """
        if self.missing[row]:
            return None
        at, end = int(self.header[row]), int(self.start[row] + self.length[row])
        ends = _words(self.src[row].tobytes()) + _words(self.dst[row].tobytes()) + 6  # ::ffff adds 0
        if (ends + end - at + _words(self.data[at:end])) % 0xFFFF == 0:
            return True
        before_the_card = (ends % 0xFFFF, (ends + end - at) % 0xFFFF)
        return None if int.from_bytes(self.data[at + 16 : at + 18], "big") in (0, *before_the_card) else False

    def joined(self, other: Segments) -> Segments:
        """Both, in packet order."""
        other.start, other.header = other.start + len(self.data), other.header + len(self.data)
        columns = {
            f.name: np.concatenate((getattr(self, f.name), getattr(other, f.name)))
            for f in fields(self)
            if f.name != "data"
        }
        joined = Segments(self.data + other.data, **columns)
        return joined.select(np.argsort(joined.frame, kind="stable"))

    def select(self, wanted: Any) -> Segments:
        """The segments selected by a mask or an index array; the bytes are shared."""
        columns = {f.name: getattr(self, f.name)[wanted] for f in fields(self) if f.name != "data"}
        return Segments(self.data, **columns)


def _words(data: bytes) -> int:
    return int(np.frombuffer(data + bytes(len(data) & 1), ">u2").sum(dtype=np.int64))
