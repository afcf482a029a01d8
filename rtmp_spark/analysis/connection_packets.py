"""Copies the packets of some TCP connections out of capture files, with comments on packets."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from ipaddress import ip_address
from typing import Protocol

import numpy as np

from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.files.pcapng_writer import PcapngWriter
from rtmp_spark.capture.packet_block import PacketBlock
from rtmp_spark.capture.packets.dissector import Dissector
from rtmp_spark.capture.packets.tcp_segments import Segments
from rtmp_spark.codec.errors import CaptureError

Place = tuple[int, int]  # number of the file, number of the packet in it


class Carrier(Protocol):
    """A TCP connection whose packets are copied."""

    a: tuple[str, int]
    b: tuple[str, int]
    ts_first_ns: int
    ts_last_ns: int
    files: Container[int]  # numbers of the files that hold packets of it


def copy_packets(
    paths: Sequence[str], carriers: Sequence[Carrier], writer: PcapngWriter, comments: Mapping[Place, list[str]]
) -> tuple[int, list[str]]:
    """Copy the packets of these connections; returns their number and the files that could not be opened."""
    dissector = Dissector()  # one for all files: fragments of an IP packet may be in two files
    count, unreadable = 0, []
    for number, path in enumerate(paths):
        here = [carrier for carrier in carriers if number in carrier.files]
        if not here:
            continue
        try:
            capture = open_capture(path)
        except (CaptureError, OSError):
            unreadable.append(path)
            continue
        with capture:
            for block in capture:
                for index in _packets_of(block, dissector.segments(block), here):
                    writer.write(
                        int(block.ts_ns[index]),
                        block.packet(index),
                        int(block.origlen[index]),
                        int(block.link_type[index]),
                        comments.get((number, int(block.frame[index]))),
                    )
                    count += 1
    return count, unreadable


def _packets_of(block: PacketBlock, segments: Segments, carriers: Sequence[Carrier]) -> list[int]:
    """Indices of the packets that belong to one of these connections, by address and time (files may be unsorted)."""
    own = np.zeros(len(segments), bool)
    for connection in carriers:
        ends = [_packed(*connection.a), _packed(*connection.b)]
        within = (segments.ts_ns >= connection.ts_first_ns) & (segments.ts_ns <= connection.ts_last_ns)
        for (host, port), (peer, peer_port) in (ends, ends[::-1]):
            own |= (
                within
                & (segments.sport == port)
                & (segments.dport == peer_port)
                & (segments.src == host).all(axis=1)
                & (segments.dst == peer).all(axis=1)
            )
    return [int(index) for index in np.flatnonzero(np.isin(block.frame, segments.frame[own]))]


def _packed(host: str, port: int) -> tuple[object, int]:
    """The address as the dissector has it (16 bytes, IPv4 mapped into IPv6), and the port."""
    address = ip_address(host)
    packed = address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed
    return np.frombuffer(packed, np.uint8), port
