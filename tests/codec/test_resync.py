"""Resynchronisation: which messages are found after a gap or a mid-stream start, in real and interleaved streams.

`bench/resync.py` runs 10,000 such trials; this file runs fewer, and tests single losses.
"""

from __future__ import annotations

import random
import struct
from functools import lru_cache
from math import sin

import pytest
from kit.chunk_reader import HANDSHAKE, read_chunks
from kit.chunk_writer import basic_header
from kit.loss_trials import (
    Loss,
    Outcome,
    cut_packets,
    decode,
    decode_kept,
    judge,
    judge_kept,
    many_losses,
    random_loss,
    streams,
)
from kit.real_streams import Stream

from rtmp_spark.codec.chunk.cursor import Cursor
from rtmp_spark.codec.chunk.header import ChunkHeader, Head
from rtmp_spark.codec.chunk.lookahead import header_ok
from rtmp_spark.codec.chunk.state import ChunkState
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.events import COMPLETE, GAP, Event, MessageReceived, Skipped, Synchronised, Violation
from rtmp_spark.codec.limits import EFFORT_PER_BYTE, FREE_EFFORT
from rtmp_spark.codec.resync import backward, chain, cuts, evidence
from rtmp_spark.codec.resync.anchors import read_header
from rtmp_spark.codec.resync.search import may_find

TRIALS = 400


@lru_cache(maxsize=1)
def all_streams() -> list[Stream]:
    return streams()


def stream(name: str) -> Stream:
    return next(stream for stream in all_streams() if stream.name.startswith(name))


def messages(events: list[Event]) -> list[MessageReceived]:
    return [event for event in events if isinstance(event, MessageReceived)]


def test_the_streams_cover_the_cases_of_the_trials() -> None:
    """Chunk sizes 128, 4096 and 60000, extended timestamps and interleaving; most streams are real."""
    names = [stream.name for stream in all_streams()]
    assert len([name for name in names if "interleaved" not in name]) >= 20
    for size in (128, 4096, 60000):
        assert sum(f"interleaved at {size}" in name for name in names) >= 2
    sizes = {int.from_bytes(m.payload, "big") for stream in all_streams() for m in stream.messages if m.type_id == 1}
    assert {4096, 60000} <= sizes


def test_undamaged_streams_decode_as_in_the_independent_reader() -> None:
    for stream in all_streams():
        decoder = RtmpDecoder()
        events = decoder.receive_data(stream.data)
        assert [
            (e.start, e.end, e.csid, e.type_id, e.stream_id, e.payload)
            for e in messages(events)
            if e.status == COMPLETE
        ] == [(m.start, m.end, m.csid, m.type_id, m.stream_id, m.payload) for m in stream.messages], stream.name


def test_random_losses() -> None:
    """At least 99.9 % of the untouched messages are found, and no message that was never sent is reported."""
    rng = random.Random(1)
    outcomes = []
    for _ in range(TRIALS):
        stream = rng.choice(all_streams())
        loss = random_loss(rng, stream)
        outcomes.append(judge(stream, loss, decode(stream, loss)))
        assert outcomes[-1].invented == 0, (stream.name, loss)
    total = Outcome(*map(sum, zip(*outcomes)))
    print(f"\n{TRIALS} losses: {total.found} of {total.untouched} untouched messages found, {total.invented} invented")
    assert total.found >= 0.999 * total.untouched


@pytest.mark.parametrize("count", [30, 134, 190, 234, 434])
def test_packets_truncated_by_the_snap_length(count: int) -> None:
    """Complete messages are found, and a length from before a loss is not applied to a message after it."""
    untouched = found = 0
    for stream in all_streams():
        kept = cut_packets(stream, count)
        outcome = judge_kept(stream, kept, decode_kept(stream, kept))
        assert outcome.invented == 0, stream.name
        untouched, found = untouched + outcome.untouched, found + outcome.found
    print(f"\n{found} of {untouched} whole messages found")
    assert found >= 0.99 * untouched


def test_many_losses_in_one_stream() -> None:
    rng = random.Random(3)
    damaged = [(stream, many_losses(rng, stream)) for stream in rng.choices(all_streams(), k=TRIALS)]
    total = Outcome(*map(sum, zip(*(judge_kept(stream, kept, decode_kept(stream, kept)) for stream, kept in damaged))))
    assert total.invented == 0
    assert total.found >= 0.995 * total.untouched


