"""Recordings compared with independent results: server records, complete captures, tshark, arithmetic."""

from __future__ import annotations

import hashlib
import random
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit import capture_rewriting
from kit.decoded_tables import Rows, RtmpTalk, decode, recorded_tags, redacting, types

from rtmp_spark.analysis import recording
from rtmp_spark.analysis.recording import TreeHash
from rtmp_spark.analysis.settings import ConnectionFilter, Settings
from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.conversation.identity import community_id

# Counted by tshark 4.0.17 with its limits raised (audio, video), as the README of the captures tells.
COUNTED = {
    "any_sll_ffmpeg_publish.pcap": (155, 102),
    "any_sll2_ffmpeg_publish.pcap": (155, 102),
    "nanosecond_ffmpeg_publish.pcap": (155, 102),
    "pcapng_dumpcap_ffmpeg_publish.pcapng": (155, 102),
    "big_endian_ffmpeg_publish.pcap": (275, 179),
    "gzip_ffmpeg_publish.pcap.gz": (155, 100),
    "vlan100_ffmpeg_publish.pcap": (218, 127),
    "ipv6_ffmpeg_publish.pcap": (131, 77),
    "ffmpeg_publish_h264_aac.pcap": (218, 127),
    "ffmpeg_vod_seek.pcap": (339, 201),
    "lossy_mtu1500_client_side.pcap": (359, 204),
    "p1936_extended_timestamps_multichunk.pcap": (376, 204),
    "p1950_enhanced_hevc_aac_ffmpeg7_nms_play.pcap": (309, 181),
}


def media(rows: Rows) -> set[tuple[Any, ...]]:
    return {
        (r["direction"], r["type_id"], r["length"], r["payload_crc32"])
        for r in rows
        if r["status"] == "complete" and r["type_id"] in (8, 9)
    }


@pytest.mark.parametrize("name", COUNTED)
def test_the_number_of_messages_is_that_of_tshark(sample_pcaps: Path, name: str) -> None:
    found = types(decode(sample_pcaps / name, tables=("messages",))["messages"])
    assert (found[8], found[9]) == COUNTED[name]


