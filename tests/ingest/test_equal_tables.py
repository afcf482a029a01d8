"""The pipeline without Spark gives the rows of the sequential analysis for any split size, number of buckets and
division of a recording into files and ingests."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from kit import capture_rewriting
from kit.equal_tables import KEY, Tables, difference, sequential
from kit.in_process_ingest import ingest_in_process, lake_rows, scanned
from kit.planted_secrets import GLUED, PLACES, connecting, publishing
from kit.planted_secrets import KEY as PLANTED
from kit.wrapped_connections import Said, Tunnel, in_tls, over_tcp, said
from kit.wrapped_connections import write as written

from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.files.pcap import write
from rtmp_spark.capture.files.pcapng_writer import PcapngWriter
from rtmp_spark.codec.errors import UserError
from rtmp_spark.conversation.decoding import directions
from rtmp_spark.ingest.captures.capture_paths import list_captures
from rtmp_spark.ingest.captures.probed_files import probe
from rtmp_spark.ingest.decode import tasks
from rtmp_spark.ingest.decode.connection_state import STATE_VERSION, header_of, state_of
from rtmp_spark.ingest.decode.tasks import spare_cores
from rtmp_spark.ingest.scan import plan
from rtmp_spark.ingest.scan.plan import assign_buckets, combine_scans, cut_into_splits
from rtmp_spark.ingest.scan.split_scan import Split
from rtmp_spark.lake.location import locate
from rtmp_spark.lake.parquet_files import write_rows
from rtmp_spark.lake.writer import open_writer
from rtmp_spark.redact import KEY_VARIABLE
from rtmp_spark.schema import arrow_schema


@pytest.fixture(autouse=True)
def redaction_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


CAPTURES = sorted(p.name for p in (Path(__file__).parents[2] / "sample_pcaps").iterdir() if ".pcap" in p.name)
SINGLE = [n for n in CAPTURES if "rotated" not in n]


@pytest.mark.slow
@pytest.mark.parametrize("name", SINGLE)
def test_split_sizes_and_buckets(name: str, sample_pcaps: Path, tmp_path: Path) -> None:
    expected = sequential([sample_pcaps / name])
    for split_bytes, buckets in ((1 << 16, 3), (200_000, 1)):
        tables = Tables(tmp_path)
        tables.ingest([sample_pcaps / name], split_bytes, buckets)
        assert difference(expected, tables.rows) == ""


def test_ranges_tell_of_wrong_checksums_as_the_whole_file_does(sample_pcaps: Path, tmp_path: Path) -> None:
    frames = capture_rewriting.build(capture_rewriting.read(sample_pcaps / "ffmpeg_publish_h264_aac.pcap"))
    for at in (100, 250, len(frames) - 1):
        ts_ns, frame = frames[at]
        frames[at] = ts_ns, frame[:24] + bytes([frame[24] ^ 1]) + frame[25:]
    path = tmp_path / "damaged.pcap"
    path.write_bytes(capture_rewriting.pcap(frames))
    (file,) = list_captures([str(path)])
    splits = cut_into_splits([probe(file)], 1 << 16)
    (cut_up,), _ = combine_scans([file], splits, {split.split_id: scanned(split, tmp_path).found for split in splits})
    assert len(cut_up.splits) > 2
    (problem,) = cut_up.about.problems
    assert (problem.code.value, problem.severity, problem.count, problem.frame) == (
        "CAPTURE_BAD_RECORD", "warning", 3, 101,
    )  # fmt: skip
    whole = Split(0, str(path), 0, 0, file.size_bytes, file.modified_ns)
    assert cut_up.about.problems == scanned(whole, tmp_path).found.facts.problems


def test_finished_connections_are_not_saved(sample_pcaps: Path, tmp_path: Path) -> None:
    """A closed connection owns late packets for a minute (TIME_WAIT), measured over all files, not over its bucket."""
    names = ("ffmpeg_publish_h264_aac.pcap", "publisher_killed_midstream.pcap", "republish_same_name.pcap")
    tables = Tables(tmp_path)
    tables.ingest([sample_pcaps / name for name in names], buckets=100)
    connections = tables.rows["connections"]
    last = max(row["ts_end"] for row in connections)
    may_go_on = {r["uid"] for r in connections if r["close_kind"] == "open" or (last - r["ts_end"]).seconds < 60}
    assert 0 < len(may_go_on) < len(connections)
    assert {row["uid"] for row in tables.rows["open_flows"]} == may_go_on


HOUR_NS = 3_600_000_000_000


def shifted(packets: list[capture_rewriting.Packet], by_ns: int) -> list[capture_rewriting.Packet]:
    return [replace(packet, ts_ns=packet.ts_ns + by_ns) for packet in packets]


def spoken(sample_pcaps: Path, port: int = 40000) -> list[capture_rewriting.Packet]:
    return over_tcp(said(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap"), start_port=port)


def test_saved_connections_are_dropped_when_no_packet_can_follow(sample_pcaps: Path, tmp_path: Path) -> None:
    """A closed connection after a minute, a SYN after four minutes, an abandoned one after a day; their rows stay."""
    closed, other = spoken(sample_pcaps), spoken(sample_pcaps, 50000)
    abandoned, syn = spoken(sample_pcaps, 41000)[:60], spoken(sample_pcaps, 42000)[:1]
    together = sorted([*closed, *abandoned, *syn], key=lambda p: p.ts_ns)
    files = [written(tmp_path / "0.pcap", together)]
    tables = Tables(tmp_path)
    tables.ingest(files)
    left = [len(tables.rows["open_flows"])]
    for hours in (0.05, 0.1, 20, 25):
        files.append(written(tmp_path / f"{hours}.pcap", shifted(other, int(hours * HOUR_NS))))
        tables.ingest(files[-1:])
        left.append(len(tables.rows["open_flows"]))
    assert left == [3, 3, 2, 2, 1]  # of the newest file always the one it holds
    assert difference(sequential(files), tables.rows) == ""


@pytest.mark.slow
@pytest.mark.parametrize("packets", [3, 40])
@pytest.mark.parametrize("pause", [0.06, 0.07, 23, 25])
def test_a_long_silence(pause: float, packets: int, sample_pcaps: Path, tmp_path: Path) -> None:
    """Same rows from one ingest, two, and with another in between that is so late that the connection may be over."""
    talk, other = spoken(sample_pcaps), spoken(sample_pcaps, 50000)
    late = shifted(talk[packets:], int(pause * HOUR_NS))
    files = [
        written(tmp_path / "0.pcap", talk[:packets]),
        written(tmp_path / "1.pcap", shifted(other, int(pause * HOUR_NS) - 30_000_000_000)),
        written(tmp_path / "2.pcap", late),
    ]
    expected = sequential(files)
    for ways in ([files], [files[:1], files[1:]], [[file] for file in files]):
        tables = Tables(tmp_path)
        for way in ways:
            tables.ingest(way)
        assert difference(expected, tables.rows) == ""
    goes_on = pause < 0.067 if packets == 3 else pause < 24
    assert [r["midstream"] for r in expected["connections"]].count(True) == (not goes_on)


def set_state(lake: Path, version: int, state: bytes) -> None:
    """Publish another version of the only row of `open_flows`."""
    (row,) = lake_rows(lake, "open_flows")
    row.update(state_version=version, state=state)
    with open_writer(locate(lake)) as writer:
        file = write_rows(writer.target, "open_flows", pa.Table.from_pylist([row], arrow_schema("open_flows")))
        writer.replace("open_flows", pc.scalar(True))
        writer.publish([file])


def test_states_of_other_versions(sample_pcaps: Path, tmp_path: Path) -> None:
    """A state of an older version is not resumed but dropped; a state of a newer version stops the ingest."""
    talk = spoken(sample_pcaps)
    files = [written(tmp_path / "0.pcap", talk[:40]), written(tmp_path / "1.pcap", talk[40:])]
    tables = Tables(tmp_path)
    tables.ingest(files[:1])
    (row,) = lake_rows(tables.lake, "open_flows")
    set_state(tables.lake, STATE_VERSION + 1, b"unknown")
    with pytest.raises(UserError, match=f"version {STATE_VERSION + 1}"):
        tables.ingest(files[1:])
    set_state(tables.lake, STATE_VERSION - 1, b"unknown")
    tables.ingest(files[1:])
    assert tables.resumed == 0 and row["uid"] in tables.late[0]
    rows = tables.rows
    assert [r["state_version"] for r in rows["open_flows"]] == [STATE_VERSION]
    assert len(rows["connections"]) == 2 and len({r["uid"] for r in rows["messages"]}) == 2


@pytest.mark.parametrize("at", [20, 28, 60])
def test_a_saved_connection_holds_no_secret(sample_pcaps: Path, tmp_path: Path, at: int) -> None:
    """A `publish` that is still unprocessed when the file ends is saved without its stream name, and used later."""
    packets = capture_rewriting.read(sample_pcaps / "ffmpeg_publish_querystring_metadata.pcap")
    files = [written(tmp_path / "0.pcap", packets[:at]), written(tmp_path / "1.pcap", packets[at:])]
    for keep in (False, True):
        tables = Tables(tmp_path, keep_secrets=keep)
        tables.ingest(files[:1])
        (row,) = tables.rows["open_flows"]
        state = json.dumps(state_of(row["state"]))
        assert "FCPublish" in state
        assert ("abc123" in state, "d41" in state) == (keep, keep)
        tables.ingest(files[1:])
        assert difference(sequential(files, keep_secrets=keep), tables.rows) == ""


@pytest.mark.parametrize("at", range(8, 30, 2))
def test_a_saved_connection_knows_its_secrets(tmp_path: Path, at: int) -> None:
    """A name that is saved as a hash is found in later texts, also without what belongs to it (mp4:NAME.mp4)."""
    said = connecting()
    publishing(said, f"mp4:{PLANTED}.mp4")
    for show in (*PLACES.values(), *GLUED.values()):
        show(said, PLANTED)
    files = cut_file(said.bye().write(tmp_path / "said.pcap"), tmp_path, [at])
    tables = Tables(tmp_path)
    for file in files:
        tables.ingest([file])
        assert PLANTED not in str(tables.rows)
        for row in tables.rows["open_flows"]:
            assert PLANTED not in json.dumps(state_of(row["state"]))
    assert difference(sequential(files), tables.rows) == ""


def cut_file(path: Path, directory: Path, places: Iterable[int]) -> list[Path]:
    """The packets of a capture in several files, cut after these packets."""
    packets = []
    with open_capture(path) as capture:
        for block in capture:
            assert len(set(block.link_type.tolist())) == 1
            link = int(block.link_type[0])
            packets += [(int(t), block.packet(i)) for i, t in enumerate(block.ts_ns)]
    ends = [0, *sorted(places), len(packets)]
    made = []
    for n, (start, end) in enumerate(itertools.pairwise(ends)):
        if end > start:
            made.append(directory / f"{n:04}.pcap")
            write(made[-1], packets[start:end], link, nanosecond=True)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in SINGLE if "snaplen" not in n])
def test_ingests_one_by_one(name: str, sample_pcaps: Path, tmp_path: Path) -> None:
    """Files cut anywhere and ingested in order of time give the tables of one ingest."""
    with open_capture(sample_pcaps / name) as capture:
        count = sum(len(block) for block in capture)
    chosen = random.Random(name).sample(range(1, count), min(6, count - 1))
    files = cut_file(sample_pcaps / name, tmp_path, chosen)
    expected = sequential(files)
    tables = Tables(tmp_path)
    for file in files:
        tables.ingest([file])
    assert difference(expected, tables.rows) == ""
    if expected["messages"]:
        assert tables.resumed > 0


@pytest.mark.parametrize("name", ["ffmpeg_publish_h264_aac.pcap", "midstream_publish_and_play.pcap"])
def test_connections_of_a_few_packets_continue(name: str, sample_pcaps: Path, tmp_path: Path) -> None:
    """They are saved as packets, with a payload (midstream) or without any."""
    files = cut_file(sample_pcaps / name, tmp_path, (1, 2, 3))
    tables = Tables(tmp_path)
    saved_as_packets = []
    for file in files:
        tables.ingest([file])
        saved_as_packets.append(any(header_of(row["state"]).brief for row in tables.rows["open_flows"]))
    assert saved_as_packets[0] and not saved_as_packets[-1]
    assert difference(sequential(files), tables.rows) == ""


def saved_states(tables: Tables) -> list[dict[str, Any]]:
    """Saved states without the numbers that order the facts of one packet and direction."""
    states = [state_of(row["state"]) for row in tables.rows["open_flows"]]
    for state in states:
        order = state["analysis"]["conversation"]["order"]
        order["notable"] = [[at, side, fact] for at, side, _, fact in order["notable"]]
        del order["sequence"]
    return states


def test_helper_processes_change_nothing(sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Helper processes change neither the rows nor the saved connections."""
    path = sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap"
    files = cut_file(path, tmp_path, (400, 700))
    here, helped = Tables(tmp_path), Tables(tmp_path)
    for file in files:
        here.ingest([file], split_bytes=10_000)
        with monkeypatch.context() as patch:
            patch.setattr(directions, "LONG_RUN_BYTES", 1)
            patch.setattr(plan, "HEAVY_BYTES", 0)
            patch.setattr(tasks, "spare_cores", lambda heavy: 2)
            helped.ingest([file], split_bytes=10_000)
        assert saved_states(helped) == saved_states(here)
    assert difference(here.rows, helped.rows) == ""
    assert difference(sequential(files), helped.rows) == ""


