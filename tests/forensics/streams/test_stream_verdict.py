"""The verdict on a published stream whose connection ended under it: it says who ended it."""

from __future__ import annotations

from pathlib import Path

import pytest
from decoded import RtmpTalk
from rewrite import ACK, FIN, PSH, RST
from rulekit import recorded

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
        (0, False, "degraded", "it broke off: the client was gone without a goodbye"),
        (1, False, "degraded", "it broke off: the server closed the connection"),
        (1, True, "degraded", "it broke off: the server reset the connection"),
    ],
)
def test_who_broke_it_off(tmp_path: Path, side: int, reset: bool, verdict: str, text: str) -> None:
    talk = publishing()
    if reset:
        talk.talk.add(side, RST | ACK)
    else:
        talk.bye(side)
    (stream,) = recorded(talk.write(tmp_path / "a.pcap"), "streams")["streams"]
    assert (stream["verdict"], stream["verdict_text"]) == (verdict, text)


def test_a_goodbye_breaks_nothing_off(tmp_path: Path) -> None:
    talk = publishing().command(0, "deleteStream", 4, None, 1).bye(1)
    (stream,) = recorded(talk.write(tmp_path / "a.pcap"), "streams")["streams"]
    assert stream["verdict"] == "ok"


def test_a_server_that_closes_at_the_first_goodbye_breaks_nothing_off(tmp_path: Path) -> None:
    """The second goodbye crosses its FIN."""
    talk = publishing().command(0, "FCUnpublish", 4, None, "show")
    talk.talk.add(1, FIN | ACK)
    talk.talk.seq[1] += 1
    talk.wait(0.001).command(0, "deleteStream", 5, None, 1)
    talk.talk.add(0, FIN | ACK)
    (stream,) = recorded(talk.write(tmp_path / "a.pcap"), "streams")["streams"]
    assert stream["verdict"] == "ok"


def test_a_goodbye_to_a_server_that_had_closed_mends_nothing(tmp_path: Path) -> None:
    """Node-Media-Server accepts a second publisher and closes; FFmpeg notices when it writes, and takes its leave."""
    talk = publishing()
    talk.talk.add(1, FIN | ACK)
    talk.talk.seq[1] += 1
    talk.wait(0.1).send(0, 8, b"\x2f\xff\xfb" + bytes(50), stream_id=1, timestamp=2000)
    talk.command(0, "FCUnpublish", 4, None, "show").command(0, "deleteStream", 5, None, 1)
    talk.talk.add(0, FIN | ACK)
    (stream,) = recorded(talk.write(tmp_path / "a.pcap"), "streams")["streams"]
    assert (stream["verdict"], stream["verdict_text"]) == ("degraded", "it broke off: the server closed the connection")


@pytest.mark.parametrize(("side", "data", "silent"), [(0, FRAME, "server"), (1, PING, "client")])
def test_one_side_is_gone_and_nobody_closes(tmp_path: Path, side: int, data: bytes, silent: str) -> None:
    talk = publishing()
    for wait in (0.1, 0.4, 0.8, 1.6, 3.2):
        talk.wait(wait).talk.add(side, ACK | PSH, data)  # the same bytes each time
    rows = recorded(talk.write(tmp_path / "a.pcap"), "streams", "connections", "findings")
    (stream,), (connection,) = rows["streams"], rows["connections"]
    assert (stream["verdict"], stream["verdict_rule_id"]) == ("degraded", "SESSION_END")
    assert (connection["close_kind"], connection["close_cause"]) == ("open", "peer_vanished")
    (end,) = [row for row in rows["findings"] if row["rule_id"] == "SESSION_END"]
    assert f"the {silent} had answered nothing for 6.1 s" in end["detail"]


def test_a_recording_that_ends_early_or_lacks_receipts_shows_nobody_gone(tmp_path: Path) -> None:
    early = publishing()
    for wait in (0.1, 0.4, 0.8, 1.6):
        early.wait(wait).talk.add(0, ACK | PSH, FRAME)
    unheard = publishing()
    for _ in range(70):
        unheard.wait(0.1).talk.say(0, FRAME, ack=False)  # it goes on: somebody acknowledges it
    for number, talk in enumerate((early, unheard)):
        rows = recorded(talk.write(tmp_path / f"{number}.pcap"), "connections")
        assert rows["connections"][0]["close_cause"] == "capture_ended"