@pytest.mark.parametrize("program", ["tshark"], indirect=True)
@pytest.mark.parametrize("name", ["ffmpeg_publish_bframes_rtmpdump_play.pcap", "gst_rtmp2sink_publish_h264_aac.pcap"])
def test_frames_and_times_are_those_of_tshark(sample_pcaps: Path, program: str, name: str) -> None:
    """Every message that tshark completes in a frame, we complete in that frame, at that time, with that header."""
    fields = ("frame.number", "frame.time_epoch", "tcp.srcport", "rtmpt.header.csid", "rtmpt.header.format")
    command = [program, "-o", "rtmpt.max_packet_size:16777216", "-o", "tcp.reassemble_out_of_order:TRUE"]
    command += ["-r", str(sample_pcaps / name), "-Y", "rtmpt", "-T", "fields"]
    command += [word for field in fields for word in ("-e", field)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    theirs: Counter[tuple[Any, ...]] = Counter()
    for line in lines:
        frame, epoch, port, csids, formats = line.split("\t")
        seconds, fraction = epoch.split(".")
        for csid, fmt in zip(csids.split(","), formats.split(",")):
            if csid:
                theirs[
                    int(frame), int(seconds) * 1_000_000 + int(fraction[:6]), port == "1935", int(csid), int(fmt)
                ] += 1
    ours = Counter(
        (
            row["frame_last"], round(row["ts_last"].timestamp() * 1e6), row["direction"] == "s2c", row["csid"],
            row["fmt"],
        )
        for row in decode(sample_pcaps / name, tables=("messages",))["messages"]
    )  # fmt: skip
    assert ours == theirs


@pytest.mark.parametrize(
    ("part", "whole", "least"),
    [
        ("capture_gap_lost_packets.pcap", "capture_gap_full.pcap", 0.95),
        ("midstream_publish_and_play.pcap", "ffmpeg_publish_bframes_rtmpdump_play.pcap", 0.8),
        ("midstream_publish_default_chunk_context_missing.pcap", "ffmpeg_publish_h264_aac.pcap", 0.8),
        ("lossy_mtu1500_client_side.pcap", "lossy_mtu1500_server_side.pcap", 1.0),
        ("one_direction_server_to_client.pcap", "ffmpeg_publish_bframes_rtmpdump_play.pcap", 0.4),
    ],
)
def test_no_message_is_invented_and_few_are_lost(sample_pcaps: Path, part: str, whole: str, least: float) -> None:
    of_part, of_whole = (media(decode(sample_pcaps / name, tables=("messages",))["messages"]) for name in (part, whole))
    assert not of_part - of_whole
    assert len(of_part & of_whole) >= least * len(of_whole)


def test_the_server_got_the_tags_that_were_sent(sample_pcaps: Path, oracle: Path) -> None:
    """The length and order of every coded frame are those that nginx recorded."""
    rows = decode(sample_pcaps / "ffmpeg_publish_h264_aac.pcap")
    sent = [(t["kind"], r["length"]) for t, r in zip(rows["media_tags"], _media_messages(rows)) if not t["is_config"]]
    wanted = [
        ("audio" if tag.type_id == 8 else "video", tag.size)
        for tag in recorded_tags(oracle / "ffmpeg_publish_h264_aac.server_record.flvtags.tsv")
        if tag.is_media
    ]
    assert sent == wanted


def _media_messages(rows: dict[str, Rows]) -> Rows:
    return [row for row in rows["messages"] if row["type_id"] in (8, 9)]


# -- one recording, however its packets travel ------------------------------------------------------------------------

SAME = "capture_gap_full.pcap"


def _columns(rows: dict[str, Rows], *, without: set[str]) -> dict[str, Rows]:
    """Rows in the order of their keys: the order of rows between connections and directions is not defined."""
    return {
        table: sorted(
            ({k: v for k, v in row.items() if k not in without} for row in found),
            key=lambda row: [
                str(row.get(name)).zfill(12) for name in ("uid", "direction", "msg_no", "part_no", "rule_id")
            ],
        )
        for table, found in rows.items()
        if table not in ("captures", "intervals")
    }


FILE_ONLY = {"capture_id", "capture_id_last", "capture_ids"}
FRAMES = {"frame", "frame_first", "frame_last"}


def test_files_in_any_order_are_one_recording(sample_pcaps: Path, tmp_path: Path) -> None:
    packets = capture_rewriting.read(sample_pcaps / SAME)
    frames = capture_rewriting.build(packets)
    third = len(frames) // 3
    paths = []
    for number, part in enumerate((frames[:third], frames[third : 2 * third], frames[2 * third :])):
        paths.append(tmp_path / f"{'zab'[number]}.pcap")
        paths[-1].write_bytes(capture_rewriting.pcap(part))
    (tmp_path / "whole.pcap").write_bytes(capture_rewriting.pcap(frames))
    random.Random(3).shuffle(paths)
    whole = decode(tmp_path / "whole.pcap", settings=redacting())
    parts = decode(*paths, settings=redacting())
    assert _columns(parts, without=FILE_ONLY | FRAMES) == _columns(whole, without=FILE_ONLY | FRAMES)
    ids = [row["capture_id"] for row in sorted(parts["captures"], key=lambda row: row["ts_first"])]
    (connection,) = parts["connections"]
    assert connection["capture_ids"] == ids
    # Frame numbers count in their own file.
    whole_frames = {(row["direction"], row["msg_no"]): row["frame_last"] for row in whole["messages"]}
    in_parts = {
        (row["direction"], row["msg_no"]): ids.index(row["capture_id_last"]) * third + row["frame_last"]
        for row in parts["messages"]
    }
    assert in_parts == whole_frames


def test_rotated_files_give_the_rows_of_one_session(sample_pcaps: Path) -> None:
    """tcpdump -C divided this session into three files; the connection continues through all of them."""
    paths = [sample_pcaps / f"rotated_publish_0{number}.pcap" for number in (2, 0, 1)]
    rows = decode(*paths)
    (connection,) = rows["connections"]
    assert len(connection["capture_ids"]) == 3 and not connection["midstream"]
    assert all(row["status"] == "complete" and not row["inferred"] for row in rows["messages"])
    for alone in paths[:1] + paths[2:]:
        (part,) = decode(alone, tables=("connections",))["connections"]
        assert part["midstream"]


# -- names -----------------------------------------------------------------------------------------------------


def test_community_id_is_that_of_the_specification() -> None:
    """Values from the reference implementation's documentation (corelight/community-id-spec)."""
    assert community_id(("128.232.110.120", 34855), ("66.35.250.204", 80)) == "1:LQU9qZlK+B5F3KDmev6m5PMibrg="
    assert community_id(("66.35.250.204", 80), ("128.232.110.120", 34855)) == "1:LQU9qZlK+B5F3KDmev6m5PMibrg="


def test_uid_depends_on_sensor_ends_and_start_only(sample_pcaps: Path, tmp_path: Path) -> None:
    path = sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap"
    copy = tmp_path / "renamed.pcap"
    shutil.copy(path, copy)
    uids = [decode(p, tables=("connections",))["connections"][0]["uid"] for p in (path, copy)]
    assert uids[0] == uids[1] and len(uids[0]) == 21 and uids[0][0] == "C"
    other = decode(path, settings=Settings(sensor="edge"), tables=("connections",))["connections"][0]["uid"]
    assert other != uids[0]


def test_capture_id_is_a_tree_hash_of_the_decompressed_bytes(sample_pcaps: Path, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(2_500_000)
    blocks = [data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20)]
    leaves = b"".join(hashlib.sha256(block).digest() for block in blocks)
    expected = hashlib.sha256(leaves + len(data).to_bytes(8, "big")).hexdigest()[:32]
    for step in (len(data), 999_999, 1 << 20):
        tree = TreeHash()
        for at in range(0, len(data), step):
            tree.update(data[at : at + step])
        assert tree.result() == expected
    plain = (sample_pcaps / SAME).read_bytes()
    (tmp_path / "packed.pcap.gz").write_bytes(capture_rewriting.gzipped(plain))
    ids = [
        decode(p, tables=("captures",))["captures"][0]["capture_id"]
        for p in (sample_pcaps / SAME, tmp_path / "packed.pcap.gz")
    ]
    assert ids[0] == ids[1]


# -- what becomes of files and strangers -----------------------------------------------------------------------


def test_every_byte_is_accounted_for(sample_pcaps: Path) -> None:
    for path in sorted(sample_pcaps.glob("*.pcap*")):
        for row in decode(path, tables=("connections",))["connections"]:
            for way in ("c2s", "s2c"):
                parts = [row[f"{name}_bytes_{way}"] for name in ("delivered", "duplicate", "conflict", "skipped")]
                assert row[f"captured_bytes_{way}"] == sum(parts), f"{path.name} {row['uid']} {way}"


def test_noise_gives_no_messages_and_is_counted(sample_pcaps: Path) -> None:
    rows = decode(sample_pcaps / "garbage_on_1935.pcap")
    assert not [row for row in rows["messages"] if row["type_id"] in (8, 9)]
    (capture,) = rows["captures"]
    assert capture["other_flows"] + len(rows["connections"]) == 8, "the file holds eight connections"


def test_a_cut_file_is_partial_and_keeps_its_beginning(sample_pcaps: Path) -> None:
    whole = decode(sample_pcaps / "ffmpeg_publish_h264_aac.pcap")
    part = decode(sample_pcaps / "file_cut_mid_record.pcap")
    (capture,) = part["captures"]
    assert (capture["status"], capture["error_code"]) == ("partial", "CAPTURE_TRUNCATED")
    ways = ("c2s", "s2c")
    for way in ways:
        here, there = (
            [(m["type_id"], m["length"], m["payload_crc32"]) for m in rows["messages"] if m["direction"] == way]
            for rows in (part, whole)
        )
        assert here == there[: len(here)] and len(here) > 2
    assert part["connections"][0]["close_cause"] == "capture_ended"


def test_wrong_ip_header_checksums_are_reported_once_per_file(sample_pcaps: Path, tmp_path: Path) -> None:
    frames = capture_rewriting.build(capture_rewriting.read(sample_pcaps / SAME))
    parts = [frames[:200], frames[200:]]
    damaged = [(3, 50, 199), (7,)]
    for number, (part, wrong) in enumerate(zip(parts, damaged)):
        for at in wrong:
            ts_ns, frame = part[at]
            part[at] = ts_ns, frame[:24] + bytes([frame[24] ^ 1]) + frame[25:]
        (tmp_path / f"{number}.pcap").write_bytes(capture_rewriting.pcap(part))
    rows = decode(tmp_path / "0.pcap", tmp_path / "1.pcap", settings=redacting())
    found = [row for row in rows["findings"] if row["rule_id"] == "CAPTURE_BAD_RECORD"]
    assert [(row["severity"], row["count"], row["frame"]) for row in found] == [("warning", 3, 4), ("warning", 1, 8)]
    ids = [row["capture_id"] for row in sorted(rows["captures"], key=lambda row: row["path"])]
    assert [row["capture_id"] for row in found] == ids
    assert [row["status"] for row in rows["captures"]] == ["ok", "ok"]
    assert len(rows["messages"]) == len(decode(sample_pcaps / SAME)["messages"])


@pytest.mark.parametrize("damaged", [False, True])
def test_the_finding_of_a_conflict_states_whether_the_later_packet_was_damaged(
    sample_pcaps: Path, tmp_path: Path, damaged: bool
) -> None:
    packets = capture_rewriting.read(sample_pcaps / SAME)
    at = next(n for n, p in enumerate(packets) if n > 100 and len(p.payload) > 500)
    other = bytes([packets[at].payload[0] ^ 1]) + packets[at].payload[1:]
    again = replace(packets[at], ts_ns=packets[at].ts_ns + 1000, payload=packets[at].payload if damaged else other)
    frames = capture_rewriting.build([*packets[: at + 1], again, *packets[at + 1 :]])
    if damaged:  # after its checksum was made
        ts_ns, frame = frames[at + 1]
        frames[at + 1] = ts_ns, frame[: -len(other)] + other
    (tmp_path / "conflict.pcap").write_bytes(capture_rewriting.pcap(frames))
    (finding,) = (f for f in decode(tmp_path / "conflict.pcap")["findings"] if f["rule_id"] == "TCP_CONFLICT")
    assert finding["frame"] == at + 2
    assert f"checksum of the later packet is {'wrong' if damaged else 'correct'}" in finding["detail"]


def test_a_file_that_is_not_a_capture_gives_a_failed_row_only(sample_pcaps: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.pcap").write_bytes(b"")
    (tmp_path / "text.pcap").write_bytes(b"not a capture" * 9)
    rows = decode(tmp_path / "empty.pcap", sample_pcaps / SAME, tmp_path / "text.pcap")
    status = {Path(row["path"]).name: row["status"] for row in rows["captures"]}
    assert status == {"empty.pcap": "failed", "text.pcap": "failed", SAME: "ok"}
    assert len(rows["connections"]) == 1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(filter=ConnectionFilter(host="127.0.0.9")), 0),
        (Settings(filter=ConnectionFilter(host="127.0.0.1")), 2),
        (Settings(filter=ConnectionFilter(port=1935)), 2),
        (Settings(filter=ConnectionFilter(port=1936)), 0),
        (Settings(filter=ConnectionFilter(stream="no such stream")), 0),
    ],
)
def test_filters(sample_pcaps: Path, settings: Settings, expected: int) -> None:
    rows = decode(sample_pcaps / "republish_same_name.pcap", settings=settings)
    assert len(rows["connections"]) == expected
    assert len({row["uid"] for row in rows["messages"]}) == expected


