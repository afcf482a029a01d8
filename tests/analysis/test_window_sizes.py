"""Rows do not depend on where the windows end in which a recording is read."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit import capture_rewriting
from kit.capture_rewriting import ACK, PSH, RST, Packet, Talk
from kit.decoded_tables import RtmpTalk
from kit.handmade_facts import SAMPLES, recorded
from kit.reassembled_streams import reassemble

from rtmp_spark.analysis import recording
from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.codec import handshake
from rtmp_spark.codec.message import Message
from rtmp_spark.conversation.conversation import Conversation, Progress

TABLES = (
    "connections", "handshakes", "messages", "controls", "commands", "media_tags", "streams", "deliveries",
    "intervals", "findings",
)  # fmt: skip


def repeated(packets: list[Packet]) -> list[Packet]:
    """Every tenth data packet comes again 50 us later."""
    data = [packet for packet in packets if packet.payload]
    return sorted([*packets, *(replace(p, ts_ns=p.ts_ns + 50_000) for p in data[::10])], key=lambda p: p.ts_ns)


def on_port(packets: list[Packet], port: int) -> list[Packet]:
    """With this port of the server."""
    given = packets[0].dport
    return [
        replace(p, sport=port if p.sport == given else p.sport, dport=port if p.dport == given else p.dport)
        for p in packets
    ]


def with_losses(packets: list[Packet], seed: int) -> list[Packet]:
    chance = random.Random(seed)
    return [packet for packet in packets if not packet.payload or chance.random() > 0.1]


def without(packets: list[Packet], number: int) -> list[Packet]:
    """The packets without this one."""
    return packets[:number] + packets[number + 1 :]


def with_late_syn(packets: list[Packet], place: int) -> list[Packet]:
    return [*packets[1:place], packets[0], *packets[place:]]


def with_early_reset(packets: list[Packet]) -> list[Packet]:
    place = next(n for n, p in enumerate(packets) if p.flags == RST)
    return [*packets[: place - 6], packets[place], *packets[place - 6 : place], *packets[place + 1 :]]


def with_jitter(packets: list[Packet], seed: int) -> list[Packet]:
    """Timestamps of two clocks: a packet may be older than the packet before it."""
    chance = random.Random(seed)
    return [replace(p, ts_ns=p.ts_ns + chance.randrange(2_000_000)) for p in packets]


def with_clock_set_back(packets: list[Packet], place: int, seconds: int = 50) -> list[Packet]:
    return packets[:place] + [replace(p, ts_ns=p.ts_ns - seconds * 1_000_000_000) for p in packets[place:]]


def slowed(packets: list[Packet], times: int) -> list[Packet]:
    begun_ns = packets[0].ts_ns
    return [replace(p, ts_ns=begun_ns + (p.ts_ns - begun_ns) * times) for p in packets]


SMALL = "ffmpeg_publish_g711mu_audio_only.pcap"
SMALL_VIDEO = "ffmpeg_publish_h264_aac.pcap"
RESIZED = "p1955_resolution_change_ffmpeg_publish.pcap"
CAUSES: dict[str, tuple[str, Callable[[list[Packet]], list[Packet]]]] = {
    "a request after a hole": ("ipv6_ffmpeg_publish.pcap", lambda p: without(p, 17)),
    "a teardown before data that waits after a hole": ("nginx_vod_rtmpdump_play.pcap", lambda p: without(p, 13)),
    "a SYN recorded late": ("ffmpeg_publish_h264_aac.pcap", lambda p: with_late_syn(p, 60)),
    "a window scale known late": ("nginx_vod_rtmpdump_play.pcap", lambda p: with_late_syn(p, 40)),
    "who spoke first turns out late": (SMALL, lambda p: capture_rewriting.shuffle(p[40:], 0, reach=10)),
    "a reset recorded before what it ends": ("capture_gap_full.pcap", with_early_reset),
    "where a stream begins turns out late": (SMALL, lambda p: capture_rewriting.shuffle(p, 0, reach=30)),
    "an answer that seems older than the SYN": (RESIZED, lambda p: with_jitter(p, 9)),
    "the last frame is not the latest": ("nginx_vod_rtmpdump_play.pcap", lambda p: with_jitter(p, 2)),
    "a clock set back where the SYN is missing": (SMALL_VIDEO, lambda p: with_clock_set_back(p[1:], 60)),
    "a clock set back by more than the time after which a second is final": (
        SMALL_VIDEO,
        lambda p: with_clock_set_back(p, 60, 4000),
    ),
    "duplicates that the receiver reports long after the data": (
        "mediamtx_hevc_ffmpeg9_play.pcap",
        lambda p: slowed(p, 10),
    ),
}


def test_encrypted_connections_are_counted_to_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after it is known that they cannot be read."""
    path = tmp_path / "repeated.pcap"
    packets = on_port(repeated(capture_rewriting.read(SAMPLES / "rtmps_tls13_ffmpeg_publish.pcap")), 1935)
    path.write_bytes(capture_rewriting.pcap(capture_rewriting.build(packets)))
    whole = in_windows(path, None, monkeypatch)
    assert whole["connections"][0]["duplicate_bytes_c2s"] > 0
    assert in_windows(path, 3000, monkeypatch) == whole


