"""Losses in a stream whose headers carry time differences (fmt 1 and 2): what they cost, and what they do not prove."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from decoded import RtmpTalk
from rulekit import recorded

from rtmp_spark.codec.message import Message

STEP = 40
LOST = range(30, 80)  # frames: two seconds of them
ABSOLUTE = 110  # the frame behind the loss whose header says the time itself (fmt 0)
LAST = 150


def publishing() -> RtmpTalk:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(1, "_result", 1, {}, {"code": "NetConnection.Connect.Success"})
    talk.command(0, "publish", 3, None, "show", "live", stream_id=1)
    return talk.command(1, "onStatus", 0, None, {"level": "status", "code": "NetStream.Publish.Start"}, stream_id=1)


def send(talk: RtmpTalk, number: int, timestamp: int, *, kind: int = 9, fmt: int | None = None) -> None:
    """Frames of several lengths, so that their headers say them, and the first behind a loss can be found."""
    body = b"\xaf\x01\x21" if kind == 8 else b"\x17\x01\0\0\0" if number % 25 == 0 else b"\x27\x01\0\0\0"
    message = Message({8: 4, 9: 6}[kind], timestamp, kind, 1, body + bytes(60 + number % 7))
    talk.say(0, talk.encoders[0].send(message, fmt))


def lossy(time: Callable[[int], int]) -> RtmpTalk:
    talk = publishing()
    for number in range(LAST):
        send(talk.wait(STEP / 1000), number, time(number), fmt=0 if number == ABSOLUTE else None)
        if number in LOST:
            del talk.talk.packets[-2:]  # the frame and its receipt
    return talk


def ended(talk: RtmpTalk, path: Path) -> dict[str, list[dict[str, Any]]]:
    talk.command(0, "deleteStream", 0, None, 1)
    return recorded(talk.bye().write(path / "a.pcap"), "findings", "streams", "media_tags")


def told(rows: dict[str, list[dict[str, Any]]]) -> set[str]:
    return {row["rule_id"] for row in rows["findings"] if row["rule_id"].startswith(("TIME_", "TCP_GAP"))}


def test_the_next_absolute_time_behind_a_loss_is_no_leap(tmp_path: Path) -> None:
    rows = ended(lossy(lambda number: number * STEP), tmp_path)
    assert told(rows) == {"TCP_GAP"}
    lost = len(LOST) * STEP
    times = [row["dts"] for row in rows["media_tags"]]
    sent = [number * STEP - (lost if number < ABSOLUTE else 0) for number in range(LOST.stop, LAST)]
    assert times[LOST.start :] == sent[-len(times[LOST.start :]) :] and len(times) > LAST - len(LOST) - 3


def test_nor_is_it_a_step_back(tmp_path: Path) -> None:
    """The sender began its time anew inside the loss."""
    anew = LOST.stop - 5
    talk = lossy(lambda number: number * STEP if number < anew else (number - anew) * STEP)
    assert told(ended(talk, tmp_path)) == {"TCP_GAP"}


@pytest.mark.parametrize("leap_at", [LOST.start - 10, LOST.stop + 10, ABSOLUTE + 10])
def test_a_leap_before_or_behind_is_still_one(tmp_path: Path, leap_at: int) -> None:
    talk = lossy(lambda number: number * STEP + (5000 if number >= leap_at else 0))
    assert told(ended(talk, tmp_path)) == {"TCP_GAP", "TIME_JUMP"}


def test_sound_that_lost_more_of_its_time_than_the_picture_does_not_drift(tmp_path: Path) -> None:
    """A packet with a frame of sound is lost every second, for two minutes."""
    talk = publishing()
    for number in range(120 * 25):
        send(talk.wait(STEP / 1000), number, number * STEP)
        send(talk, number, number * STEP, kind=8)
        if number > 200 and number % 25 == 7:
            del talk.talk.packets[-2:]
    rows = ended(talk, tmp_path)
    assert told(rows) == {"TCP_GAP"}
    (stream,) = rows["streams"]
    assert stream["gaps"] > 100
    assert abs(stream["av_skew_ms"]) <= STEP  # of the seconds before the first loss