def test_a_gap_inside_a_message_loses_only_that_message() -> None:
    """Its length is known and therefore its end, so no search is needed."""
    publish = stream("ffmpeg_publish_h264_aac ")
    whole = max((m for m in publish.messages if len(m.payload) <= 4096), key=lambda m: len(m.payload))
    loss = Loss(whole.start + 200, whole.start + 300, False)
    events = decode(publish, loss)
    assert judge(publish, loss, events).found == len(publish.messages) - 1
    (damaged,) = [event for event in messages(events) if event.status == GAP]
    assert (damaged.start, damaged.end, damaged.length) == (whole.start, whole.end, len(whole.payload))
    assert 0 < damaged.missing_bytes <= 100
    before = 200 - (whole.end - whole.start - len(whole.payload))  # without its header; it is one chunk
    assert damaged.payload == whole.payload[:before] + whole.payload[before + damaged.missing_bytes :]
    assert not any(isinstance(event, Synchronised) for event in events)
    assert not any(event.inferred for event in messages(events))


def test_bytes_after_a_gap_do_not_become_the_first_bytes_of_a_message() -> None:
    publish = stream("ffmpeg_publish_h264_aac ")
    whole = max((m for m in publish.messages if len(m.payload) <= 4096), key=lambda m: len(m.payload))
    first = whole.end - len(whole.payload)
    events = decode(publish, Loss(first + 3, first + 40, False))
    (damaged,) = [event for event in messages(events) if event.status == GAP]
    assert (damaged.start, damaged.end, damaged.length) == (whole.start, whole.end, len(whole.payload))
    assert (damaged.payload, damaged.missing_bytes) == (whole.payload[:3], 37)


def test_a_gap_over_a_message_boundary_is_resynchronised_and_reported() -> None:
    publish = stream("ffmpeg_publish_h264_aac ")
    touched = publish.messages[100]
    loss = Loss(touched.start + 20, touched.end + 20, False)
    events = decode(publish, loss)
    assert judge(publish, loss, events) == (len(publish.messages) - 2, len(publish.messages) - 2, 0)
    assert any(isinstance(event, Synchronised) for event in events)
    assert [event.code for event in events if isinstance(event, Violation)].count(ViolationCode.CHUNK_RESYNC) == 1
    assert all(event.inferred == (event.start > touched.start) for event in messages(events))
    skipped = sum(event.end - event.start for event in events if isinstance(event, Skipped))
    assert 0 < skipped <= publish.messages[101].end - loss.last


def test_a_start_in_the_middle_infers_the_chunk_size() -> None:
    publish = stream("gst_rtmpsink_librtmp_publish_h264_mp3 54222")
    start = publish.messages[60].start + 5
    events = decode(publish, Loss(start, start, True))
    found = messages(events)
    assert all(event.inferred for event in found)
    assert next(event for event in found if event.chunks > 1).chunk_size == 128
    assert judge(publish, Loss(start, start, True), events).invented == 0


def test_a_lost_change_of_the_chunk_size_is_noticed() -> None:
    """The gap contains the Set Chunk Size: the decoder assumes 128 until a message is not divided there."""
    for name in ("ffmpeg_publish_h264_aac ", "capture_gap_full ", "p1950_enhanced_av1_aac_ffmpeg7_nms "):
        publish = stream(name)
        change = next(m for m in publish.messages if m.type_id == 1)
        for first, last in ((change.start, change.end), (change.start - 20, change.end + 1000)):
            loss = Loss(first, last, False)
            outcome = judge(publish, loss, decode(publish, loss))
            assert outcome.invented == 0
            assert outcome.found >= outcome.untouched - 2, (name, loss)


def test_audio_that_is_all_fmt_3() -> None:
    """G.711 in messages of equal length: no header contains the length, but the messages repeat at equal distances."""
    publish = stream("ffmpeg_publish_g711mu_audio_only ")
    audio = [m for m in publish.messages if m.type_id == 8]
    assert [publish.data[m.start] for m in audio[2:-1]] == [0xC4] * (len(audio) - 3)
    loss = Loss(audio[1].start + 700, audio[1].start + 700, True)
    outcome = judge(publish, loss, decode(publish, loss))
    assert (outcome.found, outcome.invented) == (outcome.untouched, 0)
    endless = publish.data[audio[1].start + 700 : audio[2].start]
    for message in audio[2:-1] * 4:
        endless += publish.data[message.start : message.end]
    decoder = RtmpDecoder(phase="midstream")
    found = messages(decoder.receive_data(endless))
    assert len(found) >= 4 * len(audio[2:-1]) - 3
    assert {(event.length, event.type_id, event.csid) for event in found} == {(1025, 8, 4)}


