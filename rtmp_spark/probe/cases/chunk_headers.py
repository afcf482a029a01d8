"""Cases of chunk headers: the four formats, timestamps and extended timestamps (RTMP 1.0 5.3.1)."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from rtmp_relay.frames import Tag
from rtmp_spark.codec.chunk.header import EXTENDED
from rtmp_spark.codec.encoder import basic_header
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.message import (
    AUDIO,
)

from ..case import MUST, PRACTICE
from ..case_connections import Probe
from ..media_check import arrival, coded, compare, deliver, elementary, small_media
from ..outcome import Failed, Result, informational, non_strict
from .chunks import broken, case

_SHORT_PAUSE_MS = 250  # a step that a server may put in the place of a long one


class AudioChunk(NamedTuple):
    """An audio frame and the header of its first chunk; `field` is the timestamp or delta."""

    fmt: int
    field: int
    tag: Tag
    extended: int | None = None


def sound(number: int, timestamp: int, size: int = 60) -> Tag:
    return Tag(AUDIO, timestamp, b"\xaf\x01" + bytes((0x21, number)) + bytes(128 + n % 128 for n in range(size - 4)))


def encoded(chunk: AudioChunk, stream_id: int) -> bytes:
    """The frame on csid 20, in chunks of 128 bytes."""
    fmt, field, tag, extended = chunk
    header = basic_header(fmt, 20)
    if fmt < 3:
        header += field.to_bytes(3, "big")
    if fmt < 2:
        header += len(tag.payload).to_bytes(3, "big") + bytes((tag.type_id,))
    if fmt == 0:
        header += stream_id.to_bytes(4, "little")
    extension = b"" if extended is None else extended.to_bytes(4, "big")
    pieces = [tag.payload[at : at + 128] for at in range(0, len(tag.payload), 128)]
    return header + extension + (basic_header(3, 20) + extension).join(pieces)


async def sound_with(p: Probe, chunks: list[AudioChunk], note: str) -> list[Tag]:
    """Publish audio frames with these headers; return what a player gets."""
    publisher = await p.publisher()
    player = await p.player(publisher.name, small_media(video=False))
    await publisher.tag(small_media(video=False)[1], csid=7)  # the AAC configuration
    await publisher.send_bytes(b"".join(encoded(chunk, publisher.stream_id) for chunk in chunks), note)
    await arrival(publisher, player, [chunk.tag for chunk in chunks])
    return coded(player.tags(), AUDIO)


_FORMATS = (
    (24, "fmt 1", "this chunk takes the same stream ID as the preceding chunk", "5.3.1.2.2", (0, 1, 1)),
    (25, "fmt 2", "this chunk has the same stream ID and message length as the preceding chunk", "5.3.1.2.3",
     (0, 2, 2)),
    (26, "fmt 3 that starts a message",
     "The second is to specify the beginning of a new message whose header can be derived from the existing "
     "state data.",
     "5.3.2.2", (0, 2, 3, 3)),
)  # fmt: skip
for _number, _title, _quote, _clause, _formats in _FORMATS:

    @case(_number, f"Messages with {_title}", MUST, f"RTMP 1.0 {_clause}", _quote)
    async def header_format(p: Probe, formats: tuple[int, ...] = _formats) -> Result:
        """The frames arrive at a player, 23 ms apart.

        Every encoder uses these formats to save bytes."""
        tags = [sound(n, 1000 + 23 * n) for n in range(len(formats))]
        chunks = [AudioChunk(fmt, 23 if fmt else 1000, tag) for fmt, tag in zip(formats, tags, strict=True)]
        return compare(tags, await sound_with(p, chunks, f"audio with fmt {formats}"))


@case(27, "fmt 3 after fmt 0", PRACTICE, "RTMP 1.0 5.3.1.2.4",
      "If a Type 3 chunk follows a Type 0 chunk, then the timestamp delta for this Type 3 chunk is the same "
      "as the timestamp of the Type 0 chunk.")  # fmt: skip
async def fmt3_after_fmt0(p: Probe) -> Result:
    """The second frame is as much later as the timestamp of the first, or has the same timestamp.

    The specification says the former, many implementations do the latter; encoders avoid it."""
    tags = [sound(0, 40), sound(1, 80)]
    got = await sound_with(p, [AudioChunk(0, 40, tags[0]), AudioChunk(3, 0, tags[1])], "fmt 0, fmt 3")
    if [elementary(tag) for tag in got] != [elementary(tag) for tag in tags]:
        raise Failed(f"the frames changed, or {len(got)} of 2 arrived")
    step = got[1].timestamp - got[0].timestamp
    if step not in (0, 40):
        raise Failed(f"the second frame is {step} ms after the first")
    return None if step == 40 else non_strict("the server takes a delta of 0")


_EXTENDED_QUOTE = (
    "If the timestamp is greater than or equal to 16777215 (hexadecimal 0xFFFFFF), this field MUST be 16777215, "
    "indicating the presence of the Extended Timestamp field"
)
_EXTENDED_CASES = (
    (28, "Extended timestamp of exactly 0xFFFFFF", "5.3.1.2.1", _EXTENDED_QUOTE, EXTENDED, 60),
    (29, "Extended timestamp on several chunks", "5.3.1.3",
     "This field is present in Type 3 chunks when the most recent Type 0, 1, or 2 chunk for the same chunk stream ID "
     "indicated the presence of an extended timestamp field.", 0x01020304, 300),
    (30, "Extended timestamp near 2^32", "5.3.1.3", "This field encodes the complete 32-bit timestamp", 0xFFFFFF00, 60),
)  # fmt: skip
for _number, _title, _clause, _quote, _first, _size in _EXTENDED_CASES:

    @case(_number, _title, MUST, f"RTMP 1.0 {_clause}", _quote)
    async def extended(p: Probe, first: int = _first, size: int = _size) -> Result:
        """The frames arrive unchanged at a player, 20 ms apart.

        A stream passes 0xFFFFFF ms after 4 hours and 39 minutes."""
        tags = [sound(n, first + 20 * n, size) for n in range(3)]
        chunks = [AudioChunk(0, EXTENDED, tag, tag.timestamp) for tag in tags]
        return compare(tags, await sound_with(p, chunks, f"audio at {first}"))


@case(31, "Extended timestamp delta", MUST, "RTMP 1.0 5.3.1.2.5",
      "If the delta is greater than or equal to 16777215 (hexadecimal 0xFFFFFF), this field MUST be 16777215, "
      "indicating the presence of the Extended Timestamp field to encode the full 32 bit delta.")  # fmt: skip
async def extended_delta(p: Probe) -> Result:
    """A frame with fmt 1 and an extended delta arrives as much later as the delta says, and the next 20 ms after it.

    It is rare, but a pause of 4 hours and 39 minutes in one track produces it. A server may shorten such a pause."""
    pause = 0x01020304
    tags = [sound(0, 1000), sound(1, 1000 + pause), sound(2, 1020 + pause)]
    chunks = [AudioChunk(0, 1000, tags[0]), AudioChunk(1, EXTENDED, tags[1], pause), AudioChunk(1, 20, tags[2])]
    got = await sound_with(p, chunks, "audio with an extended delta")
    step = got[1].timestamp - got[0].timestamp if len(got) == 3 else -1
    if 0 < step <= _SHORT_PAUSE_MS:
        shortened = [tags[0], *(tag._replace(timestamp=tag.timestamp - pause + step) for tag in tags[1:])]
        return compare(shortened, got) or non_strict(f"the server shortened the pause of {pause} ms to {step} ms")
    return compare(tags, got)


@case(32, "The server marks timestamps from 0xFFFFFF on", MUST, "RTMP 1.0 5.3.1.2.1", _EXTENDED_QUOTE)
async def server_extends(p: Probe) -> Result:
    """What a player gets beyond 0xFFFFFF ms has the marker and the extended field, also in continuation chunks.

    Without them every player stops after 4 hours and 39 minutes."""
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    tags = small_media(first_timestamp=0xFFFFFF - 200)
    await deliver(publisher, player, tags)
    codes = (ViolationCode.CHUNK_EXT_TS_MISSING, ViolationCode.CHUNK_RESYNC, ViolationCode.CHUNK_EXT_DELTA_ABSOLUTE)
    if found := broken((player,), *codes):
        raise Failed(found)
    late = [one.message for one in player.inbox if one.message.timestamp >= EXTENDED and one.message.fmt == 0]
    if not any(one.message.timestamp >= EXTENDED for one in player.inbox):
        return informational("the server starts its timestamps anew")
    if any(message.ext_timestamp is None for message in late):
        raise Failed("a timestamp beyond 0xFFFFFF without the extended field")
    return compare(tags, player.tags())


@case(33, "The server uses fmt 0 when timestamps go back", MUST, "RTMP 1.0 5.3.1.2.1",
      "This type MUST be used at the start of a chunk stream, "
      "and whenever the stream timestamp goes backward")  # fmt: skip
async def server_goes_back(p: Probe) -> Result:
    """If the publisher's timestamps go back, the player gets full headers and the same step.

    A negative delta does not exist; receivers add it as almost 50 days."""
    publisher = await p.publisher()
    player = await p.player(publisher.name, small_media(video=False))
    config = small_media(video=False)[1]
    tags = [sound(0, 5000), sound(1, 5020), sound(2, 4000), sound(3, 4020)]
    await deliver(publisher, player, [config, *tags])
    if found := broken((player,), ViolationCode.CHUNK_DELTA_NEGATIVE):
        raise Failed(found)
    got = coded(player.tags(), AUDIO)
    if [elementary(tag) for tag in got] != [elementary(tag) for tag in tags]:
        raise Failed(f"the frames changed, or {len(got)} of 4 arrived")
    steps = [b.timestamp - a.timestamp for a, b in pairwise(got)]
    if steps[1] > 0x7FFFFFFF:
        raise Failed(f"the timestamp jumped by {steps[1]} ms instead of going back")
    return None if steps == [20, -1020, 20] else non_strict(f"the server changed the steps to {steps}")
