"""The verdict on a published stream whose connection ended during the stream names the side that ended it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.capture_rewriting import ACK, FIN, PSH, RST
from kit.decoded_tables import RtmpTalk
from kit.handmade_facts import recorded

from rtmp_spark.forensics.streams.stream_verdict import StreamColumns
from rtmp_spark.schema import column_names

PING = bytes.fromhex("02 000000 000006 04 00000000 0006 00000001")
FRAME = bytes.fromhex("04 000800 000003 08 01000000 2ffffb")


def publishing() -> RtmpTalk:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(1, "_result", 1, {}, {"code": "NetConnection.Connect.Success"})
    talk.command(0, "createStream", 2, None).command(1, "_result", 2, None, 1)
    talk.command(0, "publish", 3, None, "show", "live", stream_id=1)
    talk.command(1, "onStatus", 0, None, {"level": "status", "code": "NetStream.Publish.Start"}, stream_id=1)
    for number in range(20):
        talk.wait(0.1).send(0, 8, b"\x2f\xff\xfb" + bytes(50), stream_id=1, timestamp=100 * number)
    return talk


@pytest.mark.parametrize(
    ("side", "reset", "verdict", "text"),
    [
        (0, False, "degraded", "the client disconnected without FCUnpublish or deleteStream"),
        (1, False, "degraded", "the server closed the connection during the stream"),
        (1, True, "degraded", "the server reset the connection during the stream"),
    ],
)
def test_the_verdict_names_the_side_that_ended_it(
    tmp_path: Path, side: int, reset: bool, verdict: str, text: str
) -> None:
    talk = publishing()
    if reset:
        talk.talk.add(side, RST | ACK)
    else:
        talk.bye(side)
    (stream,) = recorded(talk.write(tmp_path / "a.pcap"), "streams")["streams"]
    assert (stream["verdict"], stream["verdict_text"]) == (verdict, text)


def test_a_teardown_before_the_close_is_ok(tmp_path: Path) -> None:
    talk = publishing().command(0, "deleteStream", 4, None, 1).bye(1)
    (stream,) = recorded(talk.write(tmp_path / "a.pcap"), "streams")["streams"]
    assert stream["verdict"] == "ok"


def test_a_server_may_close_at_the_first_teardown_command(tmp_path: Path) -> None:
    """The second teardown command crosses its FIN."""
    talk = publishing().command(0, "FCUnpublish", 4, None, "show")
    talk.talk.add(1, FIN | ACK)
    talk.talk.seq[1] += 1
    talk.wait(0.001).command(0, "deleteStream", 5, None, 1)
    talk.talk.add(0, FIN | ACK)
    (stream,) = recorded(talk.write(tmp_path / "a.pcap"), "streams")["streams"]
    assert stream["verdict"] == "ok"


def test_a_teardown_after_the_server_closed_does_not_count(tmp_path: Path) -> None:
    """Node-Media-Server accepts a second publisher and closes; FFmpeg notices it on its next write and tears down."""
    talk = publishing()
    talk.talk.add(1, FIN | ACK)
    talk.talk.seq[1] += 1
    talk.wait(0.1).send(0, 8, b"\x2f\xff\xfb" + bytes(50), stream_id=1, timestamp=2000)
    talk.command(0, "FCUnpublish", 4, None, "show").command(0, "deleteStream", 5, None, 1)
    talk.talk.add(0, FIN | ACK)
    (stream,) = recorded(talk.write(tmp_path / "a.pcap"), "streams")["streams"]
    assert (stream["verdict"], stream["verdict_text"]) == (
        "degraded",
        "the server closed the connection during the stream",
    )


@pytest.mark.parametrize(("side", "data", "silent"), [(0, FRAME, "server"), (1, PING, "client")])
def test_one_side_disappears_and_no_side_closes(tmp_path: Path, side: int, data: bytes, silent: str) -> None:
    talk = publishing()
    for wait in (0.1, 0.4, 0.8, 1.6, 3.2):
        talk.wait(wait).talk.add(side, ACK | PSH, data)  # the same bytes each time
    rows = recorded(talk.write(tmp_path / "a.pcap"), "streams", "connections", "findings")
    (stream,), (connection,) = rows["streams"], rows["connections"]
    assert (stream["verdict"], stream["verdict_rule_id"]) == ("degraded", "SESSION_END")
    assert (connection["close_kind"], connection["close_cause"]) == ("open", "peer_vanished")
    (end,) = [row for row in rows["findings"] if row["rule_id"] == "SESSION_END"]
    assert f"the {silent} had not answered for 6.1 s" in end["detail"]


def test_an_early_end_or_missing_tcp_acknowledgements_do_not_show_a_vanished_peer(tmp_path: Path) -> None:
    early = publishing()
    for wait in (0.1, 0.4, 0.8, 1.6):
        early.wait(wait).talk.add(0, ACK | PSH, FRAME)
    unheard = publishing()
    for _ in range(70):
        unheard.wait(0.1).talk.say(0, FRAME, ack=False)  # the sender continues, so it is acknowledged
    for number, talk in enumerate((early, unheard)):
        rows = recorded(talk.write(tmp_path / f"{number}.pcap"), "connections")
        assert rows["connections"][0]["close_cause"] == "capture_ended"


@pytest.mark.parametrize("again", [False, True])
def test_retransmissions_of_the_other_direction_show_a_network_stall(tmp_path: Path, again: bool) -> None:
    """Captured after the outage: packets lost before this point look like silence, but the server retransmits."""
    talk = publishing()
    talk.wait(0.5).talk.say(1, PING, ack=False)
    if again:
        talk.wait(1).talk.add(1, ACK | PSH, PING, seq=talk.talk.seq[1] - len(PING))
    talk.wait(2)
    for number in range(20, 60):
        talk.wait(0.002).send(0, 8, b"\x2f\xff\xfb" + bytes(50), stream_id=1, timestamp=100 * number)
    rows = recorded(talk.write(tmp_path / "a.pcap"), "findings")["findings"]
    (stall,) = [row for row in rows if row["rule_id"] == "TIME_STALL"]
    assert stall["at_fault"] == ("network" if again else None)


def test_a_pause_across_a_gap_is_not_a_stall(tmp_path: Path) -> None:
    """The packet after the gap starts with a complete message."""
    talk = publishing()
    for number in range(20, 60):
        lost = number == 20
        talk.wait(2.1 if number == 21 else 0.1)
        talk.send(0, 8, b"\xaf\x01" + bytes(50 + number), stream_id=1, timestamp=100 * number)
        if lost:
            del talk.talk.packets[-2:]  # the frame and its acknowledgement
    rows = recorded(talk.bye().write(tmp_path / "a.pcap"), "findings")["findings"]
    assert "TCP_GAP" in {row["rule_id"] for row in rows}
    assert "TIME_STALL" not in {row["rule_id"] for row in rows}


ADTS = b"\xaf\x01\xff\xf1\x50\x80\x01\x3f\xfc" + bytes(40)  # a header that is valid in a file but not in RTMP
AAC_CONFIG = b"\xaf\x00\x12\x10"


def published(talk: RtmpTalk, name: str, stream_id: int) -> None:
    talk.command(0, "publish", 2 + stream_id, None, name, "live", stream_id=stream_id)
    answer = {"level": "status", "code": "NetStream.Publish.Start"}
    talk.command(1, "onStatus", 0, None, answer, stream_id=stream_id)
    talk.send(0, 8, AAC_CONFIG, stream_id=stream_id)


def test_invalid_media_of_one_stream_does_not_affect_another(tmp_path: Path) -> None:
    """Two streams of one connection at the same time, and one after the other on the same id."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(1, "_result", 1, {}, {"code": "NetConnection.Connect.Success"})
    for stream_id in (1, 2):
        published(talk, f"at the same time {stream_id}", stream_id)
    for number in range(20):
        talk.wait(0.1).send(0, 8, ADTS, stream_id=1, timestamp=100 * number)
        talk.send(0, 8, b"\xaf\x01\x21" + bytes(50), stream_id=2, timestamp=100 * number)
    talk.command(0, "closeStream", 0, None, stream_id=1)
    published(talk.wait(0.1), "later", 1)
    for number in range(20, 40):
        talk.wait(0.1).send(0, 8, b"\xaf\x01\x21" + bytes(50), stream_id=1, timestamp=100 * number)
    for stream_id in (1, 2):
        talk.command(0, "deleteStream", 0, None, stream_id)
    rows = recorded(talk.bye().write(tmp_path / "a.pcap"), "streams", "findings")
    assert {(row["name"], row["verdict"], row["verdict_rule_id"]) for row in rows["streams"]} == {
        ("at the same time 1", "degraded", "MEDIA_ADTS"),
        ("at the same time 2", "ok", None),
        ("later", "ok", None),
    }
    (fault,) = [row for row in rows["findings"] if row["rule_id"] == "MEDIA_ADTS"]
    assert (fault["stream_id"], fault["count"]) == (1, 20)


