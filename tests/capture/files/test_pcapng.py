"""pcapng: sections, interfaces, the three kinds of packets, resolutions, secrets, damage."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest
from kit import capture_rewriting
from kit.capture_rewriting import block, enhanced, interface, option, section
from kit.hostile_captures import pcapng_byte_orders

from rtmp_spark.capture.files.open_capture import Capture, open_capture
from rtmp_spark.codec.errors import CaptureError, ViolationCode

MICRO = 1_700_000_000_123_456


def contents(capture: Capture) -> list[tuple[int, int, int, bytes]]:
    """(frame, time, link type, bytes) of every packet."""
    return [
        (int(b.frame[n]), int(b.ts_ns[n]), int(b.link_type[n]), b.packet(n)) for b in capture for n in range(len(b))
    ]


def opened(data: bytes, window_bytes: int = 1 << 20) -> Capture:
    return open_capture(io.BytesIO(data), window_bytes=window_bytes)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("window_bytes", [40, 300, 1 << 20])
def test_one_section(order: str, window_bytes: int) -> None:
    packets = [(1_700_000_000_000_000_000 + n, bytes([n]) * (n + 1)) for n in range(50)]
    capture = opened(capture_rewriting.pcapng(packets, 113, order=order), window_bytes)
    assert contents(capture) == [(n, ts, 113, data) for n, (ts, data) in enumerate(packets, 1)]
    assert (capture.facts.format, capture.facts.status, capture.facts.link_types, capture.facts.packets) == (
        "pcapng",
        "ok",
        [113],
        50,
    )


def test_link_types_per_interface_and_sections_of_both_byte_orders() -> None:
    data = section("<") + interface(1) + interface(113) + enhanced(MICRO, b"eth", 0) + enhanced(MICRO, b"sll", 1)
    data += section(">") + interface(101, order=">") + enhanced(MICRO + 1, b"raw", 0, ">")
    capture = opened(data)
    ns = MICRO * 1000
    assert contents(capture) == [(1, ns, 1, b"eth"), (2, ns, 113, b"sll"), (3, ns + 1000, 101, b"raw")]
    assert capture.facts.link_types == [1, 101, 113]


def test_interface_described_after_the_first_packets() -> None:
    data = section() + interface(1) + enhanced(MICRO, b"a") + interface(0) + enhanced(MICRO, b"b", 1)
    assert [link for _, _, link, _ in contents(opened(data))] == [1, 0]


def test_simple_and_obsolete_packet_blocks() -> None:
    simple = block(3, struct.pack("<I", 5) + b"hello")
    obsolete = block(2, struct.pack("<HHIIII", 0, 7, MICRO >> 32, MICRO & 0xFFFFFFFF, 3, 9) + b"old")
    capture = opened(section() + interface(1) + enhanced(MICRO - 1, b"first") + simple + obsolete)
    first, second, third = contents(capture)
    assert second == (2, first[1], 1, b"hello")  # no time of its own: that of the packet before it
    assert third == (3, MICRO * 1000, 1, b"old")
    assert (capture.facts.truncated.count, capture.facts.missing_bytes) == (1, 6)


def test_simple_packets_are_cut_by_the_snapshot_length_of_the_interface() -> None:
    simple = block(3, struct.pack("<I", 100) + b"0123")
    (packet,) = contents(opened(section() + interface(1, snaplen=4) + simple))
    assert packet[3] == b"0123"


@pytest.mark.parametrize(
    "resolution,ticks,expected_ns",
    [
        (0, 1_700_000_000, 1_700_000_000 * 10**9),
        (3, 1_700_000_000_123, 1_700_000_000_123 * 10**6),
        (6, MICRO, MICRO * 1000),
        (9, 1_700_000_000_123_456_789, 1_700_000_000_123_456_789),
        (12, 1_700_000_000_123_456 * 1000, 1_700_000_000_123_456),
        (0x80, 1_700_000_000, 1_700_000_000 * 10**9),
        (0x80 | 10, 1_700_000_000 * 1024 + 512, 1_700_000_000 * 10**9 + 500_000_000),
        (0x80 | 32, (1_700_000_000 << 32) | 1 << 31, 1_700_000_000 * 10**9 + 500_000_000),
        (0x80 | 63, 1 << 62, 500_000_000),
        (0x80 | 64, 1 << 63, 500_000_000),
        (0x7F, 2**64 - 1, 0),
        (0xFF, 2**64 - 1, 0),
    ],
)
def test_resolutions(resolution: int, ticks: int, expected_ns: int) -> None:
    data = section() + interface(1, option(9, bytes([resolution]))) + enhanced(ticks, b"x")
    ((_, ts_ns, _, _),) = contents(opened(data))
    assert ts_ns == expected_ns


def test_every_resolution_survives_the_largest_tick() -> None:
    for resolution in range(256):
        data = section() + interface(1, option(9, bytes([resolution]))) + enhanced(2**64 - 1, b"x")
        assert len(contents(opened(data))) == 1


@pytest.mark.parametrize("offset", [3600, -3600])
def test_time_offset(offset: int) -> None:
    data = section() + interface(1, option(14, struct.pack("<q", offset))) + enhanced(MICRO, b"x")
    ((_, ts_ns, _, _),) = contents(opened(data))
    assert ts_ns == MICRO * 1000 + offset * 10**9


def test_unknown_blocks_are_skipped_and_secrets_kept() -> None:
    keys = b"CLIENT_RANDOM 00 11\n"
    secrets = block(10, struct.pack("<II", 0x544C534B, len(keys)) + keys)
    unknown = block(0x0BAD, b"whatever") + block(5, bytes(8)) + block(4, bytes(4))
    capture = opened(section() + secrets + interface(1) + unknown + enhanced(MICRO, b"x"))
    assert len(contents(capture)) == 1
    assert capture.decryption_secrets == [(0x544C534B, keys)]


def test_secrets_of_a_real_capture(sample_pcaps: Path) -> None:
    with open_capture(sample_pcaps / "rtmps_tls13_secrets_inside.pcapng") as capture:
        contents(capture)
    assert [kind for kind, _ in capture.decryption_secrets] == [0x544C534B]
    assert b"CLIENT_HANDSHAKE_TRAFFIC_SECRET" in capture.decryption_secrets[0][1]


def test_packet_before_its_interface_ends_the_reading() -> None:
    packets = enhanced(MICRO, b"a") + enhanced(MICRO, b"b", 1) + enhanced(MICRO, b"c")
    capture = opened(section() + interface(1) + packets)
    assert [data for *_, data in contents(capture)] == [b"a"]
    assert capture.facts.status == "partial"
    assert capture.facts.error is not None
    assert (capture.facts.error.code, capture.facts.error.frame) == (ViolationCode.CAPTURE_BAD_RECORD, 2)


@pytest.mark.parametrize("length", [0, 4, 11, 13, 30, (16 << 20) + 4, 2**32 - 4])
def test_bad_block_length_ends_the_reading(length: int) -> None:
    bad = bytearray(enhanced(MICRO, b"bad!"))
    bad[4:8] = struct.pack("<I", length)
    capture = opened(section() + interface(1) + enhanced(MICRO, b"good") + bytes(bad) + enhanced(MICRO, b"lost"))
    assert [data for *_, data in contents(capture)] == [b"good"]
    assert capture.facts.status == "partial"
    assert capture.facts.error is not None and capture.facts.error.code is ViolationCode.CAPTURE_BAD_RECORD


def test_different_block_lengths_end_the_reading() -> None:
    bad = bytearray(enhanced(MICRO, b"bad!"))
    bad[-4:] = struct.pack("<I", 44)
    capture = opened(section() + interface(1) + enhanced(MICRO, b"good") + bytes(bad))
    assert len(contents(capture)) == 1
    assert capture.facts.error is not None and capture.facts.error.code is ViolationCode.CAPTURE_BAD_RECORD


def test_captured_length_never_reaches_beyond_its_block() -> None:
    bad = bytearray(enhanced(MICRO, b"abcd"))
    bad[20:24] = struct.pack("<I", 1_000_000)
    ((*_, data),) = contents(opened(section() + interface(1) + bytes(bad)))
    assert data == b"abcd"


def test_a_file_cut_anywhere_keeps_its_complete_packets() -> None:
    whole = section() + interface(1) + b"".join(enhanced(MICRO, bytes(n)) for n in range(1, 6))
    for cut in range(28, len(whole)):
        capture = opened(whole[:cut])
        found = contents(capture)
        assert [data for *_, data in found] == [bytes(n) for n in range(1, len(found) + 1)]
        assert len(found) < 5


def test_section_without_byte_order_magic() -> None:
    with pytest.raises(CaptureError):
        opened(b"")
    capture = opened(block(0x0A0D0D0A, bytes(16)))
    assert contents(capture) == []
    assert capture.facts.status == "failed"
    assert capture.facts.error is not None and capture.facts.error.code is ViolationCode.CAPTURE_BAD_RECORD


def test_sections_of_both_byte_orders_are_one_block() -> None:
    blocks = list(open_capture(io.BytesIO(pcapng_byte_orders(50))))
    assert len(blocks) == 1  # each block costs far more than its packets
    assert blocks[0].frame.tolist() == list(range(1, 53))
    assert {len(blocks[0].packet(i)) for i in range(52)} == {54}
    assert blocks[0].ts_ns.tolist() == sorted(blocks[0].ts_ns.tolist())


def _with(data: bytes, at: int, change: bytes) -> bytes:
    return data[:at] + change + data[at + len(change) :]


@pytest.mark.parametrize("window_bytes", [700, 1 << 20])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("at", [3, 17, 40, 99])
@pytest.mark.parametrize(
    "offset,value,what",
    [
        (4, 13, "claims 13 bytes"),
        (4, 1 << 31, "claims 2147483648 bytes"),
        (8, 7, "interface 7"),
        (-4, 96, "length fields"),
    ],
)
def test_damage_after_many_packets(window_bytes: int, order: str, at: int, offset: int, value: int, what: str) -> None:
    """The packets before the damage are read, whether blocks are checked one by one or many at once."""
    blocks = [enhanced(MICRO + n, bytes([n]) * (n % 9 + 1), 0, order) for n in range(100)]
    head = section(order) + interface(1, order=order)
    place = len(head) + sum(map(len, blocks[:at])) + (offset if offset > 0 else len(blocks[at]) + offset)
    capture = opened(_with(head + b"".join(blocks), place, struct.pack(order + "I", value)), window_bytes)
    assert [packet for _, _, _, packet in contents(capture)] == [bytes([n]) * (n % 9 + 1) for n in range(at)]
    assert capture.facts.error is not None and what in capture.facts.error.detail
    assert capture.facts.error.frame == at + 1


def test_other_blocks_between_many_packets() -> None:
    """An interface, a simple packet and an unknown block, each after and before long runs of Enhanced Packet Blocks."""
    run = [enhanced(MICRO + n, bytes([n + 1])) for n in range(30)]
    others = [interface(113), block(3, struct.pack("<I", 5) + b"hello"), block(0x0BAD, b"custom")]
    later = [enhanced(MICRO + 50 + n, bytes([n + 50]), 1) for n in range(30)]
    data = section() + interface(1) + b"".join(run) + others[0] + b"".join(later) + others[1] + b"".join(run)
    data += others[2] + b"".join(later)
    packets = [(1, bytes([n + 1])) for n in range(30)] + [(113, bytes([n + 50])) for n in range(30)]
    expected = [*packets, (1, b"hello"), *packets]
    assert [(link, packet) for _, _, link, packet in contents(opened(data))] == expected
