"""The header of a classic pcap file, and a writer for the relay's tap and for tests.

Standard library only, so that the relay can write captures without loading numpy. pcap_records.py reads the records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from os import PathLike
from typing import BinaryIO, NamedTuple

from rtmp_spark.codec.errors import CaptureError
from rtmp_spark.codec.limits import DEFAULT_LIMITS

FILE_HEADER_BYTES = 24
DLT_ETHERNET = 1
NOT_A_CAPTURE_HINT = "give a pcap or pcapng file; it may be compressed with gzip or zstd"

_MICRO, _NANO, _MODIFIED = 0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34  # the last one is Kuznetzov's: 8 more bytes per record
_RECORD_HEADER_BYTES = {_MICRO: 16, _NANO: 16, _MODIFIED: 24}


class PcapHeader(NamedTuple):
    byte_order: str  # "<" or ">"
    nanosecond: bool
    record_header_bytes: int
    snaplen: int
    link_type: int


def byte_order_of(magic: bytes) -> str | None:
    """The byte order in which these four bytes are a pcap magic number, or None."""
    for order in "<>":
        if struct.unpack(order + "I", magic)[0] in _RECORD_HEADER_BYTES:
            return order
    return None


def parse_header(data: bytes) -> PcapHeader:
    order = byte_order_of(data[:4]) if len(data) >= 4 else None
    if order is None:
        raise CaptureError(None, "this is not a pcap file", NOT_A_CAPTURE_HINT)
    if len(data) < FILE_HEADER_BYTES:
        raise CaptureError(None, "the file ends inside its header", "capture again; it holds no packet")
    magic, _major, _minor, _zone, _sigfigs, snaplen, link = struct.unpack_from(order + "IHHiIII", data)
    # The upper bits of the link field hold the length of the frame check sequence, not a link type.
    return PcapHeader(order, magic == _NANO, _RECORD_HEADER_BYTES[magic], snaplen, link & 0xFFFF)


class Writer:
    """Appends packets to a classic pcap; the constructor writes the file header."""

    def __init__(
        self,
        file: BinaryIO,
        link_type: int = DLT_ETHERNET,
        *,
        nanosecond: bool = False,
        snaplen: int = DEFAULT_LIMITS.pcap_record_bytes,
        byte_order: str = "<",
    ) -> None:
        self._file = file
        self._snaplen = snaplen
        self._fraction_ns = 1 if nanosecond else 1000
        self._record = struct.Struct(byte_order + "IIII")
        magic = _NANO if nanosecond else _MICRO
        file.write(struct.pack(byte_order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, link_type))

    def write(self, ts_ns: int, data: bytes, origlen: int | None = None) -> None:
        seconds, fraction = divmod(ts_ns, 1_000_000_000)
        captured = data[: self._snaplen]
        length = len(data) if origlen is None else origlen
        self._file.write(self._record.pack(seconds, fraction // self._fraction_ns, len(captured), length))
        self._file.write(captured)

    def flush(self) -> None:
        self._file.flush()


def write(
    target: str | PathLike[str] | BinaryIO,
    packets: Iterable[tuple[int, bytes]],
    link_type: int = DLT_ETHERNET,
    *,
    nanosecond: bool = False,
    snaplen: int = DEFAULT_LIMITS.pcap_record_bytes,
    byte_order: str = "<",
) -> None:
    """Write (time in ns, packet) pairs as one file."""
    if isinstance(target, (str, PathLike)):
        with open(target, "wb") as file:
            write(file, packets, link_type, nanosecond=nanosecond, snaplen=snaplen, byte_order=byte_order)
        return
    writer = Writer(target, link_type, nanosecond=nanosecond, snaplen=snaplen, byte_order=byte_order)
    for ts_ns, data in packets:
        writer.write(ts_ns, data)