def test_filters_by_uid_stream_and_time(sample_pcaps: Path) -> None:
    path = sample_pcaps / "republish_same_name.pcap"
    every = decode(path)
    first, second = sorted(every["connections"], key=lambda row: row["ts_start"])
    by_uid = decode(path, settings=Settings(filter=ConnectionFilter(uid=second["uid"])))
    assert {row["uid"] for row in by_uid["messages"]} == {second["uid"]}
    by_name = decode(path, settings=Settings(filter=ConnectionFilter(stream=first["stream_names"][0])))
    assert by_name["messages"] == every["messages"]
    since = int(second["ts_start"].timestamp() * 1e6)
    late = decode(path, settings=Settings(filter=ConnectionFilter(since=since)))
    assert [row["uid"] for row in late["connections"]] == [second["uid"]]
    assert min(row["ts_last"] for row in late["messages"]) >= second["ts_start"]


def test_attempts_are_numbered(sample_pcaps: Path) -> None:
    rows = decode(sample_pcaps / "republish_same_name.pcap", settings=redacting())
    first, second = sorted(rows["streams"], key=lambda row: row["ts_start"])
    assert (first["attempt_no"], first["prev_uid"], second["attempt_no"], second["prev_uid"]) == (
        1,
        None,
        2,
        first["uid"],
    )
    assert second["down_ms"] == pytest.approx((second["ts_start"] - first["ts_end"]).total_seconds() * 1000)


