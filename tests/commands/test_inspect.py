"""`inspect` and `slice` as a person or a script meets them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rewrite
from decoded import recorded_tags
from talks import SERVER, connected, created, media, played, published

from rtmp_spark import schema
from rtmp_spark.capture.recording import ALL_TABLES
from rtmp_spark.cli import main

PUBLISH = "ffmpeg_publish_h264_aac.pcap"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTMP_SPARK_REDACT_KEY", "test")


def lines(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert main(["inspect", *map(str, arguments), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("table", ALL_TABLES)
def test_json_has_exactly_the_columns_of_the_table(
    sample_pcaps: Path, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    rows = lines(capsys, sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap", "--table", table)
    assert rows and all(tuple(row) == schema.column_names(table) for row in rows)
    for column in schema.TABLES[table].columns:
        if not column.nullable:
            assert all(row[column.name] is not None for row in rows), column.name


def test_json_without_a_table_names_it_first(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = lines(capsys, sample_pcaps / PUBLISH)
    assert {row["table"] for row in rows} == set(ALL_TABLES) and all(next(iter(row)) == "table" for row in rows)
    counted = [row for row in rows if row["table"] == "messages"]
    assert counted == [
        {"table": "messages", **row} for row in lines(capsys, sample_pcaps / PUBLISH, "--table", "messages")
    ]


def test_times_and_arguments_are_written_as_promised(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = lines(capsys, sample_pcaps / PUBLISH, "--table", "commands")[0]
    assert command["name"] == "connect" and command["args"][0]["app"] == "live"
    assert len(command["ts"]) == len("2026-01-31T12:00:00.000000Z") and command["ts"].endswith("Z")
    assert command["response_ms"] is None


def test_secrets_show_only_when_asked(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample_pcaps / "ffmpeg_publish_querystring_metadata.pcap"
    (hidden,) = lines(capsys, path, "--table", "streams")
    (shown,) = lines(capsys, path, "--table", "streams", "--keep-secrets")
    assert hidden["name"].startswith("key-") and not shown["name"].startswith("key-") and "?" in shown["name"]
    kept = lines(capsys, path, "--table", "payloads")
    every = lines(capsys, path, "--table", "payloads", "--keep-secrets")
    assert len(kept) < len(every)
    secret = shown["name"].split("?")[0].encode().hex()
    assert any(secret in row["payload"] for row in every) and not any(secret in row["payload"] for row in kept)


def test_the_screen_tells_the_story(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(sample_pcaps / "denied_and_unknown_app.pcap")]) == 0
    told = capsys.readouterr().out
    for word in ("106 packets", "NetStream.Play.StreamNotFound", "CMD_REFUSED", "4 RTMP connections", "38 messages"):
        assert word in told
    assert told.count("  failed: ") == 3, "one of them had no stream at all"
    assert "--table deliveries" not in told
    assert main(["inspect", str(sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap")]) == 0
    told = capsys.readouterr().out
    assert told.count("key frames 2.0 s apart") == 2 and "--table deliveries" in told
    assert main(["inspect", str(sample_pcaps / PUBLISH), "--table", "controls"]) == 0
    header, *rest = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["uid", "direction", "msg_no", "ts"] and len(rest) == 4


def test_bitrates_are_those_of_the_media(sample_pcaps: Path, oracle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that a player fetched in a moment: what its bytes make by the times in them, as its recording has it."""
    name = "nginx_vod_rtmpdump_play"
    assert main(["inspect", str(sample_pcaps / f"{name}.pcap")]) == 0
    (told,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("  play "))
    received = recorded_tags(oracle / f"{name}.received_by_rtmpdump.flvtags.tsv")
    for type_id, codec, header in ((9, "avc", 5), (8, "aac", 2)):  # FLV 10.1 E.4.2.2, E.4.3.1
        tags = [t for t in received if t.type_id == type_id and t.is_media]
        seconds = (tags[-1].timestamp - tags[0].timestamp) / 1000 * len(tags) / (len(tags) - 1)
        (track,) = (part for part in told.split("; ") if part.startswith(codec))
        assert f", {sum(t.size - header for t in tags) * 8 / seconds / 1000:.0f} kb/s" in track


