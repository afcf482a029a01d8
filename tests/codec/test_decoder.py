"""RtmpDecoder: saved states, limits, phases, gaps in the handshake, and cases of chunks that the vectors do not cover.

Bytes are written by hand from the specification; properties over any bytes are in test_properties.py, losses in
test_resync.py.
"""

from __future__ import annotations

import struct
import tracemalloc
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.chunk_writer import Sent as Message
from kit.chunk_writer import basic_header, message_header

from rtmp_spark.codec.chunk.dechunker import Dechunker
from rtmp_spark.codec.decoder import STATE_VERSION, RtmpDecoder, StateError
from rtmp_spark.codec.errors import RtmpSparkError, Severity, ViolationCode
from rtmp_spark.codec.events import (
    ABORTED,
    COMPLETE,
    GAP,
    TRUNCATED,
    Event,
    HandshakePart,
    MessageReceived,
    Skipped,
    Violation,
)
from rtmp_spark.codec.limits import Limits

E = TypeVar("E", HandshakePart, MessageReceived, Skipped, Violation)
SHAKEN = b"\3" + bytes(3072)


def chunk(
    csid: int, payload: bytes, *, time: int = 0, length: int | None = None, type_id: int = 9, form: int = 1
) -> bytes:
    """A chunk with a header of fmt 0; `length` announces more than `payload` has."""
    header, extension = message_header(0, time, Message(csid, time, type_id, 1, bytes(length or len(payload))))
    return basic_header(0, csid, form) + header + extension + payload


def video(length: int, fill: int = 0xAA) -> bytes:
    return (b"\x27\x01\0\0\0" + bytes([fill]) * length)[:length]


