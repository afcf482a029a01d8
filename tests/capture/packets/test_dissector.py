"""Link, IP and TCP headers: a segment is the same in every encapsulation."""

from __future__ import annotations

import io
import random
import struct
import sys
from dataclasses import replace

import pytest
from kit import capture_rewriting
from kit.capture_rewriting import (
    ACK,
    LINKS,
    MACS,
    PSH,
    SYN,
    Packet,
    as_ip,
    as_ipv6,
    build,
    ethernet,
    ipv4,
    ipv6,
    tcp_bytes,
    udp,
)

from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.packets.dissector import Dissector
from rtmp_spark.capture.packets.tcp_segments import Segments
from rtmp_spark.codec.errors import Severity, ViolationCode

NOW = 1_700_000_000_000_000_000


def packets(count: int = 12, six: bool = False) -> list[Packet]:
    dice = random.Random(count)
    a, b = ("2001:db8::1", "2001:db8::2") if six else ("10.1.2.3", "172.16.0.9")
    return [
        Packet(
            NOW + n * 1000,
            a,
            50000 + n,
            b,
            1935,
            dice.randrange(2**32),
            dice.randrange(2**32),
            ACK | (n % 2) * PSH,
            dice.randrange(65536),
            dice.randbytes(n * 7),
            b"\1\1\x08\x0a" + dice.randbytes(8) if n % 3 else b"",
        )
        for n in range(count)
    ]


def dissect(frames: list[tuple[int, bytes]], link_type: int = 1, **layout: int) -> tuple[Segments, Dissector]:
    """All frames in one window."""
    dissector = Dissector()
    (block,) = open_capture(io.BytesIO(capture_rewriting.pcap(frames, link_type, **layout)))  # type: ignore[arg-type]
    return dissector.segments(block), dissector


def address(packed: bytes) -> bytes:
    return packed[12:] if packed.startswith(bytes(10) + b"\xff\xff") else packed


def as_packets(segments: Segments) -> list[tuple[object, ...]]:
    return [
        (
            int(segments.frame[n]), address(segments.src[n].tobytes()), int(segments.sport[n]),
            address(segments.dst[n].tobytes()), int(segments.dport[n]), int(segments.seq[n]), int(segments.ack[n]),
            int(segments.flags[n]), int(segments.window[n]),
            segments.data[int(segments.start[n]) : int(segments.start[n]) + int(segments.length[n])],
            int(segments.missing[n]),
        )
        for n in range(len(segments))
    ]  # fmt: skip


def expected(given: list[Packet], six: bool = False) -> list[tuple[object, ...]]:
    import ipaddress

    def packed(text: str) -> bytes:
        return capture_rewriting._six(text) if six else ipaddress.ip_address(text).packed

    return [
        (n, packed(p.src), p.sport, packed(p.dst), p.dport, p.seq, p.ack, p.flags, p.window, p.payload, 0)
        for n, p in enumerate(given, 1)
    ]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("six", [False, True])
def test_every_link_layer_and_tunnel(link: str, six: bool) -> None:
    given = packets()
    segments, dissector = dissect(build(given, link, as_ipv6 if six else as_ip), LINKS[link][0])
    assert as_packets(segments) == expected(given, six)
    assert dissector.counts["tcp"] == len(given)
    assert not dissector.take_problems()


@pytest.mark.parametrize("link,vlan", [("ethernet", -1), ("vlan", 100), ("qinq", 7)])
def test_vlan_is_the_outermost_tag(link: str, vlan: int) -> None:
    segments, _ = dissect(build(packets(), link))
    assert set(segments.vlan.tolist()) == {vlan}


def test_mixed_wrappings_in_one_window_keep_their_order() -> None:
    given = packets(40)
    names = [name for name in LINKS if LINKS[name][0] == 1]
    frames = [build([p], names[n % len(names)], as_ip)[0] for n, p in enumerate(given)]
    segments, _ = dissect(frames)
    assert as_packets(segments) == expected(given)


def test_tunnel_in_tunnel() -> None:
    given = packets(3)
    inner = [LINKS["vxlan"][1](as_ip(p)) for p in given]
    twice = [(NOW, ethernet(ipv4("9.9.9.1", "9.9.9.2", 47, b"\0\0\x65\x58" + frame))) for frame in inner]
    assert as_packets(dissect(twice)[0]) == expected(given)


