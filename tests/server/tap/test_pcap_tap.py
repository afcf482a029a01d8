"""The pcap of a tap, checked with scapy, a simple reassembly and tshark; rotation; a full disk."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from kit.fault_captures import record_clean

from rtmp_relay.tap.pcap_tap import MSS, Tap

pytest.importorskip("scapy", reason="scapy is not installed")

from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

CLIENT, SERVER = ("192.0.2.7", 40001), ("198.51.100.9", 1935)
CLIENT6, SERVER6 = ("2001:db8::7", 40001), ("2001:db8::9", 1935)


def write(path: Path, client: tuple[str, int], server: tuple[str, int]) -> tuple[bytes, bytes]:
    tap = Tap(path)
    up, down = bytes(range(256)) * 40, b"\xff" * 4001
    tap.opened(1, client, server, 1_700_000_000_000_000_000)
    for at in range(0, len(up), 3001):
        tap.data(1, True, up[at : at + 3001], 1_700_000_000_100_000_000 + at)
        tap.data(1, False, down[at // 3001 * 1000 : at // 3001 * 1000 + 1000], 1_700_000_000_100_000_001 + at)
    tap.closed(1, True, False, 1_700_000_001_000_000_000)
    tap.close()
    return up, down[:4000]


@pytest.mark.parametrize(("client", "server"), [(CLIENT, SERVER), (CLIENT6, SERVER6)], ids=["ipv4", "ipv6"])
def test_every_header_is_what_scapy_writes(tmp_path: Path, client: tuple[str, int], server: tuple[str, int]) -> None:
    write(tmp_path / "t.pcap", client, server)
    for packet in rdpcap(str(tmp_path / "t.pcap")):
        again = packet.copy()
        del again[TCP].chksum
        if IP in again:
            del again[IP].chksum
            del again[IP].len
        else:
            del again[IPv6].plen
        assert bytes(Ether(bytes(again))) == bytes(packet)
        assert len(packet[TCP].payload) <= MSS


def test_both_directions_can_be_reassembled_by_sequence_number(tmp_path: Path) -> None:
    up, down = write(tmp_path / "t.pcap", CLIENT, SERVER)
    packets = rdpcap(str(tmp_path / "t.pcap"))
    assert [str(p[TCP].flags) for p in packets[:3]] == ["S", "SA", "A"]
    assert [str(p[TCP].flags) for p in packets[-3:]] == ["FA", "FA", "A"]
    for (address, _), expected in ((CLIENT, up), (SERVER, down)):
        own = [p[TCP] for p in packets if p[IP].src == address]
        first = own[0].seq + 1
        stream = b""
        for segment in own[1:]:
            if segment.payload:
                assert segment.seq == (first + len(stream)) & 0xFFFFFFFF
                stream += bytes(segment.payload)
        assert stream == expected
        # the other side acknowledges the SYN, every byte and the FIN
        last_ack = [p[TCP].ack for p in packets if p[IP].src != address][-1]
        assert last_ack == (first + len(stream) + 1) & 0xFFFFFFFF


def test_times_have_nanosecond_resolution(tmp_path: Path) -> None:
    write(tmp_path / "t.pcap", CLIENT, SERVER)
    data = (tmp_path / "t.pcap").read_bytes()
    assert data[:4] == bytes.fromhex("4d3cb2a1")  # little-endian magic of nanosecond pcap
    times = [float(p.time) for p in rdpcap(str(tmp_path / "t.pcap"))]
    assert times == sorted(times)
    assert times[-1] == 1_700_000_001.0


def test_tshark_reports_no_errors_or_warnings(tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    record_clean(tmp_path / "t.pcap", players=2, seconds=1.0)
    options = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-z", "expert,warn", "-q"]
    done = subprocess.run(["tshark", *options, "-r", tmp_path / "t.pcap"], capture_output=True, text=True, check=True)
    assert "Errors" not in done.stdout and "Warns" not in done.stdout, done.stdout


def test_rotation_loses_no_packet_and_every_file_is_complete(tmp_path: Path) -> None:
    whole, parts = Tap(tmp_path / "whole.pcap"), Tap(tmp_path / "part.pcap", rotate_bytes=10_000)
    for tap in (whole, parts):
        tap.opened(1, CLIENT, SERVER, 1)
        for number in range(60):
            tap.data(1, number % 2 == 0, bytes((number,)) * 1000, number + 2)
        tap.closed(1, False, True, 100)
        tap.close()
    files = sorted(tmp_path.glob("part-*.pcap"))
    assert len(files) > 3
    packets = [bytes(p) for file in files for p in rdpcap(str(file))]
    assert packets == [bytes(p) for p in rdpcap(str(tmp_path / "whole.pcap"))]
    assert all(file.stat().st_size < 12_000 for file in files)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_ends_the_tap_without_an_exception() -> None:
    tap = Tap("/dev/full")
    tap.opened(1, CLIENT, SERVER, 1)
    for number in range(200):
        tap.data(1, True, bytes(5000), number)
    tap.flush()
    assert tap.failed is not None
    tap.data(1, True, b"more", 300)
    tap.closed(1, True, False, 301)
    tap.close()
