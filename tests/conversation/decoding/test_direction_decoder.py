"""One direction: facts do not depend on how bytes arrive, states resume anywhere, every fact has its packet."""

from __future__ import annotations

import json
import random
import sys
from types import FrameType
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.chunk_reader import HANDSHAKE
from kit.chunk_writer import basic_header
from kit.real_streams import SAMPLES, directions

from rtmp_spark.capture.tcp.frame_numbers import FRAME_BITS
from rtmp_spark.capture.tcp.stream_items import Gap, Run
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.message import AGGREGATE, AUDIO, SET_CHUNK_SIZE, Message, dump_aggregate, dump_set_chunk_size
from rtmp_spark.conversation.decoding import direction_decoder, message_facts
from rtmp_spark.conversation.decoding.direction_decoder import DirectionDecoder
from rtmp_spark.conversation.facts import CommandFact, Facts, FaultFact, LagFact

PACKET = 1000
NOBODY: Any = None  # the connection, which a direction never looks at


def run(data: bytes, start: int, end: int) -> Run:
    """Bytes start..end of a direction whose packets carry 1000 bytes each: packet n at n milliseconds."""
    first, last = start // PACKET, max(end - 1, start) // PACKET
    numbers = np.arange(first, last + 1)
    offsets = np.maximum(numbers * PACKET, start)
    return Run(NOBODY, 0, start, data[start:end], offsets, numbers + 1, numbers * 1_000_000)


def plain(facts: Facts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in Facts.__slots__}


def joined(parts: list[Facts]) -> dict[str, Any]:
    """The facts of several calls as one."""
    whole: dict[str, Any] = {name: [] for name in Facts.__slots__ if name != "seconds"}
    seconds: dict[int, list[Any]] = {}
    for part in parts:
        for name in whole:
            whole[name] += getattr(part, name)
        for second, media in part.seconds.items():
            values = media.values()
            known = seconds.setdefault(second, [0, 0, 0, 0, None, None, None])
            for index in range(4):
                known[index] += values[index] or 0
            known[4] = values[4] if known[4] is None else known[4]
            known[5] = values[5] if values[5] is not None else known[5]
            known[6] = values[6] if values[6] is not None else known[6]
    return {**whole, "seconds": seconds}


@pytest.fixture(scope="module", params=["ffmpeg_publish_h264_aac.pcap", "p1936_extended_timestamps_multichunk.pcap"])
def stream(request: pytest.FixtureRequest) -> bytes:
    """The longest direction of a real capture, reassembled by a few lines that do not use rtmp_spark."""
    return max((data for _, data in directions(SAMPLES / request.param)), key=len)[:150_000]


def decoded(data: bytes, cuts: list[int], *, resume: bool) -> dict[str, Any]:
    decoder = DirectionDecoder("handshake")
    parts = []
    for start, end in zip([0, *cuts], [*cuts, len(data)]):
        if start < end:
            decoder.receive_run(run(data, start, end))
        if resume:
            parts.append(decoder.take_facts())
            decoder = DirectionDecoder.resume(json.loads(json.dumps(decoder.state())))
    decoder.receive_end()
    return joined([*parts, decoder.take_facts()])


def test_cuts_and_resumed_states_change_nothing(stream: bytes) -> None:
    whole = decoded(stream, [], resume=False)
    assert len(whole["messages"]) > 100
    dice = random.Random(5)
    for resume in (False, True):
        cuts = sorted(dice.sample(range(len(stream)), 60))
        assert decoded(stream, cuts, resume=resume) == whole


def test_every_message_names_its_packets(stream: bytes) -> None:
    for row in decoded(stream, [], resume=False)["messages"]:
        _, file_first, file_last, ts_first, ts_last, frame_first, frame_last, start = row[:8]
        assert (file_first, file_last) == (0, 0)
        assert frame_first == start // PACKET + 1 and ts_first == start // PACKET * 1000
        assert frame_last >= frame_first and ts_last == (frame_last - 1) * 1000


def test_checksums_are_those_of_the_bytes(stream: bytes) -> None:
    """The payload of a message in one chunk is a slice of the stream."""
    for row in decoded(stream, [], resume=False)["messages"]:
        start, fmt, csid, length, chunks, crc = row[7], row[8], row[9], row[18], row[19], row[24]
        if chunks == 1 and csid < 64 and row[17] is None:
            payload = start + 1 + (11, 7, 3, 0)[fmt]
            assert crc == crc32(stream[payload : payload + length])


def test_file_numbers_are_in_the_upper_bits() -> None:
    data = RtmpEncoder().send(Message(4, 0, AUDIO, 1, b"\x2f" + bytes(99)))
    decoder = DirectionDecoder("chunks")
    item = run(data, 0, len(data))
    item = item._replace(seg_frames=item.seg_frames | 3 << FRAME_BITS)
    decoder.receive_run(item)
    (row,) = decoder.take_facts().messages
    assert row[1:3] == (3, 3) and row[5:7] == (1, 1)


def test_a_gap_is_a_fact_and_loses_one_message() -> None:
    encoder = RtmpEncoder()
    sent = [encoder.send(Message(2, 0, SET_CHUNK_SIZE, 0, dump_set_chunk_size(4096)))]
    sent += [encoder.send(Message(4, 26 * n, AUDIO, 1, b"\x2f" + bytes([n]) * 300)) for n in range(30)]
    data = b"".join(sent)
    hole = sum(map(len, sent[:10])) + 100
    decoder = DirectionDecoder("chunks")
    decoder.receive_run(run(data, 0, hole))
    decoder.receive_gap(Gap(NOBODY, 0, hole, 50, 7, 7_000_000, True, False))
    decoder.receive_run(run(data, hole + 50, len(data)))
    decoder.receive_end()
    facts = decoder.take_facts()
    assert [row[21] for row in facts.messages].count("complete") == 30
    (gap,) = [fact for fact in facts.notable if type(fact).__name__ == "GapFact"]
    assert (gap.offset, gap.length, gap.acked) == (hole, 50, True)


