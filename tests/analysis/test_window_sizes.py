"""The same rows wherever the windows end in which a recording is read: what is found is decided by packets and their
times, never by what came to hand together."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import rewrite
from decoded import RtmpTalk
from rewrite import ACK, PSH, RST, Packet, Talk
from rulekit import SAMPLES, recorded
from streams import reassemble

from rtmp_spark.capture import recording
from rtmp_spark.capture.connection import Connection
from rtmp_spark.capture.conversation import Conversation
from rtmp_spark.capture.files import open_capture
from rtmp_spark.codec.message import Message

TABLES = (
    "connections", "handshakes", "messages", "controls", "commands", "media_tags", "streams", "deliveries",
    "intervals", "findings",
)  # fmt: skip


def without(packets: list[Packet], number: int) -> list[Packet]:
    """The recorder lost this one."""
    return packets[:number] + packets[number + 1 :]


def with_late_syn(packets: list[Packet], place: int) -> list[Packet]:
    return [*packets[1:place], packets[0], *packets[place:]]


def with_early_reset(packets: list[Packet]) -> list[Packet]:
    place = next(n for n, p in enumerate(packets) if p.flags == RST)
    return [*packets[: place - 6], packets[place], *packets[place - 6 : place], *packets[place + 1 :]]


def with_jitter(packets: list[Packet], seed: int) -> list[Packet]:
    """Times of two clocks: a packet may seem older than the one before it."""
    chance = random.Random(seed)
    return [replace(p, ts_ns=p.ts_ns + chance.randrange(2_000_000)) for p in packets]


def with_clock_set_back(packets: list[Packet], place: int) -> list[Packet]:
    return packets[:place] + [replace(p, ts_ns=p.ts_ns - 50_000_000_000) for p in packets[place:]]


SMALL = "ffmpeg_publish_g711mu_audio_only.pcap"
SMALL_VIDEO = "ffmpeg_publish_h264_aac.pcap"
RESIZED = "p1955_resolution_change_ffmpeg_publish.pcap"
CAUSES: dict[str, tuple[str, Callable[[list[Packet]], list[Packet]]]] = {
    "a question behind a hole": ("ipv6_ffmpeg_publish.pcap", lambda p: without(p, 17)),
    "a goodbye before what waits behind a hole": ("nginx_vod_rtmpdump_play.pcap", lambda p: without(p, 13)),
    "a SYN recorded late": ("ffmpeg_publish_h264_aac.pcap", lambda p: with_late_syn(p, 60)),
    "a window scale told late": ("nginx_vod_rtmpdump_play.pcap", lambda p: with_late_syn(p, 40)),
    "who spoke first turns out late": (SMALL, lambda p: rewrite.shuffle(p[40:], 0, reach=10)),
    "a reset recorded before what it ends": ("capture_gap_full.pcap", with_early_reset),
    "where a stream begins turns out late": (SMALL, lambda p: rewrite.shuffle(p, 0, reach=30)),
    "an answer that seems older than the SYN": (RESIZED, lambda p: with_jitter(p, 9)),
    "the last frame is not the latest": ("nginx_vod_rtmpdump_play.pcap", lambda p: with_jitter(p, 2)),
    "a clock set back where the SYN is missing": (SMALL_VIDEO, lambda p: with_clock_set_back(p[1:], 60)),
}


def in_windows(path: Path, size: int | None, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    with monkeypatch.context() as patch:
        if size is not None:
            patch.setattr(recording, "open_capture", partial(open_capture, window_bytes=size))
        rows = recorded(path, *TABLES)
    return {name: sorted(found, key=str) for name, found in rows.items()}


@pytest.mark.parametrize("cause", CAUSES)
def test_windows_of_any_size(cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, change = CAUSES[cause]
    path = tmp_path / "changed.pcap"
    path.write_bytes(rewrite.pcap(rewrite.build(change(rewrite.read(SAMPLES / name)))))
    whole = in_windows(path, None, monkeypatch)
    assert whole["messages"]
    for size in (400, 3000, 16_000):
        assert in_windows(path, size, monkeypatch) == whole


def test_a_hole_that_nobody_waits_for_is_a_gap_after_a_minute() -> None:
    """Else all that the other side says would have to wait for it."""
    talk = Talk().open()
    talk.say(0, bytes(1000)).seq[0] += 1000
    talk.say(0, bytes(1000))
    talk.now_ns += 61_000_000_000
    talk.add(0, ACK).add(0, ACK | PSH, bytes(1000), seq=talk.isn[0] + 1001)  # too late
    gaps = reassemble(talk.packets).talks[0].directions[0].gaps
    assert [(gap.offset, gap.length, gap.acked) for gap in gaps] == [(1000, 1000, True)]


def test_a_hole_that_the_receiver_waits_for_is_filled_however_late() -> None:
    talk = Talk().open().say(0, bytes(1000))
    talk.seq[0] += 1000
    talk.say(0, bytes(1000), ack=False).add(1, ACK, ack=talk.isn[0] + 1001)
    talk.now_ns += 61_000_000_000
    talk.add(0, ACK).add(0, ACK | PSH, bytes(1000), seq=talk.isn[0] + 1001)
    assert reassemble(talk.packets).talks[0].directions[0].gaps == []


def test_a_reset_is_no_acknowledgement_in_the_next_ingest_either() -> None:
    talk = Talk().open().say(0, bytes(100), ack=False).add(0, RST)
    (found,) = reassemble(talk.packets).talks
    resumed = Connection.resume(found.connection.state(), 0)
    assert [side.heard_seq for side in resumed.sides] == [side.heard_seq for side in found.connection.sides]
    assert any(side.heard_seq is not None for side in resumed.sides)


def test_a_fin_behind_a_packet_that_says_nothing() -> None:
    """That one was recorded first, and where its stream began was not known."""
    talk = Talk().open().say(1, bytes(1000)).close(1)
    last = next(p for p in reversed(talk.packets) if p.sport == 1935)
    last_word = replace(last, flags=ACK, seq=last.seq + 1)
    sides = reassemble([last_word, *talk.packets]).talks[0].connection.streams
    assert [stream.fin for stream in sides] == [0, 1000]


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's packets are missing from a hole on, so none of them tells that it is given up."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.talk.seq[0] += 100
    talk.talk.add(0, ACK | PSH, bytes(100))
    for number in range(400):
        talk.wait(1).talk.say(1, talk.encoders[1].send(Message(4, number, 8, 1, b"\x2fa")), ack=False)
    waiting = []
    advance = Conversation.advance

    def watched(conversation: Conversation, *args: Any) -> None:
        advance(conversation, *args)
        waiting.append(len(conversation._media[1]))

    monkeypatch.setattr(Conversation, "advance", watched)
    in_windows(talk.write(tmp_path / "talk.pcap"), 400, monkeypatch)
    assert 100 < max(waiting) < 130
