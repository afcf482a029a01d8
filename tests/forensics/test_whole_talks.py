"""Rules on whole connections: when each may speak, when it must not, and whom it blames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from decoded import RtmpTalk
from rewrite import ACK, FIN, RST, read
from rulekit import SAMPLES
from talks import CHUNK_SIZE, CLIENT, SERVER, findings, goodbye, is_config, media, played, published, told

from rtmp_relay.synthetic import Synthetic, Tag
from rtmp_spark.codec.command import dump_command
from rtmp_spark.codec.message import dump_abort, dump_acknowledgement, dump_ping_request
from rtmp_spark.forensics.stalls import Stall, Stalls


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.pcap"


def test_a_publisher_without_a_source_is_at_fault_and_a_player_before_one_is_not(path: Path) -> None:
    assert told(path, goodbye(published().wait(5))) == [("SESSION_NO_MEDIA", "warning", "client")]
    assert told(path, goodbye(played().wait(5))) == [("SESSION_NO_MEDIA", "warning", None)]


def test_configurations_are_no_media(path: Path) -> None:
    said = media(published(), spoil=lambda tag: tag if tag.type_id == 18 or is_config(tag) else None)
    assert told(path, goodbye(said.wait(5))) == [("SESSION_NO_MEDIA", "warning", "client")]


@pytest.mark.parametrize("closed_after", [0.1, 2])
def test_who_has_closed_answers_no_ping(path: Path, closed_after: float) -> None:
    said = media(published()).send(SERVER, 4, dump_ping_request(5)).wait(closed_after)
    said.talk.add(CLIENT, FIN | ACK)
    said.wait(3).talk.add(SERVER, FIN | ACK)
    rows = told(path, said)
    assert rows == ([] if closed_after < 1 else [("CTRL_PING_UNANSWERED", "warning", "client")])


def acknowledging() -> RtmpTalk:
    """A player that tells the server every few frames how much it got."""
    said = played()
    for second in range(4):
        media(said, SERVER, seconds=1, later=1000 * second, spoil=lambda tag: None if is_config(tag) else tag)
        said.send(CLIENT, 3, dump_acknowledgement(said.talk.seq[SERVER] - said.talk.isn[SERVER] - 1))
    return goodbye(said)


def test_acknowledgements_of_what_was_sent_before_the_recording_are_not_early(path: Path) -> None:
    packets = acknowledging().talk.packets
    joined = next(number for number, packet in enumerate(packets) if number > 60 and packet.sport == 1935)
    assert [row["rule_id"] for row in findings(path, packets[joined:])] == ["TCP_MIDSTREAM"]


@pytest.mark.parametrize(("side", "at_fault"), [(CLIENT, "client"), (SERVER, None)])
def test_an_encoder_that_made_nothing_is_not_the_server_that_passes_it_on(
    path: Path, side: int, at_fault: str | None
) -> None:
    said = media(published() if side == CLIENT else played(), side).wait(2)
    goodbye(media(said, side, later=5000, spoil=lambda tag: None if is_config(tag) else tag))
    assert told(path, said) == [("TIME_STALL", "warning", at_fault)]


@pytest.mark.parametrize(("side", "receiver"), [(CLIENT, "server"), (SERVER, "client")])
@pytest.mark.parametrize(("closed_for", "burst"), [(3.0, True), (3.0, False), (0.01, True)])
def test_a_stall_behind_a_closed_window_is_its_receivers(
    path: Path, side: int, receiver: str, closed_for: float, burst: bool
) -> None:
    """RFC 9293 3.8.6: a window of 0 is the receiver's word that it takes nothing. A moment of it explains no pause."""
    said = media(published() if side == CLIENT else played(), side)
    other = SERVER if side == CLIENT else CLIENT
    said.wait(3.0 - closed_for).talk.add(other, ACK, window=0)
    said.wait(closed_for).talk.add(other, ACK)
    for tag in Synthetic(seconds=3.0 if burst else 0.0).tags():  # what was made meanwhile
        if tag.type_id in (8, 9) and not is_config(tag):
            said.send(side, tag.type_id, tag.payload, stream_id=1, timestamp=tag.timestamp + 3000)
    later = 6000 if burst else 3000
    goodbye(media(said, side, later=later, spoil=lambda tag: None if is_config(tag) else tag))
    found = findings(path, said.talk.packets)
    (stall,) = (row for row in found if row["rule_id"] == "TIME_STALL")
    assert "TCP_ZERO_WINDOW" in {row["rule_id"] for row in found}
    assert stall["at_fault"] == (receiver if closed_for > 1 else {"server": "client", "client": "server"}[receiver])


@pytest.mark.parametrize(
    ("closed", "at_fault"), [({11: 900.0}, "server"), ({12: 930.0}, "client"), ({10: 900.0}, "client")]
)
def test_a_window_that_was_closed_before_or_after_a_stall_is_not_its_cause(
    closed: dict[int, float], at_fault: str
) -> None:
    stalls, stall = Stalls(), Stall(10_950_000, 12_050_000, 0, 0, None, None)
    stall.lead_ms = 1000
    stalls.begin(stall)
    assert [finding.at_fault for finding in stalls.findings("c2s", 1, (), closed=closed)] == [at_fault]


