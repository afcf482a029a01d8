"""Packets that were recorded twice, and retransmissions that show a loss."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

import pytest
from kit import capture_rewriting
from kit.capture_rewriting import ACK, Packet, Talk

from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.packets.dissector import Dissector
from rtmp_spark.capture.tcp.half_stream import Stream
from rtmp_spark.capture.tcp.reassembler import Reassembler
from rtmp_spark.codec.limits import REMEMBERED_PACKETS, SAVED_PACKETS

SAID = bytes(range(256)) * 200
SECOND = 1_000_000_000
Frames = list[tuple[int, bytes]]


def numbered(first: int = 1) -> Callable[[Packet], bytes]:
    """IPv4 packets with ascending identifications, as most systems send them."""
    count = first - 1

    def wrap(packet: Packet) -> bytes:
        nonlocal count
        count += 1
        return with_id(packet, count)

    return wrap


def with_id(packet: Packet, ident: int) -> bytes:
    pseudo = capture_rewriting.as_ip(packet)
    return pseudo[:4] + struct.pack(">H", ident) + pseudo[6:10] + b"\0\0" + pseudo[12:]


def built(talk: Talk, ip: Callable[[Packet], bytes] | None = None) -> Frames:
    return capture_rewriting.build(talk.packets, ip=ip or numbered())


def sent(*files: Frames, windows: int = 1 << 20) -> Stream:
    """What is known about the client's stream after these files; `windows`: packets fed at a time."""
    reassembler = Reassembler()
    reassembler.remembered_packets = REMEMBERED_PACKETS if len(files) > 1 else 0
    for number, frames in enumerate(files):
        dissector = Dissector()
        for block in open_capture(io.BytesIO(capture_rewriting.pcap(frames, nano=True))):
            segments = dissector.segments(block)
            for at in range(0, len(segments), windows):
                reassembler.feed(segments.select(slice(at, at + windows)), number)
    (connection,) = reassembler.connections
    return connection.streams[0]


def after(frames: Frames, index: int, delay_ns: int, change: Callable[[bytes], bytes] = bytes) -> Frames:
    """The frames with a copy of one of them, recorded later."""
    ts_ns, frame = frames[index]
    copy = (ts_ns + delay_ns, change(frame))
    return sorted([*frames, copy], key=lambda one: one[0])


def first_data(frames: Frames) -> int:
    return next(n for n, (_, frame) in enumerate(frames) if len(frame) > 500)


@pytest.mark.parametrize("windows", [1, 7, 1 << 20])
@pytest.mark.parametrize(("delay_ns", "copies"), [(1000, 1), (SECOND, 1), (SECOND + 1, 0)])
def test_the_same_packet_within_a_second_is_a_duplicate(delay_ns: int, copies: int, windows: int) -> None:
    frames = built(Talk(step_ns=40_000_000).open().say(0, SAID[:40_000]))
    stream = sent(after(frames, first_data(frames), delay_ns), windows=windows)
    assert (stream.duplicate_packets, stream.duplicate_bytes) == (copies, 1000)
    assert stream.retransmitted_bytes == 1000 * (1 - copies)
    assert stream.packets == 2 + 40 + 1 - copies  # SYN, ACK and the data


def test_the_same_packets_in_another_file_are_duplicates_at_any_distance() -> None:
    frames = built(Talk(step_ns=100_000_000).open().say(0, SAID))
    later = [(ts_ns + 3600 * SECOND, frame) for ts_ns, frame in frames]
    stream = sent(frames, later)
    assert (stream.duplicate_bytes, stream.retransmitted_bytes) == (len(SAID), 0)
    assert stream.duplicate_packets == stream.packets


@pytest.mark.parametrize("windows", [1, 7, 1 << 20])
def test_duplicates_in_a_file_that_begins_before_the_last_one_ends(windows: int) -> None:
    frames = built(Talk(step_ns=100_000_000).open().say(0, SAID[:40_000]))
    second = after(frames[1::2], 5, 1000)
    stream = sent(frames[::2], second, windows=windows)
    assert (stream.duplicate_packets, stream.retransmitted_bytes) == (1, 0)


@pytest.mark.parametrize("windows", [1, 7, 1 << 20])
def test_duplicates_count_for_the_next_connection_between_the_same_endpoints(windows: int) -> None:
    """However many packets are processed at once; the first connection is over when the second one begins."""
    first = built(Talk().open().say(0, SAID[:1000]).close(0))
    second = [(ts_ns + 3600 * SECOND, frame) for ts_ns, frame in built(Talk().open().say(0, SAID), numbered(1000))]
    stream = sent(first, after(second, first_data(second), 1000), windows=windows)
    assert (stream.duplicate_packets, stream.retransmitted_bytes) == (1, 0)


