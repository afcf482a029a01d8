"""The tables do not depend on the format of a capture, on sorted copies, or on damage at the seams of splits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import capture_rewriting
from kit.capture_rewriting import gzipped, interface, pcap, pcapng
from kit.equal_tables import KEY, Tables, difference, sequential
from kit.in_process_ingest import scanned

from rtmp_spark.ingest.captures.capture_paths import list_captures
from rtmp_spark.ingest.captures.probed_files import probe
from rtmp_spark.ingest.scan import staged_packets
from rtmp_spark.ingest.scan.plan import combine_scans, cut_into_splits
from rtmp_spark.ingest.scan.split_scan import Split
from rtmp_spark.redact import KEY_VARIABLE

Frames = list[tuple[int, bytes]]
PLAYED = "ffmpeg_publish_bframes_rtmpdump_play.pcap"


@pytest.fixture(autouse=True)
def redaction_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def frames_of(sample_pcaps: Path) -> Frames:
    return capture_rewriting.build(capture_rewriting.read(sample_pcaps / PLAYED))


def cut_up(path: Path, split_bytes: int, staging: Path, sort: bool = False) -> tuple[Any, int]:
    """The facts of a file from its ranges, and how many there are; None if it has to be read as a whole."""
    (file,) = list_captures([str(path)])
    splits = cut_into_splits([probe(file)], split_bytes)
    found, _ = combine_scans([file], splits, {s.split_id: scanned(s, staging, sort=sort).found for s in splits})
    return found[0].about if found else None, len(splits)


def whole(path: Path, staging: Path) -> Any:
    (file,) = list_captures([str(path)])
    return scanned(Split(0, str(path), 0, 0, file.size_bytes, file.modified_ns), staging).found.facts


def assert_ranges_equal_the_file(path: Path, staging: Path, sizes: tuple[int, ...] = (5_000, 30_001)) -> None:
    expected = whole(path, staging)
    for size in sizes:
        facts, count = cut_up(path, size, staging)
        assert count > 2 and facts is not None, size
        assert facts == expected, size


def assert_equal_tables(path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = sequential([path])
    assert expected["messages"]
    for split_bytes, buckets, sort, run_bytes in ((5_000, 3, False, 1 << 26), (30_001, 2, True, 1 << 12),
                                                  (1 << 26, 3, True, 1 << 14)):  # fmt: skip
        monkeypatch.setattr(staged_packets, "RUN_BYTES", run_bytes)
        tables = Tables(directory, sorted_copy=sort)
        tables.ingest([path], split_bytes, buckets)
        assert difference(expected, tables.rows) == "", (split_bytes, sort)


FORMATS: dict[str, Callable[[Frames], bytes]] = {
    "a.pcap": pcap,
    "a.pcapng": pcapng,
    "b.pcapng": lambda frames: pcapng(frames, order=">"),
    "a.pcap.gz": lambda frames: gzipped(pcap(frames)),
    "a.pcapng.gz": lambda frames: gzipped(pcapng(frames), members=3),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format(name: str, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    path.write_bytes(FORMATS[name](frames_of(sample_pcaps)))
    assert_equal_tables(path, tmp_path, monkeypatch)


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_pcapng_is_cut_into_ranges(order: str, sample_pcaps: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(pcapng(frames_of(sample_pcaps), order=order))
    assert_ranges_equal_the_file(path, tmp_path / "staging")


def test_blocks_inside_packets_do_not_mislead(tmp_path: Path) -> None:
    """Packets that contain pcapng files: whatever a range takes for a block, the facts are right or it is not used."""
    inner = pcapng([(n, bytes([n]) * 40) for n in range(60)])
    path = tmp_path / "a.pcapng"
    path.write_bytes(pcapng([(n * 1000, bytes(n % 4) + inner) for n in range(40)]))
    expected = whole(path, tmp_path / "staging")
    for size in (4096, 5000, 10_000):
        facts, count = cut_up(path, size, tmp_path / "staging")
        assert count > 2 and facts in (None, expected)


def test_a_pcapng_with_a_second_interface_is_read_as_a_whole(
    sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = frames_of(sample_pcaps)
    content = pcapng(frames)
    for place, more in ((400, interface()), (400, pcapng(frames[:1]))):
        head = pcapng(frames[:place])
        assert content.startswith(head)
        path = tmp_path / f"{len(more)}.pcapng"
        path.write_bytes(head + more + content[len(head) :])
        assert cut_up(path, 10_000, tmp_path / "staging")[0] is None
        assert_equal_tables(path, tmp_path, monkeypatch)


@pytest.mark.parametrize("made", [pcap, pcapng])
def test_a_cut_last_record_costs_only_its_split(
    made: Callable[[Frames], bytes], sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = made(frames_of(sample_pcaps))
    for missing in (1, 13, 700):
        path = tmp_path / f"{missing}.{made.__name__}"
        path.write_bytes(content[:-missing])
        facts, _ = cut_up(path, 30_000, tmp_path / "staging")
        assert facts is not None and facts.status == "partial" and facts == whole(path, tmp_path / "staging")
    assert_equal_tables(path, tmp_path, monkeypatch)


def in_fragments(frame: bytes, number: int, size: int) -> list[bytes]:
    """An IPv4 packet in Ethernet as fragments of this size (RFC 791)."""
    link, header, body = frame[:14], bytearray(frame[14:34]), frame[34:]
    made = []
    for at in range(0, len(body), size):
        part = body[at : at + size]
        more = at + size < len(body)
        header[2:4] = (20 + len(part)).to_bytes(2, "big")
        header[4:6] = number.to_bytes(2, "big")
        header[6:8] = (at // 8 | (0x2000 if more else 0)).to_bytes(2, "big")
        header[10:12] = bytes(2)
        header[10:12] = capture_rewriting.checksum(bytes(header)).to_bytes(2, "big")
        made.append(link + bytes(header) + part)
    return made


@pytest.mark.parametrize("distance", [0, 300])
@pytest.mark.parametrize("sort", [False, True])
def test_fragments(
    sort: bool, distance: int, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fragments that follow each other, and fragments that follow after so many packets, in other splits.

    With splits of 150,000 bytes a seam lies between two fragments.
    """
    frames: Frames = []
    late: list[tuple[int, int, bytes]] = []  # place, time, fragment
    for number, (ts_ns, frame) in enumerate(frames_of(sample_pcaps)):
        while late and late[0][0] <= number:
            _, _, fragment = late.pop(0)
            frames.append((ts_ns, fragment))
        parts = in_fragments(frame, number, 400) if number % 20 == 7 and len(frame) > 500 else [frame]
        frames.append((ts_ns, parts[0]))
        late += [(number + distance, ts_ns, part) for part in parts[1:]]
        if not distance:
            frames += [(ts_ns, part) for part in parts[1:]]
            late = []
    frames += [(frames[-1][0], fragment) for _, _, fragment in late]
    path = tmp_path / "fragments.pcap"
    path.write_bytes(pcap(frames))
    assert len(frames) > len(frames_of(sample_pcaps)) + 10
    facts, count = cut_up(path, 20_001, tmp_path / "staging", sort)
    assert count > 10 and (facts is None) is bool(distance)
    expected = sequential([path])
    assert expected["messages"]
    for split_bytes, buckets in ((20_001, 3), (150_000, 2), (1 << 26, 1)):
        tables = Tables(tmp_path, sorted_copy=sort)
        tables.ingest([path], split_bytes, buckets)
        assert difference(expected, tables.rows) == ""


