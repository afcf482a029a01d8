"""Ingest through Spark: the same tables whatever the way, nothing twice, nothing half."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import SparkSession
from rewrite import pcap

from rtmp_spark.capture.pcap import write
from rtmp_spark.capture.recording import ALL_TABLES, Recording
from rtmp_spark.cli import main
from rtmp_spark.codec.errors import UserError
from rtmp_spark.forensics.deliveries import Deliveries
from rtmp_spark.forensics.hindsight import judge_together
from rtmp_spark.schema import TABLES
from rtmp_spark.spark import Lake, Summary, failpoint, ingest, maintain, pulse, staging
from rtmp_spark.spark.decode import Options
from rtmp_spark.spark.lake import open_writer
from rtmp_spark.spark.maintain import optimize
from rtmp_spark.spark.progress import Progress

VOLATILE = {"ingested_at", "ingest_id", "path", "modified_at", "codec_version"}
SMALL = "ffmpeg_publish_g711mu_audio_only.pcap"
Rows = dict[str, list[str]]


def raw(lake: Path) -> Rows:
    """Every table as any Delta reader sees it."""
    found: Rows = {}
    for name in TABLES:
        table = deltalake.DeltaTable(str(lake / name)).to_pyarrow_table()
        keep = [c for c in table.column_names if c not in VOLATILE]
        found[name] = sorted(map(repr, table.select(keep).to_pylist())) if name != "open_flows" else []
    return found


def same(left: Rows, right: Rows) -> list[str]:
    return [f"{n}: {len(left[n])} and {len(right[n])} rows" for n in TABLES if left[n] != right[n]]


@pytest.fixture(scope="module")
def captures(sample_pcaps: Path) -> list[Path]:
    """Several of every kind: rotated, played, gzip, pcapng, with a gap, noise, cut, several connections."""
    names = [
        *sorted(p.name for p in sample_pcaps.glob("rotated_*_0?.pcap")),
        "ffmpeg_publish_bframes_rtmpdump_play.pcap",
        "lossy_mtu1500_server_side.pcap",
        "garbage_on_1935.pcap",
        "file_cut_mid_record.pcap",
        "republish_same_name.pcap",
        *(p.name for p in (*sample_pcaps.glob("gzip_*"), *sample_pcaps.glob("pcapng_*.pcapng"))),
    ]
    return [sample_pcaps / name for name in names if (sample_pcaps / name).exists()]


def run(spark: SparkSession, paths: Iterable[Path], lake: Path, **options: Any) -> Summary:
    return ingest(spark, map(str, paths), str(lake), **options)


@pytest.fixture(scope="module")
def all_at_once(spark: SparkSession, captures: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lakes") / "whole"
    summary = run(spark, captures, lake)
    assert len(summary.ingested) == len(captures) and not summary.failed
    return lake


def test_the_sequential_path_gives_the_same_rows(spark: SparkSession, captures: list[Path], all_at_once: Path) -> None:
    key = Lake(spark, str(all_at_once)).redact_key.hex()
    tables = (*ALL_TABLES, "deliveries")
    expected: dict[str, list[str]] = {name: [] for name in tables}
    settings = replace(Options(redact_key=key).settings(), hindsight=judge_together, deliveries=Deliveries)
    for table, batch in Recording(map(str, captures), settings, tables).batches():
        keep = [c for c in batch.schema.names if c not in VOLATILE]
        expected[table] += map(repr, batch.select(keep).to_pylist())
    got = raw(all_at_once)
    assert len(expected["deliveries"]) == 2  # of the two captures with a player
    for name in tables:
        assert sorted(expected[name]) == got[name], name


def test_split_size_order_and_staging(
    spark: SparkSession, captures: list[Path], all_at_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small splits, files in the other order, rows staged in Parquet as large inputs are."""
    monkeypatch.setattr(staging, "COLLECT_BYTES", 0)
    monkeypatch.setattr(staging, "SMALL_TABLE", 0)
    settings = spark.conf.getAll
    run(spark, reversed(captures), tmp_path / "lake", split_bytes=1 << 16)
    assert same(raw(all_at_once), raw(tmp_path / "lake")) == []
    assert not list((tmp_path / "lake" / "_staging").iterdir())
    assert spark.conf.getAll == settings


