"""`extract` gives what a real server recorded or a real player received."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from kit import hostile_captures as hostile
from kit.capture_rewriting import Talk, build, pcap
from kit.decoded_tables import RtmpTalk, Tag, decode, recorded_tags

from rtmp_spark.analysis import flv_extraction
from rtmp_spark.analysis.flv_extraction import FlvTrack
from rtmp_spark.cli import main
from rtmp_spark.codec.flv import parse_file
from rtmp_spark.install_command import install_command

# Captures with their records. In these the recorder or the network lost bytes; all else must be there.
LOSSY = {"publisher_killed_midstream"}
RECORDS = [
    ("ffmpeg_publish_h264_aac.pcap", "server_record"),
    ("ffmpeg_publish_bframes_rtmpdump_play.pcap", "server_record"),
    ("ffmpeg_publish_bframes_rtmpdump_play.pcap", "received_by_rtmpdump"),
    ("ffmpeg_publish_flashsv_adpcm.pcap", "server_record"),
    ("ffmpeg_publish_g711mu_audio_only.pcap", "server_record"),
    ("ffmpeg_publish_querystring_metadata.pcap", "server_record"),
    ("extended_timestamps_ffmpeg_publish_rtmpdump_play.pcap", "server_record"),
    ("p1936_extended_timestamps_multichunk.pcap", "server_record"),
    ("p1936_extended_timestamps_multichunk.pcap", "received_by_rtmpdump"),
    ("gst_rtmp2sink_publish_h264_aac.pcap", "server_record"),
    ("gst_rtmpsink_librtmp_publish_h264_mp3.pcap", "server_record"),
    ("nginx_vod_rtmpdump_play.pcap", "received_by_rtmpdump"),
    ("lossy_mtu1500_client_side.pcap", "server_record"),
    ("lossy_mtu1500_server_side.pcap", "received_by_rtmpdump"),
    ("publisher_killed_midstream.pcap", "server_record"),
    ("p1955_resolution_change_ffmpeg_publish.pcap", "server_record"),
    ("republish_same_name.pcap", "server_record_0"),
    ("republish_same_name.pcap", "server_record_1"),
    ("p1950_enhanced_av1_aac_ffmpeg7_nms.pcap", "server_record"),
    ("p1950_enhanced_vp9_opus_libav62_nms.pcap", "server_record"),
    ("p1950_enhanced_multitrack_audio_libav62_nms.pcap", "server_record"),
    ("p1950_enhanced_hevc_aac_ffmpeg7_nms_play.pcap", "server_record"),
]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTMP_SPARK_REDACT_KEY", "test")


def extracted(path: Path) -> list[Tag]:
    file = parse_file(path.read_bytes())
    assert not file.violations
    return [
        Tag(t.type_id, t.timestamp, len(t.payload), hashlib.sha256(t.payload).hexdigest(), t.payload[:5].hex())
        for t in file.tags
    ]


def coded(tags: list[Tag], type_id: int) -> list[Tag]:
    return [tag for tag in tags if tag.is_media and tag.type_id == type_id]


@pytest.mark.parametrize(("name", "record"), RECORDS)
def test_the_extracted_stream_equals_the_recording(
    sample_pcaps: Path, oracle: Path, tmp_path: Path, name: str, record: str
) -> None:
    assert main(["extract", str(sample_pcaps / name), "-o", f"{tmp_path}/"]) == 0
    wanted = recorded_tags(oracle / f"{name.split('.pcap')[0]}.{record}.flvtags.tsv")
    candidates = [extracted(path) for path in sorted(tmp_path.glob("*.flv"))]
    assert any(_holds(tags, wanted, steady="received" not in record) for tags in candidates)


def _holds(tags: list[Tag], wanted: list[Tag], *, steady: bool) -> bool:
    """True if every coded frame is there in order, all shifted by one offset (players may rebase timestamps)."""
    shifts = set()
    for type_id in (8, 9):
        ours = iter(coded(tags, type_id))
        for tag in coded(wanted, type_id):
            found = next((own for own in ours if own.sha256 == tag.sha256), None)
            if found is None:
                return False
            shifts.add(found.timestamp - tag.timestamp)
    return len(shifts) == 1 or not steady


def test_set_data_frame_is_removed_from_metadata(sample_pcaps: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.flv"
    assert main(["extract", str(sample_pcaps / "ffmpeg_publish_h264_aac.pcap"), "-o", str(target)]) == 0
    first = parse_file(target.read_bytes()).tags[0]
    assert first.type_id == 18 and first.payload.startswith(b"\x02\x00\x0aonMetaData")


@pytest.mark.parametrize("program", ["ffprobe"], indirect=True)
@pytest.mark.parametrize("name", ["ffmpeg_publish_h264_aac.pcap", "capture_gap_lost_packets.pcap"])
def test_ffmpeg_decodes_the_extracted_stream(sample_pcaps: Path, tmp_path: Path, program: str, name: str) -> None:
    target = tmp_path / "out.flv"
    assert main(["extract", str(sample_pcaps / name), "-o", str(target)]) == 0
    command = [
        program,
        "-v",
        "error",
        "-count_packets",
        "-show_entries",
        "stream=codec_name,nb_read_packets",
        "-of",
        "csv=p=0",
    ]
    lines = subprocess.run([*command, str(target)], capture_output=True, text=True, check=True).stdout.split()
    counted = dict(line.split(",") for line in lines)
    own = [t for t in extracted(target) if t.is_media]
    for codec, type_id in (("aac", 8), ("h264", 9)):
        coded_frames = [t for t in own if t.type_id == type_id and t.head[2:4] == "01"]
        assert int(counted[codec]) == len(coded_frames)


def test_one_of_several_must_be_chosen(sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap"
    assert main(["extract", str(path), "-o", str(tmp_path / "x.flv")]) == 2
    error = capsys.readouterr().err
    uids = [row["uid"] for row in decode(path, tables=("connections",))["connections"]]
    assert all(uid in error for uid in uids) and not (tmp_path / "x.flv").exists()
    assert main(["extract", str(path), "-o", str(tmp_path / "x.flv"), "--uid", uids[0]]) == 0
    assert main(["extract", str(path), "-o", f"{tmp_path}/all/"]) == 0
    names = {p.name for p in (tmp_path / "all").iterdir()}
    assert len(names) == 2 and {name.split("-", 1)[0] for name in names} == set(uids)
    assert {name.split("-", 1)[1] for name in names} == {"1-publish.flv", "1-play.flv"}


def test_a_long_list_of_streams_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = tmp_path / "many.pcap"
    capture.write_bytes(hostile.FAMILIES["many_played_streams"].make(30))
    assert main(["extract", str(capture), "-o", str(tmp_path / "one.flv")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "rtmp-spark: 30 streams match:"
    assert lines[21:] == ["  ... and 10 more", "Choose one, or give a directory: -o DIR/"]


def test_ended_streams_do_not_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = tmp_path / "many.pcap"
    capture.write_bytes(hostile.FAMILIES["many_played_streams"].make(30))
    assert main(["extract", str(capture), "-o", f"{tmp_path}/kept/"]) == 0
    flushed: list[FlvTrack] = []
    flush = FlvTrack.flush
    monkeypatch.setattr(FlvTrack, "flush", lambda track: (flushed.append(track), flush(track)))
    monkeypatch.setattr(flv_extraction, "_KEPT_BYTES", 0)
    assert main(["extract", str(capture), "-o", f"{tmp_path}/spilled/"]) == 0
    assert len(flushed) == 30
    kept, spilled = ({p.name: p.read_bytes() for p in (tmp_path / d).iterdir()} for d in ("kept", "spilled"))
    assert len(kept) == 30 and kept == spilled


def test_a_stream_is_found_by_its_name_and_by_its_hash(sample_pcaps: Path, tmp_path: Path) -> None:
    path = sample_pcaps / "ffmpeg_publish_querystring_metadata.pcap"
    plain = decode(path, tables=("streams",))["streams"][0]["name"]
    from rtmp_spark.redact import Redactor

    for number, name in enumerate((plain, plain.split("?")[0], Redactor(b"test").stream_name(plain))):
        target = tmp_path / f"{number}.flv"
        assert main(["extract", str(path), "--stream", name, "-o", str(target)]) == 0
        assert target.stat().st_size > 1000
    assert main(["extract", str(path), "--stream", "another", "-o", str(tmp_path / "none.flv")]) == 2


def test_incomplete_messages_are_left_out_and_counted(
    sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "gap.flv"
    assert main(["extract", str(sample_pcaps / "capture_gap_lost_packets.pcap"), "-o", str(target)]) == 0
    assert "left out" in capsys.readouterr().out
    whole = tmp_path / "full.flv"
    assert main(["extract", str(sample_pcaps / "capture_gap_full.pcap"), "-o", str(whole)]) == 0
    ours, full = ({t.sha256 for t in extracted(path) if t.is_media} for path in (target, whole))
    assert ours < full


def test_no_media_and_no_rtmp(sample_pcaps: Path, tmp_path: Path) -> None:
    for name in ("garbage_on_1935.pcap", "denied_and_unknown_app.pcap", "rtmpe_rtmpdump_rtmpsrv.pcap"):
        assert main(["extract", str(sample_pcaps / name), "-o", f"{tmp_path}/"]) == 5


def test_media_with_incomplete_messages_only(
    sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Packets were truncated to 96 bytes, so no media message is complete."""
    assert main(["extract", str(sample_pcaps / "snaplen96_ffmpeg_publish.pcap"), "-o", str(tmp_path / "x.flv")]) == 5
    assert "every media message is incomplete" in capsys.readouterr().err


