"""`inspect` as people and scripts use it."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit import capture_rewriting
from kit.decoded_tables import recorded_tags
from kit.rtmp_talks import SERVER, connected, created, media, played, published

from rtmp_spark import schema
from rtmp_spark.analysis import recording
from rtmp_spark.analysis.recording import ALL_TABLES
from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.cli import main
from rtmp_spark.commands.output import capture_outcome
from rtmp_spark.conversation.decoding import directions
from rtmp_spark.conversation.decoding.helper_process import HelperProcess

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


def test_json_of_all_tables_begins_with_the_table_name(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = lines(capsys, sample_pcaps / PUBLISH)
    assert {row["table"] for row in rows} == set(ALL_TABLES) and all(next(iter(row)) == "table" for row in rows)
    counted = [row for row in rows if row["table"] == "messages"]
    assert counted == [
        {"table": "messages", **row} for row in lines(capsys, sample_pcaps / PUBLISH, "--table", "messages")
    ]


def test_times_and_arguments_in_json(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = lines(capsys, sample_pcaps / PUBLISH, "--table", "commands")[0]
    assert command["name"] == "connect" and command["args"][0]["app"] == "live"
    assert len(command["ts"]) == len("2026-01-31T12:00:00.000000Z") and command["ts"].endswith("Z")
    assert command["response_ms"] is None


def test_secrets_are_shown_only_with_keep_secrets(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample_pcaps / "ffmpeg_publish_querystring_metadata.pcap"
    (hidden,) = lines(capsys, path, "--table", "streams")
    (shown,) = lines(capsys, path, "--table", "streams", "--keep-secrets")
    assert hidden["name"].startswith("key-") and not shown["name"].startswith("key-") and "?" in shown["name"]
    kept = lines(capsys, path, "--table", "payloads")
    every = lines(capsys, path, "--table", "payloads", "--keep-secrets")
    assert len(kept) < len(every)
    secret = shown["name"].split("?")[0].encode().hex()
    assert any(secret in row["payload"] for row in every) and not any(secret in row["payload"] for row in kept)


def test_the_screen_shows_packets_commands_findings_and_totals(
    sample_pcaps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(sample_pcaps / "denied_and_unknown_app.pcap"), "-v"]) == 0
    screen = capsys.readouterr().out
    for word in ("106 packets", "NetStream.Play.StreamNotFound", "CMD_REFUSED", "4 RTMP connections", "38 messages"):
        assert word in screen
    assert screen.count("  failed: ") == 3, "one of them had no stream at all"
    assert "--table deliveries" not in screen
    assert main(["inspect", str(sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap"), "-v"]) == 0
    screen = capsys.readouterr().out
    assert screen.count("keyframe every 2.0 s") == 2 and "--table deliveries" in screen
    assert main(["inspect", str(sample_pcaps / PUBLISH), "--table", "controls"]) == 0
    header, *rest = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["uid", "direction", "msg_no", "ts"] and len(rest) == 4


def test_the_commands_of_a_connection_are_shown_although_an_earlier_one_was_filtered_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [published(name="cam"), published(created(connected(capture_rewriting.Talk(("10.0.0.3", 40000)))), "other")]
    packets = sorted([packet for one in said for packet in one.talk.packets], key=lambda packet: packet.ts_ns)
    both = _written(tmp_path / "both.pcap", capture_rewriting.pcap(capture_rewriting.build(packets)))
    for name in ("cam", "other"):
        assert main(["inspect", str(both), "--stream", name]) == 0
        assert "createStream" in capsys.readouterr().out
    assert main(["inspect", str(both)]) == 0
    assert "createStream" not in capsys.readouterr().out


def test_bitrates_are_computed_from_timestamps(
    sample_pcaps: Path, oracle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The player fetched the file faster than real time; the bitrate must be that of its recording."""
    name = "nginx_vod_rtmpdump_play"
    assert main(["inspect", str(sample_pcaps / f"{name}.pcap")]) == 0
    (play,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("  play "))
    received = recorded_tags(oracle / f"{name}.received_by_rtmpdump.flvtags.tsv")
    for type_id, codec, header in ((9, "avc", 5), (8, "aac", 2)):  # FLV 10.1 E.4.2.2, E.4.3.1
        tags = [t for t in received if t.type_id == type_id and t.is_media]
        seconds = (tags[-1].timestamp - tags[0].timestamp) / 1000 * len(tags) / (len(tags) - 1)
        (track,) = (part for part in play.split("; ") if part.startswith(codec))
        assert f", {sum(t.size - header for t in tags) * 8 / seconds / 1000:.3g} kb/s" in track


def test_the_hint_about_deliveries_ignores_stream_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publisher = media(published(name="cam?token=a"))
    player = media(played(created(connected(capture_rewriting.Talk(("10.0.0.3", 40000))))), SERVER)
    packets = sorted([*publisher.talk.packets, *player.talk.packets], key=lambda packet: packet.ts_ns)
    both = _written(tmp_path / "both.pcap", capture_rewriting.pcap(capture_rewriting.build(packets)))
    assert len(lines(capsys, both, "--table", "deliveries")) == 1
    assert main(["inspect", str(both)]) == 0
    assert "--table deliveries" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "code", "word"),
    [
        (lambda d: d / "missing.pcap", 2, "does not exist"),
        (lambda d: d, 2, "contains no captures"),
        (lambda d: _written(d / "empty.pcap", b""), 4, "empty"),
        (lambda d: _written(d / "text.pcap", b"hello " * 10), 4, "not a capture"),
        (
            lambda d: _written(d / "none.pcap", bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")),
            5,
            "No RTMP found",
        ),
    ],
)
def test_unreadable_input_is_reported_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Any, code: int, word: str
) -> None:
    assert main(["inspect", str(make(tmp_path))]) == code
    error = capsys.readouterr().err.strip()
    assert word in error and len(error.splitlines()) == 1 and "Traceback" not in error