def test_a_lake_on_another_file_system(
    spark: SparkSession, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that only Java knows: guarded by a lease, made by SQL, and staged rows are gone from there too."""
    monkeypatch.setattr(staging, "COLLECT_BYTES", 0)
    monkeypatch.setattr(staging, "SMALL_TABLE", 0)
    spark.conf.set("fs.viewfs.mounttable.shelf.link./lakes", f"file://{tmp_path}")
    for lake in (tmp_path / "here", "viewfs://shelf/lakes/there"):
        assert ingest(spark, [str(sample_pcaps / SMALL)], str(lake)).rows["messages"] == 32
    assert same(raw(tmp_path / "here"), raw(tmp_path / "there")) == []
    assert (tmp_path / "there" / "_lease").exists()
    assert not [f for f in (tmp_path / "there" / "_staging").glob("*/*.parquet") if f.stat().st_size > 1000]


def test_one_by_one_with_others_between(
    spark: SparkSession, captures: list[Path], all_at_once: Path, tmp_path: Path
) -> None:
    rotated = [p for p in captures if p.name.startswith("rotated")]
    others = [p for p in captures if p not in rotated]
    lake = tmp_path / "lake"
    run(spark, rotated[:1], lake)
    run(spark, others[:3], lake)
    resumed = sum(run(spark, [p], lake).resumed for p in rotated[1:-1])
    resumed += run(spark, [rotated[-1], *others[3:]], lake).resumed
    assert resumed == len(rotated) - 1
    assert same(raw(all_at_once), raw(lake)) == []


def test_the_same_again_changes_nothing(
    spark: SparkSession, captures: list[Path], all_at_once: Path, tmp_path: Path
) -> None:
    before = raw(all_at_once)
    assert len(run(spark, captures, all_at_once).known) == len(captures)
    copy = tmp_path / "'; DROP TABLE \u200f\n.pcap"
    shutil.copy(captures[0], copy)
    assert run(spark, [copy], all_at_once).duplicates == [str(copy)]
    assert same(before, raw(all_at_once)) == []


def test_bad_files_among_good_ones(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.pcap").touch()
    (tmp_path / "letter.pcap").write_text("Dear reader, this is no capture.")
    shutil.copy(sample_pcaps / SMALL, tmp_path / "a[x].pcap")
    lake = tmp_path / "lake"
    summary = run(spark, [tmp_path], lake)
    assert len(summary.ingested) == 1 and len(summary.failed) == 2 and summary.exit_code == 4
    statuses = {Path(r["path"]).name: r["status"] for r in Lake(spark, str(lake)).captures.collect()}
    assert statuses == {"empty.pcap": "failed", "letter.pcap": "failed", "a[x].pcap": "ok"}
    again = run(spark, [tmp_path], lake)
    assert again.exit_code == 4 and Lake(spark, str(lake)).captures.count() == 3


def test_a_file_that_failed_has_one_row(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    """However often it is read, and whatever becomes of it."""
    path, lake = tmp_path / "a.pcap", tmp_path / "lake"
    frames = [(0, bytes(60))]
    for content, status in ((b"", "failed"), (b"Dear reader", "failed"), (pcap(frames, link_type=190), "failed"),
                            ((sample_pcaps / SMALL).read_bytes(), "ok")):  # fmt: skip
        path.write_bytes(content)
        for _ in range(2):
            assert run(spark, [path], lake, verify=True).exit_code == (4 if status == "failed" else 0)
            found = raw(lake)
            assert len(found["captures"]) == 1 and f"'status': '{status}'" in found["captures"][0]
            assert len(found["findings"]) == len(set(found["findings"]))
    run(spark, [path], tmp_path / "other")
    assert same(raw(tmp_path / "other"), found) == []


def test_a_capture_that_grew_replaces_what_was_there(
    spark: SparkSession, sample_pcaps: Path, captures: list[Path], tmp_path: Path
) -> None:
    """A recorder wrote on after its file was taken for closed, inside a connection that began in the file before."""
    first, second, third = (p.read_bytes() for p in captures if p.name.startswith("rotated"))
    paths = [tmp_path / f"{n}.pcap" for n in range(4)]
    lake = tmp_path / "lake"
    paths[0].write_bytes(first)
    paths[1].write_bytes(second[: len(second) // 2])
    paths[3].write_bytes((sample_pcaps / SMALL).read_bytes())
    assert run(spark, paths[:2] + paths[3:], lake).grown == []
    paths[1].write_bytes(second)
    paths[2].write_bytes(third[:-1000])
    grown = run(spark, paths[1:3], lake)
    assert grown.grown == [str(paths[1])] and not grown.late
    moved = tmp_path / "moved.pcap"  # known by what it holds, not by its name
    moved.write_bytes(third)
    assert run(spark, [moved], lake).grown == [str(moved)]
    run(spark, [*paths[:2], moved, paths[3]], tmp_path / "once")
    assert same(raw(tmp_path / "once"), raw(lake)) == []
    assert run(spark, [*paths[:2], moved, paths[3]], lake).ingest_id is None
    again = run(spark, [*paths, moved], lake)  # the shorter one is still there
    assert again.ingest_id is None and again.duplicates == [str(paths[2])]


def test_a_capture_that_grew_takes_no_rows_away(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    """Whoever asks for fewer rows than there are must say that they are to be replaced."""
    content = (sample_pcaps / SMALL).read_bytes()
    path, lake = tmp_path / "a.pcap", tmp_path / "lake"
    path.write_bytes(content[: len(content) // 2])
    run(spark, [path], lake, keep_payloads=True)
    before = raw(lake)
    path.write_bytes(content)
    for options in ({"port": 5, "keep_payloads": True}, {}):
        summary = run(spark, [path], lake, **options)
        assert summary.grown == [] and "would be lost" in summary.late[0]
        assert same(before, raw(lake)) == []
    assert run(spark, [path], lake, keep_payloads=True).grown == [str(path)]
    assert len(raw(lake)["payloads"]) > len(before["payloads"])


def test_what_is_to_be_replaced_must_be_there(spark: SparkSession, captures: list[Path], tmp_path: Path) -> None:
    """A name that was used again holds other packets: rows of the old ones must not go with it."""
    rotated = [p.read_bytes() for p in captures if p.name.startswith("rotated")]
    paths = [tmp_path / f"{n}.pcap" for n in range(3)]
    for path, content in zip(paths, rotated):
        path.write_bytes(content)
    run(spark, paths, tmp_path / "lake")
    before = raw(tmp_path / "lake")
    for content, again in ((rotated[1], paths[2:]), (rotated[1][:-100], paths[2:]), (rotated[1][:-100], paths)):
        paths[0].write_bytes(content)
        with pytest.raises(UserError, match=r"0\.pcap is needed to decode its connections again and is gone"):
            run(spark, again, tmp_path / "lake", redo=True)
    assert same(before, raw(tmp_path / "lake")) == []
    paths[0].unlink()
    with paths[2].open("ab") as file:
        file.write(rotated[2][24:])
    (said,) = run(spark, paths[2:], tmp_path / "lake").late
    assert "2.pcap has grown" in said and "0.pcap is needed" in said
    assert same(before, raw(tmp_path / "lake")) == []


def test_progress_is_told_while_it_runs(
    spark: SparkSession, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of both passes and messages come from the workers; nothing of it lies about afterwards."""
    monkeypatch.setattr(pulse, "BETWEEN_SECONDS", 0.01)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    told: list[Progress] = []
    path = sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap"
    run(spark, [path], tmp_path / "lake", progress=told.append, split_bytes=1 << 17)
    size = path.stat().st_size
    assert [p.phase for p in told if p.bytes_done is None] == ["scan", "decode", "write"]
    for phase in ("scan", "decode"):
        done = [p for p in told if p.phase == phase and p.bytes_done is not None]
        assert done and done == sorted(done, key=lambda p: p.bytes_done or 0) and done[-1].bytes == size
        assert all(0 < (p.bytes_done or 0) <= size and p.rate and p.left_seconds is not None for p in done)
    assert told[-1].messages == Lake(spark, str(tmp_path / "lake")).messages.count()
    assert [p.name for p in tmp_path.iterdir()] == ["lake"]


def test_a_dry_run_does_nothing(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    summary = run(spark, [sample_pcaps / SMALL], tmp_path / "lake", dry_run=True, split_bytes=1 << 14)
    assert summary.splits == 2 and not (tmp_path / "lake").exists()


def test_a_path_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no"):
        run(spark, [tmp_path / "nothing.pcap"], tmp_path / "lake")


def test_an_empty_directory_is_no_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    assert run(spark, [tmp_path / "captures"], tmp_path / "lake").files == 0


def test_payloads_only_when_asked(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run(spark, [sample_pcaps / SMALL], lake, keep_payloads=True, keep_secrets=True)
    row = spark.sql(
        "SELECT count(*) AS n, sum(if(crc32(payload) = payload_crc32, 0, 1)) AS bad "
        "FROM {p} JOIN {m} USING (uid, direction, msg_no)",
        p=Lake(spark, str(lake)).payloads,
        m=Lake(spark, str(lake)).messages,
    ).first()
    assert row is not None and row["n"] == Lake(spark, str(lake)).messages.count() > 0 and row["bad"] == 0


def test_optimize_changes_no_row(spark: SparkSession, all_at_once: Path) -> None:
    before = raw(all_at_once)
    assert "messages" in optimize(spark, str(all_at_once), vacuum=False)
    assert same(before, raw(all_at_once)) == []


def test_vacuum_keeps_what_the_newest_version_needs(
    spark: SparkSession, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain, "TABLES", {"messages": TABLES["messages"]})  # seconds for each
    lake = tmp_path / "lake"
    run(spark, [sample_pcaps / SMALL], lake)
    before = raw(lake)
    run(spark, [sample_pcaps / SMALL], lake, redo=True)
    files = set((lake / "messages").glob("*.parquet"))
    optimize(spark, str(lake), retention_hours=0)
    assert len(list((lake / "messages").glob("*.parquet"))) == 1 < len(files)
    assert same(before, raw(lake)) == []
    assert spark.conf.get("spark.databricks.delta.retentionDurationCheck.enabled", None) in (None, "true")


def test_only_a_lake_is_optimized(spark: SparkSession, tmp_path: Path) -> None:
    """A name with a slip of the pen would become a lake."""
    with pytest.raises(UserError, match="There is no lake"):
        optimize(spark, str(tmp_path / "lkae"))
    with pytest.raises(UserError, match="cannot be kept for -1 hours"):
        optimize(spark, str(tmp_path / "lkae"), retention_hours=-1)
    assert not list(tmp_path.iterdir())


def test_a_late_file_is_said(spark: SparkSession, captures: list[Path], tmp_path: Path) -> None:
    rotated = [p for p in captures if p.name.startswith("rotated")]
    lake = tmp_path / "lake"
    run(spark, rotated[1:], lake)
    late = run(spark, rotated[:1], lake).late
    assert len(late) == 1 and "--redo" in late[0]


# -- faults: the program is killed at named places, in its own process ---------------------------------------------

INGEST = "import sys; from rtmp_spark.cli import main; sys.exit(main(sys.argv[1:]))"


def killed(lake: Path, paths: Iterable[Path], place: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {failpoint.VARIABLE: place}
    arguments = ["ingest", *map(str, paths), "--lake", str(lake)]
    return subprocess.run([sys.executable, "-c", INGEST, *arguments], env=environment, text=True, capture_output=True)


@pytest.mark.slow
def test_killed_at_every_place(spark: SparkSession, captures: list[Path], all_at_once: Path, tmp_path: Path) -> None:
    """SIGKILL while planning, in a split, between tables, before and after the commit point; then it is run again."""
    dying = [p for p in captures if p.name.startswith("rotated")][1:]  # its rows replace those of the first file
    dying += [p for p in captures if "rtmpdump_play" in p.name]  # and rows in the tables of players
    lake = tmp_path / "lake"
    run(spark, [p for p in captures if p not in dying], lake)
    places = ("plan", "split", "between tables", "before commit", "after commit")
    for place in places:
        died = killed(lake, dying, place)
        assert died.returncode == -signal.SIGKILL, (place, died.stderr)
        landed = len(captures) if place == "after commit" else len(captures) - len(dying)
        assert Lake(spark, str(lake)).captures.count() == landed, place
    run(spark, captures, lake)
    assert same(raw(all_at_once), raw(lake)) == []


def test_a_file_and_a_connection_that_kill_workers(
    spark: SparkSession, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, poison = tmp_path / "good.pcap", tmp_path / "poison.pcap"
    shutil.copy(sample_pcaps / SMALL, good)
    shutil.copy(sample_pcaps / "republish_same_name.pcap", poison)

    def poisoned(place: str) -> Lake:
        """The Python workers have the failpoint in their environment, this process has not."""
        monkeypatch.setitem(spark.sparkContext.environment, failpoint.VARIABLE, f"{place} poison.pcap")
        assert main(["ingest", str(good), str(poison), "--lake", str(tmp_path / place)]) == 4
        return Lake(spark, str(tmp_path / place))

    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # the command ends the session that it uses

    rows = {Path(r["path"]).name: r["status"] for r in poisoned("scan").captures.collect()}
    assert rows == {"good.pcap": "ok", "poison.pcap": "failed"}
    lake = poisoned("decode")
    assert lake.connections.count() == 1 and lake.captures.count() == 2
    told = lake.findings.where("rule_id = 'CAPTURE_LIMIT'").collect()
    assert [r["count"] for r in told] == [2]  # one row for both connections of the poisoned file
    assert told[0]["detail"].count("decoding kills the worker (the Python worker died)") == 2


def test_the_lake_says_who_writes(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    with open_writer(spark, str(tmp_path / "lake")), pytest.raises(UserError, match="is writing to the lake"):
        run(spark, [sample_pcaps / SMALL], tmp_path / "lake", wait_seconds=0)


def test_many_small_files_share_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Files without TCP: each a row, none a connection."""
    for n in range(40):
        write(tmp_path / f"{n}.pcap", [(n * 10**9, bytes(60))])
    summary = run(spark, [tmp_path], tmp_path / "lake")
    assert len(summary.ingested) == 40 and summary.connections == 0
    assert Lake(spark, str(tmp_path / "lake")).captures.count() == 40


def test_the_summary_counts_the_rows_that_are_there(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    """Also those about a file, and those that only several connections together show."""
    names = ("file_cut_mid_record.pcap", "republish_same_name.pcap", "denied_and_unknown_app.pcap")
    lake, before = tmp_path / "lake", 0
    for name in names:
        summary = run(spark, [sample_pcaps / name], lake)
        found = Lake(spark, str(lake))
        assert summary.rows["findings"] == found.findings.count() - before
        before += summary.rows["findings"]
    assert {"CAPTURE_TRUNCATED"} <= {row.rule_id for row in found.findings.select("rule_id").collect()}


def test_a_late_file_is_mended_by_redo(
    spark: SparkSession, captures: list[Path], all_at_once: Path, tmp_path: Path
) -> None:
    rotated = [p for p in captures if p.name.startswith("rotated")]
    lake = tmp_path / "lake"
    run(spark, [p for p in captures if p != rotated[0]], lake)
    summary = run(spark, rotated[:1], lake, redo=True)
    assert same(raw(all_at_once), raw(lake)) == []
    assert sorted(summary.ingested) == sorted(map(str, rotated)), "what shares the connection is decoded again with it"
    assert sorted(summary.joined) == sorted(map(str, rotated[1:]))
    assert (summary.files, summary.bytes) == (len(rotated), sum(path.stat().st_size for path in rotated))
