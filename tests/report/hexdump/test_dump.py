"""Hex dumps: `walk` finds the chunk headers of every message in real captures."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest
from kit.decoded_tables import RtmpTalk

from rtmp_spark.codec.errors import UserError
from rtmp_spark.codec.message import Message
from rtmp_spark.report.connection_view import ConnectionView
from rtmp_spark.report.hexdump import dump
from rtmp_spark.report.hexdump.field_names import fields_of
from rtmp_spark.report.hexdump.stream_bytes import read_excerpt
from rtmp_spark.report.view import read_captures

CAPTURES = (
    "ffmpeg_publish_bframes_rtmpdump_play.pcap",
    "gst_rtmpsink_librtmp_publish_h264_mp3.pcap",
    "p1936_extended_timestamps_multichunk.pcap",
    "lossy_mtu1500_server_side.pcap",
    "p1950_enhanced_multitrack_audio_libav62_nms.pcap",
    "ipv6_ffmpeg_publish.pcap",
)


@pytest.mark.parametrize("name", CAPTURES)
def test_every_message_is_found_in_the_stream_bytes(name: str, sample_pcaps: Path) -> None:
    path = sample_pcaps / name
    for view in read_captures(path).connections:
        client, server = (view.orig_h, view.orig_p), (view.resp_h, view.resp_p)
        for direction in ("c2s", "s2c"):
            rows = [r for r in view._messages(direction) if r["status"] == "complete"]
            excerpt = read_excerpt([path], client, server, direction, view.ts_start, 0, 1 << 40)
            data = excerpt.data
            for row in rows:
                start = dump.clean_start(rows, row["msg_no"])
                pieces = dump.walk(data[start:], start, rows, row["msg_no"])
                payload = b"".join(piece.data for piece in pieces if piece.kind == dump.PAYLOAD)
                assert crc32(payload) == row["payload_crc32"]
                assert sum(piece.kind == dump.PAYLOAD for piece in pieces) == row["chunks"]
                assert all(data[p.offset : p.offset + len(p.data)] == p.data for p in pieces)


@pytest.fixture(scope="module")
def publisher(sample_pcaps: Path) -> ConnectionView:
    return read_captures(sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap").connections[0]


def test_a_command_with_a_chunk_header_inside(publisher: ConnectionView) -> None:
    """connect has 139 bytes and the chunk size is 128, so 0xC3 follows after 128 bytes (RTMP 1.0 5.3.1)."""
    dump = str(publisher.hexdump(0))
    lines = dump.splitlines()
    assert "message length 139" in dump
    header = next(line for line in lines if "fmt 3, csid 3" in line)
    assert header.split()[2] == "c3"
    first = next(line for line in lines if '"connect"' in line)
    name_at = int(first.split()[0], 16)
    assert int(header.split()[0], 16) == name_at - 3 + 128
    assert '"flashVer":' in dump
    assert "packet 12" in dump


def test_credentials_are_masked_unless_secrets_are_kept(publisher: ConnectionView) -> None:
    rows = publisher.table("commands").to_pylist()
    publish = next(r["msg_no"] for r in rows if r["name"] == "publish")
    assert "d02" not in str(publisher.hexdump(publish))
    assert "credential" in str(publisher.hexdump(publish))
    assert "64 30" in str(publisher.hexdump(publish, keep_secrets=True))  # d0..


def test_a_handshake_part(publisher: ConnectionView) -> None:
    dump = str(publisher.hexdump("C1"))
    assert "digest (digest1)" in dump  # ffmpeg signs with the second scheme
    assert dump.splitlines()[0] == "C1, 1536 bytes"
    assert "version 3" in str(publisher.hexdump("S0"))
    assert "copy of the peer's random bytes" in str(publisher.hexdump("c2"))


def test_a_dump_of_something_missing_is_a_user_error(publisher: ConnectionView, sample_pcaps: Path) -> None:
    with pytest.raises(UserError, match="no message 9999"):
        publisher.hexdump(9999)
    with pytest.raises(UserError, match="not a part"):
        publisher.hexdump("C3")
    middle = read_captures(sample_pcaps / "midstream_publish_and_play.pcap").connections[0]
    with pytest.raises(UserError, match="handshake was not recorded"):
        middle.hexdump("C1")


def test_chunks_of_other_messages_are_one_line_each(tmp_path: Path) -> None:
    talk = RtmpTalk().handshake()
    talk.command(0, "connect", 1, {"app": "a"})
    talk.command(1, "_result", 1, None, {"code": "NetConnection.Connect.Success"})
    video_first = [Message(6, 0, 9, 1, b"\x27\x01" + bytes(398)), Message(4, 0, 8, 1, b"\xaf\x01" + bytes(298))]
    talk.say(0, talk.encoders[0].send_interleaved(video_first)).bye()
    view = read_captures(talk.write(tmp_path / "mixed.pcap")).connections[0]
    video = next(r for r in view._messages("c2s") if r["type_id"] == 9)
    dump = str(view.hexdump(video["msg_no"]))
    assert "chunk of csid 4: audio message" in dump
    assert dump.count("chunk header: fmt 3, csid 6") == 3  # 400 bytes in chunks of 128


def test_fields_of_truncated_values_stay_inside_the_payload() -> None:
    whole = bytes.fromhex("020007636f6e6e656374003ff00000000000000300036170700200046c697665000009")
    for end in range(len(whole)):
        for field in fields_of(20, whole[:end]):
            assert field.end <= end
    assert [f.label.strip() for f in fields_of(20, whole)][-2:] == ['"live"', "end of object"]