def test_packets_of_a_connection_that_is_over_are_forgotten() -> None:
    """Whether the next connection between its endpoints begins in the same window as other packets, or not."""
    first = built(Talk().open().say(0, SAID[:1000]).close(0))
    again = [(ts_ns + 3600 * SECOND, frame) for ts_ns, frame in first]
    assert sent(first, again).duplicate_packets == 0


@pytest.mark.parametrize("windows", [1, 7, 1 << 20])
def test_packets_after_the_end_of_a_connection_when_the_clock_was_set_back(windows: int) -> None:
    talk = Talk().open().say(0, SAID[:5000])
    talk.now_ns -= 100 * SECOND
    stream = sent(built(talk.close(0).add(0, ACK)), windows=windows)
    assert (stream.captured_bytes, stream.fin) == (5000, 5000)


@pytest.mark.parametrize(("overlap", "copies"), [(SAVED_PACKETS, SAVED_PACKETS), (SAVED_PACKETS + 1, SAVED_PACKETS)])
@pytest.mark.parametrize("slow_s", [0, 5])
def test_the_last_packets_are_saved_with_a_connection(overlap: int, copies: int, slow_s: int) -> None:
    """In the order of the recording, also if the clock was set back after half of them."""
    frames = built(Talk(step_ns=10_000_000).open().say(0, SAID * 50, ack=False))
    half = len(frames) - 1000
    frames = frames[:half] + [(ts_ns - slow_s * SECOND, frame) for ts_ns, frame in frames[half:]]
    first, second = Reassembler(), Reassembler()
    first.remembered_packets = SAVED_PACKETS
    for number, reassembler in enumerate((first, second)):
        for block in open_capture(io.BytesIO(capture_rewriting.pcap(frames[-overlap * number :], nano=True))):
            segments = Dissector().segments(block)
            for at in range(0, len(segments), 100):
                reassembler.feed(segments.select(slice(at, at + 100)), number)
        if reassembler is first:
            second.resume(next(iter(first.connections)).state())
    (connection,) = second.connections
    assert connection.streams[0].duplicate_packets == copies


def test_a_hop_changes_the_time_to_live_only() -> None:
    frames = built(Talk().open().say(0, SAID[:5000]))
    stream = sent(after(frames, first_data(frames), 50, lambda f: f[:22] + bytes([f[22] - 1]) + f[23:]))
    assert (stream.duplicate_packets, stream.retransmitted_bytes) == (1, 0)


@pytest.mark.parametrize(("delay_ns", "copies"), [(0, 1), (1000, 0)])
def test_without_id_and_timestamps_only_the_capture_time_decides(delay_ns: int, copies: int) -> None:
    frames = built(Talk().open().say(0, SAID[:5000]), capture_rewriting.as_ipv6)
    stream = sent(after(frames, first_data(frames), delay_ns))
    assert (stream.duplicate_packets, stream.retransmitted_bytes) == (copies, 1000 * (1 - copies))


@pytest.mark.parametrize(("timestamp", "copies"), [(7, 1), (8, 0)])
def test_without_id_the_timestamp_option_decides(timestamp: int, copies: int) -> None:
    def option(value: int) -> bytes:
        return struct.pack(">BBBBII", 1, 1, 8, 10, value, 1)

    talk = Talk().open().say(0, SAID[:1000])
    talk.add(0, ACK, SAID[1000:2000], options=option(7)).add(0, ACK, SAID[1000:2000], options=option(timestamp))
    stream = sent(built(talk, capture_rewriting.as_ipv6))
    assert (stream.duplicate_packets, stream.retransmitted_bytes) == (copies, 1000 * (1 - copies))


def test_a_saved_connection_recognises_duplicates() -> None:
    frames = built(Talk().open().say(0, SAID[:20_000]))
    first, second = Reassembler(), Reassembler()
    for block in open_capture(io.BytesIO(capture_rewriting.pcap(frames))):
        first.feed(Dissector().segments(block), 0)
    (connection,) = first.connections
    connection = second.resume(connection.state())
    for block in open_capture(io.BytesIO(capture_rewriting.pcap(frames))):
        second.feed(Dissector().segments(block), 1)
    assert (connection.streams[0].duplicate_bytes, connection.streams[0].retransmitted_bytes) == (20_000, 0)