def test_stream_names_are_quoted_and_cannot_control_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packets = []
    for number, name in enumerate(("two words", "red\x1b[31m")):
        talk = RtmpTalk(Talk(client=("10.0.0.1", 40000 + number))).handshake()
        talk.command(0, "connect", 1, {"app": "live"}).command(1, "_result", 1, {}, {"level": "status"})
        talk.command(0, "createStream", 2, None).command(1, "_result", 2, None, 1)
        talk.command(0, "publish", 3, None, name, "live", stream_id=1)
        packets += talk.send(0, 8, b"\x2f" + bytes(20), stream_id=1).bye().talk.packets
    path = tmp_path / "two.pcap"
    path.write_bytes(pcap(build(packets)))
    assert main(["extract", str(path), "--keep-secrets", "-o", str(tmp_path / "one.flv")]) == 2
    listed = capsys.readouterr().err
    assert " --stream 'two words'  (publish, 1 tags)\n" in listed and " --stream 'red.[31m'  (" in listed
    assert main(["extract", str(path), "--keep-secrets", "-o", f"{tmp_path}/"]) == 0
    written = capsys.readouterr().out
    assert ": publish two words, 1 tags" in written and ": publish red.[31m, 1 tags" in written


def frames(path: Path) -> list[bytes]:
    return [tag.payload for tag in parse_file(path.read_bytes()).tags if tag.type_id == 8]


