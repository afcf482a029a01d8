"""Reassembly of directed streams from lost, retransmitted, reordered and truncated packets."""

from __future__ import annotations

import io
import random
import zlib
from dataclasses import replace

import numpy as np
import pytest
from kit import capture_rewriting
from kit.capture_rewriting import ACK, FIN, MASK, PSH, RST, SYN, Talk
from kit.reassembled_streams import Result, reassemble, reassemble_bytes

from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.packets.dissector import Dissector
from rtmp_spark.capture.tcp import segment_batch
from rtmp_spark.capture.tcp.reassembler import Reassembler
from rtmp_spark.capture.tcp.stream_items import Closed, Run
from rtmp_spark.codec.limits import DEFAULT_LIMITS

SAID = random.Random(1).randbytes(20_000)
HEARD = random.Random(2).randbytes(7_000)


@pytest.fixture(params=["columns", "one by one", "tiny windows"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test here with both paths through a batch, and with windows of different sizes."""
    if request.param == "one by one":
        monkeypatch.setattr(segment_batch.SegmentBatch, "_simple_rows", lambda self, rows: np.zeros(len(rows), bool))
    if request.param == "tiny windows":
        monkeypatch.setattr("kit.reassembled_streams.reassemble.__defaults__", (70, DEFAULT_LIMITS))


def only(result: Result) -> tuple[bytes, bytes]:
    (streams,) = result.streams
    return streams


def test_a_whole_conversation() -> None:
    talk = Talk().open().say(0, SAID).say(1, HEARD).say(0, b"bye").close(1)
    (talked,) = reassemble(talk.packets).talks
    assert talked.bytes == (SAID + b"bye", HEARD)
    connection = talked.connection
    assert (connection.a, connection.b) == (("10.0.0.1", 40000), ("10.0.0.2", 1935))
    assert (connection.midstream, connection.close_kind, connection.closed_by) == (False, "fin", 1)
    assert connection.ts_first_ns == talk.packets[0].ts_ns
    assert connection.ts_last_ns == talk.packets[-1].ts_ns
    assert (connection.frame_first, connection.frame_last) == (1, len(talk.packets))
    there, back = connection.streams
    assert (there.packets, back.packets) == (
        sum(p.src == "10.0.0.1" for p in talk.packets),
        sum(p.src == "10.0.0.2" for p in talk.packets),
    )
    assert (there.captured_bytes, there.delivered_bytes, there.unacked_bytes) == (20_003, 20_003, 0)
    assert [d.end.kind for d in talked.directions if d.end] == ["fin", "fin"]


def test_every_offset_is_located_in_its_packet() -> None:
    talk = Talk().open().say(0, SAID, 777).close()
    (talked,) = reassemble(talk.packets).talks
    at = 0
    places = []
    for number, packet in enumerate(talk.packets, 1):
        if packet.payload:
            places.append((at, number))
            at += len(packet.payload)
    assert talked.directions[0].places == places


def test_packets_dropped_by_the_capture_tool_are_acknowledged_gaps() -> None:
    talk = Talk().open().say(0, SAID)
    lost = [n for n, p in enumerate(talk.packets) if p.payload][4:6]
    (talked,) = reassemble([p for n, p in enumerate(talk.packets) if n not in lost]).talks
    direction = talked.directions[0]
    assert direction.holes == [(4000, 2000)]
    assert bytes(direction.data) == SAID[:4000] + bytes(2000) + SAID[6000:]
    assert [(gap.acked, gap.cut) for gap in direction.gaps] == [(True, False)]
    assert talked.connection.streams[0].missed_bytes == 2000


def test_packets_lost_in_the_network_are_unacknowledged_gaps() -> None:
    talk = Talk().open().say(0, SAID[:3000])
    acknowledged = talk.seq[0]
    talk.say(0, SAID[3000:4000], ack=False)
    talk.packets.pop()
    talk.say(0, SAID[4000:5000], ack=False).add(1, ACK, ack=acknowledged)
    (talked,) = reassemble(talk.packets).talks
    assert [(g.offset, g.length, g.acked) for g in talked.directions[0].gaps] == [(3000, 1000, False)]
    assert talked.connection.streams[0].unacked_bytes == 2000


def test_a_gap_without_the_other_direction_has_an_unknown_cause() -> None:
    talk = Talk().open().say(0, SAID[:5000])
    mine = [p for p in talk.packets if p.src == "10.0.0.1"]
    del mine[4]
    (talked,) = reassemble(mine).talks
    assert [gap.acked for gap in talked.directions[0].gaps] == [None]


def test_lost_tail_that_was_acknowledged() -> None:
    talk = Talk().open().say(0, SAID[:3000])
    tail = [n for n, p in enumerate(talk.packets) if p.payload][-1]
    del talk.packets[tail]
    (talked,) = reassemble(talk.packets).talks
    assert [(g.offset, g.length, g.acked) for g in talked.directions[0].gaps] == [(2000, 1000, True)]


def test_an_unrecorded_fin_is_not_a_missing_byte() -> None:
    talk = Talk().open().say(0, SAID[:3000]).close()
    kept = [p for p in talk.packets if not (p.flags & FIN and p.src == "10.0.0.1")]
    (talked,) = reassemble(kept).talks
    assert talked.directions[0].holes == []


def test_a_fin_shows_a_lost_tail() -> None:
    talk = Talk().open().say(0, SAID[:3000], ack=False)
    talk.packets.pop()
    talk.add(0, FIN | ACK)
    (talked,) = reassemble(talk.packets).talks
    assert talked.directions[0].holes == [(2000, 1000)]


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_packets(seed: int) -> None:
    talk = Talk().open().say(0, SAID).say(1, HEARD).close()
    order = list(talk.packets)
    random.Random(seed).shuffle(order)
    (talked,) = reassemble(order).talks
    assert talked.bytes == (SAID, HEARD)
    assert (talked.connection.a, talked.connection.close_kind) == (("10.0.0.1", 40000), "fin")


@pytest.mark.parametrize("said", [b"", SAID])
def test_a_fin_recorded_after_the_acknowledgement_that_followed_it(said: bytes) -> None:
    packets = Talk().open().say(0, said).say(1, HEARD).close().packets
    assert packets[-1].flags == ACK and packets[-1].sport == 40000
    for order in ([packets[-1], *packets[:-1]], packets[::-1]):
        (talked,) = reassemble(order).talks
        assert talked.bytes == (said, HEARD)
        assert (talked.connection.closed_by, talked.connection.close_kind) == (0, "fin")
        assert talked.connection.streams[0].fin == len(said)


def test_every_packet_duplicated() -> None:
    talk = Talk().open().say(0, SAID).say(1, HEARD).close()
    (talked,) = reassemble([p for p in talk.packets for _ in (1, 2)]).talks
    assert talked.bytes == (SAID, HEARD)
    there, back = talked.connection.streams
    assert (there.duplicate_bytes, back.duplicate_bytes) == (len(SAID), len(HEARD))
    assert (there.conflicts, there.missed_bytes) == (0, 0)


def test_retransmissions_and_partial_overlaps() -> None:
    talk = Talk().open()
    base = talk.seq[0]
    for start, end in ((0, 1000), (500, 1500), (2000, 2600), (1400, 2100), (0, 2600), (2500, 3000)):
        talk.add(0, ACK, SAID[start:end], seq=base + start)
        talk.now_ns += 50_000_000
    (talked,) = reassemble(talk.packets).talks
    assert talked.bytes[0] == SAID[:3000]
    stream = talked.connection.streams[0]
    assert stream.duplicate_bytes == stream.captured_bytes - 3000
    assert talked.directions[0].conflicts == []


def test_in_a_conflict_the_first_bytes_win_and_both_are_reported() -> None:
    talk = Talk().open().say(0, SAID[:3000])
    other = bytes(b ^ 0xFF for b in SAID[1000:1100])
    talk.add(0, ACK, SAID[900:1000] + other + SAID[1100:1200], seq=talk.isn[0] + 1 + 900)
    (talked,) = reassemble(talk.packets).talks
    assert talked.bytes[0] == SAID[:3000]
    (conflict,) = talked.directions[0].conflicts
    assert (conflict.offset, conflict.length, conflict.frame) == (1000, 100, len(talk.packets))
    assert (conflict.crc_first, conflict.crc_second) == (zlib.crc32(SAID[1000:1100]), zlib.crc32(other))
    stream = talked.connection.streams[0]
    assert (stream.conflict_bytes, stream.duplicate_bytes) == (100, 200)


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("options", [b"", b"\1\1\x08\x0a12345678"], ids=["bare", "timestamps"])
@pytest.mark.parametrize("size", [100, 101])
def test_the_checksum_of_a_conflicting_packet_is_checked(six: bool, options: bytes, size: int) -> None:
    ip = capture_rewriting.as_ipv6 if six else capture_rewriting.as_ip
    talk = Talk().open().say(0, SAID[:3000])
    other = bytes(b ^ 0xFF for b in SAID[1000 : 1000 + size])
    talk.add(0, ACK, other, seq=talk.isn[0] + 1 + 1000, options=options)
    *before, (ts_ns, frame) = capture_rewriting.build(talk.packets, ip=ip)
    checksum_at = 14 + (40 if six else 20) + 16
    pseudo = sum(frame[n] << 8 * (1 - n % 2) for n in (range(22, 54) if six else range(26, 34))) + 6
    pseudo += 20 + len(options) + size

    def with_checksum(value: int) -> bool | None:
        sent = frame[:checksum_at] + value.to_bytes(2, "big") + frame[checksum_at + 2 :]
        (talked,) = reassemble_bytes([capture_rewriting.pcap([*before, (ts_ns, sent)])]).talks
        (conflict,) = talked.directions[0].conflicts
        return conflict.intact

    right = int.from_bytes(frame[checksum_at : checksum_at + 2], "big")
    assert with_checksum(right) is True
    assert with_checksum(right ^ 0x0100) is False
    assert with_checksum(0) is None
    assert with_checksum(pseudo % 0xFFFF) is None, "the network card was to go on from there"


def test_conflict_between_packets_after_a_hole() -> None:
    talk = Talk().open()
    base = talk.seq[0]
    talk.add(0, ACK, b"B" * 100, seq=base + 100).add(0, ACK, b"C" * 100, seq=base + 100)
    talk.add(0, ACK, b"A" * 100, seq=base)
    (talked,) = reassemble(talk.packets).talks
    assert talked.bytes[0] == b"A" * 100 + b"B" * 100
    assert [(c.offset, c.length) for c in talked.directions[0].conflicts] == [(100, 100)]


@pytest.mark.parametrize("after", [0, 1, 1500, 19_999, 20_000, 30_000])
def test_sequence_numbers_wrap(after: int) -> None:
    talk = Talk(isn=((MASK - after) & MASK, (MASK - after // 2) & MASK)).open().say(0, SAID).say(1, HEARD).close()
    (talked,) = reassemble(talk.packets).talks
    assert talked.bytes == (SAID, HEARD)
    assert talked.connection.streams[0].unacked_bytes == 0
    shuffled = list(talk.packets)
    random.Random(1).shuffle(shuffled)
    assert only(reassemble(shuffled)) == (SAID, HEARD)


def test_a_far_jump_is_a_gap_that_takes_no_memory() -> None:
    talk = Talk().open().say(0, SAID[:1000])
    talk.add(0, ACK, b"far away", seq=talk.seq[0] + 1_500_000_000)
    reassembler_items = reassemble_far(talk)
    assert reassembler_items == [(1000, 1_500_000_000)]


def reassemble_far(talk: Talk) -> list[tuple[int, int]]:
    """As `reassemble`, without writing the gap out as zeros."""
    import io

    from kit import capture_rewriting

    from rtmp_spark.capture.files.open_capture import open_capture
    from rtmp_spark.capture.packets.dissector import Dissector
    from rtmp_spark.capture.tcp.reassembler import Reassembler
    from rtmp_spark.capture.tcp.stream_items import Gap

    reassembler = Reassembler()
    (block,) = open_capture(io.BytesIO(capture_rewriting.pcap(capture_rewriting.build(talk.packets))))
    items = reassembler.feed(Dissector().segments(block)) + reassembler.finish()
    return [(item.offset, item.length) for item in items if isinstance(item, Gap)]


@pytest.mark.parametrize("payload", [b"", b"\0"])
def test_keep_alives_carry_no_bytes(payload: bytes) -> None:
    talk = Talk().open().say(0, SAID[:2000])
    for _ in range(3):
        talk.add(0, ACK, payload, seq=talk.seq[0] - 1).add(1, ACK)
    talk.say(0, SAID[2000:3000]).close()
    (talked,) = reassemble(talk.packets).talks
    assert talked.bytes[0] == SAID[:3000]
    assert talked.directions[0].conflicts == []
    assert talked.connection.streams[0].retransmitted_bytes == 0


def test_zero_window_and_its_probes() -> None:
    talk = Talk(step_ns=100_000_000).open().say(0, SAID[:2000])
    closed_at = talk.now_ns
    talk.add(1, ACK, window=0)
    for _ in range(3):
        talk.add(0, ACK, seq=talk.seq[0] - 1).add(1, ACK, window=0)  # as Linux probes
        talk.add(0, ACK, SAID[2000:2001]).add(1, ACK, window=0)  # as BSD probes
    opened_at = talk.now_ns
    talk.add(1, ACK)
    talk.say(0, SAID[2000:5000]).close()
    result = reassemble(talk.packets)
    (talked,) = result.talks
    assert talked.bytes[0] == SAID[:5000]
    stream = talked.connection.streams[0]
    assert (stream.zero_windows, stream.zero_window_ns) == (1, opened_at - closed_at)
    facts = result.intervals
    assert int(facts.zero_window_ns.sum()) == opened_at - closed_at
    assert set(facts.side[facts.zero_window_ns > 0].tolist()) == {0}
    assert (facts.zero_window_ns <= 1_000_000_000).all()


def test_a_window_closed_for_hours_does_not_get_a_row_per_second() -> None:
    """One wrong bit in the time of a packet can cause it."""
    talk = Talk().open().say(0, SAID[:2000]).add(1, ACK, window=0)
    talk.now_ns += 80_000 * 1_000_000_000
    talk.add(1, ACK).say(0, SAID[2000:5000]).close()
    result = reassemble(talk.packets)
    assert result.talks[0].connection.streams[0].zero_window_ns > 79_000 * 1_000_000_000
    assert len(result.intervals.zero_window_ns) < 1000


@pytest.mark.parametrize(("hours", "count"), [(23, 1), (25, 2)])
def test_a_connection_that_was_silent_for_a_day_is_over(hours: int, count: int) -> None:
    """Later packets between its endpoints belong to another connection."""
    talk = Talk().open().say(0, SAID[:3000]).say(1, HEARD)
    talk.now_ns += hours * 3600 * 1_000_000_000
    talk.say(0, SAID[3000:]).close()
    result = reassemble(talk.packets)
    assert len(result.talks) == count
    assert b"".join(t.bytes[0] for t in result.talks) == SAID
    assert [t.connection.close_kind for t in result.talks] == ["open", "fin"][-count:]


@pytest.mark.parametrize(("minutes", "midstream"), [(3, False), (5, True)])
def test_a_connection_without_payload_is_over_sooner(minutes: int, midstream: bool) -> None:
    talk = Talk().open()
    talk.now_ns += minutes * 60 * 1_000_000_000
    talk.say(0, SAID).close()
    talked = reassemble(talk.packets).talks[-1]
    assert talked.bytes[0] == SAID and talked.connection.midstream is midstream


def test_data_in_the_syn() -> None:
    talk = Talk().add(0, SYN, b"early", ack=0)
    talk.seq[0] += 6
    talk.add(1, SYN | ACK)
    talk.seq[1] += 1
    talk.say(0, SAID[:100]).close()
    assert only(reassemble(talk.packets)) == (b"early" + SAID[:100], b"")


def test_simultaneous_open() -> None:
    talk = Talk().add(0, SYN, ack=0).add(1, SYN, ack=0)
    talk.seq = [talk.seq[0] + 1, talk.seq[1] + 1]
    talk.add(0, SYN | ACK, seq=talk.isn[0]).add(1, SYN | ACK, seq=talk.isn[1])
    talk.say(0, SAID[:2000]).say(1, HEARD[:2000]).close()
    assert only(reassemble(talk.packets)) == (SAID[:2000], HEARD[:2000])


def test_repeated_syn_is_the_same_connection() -> None:
    talk = Talk().add(0, SYN, ack=0).add(0, SYN, ack=0).open().say(0, SAID[:2000]).close()
    assert only(reassemble(talk.packets)) == (SAID[:2000], b"")


def test_ports_used_again_are_two_connections() -> None:
    first = Talk(isn=(1000, 2000)).open().say(0, SAID[:3000]).close()
    second = Talk(isn=(777_000, 888_000), start_ns=first.now_ns).open().say(0, HEARD).close()
    result = reassemble(first.packets + second.packets)
    assert result.streams == [(SAID[:3000], b""), (HEARD, b"")]
    assert [t.connection.number for t in result.talks] == [0, 1]


def test_ports_used_again_without_a_close_in_between() -> None:
    first = Talk(isn=(1000, 2000)).open().say(0, SAID[:3000])
    second = Talk(isn=(500, 888_000), start_ns=first.now_ns).open().say(0, HEARD)
    del first.packets[5]
    result = reassemble(first.packets + second.packets)
    assert result.streams == [(SAID[:1000] + bytes(1000) + SAID[2000:3000], b""), (HEARD, b"")]
    assert int(result.intervals.gap_bytes.sum()) == 1000


def test_ports_used_again_by_a_connection_whose_syn_was_not_recorded() -> None:
    first = Talk(isn=(1000, 2000)).open().say(0, SAID[:3000]).close()
    second = Talk(isn=(777_000, 888_000), start_ns=first.now_ns + 61_000_000_000).open().say(0, HEARD)
    result = reassemble(first.packets + second.packets[3:])
    assert result.streams == [(SAID[:3000], b""), (HEARD, b"")]
    assert [t.connection.midstream for t in result.talks] == [False, True]


def test_reset_in_the_window_ends_it_and_later_bytes_are_counted() -> None:
    talk = Talk().open().say(0, SAID[:2000]).say(1, HEARD[:500])
    talk.add(1, RST | ACK).add(0, ACK | PSH, SAID[2000:3000])
    (talked,) = reassemble(talk.packets).talks
    assert talked.bytes == (SAID[:2000], HEARD[:500])
    connection = talked.connection
    assert (connection.close_kind, connection.closed_by) == ("rst", 1)
    stream = connection.streams[0]
    assert (stream.skipped_bytes, dict(stream.skipped_reasons or {})) == (1000, {"after_reset": 1000})
    assert [d.end.kind for d in talked.directions if d.end] == ["rst", "rst"]


def test_bytes_sent_before_the_reset_count_when_they_are_recorded_after_it() -> None:
    """A FIN overtakes the last bytes in the network, and a receiver that had closed answers it with a reset."""
    talk = Talk().open().say(0, SAID[:2000])
    last = talk.seq[0]
    talk.add(0, FIN | ACK, seq=last + 100)
    talk.add(1, RST).add(0, ACK | PSH, SAID[2000:2100], seq=last).add(1, RST)
    (talked,) = reassemble(talk.packets).talks
    assert talked.bytes[0] == SAID[:2100]
    assert (talked.connection.close_kind, talked.connection.closed_by) == ("fin", 0)
    stream = talked.connection.streams[0]
    assert (stream.gaps, stream.skipped_bytes) == (0, 0)


@pytest.mark.parametrize("jump", [-50_000, 10_000_000, 1 << 31])
def test_reset_outside_the_window_is_ignored(jump: int) -> None:
    talk = Talk().open().say(0, SAID[:2000])
    talk.add(0, RST, seq=talk.seq[0] + jump)
    talk.say(0, SAID[2000:4000]).close()
    (talked,) = reassemble(talk.packets).talks
    assert talked.bytes[0] == SAID[:4000]
    assert (talked.connection.close_kind, talked.connection.resets_ignored) == ("fin", 1)


def test_reset_after_the_fins_stays_a_fin() -> None:
    talk = Talk().open().say(0, SAID[:2000]).close()
    talk.add(0, RST)
    (talked,) = reassemble(talk.packets).talks
    assert (talked.connection.close_kind, talked.connection.closed_by) == ("fin", 0)


def test_refused_connection() -> None:
    talk = Talk().add(0, SYN, ack=0)
    talk.add(1, RST | ACK, seq=0, ack=talk.isn[0] + 1)
    result = reassemble(talk.packets)
    (talked,) = result.talks
    assert (talked.connection.close_kind, talked.connection.closed_by) == ("rst", 1)
    assert talked.bytes == (b"", b"")


def test_data_after_the_fin_is_counted() -> None:
    talk = Talk().open().say(0, SAID[:1000])
    talk.add(0, FIN | ACK)
    talk.add(0, ACK, b"too late", seq=talk.seq[0] + 1)
    (talked,) = reassemble(talk.packets).talks
    assert talked.bytes[0] == SAID[:1000]
    assert dict(talked.connection.streams[0].skipped_reasons or {}) == {"after_fin": 8}


def test_after_a_half_close_the_other_side_continues() -> None:
    talk = Talk().open().say(0, SAID[:1000])
    talk.add(0, FIN | ACK)
    talk.seq[0] += 1
    talk.say(1, HEARD).add(1, FIN | ACK)
    (talked,) = reassemble(talk.packets).talks
    assert talked.bytes == (SAID[:1000], HEARD)
    assert talked.connection.closed_by == 0


@pytest.mark.parametrize("side", [0, 1])
def test_one_direction_only(side: int) -> None:
    talk = Talk().open().say(0, SAID).say(1, HEARD).close()
    address = ("10.0.0.1", "10.0.0.2")[side]
    (talked,) = reassemble([p for p in talk.packets if p.src == address]).talks
    assert talked.bytes[side] == (SAID, HEARD)[side]
    assert talked.directions[1 - side].holes == []
    assert talked.connection.a == ("10.0.0.1", 40000)
    assert talked.connection.streams[1 - side].packets == 0


def test_a_midstream_start() -> None:
    talk = Talk().open().say(0, SAID).say(1, HEARD).close()
    (talked,) = reassemble(talk.packets[11:]).talks
    skipped = sum(len(p.payload) for p in talk.packets[:11])
    assert talked.bytes == (SAID[skipped:], HEARD)
    assert talked.connection.midstream
    assert not talked.connection.streams[0].syn


def test_a_midstream_start_with_shuffled_packets() -> None:
    talk = Talk().open().say(0, SAID).say(1, HEARD)
    rest = talk.packets[11:]
    skipped = sum(len(p.payload) for p in talk.packets[:11])
    random.Random(4).shuffle(rest)
    assert only(reassemble(rest)) == (SAID[skipped:], HEARD)


def test_syn_lost_but_answered() -> None:
    talk = Talk().open().say(0, SAID[:3000])
    first = next(n for n, p in enumerate(talk.packets) if p.payload)
    (talked,) = reassemble([p for n, p in enumerate(talk.packets) if n not in (0, first)]).talks
    assert talked.directions[0].holes == [(0, 1000)]
    assert not talked.connection.midstream
    assert talked.connection.a == ("10.0.0.1", 40000)


def test_acknowledged_before_it_was_recorded() -> None:
    talk = Talk().open().say(0, SAID[:5000])
    order = list(talk.packets)
    for n in range(3, len(order) - 1, 2):
        order[n], order[n + 1] = order[n + 1], order[n]
    assert only(reassemble(order)) == (SAID[:5000], b"")


def test_snapshot_length_leaves_gaps_in_place() -> None:
    talk = Talk().open().say(0, SAID[:5000]).close()
    (talked,) = reassemble(talk.packets, snaplen=154).talks
    direction = talked.directions[0]
    assert direction.holes == [(n * 1000 + 100, 900) for n in range(5)]
    assert all(gap.cut and gap.acked for gap in direction.gaps)
    assert bytes(direction.data) == b"".join(SAID[n * 1000 : n * 1000 + 100] + bytes(900) for n in range(5))
    stream = talked.connection.streams[0]
    assert (stream.delivered_bytes, stream.missed_bytes, stream.cut_bytes) == (500, 4500, 4500)


def test_a_hole_becomes_a_gap_only_when_too_many_bytes_are_held() -> None:
    limits = replace(DEFAULT_LIMITS, tcp_hold_bytes=10_000)
    for waiting, holes in ((10, []), (11, [(0, 1000)])):
        talk = Talk().open()
        base = talk.seq[0]
        for n in range(1, waiting + 1):
            talk.add(0, ACK, SAID[n * 1000 : n * 1000 + 1000], seq=base + n * 1000)
        talk.add(0, ACK, SAID[:1000], seq=base)
        (talked,) = reassemble(talk.packets, limits=limits).talks
        assert talked.directions[0].holes == holes
        assert bytes(talked.directions[0].data[1000:]) == SAID[1000 : 1000 * (waiting + 1)]
        late = 1000 if holes else 0
        assert talked.connection.streams[0].duplicate_bytes == late


def test_reordering_and_retransmission_are_distinguished() -> None:
    talk = Talk(step_ns=100_000).open()
    base = talk.seq[0]
    talk.add(0, ACK, SAID[1000:2000], seq=base + 1000).add(0, ACK, SAID[:1000], seq=base)
    talk.add(0, ACK, SAID[3000:4000], seq=base + 3000)
    talk.now_ns += 300_000_000
    talk.add(0, ACK, SAID[2000:3000], seq=base + 2000)
    (talked,) = reassemble(talk.packets).talks
    assert talked.bytes[0] == SAID[:4000]
    stream = talked.connection.streams[0]
    assert (stream.out_of_order_packets, stream.retransmitted_bytes) == (1, 1000)


def test_unwanted_connection_is_only_counted() -> None:
    talk = Talk().open().say(0, SAID[:3000])
    again = Talk(isn=(999_999, 1), start_ns=talk.now_ns + 10**9).open().say(0, HEARD)
    result = drop_and_count(talk.packets, again.packets)
    assert result == ([b""], 3000, HEARD)


def drop_and_count(first: list, second: list) -> tuple[list[bytes], int, bytes]:  # type: ignore[type-arg]
    reassembler, dissector = Reassembler(), Dissector()

    def feed(packets: list) -> list:  # type: ignore[type-arg]
        (block,) = open_capture(io.BytesIO(capture_rewriting.pcap(capture_rewriting.build(packets))))
        return list(reassembler.feed(dissector.segments(block)))

    feed(first[:8])
    (connection,) = reassembler.connections
    connection.drop()
    items = feed(first[8:])
    delivered = [b"".join(i.data for i in items if isinstance(i, Run))]
    items = feed(second) + reassembler.finish()
    (old,) = [i.connection for i in items if isinstance(i, Closed) and i.connection is connection]
    stream = old.streams[0]
    assert stream.captured_bytes == stream.delivered_bytes + stream.skipped_bytes
    return delivered, stream.captured_bytes, b"".join(i.data for i in items if isinstance(i, Run))


def test_a_syn_flood_is_limited_and_does_not_affect_other_connections() -> None:
    limits = replace(DEFAULT_LIMITS, brief_flow_bytes=15_000)
    real = Talk().open().say(0, SAID)
    flood = [
        Talk((f"10.9.{n // 250}.{n % 250}", 1024 + n), start_ns=real.now_ns + n).add(0, SYN, ack=0).packets[0]
        for n in range(2000)
    ]
    rest = Talk(start_ns=real.now_ns + 10**9)
    rest.seq = real.seq
    rest.say(0, HEARD)
    result = reassemble(real.packets + flood + rest.packets, 2000, limits)
    assert [t.bytes[0] for t in result.talks if not t.connection.half_open] == [SAID + HEARD]
    assert result.reassembler.counts["flows_evicted"] >= 1900
    assert [p.detail for p in result.reassembler.take_problems()]


@pytest.mark.parametrize("probes", [2, 4])  # a health check needs seven packets
def test_a_connection_without_payload_waits_packed_until_its_first_payload(probes: int) -> None:
    probe = Talk().open()
    for _ in range(probes):
        probe.add(0, ACK)
    quiet = list(probe.packets)
    probe.say(0, SAID[:2500])
    reassembler, dissector, delivered = Reassembler(), Dissector(), b""
    for number, packet in enumerate(probe.packets):
        (block,) = open_capture(io.BytesIO(capture_rewriting.pcap(capture_rewriting.build([packet]))))
        items = reassembler.feed(dissector.segments(block))
        delivered += b"".join(item.data for item in items if isinstance(item, Run))
        assert reassembler.brief_flows == (number < len(quiet))
    assert delivered == SAID[:2500]


def test_the_total_of_held_bytes_is_limited() -> None:
    limits = replace(DEFAULT_LIMITS, tcp_hold_bytes_total=20_000)
    packets = []
    for n in range(5):
        talk = Talk(("10.0.1.1", 2000 + n)).open()
        for at in range(1000, 9000, 1000):
            talk.add(0, ACK, SAID[at : at + 1000], seq=talk.seq[0] + at)
        packets += talk.packets
    result = reassemble(packets, 5000, limits)
    assert all(t.directions[0].holes == [(0, 1000)] for t in result.talks)
    assert result.reassembler.counts["holds_released"] >= 2


@pytest.mark.parametrize("many", [1023, 1024, 1025, 1500])
def test_conflicts_beyond_the_first_1024_are_counted(many: int) -> None:
    talk = Talk().open().say(0, SAID[:3000])
    for i in range(many):
        talk.add(0, ACK, bytes([SAID[i] ^ 0xFF]), seq=talk.isn[0] + 1 + i)
    (talked,) = reassemble(talk.packets).talks
    assert len(talked.directions[0].conflicts) == min(many, 1024)
    assert talked.connection.streams[0].conflicts == many
