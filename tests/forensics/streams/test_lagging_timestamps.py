"""Missing data in a stream with timestamp deltas (fmt 1 and 2): later timestamps lag, which is not a jump or drift."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.decoded_tables import RtmpTalk
from kit.handmade_facts import recorded

from rtmp_spark.codec.message import Message

STEP = 40
LOST = range(30, 80)  # frames: two seconds of them
ABSOLUTE = 110  # the frame after the loss with an absolute timestamp (fmt 0)
LAST = 150


def publishing() -> RtmpTalk:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(1, "_result", 1, {}, {"code": "NetConnection.Connect.Success"})
    talk.command(0, "publish", 3, None, "show", "live", stream_id=1)
    return talk.command(1, "onStatus", 0, None, {"level": "status", "code": "NetStream.Publish.Start"}, stream_id=1)


def send(talk: RtmpTalk, number: int, timestamp: int, *, kind: int = 9, fmt: int | None = None) -> None:
    """Send a frame; lengths vary, so that headers contain them and the decoder finds the first frame after a loss."""
    body = b"\xaf\x01\x21" if kind == 8 else b"\x17\x01\0\0\0" if number % 25 == 0 else b"\x27\x01\0\0\0"
    message = Message({8: 4, 9: 6}[kind], timestamp, kind, 1, body + bytes(60 + number % 7))
    talk.say(0, talk.encoders[0].send(message, fmt))


def lossy(timestamp: Callable[[int], int]) -> RtmpTalk:
    talk = publishing()
    for number in range(LAST):
        send(talk.wait(STEP / 1000), number, timestamp(number), fmt=0 if number == ABSOLUTE else None)
        if number in LOST:
            del talk.talk.packets[-2:]  # the frame and its acknowledgement
    return talk


def ended(talk: RtmpTalk, path: Path) -> dict[str, list[dict[str, Any]]]:
    talk.command(0, "deleteStream", 0, None, 1)
    return recorded(talk.bye().write(path / "a.pcap"), "findings", "streams", "media_tags")


def rules(rows: dict[str, list[dict[str, Any]]]) -> set[str]:
    return {row["rule_id"] for row in rows["findings"] if row["rule_id"].startswith(("TIME_", "TCP_GAP"))}


def test_the_next_absolute_timestamp_after_a_loss_is_not_a_jump(tmp_path: Path) -> None:
    rows = ended(lossy(lambda number: number * STEP), tmp_path)
    assert rules(rows) == {"TCP_GAP"}
    lost = len(LOST) * STEP
    times = [row["dts"] for row in rows["media_tags"]]
    sent = [number * STEP - (lost if number < ABSOLUTE else 0) for number in range(LOST.stop, LAST)]
    assert times[LOST.start :] == sent[-len(times[LOST.start :]) :] and len(times) > LAST - len(LOST) - 3


def test_the_next_absolute_timestamp_after_a_loss_does_not_go_backwards(tmp_path: Path) -> None:
    """The sender restarted its timestamps during the loss."""
    restart = LOST.stop - 5
    talk = lossy(lambda number: number * STEP if number < restart else (number - restart) * STEP)
    assert rules(ended(talk, tmp_path)) == {"TCP_GAP"}


def test_lagging_timestamps_count_in_the_pace(tmp_path: Path) -> None:
    """30 frames (1.2 s) arrive in 0.12 s, 50 are lost, and 120 (4.8 s) arrive in 4.8 s. The lost deltas are missing in
    all timestamps after them, but not in their differences."""
    talk = publishing()
    for number in range(200):
        send(talk.wait(STEP / (10_000 if number < LOST.start else 1000)), number, number * STEP)
        if number in LOST:
            del talk.talk.packets[-2:]
    (stream,) = ended(talk, tmp_path)["streams"]
    assert stream["pace"] == pytest.approx(6 / 4.92, abs=0.1)  # packets take time of their own


@pytest.mark.parametrize("jump_at", [LOST.start - 10, LOST.stop + 10, ABSOLUTE + 10])
def test_a_jump_before_or_after_a_loss_is_reported(tmp_path: Path, jump_at: int) -> None:
    talk = lossy(lambda number: number * STEP + (5000 if number >= jump_at else 0))
    assert rules(ended(talk, tmp_path)) == {"TCP_GAP", "TIME_JUMP"}


def test_audio_that_lost_more_deltas_than_video_does_not_drift(tmp_path: Path) -> None:
    """One packet with an audio frame is lost every second for two minutes."""
    talk = publishing()
    for number in range(120 * 25):
        send(talk.wait(STEP / 1000), number, number * STEP)
        send(talk, number, number * STEP, kind=8)
        if number > 200 and number % 25 == 7:
            del talk.talk.packets[-2:]
    rows = ended(talk, tmp_path)
    assert rules(rows) == {"TCP_GAP"}
    (stream,) = rows["streams"]
    assert stream["gaps"] > 100
    assert abs(stream["av_skew_ms"]) <= STEP  # measured before the first loss