def both(tmp_path: Path, talk: RtmpTalk, role: str) -> None:
    """Each name has its own file and can be chosen."""
    path = talk.bye().write(tmp_path / "a.pcap")
    for name, sent in (("first", [b"\x2fa", b"\x2fb"]), ("second", [b"\x2fc"])):
        assert main(["extract", str(path), "--stream", name, "-o", str(tmp_path / "one.flv")]) == 0
        assert frames(tmp_path / "one.flv") == sent
    assert main(["extract", str(path), "-o", str(tmp_path / "one.flv")]) == 2
    assert main(["extract", str(path), "-o", f"{tmp_path}/all/"]) == 0
    names = sorted(p.name.split("-", 1)[1] for p in (tmp_path / "all").iterdir())
    assert names == [f"1-{role}-2.flv", f"1-{role}.flv"]


def test_two_names_published_one_after_the_other_on_one_stream_id(tmp_path: Path) -> None:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    for name, sent in (("first", (b"\x2fa",)), ("first", (b"\x2fb",)), ("second", (b"\x2fc",))):
        talk.command(0, "publish", 0, None, name, "live", stream_id=1)
        for payload in sent:
            talk.send(0, 8, payload, stream_id=1)
        talk.command(0, "publish", 0, None, False, stream_id=1)  # it stops, and what follows has a new name
    both(tmp_path, talk, "publish")