@pytest.mark.parametrize("attempts", [1, 9])
def test_refused_connections(attempts: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also with so many packets that they are reassembled."""
    talk = capture_rewriting.Talk()
    for _ in range(attempts):
        talk.add(0, capture_rewriting.SYN, ack=0).add(1, capture_rewriting.RST | capture_rewriting.ACK, seq=0, ack=1001)
    path = _written(tmp_path / "refused.pcap", capture_rewriting.pcap(capture_rewriting.build(talk.packets)))
    assert main(["inspect", str(path)]) == 5
    assert "1 connection was refused: " in capsys.readouterr().err


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_good_file_next_to_a_bad_one_is_shown(
    sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = _written(tmp_path / "bad.pcap", b"hello " * 10)
    assert main(["inspect", str(bad), str(sample_pcaps / PUBLISH), "--table", "connections", "--json"]) == 4
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_filters_that_match_nothing(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--uid", "CNOSUCH"], ["--stream", "absent"], ["--table", "nothing"]):
        assert main(["inspect", str(sample_pcaps / PUBLISH), *arguments]) == 2
        assert arguments[1] in capsys.readouterr().err
    assert main(["inspect", str(sample_pcaps / "garbage_on_1935.pcap"), "--port", "1"]) == 5
    capsys.readouterr()
    path = str(sample_pcaps / PUBLISH)
    assert main(["inspect", path, "--host", "192.0.2.1", "--until", "2026"]) == 5
    assert "No RTMP connection matches --host and --until." in capsys.readouterr().err
    (row,) = lines(capsys, path, "--table", "connections")
    assert main(["inspect", path, "--uid", row["uid"], "--stream", "absent"]) == 2
    assert "No connection matches --uid and --stream." in capsys.readouterr().err


def test_keep_secrets_accepts_the_hash_of_a_stream_name(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user who has seen the hash can look up the name."""
    path = sample_pcaps / PUBLISH
    (hidden,) = lines(capsys, path, "--table", "streams")
    for wanted in (hidden["name"], "d01"):
        (plain,) = lines(capsys, path, "--table", "streams", "--keep-secrets", "--stream", wanted)
        assert plain["name"] == "d01" != hidden["name"]


def test_since_and_until_apply_to_payloads(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ("--since", "2026-11-16T00:02:24Z", "--until", "2026-11-16T00:02:25Z")
    rows = lines(capsys, sample_pcaps / PUBLISH, "--keep-payloads", *chosen)
    messages, payloads = (
        [(row["direction"], row["msg_no"]) for row in rows if row["table"] == table]
        for table in ("messages", "payloads")
    )
    assert messages and sorted(payloads) == sorted(messages)
    alone = lines(capsys, sample_pcaps / PUBLISH, "--table", "payloads", *chosen)
    assert len(alone) == len(payloads)


def test_with_several_files_frames_name_their_file(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [sample_pcaps / name for name in ("denied_and_unknown_app.pcap", "republish_same_name.pcap")]
    rows = lines(capsys, *paths)
    names = {row["capture_id"]: Path(row["path"]).name for row in rows if row["table"] == "captures"}
    placed = [row for row in rows if row["table"] == "findings" and row["frame"] and row["count"] == 1]
    assert {names[row["capture_id"]] for row in placed} == {path.name for path in paths}
    assert main(["inspect", *map(str, paths), "-v"]) == 0
    screen = capsys.readouterr().out
    for row in placed:
        assert f"{row['rule_id']} at frame {row['frame']} of {names[row['capture_id']]}" in screen
    assert main(["inspect", str(paths[0]), "-v"]) == 0
    assert capsys.readouterr().out.count(paths[0].name) == 1, "places do not name a single file"


def test_a_small_capture_starts_without_large_modules(sample_pcaps: Path) -> None:
    """Importing each of these takes longer than analyzing a small capture."""
    unused = ("statistics", "subprocess", "tempfile", "difflib", "rich", "pyarrow.compute", "pandas", "cryptography")
    program = f"""
import sys
from rtmp_spark.cli import main
from rtmp_spark.commands.output import capture_outcome
code = main(["inspect", {str(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap")!r}])
print(code, [name for name in {unused!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "0 []"
    assert "1 RTMP connection" in done.stdout


@pytest.mark.parametrize("options", [["--json"], ["-v"]])
def test_the_output_does_not_depend_on_the_number_of_processes(
    sample_pcaps: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    started: list[object] = []
    start = HelperProcess.__init__

    def noted(helper: HelperProcess) -> None:
        started.append(helper)
        start(helper)

    monkeypatch.setattr(HelperProcess, "__init__", noted)
    monkeypatch.setattr(directions, "LONG_RUN_BYTES", 1000)
    monkeypatch.setattr(recording, "open_capture", partial(open_capture, window_bytes=1 << 16))
    printed = []
    for jobs in ("1", "3"):
        assert main(["inspect", str(sample_pcaps / PUBLISH), *options, "--jobs", jobs]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and started


@pytest.mark.parametrize(("can_decrypt", "remedy"), [(True, "SSLKEYLOGFILE"), (False, "To decrypt RTMPS: pip install")])
def test_tls_that_cannot_be_read_names_what_is_missing(
    can_decrypt: bool,
    remedy: str,
    sample_pcaps: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(capture_outcome, "can_decrypt", lambda: can_decrypt)
    assert main(["inspect", str(sample_pcaps / "rtmps_tls13_ffmpeg_publish.pcap")]) == 5
    assert remedy in capsys.readouterr().err