@pytest.mark.parametrize("cut", [0, 1, 4])
@pytest.mark.parametrize("last", [b"", bytes.fromhex("43 000000 000022 14") + b"\x02\0\x0cdeleteStream" + bytes(19)])
def test_a_player_that_only_acknowledges(cut: int, last: bytes) -> None:
    """librtmp does this: its first Acknowledgement has a full header, later ones only the sequence number."""
    rng = random.Random(4)
    numbers = [100_000]
    for _ in range(60):
        numbers.append(numbers[-1] + rng.randrange(1900, 2300))
    data = b"".join(b"\xc2" + number.to_bytes(4, "big") for number in numbers)
    decoder = RtmpDecoder(phase="midstream")
    found = messages(decoder.receive_data(data[cut:] + last) + decoder.receive_eof())
    said = [int.from_bytes(m.payload, "big") for m in found if m.type_id == 3]
    assert said == (numbers[1:] if cut else numbers)
    assert len(found) == len(said) + bool(last)


def test_numbers_that_do_not_increase_are_not_acknowledgements() -> None:
    rng = random.Random(4)
    data = b"".join(b"\xc2" + rng.randbytes(4) for _ in range(60))
    decoder = RtmpDecoder(phase="midstream")
    assert messages(decoder.receive_data(data) + decoder.receive_eof()) == []


def picture(payload: bytes) -> bytes:
    return b"\x46" + struct.pack(">I", 40)[1:] + struct.pack(">I", len(payload))[1:] + b"\x09" + payload


@pytest.mark.parametrize(
    ("video", "audio"),
    [
        (b"\x27\1\0\0\0", b"\x42"),
        (b"\x27\1\0\0\0", b"\x52"),
        (b"\x26\0\1\2\3", b"\x36"),
        (b"\xa3hvc1", b"\x91Opus"),
    ],
)
def test_audio_whose_first_byte_could_be_video(video: bytes, audio: bytes) -> None:
    """Nellymoser, PCM or enhanced audio in fmt 3 messages of equal length, between video messages with a length."""
    rng = random.Random(5)
    pieces, expected = [rng.randbytes(700)], []
    for _ in range(40):
        shown = video + rng.randbytes(rng.randrange(200, 900))
        heard = [audio + rng.randbytes(64) for _ in range(rng.randrange(2, 4))]
        pieces += [picture(shown), *(b"\xc4" + body for body in heard)]
        expected += [(9, shown), *((8, body) for body in heard)]
    decoder = RtmpDecoder(phase="midstream")
    found = messages(decoder.receive_data(b"".join(pieces)) + decoder.receive_eof())
    assert [(m.type_id, m.payload) for m in found] == expected[-len(found) :]
    assert len(found) >= len(expected) - 8


@pytest.mark.parametrize("unit", ["f9fe7f9fe7", "3fcff3fcff"])
def test_a_pattern_inside_video_is_not_audio(unit: str) -> None:
    """A static image area is coded as repeated bytes; two of the repetitions look like the start of a fmt 3 chunk."""
    rng = random.Random(6)
    still = bytes.fromhex(unit) * 24
    tail = rng.randbytes(5000) + still
    shown = [b"\x27\1\0\0\0" + rng.randbytes(300) for _ in range(8)]
    decoder = RtmpDecoder(phase="midstream")
    found = messages(decoder.receive_data(tail + b"".join(map(picture, shown))) + decoder.receive_eof())
    assert [m.payload for m in found] == shown


def test_repeated_bytes_are_not_audio() -> None:
    repeated = (b"\xce\x12" + random.Random(9).randbytes(12)) * 3000
    tone = b"".join(int(12000 * sin(i * 0.427)).to_bytes(2, "little", signed=True) for i in range(20000))
    for data in (repeated, tone):
        decoder = RtmpDecoder(phase="midstream")
        assert messages(decoder.receive_data(data) + decoder.receive_eof()) == []


def test_noise_is_not_taken_for_messages() -> None:
    """256 KiB that contain no RTMP."""
    noise = random.Random(7).randbytes(1 << 18)
    decoder = RtmpDecoder(phase="midstream")
    events = decoder.receive_data(noise) + decoder.receive_eof()
    assert messages(events) == []
    assert sum(event.end - event.start for event in events if isinstance(event, Skipped)) == len(noise)


