"""Properties of RtmpDecoder for arbitrary bytes, pieces and losses.

The decoder never raises. It gives the same events for every division of the input into pieces, also if it is saved and
resumed between two pieces. Every received byte is covered by an event. From the bytes of the independent writer it
decodes exactly the messages that were sent. `RTMP_SPARK_EXAMPLES` sets the number of examples per property.
"""

from __future__ import annotations

import os
import random
from functools import lru_cache

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kit.chunk_reader import HANDSHAKE
from kit.chunk_writer import CSIDS, ChunkWriter, Sent, basic_header, random_stream
from kit.real_streams import Stream, real_streams, rechunked

from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.events import COMPLETE, Event, HandshakePart, MessageReceived, Skipped, Violation
from rtmp_spark.codec.limits import DEFAULT_LIMITS, Limits

EXAMPLES = int(os.environ.get("RTMP_SPARK_EXAMPLES", "60"))
tried = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
PHASES = ("handshake", "part1", "part2", "chunks", "midstream")

Piece = bytes | int  # data, or that many lost bytes

# -- inputs ----------------------------------------------------------------------------------------------------

LENGTHS = st.sampled_from([0, 1, 2, 4, 127, 128, 129, 200, 256, 257, 300, 0x10000, 0xFFFFFF])
FIELDS = st.sampled_from([0, 20, 1000, 1001, 0x7FFFFF, 0xFFFFFE, 0xFFFFFF])
TYPES = st.one_of(st.sampled_from([1, 2, 3, 4, 5, 6, 8, 9, 18, 20, 22]), st.integers(0, 255))
EXTENSIONS = st.sampled_from([0, 20, 0xFFFFFE, 0xFFFFFF, 0x1312D00, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFF])
SOME_CSIDS = st.sampled_from([2, 3, 4, 4, 4, 6, 6, 63, 64, 65, 70, 319, 320, 65599])


@st.composite
def chunk_headers(draw: st.DrawFn) -> bytes:
    """A header of any form, which need not fit the headers before it."""
    csid = draw(SOME_CSIDS)
    form = 1 if csid < 64 else draw(st.sampled_from([2, 3] if csid < 320 else [3]))
    fmt = draw(st.integers(0, 3))
    field = draw(FIELDS)
    header = basic_header(fmt, csid, form)
    if fmt < 3:
        header += field.to_bytes(3, "big")
    if fmt < 2:
        header += draw(LENGTHS).to_bytes(3, "big") + bytes((draw(TYPES),))
    if fmt == 0:
        header += draw(st.sampled_from([0, 1, 1, 5, 0x1000000])).to_bytes(4, "little")
    if field == 0xFFFFFF and draw(st.booleans()):
        header += draw(EXTENSIONS).to_bytes(4, "big")
    return header


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """As many bytes as a chunk has, or nearly as many."""
    size = draw(st.sampled_from([0, 1, 2, 4, 5, 44, 72, 127, 128, 129, 200]))
    start = draw(st.sampled_from([b"", b"\xaf\x01", b"\x27\x01\0\0\0", b"\0\0\0\4", b"\0\0\x10\0", b"\2\0\7connect"]))
    return (start + bytes([draw(st.integers(0, 255))]) * size)[:size]


NEARLY_CHUNKS = st.lists(
    st.one_of(chunk_headers(), bodies(), st.tuples(chunk_headers(), bodies()).map(b"".join), st.binary(max_size=12)),
    max_size=24,
).map(b"".join)
GAP_LENGTHS = st.sampled_from([1, 2, 11, 128, 129, 1448, 100_000])
PIECES: st.SearchStrategy[list[Piece]] = st.lists(
    st.one_of(NEARLY_CHUNKS, NEARLY_CHUNKS, st.binary(max_size=60), GAP_LENGTHS), max_size=5
)
HANDSHAKE_BYTES = st.one_of(
    st.just(b"\3" + bytes(3072)), st.integers(0, 255).map(lambda version: bytes((version,)) + bytes(3072)), st.just(b"")
)


@lru_cache(maxsize=1)
def originals() -> list[Stream]:
    real = real_streams()
    plain = next(stream for stream in real if stream.name.startswith("ffmpeg_publish_h264_aac "))
    return [*real, rechunked(plain, 128), rechunked(plain, 128, 20_000_000)]


