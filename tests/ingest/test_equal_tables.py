"""The two passes without Spark: any split size, number of buckets and way of cutting a recording into files and
ingests gives the rows of the sequential path."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
import rewrite
from wrappings import Said, Tunnel, in_tls, over_tcp, said
from wrappings import write as written

from rtmp_spark.capture import conversation
from rtmp_spark.capture.beside import Helpers
from rtmp_spark.capture.facts import Notable
from rtmp_spark.capture.files import open_capture
from rtmp_spark.capture.pcap import write
from rtmp_spark.capture.pcapng_writer import PcapngWriter
from rtmp_spark.capture.recording import Recording
from rtmp_spark.codec.errors import UserError
from rtmp_spark.schema import MESSAGE_TABLES
from rtmp_spark.spark.apart import apart, at_home, of_parts
from rtmp_spark.spark.decode import Options, Piece, account_of, decode, rows_of
from rtmp_spark.spark.flow_state import _FACTS, STATE_VERSION, state_of
from rtmp_spark.spark.ledger import Superseded
from rtmp_spark.spark.passes import bound, reason, spare_cores, weights
from rtmp_spark.spark.paths import CaptureFile, list_captures
from rtmp_spark.spark.pipeline import DECODED, with_secrets
from rtmp_spark.spark.plan import Scanned, assign, cut, judge, number, split_plans
from rtmp_spark.spark.resumed import resumed
from rtmp_spark.spark.scan import FlowIndex, Split, as_problem, scan

OPTIONS = Options(redact_key="00" * 32)
COMPARED = tuple(t for t in DECODED if t not in ("open_flows", "streams"))  # attempts are numbered later
Rows = dict[str, list[dict[str, Any]]]


def sequential(paths: Iterable[Path], options: Options = OPTIONS) -> Rows:
    found: Rows = {name: [] for name in COMPARED}
    for table, batch in Recording(map(str, paths), options.settings()).batches():
        if table in found:
            found[table] += [row for row in batch.to_pylist() if row.get("uid") is not None]
    return found


class Tables:
    """A lake of lists."""

    def __init__(self, options: Options = OPTIONS, helpers: Helpers | None = None) -> None:
        self.options = options
        self.helpers = helpers
        self.rows: Rows = {name: [] for name in DECODED}
        self.files = 0
        self.resumed = 0
        self.outdated: list[str] = []

    def ingest(self, paths: Iterable[Path], split_bytes: int = 1 << 26, buckets: int = 1) -> None:
        files = list_captures(map(str, paths))
        scanned, index = first_pass(files, split_bytes)
        number(scanned, (), self.files)
        self.files += len(files)
        made: Rows = {name: [] for name in DECODED}
        plans = split_plans(scanned)
        ours = [(split_id, *part) for split_id, parts in index.items() if split_id in plans for part in parts]
        names, kinds = ("split_id", "group", "flows", "packets"), (pa.int64(), pa.int32(), pa.binary(), pa.binary())
        columns = zip(*ours) if ours else ((),) * len(names)
        table = pa.table([pa.array(c, kind) for c, kind in zip(columns, kinds)], names)
        saved = [(r["uid"], r["state_version"], r["state"]) for r in self.rows["open_flows"]]
        newest_ns = max(s.about.ts_tail_ns or 0 for s in scanned)
        options, with_tls = with_secrets(self.options, scanned)
        going_on = resumed(saved, table, with_tls, newest_ns)
        superseded = going_on.superseded
        self.outdated += going_on.outdated
        self.resumed += sum(header.has_rows for header in going_on.headers)
        going_on_in = going_on.states
        if not going_on.tunnels:
            table = apart(table, {split_id: plan.file.number for split_id, plan in plans.items()})
            going_on_in = at_home(going_on_in, table)
        assigned = assign(weights(table), bound(going_on.tunnels), [], of_parts(table), buckets)
        for bucket in range(assigned.count):
            found: dict[int, Piece] = {}
            for row in table.to_pylist():
                if assigned.of_group[row["group"]] == bucket:
                    piece = found.setdefault(row["split_id"], Piece(plans[row["split_id"]]))
                    piece.groups.append(row["group"])
                    piece.indexes += [row["packets"]] if row["packets"] is not None else []
            pieces = list(found.values())
            states = [packed for g, own in going_on_in.items() if assigned.of_group[g] == bucket for packed in own]
            plans_of = list({p.split.file for p in pieces})
            for blobs, account in decode(pieces, plans_of, options, DECODED, states, newest_ns, helpers=self.helpers):
                for name, blob in blobs.items():
                    made[name] += rows_of(blob).to_pylist()
                if account is not None:
                    assert account_of(account)["rows"].keys() <= set(DECODED)
        for name, rows in self.rows.items():
            rows[:] = [r for r in rows if not any(is_replaced(name, r, s) for s in superseded)] + made[name]


def is_replaced(table: str, row: dict[str, Any], entry: Superseded) -> bool:
    if table not in entry.tables or row["uid"] != entry.uid:
        return False
    if table in MESSAGE_TABLES:
        return bool(row["msg_no"] >= entry.first_message(table)[row["direction"] == "s2c"])
    return table != "intervals" or row["ts_second"].timestamp() >= entry.second


def first_pass(
    files: list[CaptureFile], split_bytes: int
) -> tuple[list[Scanned], dict[int, list[tuple[int, bytes, bytes | None]]]]:
    splits = cut(files, split_bytes)
    index: dict[int, list[tuple[int, bytes, bytes | None]]] = {}

    def scan_all(chosen: list[Split]) -> Any:
        abouts = {}
        for split in chosen:
            about, flows = scan(split)
            assert isinstance(flows, FlowIndex)
            abouts[split.split_id] = about
            index[split.split_id] = list(flows.rows())
        return abouts

    scanned, again = judge(files, splits, scan_all(splits))
    for split in splits:
        if split.path in {f.path for f in again}:
            del index[split.split_id]
    whole = [Split(len(splits) + n, f.path, 0, 0, f.size_bytes) for n, f in enumerate(again)]
    return scanned + judge(again, whole, scan_all(whole))[0], index


def difference(expected: Rows, got: Rows) -> str:
    for name in COMPARED:
        left, right = (sorted(map(repr, rows[name])) for rows in (expected, got))
        if left != right:
            return f"{name}: {len(left)} rows expected, {len(right)} found; {_lone(expected[name], got[name])}"
    return ""


def _lone(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> str:
    """The first row that has no equal, and how it differs from the one in its place."""
    only = [next((r for r in a if r not in b), {}) for a, b in ((left, right), (right, left))]
    differing = {k: (only[0].get(k), only[1].get(k)) for k in only[0] or only[1] if only[0].get(k) != only[1].get(k)}
    return f"{differing} of {only[0]}"


CAPTURES = sorted(p.name for p in (Path(__file__).parents[2] / "sample_pcaps").iterdir() if ".pcap" in p.name)
SINGLE = [n for n in CAPTURES if "rotated" not in n]


@pytest.mark.slow
@pytest.mark.parametrize("name", SINGLE)
def test_split_sizes_and_buckets(name: str, sample_pcaps: Path) -> None:
    expected = sequential([sample_pcaps / name])
    for split_bytes, buckets in ((1 << 16, 3), (200_000, 1)):
        tables = Tables()
        tables.ingest([sample_pcaps / name], split_bytes, buckets)
        assert difference(expected, tables.rows) == ""


def test_ranges_tell_of_wrong_checksums_as_the_whole_file_does(sample_pcaps: Path, tmp_path: Path) -> None:
    frames = rewrite.build(rewrite.read(sample_pcaps / "ffmpeg_publish_h264_aac.pcap"))
    for at in (100, 250, len(frames) - 1):
        ts_ns, frame = frames[at]
        frames[at] = ts_ns, frame[:24] + bytes([frame[24] ^ 1]) + frame[25:]
    path = tmp_path / "damaged.pcap"
    path.write_bytes(rewrite.pcap(frames))
    (file,) = list_captures([str(path)])
    (cut_up,), _ = first_pass([file], 1 << 16)
    assert len(cut_up.splits) > 2
    (problem,) = (as_problem(values) for values in cut_up.about.problems)
    assert (problem.code.value, problem.severity, problem.count, problem.frame) == (
        "CAPTURE_BAD_RECORD", "warning", 3, 101,
    )  # fmt: skip
    assert cut_up.about.problems == scan(Split(0, str(path), 0, 0, file.size_bytes))[0].problems


def test_what_is_over_for_good_is_no_open_flow(sample_pcaps: Path) -> None:
    """However few packets its bucket has seen: a closed connection owns late packets for a minute (TIME_WAIT)."""
    names = ("ffmpeg_publish_h264_aac.pcap", "publisher_killed_midstream.pcap", "republish_same_name.pcap")
    tables = Tables()
    tables.ingest([sample_pcaps / name for name in names], buckets=100)
    connections = tables.rows["connections"]
    last = max(row["ts_end"] for row in connections)
    may_go_on = {r["uid"] for r in connections if r["close_kind"] == "open" or (last - r["ts_end"]).seconds < 60}
    assert 0 < len(may_go_on) < len(connections)
    assert {row["uid"] for row in tables.rows["open_flows"]} == may_go_on


HOUR_NS = 3_600_000_000_000


def shifted(packets: list[rewrite.Packet], by_ns: int) -> list[rewrite.Packet]:
    return [replace(packet, ts_ns=packet.ts_ns + by_ns) for packet in packets]


def spoken(sample_pcaps: Path, port: int = 40000) -> list[rewrite.Packet]:
    return over_tcp(said(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap"), start_port=port)


def test_what_nothing_can_follow_any_more_is_let_go(sample_pcaps: Path, tmp_path: Path) -> None:
    """A closed connection after a minute, a SYN after four, an abandoned one after a day; their rows stay."""
    closed, other = spoken(sample_pcaps), spoken(sample_pcaps, 50000)
    abandoned, syn = spoken(sample_pcaps, 41000)[:60], spoken(sample_pcaps, 42000)[:1]
    together = sorted([*closed, *abandoned, *syn], key=lambda p: p.ts_ns)
    files = [written(tmp_path / "0.pcap", together)]
    tables = Tables()
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
    """In one ingest, in two, and with another one in between by whose time the connection may be over."""
    talk, other = spoken(sample_pcaps), spoken(sample_pcaps, 50000)
    late = shifted(talk[packets:], int(pause * HOUR_NS))
    files = [
        written(tmp_path / "0.pcap", talk[:packets]),
        written(tmp_path / "1.pcap", shifted(other, int(pause * HOUR_NS) - 30_000_000_000)),
        written(tmp_path / "2.pcap", late),
    ]
    expected = sequential(files)
    for ways in ([files], [files[:1], files[1:]], [[file] for file in files]):
        tables = Tables()
        for way in ways:
            tables.ingest(way)
        assert difference(expected, tables.rows) == ""
    goes_on = pause < 0.067 if packets == 3 else pause < 24
    assert [r["midstream"] for r in expected["connections"]].count(True) == (not goes_on)


def test_states_of_other_versions(sample_pcaps: Path, tmp_path: Path) -> None:
    """What an older version saved is not resumed but let go; what a newer one saved stops the ingest."""
    talk = spoken(sample_pcaps)
    files = [written(tmp_path / "0.pcap", talk[:40]), written(tmp_path / "1.pcap", talk[40:])]
    tables = Tables()
    tables.ingest(files[:1])
    (row,) = tables.rows["open_flows"]
    row["state_version"], row["state"] = STATE_VERSION + 1, b"who knows"
    with pytest.raises(UserError, match=f"of version {STATE_VERSION + 1}; this one knows {STATE_VERSION}"):
        tables.ingest(files[1:])
    row["state_version"] = STATE_VERSION - 1
    tables.ingest(files[1:])
    assert tables.resumed == 0 and tables.outdated == [row["uid"]]
    assert [r["state_version"] for r in tables.rows["open_flows"]] == [STATE_VERSION]
    assert len(tables.rows["connections"]) == 2 and len({r["uid"] for r in tables.rows["messages"]}) == 2


@pytest.mark.parametrize("at", [20, 28, 60])
def test_a_saved_connection_holds_no_secret(sample_pcaps: Path, tmp_path: Path, at: int) -> None:
    """Whatever was said and not looked at yet when the file ended: `publish` is, and later files know what it was."""
    packets = rewrite.read(sample_pcaps / "ffmpeg_publish_querystring_metadata.pcap")
    files = [written(tmp_path / "0.pcap", packets[:at]), written(tmp_path / "1.pcap", packets[at:])]
    for keep, options in ((False, OPTIONS), (True, replace(OPTIONS, redact_key=None))):
        tables = Tables(options)
        tables.ingest(files[:1])
        (row,) = tables.rows["open_flows"]
        state = json.dumps(state_of(row["state"]))
        assert "FCPublish" in state
        assert ("abc123" in state, "d41" in state) == (keep, keep)
        tables.ingest(files[1:])
        assert difference(sequential(files, options), tables.rows) == ""


def test_every_fact_survives() -> None:
    assert set(_FACTS.values()) == set(get_args(Notable))


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
    """Cut anywhere, ingested in the order of time: the tables of one ingest of all."""
    with open_capture(sample_pcaps / name) as capture:
        count = sum(len(block) for block in capture)
    chosen = random.Random(name).sample(range(1, count), min(6, count - 1))
    files = cut_file(sample_pcaps / name, tmp_path, chosen)
    expected = sequential(files)
    tables = Tables()
    for file in files:
        tables.ingest([file])
    assert difference(expected, tables.rows) == ""
    if expected["messages"]:
        assert tables.resumed > 0


def saved_states(tables: Tables) -> list[dict[str, Any]]:
    """Without the numbers that only keep the order of what one packet of one direction told."""
    states = [state_of(row["state"]) for row in tables.rows["open_flows"]]
    for state in states:
        state["conversation"]["notable"] = [[at, side, fact] for at, side, _, fact in state["conversation"]["notable"]]
    return states


def test_decoded_beside(sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process changes nothing, not even what is saved for the next ingest."""
    monkeypatch.setattr(conversation, "LONG_RUN", 1)
    path = sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap"
    files = cut_file(path, tmp_path, (400, 700))
    with closing(Helpers(2)) as helpers:
        here, beside = Tables(), Tables(helpers=helpers)
        for file in files:
            for tables in (here, beside):
                tables.ingest([file], split_bytes=10_000)
            assert saved_states(beside) == saved_states(here)
        assert difference(here.rows, beside.rows) == ""
        assert helpers._all
    assert difference(sequential(files), beside.rows) == ""