SOUND = bytes.fromhex("000003 08")  # length and type of what follows


def sound(csid: int, fmt: int, time: int) -> bytes:
    header = basic_header(fmt, csid, 2 if csid > 63 else 1) + time.to_bytes(3, "big") + SOUND
    return header + (b"" if fmt else b"\1\0\0\0") + b"\xaf\x01\x21"


def lagging(csids: range) -> tuple[DirectionDecoder, bytes]:
    """A decoder that lost timestamp deltas on each of these csids, and its bytes."""
    before = b"".join(sound(csid, 0, 5) for csid in csids)
    lost = sound(4, 0, 6)
    after_loss = sound(4, 0, 7) * 200 + b"".join(sound(csid, 1, 1) for csid in csids)
    data = before + lost + after_loss
    decoder = DirectionDecoder("chunks")
    decoder.receive_run(run(data, 0, len(before)))
    decoder.receive_gap(Gap(NOBODY, 0, len(before), len(lost), 7, 7_000_000, True, False))
    decoder.receive_run(run(data, len(before) + len(lost), len(data)))
    return decoder, data


@pytest.mark.parametrize("resume", [False, True])
def test_an_absolute_timestamp_ends_the_lag_of_its_own_csid_only(resume: bool) -> None:
    csids = range(70, 76)
    decoder, data = lagging(csids)
    lags = [fact for fact in decoder.take_facts().notable if isinstance(fact, LagFact)]
    assert [(fact.csid, fact.stream_id, fact.over) for fact in lags] == [(csid, 1, False) for csid in csids]
    more = sound(73, 0, 20) + sound(70, 1, 20) + sound(73, 1, 20) + sound(70, 0, 60)
    if resume:
        decoder = DirectionDecoder.resume(json.loads(json.dumps(decoder.state())))
    decoder.receive_run(run(data + more, len(data), len(data + more)))
    lags = [fact for fact in decoder.take_facts().notable if isinstance(fact, LagFact)]
    assert [(fact.csid, fact.stream_id, fact.over) for fact in lags] == [(73, 1, True), (70, 1, True)]


def lines_run(decoder: DirectionDecoder, item: Run) -> int:
    lines = 0

    def counted(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return counted if frame.f_code.co_filename in (direction_decoder.__file__, message_facts.__file__) else None

    before = sys.gettrace()
    sys.settrace(counted)
    try:
        decoder.receive_run(item)
    finally:
        sys.settrace(before)
    return lines


def test_lagging_csids_cause_no_work_for_others() -> None:
    """Counts executed lines, not seconds."""
    cost = []
    for csids in (range(70, 72), range(70, 270)):
        decoder, data = lagging(csids)
        whole = data + b"".join(sound(4, 0, 8 + n) for n in range(100))
        cost.append(lines_run(decoder, run(whole, len(data), len(whole))))
    few, many = cost
    assert 100 < many < few * 1.1


def test_parts_of_an_aggregate_are_tags_of_their_own() -> None:
    body = dump_aggregate([(AUDIO, 1000, b"\x2f\x01"), (9, 1010, b"\x22\x02\x03"), (AUDIO, 1026, b"\x2f\x04")])
    data = RtmpEncoder().send(Message(4, 5000, AGGREGATE, 1, body))
    decoder = DirectionDecoder("chunks")
    decoder.receive_run(run(data, 0, len(data)))
    facts = decoder.take_facts()
    assert [(row[0], row[1], row[5], row[13]) for row in facts.media] == [
        (0, 0, "audio", 5000),
        (0, 1, "video", 5010),
        (0, 2, "audio", 5026),
    ]


def test_damaged_arguments_keep_the_values_before_the_damage() -> None:
    payload = b"\x02\x00\x04test\x00" + bytes(8) + b"\x02\x00\x09short"
    data = RtmpEncoder().send(Message(3, 0, 20, 0, payload))
    decoder = DirectionDecoder("chunks")
    decoder.receive_run(run(data, 0, len(data)))
    command, fault = decoder.take_facts().notable
    assert isinstance(command, CommandFact) and command.name == "test" and command.args == []
    assert isinstance(fault, FaultFact) and fault.code.value == "AMF_TRUNCATED" and fault.msg_no == 0


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=4000), st.sampled_from(["handshake", "chunks", "midstream", "part1", "part2"]), st.data())
def test_any_bytes_give_facts_and_never_an_exception(data: bytes, phase: str, choose: st.DataObject) -> None:
    decoder = DirectionDecoder(phase)
    cut = choose.draw(st.integers(0, len(data)))
    if cut:
        decoder.receive_run(run(data, 0, cut))
    decoder.receive_gap(Gap(NOBODY, 0, cut, 10, 1, 0, None, False))
    if cut < len(data):
        shifted = bytes(10) + data
        decoder.receive_run(run(shifted, cut + 10, len(shifted)))
    decoder.receive_end()
    json.dumps(decoder.state())


def test_the_handshake_is_seen(stream: bytes) -> None:
    notable = decoded(stream, [], resume=False)["notable"]
    parts = [(fact.part, len(fact.data)) for fact in notable if type(fact).__name__ == "HandshakeFact"]
    assert parts == [(0, 1), (1, 1536), (2, 1536)] and sum(size for _, size in parts) == HANDSHAKE