def mutated(rng: random.Random, longest: int) -> list[Piece]:
    """A stretch of a real stream with bytes changed, dropped, added and lost."""
    stream = rng.choice(originals()).data
    start = rng.choice([0, 0, rng.randrange(HANDSHAKE, len(stream))])
    data = bytearray(stream[start : start + rng.randrange(1000, longest)])
    for _ in range(rng.choice([0, 1, 1, 3, 20])):
        at, how = rng.randrange(len(data)), rng.random()
        if how < 0.5:
            data[at] = rng.randrange(256)
        elif how < 0.7:
            del data[at : at + rng.randrange(1, 300)]
        elif how < 0.85:
            data[at:at] = rng.randbytes(rng.randrange(1, 40))
        else:
            data[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"])
        data = data or bytearray(b"\3")
    pieces: list[Piece] = []
    last = 0
    for at in sorted(rng.randrange(len(data)) for _ in range(rng.choice([0, 0, 1, 1, 4]))):
        pieces += [bytes(data[last:at]), rng.choice([1, 7, 128, 1448, 5000])]
        last = at
    return [*pieces, bytes(data[last:])]


# -- ways of feeding ---------------------------------------------------------------------------------------------


def decoded(pieces: list[Piece], phase: str, limits: Limits = DEFAULT_LIMITS) -> list[Event]:
    decoder = RtmpDecoder(limits, phase=phase)
    events: list[Event] = []
    for piece in pieces:
        events += decoder.receive_gap(piece) if isinstance(piece, int) else decoder.receive_data(piece)
    return events + decoder.receive_eof()


def joined(pieces: list[Piece]) -> list[Piece]:
    """Join neighbouring pieces of data."""
    whole: list[Piece] = []
    for piece in pieces:
        if whole and isinstance(piece, bytes) and isinstance(whole[-1], bytes):
            whole[-1] += piece
        else:
            whole.append(piece)
    return whole


def cut(pieces: list[Piece], rng: random.Random, longest: int) -> list[Piece]:
    smaller: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, int):
            smaller.append(piece)
            continue
        at = 0
        while at < len(piece):
            step = rng.randrange(1, longest + 1)
            smaller.append(piece[at : at + step])
            at += step
    return smaller


def resumed(pieces: list[Piece], phase: str) -> list[Event]:
    """Pass every piece to a decoder that is resumed from the state of the previous one."""
    decoder = RtmpDecoder(phase=phase)
    events: list[Event] = []
    for piece in pieces:
        decoder = RtmpDecoder.resume(decoder.state())
        events += decoder.receive_gap(piece) if isinstance(piece, int) else decoder.receive_data(piece)
    return events + RtmpDecoder.resume(decoder.state()).receive_eof()


def unaccounted(pieces: list[Piece], events: list[Event]) -> list[tuple[int, int]]:
    """Ranges of received bytes that no event covers."""
    arrived: list[tuple[int, int]] = []
    offset = 0
    for piece in pieces:
        length = piece if isinstance(piece, int) else len(piece)
        if isinstance(piece, bytes) and piece:
            arrived.append((offset, offset + length))
        offset += length
    covered = sorted(
        (event.start, event.end) for event in events if isinstance(event, (HandshakePart, MessageReceived, Skipped))
    )
    missing = []
    for start, end in arrived:
        for first, last in covered:
            if first > start:
                break
            start = max(start, last)
        while start < end:
            following = min((first for first, _ in covered if first > start), default=end)
            missing.append((start, min(following, end)))
            start = max([last for first, last in covered if first <= following], default=end)
            start = max(start, following)
    return [stretch for stretch in missing if stretch[0] < stretch[1]]


def check_ways_of_feeding(pieces: list[Piece], phase: str, seed: int, smallest: int = 1) -> None:
    rng = random.Random(seed)
    whole = decoded(joined(pieces), phase)
    assert decoded(cut(pieces, rng, smallest), phase) == whole
    assert decoded(cut(pieces, rng, 200), phase) == whole
    assert resumed(cut(pieces, rng, 50 if smallest == 1 else 5000), phase) == whole
    assert unaccounted(joined(pieces), whole) == []
    for event in whole:
        if isinstance(event, MessageReceived):
            assert event.start < event.end
            assert event.length == len(event.payload) + event.missing_bytes


# -- the properties ------------------------------------------------------------------------------------------------


@given(data=st.binary(max_size=400), phase=st.sampled_from(PHASES), seed=st.integers(0, 99))
@tried
def test_any_bytes(data: bytes, phase: str, seed: int) -> None:
    check_ways_of_feeding([data], phase, seed)


@given(start=HANDSHAKE_BYTES, pieces=PIECES, seed=st.integers(0, 99))
@tried
def test_a_handshake_and_nearly_chunks_with_gaps(start: bytes, pieces: list[Piece], seed: int) -> None:
    check_ways_of_feeding([start, *pieces], "handshake", seed, smallest=40)


@given(pieces=PIECES, phase=st.sampled_from(["chunks", "chunks", "midstream"]), seed=st.integers(0, 99))
@tried
def test_nearly_chunks_with_gaps(pieces: list[Piece], phase: str, seed: int) -> None:
    check_ways_of_feeding(pieces, phase, seed)


@given(data=NEARLY_CHUNKS, phase=st.sampled_from(["chunks", "midstream"]))
@tried
def test_resumed_at_every_byte(data: bytes, phase: str) -> None:
    data = data[:600]
    whole = decoded([data], phase)
    assert resumed([data[at : at + 1] for at in range(len(data))], phase) == whole
    for at in range(0, len(data), 7):
        assert resumed([data[:at], data[at:]], phase) == whole, at


