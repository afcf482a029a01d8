"""Rules on complete connections: when each applies, when it does not, and who is at fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.capture_rewriting import ACK, FIN, RST, read
from kit.decoded_tables import RtmpTalk
from kit.handmade_facts import SAMPLES, recorded
from kit.rtmp_talks import (
    CHUNK_SIZE,
    CLIENT,
    SERVER,
    created,
    findings,
    found_rules,
    goodbye,
    is_config,
    media,
    played,
    published,
    status,
)

from rtmp_relay.frames import Tag
from rtmp_relay.synthetic_media import Synthetic
from rtmp_spark.codec.command import dump_command
from rtmp_spark.codec.message import (
    STREAM_IS_RECORDED,
    dump_abort,
    dump_acknowledgement,
    dump_ping_request,
    dump_stream_event,
)
from rtmp_spark.forensics.streams.stalls import Stall, Stalls


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.pcap"


def test_a_publisher_without_a_source_is_at_fault_and_a_player_before_one_is_not(path: Path) -> None:
    assert found_rules(path, goodbye(published().wait(5))) == [("SESSION_NO_MEDIA", "warning", "client")]
    assert found_rules(path, goodbye(played().wait(5))) == [("SESSION_NO_MEDIA", "warning", None)]


def test_configurations_are_not_media(path: Path) -> None:
    said = media(published(), spoil=lambda tag: tag if tag.type_id == 18 or is_config(tag) else None)
    assert found_rules(path, goodbye(said.wait(5))) == [("SESSION_NO_MEDIA", "warning", "client")]


@pytest.mark.parametrize("closed_after", [0.1, 2])
def test_a_closed_side_need_not_answer_a_ping(path: Path, closed_after: float) -> None:
    said = media(published()).send(SERVER, 4, dump_ping_request(5)).wait(closed_after)
    said.talk.add(CLIENT, FIN | ACK)
    said.wait(3).talk.add(SERVER, FIN | ACK)
    rows = found_rules(path, said)
    assert rows == ([] if closed_after < 1 else [("CTRL_PING_UNANSWERED", "warning", "client")])


def acknowledging() -> RtmpTalk:
    """A player that acknowledges every second."""
    said = played()
    for second in range(4):
        media(said, SERVER, seconds=1, later=1000 * second, spoil=lambda tag: None if is_config(tag) else tag)
        said.send(CLIENT, 3, dump_acknowledgement(said.talk.seq[SERVER] - said.talk.isn[SERVER] - 1))
    return goodbye(said)


def test_acknowledgements_of_data_before_the_capture_are_not_early(path: Path) -> None:
    packets = acknowledging().talk.packets
    joined = next(number for number, packet in enumerate(packets) if number > 60 and packet.sport == 1935)
    assert [row["rule_id"] for row in findings(path, packets[joined:])] == ["TCP_MIDSTREAM"]


@pytest.mark.parametrize(("side", "at_fault"), [(CLIENT, "client"), (SERVER, None)])
def test_a_server_is_not_at_fault_for_a_pause_of_the_encoder(path: Path, side: int, at_fault: str | None) -> None:
    said = media(published() if side == CLIENT else played(), side).wait(2)
    goodbye(media(said, side, later=5000, spoil=lambda tag: None if is_config(tag) else tag))
    assert found_rules(path, said) == [("TIME_STALL", "warning", at_fault)]


@pytest.mark.parametrize(("side", "receiver"), [(CLIENT, "server"), (SERVER, "client")])
@pytest.mark.parametrize(("closed_for", "burst"), [(3.0, True), (3.0, False), (0.01, True)])
def test_the_receiver_is_at_fault_for_a_stall_with_a_zero_window(
    path: Path, side: int, receiver: str, closed_for: float, burst: bool
) -> None:
    """RFC 9293 3.8.6: with a window of 0 the receiver accepts nothing. A short zero window does not explain a stall."""
    said = media(published() if side == CLIENT else played(), side)
    other = SERVER if side == CLIENT else CLIENT
    said.wait(3.0 - closed_for).talk.add(other, ACK, window=0)
    said.wait(closed_for).talk.add(other, ACK)
    for tag in Synthetic(seconds=3.0 if burst else 0.0).tags():  # media produced meanwhile
        if tag.type_id in (8, 9) and not is_config(tag):
            said.send(side, tag.type_id, tag.payload, stream_id=1, timestamp=tag.timestamp + 3000)
    later = 6000 if burst else 3000
    goodbye(media(said, side, later=later, spoil=lambda tag: None if is_config(tag) else tag))
    found = findings(path, said.talk.packets)
    (stall,) = (row for row in found if row["rule_id"] == "TIME_STALL")
    assert "TCP_ZERO_WINDOW" in {row["rule_id"] for row in found}
    assert stall["at_fault"] == (receiver if closed_for > 1 else None)


@pytest.mark.parametrize(
    ("zero_window_ms", "at_fault"), [({11: 900.0}, "server"), ({12: 930.0}, None), ({10: 900.0}, None)]
)
def test_a_zero_window_before_or_after_a_stall_is_not_its_cause(
    zero_window_ms: dict[int, float], at_fault: str | None
) -> None:
    stalls, stall = Stalls(), Stall(10_950_000, 12_050_000, 0, 0, None, None)
    stall.lead_ms = 1000
    stalls.begin(stall)
    assert [finding.at_fault for finding in stalls.findings("c2s", 1, (), zero_window_ms=zero_window_ms)] == [at_fault]


@pytest.mark.parametrize(("side", "at_fault"), [(CLIENT, "client"), (SERVER, None)])
def test_a_server_is_not_at_fault_for_metadata_that_it_forwards(path: Path, side: int, at_fault: str | None) -> None:
    cut = Synthetic().metadata().payload[:-3]  # without the end marker of its array
    said = (published() if side == CLIENT else played()).send(side, 18, cut, stream_id=1)
    assert found_rules(path, goodbye(media(said, side))) == [("AMF_OBJECT_END", "warning", at_fault)]
    answer = dump_command("onBWDone", 0, {"a": 1.0})[:-3]
    said = media(published()).send(SERVER, 20, answer)
    assert found_rules(path, goodbye(said)) == [("AMF_OBJECT_END", "warning", "server")]


@pytest.mark.parametrize(("joined", "at_fault"), [(0, "client"), (100, None)])
def test_no_side_is_at_fault_for_lost_sync_if_the_start_was_not_captured(
    path: Path, joined: int, at_fault: str | None
) -> None:
    packets = read(SAMPLES / "ffmpeg_publish_h264_aac.pcap")
    for number in [n for n, packet in enumerate(packets) if n > 300 and packet.dport == 1935 and packet.payload][:4]:
        packets[number] = replace(packets[number], payload=bytes(len(packets[number].payload)))
    rows = findings(path, packets[joined:])
    assert {row["at_fault"] for row in rows if row["rule_id"] == "CHUNK_RESYNC"} == {at_fault}


def other_size(side: int, *, close: str | None) -> RtmpTalk:
    """Two streams with different resolutions, one after the other on one stream id."""
    begin = published if side == CLIENT else played
    said = media(begin(), side)
    if close is not None:
        said.command(CLIENT, close, 0, None, "cam", stream_id=1)
    return media(begin(said.wait(0.1), "other"), side, width=640, height=480)


@pytest.mark.parametrize("side", [CLIENT, SERVER])
@pytest.mark.parametrize("close", ["closeStream", "FCUnpublish", None])
def test_a_new_stream_on_the_same_id_is_not_a_configuration_change(path: Path, side: int, close: str | None) -> None:
    assert found_rules(path, goodbye(other_size(side, close=close))) == []


def test_a_configuration_change_in_the_second_stream_is_reported(path: Path) -> None:
    for again in (640, 320):  # the second stream starts with a different configuration, or with the same
        said = media(played(media(played(), SERVER), "other"), SERVER, width=again, height=240)
        goodbye(media(said, SERVER, width=800, height=240, later=3000))
        (row,) = findings(path, said.talk.packets)
        assert (row["rule_id"], row["severity"]) == ("MEDIA_CONFIG_CHANGED", "warning")
        assert f"{again}x240 to 800x240" in row["detail"]


def test_a_second_publish_needs_its_own_configuration(path: Path) -> None:
    said = media(published(media(published()), "other"), spoil=lambda tag: None if is_config(tag) else tag)
    assert found_rules(path, goodbye(said)) == [("MEDIA_CONFIG_MISSING", "error", "client")]


@pytest.mark.parametrize("lost", [False, True])
def test_an_aborted_message_may_have_started_in_a_gap(path: Path, lost: bool) -> None:
    said = media(published())
    middle = next(n for n, packet in enumerate(said.talk.packets) if n > 200 and len(packet.payload) > 1000)
    goodbye(media(said.send(CLIENT, 2, dump_abort(9)), later=3000))
    packets = [packet for number, packet in enumerate(said.talk.packets) if not lost or number != middle]
    rules = {row["rule_id"] for row in findings(path, packets)}
    assert ("CTRL_ABORT_IDLE" in rules) is not lost and ("TCP_GAP" in rules) is lost


def test_absolute_timestamps_sent_as_deltas_cause_no_other_finding(path: Path) -> None:
    """After 2^24 ms the sender writes absolute timestamps into fmt 1 headers (veovera/enhanced-rtmp#42)."""
    said, known, frames = published(), set(), 0
    begun = said.talk.now_ns
    for tag in Synthetic(seconds=6, first_timestamp=17_000_000).tags():
        said.talk.now_ns = max(said.talk.now_ns, begun + (tag.timestamp - 17_000_000) * 1_000_000)
        csid, again = {8: 4, 9: 6}.get(tag.type_id, 5), tag.type_id in known
        head = (
            bytes((csid | again << 6,)) + b"\xff\xff\xff" + len(tag.payload).to_bytes(3, "big") + bytes((tag.type_id,))
        )
        extended = tag.timestamp.to_bytes(4, "big")
        wire = head + (b"" if again else b"\1\0\0\0") + extended
        pieces = [tag.payload[at : at + CHUNK_SIZE] for at in range(0, len(tag.payload), CHUNK_SIZE)]
        said.say(CLIENT, wire + (bytes((0xC0 | csid,)) + extended).join(pieces))
        known.add(tag.type_id)
        frames += again
    (row,) = findings(path, goodbye(said).talk.packets)
    assert (row["rule_id"], row["count"]) == ("CHUNK_EXT_DELTA_ABSOLUTE", frames)


def test_a_long_gop_at_the_end_of_a_stream(path: Path) -> None:
    said = goodbye(media(published(), seconds=5, gop=1000))
    (row,) = findings(path, said.talk.packets)
    assert (row["rule_id"], row["severity"]) == ("MEDIA_GOP_LONG", "info")
    sent = [n for n, packet in enumerate(said.talk.packets, 1) if packet.payload and packet.payload[0] & 63 == 6]
    assert row["frame"] == sent[-1]


@pytest.mark.parametrize(
    ("alone", "words"), [(False, "the capture tool dropped them"), (True, "it is unknown whether they arrived")]
)
def test_one_direction_does_not_show_whether_missing_data_arrived(path: Path, alone: bool, words: str) -> None:
    packets = goodbye(media(published())).talk.packets
    lost = next(n for n, packet in enumerate(packets) if n > 200 and len(packet.payload) > 1000)
    kept = [p for n, p in enumerate(packets) if n != lost and not (alone and p.sport == 1935)]
    (row,) = [row for row in findings(path, kept) if row["rule_id"] == "TCP_GAP"]
    assert words in row["detail"]


def annex_b(tag: Tag) -> Tag:
    """The tag with start codes instead of NAL unit lengths."""
    coded = tag.type_id == 9 and not is_config(tag)
    return tag._replace(payload=tag.payload[:5] + b"\0\0\0\1" + tag.payload[9:]) if coded else tag


@pytest.mark.parametrize(("seconds", "rules"), [(1, ["MEDIA_ANNEXB"]), (8, ["MEDIA_ANNEXB", "TCP_RESET"])])
def test_a_reset_long_after_the_last_error_is_not_caused_by_it(path: Path, seconds: int, rules: list[str]) -> None:
    said = media(published(), spoil=annex_b)
    media(said, later=3000, seconds=seconds, spoil=lambda tag: None if is_config(tag) else tag).talk.add(SERVER, RST)
    assert [rule for rule, _, _ in found_rules(path, said)] == rules


def test_an_invalid_value_is_reported_with_its_command(path: Path) -> None:
    said = media(published()).send(SERVER, 20, dump_command("onBWDone", 0, {"a": 1.0})[:-3])
    (row,) = findings(path, goodbye(said).talk.packets)
    assert row["detail"] == "onBWDone: object without an end marker"


def test_invalid_media_is_reported_in_a_midstream_capture(path: Path) -> None:
    """Frames of equal length have fmt 3 headers; the captured ones show the length."""
    said = media(published(), seconds=4)
    media(said, seconds=4, later=4000, spoil=lambda tag: None if tag.type_id == 18 or is_config(tag) else annex_b(tag))
    rows = findings(path, goodbye(said).talk.packets[100:])
    assert [(row["rule_id"], row["count"]) for row in rows] == [("TCP_MIDSTREAM", 1), ("MEDIA_ANNEXB", 100)]


def test_a_long_message_shows_the_chunk_size_of_a_midstream_capture(path: Path) -> None:
    """It is split once, at a usual size, and a one-byte header follows."""
    packets = read(SAMPLES / "nanosecond_ffmpeg_publish.pcap")
    assert [row["rule_id"] for row in findings(path, packets[35:])] == ["TCP_MIDSTREAM"]


def test_a_direction_missing_from_the_capture_may_have_answered(path: Path) -> None:
    """The capture has only its SYN and the acknowledgements of the client."""
    packets = goodbye(media(played(), SERVER)).talk.packets
    kept = [packet for number, packet in enumerate(packets) if packet.dport == 1935 or number < 3]
    (row,) = findings(path, kept)
    assert (row["rule_id"], row["at_fault"], row["direction"]) == ("TCP_GAP", "capture", "s2c")


@pytest.mark.parametrize(("seconds", "rules"), [(3, ["TCP_MIDSTREAM"]), (12, ["TCP_MIDSTREAM", "TCP_RESET"])])
def test_a_teardown_may_be_before_the_capture(path: Path, seconds: int, rules: list[str]) -> None:
    said = media(published())
    joined = len(said.talk.packets)
    media(said, seconds=seconds, later=3000, spoil=lambda tag: None if tag.type_id == 18 or is_config(tag) else tag)
    said.talk.add(CLIENT, RST)
    assert [row["rule_id"] for row in findings(path, said.talk.packets[joined:])] == rules


@pytest.mark.parametrize(("seconds", "also"), [(3, set()), (20, {"TCP_RESET"})])
def test_an_early_gap_contains_no_teardown(path: Path, seconds: int, also: set[str]) -> None:
    said = media(published())
    lost = len(said.talk.packets) - 4
    media(said, seconds=seconds, later=3000, spoil=lambda tag: None if tag.type_id == 18 or is_config(tag) else tag)
    said.talk.add(SERVER, RST)
    packets = [packet for number, packet in enumerate(said.talk.packets) if number != lost]
    rules = {row["rule_id"] for row in findings(path, packets)}
    assert "TCP_GAP" in rules and rules & {"TCP_RESET"} == also


def test_a_configuration_may_be_in_skipped_bytes(path: Path) -> None:
    """The decoder loses some messages in the noise."""
    said = published().say(CLIENT, bytes.fromhex("deadbeef") * 400)
    rows = findings(path, goodbye(media(said, spoil=lambda tag: None if tag.timestamp == 0 else tag)).talk.packets)
    assert {"CHUNK_RESYNC"} <= {row["rule_id"] for row in rows}
    assert "MEDIA_CONFIG_MISSING" not in {row["rule_id"] for row in rows}


@pytest.mark.parametrize(("closed_ms", "severity"), [(150, "info"), (250, "warning")])
def test_a_short_zero_window_is_an_info(path: Path, closed_ms: int, severity: str) -> None:
    said = media(published())
    said.talk.add(SERVER, ACK, window=0)
    said.wait(closed_ms / 1000).talk.add(SERVER, ACK)
    assert found_rules(path, goodbye(said)) == [("TCP_ZERO_WINDOW", severity, "server")]


@pytest.mark.parametrize("recorded", [True, False])
def test_a_player_of_a_file_may_let_the_server_wait(path: Path, recorded: bool) -> None:
    """FFmpeg with -re, VLC and mpv read a file at the speed of playback; the server sends as fast as they read."""
    said = played().send(SERVER, 4, dump_stream_event(STREAM_IS_RECORDED, 1)) if recorded else played()
    media(said, SERVER).talk.add(CLIENT, ACK, window=0)
    said.wait(2).talk.add(CLIENT, ACK)
    media(said, SERVER, later=3000, spoil=lambda tag: None if is_config(tag) else tag)
    live = [("TCP_ZERO_WINDOW", "warning", "client"), ("TIME_STALL", "warning", "client")]
    assert found_rules(path, goodbye(said)) == ([("TCP_ZERO_WINDOW", "info", "client")] if recorded else live)


@pytest.mark.parametrize(("flash_ver", "verdict"), [("LNX.11,1,102,55", "ok"), ("FMLE/3.0", "degraded")])
def test_nginx_rtmp_ends_what_it_pushes_by_closing(path: Path, flash_ver: str, verdict: str) -> None:
    """nginx-rtmp 1.2.2 with `push`, when its own publisher left: no FCUnpublish, no deleteStream, only FIN."""
    fields = {"app": "live", "tcUrl": "", "pageUrl": "", "swfUrl": "", "flashVer": flash_ver, "audioCodecs": 3575}
    said = RtmpTalk().handshake().command(CLIENT, "connect", 1, fields)
    said.command(SERVER, "_result", 1, None, status("NetConnection.Connect.Success"))
    rows = recorded(media(published(created(said))).bye(CLIENT).write(path), "streams", "connections")
    cause = rows["connections"][0]["close_cause"]
    assert (rows["streams"][0]["verdict"], cause) == (verdict, "teardown" if verdict == "ok" else "peer_vanished")


def half_of_a_command(said: RtmpTalk) -> RtmpTalk:
    """The first bytes of deleteStream, as an interrupted FFmpeg player sends them."""
    said.talk.say(CLIENT, b"\x03\0\0\0\0\0\x22\x14\0\0\0\0")
    return said


@pytest.mark.parametrize("cut", [False, True])
def test_a_player_that_leaves_by_a_reset_is_one_info(path: Path, cut: bool) -> None:
    said = media(played(), SERVER)
    if cut:
        half_of_a_command(said)
    said.talk.say(SERVER, b"\x06\0\0\0\x00\x10\x00\x09\1\0\0\0" + bytes(100))  # half of a video message
    said.talk.add(CLIENT, RST)
    assert found_rules(path, said) == [("TCP_RESET", "info", None)]
    (reset,) = (row for row in findings(path, said.talk.packets) if row["rule_id"] == "TCP_RESET")
    assert reset["fix_hint"] == "No action is needed."


def test_a_player_that_leaves_with_half_a_command_is_an_info(path: Path) -> None:
    said = half_of_a_command(media(played(), SERVER)).bye()
    assert found_rules(path, said) == [("MSG_TRUNCATED", "info", None)]


@pytest.mark.parametrize(("side", "said"), [(CLIENT, published), (SERVER, played)])
def test_a_publisher_that_resets_or_a_server_that_does_is_a_warning(path: Path, side: int, said: Any) -> None:
    talk = media(said(), CLIENT if said is published else SERVER)
    talk.talk.add(side, RST)
    assert found_rules(path, talk) == [("TCP_RESET", "warning", "client" if side == CLIENT else "server")]


def test_a_verdict_of_ok_says_that_there_are_warnings(path: Path) -> None:
    """The media is complete; an unknown message type is a warning about the connection."""
    clean, odd = (media(published()) for _ in range(2))
    odd.send(CLIENT, 30, b"x")
    texts = []
    for said in (clean, odd):
        (stream,) = recorded(goodbye(said).write(path), "streams")["streams"]
        assert stream["verdict"] == "ok"
        texts.append(stream["verdict_text"])
    assert texts == ["no problems found", "the media arrived without problems, but the connection has warnings"]