@pytest.mark.parametrize("seed", range(4))
def test_losses_inside_a_tunnel(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP holds what it carries longer than the gap that TCP reports; packets are cut, too."""
    path = tmp_path / "lossy.pcap"
    packets = with_losses(capture_rewriting.read(SAMPLES / "p1980_rtmpt_pyrtmp_ffmpeg_publish.pcap"), seed)
    path.write_bytes(capture_rewriting.pcap(capture_rewriting.build(packets), snaplen=1000))
    whole = in_windows(path, None, monkeypatch)
    assert whole["messages"]
    for size in (1500, 8000):
        assert in_windows(path, size, monkeypatch) == whole


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
    path.write_bytes(capture_rewriting.pcap(capture_rewriting.build(change(capture_rewriting.read(SAMPLES / name)))))
    whole = in_windows(path, None, monkeypatch)
    assert whole["messages"]
    for size in (400, 3000, 16_000):
        assert in_windows(path, size, monkeypatch) == whole


def test_a_zero_window_that_ends_after_its_seconds_are_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client announces it and continues to send; the seconds of the server get it when it ends."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.talk.add(1, ACK, window=0)
    for number in range(400):
        talk.wait(1).talk.say(0, talk.encoders[0].send(Message(4, number, 8, 1, b"\x2fa")), ack=False)
    talk.talk.add(1, ACK)
    path = talk.write(tmp_path / "talk.pcap")
    whole = in_windows(path, None, monkeypatch)
    assert sum(row["zero_window_ms"] for row in whole["intervals"]) > 399_000
    assert in_windows(path, 400, monkeypatch) == whole


def test_an_acknowledgement_of_unsent_data_before_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message after the Acknowledgement judges it, whether the gap after that message is known or not."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"}).command(1, "_result", 1, {}, {})
    talk.send(0, 3, (100_000).to_bytes(4, "big"))
    for number in range(3):
        talk.send(1, 8, b"\x2fa" * 100, stream_id=1, timestamp=number)
    talk.talk.seq[1] += 1000
    talk.send(1, 8, b"\x2fa" * 100, stream_id=1, timestamp=9)
    path = talk.write(tmp_path / "talk.pcap")
    whole = in_windows(path, None, monkeypatch)
    assert {"FLOW_ACK_EARLY", "TCP_GAP"} <= {row["rule_id"] for row in whole["findings"]}
    assert in_windows(path, 400, monkeypatch) == whole


def test_a_gap_that_is_found_while_others_speak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is over because its time has passed, in a window with packets of brief connections only."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"}).talk
    talk.seq[0] += 5000
    talk.add(1, ACK).add(0, RST)
    for client in ("10.0.0.8", "10.0.0.9"):
        other = Talk((client, 50000), ("10.0.0.2", 1935), start_ns=talk.now_ns + 90_000_000_000)
        talk.packets += other.open().packets
        talk.now_ns = other.now_ns
    path = RtmpTalk(talk, syn=False).write(tmp_path / "talk.pcap")
    whole = in_windows(path, None, monkeypatch)
    assert sum(row["gap_bytes"] for row in whole["intervals"]) == 5000
    assert in_windows(path, 400, monkeypatch) == whole


def send_audio(talk: RtmpTalk, side: int, size: int = 100, count: int = 1) -> RtmpTalk:
    for number in range(count):
        talk.send(side, 8, b"\x2fa" * (size // 2), stream_id=1, timestamp=number)
    return talk


def repeated_far_ahead(talk: RtmpTalk) -> None:
    """An acknowledgement of a side whose last data is missing."""
    talk.talk.seq[0] += 5000
    packets = talk.talk.add(0, ACK).packets
    for number in range(10):
        talk.talk.say(1, talk.encoders[1].send(Message(4, number, 8, 1, b"\x2fa" * 50)), ack=False)
    packets.append(packets[-11])


def repeated_in_the_next_connection(talk: RtmpTalk) -> None:
    """Its first packet comes more than a minute after the end of the one before."""
    packets = talk.bye().talk.packets
    packets.append(packets[-1])
    send_audio(talk.wait(70), 0)
    packets.append(packets[-2])


def repeated_around_a_wrong_time(talk: RtmpTalk) -> None:
    """Between the copies is a packet whose time is four seconds later."""
    packets, copied = talk.talk.packets, talk.talk.packets[-1]
    late_ns = send_audio(talk, 1, 1000, 2).talk.now_ns + 4_000_000_000
    packets[-4:] = [replace(packets[-4], ts_ns=late_ns), packets[-2], copied]


@pytest.mark.parametrize("repeat", [repeated_far_ahead, repeated_in_the_next_connection, repeated_around_a_wrong_time])
def test_packets_recorded_twice(
    repeat: Callable[[RtmpTalk], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"}).command(1, "_result", 1, {}, {})
    repeat(send_audio(talk, 0, count=20))
    path = talk.write(tmp_path / "talk.pcap")
    whole = in_windows(path, None, monkeypatch)
    assert whole["messages"]
    assert in_windows(path, 400, monkeypatch) == whole


def test_an_acknowledgement_after_an_answer_that_is_put_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded by two taps: what the server sent is ahead of what the client sent."""
    talk = RtmpTalk().handshake()
    begun = len(talk.talk.packets)
    talk.command(0, "connect", 1, {"app": "live"}).command(0, "createStream", 2, None)
    for number in range(10):
        talk.send(0, 8, b"\x2fa" * 100, stream_id=1, timestamp=number)
    asked = len(talk.talk.packets)
    talk.command(1, "_result", 1, {}, {}).send(1, 3, (100_000).to_bytes(4, "big"))
    for number in range(10):
        talk.send(0, 8, b"\x2fa" * 100, stream_id=1, timestamp=10 + number)
    packets = talk.talk.packets
    talk.talk.packets = packets[:begun] + packets[asked : asked + 4] + packets[begun:asked] + packets[asked + 4 :]
    path = talk.write(tmp_path / "talk.pcap")
    whole = in_windows(path, None, monkeypatch)
    assert [row["response_to_msg_no"] for row in whole["commands"] if row["name"] == "_result"] == [0]
    assert "FLOW_ACK_EARLY" in {row["rule_id"] for row in whole["findings"]}
    assert in_windows(path, 400, monkeypatch) == whole


def test_a_zero_window_at_the_end_of_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next connection between the same endpoints begins in the same window."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"}).talk
    talk.add(1, ACK, window=0)
    talk.now_ns += 700_000_000
    talk.add(0, ACK)
    talk.seq = [70_000, 80_000]
    path = RtmpTalk(talk.open(), syn=False).write(tmp_path / "talk.pcap")
    whole = in_windows(path, None, monkeypatch)
    assert sum(row["zero_window_ms"] for row in whole["intervals"]) > 699
    assert in_windows(path, 400, monkeypatch) == whole