def test_bytes_per_second_add_up(sample_pcaps: Path) -> None:
    rows = decode(sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap")
    for connection in rows["connections"]:
        for way in ("c2s", "s2c"):
            seconds = [r for r in rows["intervals"] if (r["uid"], r["direction"]) == (connection["uid"], way)]
            assert sum(r["bytes"] for r in seconds) == connection[f"captured_bytes_{way}"]
            assert sum(r["packets"] for r in seconds) == connection[f"packets_{way}"]
            messages = [m for m in rows["messages"] if (m["uid"], m["direction"]) == (connection["uid"], way)]
            for column, type_id in (("audio_bytes", 8), ("video_bytes", 9)):
                assert sum(r[column] for r in seconds) == sum(m["length"] for m in messages if m["type_id"] == type_id)


@pytest.mark.parametrize("program", ["tshark"], indirect=True)
@pytest.mark.parametrize(
    "name",
    [
        "ffmpeg_publish_bframes_rtmpdump_play.pcap",
        "midstream_publish_default_chunk_context_missing.pcap",  # no SYN: scales unknown
        "one_direction_server_to_client.pcap",  # a SYN-ACK tells its own scale, and nothing is acknowledged
    ],
)
def test_seconds_are_those_of_tshark(sample_pcaps: Path, program: str, name: str) -> None:
    """Packets, bytes, windows and bytes in flight of each second; unknown values are null, not 0 or a raw field."""
    fields = ["frame.time_epoch", "tcp.srcport", "tcp.dstport", "tcp.len", "tcp.flags", "tcp.window_size"]
    fields += ["tcp.window_size_scalefactor", "tcp.analysis.bytes_in_flight"]
    command = [program, "-r", str(sample_pcaps / name), "-T", "fields", *(w for f in fields for w in ("-e", f))]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    theirs: dict[tuple[int, int, int], list[Any]] = {}
    for line in lines:
        epoch, src, dst, length, flags, window, scale, flying = line.split("\t")
        second, bits = int(epoch.partition(".")[0]), int(flags, 16)
        sent = theirs.setdefault((int(src), int(dst), second), [0, 0, None, 0])
        sent[0], sent[1], sent[3] = sent[0] + 1, sent[1] + int(length), max(sent[3], int(flying or 0))
        held_back = theirs.setdefault((int(dst), int(src), second), [0, 0, None, 0])
        if not bits & 4 and (scale != "-1" or bits & 2):
            held_back[2] = min(int(window), held_back[2] or 1 << 40)
    rows = decode(sample_pcaps / name, tables=("connections", "intervals"))
    ends = {r["uid"]: (r["orig_p"], r["resp_p"]) for r in rows["connections"]}
    answered = {(r["uid"], r["direction"]) for r in rows["intervals"] if r["in_flight_max"] is not None}
    assert bool(answered) == ("one_direction" not in name), "without acknowledgements it is unknown, not 0"
    ours = {}
    for row in rows["intervals"]:
        way = ends[row["uid"]][:: 1 if row["direction"] == "c2s" else -1]
        key = (*way, int(row["ts_second"].timestamp()))
        if (row["uid"], row["direction"]) not in answered:
            theirs[key][3] = None
        ours[key] = [row[column] for column in ("packets", "bytes", "window_min", "in_flight_max")]
    assert ours == theirs


def test_no_table_contains_secrets(sample_pcaps: Path) -> None:
    plain = decode(sample_pcaps / "ffmpeg_publish_querystring_metadata.pcap")
    name, _, query = plain["connections"][0]["stream_names"][0].partition("?")
    values = [pair.split("=")[1] for pair in query.split("&")]
    assert name and all(values)
    text = str(decode(sample_pcaps / "ffmpeg_publish_querystring_metadata.pcap", settings=redacting()))
    assert name not in text.replace(str(sample_pcaps), "")
    for value in values:
        assert f"={value}" not in text
    assert plain["connections"][0]["app"] in text


def test_a_connection_with_a_handshake_only(tmp_path: Path) -> None:
    talk = RtmpTalk()
    talk.say(0, b"\x03" + bytes(100)).bye()
    rows = decode(talk.write(tmp_path / "short.pcap"))
    assert [row["rule_id"] for row in rows["findings"] if row["severity"] == "error"] == ["HS_INCOMPLETE"]
    assert not rows["messages"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "ffmpeg_publish_bframes_rtmpdump_play.pcap",
        "lossy_mtu1500_client_side.pcap",
        "capture_gap_lost_packets.pcap",
        "midstream_publish_and_play.pcap",
        "denied_and_unknown_app.pcap",
        "garbage_on_1935.pcap",
        "rtmpe_rtmpdump_rtmpsrv.pcap",
        "p1980_rtmpt_pyrtmp_ffmpeg_publish.pcap",
    ],
)
def test_the_size_of_windows_does_not_matter(sample_pcaps: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Captures are read in windows to bound memory; the tables must not depend on where windows end."""
    whole = decode(sample_pcaps / name, settings=redacting())
    for window_bytes in (2_000, 30_000):
        monkeypatch.setattr(recording, "open_capture", partial(open_capture, window_bytes=window_bytes))
        parts = decode(sample_pcaps / name, settings=redacting())
        assert _columns(parts, without=set()) == _columns(whole, without=set())
        assert _seconds(parts) == _seconds(whole)


def _seconds(rows: dict[str, Rows]) -> Rows:
    return sorted(rows["intervals"], key=lambda row: (row["uid"], row["direction"], row["ts_second"]))


def test_standard_input_is_a_file_like_any_other(sample_pcaps: Path) -> None:
    path = sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap"
    command = [sys.executable, "-m", "rtmp_spark.cli", "inspect", "-", "--table", "messages", "--json"]
    with path.open("rb") as file:
        piped = subprocess.run(command, stdin=file, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(piped) == len(decode(path, tables=("messages",))["messages"])