def kinds(events: list[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def codes(events: list[Event]) -> list[ViolationCode]:
    return [event.code for event in kinds(events, Violation)]


def whole(data: bytes, phase: str = "chunks", limits: Limits | None = None, chunk_size: int = 128) -> list[Event]:
    decoder = RtmpDecoder(limits or Limits(), phase=phase, chunk_size=chunk_size)
    return decoder.receive_data(data) + decoder.receive_eof()


# -- states ------------------------------------------------------------------------------------------------------


def busy_decoder() -> RtmpDecoder:
    """Two unfinished messages, and a third of which only part of the header arrived."""
    decoder = RtmpDecoder()
    decoder.receive_data(
        SHAKEN + chunk(4, video(128), length=300) + chunk(70, video(128), length=400, form=2) + b"\x05\0\0"
    )
    return decoder


def test_a_resumed_decoder_continues_with_the_same_events() -> None:
    rest = b"\0" + b"\0\0\2\x08\1\0\0\0" + b"\xaf\1" + b"\xc4" + bytes(128) + b"\xc0\6" + bytes(128)
    first = busy_decoder()
    second = RtmpDecoder.resume(first.state())
    assert second.offset == first.offset == len(SHAKEN) + 140 + 141 + 3
    assert second.phase == first.phase == "chunks"
    assert second.chunk_size == first.chunk_size == 128
    assert first.receive_data(rest) == second.receive_data(rest)
    assert first.state() == second.state()
    assert first.receive_eof() == second.receive_eof() != []


def test_a_state_contains_its_version() -> None:
    state = busy_decoder().state()
    assert state[:4] == b"RSD" + bytes([STATE_VERSION])


@pytest.mark.parametrize("version", [0, STATE_VERSION + 1, 255])
def test_a_state_of_another_version_is_refused(version: int) -> None:
    state = bytearray(busy_decoder().state())
    state[3] = version
    with pytest.raises(StateError, match=f"version {version}; this program reads version {STATE_VERSION}"):
        RtmpDecoder.resume(bytes(state))


@pytest.mark.parametrize("state", [b"", b"RSD", b"\x80\x04\x95pickle", bytes(40), b'{"phase": "chunks"}'])
def test_bytes_that_are_not_a_state_are_refused(state: bytes) -> None:
    with pytest.raises(StateError):
        RtmpDecoder.resume(state)


def test_a_truncated_state_is_refused() -> None:
    state = busy_decoder().state()
    for length in range(len(state)):
        with pytest.raises(StateError):
            RtmpDecoder.resume(state[:length])
    with pytest.raises(StateError):
        RtmpDecoder.resume(state + b"\0")


@given(st.binary(max_size=60), st.integers(0, 400))
def test_resume_raises_only_rtmp_spark_errors(noise: bytes, at: int) -> None:
    state = bytearray(busy_decoder().state())
    state[8 + at : 8 + at + len(noise)] = noise  # after the magic, the version and the length
    try:
        RtmpDecoder.resume(bytes(state))
    except RtmpSparkError:
        pass


def test_the_size_of_a_state_depends_on_received_bytes_not_on_announced_lengths() -> None:
    decoder = RtmpDecoder(phase="chunks")
    for csid in range(3, 13):
        decoder.receive_data(chunk(csid, video(128), length=16_000_000))
    assert 10 * 128 < len(decoder.state()) < 10 * 128 + 10 * 300 + 1000


def test_limits_are_those_given_to_resume() -> None:
    limits = Limits(message_bytes=1000)
    decoder = RtmpDecoder.resume(RtmpDecoder(phase="chunks").state(), limits)
    assert ViolationCode.CHUNK_LIMIT in codes(decoder.receive_data(chunk(4, video(128), length=1001)))


# -- limits ------------------------------------------------------------------------------------------------------


def test_a_message_over_the_limit_does_not_affect_others() -> None:
    long = chunk(4, video(128), length=300) + b"\xc4" + bytes(128) + b"\xc4" + bytes(44)
    events = whole(
        long + chunk(4, video(200)[:128], length=200) + b"\xc4" + bytes(72), limits=Limits(message_bytes=299)
    )
    dropped, kept = kinds(events, MessageReceived)
    assert (dropped.status, dropped.length, dropped.missing_bytes, dropped.payload) == (TRUNCATED, 300, 300, b"")
    assert dropped.chunks == 3
    assert (kept.status, kept.length, len(kept.payload)) == (COMPLETE, 200, 200)
    assert codes(events) == [ViolationCode.CHUNK_LIMIT]


@pytest.mark.parametrize("length", [299, 300])
def test_a_message_of_exactly_the_limit_is_kept(length: int) -> None:
    events = whole(chunk(4, video(length)), limits=Limits(message_bytes=300), chunk_size=4096)
    assert kinds(events, MessageReceived)[0].status == COMPLETE
    assert codes(events) == []


def test_unfinished_messages_share_one_budget() -> None:
    """Each of ten announces 1000 bytes and sends 256; only 1000 bytes in all may be kept."""
    decoder = RtmpDecoder(Limits(partial_bytes=1000), phase="chunks")
    events: list[Event] = []
    for csid in range(3, 13):
        events += decoder.receive_data(chunk(csid, video(128), length=1000))
    for csid in range(3, 13):
        events += decoder.receive_data(bytes([0xC0 | csid]) + bytes(128))
    assert codes(events) == [ViolationCode.CHUNK_LIMIT]  # reported once
    assert len(decoder.state()) < 1000 + 10 * 300 + 1000
    events = decoder.receive_eof()
    assert sum(len(message.payload) for message in kinds(events, MessageReceived)) <= 1000
    assert all(m.length == len(m.payload) + m.missing_bytes for m in kinds(events, MessageReceived))
    assert len(kinds(events, MessageReceived)) == 10


def test_a_finished_message_releases_its_budget() -> None:
    decoder = RtmpDecoder(Limits(partial_bytes=400), phase="chunks")
    for number in range(20):
        events = decoder.receive_data(chunk(4, video(128, number), length=300))
        events += decoder.receive_data(b"\xc4" + bytes(128))
        events += decoder.receive_data(b"\xc4" + bytes(44))
        assert [message.status for message in kinds(events, MessageReceived)] == [COMPLETE]
        assert codes(events) == []


def test_memory_depends_on_received_bytes() -> None:
    """Very many csids announce messages of 16 MB."""
    header = b"\0\0\0" + (16_000_000).to_bytes(3, "big") + b"\x09\1\0\0\0"
    decoder = RtmpDecoder(phase="chunks")
    tracemalloc.start()
    try:
        for csid in range(320, 3320):
            decoder.receive_data(b"\1" + struct.pack("<H", csid - 64) + header + bytes(128))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 3000 * 1100  # 60,000 of them in 64 MiB


def test_work_is_linear_in_the_number_of_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of 200 KB arrives byte by byte: the decoder parses only when a whole chunk may have arrived."""
    looks = 0
    run = Dechunker.run

    def counted(self: Dechunker, buf: bytes, pos: int, final: bool, out: list[Event]) -> int:
        nonlocal looks
        looks += len(buf)
        return run(self, buf, pos, final, out)

    monkeypatch.setattr(Dechunker, "run", counted)
    data = chunk(4, video(65536), length=200_000)
    for at in range(65536, 200_000, 65536):
        data += b"\xc4" + bytes(min(65536, 200_000 - at))
    decoder = RtmpDecoder(phase="chunks", chunk_size=65536)
    events = [event for byte in data for event in decoder.receive_data(bytes([byte]))]
    assert [message.status for message in kinds(events, MessageReceived)] == [COMPLETE]
    assert looks < 3 * len(data)


# -- handshake and phases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "parts"),
    [
        ("handshake", [(0, 1), (1, 1536), (2, 1536)]),
        ("part1", [(1, 1536), (2, 1536)]),
        ("part2", [(2, 1536)]),
        ("chunks", []),
    ],
)
def test_the_caller_chooses_the_initial_phase(phase: str, parts: list[tuple[int, int]]) -> None:
    before = {"handshake": 3073, "part1": 3072, "part2": 1536, "chunks": 0}[phase]
    data = SHAKEN[3073 - before :]
    events = whole(data + chunk(4, video(20)), phase)
    assert [(part.part, len(part.data)) for part in kinds(events, HandshakePart)] == parts
    (message,) = kinds(events, MessageReceived)
    assert (message.start, message.end) == (before, before + 32)


@pytest.mark.parametrize(
    "lost", [(0, 1), (0, 700), (1, 1), (500, 10), (500, 1037), (1000, 1000), (1537, 1536), (2000, 1000), (3072, 1)]
)
def test_a_gap_in_the_handshake_loses_no_message(lost: tuple[int, int]) -> None:
    """The parts have known lengths, so the start of the first chunk is known."""
    at, length = lost
    data = b"\3" + bytes(3072) + chunk(4, video(20))
    decoder = RtmpDecoder()
    events = decoder.receive_data(data[:at]) + decoder.receive_gap(length) + decoder.receive_data(data[at + length :])
    events += decoder.receive_eof()
    (message,) = kinds(events, MessageReceived)
    assert (message.start, message.end, message.status) == (3073, 3105, COMPLETE)
    bounds = [(part.part, part.start, part.end) for part in kinds(events, HandshakePart)]
    expected = [(0, 0, 1), (1, 1, 1537), (2, 1537, 3073)]
    assert bounds == [part for part in expected if part[2] <= at or part[1] >= at + length]


@pytest.mark.parametrize("at", [700, 2500, 3073, 3073 + 4 * 32, 3073 + 4 * 32 + 20])
def test_a_gap_of_unknown_length_is_not_crossed(at: int) -> None:
    """If one lost byte is assumed, a message seems to fit, but it is not reported; complete messages after it are."""
    sent = [chunk(4, video(20), time=40 * n) for n in range(40)]
    data = b"\3" + bytes(3072) + b"".join(sent)
    decoder = RtmpDecoder()
    events = decoder.receive_data(data[:at]) + decoder.receive_gap(1, exact=False)
    events += decoder.receive_data(data[max(at, 3073) + 10 * 32 - 1 :]) + decoder.receive_eof()
    found = [m for m in kinds(events, MessageReceived) if m.status == COMPLETE]
    assert {message.payload for message in found} == {video(20)}
    assert 25 <= len(found) <= 35
    assert not [v for v in kinds(events, Violation) if v.severity is Severity.ERROR]


def test_encrypted_bytes_are_not_kept() -> None:
    decoder = RtmpDecoder()
    events = decoder.receive_data(b"\6" + bytes(1536))
    for _ in range(100):
        events += decoder.receive_data(bytes(10_000))
    assert len(decoder.state()) < 1000
    events += decoder.receive_eof()
    assert codes(events) == [ViolationCode.HS_ENCRYPTED]
    assert kinds(events, Skipped) == [Skipped(1537, 1_001_537, "encrypted")]


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n" * 500])
def test_text_is_not_rtmp(data: bytes) -> None:
    events = whole(data, "handshake")
    assert codes(events) == [ViolationCode.HS_VERSION]
    assert kinds(events, MessageReceived) == []
    assert kinds(events, Skipped) == [Skipped(1, len(data), "not RTMP")]


@pytest.mark.parametrize(("length", "part"), [(1, 1), (1536, 1), (1537, 2), (3072, 2)])
def test_an_unfinished_handshake(length: int, part: int) -> None:
    events = whole(SHAKEN[:length], "handshake")
    (violation,) = kinds(events, Violation)
    assert violation.code == ViolationCode.HS_INCOMPLETE
    assert f"part {part}" in violation.detail


def test_an_empty_stream_has_no_violation() -> None:
    assert whole(b"", "handshake") == []


# -- the interface -------------------------------------------------------------------------------------------------


def test_offsets_count_received_and_lost_bytes() -> None:
    decoder = RtmpDecoder()
    decoder.receive_data(b"\3")
    decoder.receive_data(bytes(10))
    decoder.receive_gap(5)
    assert decoder.offset == 16


def test_a_second_eof_reports_nothing() -> None:
    decoder = RtmpDecoder(phase="chunks")
    decoder.receive_data(chunk(4, video(128), length=300))
    assert decoder.receive_eof() != []
    assert decoder.receive_eof() == []


@pytest.mark.parametrize("length", [0, -1])
def test_a_gap_without_bytes_is_ignored(length: int) -> None:
    decoder = RtmpDecoder(phase="chunks")
    decoder.receive_data(chunk(4, video(128), length=129))
    assert decoder.receive_gap(length) == []
    assert kinds(decoder.receive_data(b"\xc4\0"), MessageReceived)[0].status == COMPLETE


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_other_kinds_of_buffers(kind: type[bytearray | memoryview]) -> None:
    data = bytearray(chunk(4, video(128), length=200) + b"\xc4" + bytes(72))
    decoder = RtmpDecoder(phase="chunks")
    events = decoder.receive_data(kind(data[:50])) + decoder.receive_data(kind(data[50:]))
    (message,) = kinds(events, MessageReceived)
    data[:] = bytes(len(data))  # the decoder has its own copy
    assert message.payload[:5] == video(5)
    assert isinstance(message.payload, bytes)


def test_payloads_are_bytes_for_every_kind_of_input() -> None:
    data = chunk(4, video(128), length=300) + b"\xc4" + bytes(128) + b"\xc4" + bytes(44)
    for step in (1, 100, len(data)):
        decoder = RtmpDecoder(phase="chunks")
        events = [e for at in range(0, len(data), step) for e in decoder.receive_data(data[at : at + step])]
        assert [type(message.payload) for message in kinds(events, MessageReceived)] == [bytes]


# -- chunks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("csid", "form"),
    [
        (2, 1),
        (3, 1),
        (63, 1),
        (64, 2),
        (65, 2),
        (191, 2),
        (192, 2),
        (319, 2),
        (64, 3),
        (319, 3),
        (320, 3),
        (1000, 3),
        (65599, 3),
    ],
)
def test_every_form_of_a_csid(csid: int, form: int) -> None:
    """A message of two chunks: the second has the same form with fmt 3."""
    events = whole(chunk(csid, video(128), length=130, form=form) + basic_header(3, csid, form) + b"zz")
    (message,) = kinds(events, MessageReceived)
    assert (message.csid, message.payload, message.chunks) == (csid, video(128) + b"zz", 2)
    needless = form == 3 and csid < 320
    assert (ViolationCode.CHUNK_CSID_FORM in codes(events)) == needless


def test_two_forms_of_a_csid_are_one_stream() -> None:
    first = chunk(100, video(128), length=130, form=2)
    (message,) = kinds(whole(first + basic_header(3, 100, 3) + b"zz"), MessageReceived)
    assert message.payload == video(128) + b"zz"


@pytest.mark.parametrize("first", [100, 300, 700])
@pytest.mark.parametrize(
    ("form", "mark"),
    [(2, basic_header(3, 100, 2)), (3, basic_header(3, 100, 3)), (2, b"\xe4")],
    ids=["two bytes", "three bytes", "FFmpeg's one byte"],
)
def test_a_gap_inside_a_message_is_crossed_in_the_form_of_its_continuations(form: int, mark: bytes, first: int) -> None:
    """Some of its seven continuation headers are lost; the bytes after the gap keep their place in the payload."""
    body = video(5) + bytes(n % 191 for n in range(995))
    pieces = [body[at : at + 128] for at in range(0, len(body), 128)]
    sent = [chunk(100, pieces[0], time=40 * n, length=1000, form=form) + mark for n in range(3)]
    wire = [head + mark.join(pieces[1:]) for head in sent]
    last = first + 290
    of_body = [-1] * (len(sent[0]) - len(mark) - 128) + list(range(128))  # index in the body of each byte; -1: a header
    for at in range(128, 1000, 128):
        of_body += [-1] * len(mark) + list(range(at, min(at + 128, 1000)))
    decoder = RtmpDecoder(phase="chunks")
    events = decoder.receive_data(wire[0] + wire[1][:first])
    decoder = RtmpDecoder.resume(decoder.state())
    events += decoder.receive_gap(last - first) + decoder.receive_data(wire[1][last:] + wire[2]) + decoder.receive_eof()
    whole, damaged, after = kinds(events, MessageReceived)
    assert whole.payload == after.payload == body and not after.inferred
    assert damaged.payload == bytes(body[at] for at in of_body[:first] + of_body[last:] if at >= 0)
    assert (damaged.status, damaged.missing_bytes) == (GAP, 1000 - len(damaged.payload))
    assert not kinds(events, Skipped)


@pytest.mark.parametrize("type_id", [15, 16, 17, 18, 19, 20])
def test_amf_bytes_after_a_gap_are_not_joined_to_those_before_it(type_id: int) -> None:
    body = b"\2\0\7onEvent\0" + bytes(8) + b"\5" + b"".join(b"\2\0\4%04d" % n for n in range(40))
    head = b"\3\0\0\0" + len(body).to_bytes(3, "big") + bytes([type_id]) + bytes(4)
    wire = head + body[:128] + b"\xc3" + body[128:256] + b"\xc3" + body[256:]
    decoder = RtmpDecoder(phase="chunks")
    events = decoder.receive_data(wire[:100]) + decoder.receive_gap(20) + decoder.receive_data(wire[120:] + wire)
    damaged, after = kinds(events + decoder.receive_eof(), MessageReceived)
    assert (damaged.status, damaged.missing_bytes, after.payload) == (GAP, 20, body)
    assert damaged.payload == body[: 100 - len(head)]


def test_thirty_interleaved_messages() -> None:
    """Messages are reported in the order of their last chunks, each with its own bytes."""
    csids = list(range(3, 33))
    wire = b"".join(chunk(csid, video(128, csid), length=300) for csid in csids)
    wire += b"".join(bytes([0xC0 | csid]) + bytes([csid]) * 128 for csid in reversed(csids))
    wire += b"".join(bytes([0xC0 | csid]) + bytes([csid]) * 44 for csid in csids[1::2] + csids[::2])
    events = whole(wire)
    messages = kinds(events, MessageReceived)
    assert [message.csid for message in messages] == csids[1::2] + csids[::2]
    assert all(message.payload == video(300, message.csid) for message in messages)
    assert [message.start for message in sorted(messages, key=lambda m: m.csid)] == list(range(0, 140 * 30, 140))
    assert codes(events) == []


def test_a_size_change_between_two_halves_of_several_messages() -> None:
    wire = chunk(4, video(128), length=400) + chunk(6, video(128), length=400)
    wire += bytes.fromhex("02 000000 000004 01 00000000 00000032")  # 50
    wire += (b"\xc4" + video(50, 4)) * 5 + b"\xc6" + video(50, 6)
    wire += bytes.fromhex("02 000000 000004 01 00000000 00001000")  # 4096
    wire += b"\xc4" + video(22, 4) + b"\xc6" + video(222, 6)
    messages = [m for m in kinds(whole(wire), MessageReceived) if m.type_id == 9]
    assert [(m.csid, m.chunks, m.chunk_size, m.status) for m in messages] == [
        (4, 7, 128, COMPLETE),
        (6, 3, 128, COMPLETE),
    ]
    assert messages[0].payload == video(128) + video(50, 4) * 5 + video(22, 4)
    assert messages[1].payload == video(128) + video(50, 6) + video(222, 6)


def test_extended_timestamps_on_the_continuations_of_interleaved_messages() -> None:
    a, b = 20_000_000, 30_000_000
    wire = chunk(4, video(128), time=a, length=300) + chunk(6, video(128), time=b, length=300)
    for size in (128, 44):
        wire += b"\xc4" + a.to_bytes(4, "big") + bytes(size) + b"\xc6" + b.to_bytes(4, "big") + bytes(size)
    events = whole(wire)
    assert [(m.timestamp, len(m.payload)) for m in kinds(events, MessageReceived)] == [(a, 300), (b, 300)]
    assert codes(events) == []


@pytest.mark.parametrize("got", [128, 256])
def test_an_abort_reports_the_received_part_and_keeps_the_header(got: int) -> None:
    """The next fmt 3 chunk on that csid starts a message with the header of the aborted one."""
    wire = chunk(4, video(128), length=300) + (b"\xc4" + bytes(128)) * (got // 128 - 1)
    wire += bytes.fromhex("02 000000 000004 02 00000000 00000004")
    wire += b"\xc4" + video(128, 7) + b"\xc4" + bytes(128) + b"\xc4" + bytes(44)
    events = whole(wire)
    aborted, abort, again = kinds(events, MessageReceived)
    assert (aborted.status, len(aborted.payload), aborted.missing_bytes) == (ABORTED, got, 300 - got)
    assert abort.type_id == 2
    assert (again.status, again.fmt, again.length, again.type_id) == (COMPLETE, 3, 300, 9)
    assert again.payload[:128] == video(128, 7)
    assert codes(events) == [ViolationCode.MSG_ABORTED]


def test_an_abort_in_two_pieces_of_another_csid_changes_nothing() -> None:
    wire = chunk(4, video(128), length=129)
    wire += bytes.fromhex("02 000000 000004 02 00000000 00000006") + b"\xc4z"
    events = whole(wire)
    assert [m.status for m in kinds(events, MessageReceived)] == [COMPLETE, COMPLETE]
    assert codes(events) == [ViolationCode.CTRL_ABORT_IDLE]


@pytest.mark.parametrize(("size", "used", "code"), [
    (0, 128, ViolationCode.CHUNK_SIZE_ZERO),
    (1, 1, ViolationCode.CHUNK_SIZE_SMALL),
    (0xFFFFFF, 0xFFFFFF, None),
    (0x1000000, 0xFFFFFF, ViolationCode.CHUNK_SIZE_CLAMPED),
    (0x7FFFFFFF, 0xFFFFFF, ViolationCode.CHUNK_SIZE_CLAMPED),
    (0x80001000, 4096, ViolationCode.CHUNK_SIZE_BIT31),
    (0x80000000, 128, ViolationCode.CHUNK_SIZE_ZERO),
])  # fmt: skip
def test_chunk_sizes(size: int, used: int, code: ViolationCode | None) -> None:
    decoder = RtmpDecoder(phase="chunks")
    events = decoder.receive_data(bytes.fromhex("02 000000 000004 01 00000000") + size.to_bytes(4, "big"))
    assert decoder.chunk_size == used
    assert codes(events)[-1:] == ([code] if code else [])


def test_timestamps_continue_beyond_32_bits() -> None:
    """The 32-bit timestamp wraps twice, in steps of 2^30; the raw fields are reported too."""
    wire = b""
    for number in range(9):
        wire += chunk(4, b"\xaf\1", time=(number << 30) & 0xFFFFFFFF, type_id=8)
    messages = kinds(whole(wire), MessageReceived)
    assert [m.timestamp for m in messages] == [number << 30 for number in range(9)]
    assert [m.timestamp_raw for m in messages] == [0, *[0xFFFFFF] * 3, 0, *[0xFFFFFF] * 3, 0]
    assert [m.ext_timestamp for m in messages[:5]] == [None, 1 << 30, 2 << 30, 3 << 30, None]


def test_fmt_3_on_a_new_csid_is_reported_and_skipped() -> None:
    events = whole(chunk(4, video(20)) + b"\xc7" + bytes(200))
    assert [m.status for m in kinds(events, MessageReceived)] == [COMPLETE]
    fresh = next(v for v in kinds(events, Violation) if v.code == ViolationCode.CHUNK_FRESH_CSID)
    assert (fresh.severity, fresh.offset) == (Severity.ERROR, 32)
    assert ViolationCode.CHUNK_RESYNC in codes(events)
    assert [(skipped.start, skipped.end) for skipped in kinds(events, Skipped)] == [(32, 233)]


def test_unfinished_messages_are_reported_in_order_at_the_end() -> None:
    events = whole(chunk(6, video(128), length=300) + chunk(4, video(128), length=400) + b"\xc6" + bytes(50))
    messages = kinds(events, MessageReceived)
    assert [(m.csid, m.status, len(m.payload), m.missing_bytes) for m in messages] == [
        (6, TRUNCATED, 178, 122),
        (4, TRUNCATED, 128, 272),
    ]
    assert codes(events) == [ViolationCode.MSG_TRUNCATED] * 2


def test_a_message_of_an_unknown_type_may_have_several_chunks() -> None:
    """Its first chunk is followed by fmt 3 on a csid that was never used before, which is no reason to lose sync."""
    body = bytes(1000)
    first = basic_header(0, 7, 1) + bytes(3) + struct.pack(">I", 1000)[1:] + b"\x63" + bytes(4)
    wire = first + basic_header(3, 7, 1).join(body[at : at + 128] for at in range(0, 1000, 128))
    events = RtmpDecoder(phase="chunks").receive_data(wire)
    assert [event.payload for event in events if isinstance(event, MessageReceived)] == [body]
    assert not any(isinstance(event, Skipped) for event in events)


def test_a_message_on_csid_64_is_complete_without_the_header_that_follows_it() -> None:
    """A continuation of csid 64 begins with the same byte in both forms; earlier chunks show which one is used."""
    body = bytes(range(1, 251)) * 3
    first = basic_header(0, 64, 2) + bytes(3) + struct.pack(">I", 750)[1:] + b"\x14" + bytes(4)
    wire = first + basic_header(3, 64, 2).join(body[at : at + 128] for at in range(0, 750, 128))
    events = RtmpDecoder(phase="chunks").receive_data(wire)
    assert [event.payload for event in events if isinstance(event, MessageReceived)] == [body]
