"""Connections built packet by packet: roles, answers to requests, streams, and how the connection ended."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.capture_rewriting import ACK, FIN, RST, Talk
from kit.decoded_tables import Rows, RtmpTalk, decode

from rtmp_spark.codec.message import Message
from rtmp_spark.conversation.fact_order import FactOrder

SUCCESS = {"level": "status", "code": "NetConnection.Connect.Success", "description": "ok"}


def connected(talk: RtmpTalk, version: int = 3) -> RtmpTalk:
    talk.handshake(version).command(0, "connect", 1, {"app": "live", "tcUrl": "rtmp://h/live", "flashVer": "X 1"})
    return talk.wait(0.25).command(1, "_result", 1, {"fmsVer": "FMS/3,0"}, SUCCESS)


def publishing(talk: RtmpTalk) -> RtmpTalk:
    connected(talk).command(0, "createStream", 2, None).command(1, "_result", 2, None, 1)
    talk.command(0, "publish", 3, None, "show", "live", stream_id=1)
    return talk.command(1, "onStatus", 0, None, {"level": "status", "code": "NetStream.Publish.Start"}, stream_id=1)


def audio(talk: RtmpTalk, count: int = 3) -> RtmpTalk:
    for number in range(count):
        talk.send(0, 8, b"\x2f" + bytes(20), stream_id=1, timestamp=number * 26)
    return talk


def codes(rows: dict[str, Rows]) -> set[str]:
    return {row["rule_id"] for row in rows["findings"] if row["severity"] != "info"}


def test_answers_are_matched_to_their_commands(tmp_path: Path) -> None:
    rows = decode(publishing(RtmpTalk()).bye().write(tmp_path / "a.pcap"))
    commands = sorted(rows["commands"], key=lambda row: row["ts"])
    asked = {(row["direction"], row["msg_no"]): row["name"] for row in commands}
    answers = {
        (row["name"], row["msg_no"]): asked["c2s", row["response_to_msg_no"]]
        for row in commands
        if row["response_ms"] is not None
    }
    assert answers == {("_result", 0): "connect", ("_result", 1): "createStream", ("onStatus", 2): "publish"}
    (connect,) = [row for row in commands if row["response_to_msg_no"] == 0]
    assert 250 <= connect["response_ms"] <= 254, "0.25 s and the packets between"
    assert (connect["level"], connect["code"], connect["description"]) == tuple(SUCCESS.values())
    (connection,) = rows["connections"]
    assert (connection["app"], connection["flash_ver"], connection["server_ver"]) == ("live", "X 1", "FMS/3,0")
    (stream,) = rows["streams"]
    assert (stream["name"], stream["role"], stream["stream_id"], stream["app"]) == ("show", "publish", 1, "live")
    assert json.loads(commands[0]["args"])[0]["tcUrl"] == "rtmp://h/live"


def test_a_play_is_answered_by_reset_and_start(tmp_path: Path) -> None:
    talk = connected(RtmpTalk()).command(0, "createStream", 2, None).command(1, "_result", 2, None, 1)
    talk.command(0, "play", 3, None, "show", stream_id=1)
    for code in ("NetStream.Play.Reset", "NetStream.Play.Start", "NetStream.Play.UnpublishNotify"):
        talk.command(1, "onStatus", 0, None, {"level": "status", "code": code}, stream_id=1)
    rows = decode(talk.bye().write(tmp_path / "a.pcap"))
    (play,) = [row["msg_no"] for row in rows["commands"] if row["name"] == "play"]
    answers = {row["code"]: row["response_to_msg_no"] for row in rows["commands"] if row["name"] == "onStatus"}
    assert answers == {
        "NetStream.Play.Reset": play,
        "NetStream.Play.Start": play,
        "NetStream.Play.UnpublishNotify": None,
    }


def test_a_publisher_that_does_not_wait_for_its_answer(tmp_path: Path) -> None:
    """The command and the first frames are one packet."""
    talk = connected(RtmpTalk()).command(0, "createStream", 2, None).command(1, "_result", 2, None, 1)
    talk.command(0, "publish", 3, None, "show", "live", stream_id=1)
    audio(talk, 1)
    command, frame = talk.talk.packets[-4], talk.talk.packets[-2]
    talk.talk.packets[-4:] = [replace(command, payload=command.payload + frame.payload), talk.talk.packets[-1]]
    audio(talk, 3)
    (stream,) = decode(talk.bye().write(tmp_path / "a.pcap"))["streams"]
    assert (stream["name"], stream["audio_messages"]) == ("show", 4)


@pytest.mark.parametrize("goodbye", ["publish", "closeStream", "deleteStream"])
def test_one_packet_with_the_end_of_one_stream_and_the_beginning_of_another(tmp_path: Path, goodbye: str) -> None:
    talk = publishing(RtmpTalk())
    audio(talk, 3)
    began = len(talk.talk.packets)
    audio(talk, 2)
    if goodbye == "deleteStream":
        talk.command(0, goodbye, 0, None, 1)
    else:
        talk.command(0, goodbye, 0, None, *([False] if goodbye == "publish" else []), stream_id=1)
    talk.command(0, "publish", 4, None, "another", "live", stream_id=1)
    audio(talk, 4)
    said = talk.talk.packets[began::2]
    joined = replace(said[0], payload=b"".join(packet.payload for packet in said))
    talk.talk.packets[began:] = [joined, talk.talk.packets[-1]]
    rows = decode(talk.bye().write(tmp_path / "a.pcap"))
    assert [(row["name"], row["audio_messages"]) for row in rows["streams"]] == [("show", 5), ("another", 4)]


class Moved(list[Any]):
    """Counts the elements that are moved when the first ones are deleted."""

    elements = 0

    def __delitem__(self, index: Any) -> None:
        Moved.elements += len(self)
        super().__delitem__(index)


def test_the_work_for_pings_between_media_of_one_packet_is_linear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts moved rows, not seconds."""
    begin = FactOrder.__init__

    def counted(self: FactOrder) -> None:
        begin(self)
        self._media, self._media_at = [Moved(), Moved()], [Moved(), Moved()]

    monkeypatch.setattr(FactOrder, "__init__", counted)
    monkeypatch.setattr(Moved, "elements", 0)
    count = 1000
    talk = publishing(RtmpTalk())
    sent = b"".join(
        talk.encoders[0].send(Message(*message))
        for n in range(count)
        for message in ((4, 20 * n, 8, 1, b"\x2f\xff\xfb"), (2, 20 * n, 4, 0, struct.pack(">HI", 7, n)))
    )
    rows = decode(talk.say(0, sent).bye().write(tmp_path / "pings.pcap"))
    assert len(rows["media_tags"]) == count and rows["streams"][0]["audio_messages"] == count
    assert count <= Moved.elements < 20 * count