@given(seed=st.integers(0, 1 << 32), budget=st.sampled_from([100, 200, 300, 500, 1000]))
@tried
def test_limits_are_reached_at_the_same_place_for_every_division_of_the_input(seed: int, budget: int) -> None:
    limits = Limits(message_bytes=900, partial_bytes=budget)
    data = bytes(random_stream(random.Random(seed), 12).wire)
    whole = decoded([data], "chunks", limits)
    for longest in (1, 100, 300):
        assert decoded(cut([data], random.Random(seed), longest), "chunks", limits) == whole


@given(seed=st.integers(0, 1 << 32), phase=st.sampled_from(["handshake", "handshake", "chunks", "midstream"]))
@tried
def test_mutated_real_streams(seed: int, phase: str) -> None:
    check_ways_of_feeding(mutated(random.Random(seed), 40_000), phase, seed, smallest=3000)


@given(
    seed=st.integers(0, 1 << 32), extended=st.booleans(), repeated=st.booleans(), count=st.integers(1, 60),
)  # fmt: skip
@tried
def test_messages_of_an_independent_writer(seed: int, extended: bool, repeated: bool, count: int) -> None:
    writer = random_stream(random.Random(seed), count, extended, repeated)
    rng = random.Random(seed)
    events = decoded(cut([bytes(writer.wire)], rng, rng.choice([1, 100, 10_000])), "chunks")
    assert found(events) == [as_found(message) for message in writer.sent]


# -- a sender and a receiver, step by step -------------------------------------------------------------------------

Found = tuple[int, int, int, int, bytes]


def as_found(message: Sent) -> Found:
    return message.csid, message.timestamp, message.type_id, message.stream_id, message.payload


def found(events: list[Event]) -> list[Found]:
    return [
        (event.csid, event.timestamp, event.type_id, event.stream_id, event.payload)
        for event in events
        if isinstance(event, MessageReceived) and event.status == COMPLETE
    ]


class ChunkStreams(RuleBasedStateMachine):
    """A sender takes random legal steps; a decoder gets random pieces and is sometimes saved and resumed."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = ChunkWriter(random.Random(0))
        self.decoder = RtmpDecoder(phase="chunks")
        self.delivered = 0
        self.events: list[Event] = []
        self.clock: dict[int, int] = {}
        self.rng = random.Random(1)

    @rule(
        csid=st.sampled_from(CSIDS),
        step=st.sampled_from([0, 20, 20, 40, 1000, 0xFFFFFE, 0xFFFFFF, 0x1000000]),
        size=st.sampled_from([0, 1, 2, 127, 128, 129, 300, 1000]),
        type_id=st.sampled_from([8, 9]),
        stream_id=st.sampled_from([1, 1, 2]),
    )
    def queue(self, csid: int, step: int, size: int, type_id: int, stream_id: int) -> None:
        self.clock[csid] = self.clock.get(csid, 0) + step
        head = b"\xaf\x01" if type_id == 8 else b"\x27\x01"
        payload = (head + self.rng.randbytes(size))[:size]
        self.writer.queue(Sent(csid, self.clock[csid], type_id, stream_id, payload))

    @rule(chunks=st.integers(1, 6))
    def write(self, chunks: int) -> None:
        for _ in range(chunks):
            self.writer.step()

    @rule(size=st.sampled_from([50, 127, 128, 129, 300, 4096, 65536]))
    def change_size(self, size: int) -> None:
        self.writer.set_chunk_size(size)

    @precondition(lambda self: self.waiting())
    @rule(part=st.floats(0, 1))
    def deliver(self, part: float) -> None:
        stop = self.delivered + max(1, int(part * self.waiting()))
        self.events += self.decoder.receive_data(bytes(self.writer.wire[self.delivered : stop]))
        self.delivered = stop

    @rule()
    def move(self) -> None:
        self.decoder = RtmpDecoder.resume(self.decoder.state())

    def waiting(self) -> int:
        return len(self.writer.wire) - self.delivered

    @invariant()
    def only_what_was_sent(self) -> None:
        received = found(self.events)
        assert received == [as_found(message) for message in self.writer.sent[: len(received)]]
        assert self.decoder.offset == self.delivered

    def teardown(self) -> None:
        self.writer.flush()
        if self.waiting():
            self.events += self.decoder.receive_data(bytes(self.writer.wire[self.delivered :]))
        self.events += self.decoder.receive_eof()
        for event in self.events:
            if isinstance(event, Violation):
                note(repr(event))
        assert found(self.events) == [as_found(message) for message in self.writer.sent]
        assert not any(isinstance(event, Skipped) for event in self.events)


TestChunkStreams = ChunkStreams.TestCase
TestChunkStreams.settings = settings(tried, stateful_step_count=30)