@pytest.mark.parametrize("again", [False, True])
def test_a_pause_in_which_the_answers_were_sent_again_too(tmp_path: Path, again: bool) -> None:
    """Recorded behind the outage: what was lost before it looks like silence, what the server sent shows it."""
    talk = publishing()
    talk.wait(0.5).talk.say(1, PING, ack=False)
    if again:
        talk.wait(1).talk.add(1, ACK | PSH, PING, seq=talk.talk.seq[1] - len(PING))
    talk.wait(2)
    for number in range(20, 60):
        talk.wait(0.002).send(0, 8, b"\x2f\xff\xfb" + bytes(50), stream_id=1, timestamp=100 * number)
    rows = recorded(talk.write(tmp_path / "a.pcap"), "findings")["findings"]
    (stall,) = [row for row in rows if row["rule_id"] == "TIME_STALL"]
    assert stall["at_fault"] == ("network" if again else "client")


def test_a_pause_over_a_gap_is_none(tmp_path: Path) -> None:
    """The packet behind the gap begins with a message and holds the whole of it."""
    talk = publishing()
    for number in range(20, 60):
        lost = number == 20
        talk.wait(2.1 if number == 21 else 0.1)
        talk.send(0, 8, b"\xaf\x01" + bytes(50 + number), stream_id=1, timestamp=100 * number)
        if lost:
            del talk.talk.packets[-2:]  # the frame and its receipt
    rows = recorded(talk.bye().write(tmp_path / "a.pcap"), "findings")["findings"]
    assert "TCP_GAP" in {row["rule_id"] for row in rows}
    assert "TIME_STALL" not in {row["rule_id"] for row in rows}


ADTS = b"\xaf\x01\xff\xf1\x50\x80\x01\x3f\xfc" + bytes(40)  # a header that belongs into a file, not into RTMP
AAC_CONFIG = b"\xaf\x00\x12\x10"


def published(talk: RtmpTalk, name: str, stream_id: int) -> None:
    talk.command(0, "publish", 2 + stream_id, None, name, "live", stream_id=stream_id)
    answer = {"level": "status", "code": "NetStream.Publish.Start"}
    talk.command(1, "onStatus", 0, None, answer, stream_id=stream_id)
    talk.send(0, 8, AAC_CONFIG, stream_id=stream_id)


def test_a_fault_in_the_media_of_one_stream_is_not_the_fault_of_another(tmp_path: Path) -> None:
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


def test_a_clean_stream_between_two_faulty_ones_of_the_same_id(tmp_path: Path) -> None:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(1, "_result", 1, {}, {"code": "NetConnection.Connect.Success"})
    for name, sound in (("first", ADTS), ("second", b"\xaf\x01\x21" + bytes(50)), ("third", ADTS)):
        published(talk.wait(0.1), name, 1)
        for number in range(20):
            talk.wait(0.1).send(0, 8, sound, stream_id=1, timestamp=100 * number)
        talk.command(0, "closeStream", 0, None, stream_id=1)
    rows = recorded(talk.bye().write(tmp_path / "a.pcap"), "streams", "findings")
    assert {(row["name"], row["verdict"], row["verdict_rule_id"]) for row in rows["streams"]} == {
        ("first", "degraded", "MEDIA_ADTS"),
        ("second", "ok", None),
        ("third", "degraded", "MEDIA_ADTS"),
    }
    (fault,) = [row for row in rows["findings"] if row["rule_id"] == "MEDIA_ADTS"]
    assert (fault["stream_id"], fault["count"]) == (1, 40)


def test_what_is_found_before_a_stream_is_seen_to_begin_is_of_the_first_with_its_id(tmp_path: Path) -> None:
    """No publish was recorded, and the first media message cannot be read: only the next shows that there is one."""
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
def test_all_findings_of_a_stream_have_its_id_though_its_media_comes_on_another(tmp_path: Path, first: bool) -> None:
    """As Node-Media-Server plays: asked on stream 1, sent on stream 0; a fault may be in the very first message."""
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
    told = {row["rule_id"]: row["stream_id"] for row in rows["findings"]}
    assert (told["MEDIA_TAG"], told["TIME_BACKWARDS"]) == (1, 1)


@pytest.mark.parametrize("second", [1, 2])
def test_a_second_play_whose_media_comes_on_another_id_too(tmp_path: Path, second: int) -> None:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(1, "_result", 1, {}, {"code": "NetConnection.Connect.Success"})
    for stream_id, name, frames in ((1, "one", 20), (second, "two", 30)):
        talk.command(0, "play", 2, None, name, stream_id=stream_id)
        if name == "two":
            talk.send(1, 8, b"\x2f\xff\xfb" + bytes(50), timestamp=2000)  # was on its way when "one" was given up
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
