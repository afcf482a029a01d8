"""RtmpEncoder: the smallest legal header, every form of it, and messages that are decoded unchanged.

Expected bytes come from the examples of the specification and from the independent writer and reader in tests/kit/.
Our own decoder only shows that encoder and decoder agree.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.chunk_reader import Read, read_chunks
from kit.chunk_writer import ChunkWriter, Sent

from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.encoder import RtmpEncoder, basic_header
from rtmp_spark.codec.errors import EncodeError
from rtmp_spark.codec.events import COMPLETE, MessageReceived
from rtmp_spark.codec.message import AUDIO, SET_CHUNK_SIZE, VIDEO, Message

T = TypeVar("T")
AUDIO_32 = Message(3, 1000, AUDIO, 12345, bytes(32))


def fmts(encoder: RtmpEncoder, *messages: Message) -> list[int]:
    return [encoder.send(message)[0] >> 6 for message in messages]


# -- which header ------------------------------------------------------------------------------------------------


def test_the_first_example_of_the_specification() -> None:
    """RTMP 1.0 5.3.2.1: four audio messages on one csid, of 44, 36, 33 and 33 bytes."""
    encoder = RtmpEncoder()
    wire = [encoder.send(replace(AUDIO_32, timestamp=time)) for time in (1000, 1020, 1040, 1060)]
    assert [len(message) for message in wire] == [44, 36, 33, 33]
    assert [message[0] >> 6 for message in wire] == [0, 2, 3, 3]
    assert wire[0][:12].hex() == "030003e80000200839300000"
    assert wire[1][:4].hex() == "83000014"


def test_the_second_example_of_the_specification() -> None:
    """RTMP 1.0 5.3.2.2: 307 bytes of video in chunks of 140, 129 and 52 bytes."""
    payload = bytes(range(256)) + bytes(51)
    wire = RtmpEncoder().send(Message(4, 1000, VIDEO, 12346, payload))
    assert len(wire) == 140 + 129 + 52
    assert wire[12:140] + wire[141:269] + wire[270:] == payload
    assert wire[140] == wire[269] == 0xC4


@pytest.mark.parametrize(
    ("change", "fmt"),
    [
        ({}, 2),  # after fmt 0, decoders disagree on what fmt 3 adds, even if the timestamp is equal
        ({"timestamp": 1040}, 2),
        ({"payload": bytes(33)}, 1),
        ({"payload": b""}, 1),
        ({"type_id": VIDEO}, 1),
        ({"stream_id": 1}, 0),
        ({"timestamp": 999}, 0),  # time goes back: RTMP 1.0 5.3.1.2.1
        ({"csid": 5}, 0),
    ],
)
def test_changed_fields_decide_the_header_format(change: dict[str, object], fmt: int) -> None:
    encoder = RtmpEncoder()
    assert fmts(encoder, AUDIO_32, replace(AUDIO_32, **change)) == [0, fmt]  # type: ignore[arg-type]


def test_fmt_3_repeats_the_last_delta() -> None:
    encoder = RtmpEncoder()
    times = (1000, 1020, 1040, 1061, 1082, 1082, 1082)
    assert fmts(encoder, *(replace(AUDIO_32, timestamp=time) for time in times)) == [0, 2, 3, 2, 3, 2, 3]


def test_csids_do_not_share_their_headers() -> None:
    encoder = RtmpEncoder()
    other = replace(AUDIO_32, csid=4, payload=bytes(5))
    assert fmts(encoder, AUDIO_32, other, AUDIO_32, other) == [0, 0, 2, 2]


def test_timestamps_wrap_at_32_bits() -> None:
    """RTMP 1.0 5.3.1.1 says 32 bits: from 2^32-10 to 10 is a step of 20."""
    encoder = RtmpEncoder()
    encoder.send(replace(AUDIO_32, timestamp=2**32 - 10))
    assert encoder.send(replace(AUDIO_32, timestamp=2**32 + 10))[:4].hex() == "83000014"


@pytest.mark.parametrize("fmt", [0, 1, 2, 3])
def test_the_caller_may_choose_a_larger_header(fmt: int) -> None:
    encoder = RtmpEncoder()
    for time in (0, 20):
        encoder.send(replace(AUDIO_32, timestamp=time))
    wire = encoder.send(replace(AUDIO_32, timestamp=40), fmt=fmt)
    assert wire[0] >> 6 == fmt
    assert len(wire) == 1 + (11, 7, 3, 0)[fmt] + 32


@pytest.mark.parametrize("fmt", [-1, 2, 3, 4])
def test_a_header_that_cannot_hold_the_change_is_refused(fmt: int) -> None:
    encoder = RtmpEncoder()
    encoder.send(AUDIO_32)
    with pytest.raises(EncodeError):
        encoder.send(replace(AUDIO_32, payload=b"longer" * 9), fmt=fmt)
    assert fmts(encoder, AUDIO_32) == [2]  # the refused message did not change the state


# -- csids -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("csid", "form", "expected"),
    [
        (2, None, "c2"),
        (63, None, "ff"),
        (64, None, "c000"),
        (319, None, "c0ff"),
        (320, None, "c10001"),
        (365, None, "c12d01"),
        (65599, None, "c1ffff"),
        (64, 2, "c000"),
        (64, 3, "c10000"),
        (319, 3, "c1ff00"),
    ],
)
def test_forms_of_a_csid(csid: int, form: int | None, expected: str) -> None:
    assert basic_header(3, csid, form).hex() == expected


@pytest.mark.parametrize(
    ("csid", "form"),
    [(0, None), (1, None), (-1, None), (65600, None), (2, 2), (63, 3), (64, 1), (320, 2), (64, 4), (64, 0)],
)
def test_forms_that_do_not_exist(csid: int, form: int | None) -> None:
    with pytest.raises(EncodeError):
        basic_header(0, csid, form)


def test_a_chosen_form_is_kept_on_continuations() -> None:
    wire = RtmpEncoder().send(Message(100, 0, VIDEO, 1, bytes(200)), csid_form=3)
    assert wire[:3].hex() == "012400"
    assert wire[3 + 11 + 128 :][:3].hex() == "c12400"


# -- extended timestamps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "field", "extension"), [(0xFFFFFE, "fffffe", ""), (0xFFFFFF, "ffffff", "00ffffff")]
)
def test_timestamps_above_24_bits_are_extended(timestamp: int, field: str, extension: str) -> None:
    wire = RtmpEncoder().send(Message(4, timestamp, AUDIO, 1, b"a"))
    assert wire.hex() == "04" + field + "000001" + "08" + "01000000" + extension + "61"


def test_continuations_repeat_the_extension() -> None:
    """RTMP 1.0 5.3.1.3, also of a delta."""
    encoder = RtmpEncoder()
    absolute = encoder.send(Message(4, 20_000_000, VIDEO, 1, bytes(129)))
    assert absolute[-6:].hex() == "c4" + "01312d00" + "00"
    delta = encoder.send(Message(4, 40_000_000, VIDEO, 1, bytes(129)))
    assert delta[:8].hex() == "84ffffff01312d00"
    assert delta[-6:].hex() == "c4" + "01312d00" + "00"
    again = encoder.send(Message(4, 60_000_000, VIDEO, 1, bytes(129)))
    assert again[:5].hex() == "c401312d00"


def test_deltas_after_an_extended_timestamp_are_not_extended() -> None:
    encoder = RtmpEncoder()
    encoder.send(Message(4, 20_000_000, VIDEO, 1, bytes(129)))
    wire = encoder.send(Message(4, 20_000_040, VIDEO, 1, bytes(129)))
    assert wire[:4].hex() == "84000028"
    assert wire[-2:].hex() == "c400"


# -- chunk sizes -------------------------------------------------------------------------------------------------


def test_a_new_chunk_size_applies_after_its_message() -> None:
    encoder = RtmpEncoder(3)
    wire = encoder.send(Message(2, 0, SET_CHUNK_SIZE, 0, (300).to_bytes(4, "big")))
    assert wire.hex() == "02000000000004010000000000" + "0001" + "c2" + "2c"
    assert encoder.chunk_size == 300
    assert len(encoder.send(Message(4, 0, VIDEO, 1, bytes(300)))) == 312


@pytest.mark.parametrize(
    ("announced", "used"), [(1, 1), (0xFFFFFF, 0xFFFFFF), (0x1000000, 0xFFFFFF), (0x7FFFFFFF, 0xFFFFFF)]
)
def test_sizes_that_may_be_announced(announced: int, used: int) -> None:
    encoder = RtmpEncoder()
    encoder.send(Message(2, 0, SET_CHUNK_SIZE, 0, announced.to_bytes(4, "big")))
    assert encoder.chunk_size == used


@pytest.mark.parametrize("announced", [0, 0x80000000, 0xFFFFFFFF])
def test_sizes_that_may_not_be_announced(announced: int) -> None:
    encoder = RtmpEncoder()
    with pytest.raises(EncodeError):
        encoder.send(Message(2, 0, SET_CHUNK_SIZE, 0, announced.to_bytes(4, "big")))
    assert encoder.chunk_size == 128
    assert fmts(encoder, Message(2, 0, SET_CHUNK_SIZE, 0, bytes((0, 0, 1, 0)))) == [0]


@pytest.mark.parametrize("size", [0, -1, 0x1000000])
def test_an_encoder_does_not_start_with_an_impossible_size(size: int) -> None:
    with pytest.raises(EncodeError):
        RtmpEncoder(size)


@pytest.mark.parametrize(
    "message",
    [
        replace(AUDIO_32, type_id=256),
        replace(AUDIO_32, type_id=-1),
        replace(AUDIO_32, stream_id=1 << 32),
        replace(AUDIO_32, stream_id=-1),
        replace(AUDIO_32, payload=bytes(0x1000000)),
        replace(AUDIO_32, csid=1),
    ],
    ids=["type 256", "type -1", "stream 2^32", "stream -1", "16 MiB", "csid 1"],
)
def test_messages_that_cannot_be_encoded(message: Message) -> None:
    with pytest.raises(EncodeError):
        RtmpEncoder().send(message)


def test_the_longest_message() -> None:
    message = Message(4, 0, VIDEO, 1, bytes(0xFFFFFF))
    wire = RtmpEncoder(65536).send(message)
    assert len(wire) == 12 + 0xFFFFFF + 255
    assert wire[4:7].hex() == "ffffff"


# -- interleaving ------------------------------------------------------------------------------------------------


def test_interleaving_takes_turns() -> None:
    """Two csids with 256 bytes each, in chunks of 128."""
    a, v = bytes(range(256)), bytes(0x90 + i & 255 for i in range(256))
    wire = RtmpEncoder().send_interleaved([Message(4, 2000, AUDIO, 1, a), Message(6, 2000, VIDEO, 1, v)])
    head_a, head_v = bytes.fromhex("040007d00001000801000000"), bytes.fromhex("060007d00001000901000000")
    assert wire == head_a + a[:128] + head_v + v[:128] + b"\xc4" + a[128:] + b"\xc6" + v[128:]


def test_interleaving_messages_of_different_lengths() -> None:
    messages = [Message(csid, csid, VIDEO, 1, bytes([csid]) * length) for csid, length in ((4, 400), (5, 0), (6, 129))]
    wire = RtmpEncoder().send_interleaved(messages)
    assert [(m.csid, len(m.payload)) for m in read_chunks(wire, 0)] == [(5, 0), (6, 129), (4, 400)]


@pytest.mark.parametrize(
    "messages",
    [[AUDIO_32, AUDIO_32], [AUDIO_32, Message(2, 0, SET_CHUNK_SIZE, 0, bytes((0, 0, 1, 0)))]],
    ids=["one csid twice", "a change of the size"],
)
def test_messages_that_cannot_be_interleaved(messages: list[Message]) -> None:
    encoder = RtmpEncoder()
    with pytest.raises(EncodeError):
        encoder.send_interleaved(messages)
    assert encoder.chunk_size == 128
    assert fmts(encoder, AUDIO_32) == [0]


# -- both ways ---------------------------------------------------------------------------------------------------

CSIDS = st.sampled_from([3, 4, 6, 63, 64, 65, 70, 319, 320, 365, 65599])
SIZES = st.sampled_from([0, 1, 127, 128, 129, 256, 257, 700])
STEPS = st.sampled_from([0, 20, 20, 20, 23, 1000, 0xFFFFFE, 0xFFFFFF, 0x1000000, 0x7FFFFFFF])


@st.composite
def message_lists(draw: st.DrawFn) -> list[Message]:
    """Messages with increasing timestamps; payloads start like audio or video and continue with random bytes."""
    clock: dict[int, int] = {}
    messages = []
    for number in range(draw(st.integers(1, 12))):
        csid = draw(CSIDS)
        clock[csid] = min(clock.get(csid, 0) + draw(STEPS), 0xFFFFFFFF)
        type_id = draw(st.sampled_from([AUDIO, AUDIO, VIDEO]))
        payload = b"\xaf\x01" + random.Random(number).randbytes(draw(SIZES))
        messages.append(Message(csid, clock[csid], type_id, draw(st.sampled_from([1, 1, 1, 7])), payload))
    return messages


class Smallest(random.Random):
    """The writer lists the allowed formats from the longest header to the shortest; this takes the last."""

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]
        return seq[-1]


@given(message_lists(), st.sampled_from([1, 50, 128, 129, 4096]))
def test_the_same_bytes_as_a_writer_that_takes_the_smallest_header(messages: list[Message], size: int) -> None:
    encoder, writer = RtmpEncoder(), ChunkWriter(Smallest())
    ours = encoder.send(Message(2, 0, SET_CHUNK_SIZE, 0, size.to_bytes(4, "big")))
    writer.set_chunk_size(size)
    for message in messages:
        ours += encoder.send(message)
        writer.queue(Sent(message.csid, message.timestamp, message.type_id, message.stream_id, message.payload))
        writer.flush()
    assert ours == bytes(writer.wire)


@given(message_lists(), st.sampled_from([1, 50, 128, 129, 4096]))
def test_encoded_messages_are_decoded_unchanged(messages: list[Message], size: int) -> None:
    encoder = RtmpEncoder()
    wire = encoder.send(Message(2, 0, SET_CHUNK_SIZE, 0, size.to_bytes(4, "big")))
    wire += b"".join(encoder.send(message) for message in messages)
    assert [as_message(read) for read in read_chunks(wire, 0)][1:] == messages
    decoder = RtmpDecoder(phase="chunks")
    events = decoder.receive_data(wire) + decoder.receive_eof()
    assert [as_message(event) for event in events if isinstance(event, MessageReceived)][1:] == messages
    assert all(event.status == COMPLETE for event in events if isinstance(event, MessageReceived))


@given(message_lists(), st.sampled_from([1, 50, 128, 4096]))
def test_interleaved_messages_are_decoded_unchanged(messages: list[Message], size: int) -> None:
    one_each = list({message.csid: message for message in messages}.values())
    wire = RtmpEncoder(size).send_interleaved(one_each)
    decoder = RtmpDecoder(phase="chunks", chunk_size=size)
    events = decoder.receive_data(wire) + decoder.receive_eof()
    back = [as_message(event) for event in events if isinstance(event, MessageReceived)]
    assert sorted(back, key=lambda m: m.csid) == sorted(one_each, key=lambda m: m.csid)


@given(message_lists(), st.data())
def test_every_legal_form_is_decoded_unchanged(messages: list[Message], data: st.DataObject) -> None:
    encoder = RtmpEncoder()
    wire = b""
    for message in messages:
        form = data.draw(st.sampled_from([None, 3])) if 64 <= message.csid < 320 else None
        fmt = data.draw(st.sampled_from([None, 0]))
        wire += encoder.send(message, fmt=fmt, csid_form=form)
    assert [m.payload for m in read_chunks(wire, 0)] == [m.payload for m in messages]
    decoder = RtmpDecoder(phase="chunks")
    events = decoder.receive_data(wire) + decoder.receive_eof()
    assert [as_message(event) for event in events if isinstance(event, MessageReceived)] == messages


def as_message(message: MessageReceived | Read) -> Message:
    return Message(message.csid, message.timestamp, message.type_id, message.stream_id, message.payload)
