"""One session recorded at both ends of a lossy link: what `paths` says is what the packets of both captures say."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kit.capture_rewriting import records
from kit.in_process_ingest import ingest_in_process, lake_rows

from rtmp_spark.analysis.sensor_recordings import SensorRecordings
from rtmp_spark.analysis.settings import Settings

Row = dict[str, Any]
Frames = list[tuple[int, bytes]]
CLIENT, SERVER = "lossy_mtu1500_client_side.pcap", "lossy_mtu1500_server_side.pcap"
LOST = ("packets_lost_c2s", "packets_lost_s2c", "bytes_lost_c2s", "bytes_lost_s2c")


def paths_of(captures: Mapping[str, Sequence[Path]]) -> list[Row]:
    recordings = SensorRecordings(captures, Settings(), ("paths",))
    return [row for table, batch in recordings.batches() for row in batch.to_pylist() if table == "paths"]


def written(path: Path, frames: Frames) -> Path:
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    body = [struct.pack("<IIII", *divmod(ts // 1000, 1_000_000), len(f), len(f)) + f for ts, f in frames]
    path.write_bytes(head + b"".join(body))
    return path


def sent_packets(frames: Frames) -> dict[tuple[int, str], Counter[tuple[Any, ...]]]:
    """Packets by client port and direction: what identifies each, and how often it was captured."""
    found: dict[tuple[int, str], Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for _, frame in frames:
        total, ip_id = struct.unpack_from(">HH", frame, 16)
        sport, dport, seq, ack, offset, flags = struct.unpack_from(">HHIIBB", frame, 34)
        header = (offset >> 4) * 4
        place = (sport, "c2s") if dport == 1935 else (dport, "s2c")
        options = frame[54 : 34 + header]
        found[place][ip_id, seq, ack, flags, options, total - 20 - header] += 1
    return found


def counted_losses(client: Frames, server: Frames) -> list[list[int]]:
    """In the order of LOST, by connection. A copy of a packet with an IP id is recognised; resets have none."""
    near_client, near_server = sent_packets(client), sent_packets(server)
    losses = []
    for port in sorted({port for port, _ in near_client}):
        packets, sizes = [], []
        for direction, left, reached in (("c2s", near_client, near_server), ("s2c", near_server, near_client)):
            one, other = left[port, direction], reached[port, direction]
            named = [packet for packet in one if packet[0] and packet not in other]
            nameless = sum(n for p, n in one.items() if not p[0]) - sum(n for p, n in other.items() if not p[0])
            assert not [packet for packet in other if packet[0] and packet not in one]
            packets.append(len(named) + nameless)
            sizes.append(sum(packet[-1] for packet in named))
        losses.append(packets + sizes)
    return losses


@pytest.fixture(scope="module")
def client(sample_pcaps: Path) -> Frames:
    return records((sample_pcaps / CLIENT).read_bytes())


@pytest.fixture(scope="module")
def server(sample_pcaps: Path) -> Frames:
    return records((sample_pcaps / SERVER).read_bytes())


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_loss_between_the_sensors_is_that_of_the_packets(
    sample_pcaps: Path, client: Frames, server: Frames, names: tuple[str, str]
) -> None:
    one, other = names
    rows = paths_of({one: [sample_pcaps / CLIENT], other: [sample_pcaps / SERVER]})
    assert [[row[name] for name in LOST] for row in rows] == counted_losses(client, server)
    assert {(row["sensor_a"], row["sensor_b"], row["verdict"]) for row in rows} == {(one, other, "network")}
    for row in rows:  # one machine, so one clock; netem delays every packet by 3 ms
        assert abs(row["clock_offset_ms"]) < 0.2
        assert 3 < row["delay_ms_p50"] < 3.5 < row["delay_ms_p95"] < 210  # a lost packet comes again within the RTO


@pytest.mark.parametrize("ms", [7250, -7250])
def test_offset_of_a_clock(sample_pcaps: Path, server: Frames, tmp_path: Path, ms: int) -> None:
    late = written(tmp_path / "late.pcap", [(ts + ms * 1_000_000, frame) for ts, frame in server])
    here, there = ({"a": [sample_pcaps / CLIENT], "b": [path]} for path in (sample_pcaps / SERVER, late))
    for row, shifted in zip(paths_of(here), paths_of(there), strict=True):
        assert shifted["clock_offset_ms"] == pytest.approx(row["clock_offset_ms"] + ms, abs=0.01)
        for name in (*LOST, "verdict", "sensor_a", "sensor_b"):
            assert shifted[name] == row[name]
        assert shifted["delay_ms_p95"] == pytest.approx(row["delay_ms_p95"], abs=0.01)


def translated(frame: bytes) -> bytes:
    """The client's address one higher and its port one lower: the checksum of TCP stays the same."""
    changed = bytearray(frame)
    for address, port in ((26, 34), (30, 36)):
        if changed[address : address + 4] == bytes([10, 77, 0, 2]):
            changed[address + 3] += 1
            struct.pack_into(">H", changed, port, struct.unpack_from(">H", changed, port)[0] - 1)
    changed[24:26] = bytes(2)
    total = sum(struct.unpack_from(">10H", changed, 14))
    struct.pack_into(">H", changed, 24, ~(total % 0xFFFF) & 0xFFFF)
    return bytes(changed)