def test_noise_between_two_parts_of_a_stream() -> None:
    publish = stream("ffmpeg_publish_h264_aac ")
    first, last = publish.messages[50].end, publish.messages[60].start
    noise = random.Random(8).randbytes(3000)
    decoder = RtmpDecoder()
    events = decoder.receive_data(publish.data[:first]) + decoder.receive_gap(10) + decoder.receive_data(noise)
    events += decoder.receive_gap(10) + decoder.receive_data(publish.data[last:]) + decoder.receive_eof()
    whole = [event.payload for event in messages(events) if event.status == COMPLETE]
    sent = [message.payload for message in publish.messages[:51] + publish.messages[60:]]
    assert whole == sent


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_losses_in_a_row(pieces: int) -> None:
    """Gaps of one byte every few messages: each loses at most the message that contains it."""
    publish = stream("ffmpeg_publish_h264_aac ")
    decoder = RtmpDecoder()
    events: list[Event] = []
    last, touched = 0, set()
    for number in range(20, 200, 20 * pieces):
        message = publish.messages[number]
        at = message.start + 15
        touched.add(message.start)
        events += decoder.receive_data(publish.data[last:at]) + decoder.receive_gap(1)
        last = at + 1
    events += decoder.receive_data(publish.data[last:]) + decoder.receive_eof()
    found = {event.start for event in messages(events) if event.status == COMPLETE}
    assert found == {message.start for message in publish.messages} - touched


def test_a_start_after_the_handshake_loses_nothing() -> None:
    for stream in all_streams()[:6]:
        loss = Loss(HANDSHAKE, HANDSHAKE, True)
        outcome = judge(stream, loss, decode(stream, loss))
        assert outcome.found == outcome.untouched == len(stream.messages)


# -- messages whose headers have no length ------------------------------------------------------------------------


def sound(rng: random.Random, length: int, fmt: int = 1) -> bytes:
    """An AAC message as FFmpeg sends it; with fmt 3 it must have the length of the previous one."""
    header = b"\xc4" if fmt == 3 else bytes.fromhex("44 000080") + length.to_bytes(3, "big") + b"\x08"
    return header + b"\xaf\x01\x00" + rng.randbytes(length - 3)


def still(rng: random.Random) -> bytes:
    """A video message of a static image, always of the same length."""
    return b"\xc6" + bytes.fromhex("2701000000 00000006419a") + rng.randbytes(4)


def payloads_sent(pieces: list[bytes]) -> set[bytes]:
    return {piece[1:] if piece[0] >= 0xC0 else piece[8:] for piece in pieces}


def test_the_nearest_header_ends_the_search_backwards() -> None:
    """Backward search from a header with a length finds one message before it, not two messages of other csids."""
    rng = random.Random(1)
    before = [sound(rng, 200), sound(rng, 209), still(rng), sound(rng, 205), sound(rng, 209)]
    lost = b"\x46" + bytes.fromhex("0000c8 00000f 09") + still(rng)[1:]
    after = [still(rng), sound(rng, 196, 3), sound(rng, 191), still(rng), sound(rng, 197), sound(rng, 188), still(rng)]
    decoder = RtmpDecoder(phase="midstream")
    events = decoder.receive_data(b"".join([lost, *before])) + decoder.receive_gap(8)
    events += decoder.receive_data(sound(rng, 196, 3)[1:] + b"".join(after)) + decoder.receive_eof()
    found = {m.payload for m in messages(events) if m.status == COMPLETE}
    assert found <= payloads_sent([lost, *before, *after])
    assert found >= payloads_sent(after[2:])


def test_a_message_of_unknown_length_ends_at_a_short_header_of_another_csid() -> None:
    """The next message of the same csid follows much later; the messages in between are not part of it."""
    rng = random.Random(2)
    pieces = [sound(rng, 209), sound(rng, 196)]
    for _ in range(8):
        pieces += [still(rng), sound(rng, len(pieces[-1]) - 8, 3)]
        pieces += [sound(rng, rng.randrange(180, 220)) for _ in range(5)]
    decoder = RtmpDecoder(phase="midstream")
    found = messages(decoder.receive_data(b"".join(pieces)) + decoder.receive_eof())
    assert {m.payload for m in found} == payloads_sent(pieces)


def test_a_message_does_not_swallow_a_header_with_a_length() -> None:
    """At the end of a stream, the bytes before a confirmed header may belong to more than one message."""
    rng = random.Random(3)
    goodbye = b"\x02\0\x0bFCUnpublish\0" + bytes(9) + b"\5\2\0\1s"
    end = b"\x46" + bytes.fromhex("000000 000005 09 1702000000")
    end += b"\x43" + bytes.fromhex("000000 0000") + bytes((len(goodbye), 0x14)) + goodbye
    pieces = [still(rng), sound(rng, 196, 3), sound(rng, 191), still(rng), sound(rng, 197)]
    decoder = RtmpDecoder(phase="midstream")
    data = sound(rng, 196, 3)[1:] + b"".join(pieces) + end
    found = [m.payload for m in messages(decoder.receive_data(data) + decoder.receive_eof())]
    assert set(found) <= {*payloads_sent(pieces), end[8:13], goodbye}
    assert found[-3:] == [pieces[-1][8:], end[8:13], goodbye]