def test_a_bucket_that_others_would_wait_for() -> None:
    gigabyte = 1 << 30
    assert assign_buckets({1: gigabyte}, [], [], 2).heavy == {0}
    assert assign_buckets({1: gigabyte, 2: gigabyte}, [], [], 2).heavy == frozenset()
    assert len(assign_buckets({1: gigabyte, 2: gigabyte // 9, 3: gigabyte // 9}, [], [], 2).heavy) == 1
    assert assign_buckets({1: gigabyte // 9}, [], [], 2).heavy == frozenset()


def test_a_bucket_is_worth_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "LEAST_BUCKET_BYTES", 100)
    assert [assign_buckets(dict.fromkeys(range(n), 30), [], [], 4).count for n in (1, 3, 4, 7, 100)] == [1, 1, 2, 3, 4]


def test_no_more_processes_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert [spare_cores(heavy) for heavy in (1, 2, 3, 4, 5, 40)] == [2, 2, 1, 1, 0, 0]
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert [spare_cores(heavy) for heavy in (1, 2)] == [1, 0]
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert spare_cores(1) == 0


def test_redo_before_a_connection_has_rows(sample_pcaps: Path, tmp_path: Path) -> None:
    """Its first packets are in other files, which are decoded again with the one that is named."""
    files = cut_file(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap", tmp_path, [1, 2])
    tables = Tables(tmp_path)
    for file in files[:2]:
        tables.ingest([file])
    assert not tables.rows["connections"] and len(tables.rows["open_flows"]) == 1
    assert ingest_in_process(tables.lake, files[1:2], redo=True).joined == [str(files[0])]
    tables.ingest(files[2:])
    assert difference(sequential(files), tables.rows) == ""


def test_rotated_files_in_any_order(sample_pcaps: Path, tmp_path: Path) -> None:
    files = sorted(sample_pcaps.glob("rotated_*_0?.pcap"))
    if len(files) < 2:
        pytest.skip("no rotated capture among the samples")
    expected = sequential(files)
    together, apart = Tables(tmp_path), Tables(tmp_path)
    together.ingest(reversed(files), 100_000, 2)
    assert difference(expected, together.rows) == ""
    for file in files:
        apart.ingest([file], 100_000, 2)
    assert difference(expected, apart.rows) == ""
    assert apart.resumed == len(files) - 1


def overlapping(sample: Path, directory: Path, shared: int) -> list[Path]:
    """Two files of which the second begins with the last `shared` packets of the first."""
    with open_capture(sample) as capture:
        half = sum(len(block) for block in capture) // 2
    _, rest = cut_file(sample, directory / "rest", [half])
    longer, _ = cut_file(sample, directory / "longer", [half + shared])
    return [longer, rest]


@pytest.mark.parametrize("name", ["lossy_mtu1500_server_side.pcap", "ffmpeg_publish_bframes_rtmpdump_play.pcap"])
def test_overlapping_files(name: str, sample_pcaps: Path, tmp_path: Path) -> None:
    (tmp_path / "rest").mkdir()
    (tmp_path / "longer").mkdir()
    files = overlapping(sample_pcaps / name, tmp_path, 200)
    expected = sequential(files)
    alone = sequential([sample_pcaps / name])
    assert [r["retransmitted_bytes_c2s"] for r in expected["connections"]] == [
        r["retransmitted_bytes_c2s"] for r in alone["connections"]
    ]
    assert any(r["rule_id"] == "CAPTURE_DUPLICATES" and r["count"] > 50 for r in expected["findings"])
    for split_bytes, buckets in ((1 << 16, 3), (1 << 26, 1)):
        tables = Tables(tmp_path)
        tables.ingest(reversed(files), split_bytes, buckets)
        assert difference(expected, tables.rows) == ""


def test_overlapping_files_ingested_one_by_one(sample_pcaps: Path, tmp_path: Path) -> None:
    """Files that overlap by less than a second continue the connection, and the copies are recognised."""
    (tmp_path / "rest").mkdir()
    (tmp_path / "longer").mkdir()
    files = overlapping(sample_pcaps / "lossy_mtu1500_server_side.pcap", tmp_path, 60)
    expected = sequential(files)
    assert any(r["rule_id"] == "CAPTURE_DUPLICATES" and r["count"] > 20 for r in expected["findings"])
    tables = Tables(tmp_path)
    for file in files:
        tables.ingest([file])
    assert tables.late == []
    assert difference(expected, tables.rows) == ""


def test_a_tunnel_over_several_connections(sample_pcaps: Path, tmp_path: Path) -> None:
    """One RTMPT session on five TCP connections, which hash to five groups, and another session."""
    spoken = said(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap")
    packets = Tunnel(spoken, connections=5).close() + Tunnel(spoken, session_id="OTHER", start_port=60000).close()
    path = tmp_path / "tunnel.pcap"
    path.write_bytes(capture_rewriting.pcap(capture_rewriting.build(sorted(packets, key=lambda p: p.ts_ns))))
    expected = sequential([path])
    assert len(expected["connections"]) == 6 and len({row["uid"] for row in expected["messages"]}) == 2
    for split_bytes, buckets in ((1 << 13, 4), (1 << 20, 2)):
        tables = Tables(tmp_path)
        tables.ingest([path], split_bytes, buckets)
        assert difference(expected, tables.rows) == ""


def test_a_tunnel_goes_on_in_the_next_ingest(sample_pcaps: Path, tmp_path: Path) -> None:
    spoken = said(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap")
    packets = Tunnel(spoken, connections=3).close()
    for place in (30, 60, 82):
        assert_cut_changes_nothing(packets, place, tmp_path)


def assert_cut_changes_nothing(packets: list[capture_rewriting.Packet], place: int, directory: Path) -> None:
    """Ingest the packets as two files, one after the other, and compare."""
    files = [directory / f"{place}_{number}.pcap" for number in range(2)]
    for file, part in zip(files, (packets[:place], packets[place:])):
        file.write_bytes(capture_rewriting.pcap(capture_rewriting.build(part)))
    tables = Tables(directory)
    for file in files:
        tables.ingest([file], buckets=2)
    assert difference(sequential(files), tables.rows) == ""


class QuietHome(Tunnel):
    """The connection on which the session began sends nothing more; another one continues the session."""

    def round(self, up: bytes, down: bytes, status: str = "200 OK") -> None:
        path = f"/{'send' if up else 'idle'}/{self.session_id}/{self.number}"
        self._exchange(int(self.number > 1), path, up or b"\0", down, status=status)
        self.number += 1

    def close(self) -> list[capture_rewriting.Packet]:
        self._exchange(1, f"/close/{self.session_id}/{self.number}", b"\0", b"")
        self._on(1, lambda talk: talk.close(0))
        return self.order


class ClosedHome(QuietHome):
    """The connection on which the session began has been closed for longer than late packets can arrive."""

    def round(self, up: bytes, down: bytes, status: str = "200 OK") -> None:
        if self.number == 3:
            self._on(0, lambda talk: talk.close(0))
            self.clock += 100_000_000_000
        super().round(up, down, status)


@pytest.mark.parametrize("kind", [QuietHome, ClosedHome])
def test_a_tunnel_goes_on_without_its_first_connection(kind: type[Tunnel], sample_pcaps: Path, tmp_path: Path) -> None:
    packets = kind(said(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap"), connections=2).close()
    for place in (40, 60):
        assert_cut_changes_nothing(packets, place, tmp_path)


def test_a_tunnel_inside_tls_over_several_connections(sample_pcaps: Path, tmp_path: Path) -> None:
    tunnel = Tunnel(said(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap"), connections=3)
    tunnel.close()
    packets: list[capture_rewriting.Packet] = []
    secrets = b""
    for port, talk in enumerate(tunnel.talks, 50000):
        client = talk.packets[0].sender
        given: Said = [(int(p.sender != client), p.payload) for p in talk.packets if p.payload]
        flights, keylog = in_tls(tmp_path, given)
        packets += over_tcp(flights, port=443, start_port=port)
        secrets += keylog
    path = tmp_path / "tunnel.pcap"
    path.write_bytes(capture_rewriting.pcap(capture_rewriting.build(sorted(packets, key=lambda p: p.ts_ns))))
    expected = sequential([path], keylog=secrets)
    assert len(expected["connections"]) == 3 and len({row["uid"] for row in expected["messages"]}) == 1
    tables = Tables(tmp_path, keylog=secrets)
    tables.ingest([path], buckets=4)
    assert difference(expected, tables.rows) == ""
    files = cut_file(path, tmp_path, [24])  # between the hellos and the first request
    expected, tables = sequential(files, keylog=secrets), Tables(tmp_path, keylog=secrets)
    for file in files:
        tables.ingest([file], buckets=4)
    assert expected["messages"] and difference(expected, tables.rows) == ""


def test_secrets_at_the_head_of_another_file(sample_pcaps: Path, tmp_path: Path) -> None:
    """All buckets use the secrets, not only those that read that file."""
    with open_capture(sample_pcaps / "rtmps_tls13_secrets_inside.pcapng") as capture:
        encrypted = list(capture)
    paths = [tmp_path / "secrets.pcapng", tmp_path / "encrypted.pcapng"]
    others = (open_capture(sample_pcaps / "ffmpeg_publish_h264_aac.pcap"), encrypted)
    for path, blocks in zip(paths, others):
        with path.open("wb") as file:
            writer = PcapngWriter(file, "test")
            if path is paths[0]:
                for kind, secrets in capture.decryption_secrets:
                    writer.write_secrets(kind, secrets)
            for block in blocks:
                for i in range(len(block)):
                    data = block.packet(i)
                    writer.write(int(block.ts_ns[i]), data, len(data), int(block.link_type[i]))
    expected = sequential(paths)
    assert len(expected["connections"]) == 2
    for buckets in (1, 2, 8):
        tables = Tables(tmp_path)
        tables.ingest(paths, buckets=buckets)
        assert difference(expected, tables.rows) == ""


def test_saved_connections_of_two_sensors_are_two(sample_pcaps: Path, tmp_path: Path) -> None:
    """A handshake alone gives no rows, so only endpoints and sensor identify the connection."""
    (begun, _) = cut_file(sample_pcaps / "ffmpeg_publish_h264_aac.pcap", tmp_path, [3])
    uids = set()
    for sensor in ("a", "b"):
        tables = Tables(tmp_path, sensor=sensor)
        tables.ingest([begun])
        uids.update(row["uid"] for row in tables.rows["open_flows"])
    assert len(uids) == 2


def test_a_worker_does_not_load_pandas(sample_pcaps: Path, tmp_path: Path) -> None:
    """pyarrow would load it, for a third of a second, where lists become arrays and numbers scalars."""
    code = """
import sys
import pyarrow as pa
from rtmp_spark.ingest.decode import decode_job, tasks
from rtmp_spark.ingest.decode.decode_plan import dump_plans
from rtmp_spark.ingest.scan import plan
from rtmp_spark.ingest.captures.capture_paths import list_captures
from rtmp_spark.ingest.captures.probed_files import probe
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.lake.location import locate

files = list_captures(sys.argv[2:])
splits = plan.cut_into_splits(map(probe, files), 1 << 20)
lake = locate(sys.argv[1])
staging = lake.inside("_staging")
batch = tasks.scan_splits(decode_job.ScanJob(staging, sort=False), splits, 0)
found = tasks.collect_scans([pa.Table.from_batches([batch])])
scans, _ = plan.combine_scans(files, splits, found.splits)
plan.number_captures(scans, (), 0)
staging.write(decode_job.PLANS, dump_plans(plan.split_plans(scans)))
rows = [{**row, "state": None} for row in found.sections.to_pylist()]
job = decode_job.DecodeJob(lake, staging, 1, IngestOptions(), ("messages", "connections"), 0)
print(tasks.decode_bucket(job, 0, rows, 0).rows["messages"], "pandas" in sys.modules)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "lake"), str(sample_pcaps / "capture_gap_full.pcap")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    count, loaded = done.stdout.split()
    assert (int(count) > 0, loaded) == (True, "False")
