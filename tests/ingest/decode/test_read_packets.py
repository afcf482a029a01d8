"""Packets read by their offsets equal those from reading the whole file, however few are wanted."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from rtmp_spark.capture.files.pcap import FILE_HEADER_BYTES, parse_header
from rtmp_spark.ingest.decode import read_packets as gathering
from rtmp_spark.ingest.decode.read_packets import read_packets

Packet = tuple[int, int, bytes, int]  # frame, time, bytes, length on the wire


def read_all(content: bytes) -> tuple[list[int], list[Packet]]:
    """Offsets of the records and the packets, by the definition of the format."""
    offsets, packets, at = [], [], FILE_HEADER_BYTES
    while at < len(content):
        seconds, micros, caplen, origlen = struct.unpack_from("<4I", content, at)
        offsets.append(at)
        data = content[at + 16 : at + 16 + caplen]
        packets.append((len(offsets), seconds * 1_000_000_000 + micros * 1000, data, origlen))
        at += 16 + caplen
    return offsets, packets


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1, 0.02])
@pytest.mark.parametrize(("window", "near"), [(1 << 23, 1 << 18), (4096, 1 << 18), (20_000, 3000), (1, 0)])
def test_all_wanted_packets_are_read_in_order(
    sample_pcaps: Path, monkeypatch: pytest.MonkeyPatch, share: float, window: int, near: int
) -> None:
    content = (sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap").read_bytes()
    offsets, packets = read_all(content)
    choice = random.Random(f"{share} {window}")
    wanted = [n for n in range(len(packets)) if choice.random() < share] or [0]
    monkeypatch.setattr(gathering, "READ_WINDOW_BYTES", window)
    monkeypatch.setattr(gathering, "NEAR_BYTES", near)
    found: list[Packet] = []
    places = np.array([offsets[n] for n in wanted]), np.array([n + 1 for n in wanted])
    for block in read_packets(io.BytesIO(content), parse_header(content[:FILE_HEADER_BYTES]), *places):
        assert len(block.data) >= int(block.start[-1] + block.caplen[-1]) + len(gathering.PADDING)
        columns = (block.frame.tolist(), block.ts_ns.tolist(), map(block.packet, range(len(block))), block.origlen)
        found += [(frame, ts, data, int(length)) for frame, ts, data, length in zip(*columns)]
    assert found == [packets[n] for n in wanted]


def test_few_packets_of_many_stretches_make_one_window(sample_pcaps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap").read_bytes()
    offsets, _ = read_all(content)
    monkeypatch.setattr(gathering, "READ_WINDOW_BYTES", 50_000)
    some = np.array(offsets[::40])
    header = parse_header(content[:FILE_HEADER_BYTES])
    for near in (1 << 18, 1000):  # several of them in a stretch, and each alone
        monkeypatch.setattr(gathering, "NEAR_BYTES", near)
        blocks = list(read_packets(io.BytesIO(content), header, some, np.arange(len(some))))
        assert len(blocks) < len(content) / 50_000 / 2