def test_addresses_that_a_router_changed(sample_pcaps: Path, client: Frames, server: Frames, tmp_path: Path) -> None:
    behind = written(tmp_path / "behind.pcap", [(ts, translated(frame)) for ts, frame in server])
    rows = paths_of({"a": [sample_pcaps / CLIENT], "b": [behind]})
    assert [[row[name] for name in LOST] for row in rows] == counted_losses(client, server)


def test_one_sensor_has_no_paths(sample_pcaps: Path) -> None:
    assert paths_of({"a": [sample_pcaps / CLIENT]}) == []


def test_recordings_of_different_parts(sample_pcaps: Path, server: Frames, tmp_path: Path) -> None:
    """What one sensor did not record is not lost."""
    half = written(tmp_path / "half.pcap", server[: len(server) // 2])
    rows = paths_of({"a": [sample_pcaps / CLIENT], "b": [half]})
    assert [[row[name] for name in LOST] for row in rows] == [[None] * 4] * 2
    assert {row["verdict"] for row in rows} == {"unknown"}


@pytest.mark.parametrize(
    "ingests",
    [
        lambda a, b: [("a", a), ("b", b)],
        lambda a, b: [("b", b), ("a", a)],
        lambda a, b: [("a", a[:1]), ("b", b[:1]), ("a", a[1:]), ("b", b[1:])],
        lambda a, b: [("b", b[:1]), ("b", b[1:]), ("a", a[:1]), ("a", a[1:])],
    ],
)
def test_a_lake_has_the_same_paths(
    client: Frames, server: Frames, tmp_path: Path, ingests: Callable[..., list[tuple[str, list[Path]]]]
) -> None:
    parts = {}
    for name, frames in (("a", client), ("b", server)):
        cut = len(frames) // 3
        parts[name] = [
            written(tmp_path / f"{name}{number}.pcap", piece)
            for number, piece in enumerate((frames[:cut], frames[cut:]))
        ]
    expected = paths_of(parts)
    assert len(expected) == 2
    for sensor, files in ingests(parts["a"], parts["b"]):
        ingest_in_process(tmp_path / "lake", files, sensor=sensor)
    found = sorted(lake_rows(tmp_path / "lake", "paths"), key=lambda row: row["uid"])
    assert [{**row, "ingest_id": None} for row in found] == expected


def test_decoding_a_lake_again_keeps_its_paths(sample_pcaps: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for sensor, name in (("a", CLIENT), ("b", SERVER)):
        ingest_in_process(lake, [sample_pcaps / name], sensor=sensor)
    before = [{**row, "ingest_id": None} for row in lake_rows(lake, "paths")]
    ingest_in_process(lake, [sample_pcaps / SERVER], sensor="b", redo=True)
    assert [{**row, "ingest_id": None} for row in lake_rows(lake, "paths")] == before
    assert before == paths_of({"a": [sample_pcaps / CLIENT], "b": [sample_pcaps / SERVER]})


def test_a_third_sensor(client: Frames, server: Frames, tmp_path: Path) -> None:
    """The rows about the first two are made again, and are there once."""
    later = [(ts + 1_000_000, frame) for ts, frame in server]
    files = {n: [written(tmp_path / f"{n}.pcap", f)] for n, f in (("a", client), ("b", server), ("c", later))}
    for sensor, paths in files.items():
        ingest_in_process(tmp_path / "lake", paths, sensor=sensor)
    found = sorted(lake_rows(tmp_path / "lake", "paths"), key=lambda row: (row["uid_a"], row["uid_b"]))
    assert [{**row, "ingest_id": None} for row in found] == paths_of(files)
    assert Counter((row["sensor_a"], row["sensor_b"]) for row in found) == {("a", "b"): 2, ("a", "c"): 2, ("b", "c"): 2}