def test_deliveries_are_pointed_to_where_only_the_publisher_had_a_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher = media(published(name="cam?token=a"))
    player = media(played(created(connected(rewrite.Talk(("10.0.0.3", 40000))))), SERVER)
    packets = sorted([*publisher.talk.packets, *player.talk.packets], key=lambda packet: packet.ts_ns)
    both = _written(tmp_path / "both.pcap", rewrite.pcap(rewrite.build(packets)))
    assert len(lines(capsys, both, "--table", "deliveries")) == 1
    assert main(["inspect", str(both)]) == 0
    assert "--table deliveries" in capsys.readouterr().out


def test_trouble_behind_the_connections_that_are_shown_is_named(
    sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = rewrite.read(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap")
    denied = rewrite.read(sample_pcaps / "denied_and_unknown_app.pcap")
    early = denied[0].ts_ns - 3600 * 10**9 - quiet[0].ts_ns
    packets = [
        replace(p, ts_ns=p.ts_ns + early, src=p.src.replace("127.", f"{n}."), dst=p.dst.replace("127.", f"{n}."))
        for n in range(1, 13)
        for p in quiet
    ]
    both = _written(tmp_path / "both.pcap", rewrite.pcap(rewrite.build(packets + denied)))
    assert main(["inspect", str(both)]) == 0
    told = capsys.readouterr().out
    assert "... and 4 later ones, 2 of them with errors: " in told
    wrong = [row for row in lines(capsys, both, "--table", "findings") if row["severity"] == "error"]
    assert len(wrong) == 2
    for row in wrong:
        assert f"{row['uid']}  {row['rule_id']}: " in told


@pytest.mark.parametrize(
    ("make", "code", "word"),
    [
        (lambda d: d / "missing.pcap", 2, "does not exist"),
        (lambda d: d, 2, "directory"),
        (lambda d: _written(d / "empty.pcap", b""), 4, "empty"),
        (lambda d: _written(d / "text.pcap", b"hello " * 10), 4, "not a capture"),
        (
            lambda d: _written(d / "none.pcap", bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")),
            5,
            "no RTMP",
        ),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Any, code: int, word: str
) -> None:
    assert main(["inspect", str(make(tmp_path))]) == code
    told = capsys.readouterr().err.strip()
    assert word in told and len(told.splitlines()) == 1 and "Traceback" not in told


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_good_file_beside_a_bad_one_is_shown(
    sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = _written(tmp_path / "bad.pcap", b"hello " * 10)
    assert main(["inspect", str(bad), str(sample_pcaps / PUBLISH), "--table", "connections", "--json"]) == 4
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_what_is_not_there_is_said(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--uid", "CNOSUCH"], ["--stream", "nobody"], ["--table", "nothing"]):
        assert main(["inspect", str(sample_pcaps / PUBLISH), *arguments]) == 2
        assert arguments[1] in capsys.readouterr().err
    assert main(["inspect", str(sample_pcaps / "garbage_on_1935.pcap"), "--port", "1"]) == 5
    capsys.readouterr()
    path = str(sample_pcaps / PUBLISH)
    assert main(["inspect", path, "--host", "192.0.2.1", "--until", "2026"]) == 5
    assert "no RTMP connection in what was given matches --host and --until." in capsys.readouterr().err
    (row,) = lines(capsys, path, "--table", "connections")
    assert main(["inspect", path, "--uid", row["uid"], "--stream", "nobody"]) == 2
    said = capsys.readouterr().err
    assert "no connection" not in said and "No connection in what was given has all of --uid and --stream." in said


def test_a_hash_is_found_where_secrets_are_kept(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """First the hash is seen, then somebody wants to know which name that is."""
    path = sample_pcaps / PUBLISH
    (hidden,) = lines(capsys, path, "--table", "streams")
    for wanted in (hidden["name"], "d01"):
        (plain,) = lines(capsys, path, "--table", "streams", "--keep-secrets", "--stream", wanted)
        assert plain["name"] == "d01" != hidden["name"]


def test_payloads_are_those_of_the_messages_of_the_time(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ("--since", "2026-11-16T00:02:24Z", "--until", "2026-11-16T00:02:25Z")
    rows = lines(capsys, sample_pcaps / PUBLISH, "--keep-payloads", *chosen)
    messages, payloads = (
        [(row["direction"], row["msg_no"]) for row in rows if row["table"] == table]
        for table in ("messages", "payloads")
    )
    assert messages and sorted(payloads) == sorted(messages)
    alone = lines(capsys, sample_pcaps / PUBLISH, "--table", "payloads", *chosen)
    assert len(alone) == len(payloads)


def test_wire_text_cannot_steer_the_terminal() -> None:
    from rtmp_spark.commands.harmless import harmless

    assert harmless("a\x1b[31mb\u202ec\n") == "a.[31mb.c."


# -- slice ------------------------------------------------------------------------------------------------------


def test_only_slice_offers_no_standard_input(capsys: pytest.CaptureFixture[str]) -> None:
    for command, offered in (("inspect", True), ("extract", True), ("slice", False)):
        assert main([command, "--help"]) == 0
        assert ("standard input" in " ".join(capsys.readouterr().out.split())) == offered, command
    assert main(["slice", "-", "--uid", "C", "-o", "x.pcapng"]) == 2


def test_a_slice_is_one_connection_whole(
    sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = sample_pcaps / "republish_same_name.pcap", tmp_path / "one.pcapng"
    assert main(["slice", str(source), "-o", str(target)]) == 2, "two connections, none chosen"
    wanted = lines(capsys, source, "--table", "connections")[1]
    assert main(["slice", str(source), "--uid", wanted["uid"], "-o", str(target)]) == 0
    capsys.readouterr()
    (same,) = lines(capsys, target, "--table", "connections")
    files = ("capture_ids",)
    assert {k: v for k, v in same.items() if k not in files} == {k: v for k, v in wanted.items() if k not in files}


def test_a_slice_is_whole_in_whatever_order_the_file_is(
    sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packets = rewrite.read(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap")
    backwards, target = tmp_path / "backwards.pcap", tmp_path / "one.pcapng"
    backwards.write_bytes(rewrite.pcap(rewrite.build(packets[::-1])))
    assert main(["slice", str(backwards), "-o", str(target)]) == 0
    assert f" {len(packets)} packets " in capsys.readouterr().out


@pytest.mark.parametrize("program", ["tshark"], indirect=True)
def test_wireshark_reads_a_slice_and_its_comments(sample_pcaps: Path, tmp_path: Path, program: str) -> None:
    target = tmp_path / "gap.pcapng"
    assert main(["slice", str(sample_pcaps / "capture_gap_lost_packets.pcap"), "-o", str(target)]) == 0
    command = [program, "-r", str(target), "-T", "fields", "-e", "frame.comment"]
    comments = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(comments) == 832, "the capture has so many packets"
    assert any("TCP_GAP" in comment for comment in comments)


def test_of_several_files_a_frame_names_its_own(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [sample_pcaps / name for name in ("denied_and_unknown_app.pcap", "republish_same_name.pcap")]
    rows = lines(capsys, *paths)
    names = {row["capture_id"]: Path(row["path"]).name for row in rows if row["table"] == "captures"}
    placed = [row for row in rows if row["table"] == "findings" and row["frame"] and row["count"] == 1]
    assert {names[row["capture_id"]] for row in placed} == {path.name for path in paths}
    assert main(["inspect", *map(str, paths)]) == 0
    screen = capsys.readouterr().out
    for row in placed:
        assert f"{row['rule_id']} at frame {row['frame']} of {names[row['capture_id']]}" in screen
    assert main(["inspect", str(paths[0])]) == 0
    assert paths[0].name not in capsys.readouterr().out.partition("\n")[2], "one file needs no name"
