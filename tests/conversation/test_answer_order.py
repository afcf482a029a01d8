"""Two taps with two clocks: answers captured before their requests change only times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit import capture_rewriting
from kit.capture_rewriting import Packet
from kit.decoded_tables import RtmpTalk
from kit.handmade_facts import SAMPLES, command, recorded

from rtmp_spark.codec.limits import NEARBY_US
from rtmp_spark.conversation.answer_order import put_off_answers
from rtmp_spark.conversation.facts import CommandFact

TALKS = ("nginx_vod_rtmpdump_play.pcap", "ffmpeg_publish_bframes_rtmpdump_play.pcap", "denied_and_unknown_app.pcap")


def summary(*paths: Path) -> dict[str, Any]:
    rows = recorded(paths, "connections", "commands", "streams", "findings")
    port = {row["uid"]: row["orig_p"] for row in rows["connections"]}  # a uid has the time of the first packet in it
    return {
        "answers": sorted(
            (port[row["uid"]], row["msg_no"], row["response_to_msg_no"])
            for row in rows["commands"]
            if row["direction"] == "s2c"
        ),
        "streams": sorted(
            (port[row["uid"]], row["role"], row["name"], row["audio_messages"], row["video_messages"], row["verdict"])
            for row in rows["streams"]
        ),
        "findings": sorted((port[row["uid"]], row["rule_id"]) for row in rows["findings"]),
    }


@pytest.mark.parametrize("milliseconds", [1, 40, 900])
@pytest.mark.parametrize("name", TALKS)
def test_a_server_whose_tap_is_ahead(name: str, milliseconds: int, tmp_path: Path) -> None:
    packets = capture_rewriting.read(SAMPLES / name)
    ahead = [replace(p, ts_ns=p.ts_ns - milliseconds * 1_000_000) if p.sport == 1935 else p for p in packets]
    (tmp_path / "plain.pcap").write_bytes(capture_rewriting.pcap(capture_rewriting.build(packets)))
    (tmp_path / "ahead.pcap").write_bytes(
        capture_rewriting.pcap(capture_rewriting.build(sorted(ahead, key=lambda p: p.ts_ns)))
    )
    assert summary(tmp_path / "ahead.pcap") == summary(tmp_path / "plain.pcap")


@pytest.mark.parametrize("milliseconds", [1, 40, 900])
def test_a_server_that_answers_on_stream_0_and_whose_tap_is_ahead(milliseconds: int, tmp_path: Path) -> None:
    """As pyrtmp does."""
    talk = begun().wait(0.1).command(0, "publish", 3, None, "a", "live", stream_id=1)
    talk.wait(0.01).command(1, "onStatus", 0, None, {"level": "status", "code": "NetStream.Publish.Start"}, stream_id=0)
    frames(talk, 0, 50)
    plain = talk.wait(1).bye().write(tmp_path / "plain.pcap")
    packets = capture_rewriting.read(plain)
    ahead = [replace(p, ts_ns=p.ts_ns - milliseconds * 1_000_000) if p.sport == 1935 else p for p in packets]
    (tmp_path / "ahead.pcap").write_bytes(
        capture_rewriting.pcap(capture_rewriting.build(sorted(ahead, key=lambda p: p.ts_ns)))
    )
    assert summary(tmp_path / "ahead.pcap") == summary(plain)
    assert summary(plain)["answers"][-1][2] is not None


def test_the_split_into_files_does_not_matter(tmp_path: Path) -> None:
    """Each file is a window of its own, so the request of an answer is many windows away."""
    packets = capture_rewriting.read(SAMPLES / TALKS[0])
    ahead = [replace(p, ts_ns=p.ts_ns - 900_000_000) if p.sport == 1935 else p for p in packets]
    ahead.sort(key=lambda p: p.ts_ns)
    whole = in_files(ahead, len(ahead), tmp_path / "whole")
    assert summary(*in_files(ahead, 5, tmp_path / "five")) == summary(*whole)


def begun(*, pause: bool = False) -> RtmpTalk:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(1, "_result", 1, {}, {"level": "status", "code": "NetConnection.Connect.Success"})
    talk.command(0, "createStream", 2, None).command(1, "_result", 2, None, 1)
    if pause:  # without an answer
        talk.command(0, "pause", 0, None, False, 0, stream_id=1)
    return talk


def status(talk: RtmpTalk, code: str, level: str = "status") -> None:
    talk.wait(0.05).command(1, "onStatus", 0, None, {"level": level, "code": code, "description": "x"}, stream_id=1)


def frames(talk: RtmpTalk, direction: int, count: int) -> None:
    for number in range(count):
        talk.wait(0.02).send(direction, 8, b"\x2fa", stream_id=1, timestamp=number * 20)


def published_again() -> RtmpTalk:
    """The error answers the first publish, the start answers the second."""
    talk = begun().command(0, "publish", 3, None, "a", "live", stream_id=1)
    status(talk, "NetStream.Publish.Start")
    frames(talk, 0, 3)
    status(talk, "NetStream.Publish.Failed", "error")
    talk.wait(0.3).command(0, "publish", 4, None, "b", "live", stream_id=1)
    status(talk, "NetStream.Publish.Start")
    frames(talk, 0, 4)
    return talk.bye()


def sought() -> RtmpTalk:
    """A start that answers a seek, and soon after it another play."""
    talk = begun().command(0, "play", 3, None, "a", stream_id=1)
    status(talk, "NetStream.Play.Start")
    frames(talk, 1, 2)
    talk.wait(0.1).command(0, "seek", 0, None, 1000, stream_id=1)
    status(talk, "NetStream.Seek.Notify")
    status(talk, "NetStream.Play.Start")
    frames(talk, 1, 5)
    talk.wait(0.1).command(0, "play", 4, None, "b", stream_id=1)
    status(talk, "NetStream.Play.Start")
    frames(talk, 1, 1)
    return talk.bye()


@pytest.mark.parametrize(
    ("talk", "messages"), [(published_again, [("a", 3), ("b", 4)]), (sought, [("a", 7), ("b", 1)])]
)
def test_an_earlier_request_may_have_several_answers(
    talk: Callable[[], RtmpTalk], messages: list[tuple[str, int]], tmp_path: Path
) -> None:
    packets = talk().talk.packets
    whole = summary(*in_files(packets, len(packets), tmp_path / "whole"))
    assert [(name, audio) for _, _, name, audio, *_ in whole["streams"]] == messages
    assert "failed" not in [verdict for *_, verdict in whole["streams"]]
    for count in (1, 3):
        assert summary(*in_files(packets, count, tmp_path / str(count))) == whole


@pytest.mark.parametrize("pause", [False, True])
def test_an_answer_ahead_of_its_request_in_files_of_any_size(pause: bool, tmp_path: Path) -> None:
    talk = begun(pause=pause)
    for _ in range(6):
        talk.wait(1).send(0, 3, b"\0\0\1\0")
    talk.wait(0.1).command(0, "play", 3, None, "a", stream_id=1)
    status(talk, "NetStream.Play.Start")
    frames(talk, 1, 8)
    talk.wait(5).send(0, 3, b"\0\0\1\0").bye()
    ahead = [replace(p, ts_ns=p.ts_ns - 400_000_000) if p.sport == 1935 else p for p in talk.talk.packets]
    ahead.sort(key=lambda p: p.ts_ns)
    whole = summary(*in_files(ahead, len(ahead), tmp_path / "whole"))
    assert [(name, audio) for _, _, name, audio, *_ in whole["streams"]] == [("a", 8)]
    for count in (3, 5):
        assert summary(*in_files(ahead, count, tmp_path / str(count))) == whole


def in_files(packets: list[Packet], count: int, directory: Path) -> list[Path]:
    directory.mkdir()
    paths = []
    for first in range(0, len(packets), count):
        paths.append(directory / f"{first:05}.pcap")
        paths[-1].write_bytes(capture_rewriting.pcap(capture_rewriting.build(packets[first : first + count])))
    return paths


def ordered(
    *facts: tuple[int, int, int, CommandFact], media_at: list[int] | None = None, asked: bool = False
) -> list[str | None]:
    placed = list(facts)
    put_off_answers(placed, [[], media_at if media_at is not None else []], lambda number, fact: not asked, 0)
    return [fact.name for _, _, _, fact in placed]  # type: ignore[union-attr]


def test_facts_after_a_moved_answer_move_with_it() -> None:
    answer = (10, 1, 0, command("_result", 2.0, ts=10))
    onward = (11, 1, 1, command("onBWDone", 0.0, ts=11))
    request = (12, 0, 2, command("createStream", 2.0, ts=12))
    media_at = [9, 10, 11, 12, 13, 14]
    assert ordered(answer, onward, request, media_at=media_at) == ["createStream", "_result", "onBWDone"]
    assert media_at == [9, 13, 13, 13, 13, 14]


def test_nothing_else_moves() -> None:
    answer = (10, 1, 0, command("_result", 2.0, ts=10))
    later = (12, 0, 2, command("createStream", 2.0, ts=12))
    assert ordered(answer, later, asked=True) == ["_result", "createStream"]  # it answers an earlier request
    another = (12, 0, 2, command("createStream", 2.0, ts=11 + NEARBY_US))
    assert ordered(answer, another) == ["_result", "createStream"]
    of_itself = (12, 1, 2, command("createStream", 2.0, ts=12))
    assert ordered(answer, of_itself) == ["_result", "createStream"]
    request = (9, 0, 0, command("createStream", 2.0, ts=9))
    assert ordered(request, answer, later) == ["createStream", "_result", "createStream"]


def test_two_answers_in_one_packet_follow_the_later_request() -> None:
    answers = [(10, 1, 0, command("_result", 3.0, ts=10)), (10, 1, 1, command("_result", 2.0, ts=10))]
    requests = [(12, 0, 2, command("createStream", 2.0, ts=12)), (14, 0, 3, command("createStream", 3.0, ts=14))]
    assert ordered(*answers, *requests) == ["createStream", "createStream", "_result", "_result"]


@pytest.mark.parametrize(("request_us", "waits"), [(12, True), (NEARBY_US + 11, False)])
def test_an_answer_waits_for_a_request_after_bytes_that_are_not_decoded(request_us: int, waits: bool) -> None:
    """A file that overlaps the one before holds requests that were recorded earlier than the undecoded bytes."""
    answer = (10, 1, 0, command("_result", 2.0, ts=10))
    beyond = [(50, 0, 1, command("createStream", 2.0, ts=request_us))]
    newest_us = 10 * NEARBY_US
    waits_at = put_off_answers([answer], [[], []], lambda number, fact: True, newest_us, beyond)
    assert waits_at == (10 if waits else None)
    assert put_off_answers([answer], [[], []], lambda number, fact: True, newest_us) is None