def test_ipv4_inside_ipv6_has_the_inner_addresses() -> None:
    given = packets(3)
    tunneled = [(NOW, ethernet(ipv6("2001:db8::1", "2001:db8::2", 4, as_ip(p)))) for p in given]
    assert as_packets(dissect(tunneled)[0]) == expected(given)


def test_the_number_of_nested_headers_is_limited() -> None:
    packet = as_ip(packets(1)[0])
    for _ in range(100):
        packet = ipv4("9.9.9.1", "9.9.9.2", 4, packet)
    segments, dissector = dissect([(NOW, ethernet(packet))])
    assert len(segments) == 0
    assert dissector.counts["too_many_layers"] == 1


def test_ipv4_options() -> None:
    given = packets()
    frames = []
    for p in given:
        tcp = as_ip(p)[20:]
        frames.append((p.ts_ns, ethernet(ipv4(p.src, p.dst, 6, tcp, options=b"\x94\x04\0\0" + b"\1" * 8))))
    assert as_packets(dissect(frames)[0]) == expected(given)


def test_ipv6_extension_headers() -> None:
    given = packets(six=True)
    hop_by_hop = bytes([60, 0]) + bytes(6)
    destination = bytes([43, 1]) + bytes(14)
    routing = bytes([51, 0]) + bytes(6)
    authentication = bytes([44, 4]) + bytes(22)
    atomic_fragment = bytes([6, 0, 0, 0]) + b"\0\0\0\7"
    chain = hop_by_hop + destination + routing + authentication + atomic_fragment
    frames = [(p.ts_ns, ethernet(ipv6(p.src, p.dst, 0, chain + as_ipv6(p)[40:]))) for p in given]
    assert as_packets(dissect(frames)[0]) == expected(given)


