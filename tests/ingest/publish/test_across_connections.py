"""Rules across connections give the same rows in a lake as in one recording of all captures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from kit import capture_rewriting
from kit.capture_rewriting import Packet, Talk
from kit.in_process_ingest import ingest_in_process, lake_rows

from rtmp_spark.analysis.recording import ALL_TABLES, Recording
from rtmp_spark.codec.command import dump_command
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.message import COMMAND_AMF0, Message
from rtmp_spark.ingest.options import IngestOptions

SECOND = 1_000_000_000
TABLES = ("streams", "deliveries", "findings")
Rows = dict[str, list[str]]


def moved(packets: Sequence[Packet], seconds: float, port: int) -> list[Packet]:
    """The same connection at another time from another port."""

    def end(number: int) -> int:
        return number if number == 1935 else port

    shift = int(seconds * SECOND)
    return [replace(p, ts_ns=p.ts_ns + shift, sport=end(p.sport), dport=end(p.dport)) for p in packets]


def one_round(start_ns: int, port: int, let_in: bool) -> list[Packet]:
    """One round of Adobe authentication: the server accepts connect, or requests credentials and closes."""
    zeros = bytes(1536)
    asked = dump_command("connect", 1.0, {"app": "live", "tcUrl": "rtmp://10.0.0.2/live"})
    status = {"level": "error", "code": "NetConnection.Connect.Rejected", "description": "[ authmod=adobe ] needauth"}
    if let_in:
        status = {"level": "status", "code": "NetConnection.Connect.Success"}
    answer = dump_command("_result" if let_in else "_error", 1.0, None, status)

    def sent(payload: bytes) -> bytes:
        return RtmpEncoder().send(Message(3, 0, COMMAND_AMF0, 0, payload))

    talk = Talk(("10.0.0.1", port), start_ns=start_ns).open()
    talk.say(0, b"\x03" + zeros).say(1, b"\x03" + zeros + zeros).say(0, zeros)
    return talk.say(0, sent(asked)).say(1, sent(answer)).close(1).packets


@pytest.fixture(scope="module")
def captures(sample_pcaps: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """In the order of time: a publisher and its player, cut in two; attempts of equal duration; two publishers of
    one name at once; an authentication, accepted in the third round; then the same client again."""
    quick = capture_rewriting.read(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap")
    published = [replace(p, ts_ns=quick[0].ts_ns + 4 * (p.ts_ns - quick[0].ts_ns)) for p in quick]  # over 2 s
    length = (published[-1].ts_ns - published[0].ts_ns) / SECOND
    relayed = capture_rewriting.read(sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap")
    later = (relayed[-1].ts_ns - published[0].ts_ns) / SECOND + 1000
    tries = [moved(published, later + n * (length + 5), 50_000 + n) for n in range(3)]
    both = [moved(published, later + 1000 + n, 51_000 + n) for n in range(2)]
    rounds = [one_round(both[-1][-1].ts_ns + n * 5 * SECOND, 52_000 + n, let_in=n > 1) for n in range(4)]
    middle = (relayed[0].ts_ns + relayed[-1].ts_ns) // 2
    files = [
        [p for p in relayed if p.ts_ns < middle],
        [*(p for p in relayed if p.ts_ns >= middle), *tries[0], *tries[1]],
        [*tries[2], *both[0], *rounds[0]],
        [*both[1], *rounds[1], *rounds[2]],
        rounds[3],
    ]
    directory = tmp_path_factory.mktemp("captures")
    paths = [directory / f"{number}.pcap" for number in range(len(files))]
    for path, packets in zip(paths, files):
        ordered = sorted(packets, key=lambda p: p.ts_ns)
        path.write_bytes(capture_rewriting.pcap(capture_rewriting.build(ordered)))
    return paths


def of_a_lake(lake: Path) -> Rows:
    return {
        name: sorted(repr({k: v for k, v in row.items() if k != "ingest_id"}) for row in lake_rows(lake, name))
        for name in TABLES
    }


@pytest.fixture(scope="module")
def expected(captures: list[Path]) -> Rows:
    """The rows of `inspect` for all files as one recording."""
    settings = replace(IngestOptions().settings(), rules_across_connections=True)
    rows: Rows = {name: [] for name in TABLES}
    for table, batch in Recording(map(str, captures), settings, (*ALL_TABLES, "deliveries")).batches():
        if table in rows:
            rows[table] += [repr(row) for row in batch.drop_columns(["ingest_id"]).to_pylist()]
    texts = "".join(rows["findings"])
    assert len(rows["deliveries"]) == 1
    assert texts.count("4 times in a row") == texts.count("was already publishing this name") == 1
    assert texts.count("; the authentication continues in connection C") == 2
    return {name: sorted(found) for name, found in rows.items()}


def run(lake: Path, *batches: Sequence[Path], sensor: str = "") -> None:
    for paths in batches:
        ingest_in_process(lake, paths, keep_secrets=True, sensor=sensor)


def test_all_at_once(captures: list[Path], expected: Rows, tmp_path: Path) -> None:
    run(tmp_path / "lake", captures)
    assert of_a_lake(tmp_path / "lake") == expected


def test_one_by_one_and_another_sensor(captures: list[Path], expected: Rows, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run(lake, *([path] for path in captures))
    assert of_a_lake(lake) == expected
    run(lake, captures[2:3], sensor="elsewhere")  # the same tries, seen at another place, are no more tries
    again = of_a_lake(lake)
    assert all(set(expected[name]) <= set(again[name]) for name in TABLES)
    assert len(again["findings"]) > len(expected["findings"])
    assert sum("times in a row" in row for row in again["findings"]) == 1
    streams = lake_rows(lake, "streams")
    elsewhere = sum(row["attempt_no"] == 1 and row["name"] is not None for row in streams)
    assert elsewhere == sum("'attempt_no': 1," in row for row in expected["streams"]) + 1


def test_the_last_first(captures: list[Path], expected: Rows, tmp_path: Path) -> None:
    """The later ingest changes rows of connections of an earlier one."""
    lake = tmp_path / "lake"
    run(lake, captures[3:], captures[2:3], captures[:2])
    assert of_a_lake(lake) == expected