def test_two_names_played_one_after_the_other_on_one_stream_id(tmp_path: Path) -> None:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "vod"})
    for name, sent in (("first", (b"\x2fa", b"\x2fb")), ("second", (b"\x2fc",))):
        talk.command(0, "play", 0, None, name, stream_id=1)
        talk.command(1, "onStatus", 0, None, {"code": "NetStream.Play.Start"}, stream_id=1)
        for payload in sent:
            talk.send(1, 8, payload, stream_id=1)
    both(tmp_path, talk, "play")


def test_a_player_that_seeks_gets_one_file(tmp_path: Path) -> None:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "vod"})
    talk.command(0, "play", 0, None, "first", stream_id=1)
    for payload in (b"\x2fa", b"\x2fb"):
        talk.command(1, "onStatus", 0, None, {"code": "NetStream.Play.Start"}, stream_id=1)
        talk.send(1, 8, payload, stream_id=1).command(0, "seek", 0, None, 1000, stream_id=1)
    path = talk.bye().write(tmp_path / "a.pcap")
    assert main(["extract", str(path), "--stream", "first", "-o", str(tmp_path / "one.flv")]) == 0
    assert frames(tmp_path / "one.flv") == [b"\x2fa", b"\x2fb"]


def test_media_on_another_stream_id_has_the_requested_name(sample_pcaps: Path, tmp_path: Path) -> None:
    """Node-Media-Server sends on stream 0 the media that was requested on stream 1."""
    path = sample_pcaps / "p1950_enhanced_hevc_aac_ffmpeg7_nms_play.pcap"
    (name,) = {row["name"] for row in decode(path, tables=("streams",))["streams"]}
    assert main(["extract", str(path), "--stream", name, "-o", f"{tmp_path}/all/"]) == 0
    assert {p.name.split("-", 1)[1] for p in (tmp_path / "all").iterdir()} == {"1-publish.flv", "0-play.flv"}


