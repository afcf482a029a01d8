"""An ingest in rounds gives the tables of one round, and loses at most one round when it is killed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit import capture_rewriting
from kit.equal_tables import KEY, Tables, difference, sequential
from kit.in_process_ingest import ingest_in_process, lake_rows
from kit.wrapped_connections import over_tcp, said
from kit.wrapped_connections import write as written

from rtmp_spark.ingest import rounds
from rtmp_spark.ingest.captures.capture_paths import CaptureFile
from rtmp_spark.ingest.captures.probed_files import ProbedFile
from rtmp_spark.ingest.rounds import cut_into_rounds
from rtmp_spark.lake.ledger import Ledger
from rtmp_spark.lake.location import locate
from rtmp_spark.redact import KEY_VARIABLE

Packets = list[capture_rewriting.Packet]


@pytest.fixture(autouse=True)
def redaction_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def probed(name: str, size: int, head: int | None) -> ProbedFile:
    return ProbedFile(CaptureFile(name, size, 0), "pcap", False, head)


def names(found: Sequence[rounds.Round]) -> list[str]:
    return ["".join(probed.file.path for probed in part.files) for part in found]


def test_rounds_are_stretches_of_the_order_of_time() -> None:
    files = [probed("c", 40, 30), probed("a", 50, 10), probed("x", 0, None), probed("b", 50, 20)]
    found = cut_into_rounds(files, 100, 10)
    assert names(found) == ["ab", "cx"]
    assert [(part.bytes, part.splits, part.next_head_ns) for part in found] == [(100, 10, 30), (40, 4, None)]
    assert names(cut_into_rounds(files, 1, 10)) == ["a", "b", "c", "x"]


def test_files_that_begin_together_are_not_separated() -> None:
    files = [probed("a", 50, 10), probed("b", 50, 10), probed("c", 50, 11)]
    assert names(cut_into_rounds(files, 1, 10)) == ["ab", "c"]


def test_a_round_has_a_bounded_number_of_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "ROUND_SPLITS", 4)
    files = [probed(name, 20, at) for at, name in enumerate("abcd")]
    assert names(cut_into_rounds([*files, probed("e", 90, 9)], 1000, 10)) == ["ab", "cd", "e"]


def published(lake: Path) -> int:
    return Ledger(locate(lake)).read().newest.ingest_id


def assert_any_round_size(files: Sequence[Path], directory: Path, most: int, split_bytes: int = 20_000) -> None:
    expected = sequential(files)
    assert expected["messages"]
    for round_bytes, buckets in ((1, 3), (sum(f.stat().st_size for f in files) // 2, 1), (1 << 40, 2)):
        tables = Tables(directory, round_bytes=round_bytes)
        tables.ingest(random.Random(round_bytes).sample(files, len(files)), split_bytes, buckets)
        assert difference(expected, tables.rows) == "", round_bytes
        count = published(tables.lake)
        assert count == most if round_bytes == 1 else count == 1 if round_bytes == 1 << 40 else 1 < count <= most
        assert tables.resumed == 0 and tables.late == []


def test_any_round_size_gives_the_same_tables(sample_pcaps: Path, tmp_path: Path) -> None:
    files = [
        *sorted(sample_pcaps.glob("rotated_publish_*.pcap")),
        sample_pcaps / "gzip_ffmpeg_publish.pcap.gz",
        sample_pcaps / "republish_same_name.pcap",
    ]
    assert_any_round_size(files, tmp_path, len(files))


def talks(sample_pcaps: Path, seconds: int = 20) -> Packets:
    """Four connections that take so long; each begins when half of the one before is over."""
    speech = said(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap")
    found: Packets = []
    first = over_tcp(speech)
    begun_ns, slower = first[0].ts_ns, seconds * 1_000_000_000 // (first[-1].ts_ns - first[0].ts_ns)
    for number in range(4):
        spoken = over_tcp(speech, start_port=40000 + number)
        shift_ns = begun_ns + number * seconds * 500_000_000
        found += [replace(packet, ts_ns=shift_ns + (packet.ts_ns - begun_ns) * slower) for packet in spoken]
    return sorted(found, key=lambda packet: packet.ts_ns)


def by_direction(packets: Packets) -> Iterable[Packets]:
    """Two taps, each of which sees one direction of every connection; a file of each for every quarter."""
    quarter = len(packets) // 4
    for at in range(0, len(packets), quarter):
        for of_client in (True, False):
            yield [p for p in packets[at : at + quarter] if (p.sender[1] >= 40000) is of_client]


def overlapping(packets: Packets) -> Iterable[Packets]:
    """Every file repeats a third of the one before."""
    size = len(packets) // 4
    for at in range(0, len(packets), size):
        yield packets[max(at - size // 3, 0) : at + size]


def one_long_file(packets: Packets) -> Iterable[Packets]:
    """A file with every third packet of the whole time, and files of the others."""
    yield packets[::3]
    rest = [packet for at, packet in enumerate(packets) if at % 3]
    for at in range(0, len(rest), len(rest) // 3 + 1):
        yield rest[at : at + len(rest) // 3 + 1]


def clock_set_back(packets: Packets) -> Iterable[Packets]:
    """From the middle of the second file on, the clock is slow by a tenth of the whole time."""
    size, slow_ns = len(packets) // 3 + 1, (packets[-1].ts_ns - packets[0].ts_ns) // 10
    packets = [replace(p, ts_ns=p.ts_ns - slow_ns * (at > size * 3 // 2)) for at, p in enumerate(packets)]
    for at in range(0, len(packets), size):
        yield packets[at : at + size]


@pytest.mark.parametrize("seconds", [20, 2000])
@pytest.mark.parametrize("recorded", [by_direction, overlapping, one_long_file, clock_set_back])
def test_files_that_overlap(
    recorded: Callable[[Packets], Iterable[Packets]], seconds: int, sample_pcaps: Path, tmp_path: Path
) -> None:
    """By less than the time after which a second is final, and by more."""
    packets = talks(sample_pcaps, seconds)
    files = [written(tmp_path / f"{n}.pcap", part) for n, part in enumerate(recorded(packets))]
    assert_any_round_size(files, tmp_path, len(files), 4096 if recorded is clock_set_back else 20_000)


@pytest.mark.parametrize("recorded", [overlapping, clock_set_back])
def test_files_that_overlap_in_ingests_of_their_own(
    recorded: Callable[[Packets], Iterable[Packets]], sample_pcaps: Path, tmp_path: Path
) -> None:
    """By several seconds, of which the packets are saved with the open connections."""
    packets = talks(sample_pcaps)
    files = [written(tmp_path / f"{n}.pcap", part) for n, part in enumerate(recorded(packets))]
    tables = Tables(tmp_path)
    for file in files:
        tables.ingest([file], 4096)
    assert difference(sequential(files), tables.rows) == ""
    assert tables.late == []


def test_parts_of_closed_connections_are_named(sample_pcaps: Path, tmp_path: Path) -> None:
    """Their states were dropped a minute after they closed, so a file that begins before that cannot continue them."""
    packets = talks(sample_pcaps, 2000)
    tables = Tables(tmp_path)
    for number, part in enumerate((packets[:20] + packets[23:], packets[20:23])):
        tables.ingest([written(tmp_path / f"{number}.pcap", part)])
    assert len(tables.late) == 1 and "--redo" in tables.late[0]


def test_a_direction_whose_start_is_found_in_a_later_file(sample_pcaps: Path, tmp_path: Path) -> None:
    """Its bytes are decoded long after they were captured, and their seconds wait for them."""
    packets = capture_rewriting.read(sample_pcaps / "p1950_enhanced_hevc_aac_ffmpeg7_nms_play.pcap")
    begun_ns = packets[0].ts_ns
    slow = [replace(p, ts_ns=begun_ns + (p.ts_ns - begun_ns) * 300) for p in packets]
    files = [written(tmp_path / f"{n}.pcap", part) for n, part in enumerate(one_long_file(slow))]
    tables = Tables(tmp_path, round_bytes=1)
    tables.ingest(files, 10_000)
    assert difference(sequential(files), tables.rows) == ""


class Killed(Exception):
    pass


@pytest.mark.parametrize("place", ["between tables", "files written", "before messages", "before publish"])
def test_a_kill_loses_at_most_one_round(
    place: str, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next run continues: every capture is decoded once."""
    files = [written(tmp_path / f"{n}.pcap", part) for n, part in enumerate(by_direction(talks(sample_pcaps)))]
    lake, reached = tmp_path / "lake", 0

    def killed(point: str, *_: Any) -> None:
        nonlocal reached
        reached += point == place
        if reached == 3:
            raise Killed

    with monkeypatch.context() as patch:
        for module in ("rtmp_spark.ingest.pipeline", "rtmp_spark.lake.writer"):
            patch.setattr(f"{module}.failpoint", killed)
        with pytest.raises(Killed):
            ingest_in_process(lake, files, round_bytes=1)
    assert published(lake) == 2
    known = [row["path"] for row in lake_rows(lake, "captures")]
    assert sorted(known) == sorted(map(str, files[:2]))
    summary = ingest_in_process(lake, files, round_bytes=1)
    assert sorted(summary.known) == sorted(known) and len(summary.rounds) == len(files) - 2
    assert len(lake_rows(lake, "captures")) == len(files)
    tables = Tables(tmp_path)
    tables.lake = lake
    assert difference(sequential(files), tables.rows) == ""


def test_redo_is_one_publication(sample_pcaps: Path, tmp_path: Path) -> None:
    """In two, the first one would remove rows that the second one has not yet."""
    files = sorted(sample_pcaps.glob("rotated_publish_*.pcap"))
    tables = Tables(tmp_path, round_bytes=1)
    tables.ingest(files)
    assert published(tables.lake) == len(files)
    summary = ingest_in_process(tables.lake, files, round_bytes=1, redo=True)
    assert len(summary.rounds) == 1 and len(summary.ingested) == len(files)
    assert published(tables.lake) == len(files) + 1
    assert difference(sequential(files), tables.rows) == ""


def test_the_summary_counts_a_connection_once(sample_pcaps: Path, tmp_path: Path) -> None:
    files = sorted(sample_pcaps.glob("rotated_publish_*.pcap"))
    summary = ingest_in_process(tmp_path / "lake", files, round_bytes=1)
    assert (summary.connections, summary.resumed) == (len(lake_rows(tmp_path / "lake", "connections")), 0)
    assert [part.ingest_id for part in summary.rounds] == [1, 2, 3]
    assert [part.files for part in summary.planned] == [1, 1, 1]