def test_an_answer_that_was_lost_is_not_late(tmp_path: Path) -> None:
    talk = connected(RtmpTalk()).command(0, "createStream", 2, None).command(1, "_result", 2, None, 1)
    talk.command(0, "publish", 3, None, "show", "live", stream_id=1)
    talk.command(1, "onStatus", 0, None, {"level": "status", "code": "NetStream.Publish.Start"}, stream_id=1)
    del talk.talk.packets[-2]
    audio(talk).wait(6)
    talk.command(1, "onStatus", 0, None, {"level": "status", "code": "NetStream.Unpublish.Success"}, stream_id=1)
    rows = decode(talk.bye().write(tmp_path / "a.pcap"))
    assert "TCP_GAP" in codes(rows) and "CMD_NO_RESPONSE" not in codes(rows)


def test_missing_bytes_shown_only_by_a_reset_are_a_gap(tmp_path: Path) -> None:
    """A reset that answers a segment has the segment's acknowledgement number as its sequence number."""
    talk = audio(publishing(RtmpTalk()))
    talk.say(0, bytes.fromhex("06 000000 000400 09 01000000"))
    talk.talk.seq[0] += 3000
    talk.talk.add(0, RST, ack=0)
    rows = decode(talk.write(tmp_path / "a.pcap"))
    (gap,) = [row for row in rows["findings"] if row["rule_id"] == "TCP_GAP"]
    assert (gap["direction"], gap["at_fault"]) == ("c2s", "capture") and gap["detail"].startswith("3000 bytes")
    assert "MSG_TRUNCATED" not in codes(rows)