def test_a_seek_after_a_second_play_puts_no_media_under_a_wrong_name(tmp_path: Path) -> None:
    """There are more starts than names, so starts and names cannot be matched."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "vod"})
    for name, arguments, frame in (("play", ("a",), b"\x2fa"), ("play", ("b",), b"\x2fb"), ("seek", (1000,), b"\x2fc")):
        talk.command(0, name, 0, None, *arguments, stream_id=1)
        talk.command(1, "onStatus", 0, None, {"code": "NetStream.Play.Start"}, stream_id=1)
        talk.send(1, 8, frame, stream_id=1)
    path = talk.bye().write(tmp_path / "x.pcap")
    for name in ("a", "b"):
        target = tmp_path / f"{name}.flv"
        assert main(["extract", str(path), "--stream", name, "-o", str(target), "--keep-secrets"]) == 0
        assert [tag.payload for tag in parse_file(target.read_bytes()).tags] == [b"\x2fa", b"\x2fb", b"\x2fc"]


def test_a_dash_writes_the_stream_to_standard_output(sample_pcaps: Path, tmp_path: Path) -> None:
    capture = str(sample_pcaps / "ffmpeg_publish_h264_aac.pcap")
    assert main(["extract", capture, "-o", str(tmp_path / "out.flv")]) == 0
    command = [sys.executable, "-m", "rtmp_spark.cli", "extract", capture, "-o", "-"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
    assert done.stdout == (tmp_path / "out.flv").read_bytes()
    assert done.stderr.startswith(b"standard output: publish ")
    assert [path.name for path in tmp_path.iterdir()] == ["out.flv"]


def test_a_dash_is_refused_on_a_terminal(
    sample_pcaps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["extract", str(sample_pcaps / "ffmpeg_publish_h264_aac.pcap"), "-o", "-"]) == 2
    assert capsys.readouterr() == (
        "",
        "rtmp-spark: FLV cannot be shown on a terminal. Name a file, or write to a pipe: ... -o - | ffprobe -\n",
    )


@pytest.mark.parametrize("program", ["ffprobe"], indirect=True)
@pytest.mark.parametrize(
    ("name", "codecs"),
    [
        ("ffmpeg_publish_h264_aac.pcap", {"h264", "aac"}),
        ("gst_rtmpsink_librtmp_publish_h264_mp3.pcap", {"h264", "mp3"}),
    ],
)
def test_an_mp4_file_has_the_packets_of_the_flv_file(
    sample_pcaps: Path, tmp_path: Path, program: str, name: str, codecs: set[str]
) -> None:
    pytest.importorskip("av", reason="PyAV is not installed")
    packets = {}
    for suffix in ("flv", "mp4"):
        target = tmp_path / f"out.{suffix}"
        assert main(["extract", str(sample_pcaps / name), "-o", str(target)]) == 0
        entries = ["-show_entries", "stream=codec_name:packet=codec_type,size,flags", "-of", "csv=p=0"]
        lines = subprocess.run([program, "-v", "error", *entries, target], capture_output=True, text=True, check=True)
        packets[suffix] = sorted(line for line in lines.stdout.split() if line.startswith(("audio,", "video,")))
        codecs_found = {line for line in lines.stdout.split() if "," not in line}
        assert codecs_found - {"text"} == codecs  # metadata and captions stay in FLV
    assert (tmp_path / "out.mp4").read_bytes()[4:8] == b"ftyp"
    assert packets["mp4"] == packets["flv"] != []


def test_mp4_needs_pyav(
    sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)  # so that importing it fails
    target = tmp_path / "out.mp4"
    assert main(["extract", str(sample_pcaps / "ffmpeg_publish_h264_aac.pcap"), "-o", str(target)]) == 3
    wanted = f"rtmp-spark: Writing MP4 needs PyAV, which is not installed. Install it: {install_command('av')}\n"
    assert capsys.readouterr() == ("", wanted)
    assert list(tmp_path.iterdir()) == []


def test_a_codec_that_mp4_cannot_hold(sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("av", reason="PyAV is not installed")
    target = tmp_path / "out.mp4"
    assert main(["extract", str(sample_pcaps / "ffmpeg_publish_flashsv_adpcm.pcap"), "-o", str(target)]) == 2
    assert capsys.readouterr().err == "rtmp-spark: MP4 cannot hold flashsv. Write FLV instead: -o out.flv\n"
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_suffix_is_refused(sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = str(sample_pcaps / "ffmpeg_publish_h264_aac.pcap")
    assert main(["extract", capture, "-o", str(tmp_path / "out.mkv")]) == 2
    assert capsys.readouterr().err == "rtmp-spark: Unknown output format .mkv. Use .flv or .mp4.\n"
    assert list(tmp_path.iterdir()) == []
    assert main(["extract", capture, "-o", str(tmp_path / "OUT.FLV")]) == 0


def test_mp4_keeps_frames_whose_timestamps_do_not_increase(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    av = pytest.importorskip("av", reason="PyAV is not installed")
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(0, "publish", 0, None, "cam", "live", stream_id=1)
    talk.send(0, 8, bytes.fromhex("af001210"), stream_id=1)
    for timestamp in (0, 23, 23, 10, 70):
        talk.send(0, 8, bytes.fromhex("af01211004608c1c"), stream_id=1, timestamp=timestamp)
    path = talk.bye().write(tmp_path / "a.pcap")
    assert main(["extract", str(path), "-o", str(tmp_path / "out.mp4")]) == 0
    assert capsys.readouterr().out.endswith(", 6 tags, 2 timestamps changed because they did not increase\n")
    with av.open(str(tmp_path / "out.mp4")) as file:
        times = [round(float(packet.dts * packet.time_base) * 1000) for packet in file.demux() if packet.size]
    assert times == [0, 23, 24, 25, 70]