def test_a_missing_end_long_after_the_last_packet_of_its_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its second is not final before the end of the connection."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.talk.seq[0] += 5000
    for number in range(400):
        talk.wait(1).talk.say(1, talk.encoders[1].send(Message(4, number, 8, 1, b"\x2fa")), ack=False)
    path = talk.write(tmp_path / "talk.pcap")
    whole = in_windows(path, None, monkeypatch)
    assert sum(row["gap_bytes"] for row in whole["intervals"]) == 5000
    assert in_windows(path, 400, monkeypatch) == whole


def test_an_answer_whose_side_is_not_recognised_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handshake of the server is missing. Its answer is older than the request, so it is no answer to it."""
    talk = RtmpTalk()
    c1 = handshake.dump_packet1("client", 1, 0, bytes(range(191)) * 8, "plain")
    talk.say(0, b"\x03" + c1 + bytes(1536))
    talk.talk.seq[1] += 3073
    talk.command(1, "_result", 1, {}, {}).wait(5).command(0, "connect", 1, {"app": "live"})
    for number in range(20):
        talk.wait(4).send(0, 8, b"\x2fa" * 100, stream_id=1, timestamp=number)
    for number in range(20):
        talk.send(1, 8, b"\x2fa" * 100, stream_id=1, timestamp=number)
    path = talk.write(tmp_path / "talk.pcap")
    whole = in_windows(path, None, monkeypatch)
    assert {row["name"] for row in whole["commands"]} == {"connect", "_result"}
    assert in_windows(path, 400, monkeypatch) == whole


def test_a_hole_is_declared_a_gap_after_a_minute() -> None:
    """Otherwise all facts of the other direction would have to wait."""
    talk = Talk().open()
    talk.say(0, bytes(1000)).seq[0] += 1000
    talk.say(0, bytes(1000))
    talk.now_ns += 61_000_000_000
    talk.add(0, ACK).add(0, ACK | PSH, bytes(1000), seq=talk.isn[0] + 1001)  # too late
    gaps = reassemble(talk.packets).talks[0].directions[0].gaps
    assert [(gap.offset, gap.length, gap.acked) for gap in gaps] == [(1000, 1000, True)]


def test_a_hole_is_filled_late_if_the_receiver_still_waits_for_it() -> None:
    talk = Talk().open().say(0, bytes(1000))
    talk.seq[0] += 1000
    talk.say(0, bytes(1000), ack=False).add(1, ACK, ack=talk.isn[0] + 1001)
    talk.now_ns += 61_000_000_000
    talk.add(0, ACK).add(0, ACK | PSH, bytes(1000), seq=talk.isn[0] + 1001)
    assert reassemble(talk.packets).talks[0].directions[0].gaps == []


def test_a_reset_in_the_next_ingest_is_not_an_acknowledgement() -> None:
    talk = Talk().open().say(0, bytes(100), ack=False).add(0, RST)
    (found,) = reassemble(talk.packets).talks
    resumed = Connection.resume(found.connection.state(), 0)
    assert [side.heard_seq for side in resumed.sides] == [side.heard_seq for side in found.connection.sides]
    assert any(side.heard_seq is not None for side in resumed.sides)


def test_a_fin_after_a_packet_without_payload() -> None:
    """That packet was captured first, when the start of its stream was unknown."""
    talk = Talk().open().say(1, bytes(1000)).close(1)
    last = next(p for p in reversed(talk.packets) if p.sport == 1935)
    last_word = replace(last, flags=ACK, seq=last.seq + 1)
    sides = reassemble([last_word, *talk.packets]).talks[0].connection.streams
    assert [stream.fin for stream in sides] == [0, 1000]


def test_facts_wait_for_a_limited_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's packets are missing from a hole on, so none of them shows that the hole became a gap."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.talk.seq[0] += 100
    talk.talk.add(0, ACK | PSH, bytes(100))
    for number in range(400):
        talk.wait(1).talk.say(1, talk.encoders[1].send(Message(4, number, 8, 1, b"\x2fa")), ack=False)
    waiting = []
    advance = Conversation.advance

    def watched(conversation: Conversation, *args: Any) -> Progress:
        progress = advance(conversation, *args)
        waiting.append(conversation.order.waiting_media[1])
        return progress

    monkeypatch.setattr(Conversation, "advance", watched)
    in_windows(talk.write(tmp_path / "talk.pcap"), 400, monkeypatch)
    assert 100 < max(waiting) < 130