def test_a_clean_stream_between_two_invalid_ones_with_the_same_id(tmp_path: Path) -> None:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(1, "_result", 1, {}, {"code": "NetConnection.Connect.Success"})
    for name, audio in (("first", ADTS), ("second", b"\xaf\x01\x21" + bytes(50)), ("third", ADTS)):
        published(talk.wait(0.1), name, 1)
        for number in range(20):
            talk.wait(0.1).send(0, 8, audio, stream_id=1, timestamp=100 * number)
        talk.command(0, "closeStream", 0, None, stream_id=1)
    rows = recorded(talk.bye().write(tmp_path / "a.pcap"), "streams", "findings")
    assert {(row["name"], row["verdict"], row["verdict_rule_id"]) for row in rows["streams"]} == {
        ("first", "degraded", "MEDIA_ADTS"),
        ("second", "ok", None),
        ("third", "degraded", "MEDIA_ADTS"),
    }
    (fault,) = [row for row in rows["findings"] if row["rule_id"] == "MEDIA_ADTS"]
    assert (fault["stream_id"], fault["count"]) == (1, 40)


def test_a_finding_before_a_stream_is_known_belongs_to_the_first_stream_with_its_id(tmp_path: Path) -> None:
    """publish was not captured and the first media message is invalid; only the next one shows that a stream exists."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(1, "_result", 1, {}, {"code": "NetConnection.Connect.Success"})
    talk.send(0, 8, b"\xaf", stream_id=1)
    for name in (None, "later"):
        if name is not None:
            talk.command(0, "closeStream", 0, None, stream_id=1)
            published(talk.wait(0.1), name, 1)
        for number in range(20):
            talk.wait(0.1).send(0, 8, b"\x2f\xff\xfb" + bytes(50), stream_id=1, timestamp=100 * number)
    talk.command(0, "deleteStream", 0, None, 1)
    rows = recorded(talk.bye().write(tmp_path / "a.pcap"), "streams")["streams"]
    assert {(row["name"], row["verdict_rule_id"]) for row in rows} == {(None, "MEDIA_TAG"), ("later", None)}


@pytest.mark.parametrize("first", [True, False])
def test_all_findings_of_a_stream_have_its_id_although_its_media_has_another(tmp_path: Path, first: bool) -> None:
    """Node-Media-Server receives play on stream 1 and sends on stream 0; even the first message may be invalid."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(1, "_result", 1, {}, {"code": "NetConnection.Connect.Success"})
    talk.command(0, "play", 2, None, "show", stream_id=1)
    talk.command(1, "onStatus", 0, None, {"level": "status", "code": "NetStream.Play.Start"}, stream_id=1)
    for number in range(20):
        broken = number == (0 if first else 5)
        time = 100 * number if number < 10 else 100 * number - 900
        talk.wait(0.1).send(1, 8, b"\xaf" if broken else b"\x2f\xff\xfb" + bytes(50), timestamp=time)
    talk.command(0, "deleteStream", 0, None, 1)
    rows = recorded(talk.bye().write(tmp_path / "a.pcap"), "streams", "findings")
    (stream,) = rows["streams"]
    assert (stream["stream_id"], stream["verdict_rule_id"]) == (1, "MEDIA_TAG")
    stream_ids = {row["rule_id"]: row["stream_id"] for row in rows["findings"]}
    assert (stream_ids["MEDIA_TAG"], stream_ids["TIME_BACKWARDS"]) == (1, 1)