def test_fragments_of_other_protocols_cost_nothing(sample_pcaps: Path, tmp_path: Path) -> None:
    """Half of a large UDP packet in every split."""
    frames = frames_of(sample_pcaps)
    datagram = capture_rewriting.ethernet(capture_rewriting.ipv4("10.9.9.9", "10.9.9.8", 17, bytes(1600)))
    for number, at in enumerate(range(50, len(frames), 100)):
        frames.insert(at, (frames[at][0], in_fragments(datagram, number, 800)[0]))
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(frames))
    assert_ranges_equal_the_file(path, tmp_path / "staging")


def test_a_split_is_read_once(sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashing does not read it again."""
    content = pcap(frames_of(sample_pcaps))
    body = content[24:]
    path = tmp_path / "a.pcap"
    path.write_bytes(content[:24] + body * (12_000_000 // len(body)))
    size, read = path.stat().st_size, 0

    class Counted:
        def __init__(self, file: Any) -> None:
            self._file = file

        def read(self, count: int) -> bytes:
            nonlocal read
            data: bytes = self._file.read(count)
            read += len(data)
            return data

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

    monkeypatch.setattr("rtmp_spark.ingest.scan.split_scan.open_file", lambda name: Counted(path.open("rb")))
    scanned(Split(0, str(path), 0, size, size), tmp_path / "staging")
    assert size <= read < 1.05 * size
    read = 0
    scanned(Split(1, str(path), size // 4, size * 3 // 4, size), tmp_path / "staging")
    searched = 2 << 20  # for the first record
    assert size // 2 <= read < 1.05 * size // 2 + searched + (1 << 20)  # and the rest of the last hashed block