@pytest.mark.parametrize(("side", "at_fault"), [(CLIENT, "client"), (SERVER, None)])
def test_metadata_is_the_publishers_and_not_the_servers_that_passes_it_on(
    path: Path, side: int, at_fault: str | None
) -> None:
    cut = Synthetic().metadata().payload[:-3]  # without the end marker of its array
    said = (published() if side == CLIENT else played()).send(side, 18, cut, stream_id=1)
    assert told(path, goodbye(media(said, side))) == [("AMF_OBJECT_END", "warning", at_fault)]
    answer = dump_command("onBWDone", 0, {"a": 1.0})[:-3]
    said = media(published()).send(SERVER, 20, answer)
    assert told(path, goodbye(said)) == [("AMF_OBJECT_END", "warning", "server")]


@pytest.mark.parametrize(("joined", "at_fault"), [(0, "client"), (100, None)])
def test_lost_sync_has_no_culprit_where_the_beginning_was_not_recorded(
    path: Path, joined: int, at_fault: str | None
) -> None:
    packets = read(SAMPLES / "ffmpeg_publish_h264_aac.pcap")
    for number in [n for n, packet in enumerate(packets) if n > 300 and packet.dport == 1935 and packet.payload][:4]:
        packets[number] = replace(packets[number], payload=bytes(len(packets[number].payload)))
    rows = findings(path, packets[joined:])
    assert {row["at_fault"] for row in rows if row["rule_id"] == "CHUNK_RESYNC"} == {at_fault}


def other_size(side: int, *, close: str | None) -> RtmpTalk:
    """Two streams of different size, one after the other on one stream id."""
    begin = published if side == CLIENT else played
    said = media(begin(), side)
    if close is not None:
        said.command(CLIENT, close, 0, None, "cam", stream_id=1)
    return media(begin(said.wait(0.1), "other"), side, width=640, height=480)


@pytest.mark.parametrize("side", [CLIENT, SERVER])
@pytest.mark.parametrize("close", ["closeStream", "FCUnpublish", None])
def test_another_stream_on_the_same_id_is_no_change_of_the_first(path: Path, side: int, close: str | None) -> None:
    assert told(path, goodbye(other_size(side, close=close))) == []


def test_a_change_in_the_second_stream_is_told(path: Path) -> None:
    for again in (640, 320):  # the second stream begins with another configuration than the first, or with the same
        said = media(played(media(played(), SERVER), "other"), SERVER, width=again, height=240)
        goodbye(media(said, SERVER, width=800, height=240, later=3000))
        (row,) = findings(path, said.talk.packets)
        assert (row["rule_id"], row["severity"]) == ("MEDIA_CONFIG_CHANGED", "warning")
        assert f"{again}x240 to 800x240" in row["detail"]


def test_a_second_publish_needs_its_own_configuration(path: Path) -> None:
    said = media(published(media(published()), "other"), spoil=lambda tag: None if is_config(tag) else tag)
    assert told(path, goodbye(said)) == [("MEDIA_CONFIG_MISSING", "error", "client")]


@pytest.mark.parametrize("lost", [False, True])
def test_an_abort_of_what_may_have_begun_in_a_gap_is_not_idle(path: Path, lost: bool) -> None:
    said = media(published())
    middle = next(n for n, packet in enumerate(said.talk.packets) if n > 200 and len(packet.payload) > 1000)
    goodbye(media(said.send(CLIENT, 2, dump_abort(9)), later=3000))
    packets = [packet for number, packet in enumerate(said.talk.packets) if not lost or number != middle]
    rules = {row["rule_id"] for row in findings(path, packets)}
    assert ("CTRL_ABORT_IDLE" in rules) is not lost and ("TCP_GAP" in rules) is lost


def test_absolute_times_where_deltas_belong_are_told_each_and_spoil_nothing_else(path: Path) -> None:
    """Past 2^24 ms a sender writes every time as it is into fmt 1 headers (veovera/enhanced-rtmp#42)."""
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


def test_a_stream_that_ends_without_another_keyframe(path: Path) -> None:
    said = goodbye(media(published(), seconds=5, gop=1000))
    (row,) = findings(path, said.talk.packets)
    assert (row["rule_id"], row["severity"]) == ("MEDIA_GOP_LONG", "info")
    sent = [n for n, packet in enumerate(said.talk.packets, 1) if packet.payload and packet.payload[0] & 63 == 6]
    assert row["frame"] == sent[-1]