# -- loss -------------------------------------------------------------------------------------------------------------


def lossy(*, dsack: bool = False, window: int = 65535, acked: bool = False) -> Talk:
    """A client that sends its third kilobyte again 300 ms later."""
    talk = Talk(step_ns=1_000_000).open().say(0, SAID[:2000])
    begins = talk.seq[0]
    talk.say(0, SAID[2000:10_000], ack=False)
    talk.add(1, ACK, ack=talk.seq[0] if acked else begins, window=window)
    talk.now_ns += 300_000_000
    talk.add(0, ACK, SAID[2000:3000], seq=begins)
    blocks = struct.pack(">BBBBII", 1, 1, 5, 10, begins, begins + 1000) if dsack else b""
    return talk.add(1, ACK, options=blocks).say(0, SAID[10_000:30_000])


@pytest.mark.parametrize("windows", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    ("talk", "lost"),
    [
        (lossy(), 1000),
        (lossy(dsack=True), 0),
        (lossy(window=0), 0),
        (lossy(acked=True), 0),
    ],
    ids=["lost", "reported as a duplicate", "closed window", "acknowledged before"],
)
def test_retransmissions_that_are_losses(talk: Talk, lost: int, windows: int) -> None:
    stream = sent(built(talk), windows=windows)
    assert stream.retransmitted_bytes == 1000
    assert (stream.loss.bytes, stream.loss.segments) == (lost, lost // 1000)
    assert stream.loss.sent_bytes == 31_000
    assert stream.loss.data_packets == 31
    assert stream.loss.worst_second == pytest.approx(lost / 31_000)


def test_a_retransmission_with_the_same_ip_id_is_no_loss() -> None:
    """The network doubled the packet, and the window in its header was rewritten on the way."""
    frames = built(Talk(step_ns=1_000_000).open().say(0, SAID[:8000], ack=False))
    copy = after(frames, first_data(frames), 900_000_000, lambda f: f[:48] + b"\x12\x34\0\0" + f[52:])
    stream = sent(copy)
    assert (stream.retransmitted_bytes, stream.duplicate_packets, stream.loss.segments) == (1000, 0, 0)


@pytest.mark.parametrize("sent_again", [False, True], ids=["reordered", "lost"])
@pytest.mark.parametrize("windows", [1, 5, 1 << 20])
def test_a_hole_filled_after_more_data_is_a_loss_if_its_ip_id_is_newer(sent_again: bool, windows: int) -> None:
    """The point of capture is near the receiver; the third packet comes 40 ms late, and others just before it."""
    talk = Talk(step_ns=10_000_000).open()
    base = talk.seq[0]
    for number in (0, 1, 3, 4, 5, 2, 6):
        talk.add(0, ACK, SAID[number * 1000 : number * 1000 + 1000], seq=base + number * 1000)

    def ip(packet: Packet) -> bytes:
        number = (packet.seq - base) // 1000
        return with_id(packet, 100 + (8 if number == 2 and sent_again else number))

    stream = sent(built(talk, ip), windows=windows)
    assert (stream.retransmitted_bytes, stream.loss.segments) == ((1000, 1) if sent_again else (0, 0))
    assert stream.out_of_order_packets == (0 if sent_again else 1)


def test_only_repeated_retransmissions_are_trouble_if_none_was_needed() -> None:
    """A tail-loss probe that the receiver did not need says nothing about the network; four of them do."""
    for times, seconds in ((1, 0), (4, 1)):
        talk = Talk(step_ns=1_000_000).open().say(0, SAID[:2000])
        for _ in range(times):
            talk.add(0, ACK, SAID[1000:2000], seq=talk.seq[0] - 1000)
        stream = sent(built(talk))
        assert (stream.loss.segments, len(stream.loss.troubled_seconds)) == (0, seconds)


def test_the_loss_counter_is_saved() -> None:
    frames = built(lossy())
    whole = sent(frames)
    reassembler = Reassembler()
    for block in open_capture(io.BytesIO(capture_rewriting.pcap(frames, nano=True))):
        segments = Dissector().segments(block)
        reassembler.feed(segments.select(slice(0, 14)))
        (connection,) = reassembler.connections
        reassembler = Reassembler()
        connection = reassembler.resume(connection.state())
        reassembler.feed(segments.select(slice(14, None)))
    assert connection.streams[0].loss.state() == whole.loss.state()