def fragments(packet: Packet, size: int, ident: int) -> list[bytes]:
    body = as_ip(packet)[20:]
    pieces = [body[a : a + size] for a in range(0, len(body), size)]
    return [
        ethernet(
            ipv4(packet.src, packet.dst, 6, piece, ident=ident, bits=(n * size) // 8 | (n < len(pieces) - 1) * 0x2000)
        )
        for n, piece in enumerate(pieces)
    ]


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_fragments_are_reassembled_in_any_order(seed: int | None) -> None:
    given = [replace(p, payload=random.Random(n).randbytes(3000)) for n, p in enumerate(packets(6))]
    frames = [frame for n, p in enumerate(given) for frame in fragments(p, 1480, n)]
    if seed is not None:
        random.Random(seed).shuffle(frames)
        frames = [frame for frame in frames for _ in (1, 2)]
    segments, dissector = dissect([(NOW, frame) for frame in frames])
    found = sorted(entry[2:] for entry in as_packets(segments))
    assert found == sorted(entry[2:] for entry in expected(given))
    assert dissector.counts["fragment"] == len(frames)


def test_fragment_frame_is_the_one_that_completed_it() -> None:
    given = [replace(packets(1)[0], payload=bytes(3000))]
    segments, _ = dissect([(NOW, frame) for frame in fragments(given[0], 1480, 9)])
    assert segments.frame.tolist() == [3]


def test_fragments_across_windows() -> None:
    given = replace(packets(1)[0], payload=random.Random(1).randbytes(3000))
    dissector = Dissector()
    data = capture_rewriting.pcap([(NOW, frame) for frame in fragments(given, 1480, 9)])
    found = [dissector.segments(block) for block in open_capture(io.BytesIO(data), window_bytes=1900)]
    assert len(found) > 1
    assert as_packets(found[-1])[0][2:] == expected([given])[0][2:]


def test_ipv6_fragments() -> None:
    given = replace(packets(1, six=True)[0], payload=random.Random(1).randbytes(3000))
    body = as_ipv6(given)[40:]
    frames = []
    for at in (1440, 0, 2880):
        more = at < 2880
        header = struct.pack(">BBHI", 6, 0, at | more, 77)
        frames.append((NOW, ethernet(ipv6(given.src, given.dst, 44, header + body[at : at + 1440]))))
    assert as_packets(dissect(frames)[0])[0][1:] == expected([given])[0][1:]


def test_a_fragment_beyond_65535_bytes_is_dropped_and_reported() -> None:
    body = ethernet(ipv4("1.1.1.1", "2.2.2.2", 6, bytes(1480), ident=1, bits=8190))
    segments, dissector = dissect([(NOW, body)])
    assert len(segments) == 0
    assert [p.code for p in dissector.take_problems()] == [ViolationCode.CAPTURE_LIMIT]


def test_incomplete_datagrams_are_limited() -> None:
    frames = [(NOW, ethernet(ipv4("1.1.1.1", "2.2.2.2", 6, bytes(8), ident=n, bits=0x2000))) for n in range(5000)]
    _, dissector = dissect(frames)
    assert len(dissector._fragments) <= 1024
    assert [p.code for p in dissector.take_problems()] == [ViolationCode.CAPTURE_LIMIT]


@pytest.mark.parametrize("six", [False, True])
def test_total_length_zero_means_all_captured_bytes(six: bool) -> None:
    given = [replace(p, payload=random.Random(1).randbytes(5000)) for p in packets(3, six)]
    frames = []
    for p in given:
        frame = bytearray(ethernet(as_ip(p)))
        at = 18 if six else 16
        frame[at : at + 2] = b"\0\0"
        frames.append((p.ts_ns, bytes(frame)))
    assert as_packets(dissect(frames)[0]) == expected(given)


def test_offloaded_packets_above_64_kib() -> None:
    given = [replace(packets(1)[0], payload=random.Random(1).randbytes(100_000))]
    assert as_packets(dissect(build(given))[0]) == expected(given)


@pytest.mark.parametrize("snaplen", [60, 66, 80, 200])
def test_cut_by_the_snapshot_length(snaplen: int) -> None:
    given = [replace(p, payload=random.Random(1).randbytes(300), options=b"") for p in packets(4)]
    segments, _ = dissect(build(given), snaplen=snaplen)
    for found, whole in zip(as_packets(segments), given, strict=True):
        assert found[9] == whole.payload[: snaplen - 54]
        assert found[10] == 300 - (snaplen - 54)


def test_cut_inside_tcp_options_loses_all_of_the_payload() -> None:
    given = [replace(packets(1)[0], payload=bytes(100), options=bytes(20))]
    segments, _ = dissect(build(given), snaplen=60)
    assert (segments.length.tolist(), segments.missing.tolist()) == ([0], [100])


def test_cut_inside_headers_is_counted() -> None:
    given = packets(4)
    for snaplen, why in ((10, "cut_inside_headers"), (20, "cut_inside_headers"), (40, "tcp_cut_inside_header")):
        segments, dissector = dissect(build(given), snaplen=snaplen)
        assert len(segments) == 0
        assert dissector.counts[why] == 4


@pytest.mark.parametrize("offset", [0, 1, 4, 15])
def test_bad_data_offset_is_skipped_and_counted(offset: int) -> None:
    frame = bytearray(build(packets(1))[0][1])
    frame[14 + 20 + 12] = offset << 4
    segments, dissector = dissect([(NOW, bytes(frame))])
    assert len(segments) == 0
    assert dissector.counts["tcp_bad_data_offset"] == 1


def test_bad_checksum_is_accepted_and_counted() -> None:
    given = packets(3)
    frames = []
    for ts_ns, frame in build(given):
        broken = bytearray(frame)
        broken[24] ^= 0x55
        broken[14 + 20 + 16] ^= 0x55
        frames.append((ts_ns, bytes(broken)))
    segments, dissector = dissect(frames)
    assert as_packets(segments) == expected(given)
    (problem,) = dissector.take_problems()
    assert (problem.code, problem.severity) == (ViolationCode.CAPTURE_BAD_RECORD, Severity.WARNING)
    assert (problem.count, problem.frame, problem.ts_ns) == (3, 1, given[0].ts_ns)
    assert not dissector.take_problems(), "reported once"


def test_a_checksum_left_to_the_network_card_is_not_wrong() -> None:
    frame = bytearray(build(packets(1))[0][1])
    frame[14 + 10 : 14 + 12] = bytes(2)
    _, dissector = dissect([(NOW, bytes(frame))])
    assert not dissector.take_problems()


def test_window_scale_of_syns_only() -> None:
    base = packets(1)[0]
    scale = replace(base, flags=SYN, options=b"\2\4\5\xb4\1\3\3\7")
    odd = replace(base, flags=SYN, options=b"\3\3\x20\0")  # 32 is read as 14 (RFC 7323 2.3)
    broken = replace(base, flags=SYN, options=b"\x1e\0\3\3")
    segments, _ = dissect(build([base, scale, odd, broken, replace(base, options=b"\3\3\7\0")]))
    assert segments.wscale.tolist() == [-1, 7, 14, -1, -1]


def test_packets_that_are_not_tcp_are_counted_by_kind() -> None:
    frames = [
        (NOW, MACS + b"\x08\x06" + bytes(28)),
        (NOW, ethernet(ipv4("1.1.1.1", "2.2.2.2", 17, udp(b"dns", 53)))),
        (NOW, ethernet(ipv4("1.1.1.1", "2.2.2.2", 1, bytes(8)))),
        (NOW, MACS + b"\x00\x20\x42\x42\x03" + bytes(30)),
        (NOW, ethernet(bytes([0x95]) + bytes(40))),
        *build(packets(1)),
    ]
    segments, dissector = dissect(frames)
    assert len(segments) == 1
    counts = {name: count for name, count in dissector.counts.items() if count}
    assert counts == {
        "ethertype_0806": 1, "udp": 1, "ip_protocol_1": 1, "llc": 1, "bad_ip_header": 1, "tcp": 1
    }  # fmt: skip


def test_other_link_types_go_through_scapy() -> None:
    pytest.importorskip("scapy")
    from scapy.layers.dot11 import Dot11, RadioTap
    from scapy.layers.inet import IP
    from scapy.layers.l2 import LLC, SNAP

    given = packets(3)
    frames = [(p.ts_ns, bytes(RadioTap() / Dot11(type=2, FCfield=1) / LLC() / SNAP() / IP(as_ip(p)))) for p in given]
    segments, dissector = dissect(frames, 127)
    assert as_packets(segments) == expected(given)
    assert dissector.counts["read_by_scapy"] == 3
    assert not dissector.take_problems()


def test_other_link_types_without_scapy_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scapy", None)
    monkeypatch.setitem(sys.modules, "scapy.config", None)
    segments, dissector = dissect(build(packets(3)), 127)
    assert len(segments) == 0
    (problem,) = dissector.take_problems()
    assert (problem.code, problem.count) == (ViolationCode.CAPTURE_LINK_TYPE, 3)
    assert "scapy" in problem.hint


def test_a_link_type_that_scapy_does_not_know_either() -> None:
    _, dissector = dissect(build(packets(2)), 65000)
    assert [(p.code, p.count) for p in dissector.take_problems()] == [(ViolationCode.CAPTURE_LINK_TYPE, 2)]


def test_any_bytes_on_any_link_never_raise() -> None:
    dice = random.Random(11)
    good = [frame for link in LINKS for _, frame in build(packets(2), link)]
    for link_type in sorted({kind for kind, _ in LINKS.values()} | {12, 14, 50, 51, 104, 228, 229}):
        frames = [(NOW, dice.randbytes(dice.randint(1, 120))) for _ in range(300)]
        for frame in good:
            for _ in range(20):
                broken = bytearray(frame[: dice.randint(1, len(frame))])
                for _ in range(3):
                    broken[dice.randrange(len(broken))] = dice.randrange(256)
                frames.append((NOW, bytes(broken)))
        segments, dissector = dissect(frames, link_type)
        assert (segments.length >= 0).all() and (segments.missing >= 0).all()
        assert dissector.counts["tcp"] >= len(segments)


def test_independent_parser_agrees_on_a_real_capture(sample_pcaps: object) -> None:
    from pathlib import Path

    assert isinstance(sample_pcaps, Path)
    path = sample_pcaps / "lossy_mtu1500_server_side.pcap"
    given = capture_rewriting.read(path)
    segments, _ = dissect(capture_rewriting.records(path.read_bytes()))
    assert as_packets(segments) == expected(given)


def test_tcp_checksum_of_the_rewriter_is_right() -> None:
    """The rewriter is an oracle: scapy must agree with it."""
    pytest.importorskip("scapy")
    from scapy.layers.inet import IP, TCP

    for p in packets(5):
        raw = as_ip(p)
        again = IP(raw)
        del again.chksum, again[TCP].chksum
        assert bytes(again) == raw
        assert tcp_bytes(p, raw[12:20]) == raw[20:]