@pytest.mark.parametrize(("alone", "words"), [(False, "the recorder lost them"), (True, "cannot be told")])
def test_whether_lost_bytes_arrived_is_not_known_from_one_side(path: Path, alone: bool, words: str) -> None:
    packets = goodbye(media(published())).talk.packets
    lost = next(n for n, packet in enumerate(packets) if n > 200 and len(packet.payload) > 1000)
    kept = [p for n, p in enumerate(packets) if n != lost and not (alone and p.sport == 1935)]
    (row,) = [row for row in findings(path, kept) if row["rule_id"] == "TCP_GAP"]
    assert words in row["detail"]


def annex_b(tag: Tag) -> Tag:
    """A picture as start codes would have it."""
    coded = tag.type_id == 9 and not is_config(tag)
    return tag._replace(payload=tag.payload[:5] + b"\0\0\0\1" + tag.payload[9:]) if coded else tag


@pytest.mark.parametrize(("seconds", "rules"), [(1, ["MEDIA_ANNEXB"]), (8, ["MEDIA_ANNEXB", "TCP_RESET"])])
def test_a_reset_long_after_the_last_fault_does_not_answer_it(path: Path, seconds: int, rules: list[str]) -> None:
    said = media(published(), spoil=annex_b)
    media(said, later=3000, seconds=seconds, spoil=lambda tag: None if is_config(tag) else tag).talk.add(SERVER, RST)
    assert [rule for rule, _, _ in told(path, said)] == rules


def test_a_value_that_cannot_be_read_is_told_with_the_command_it_is_in(path: Path) -> None:
    said = media(published()).send(SERVER, 20, dump_command("onBWDone", 0, {"a": 1.0})[:-3])
    (row,) = findings(path, goodbye(said).talk.packets)
    assert row["detail"] == "onBWDone: an object without its end marker"


def test_a_fault_is_told_of_a_stream_joined_in_the_middle(path: Path) -> None:
    """Pictures of one length have their headers shortened to nothing; those that were recorded tell the length."""
    said = media(published(), seconds=4)
    media(said, seconds=4, later=4000, spoil=lambda tag: None if tag.type_id == 18 or is_config(tag) else annex_b(tag))
    rows = findings(path, goodbye(said).talk.packets[100:])
    assert [(row["rule_id"], row["count"]) for row in rows] == [("TCP_MIDSTREAM", 1), ("MEDIA_ANNEXB", 100)]


def test_a_long_message_shows_the_chunk_size_of_a_stream_joined_in_the_middle(path: Path) -> None:
    """It is cut once, at a usual size, and what stands behind it is the shortest header there is."""
    packets = read(SAMPLES / "nanosecond_ffmpeg_publish.pcap")
    assert [row["rule_id"] for row in findings(path, packets[35:])] == ["TCP_MIDSTREAM"]


def test_a_side_that_the_recorder_lost_as_a_whole_may_have_answered(path: Path) -> None:
    """Only its SYN is there, and what the client acknowledged."""
    packets = goodbye(media(played(), SERVER)).talk.packets
    kept = [packet for number, packet in enumerate(packets) if packet.dport == 1935 or number < 3]
    (row,) = findings(path, kept)
    assert (row["rule_id"], row["at_fault"], row["direction"]) == ("TCP_GAP", "capture", "s2c")


@pytest.mark.parametrize(("seconds", "rules"), [(3, ["TCP_MIDSTREAM"]), (12, ["TCP_MIDSTREAM", "TCP_RESET"])])
def test_a_goodbye_may_lie_before_the_recording(path: Path, seconds: int, rules: list[str]) -> None:
    said = media(published())
    joined = len(said.talk.packets)
    media(said, seconds=seconds, later=3000, spoil=lambda tag: None if tag.type_id == 18 or is_config(tag) else tag)
    said.talk.add(CLIENT, RST)
    assert [row["rule_id"] for row in findings(path, said.talk.packets[joined:])] == rules


@pytest.mark.parametrize(("seconds", "told_too"), [(3, set()), (20, {"TCP_RESET"})])
def test_a_loss_long_ago_held_no_goodbye(path: Path, seconds: int, told_too: set[str]) -> None:
    said = media(published())
    lost = len(said.talk.packets) - 4
    media(said, seconds=seconds, later=3000, spoil=lambda tag: None if tag.type_id == 18 or is_config(tag) else tag)
    said.talk.add(SERVER, RST)
    packets = [packet for number, packet in enumerate(said.talk.packets) if number != lost]
    rules = {row["rule_id"] for row in findings(path, packets)}
    assert "TCP_GAP" in rules and rules & {"TCP_RESET"} == told_too


def test_a_configuration_may_be_among_what_was_passed_over(path: Path) -> None:
    """Noise costs the decoder some messages."""
    said = published().say(CLIENT, bytes.fromhex("deadbeef") * 400)
    rows = findings(path, goodbye(media(said, spoil=lambda tag: None if tag.timestamp == 0 else tag)).talk.packets)
    assert {"CHUNK_RESYNC"} <= {row["rule_id"] for row in rows}
    assert "MEDIA_CONFIG_MISSING" not in {row["rule_id"] for row in rows}