def test_a_command_without_an_answer_is_reported(tmp_path: Path) -> None:
    talk = connected(RtmpTalk()).command(0, "createStream", 2, None).wait(6).bye()
    rows = decode(talk.write(tmp_path / "a.pcap"))
    (finding,) = [row for row in rows["findings"] if row["rule_id"] == "CMD_NO_RESPONSE"]
    assert finding["at_fault"] == "server" and "createStream" in finding["detail"]
    assert [
        row["name"] for row in rows["commands"] if row["msg_no"] == finding["msg_no"] and row["direction"] == "c2s"
    ] == ["createStream"]


def test_a_refusal_is_reported_once_and_ends_the_connection(tmp_path: Path) -> None:
    talk = connected(RtmpTalk()).command(0, "createStream", 2, None).command(1, "_result", 2, None, 1)
    talk.command(0, "publish", 3, None, "show", "live", stream_id=1)
    status = {"level": "error", "code": "NetStream.Publish.Denied", "description": "show: not you"}
    rows = decode(talk.command(1, "onStatus", 0, None, status, stream_id=1).bye(1).write(tmp_path / "a.pcap"))
    (finding,) = [row for row in rows["findings"] if row["rule_id"] == "CMD_REFUSED"]
    assert "NetStream.Publish.Denied" in finding["detail"] and finding["severity"] == "error"
    assert rows["connections"][0]["close_cause"] == "refused" and rows["connections"][0]["closed_by"] == "server"


def test_a_second_publisher_is_reported_as_bad_name_only(tmp_path: Path) -> None:
    talk = connected(RtmpTalk()).command(0, "createStream", 2, None).command(1, "_result", 2, None, 1)
    talk.command(0, "publish", 3, None, "show", "live", stream_id=1)
    status = {"level": "error", "code": "NetStream.Publish.BadName"}
    rows = decode(talk.command(1, "onStatus", 0, None, status, stream_id=1).bye(1).write(tmp_path / "a.pcap"))
    assert "SESSION_BAD_NAME" in codes(rows) and "CMD_REFUSED" not in codes(rows)


def _teardown(talk: RtmpTalk) -> None:
    talk.command(0, "deleteStream", 4, None, 1).bye()


def _vanish(talk: RtmpTalk) -> None:
    talk.bye()


def _reset(talk: RtmpTalk) -> None:
    talk.talk.add(0, RST | ACK)


def _timeout(talk: RtmpTalk) -> None:
    talk.wait(30).bye(1)


def _timeout_of_media(talk: RtmpTalk) -> None:
    """The encoder hangs, and the client continues to answer pings."""
    for _ in range(4):
        talk.wait(2).send(1, 4, b"\0\6\0\0\0\1").send(0, 4, b"\0\7\0\0\0\1")
    talk.bye(1)


def _timeout_of_a_frozen_encoder(talk: RtmpTalk) -> None:
    """nginx-rtmp with `drop_idle_publisher 4s`, a little less after the last frame."""
    talk.wait(3.9).bye(1)


def _close_is_answered_late(talk: RtmpTalk) -> None:
    talk.talk.add(1, FIN | ACK)
    talk.talk.seq[1] += 1
    talk.wait(30).talk.add(0, ACK | FIN)


def _too_late(talk: RtmpTalk) -> None:
    """The server closes; only then the client sends its teardown, which is answered with a reset."""
    talk.talk.add(1, FIN | ACK)
    talk.command(0, "deleteStream", 4, None, 1).talk.add(1, RST)


def _server_leaves(talk: RtmpTalk) -> None:
    """As `ffmpeg -listen 1` does: the server is the publisher."""
    talk.command(1, "FCUnpublish", 1, None, "show").command(1, "deleteStream", 2, None, 0).bye(1)