@pytest.mark.parametrize("second", [1, 2])
def test_a_second_play_whose_media_has_another_id_too(tmp_path: Path, second: int) -> None:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(1, "_result", 1, {}, {"code": "NetConnection.Connect.Success"})
    for stream_id, name, frames in ((1, "one", 20), (second, "two", 30)):
        talk.command(0, "play", 2, None, name, stream_id=stream_id)
        if name == "two":
            talk.send(1, 8, b"\x2f\xff\xfb" + bytes(50), timestamp=2000)  # in flight when the client left "one"
        answer = {"level": "status", "code": "NetStream.Play.Start"}
        talk.command(1, "onStatus", 0, None, answer, stream_id=stream_id)
        for number in range(frames):
            talk.wait(0.1).send(1, 8, b"\x2f\xff\xfb" + bytes(50), timestamp=100 * number)
        talk.command(0, "deleteStream", 0, None, stream_id)
    rows = recorded(talk.bye().write(tmp_path / "a.pcap"), "streams")["streams"]
    assert {(row["name"], row["stream_id"], row["audio_messages"], row["verdict"]) for row in rows} == {
        ("one", 1, 21, "ok"),
        ("two", second, 30, "ok"),
    }


def test_the_columns_are_in_the_order_of_the_table() -> None:
    names = column_names("streams")
    first = names.index(StreamColumns._fields[0])
    assert names[first : first + len(StreamColumns._fields)] == StreamColumns._fields
    assert names[first + len(StreamColumns._fields) :] == ("loss_pct", "ingest_id")
