"""Loss trials: bytes are removed from a stream, or the capture starts inside it.

A message is untouched when all its bytes were recorded. Each trial counts the untouched messages, those of them that
the decoder reports as complete, and the messages it invents: a complete message with other bytes or at another place,
or a part of a message that never began there. (If a message lost only bytes of its header, the last byte left may still
be read as a header; its payload was sent, so it is not invented.)
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kit.chunk_reader import HANDSHAKE
from kit.real_streams import SAMPLES, Stream, real_streams, rechunked

from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.events import COMPLETE, Event, MessageReceived

GAPS = (1, 100, 1448, 1448, 2896)  # one byte, and whole packets
LONGEST_GAP = 20_000
REWRITTEN = (
    "ffmpeg_publish_h264_aac ",
    "gst_rtmpsink_librtmp_publish_h264_mp3 ",
    "p1950_enhanced_hevc_aac_ffmpeg7_nms_play ",
)
LATE_MS = 20_000_000  # beyond 24 bits
PACKET = 1448
Kept = list[tuple[int, int]]  # what was recorded of a stream: from, to


class Loss(NamedTuple):
    """Bytes from `first` up to `last` are lost; with `joined` also all before."""

    first: int
    last: int
    joined: bool


class Outcome(NamedTuple):
    untouched: int
    found: int
    invented: int


def streams(directory: Path = SAMPLES) -> list[Stream]:
    """Real streams, and some of them interleaved at common chunk sizes, with and without extended timestamps."""
    real = real_streams(directory)
    chosen = [stream for stream in real if stream.name.startswith(REWRITTEN)]
    return real + [
        rechunked(stream, size, later) for stream in chosen for size in (128, 4096, 60000) for later in (0, LATE_MS)
    ]


def random_loss(rng: random.Random, stream: Stream) -> Loss:
    joined = rng.random() < 0.5
    first = rng.randrange(HANDSHAKE + 27, len(stream.data) - 200)
    last = first if joined else first + rng.choice((*GAPS, rng.randrange(1, LONGEST_GAP)))
    return Loss(first, min(last, len(stream.data)), joined)


def decode(stream: Stream, loss: Loss) -> list[Event]:
    """Events with offsets in the whole stream; after a mid-stream start the decoder's offsets are shifted."""
    if loss.joined:
        decoder = RtmpDecoder(phase="midstream")
        return decoder.receive_data(stream.data[loss.last :]) + decoder.receive_eof()
    decoder = RtmpDecoder()
    events = decoder.receive_data(stream.data[: loss.first])
    events += decoder.receive_gap(loss.last - loss.first)
    return events + decoder.receive_data(stream.data[loss.last :]) + decoder.receive_eof()


def judge(stream: Stream, loss: Loss, events: Iterable[Event]) -> Outcome:
    shift = loss.last if loss.joined else 0
    sent = {(m.start, m.csid, m.type_id, len(m.payload)): m for m in stream.messages}
    touched = {(m.end, m.csid, m.type_id, m.payload) for m in stream.messages if m.start < loss.last < m.end}
    untouched = {key for key, m in sent.items() if m.start >= loss.last or (m.end <= loss.first and not loss.joined)}
    found, invented = set(), 0
    for event in events:
        if isinstance(event, MessageReceived):
            key = (event.start + shift, event.csid, event.type_id, event.length)
            if event.status == COMPLETE and key in sent and sent[key].payload == event.payload:
                found.add(key)
            elif (event.end + shift, event.csid, event.type_id, event.payload) in touched:
                continue
            elif event.status == COMPLETE or (key not in sent and key[0] + key[3] < len(stream.data)):
                invented += 1
    return Outcome(len(untouched), len(untouched & found), invented)


def cut_packets(stream: Stream, count: int) -> Kept:
    """Losses of a capture tool that keeps `count` bytes of each packet; each message starts a short packet."""
    starts = sorted({0, *(message.start for message in stream.messages)})
    packets = [(at, stop) for a, stop in zip(starts, [*starts[1:], len(stream.data)]) for at in range(a, stop, PACKET)]
    return _joined((at, min(at + min(PACKET, count), stop)) for at, stop in packets)


def many_losses(rng: random.Random, stream: Stream) -> Kept:
    """Up to 60 losses in one stream, of a few bytes or of packets."""
    kept, at = [], 0
    for first in sorted(rng.randrange(HANDSHAKE, len(stream.data)) for _ in range(rng.choice((2, 5, 20, 60)))):
        if first > at:
            kept.append((at, first))
            at = first + rng.choice((1, 3, 20, 100, 700, PACKET, 5000))
    return [*kept, (at, len(stream.data))] if at < len(stream.data) else kept


def _joined(pieces: Iterable[tuple[int, int]]) -> Kept:
    joined: Kept = []
    for first, last in pieces:
        if joined and joined[-1][1] == first:
            first = joined.pop()[0]
        joined.append((first, last))
    return joined


def decode_kept(stream: Stream, kept: Kept) -> list[Event]:
    decoder, events, at = RtmpDecoder(), list[Event](), 0
    for first, last in kept:
        events += decoder.receive_gap(first - at) + decoder.receive_data(stream.data[first:last])
        at = last
    return events + decoder.receive_eof()


def judge_kept(stream: Stream, kept: Kept, events: Iterable[Event]) -> Outcome:
    """A part of a message must at least begin where one of its type and length did."""
    firsts = [first for first, _ in kept]
    sent = {(m.start, m.csid, m.type_id, len(m.payload)): m for m in stream.messages}
    ends = {(m.end, m.csid, m.type_id, m.payload) for m in stream.messages}
    untouched = {key for key, m in sent.items() if kept[bisect_right(firsts, m.start) - 1][1] >= m.end}
    last, found, invented = max(m.end for m in stream.messages), set(), 0
    for event in events:
        if isinstance(event, MessageReceived):
            key = (event.start, event.csid, event.type_id, event.length)
            if event.status == COMPLETE and key in sent and sent[key].payload == event.payload:
                found.add(key)
            elif (event.end, event.csid, event.type_id, event.payload) not in ends:
                invented += event.status == COMPLETE or (key not in sent and event.start < last)
    return Outcome(len(untouched), len(untouched & found), invented)