def _open(talk: RtmpTalk) -> None:
    pass


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (_teardown, ("teardown", "client", "fin")),
        (_vanish, ("peer_vanished", "client", "fin")),
        (_reset, ("peer_vanished", "client", "rst")),
        (_timeout, ("idle_timeout", "server", "fin")),
        (_timeout_of_media, ("idle_timeout", "server", "fin")),
        (_timeout_of_a_frozen_encoder, ("idle_timeout", "server", "fin")),
        (_close_is_answered_late, ("unknown", "server", "fin")),
        (_too_late, ("unknown", "server", "fin")),
        (_server_leaves, ("teardown", "server", "fin")),
        (_open, ("capture_ended", None, "open")),
    ],
)
def test_how_it_ended(tmp_path: Path, end: Callable[[RtmpTalk], None], expected: tuple[Any, ...]) -> None:
    talk = audio(publishing(RtmpTalk()))
    end(talk)
    rows = decode(talk.write(tmp_path / "a.pcap"))
    (connection,) = rows["connections"]
    assert (connection["close_cause"], connection["closed_by"], connection["close_kind"]) == expected
    assert ("TCP_RESET" in codes(rows)) == (end is _reset)
    (end,) = [row for row in rows["findings"] if row["rule_id"] == "SESSION_END"]
    assert expected[0] in end["detail"]


@pytest.mark.parametrize("ports", [(40000, 1935), (1935, 40000), (5000, 5001)])
def test_roles_without_a_syn_by_messages(tmp_path: Path, ports: tuple[int, int]) -> None:
    """The capture starts with a packet of the server, and its port is not a typical server port."""
    talk = RtmpTalk(Talk(("10.0.0.1", ports[0]), ("10.0.0.2", ports[1])), syn=False)
    talk.command(1, "onStatus", 0, None, {"level": "status", "code": "NetStream.Publish.Start"}, stream_id=1)
    talk.command(0, "@setDataFrame", None, "onMetaData", {"width": 1}, stream_id=1)
    rows = decode(audio(talk, 40).write(tmp_path / "a.pcap"))
    (connection,) = rows["connections"]
    assert connection["midstream"]
    assert (connection["orig_h"], connection["resp_h"]) == ("10.0.0.1", "10.0.0.2")
    assert {row["direction"] for row in rows["messages"] if row["type_id"] == 8} == {"c2s"}


def test_a_server_that_forwards_metadata_is_not_the_client(tmp_path: Path) -> None:
    """Node-Media-Server forwards @setDataFrame to players unchanged: that does not make it the client."""
    talk = RtmpTalk(Talk(("10.0.0.1", 50016), ("10.0.0.2", 1950)), syn=False)
    talk.command(1, "@setDataFrame", None, "onMetaData", {"width": 1}, stream_id=1)
    for timestamp in range(0, 900, 23):
        talk.send(1, 8, b"\xaf\x01" + bytes(20), stream_id=1, timestamp=timestamp)
    (connection,) = decode(talk.write(tmp_path / "a.pcap"))["connections"]
    assert (connection["orig_h"], connection["resp_h"]) == ("10.0.0.1", "10.0.0.2")


def test_a_wrong_version_is_reported_if_the_rest_is_rtmp(tmp_path: Path) -> None:
    rows = decode(connected(RtmpTalk(), version=7).bye().write(tmp_path / "a.pcap"))
    assert "HS_VERSION" in codes(rows)
    assert [row["name"] for row in rows["commands"]].count("connect") == 1


@pytest.mark.parametrize(("closer", "expected"), [(0, {"HS_VERSION", "HS_INCOMPLETE"}), (1, {"HS_VERSION"})])
def test_a_close_that_answers_a_wrong_version_is_not_reported(tmp_path: Path, closer: int, expected: set[str]) -> None:
    talk = RtmpTalk().say(0, b"\x07" + bytes(1536)).say(1, b"\x03" + bytes(3072)).bye(closer)
    assert codes(decode(talk.write(tmp_path / "a.pcap"))) == expected


