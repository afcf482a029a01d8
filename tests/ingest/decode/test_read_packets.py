"""Packets read by their offsets equal those from reading the whole file, however few are wanted."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from kit.capture_rewriting import block, enhanced, interface, section

from rtmp_spark.capture.files.pcap import FILE_HEADER_BYTES
from rtmp_spark.capture.files.record_layout import layout_of
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


def as_blocks(packets: list[Packet], order: str) -> tuple[bytes, list[int]]:
    """A pcapng of two interfaces with these packets, some of them in obsolete blocks, and where each block begins."""
    content = section(order) + interface(1, order=order) + interface(1, order=order)
    offsets = []
    for frame, ts_ns, data, origlen in packets:
        offsets.append(len(content))
        ticks, number = ts_ns // 1000, frame % 2
        if frame % 7:
            content += enhanced(ticks, data, number, order, origlen)
        else:
            fields = number, 5, ticks >> 32, ticks & 0xFFFFFFFF, len(data), origlen
            content += block(2, struct.pack(order + "HHIIII", *fields) + data, order)
    return content, offsets


@pytest.mark.parametrize("form", ["pcap", "pcapng <", "pcapng >"])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.1, 0.02])
@pytest.mark.parametrize(("window", "near"), [(1 << 23, 1 << 18), (4096, 1 << 18), (20_000, 3000), (1, 0)])
def test_all_wanted_packets_are_read_in_order(
    sample_pcaps: Path, monkeypatch: pytest.MonkeyPatch, form: str, share: float, window: int, near: int
) -> None:
    content = (sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap").read_bytes()
    offsets, packets = read_all(content)
    if form != "pcap":
        content, offsets = as_blocks(packets, form[-1])
    choice = random.Random(f"{share} {window}")
    wanted = [n for n in range(len(packets)) if choice.random() < share] or [0]
    monkeypatch.setattr(gathering, "READ_WINDOW_BYTES", window)
    monkeypatch.setattr(gathering, "NEAR_BYTES", near)
    found: list[Packet] = []
    places = np.array([offsets[n] for n in wanted]), np.array([n + 1 for n in wanted])
    for read in read_packets(io.BytesIO(content), layout_of(io.BytesIO(content)), *places):
        assert len(read.data) >= int(read.start[-1] + read.caplen[-1]) + len(gathering.PADDING)
        columns = (read.frame.tolist(), read.ts_ns.tolist(), map(read.packet, range(len(read))), read.origlen)
        found += [(frame, ts, data, int(length)) for frame, ts, data, length in zip(*columns)]
    assert found == [packets[n] for n in wanted]


def test_few_packets_of_many_stretches_make_one_window(sample_pcaps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap").read_bytes()
    offsets, _ = read_all(content)
    monkeypatch.setattr(gathering, "READ_WINDOW_BYTES", 50_000)
    some = np.array(offsets[::40])
    layout = layout_of(io.BytesIO(content))
    for near in (1 << 18, 1000):  # several of them in a stretch, and each alone
        monkeypatch.setattr(gathering, "NEAR_BYTES", near)
        blocks = list(read_packets(io.BytesIO(content), layout, some, np.arange(len(some))))
        assert len(blocks) < len(content) / 50_000 / 2


@pytest.mark.parametrize("share", [1, 2])
def test_windows_hold_as_many_wanted_packets_if_only_a_part_is_wanted(
    sample_pcaps: Path, monkeypatch: pytest.MonkeyPatch, share: int
) -> None:
    content = (sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap").read_bytes()
    offsets, _ = read_all(content)
    monkeypatch.setattr(gathering, "READ_WINDOW_BYTES", 40_000)
    monkeypatch.setattr(gathering, "NEAR_BYTES", 15_000)
    wanted = np.flatnonzero(np.arange(len(offsets)) % (4 * share) < 4)
    layout = layout_of(io.BytesIO(content))
    blocks = list(read_packets(io.BytesIO(content), layout, np.array(offsets)[wanted], wanted + 1))
    assert len(blocks) == -(-len(content) // (40_000 * share))
    sizes = [int(read.start[-1] - read.start[0]) for read in blocks]
    assert min(sizes) > 0.8 * max(sizes)