def test_a_bucket_that_others_would_wait_for() -> None:
    gigabyte = 1 << 30
    assert assign({1: gigabyte}, [], [], [], 2).heavy == {0}
    assert assign({1: gigabyte, 2: gigabyte}, [], [], [], 2).heavy == frozenset()
    assert len(assign({1: gigabyte, 2: gigabyte // 9, 3: gigabyte // 9}, [], [], [], 2).heavy) == 1
    assert assign({1: gigabyte // 9}, [], [], [], 2).heavy == frozenset()


def test_no_more_processes_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert [spare_cores(heavy) for heavy in (1, 2, 3, 4, 5, 40)] == [2, 2, 1, 1, 0, 0]
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert [spare_cores(heavy) for heavy in (1, 2)] == [1, 0]
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert spare_cores(1) == 0


def test_rotated_files_in_any_order(sample_pcaps: Path) -> None:
    files = sorted(sample_pcaps.glob("rotated_*_0?.pcap"))
    if len(files) < 2:
        pytest.skip("no rotated capture among the samples")
    expected = sequential(files)
    together, apart = Tables(), Tables()
    together.ingest(reversed(files), 100_000, 2)
    assert difference(expected, together.rows) == ""
    for file in files:
        apart.ingest([file], 100_000, 2)
    assert difference(expected, apart.rows) == ""
    assert apart.resumed == len(files) - 1


def test_a_tunnel_over_several_connections(sample_pcaps: Path, tmp_path: Path) -> None:
    """One RTMPT session on five TCP connections, which hash to as many groups, beside another session."""
    spoken = said(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap")
    packets = Tunnel(spoken, connections=5).close() + Tunnel(spoken, session_id="OTHER", start_port=60000).close()
    path = tmp_path / "tunnel.pcap"
    path.write_bytes(rewrite.pcap(rewrite.build(sorted(packets, key=lambda p: p.ts_ns))))
    expected = sequential([path])
    assert len(expected["connections"]) == 6 and len({row["uid"] for row in expected["messages"]}) == 2
    for split_bytes, buckets in ((1 << 13, 4), (1 << 20, 2)):
        tables = Tables()
        tables.ingest([path], split_bytes, buckets)
        assert difference(expected, tables.rows) == ""


def test_a_tunnel_goes_on_in_the_next_ingest(sample_pcaps: Path, tmp_path: Path) -> None:
    spoken = said(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap")
    packets = Tunnel(spoken, connections=3).close()
    for place in (30, 60, 82):
        assert_cut_changes_nothing(packets, place, tmp_path)


def assert_cut_changes_nothing(packets: list[rewrite.Packet], place: int, directory: Path) -> None:
    """The packets in two files, ingested one after the other."""
    files = [directory / f"{place}_{number}.pcap" for number in range(2)]
    for file, part in zip(files, (packets[:place], packets[place:])):
        file.write_bytes(rewrite.pcap(rewrite.build(part)))
    tables = Tables()
    for file in files:
        tables.ingest([file], buckets=2)
    assert difference(sequential(files), tables.rows) == ""


class QuietHome(Tunnel):
    """The connection on which the session began says nothing any more; another one carries it."""

    def round(self, up: bytes, down: bytes, status: str = "200 OK") -> None:
        path = f"/{'send' if up else 'idle'}/{self.session_id}/{self.number}"
        self._exchange(int(self.number > 1), path, up or b"\0", down, status=status)
        self.number += 1

    def close(self) -> list[rewrite.Packet]:
        self._exchange(1, f"/close/{self.session_id}/{self.number}", b"\0", b"")
        self._on(1, lambda talk: talk.close(0))
        return self.order


class ClosedHome(QuietHome):
    """The connection on which the session began is closed, for longer than late packets could come."""

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
    packets: list[rewrite.Packet] = []
    secrets = b""
    for port, talk in enumerate(tunnel.talks, 50000):
        client = talk.packets[0].sender
        given: Said = [(int(p.sender != client), p.payload) for p in talk.packets if p.payload]
        flights, keylog = in_tls(tmp_path, given)
        packets += over_tcp(flights, port=443, start_port=port)
        secrets += keylog
    path = tmp_path / "tunnel.pcap"
    path.write_bytes(rewrite.pcap(rewrite.build(sorted(packets, key=lambda p: p.ts_ns))))
    options = Options(redact_key="00" * 32, keylog=secrets)
    expected = sequential([path], options)
    assert len(expected["connections"]) == 3 and len({row["uid"] for row in expected["messages"]}) == 1
    tables = Tables(options)
    tables.ingest([path], buckets=4)
    assert difference(expected, tables.rows) == ""
    files = cut_file(path, tmp_path, [24])  # between the hellos and the first request
    expected, tables = sequential(files, options), Tables(options)
    for file in files:
        tables.ingest([file], buckets=4)
    assert expected["messages"] and difference(expected, tables.rows) == ""


def test_secrets_at_the_head_of_another_file(sample_pcaps: Path, tmp_path: Path) -> None:
    """Whatever the buckets: not only those that read that file use them."""
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
        tables = Tables()
        tables.ingest(paths, buckets=buckets)
        assert difference(expected, tables.rows) == ""


def test_saved_connections_of_two_sensors_are_two(sample_pcaps: Path, tmp_path: Path) -> None:
    """A handshake alone gives no rows, so nothing but its endpoints and its sensor tells whose it is."""
    (begun, _) = cut_file(sample_pcaps / "ffmpeg_publish_h264_aac.pcap", tmp_path, [3])
    uids = set()
    for sensor in ("a", "b"):
        tables = Tables(replace(OPTIONS, sensor=sensor))
        tables.ingest([begun])
        uids.update(row["uid"] for row in tables.rows["open_flows"])
    assert len(uids) == 2


def test_the_reason_is_what_a_person_can_mend() -> None:
    said_by_java = (
        "An error occurred while calling o2576.save.\n: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Failed.\n"
        "\tat org.apache.spark.X.y(X.scala:1)\nCaused by: java.io.IOException: No space left on device\n\t... 9 more\n"
    )
    assert reason(RuntimeError(said_by_java)) == "No space left on device"
    assert reason(RuntimeError("Table is gone.\nmore")) == "Table is gone"
    assert reason(OSError(28, "No space left on device")) == "[Errno 28] No space left on device"
    assert reason(RuntimeError("Traceback (most recent call last):\n  x\nValueError: odd\n")) == "ValueError: odd"


def test_a_worker_does_not_load_pandas(sample_pcaps: Path) -> None:
    """pyarrow would, for a third of a second, where lists become arrays and numbers scalars."""
    code = """
import json, sys
from rtmp_spark.capture.columns import arrow_batch
from rtmp_spark.spark import passes, plan
from rtmp_spark.spark.decode import Options
from rtmp_spark.spark.paths import list_captures
from rtmp_spark.spark.pipeline import DECODED
from rtmp_spark.spark.scan import About

files = list_captures(sys.argv[1:])
splits = plan.cut(files, 1 << 20)
found = [row for split in splits for batch in passes._scanned(split, 0) for row in batch.to_pylist()]
abouts = [About(**json.loads(row["about"])) for row in found if row["about"] is not None]
scanned, _ = plan.judge(files, splits, {about.split_id: about for about in abouts})
plan.number(scanned, (), 0)
decoder = passes.Decoder(None, plan.split_plans(scanned), plan.Buckets({}, 1), Options(), DECODED, {}, 0, 0)
pieces = [(0, row["split_id"], row["group"], row["packets"]) for row in found if row["about"] is None]
(staged,) = decoder._task()(iter([arrow_batch(zip(*pieces), passes._PIECES)]))
(messages,) = passes.unstage("messages", 7)(iter([staged.select(["messages"])]))
print(json.loads(staged.to_pylist()[0]["account"])["rows"]["messages"] - messages.num_rows, "pandas" in sys.modules)
"""
    path = str(sample_pcaps / "capture_gap_full.pcap")
    done = subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True)
    assert done.stdout == "0 False\n"