def test_a_message_cut_by_the_end_is_a_finding_but_not_a_row(tmp_path: Path) -> None:
    talk = publishing(RtmpTalk())
    whole = bytes.fromhex("04 000000 000100 08 01000000") + bytes(100)
    rows = decode(talk.say(0, whole).bye().write(tmp_path / "a.pcap"))
    (finding,) = [row for row in rows["findings"] if row["rule_id"] == "MSG_TRUNCATED"]
    assert "audio message of 256 bytes" in finding["detail"] and "156" in finding["detail"]
    assert not [row for row in rows["messages"] if row["type_id"] == 8]


def test_the_handshake_row(tmp_path: Path) -> None:
    (row,) = decode(connected(RtmpTalk()).bye().write(tmp_path / "a.pcap"))["handshakes"]
    assert (row["c0_version"], row["s0_version"], row["c1_time"], row["s1_time"]) == (3, 3, 1, 2)
    assert (row["c1_scheme"], row["s1_scheme"], row["c2_kind"], row["s2_kind"]) == ("plain", "plain", "echo", "echo")
    assert row["complete"] and row["duration_ms"] > 0


def test_real_digest_handshakes_are_signed(sample_pcaps: Path) -> None:
    """ffmpeg sends a digest and nginx-rtmp signs it; an ffmpeg that publishes echoes S1 (rtmp_handshake checks the
    server only for input)."""
    (row,) = decode(sample_pcaps / "ffmpeg_publish_h264_aac.pcap", tables=("handshakes",))["handshakes"]
    assert row["c1_scheme"].startswith("digest") and row["s1_scheme"].startswith("digest")
    assert (row["c2_kind"], row["s2_kind"]) == ("echo", "signature")


def test_rtmpe_is_identified_and_not_decoded(sample_pcaps: Path) -> None:
    rows = decode(sample_pcaps / "rtmpe_rtmpdump_rtmpsrv.pcap")
    assert {row["service"] for row in rows["connections"]} == {"rtmpe"}
    assert "HS_ENCRYPTED" in {row["rule_id"] for row in rows["findings"]}
    assert {row["c1_scheme"] for row in rows["handshakes"]} == {"rtmpe"}
    assert not rows["messages"]


def test_an_acknowledged_gap_is_the_fault_of_the_capture(sample_pcaps: Path) -> None:
    """The capture lacks packets that the server acknowledged: the README says which."""
    rows = decode(sample_pcaps / "capture_gap_lost_packets.pcap")
    gaps = [row for row in rows["findings"] if row["rule_id"] == "TCP_GAP"]
    assert {row["at_fault"] for row in gaps} == {"capture"}
    assert sum(row["count"] for row in gaps) == rows["streams"][0]["gaps"]
    whole, part = (decode(sample_pcaps / f"capture_gap_{name}.pcap", tables=("connections",))["connections"][0]
                   for name in ("full", "lost_packets"))  # fmt: skip
    for way in ("c2s", "s2c"):
        assert part[f"missed_bytes_{way}"] == whole[f"delivered_bytes_{way}"] - part[f"delivered_bytes_{way}"]


def test_a_player_that_paused_and_left_was_not_timed_out(tmp_path: Path) -> None:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "vod"})
    talk.command(0, "play", 0, None, "a", stream_id=1)
    talk.command(1, "onStatus", 0, None, {"level": "status", "code": "NetStream.Play.Start"}, stream_id=1)
    for number in range(5):
        talk.wait(0.02).send(1, 8, b"\x2fa", stream_id=1, timestamp=20 * number)
    talk.command(0, "pause", 0, None, True, 100, stream_id=1)
    for _ in range(4):
        talk.wait(2).send(1, 4, b"\0\6\0\0\0\1").send(0, 4, b"\0\7\0\0\0\1")
    (row,) = decode(talk.bye().write(tmp_path / "paused.pcap"))["connections"]
    assert row["close_cause"] != "idle_timeout"