def test_a_random_string_of_three_letters_is_not_a_command() -> None:
    rng = random.Random(4)
    tail = rng.randbytes(236) + bytes.fromhex("d3 020003 60616d 41") + rng.randbytes(1100)
    pieces = [sound(rng, rng.randrange(180, 220)) for _ in range(12)]
    decoder = RtmpDecoder(phase="midstream")
    found = messages(decoder.receive_data(tail + b"".join(pieces)) + decoder.receive_eof())
    assert [m.payload for m in found] == [piece[8:] for piece in pieces]


@pytest.mark.parametrize(
    ("chance", "audio"), [("84 000003 66", "66"), ("84 000003 2e", "2efffb50"), ("84 000200 2e", "2efffb50")]
)
def test_zeros_in_video_are_not_a_timestamp_delta(chance: str, audio: str) -> None:
    """Delta and first audio byte are weak evidence (00 00 03 is frequent in video); MP3 has a longer mark."""
    rng = random.Random(10)
    tail = rng.randbytes(400) + bytes.fromhex(chance) + rng.randbytes(900)
    pieces = [bytes.fromhex("44 00001a 0000d1 08" + audio) + rng.randbytes(209 - len(audio) // 2) for _ in range(12)]
    decoder = RtmpDecoder(phase="midstream")
    found = messages(decoder.receive_data(tail + b"".join(pieces)) + decoder.receive_eof())
    assert [m.payload for m in found] == [piece[8:] for piece in pieces]


def test_a_data_message_on_a_new_csid_is_found() -> None:
    """Backward search from video over onMetaData, whose delta of 1000 ms ends in a byte like fmt 3, to audio."""
    rng = random.Random(11)
    about = b"\x02\0\x0aonMetaData\x08\0\0\0\1" + rng.randbytes(260) + b"\0\0\x09"
    heard = [b"\xaf\x01\0" + rng.randbytes(182) for _ in range(12)]
    shown = [b"\x27\x01\0\0\0" + rng.randbytes(300 + number) for number in range(10)]
    first = b"".join(b"\xc4" + body for body in heard[:3]) + bytes.fromhex("85 0003e8") + about
    data = rng.randbytes(900) + first
    for body, sounds in zip(shown, heard[2:]):
        data += picture(body) + b"\x84\0\0\x17" + sounds
    decoder = RtmpDecoder(phase="midstream")
    found = messages(decoder.receive_data(data) + decoder.receive_eof())
    assert {m.payload for m in found} <= {about, *heard, *shown}
    assert {m.payload for m in found} >= {about, *heard[1:], *shown}


def test_a_message_that_ends_at_a_gap_shows_the_chunk_size() -> None:
    """The chunk size is unknown: the continuation header inside the message before the gap must not become payload."""
    rng = random.Random(5)
    body = b"\x17\x01\0\0\0" + rng.randbytes(7136) + b"\x5e"
    header = bytes.fromhex("46 000028") + len(body).to_bytes(3, "big") + b"\x09"
    decoder = RtmpDecoder(phase="midstream")
    events = decoder.receive_data(b"".join(sound(rng, rng.randrange(180, 220)) for _ in range(6)))
    events += decoder.receive_data(header + body[:4096] + b"\xc6" + body[4096:]) + decoder.receive_gap(9)
    events += decoder.receive_data(b"".join(sound(rng, rng.randrange(180, 220)) for _ in range(6)))
    assert [m.payload for m in messages(events) if m.type_id == 9] == [body]


def test_a_few_bytes_at_the_end_do_not_confirm_an_old_length() -> None:
    """rtmpdump sends Window Acknowledgement Size and Set Buffer Length on csid 2; the header of the second is lost."""
    decoder = RtmpDecoder()
    play = b"\x02\0\4play\0" + bytes.fromhex("4010000000000000 05 020001 73 00c08f400000000000")
    first = bytes.fromhex("02 000000 000004 05 00000000 004c4b40")
    commands = b"".join(b"\x08\0\0\0\0\0" + bytes((len(play), 0x14, 1, 0, 0, 0)) + play for _ in range(3))
    events = decoder.receive_data(b"\3" + bytes(2 * 1536) + first) + decoder.receive_gap(18)
    events += decoder.receive_data(commands + bytes.fromhex("c2 0003 00000001 02255100")) + decoder.receive_eof()
    assert [m.type_id for m in messages(events) if m.status == COMPLETE] == [5, 20, 20, 20]


def test_a_guess_ends_at_a_short_header_whose_length_is_known() -> None:
    """GStreamer sends MP3 and repeats one onMetaData, divided at 128 bytes; here its first header is lost."""
    rng = random.Random(7)
    about = b"\x02\0\x0d@setDataFrame\x02\0\x0aonMetaData\x08\0\0\0\1" + rng.randbytes(165) + b"\0\0\x09"
    long = b"\x2f\xff\xfb\x50" + rng.randbytes(728)
    cut = b"\xc5".join(long[at : at + 128] for at in range(0, 732, 128))
    heard = [b"\x2f\xff\xfb\x50" + rng.randbytes(101) for _ in range(60)]
    before = [bytes.fromhex("05 000000 0002dc 08 01000000") + cut] * 3
    before += [bytes.fromhex("45 00001a 000069 08") + heard[0], *(b"\xc5" + body for body in heard[1:6])]
    pieces = []
    for number, body in enumerate(heard[6:]):
        pieces.append((b"\x85\0\0\x1b" if number % 6 == 3 else b"\xc5") + body)
        pieces.append((b"\x84\0\0\x1b" if number % 6 == 3 else b"\xc4") + about[:128] + b"\xc4" + about[128:])
    decoder = RtmpDecoder(phase="midstream")
    events = decoder.receive_data(b"".join(before)) + decoder.receive_gap(400)
    found = messages(events + decoder.receive_data(b"".join(pieces)) + decoder.receive_eof())
    assert {m.payload for m in found if m.status == COMPLETE} <= {long, about, *heard}
    assert len(found) >= len(before) + len(pieces) - 3


@pytest.mark.parametrize("anchored", [True, False])
def test_a_guessed_length_is_no_evidence_of_the_chunk_size(anchored: bool) -> None:
    """The same stream from its middle: the continuation header inside each onMetaData must not become payload."""
    rng = random.Random(7)
    about = b"\x02\0\x0d@setDataFrame\x02\0\x0aonMetaData\x08\0\0\0\1" + rng.randbytes(165) + b"\0\0\x09"
    heard = [b"\x2f\xff\xfb\x50" + rng.randbytes(101) for _ in range(120)]
    goodbye = b"\x02\0\x0cdeleteStream\0" + bytes(8) + b"\5\0" + bytes(8)
    pieces = []
    for number, body in enumerate(heard):
        header = b"\x85\0\0\x1b" if number % 6 == 3 else b"\xc5"
        pieces.append((bytes.fromhex("45 00001a 000069 08") if anchored and number == 3 else header) + body)
        if number > 5 and number % 3:
            pieces.append((b"\x84\0\0\x1b" if number % 2 else b"\xc4") + about[:128] + b"\xc4" + about[128:])
    pieces += [bytes.fromhex("43 000000 0000") + bytes((len(goodbye), 20)) + goodbye] * 2
    decoder = RtmpDecoder(phase="midstream")
    found = messages(decoder.receive_data(b"".join(pieces)[60:]) + decoder.receive_eof())
    assert {m.payload for m in found} <= {about, goodbye, *heard}
    assert [m.payload for m in found[-2:]] == [goodbye] * 2


@pytest.mark.parametrize("last_byte", [b"\xc6", b"\x40"])
def test_a_last_byte_that_looks_like_a_header(last_byte: bytes) -> None:
    """An unusual chunk size and messages of two chunks: the byte before the next header could be a header too."""
    rng = random.Random(8)
    data, shown = [sound(rng, rng.randrange(180, 300)) for _ in range(2)], []
    for last in (last_byte, *(rng.randbytes(1) for _ in range(11))):
        shown.append(b"\x27\x01\0\0\0" + rng.randbytes(rng.randrange(1100, 1800)) + last)
        data.append(picture(shown[-1])[: 8 + 1000] + b"\xc6" + shown[-1][1000:])
        data += [sound(rng, rng.randrange(180, 300)) for _ in range(2)]
    decoder = RtmpDecoder(phase="midstream")
    found = messages(decoder.receive_data(b"".join(data)) + decoder.receive_eof())
    pictures = [m.payload for m in found if m.type_id == 9]
    assert pictures == shown[-len(pictures) :]
    assert len(pictures) >= len(shown) - 1


def test_audio_of_one_length_in_two_chunks() -> None:
    """PCM in messages of 4097 bytes and chunks of 4096."""
    rng = random.Random(9)
    bodies = [b"\x3f" + rng.randbytes(4096) for _ in range(20)]
    headers = [b"\x84\0\0\x17", b"\xc4", b"\xc4", b"\x84\0\0\x18"] * 5
    pieces = [header + body[:4096] + b"\xc4" + body[4096:] for header, body in zip(headers, bodies)]
    decoder = RtmpDecoder(phase="midstream")
    found = messages(decoder.receive_data(b"".join(pieces)[1000:]) + decoder.receive_eof())
    assert [m.payload for m in found] == bodies[1:]


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(("first", "length"), [(0x66, 65), (0x2A, 210), (0x72, 1025)])
def test_audio_of_one_length_with_rounded_deltas(first: int, length: int, joined: bool) -> None:
    """Nellymoser, MP3, G.711: fmt 2 where the delta changes from 23 to 24 ms, else fmt 3; no header has a length."""
    rng = random.Random(6)
    bodies = [bytes((first,)) + rng.randbytes(length - 1) for _ in range(100)]
    steps = [23 + (number % 5 > 2) for number in range(100)]
    headers = [b"\xc4" if a == b else b"\x84" + b.to_bytes(3, "big") for a, b in zip([0, *steps], steps)]
    pieces = [header + body for header, body in zip(headers, bodies)]
    decoder = RtmpDecoder(phase="midstream")
    if joined:
        events = decoder.receive_data(b"".join(pieces)[40:])
        sent = bodies[1:]
    else:
        head = bytes.fromhex("04 000000") + length.to_bytes(3, "big") + bytes.fromhex("08 01000000")
        events = decoder.receive_data((head + bodies[0]) * 3 + b"".join(pieces[:50])) + decoder.receive_gap(1)
        events += decoder.receive_data(b"".join(pieces[50:])[1:])
        sent = bodies[:1] * 3 + bodies[:50] + bodies[51:]
    events += decoder.receive_eof()
    found = [m.payload for m in messages(events) if m.status == COMPLETE]
    assert set(found) <= set(sent)
    assert len(found) >= len(sent) - 2


# -- hostile bytes -------------------------------------------------------------------------------------------------

HEADER = bytes.fromhex("04 000000 000010 08 01000000")


def hostile(kind: str) -> bytes:
    rng = random.Random(3)
    if kind == "headers without messages":
        return b"".join(HEADER + rng.randbytes(rng.randrange(5, 60)) for _ in range(4000))
    if kind == "short headers":
        return b"".join(bytes.fromhex("44 000020 0000ff 08") + rng.randbytes(3) for _ in range(12_000))
    if kind == "nothing but marks":
        return (bytes.fromhex("44 000020 040000 08 af01") + b"\xc4" * 100_000) * 2
    return b"\xc4\x82" * 60_000


@pytest.mark.parametrize("kind", ["headers without messages", "short headers", "nothing but marks", "pairs"])
def test_the_work_for_hostile_bytes_is_linear(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts parsed headers, not seconds: the received bytes bound the work of a search."""
    looks = 0

    def counted(buf: bytes, pos: int, heads: dict[int, Head]) -> ChunkHeader | None:
        nonlocal looks
        looks += 1
        return read_header(buf, pos, heads)

    for module in (backward, chain, cuts, evidence):
        monkeypatch.setattr(module, "read_header", counted)
    data = hostile(kind)
    decoder = RtmpDecoder(phase="midstream")
    for at in range(0, len(data), 4096):
        decoder.receive_data(data[at : at + 4096])
    decoder.receive_eof()
    assert looks < 4 * (FREE_EFFORT + len(data) * EFFORT_PER_BYTE)


def test_the_work_for_many_long_csids_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def counted(state: ChunkState, at: Cursor, pos: int) -> int:
        nonlocal looks
        looks += 1
        return header_ok(state, at, pos)

    for module in ("one_chunk", "lookahead", "size", "bridge"):
        monkeypatch.setattr(f"rtmp_spark.codec.chunk.{module}.header_ok", counted)
    csids = range(320, 2320)
    data = b"".join(
        b"\1" + struct.pack("<H", csid - 64) + bytes.fromhex("000000 0000c8 09 01000000") + bytes(128) for csid in csids
    )
    data += b"".join(b"\xc1" + struct.pack("<H", csid - 64) + bytes(72) for csid in csids)
    decoder = RtmpDecoder(phase="chunks")
    assert [event.status for event in messages(decoder.receive_data(data))] == [COMPLETE] * len(csids)
    assert looks < 20 * len(csids)


def with_csids(stream: Stream, audio: int, video: int, form: int, chunk_size: int) -> Stream:
    """The audio and video messages in sequence, with csids of this many bytes (RTMP 1.0 5.3.1.1)."""
    wire = bytearray(stream.data[:HANDSHAKE]) + b"\x02\0\0\0\0\0\x04\x01\0\0\0\0" + chunk_size.to_bytes(4, "big")
    times: dict[int, int] = {}
    for message in stream.messages:
        if message.type_id in (8, 9):
            csid = audio if message.type_id == 8 else video
            fmt = 1 if 0 <= message.timestamp - times.get(csid, 1 << 32) < 0xFFFFFF else 0
            delta = message.timestamp - times[csid] if fmt else message.timestamp
            times[csid] = message.timestamp
            body = message.payload
            wire += basic_header(fmt, csid, form) + delta.to_bytes(3, "big") + len(body).to_bytes(3, "big")
            wire += bytes((message.type_id,)) + (b"" if fmt else b"\1\0\0\0") + body[:chunk_size]
            for at in range(chunk_size, len(body), chunk_size):
                wire += basic_header(3, csid, form) + body[at : at + chunk_size]
    return Stream(f"{stream.name} on {audio} and {video}", bytes(wire), read_chunks(bytes(wire)))


def test_an_unusual_chunk_size_is_inferred_from_several_messages() -> None:
    """Each has two or three chunks and several bytes that look like a continuation header."""
    plain = stream("ffmpeg_publish_bframes")
    rewritten = with_csids(plain, 4, 6, 1, 1000)
    assert max(len(message.payload) for message in rewritten.messages[20:100]) < 4000
    missed = 0
    for message in rewritten.messages[5:100:5]:
        loss = Loss(message.start, message.start, joined=True)
        outcome = judge(rewritten, loss, decode(rewritten, loss))
        assert outcome.invented == 0
        missed += outcome.untouched - outcome.found
    assert missed < 10


@pytest.mark.parametrize("chunk_size", [200, 4096])
@pytest.mark.parametrize(("audio", "video", "form"), [(70, 80, 2), (70, 80, 3), (400, 500, 3)])
def test_a_midstream_start_with_long_continuation_headers(audio: int, video: int, form: int, chunk_size: int) -> None:
    rewritten = with_csids(stream("ffmpeg_publish_bframes"), audio, video, form, chunk_size)
    sent = {message.payload for message in rewritten.messages}
    assert any(len(message.payload) > 4096 for message in rewritten.messages[20:])
    for message in rewritten.messages[5::20]:
        loss = Loss(message.start, message.start, joined=True)
        events = decode(rewritten, loss)
        assert {event.payload for event in messages(events) if event.status == COMPLETE} <= sent
        outcome = judge(rewritten, loss, events)
        assert outcome.found >= outcome.untouched - 8


def test_a_message_that_reaches_a_gap_confirms_no_length_before_it() -> None:
    """Audio of MediaMTX: a header with a new length was lost, and the next one repeats it (fmt 2). Two bytes too many
    look like a header of csid 2, whose message would reach the next gap."""

    def head(csid: int, length: int, type_id: int) -> bytes:
        return bytes([0x40 | csid, 0, 0, 21, *length.to_bytes(3, "big"), type_id])

    def audio(length: int, end: bytes = b"") -> bytes:
        return b"\xaf\x01" + bytes(7 * n & 0x7F for n in range(length - 2 - len(end))) + end

    begun = bytes([2, 0, 0, 0, 0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    begun += bytes([4, 0, 0, 0, 0, 0, 183, 8, 1, 0, 0, 0]) + audio(183)
    begun += bytes([6, 0, 0, 0, 0, 2, 152, 9, 1, 0, 0, 0]) + b"\x27\x01\0\0\0" + bytes(659)
    video = head(6, 664, 9) + b"\x27\x01\0\0\0" + bytes(659)
    decoder = RtmpDecoder(phase="chunks", chunk_size=65536)
    events = decoder.receive_data(begun) + decoder.receive_gap(193)
    events += decoder.receive_data(video + b"\x84\0\0\x16" + audio(185, b"\xc2\x0e")) + decoder.receive_gap(195)
    events += decoder.receive_data(video * 3) + decoder.receive_eof()
    complete = [e.length for e in events if isinstance(e, MessageReceived) and e.status == COMPLETE]
    assert complete == [6, 183, 664, 664, 664, 664, 664]


def test_nothing_is_found_where_the_quick_look_finds_no_sign() -> None:
    any_bytes = random.Random(4)
    audio = b"\x04\0\0\0\0\0\x10\x08\x01\0\0\0"
    pieces = (audio, b"\x44\0\0\x10\0\0\x08\x08", b"\xc4\xaf", b"\x84\0\0\x17\x2e", b"\xc2\0\0\x10")
    found = signs = 0
    for _ in range(600):
        piece, length = any_bytes.choice(pieces), any_bytes.randrange(12)
        data = b"".join(piece + any_bytes.randbytes(length) for _ in range(any_bytes.randrange(1, 14)))
        data = any_bytes.choice((data, any_bytes.randbytes(len(data))))
        decoder = RtmpDecoder(phase="midstream")
        events = decoder.receive_data(data) + decoder.receive_eof()
        has_messages = any(isinstance(event, MessageReceived) for event in events)
        assert may_find(data) or not has_messages, data.hex()
        found, signs = found + has_messages, signs + may_find(data)
    assert 0 < found <= signs < 600
