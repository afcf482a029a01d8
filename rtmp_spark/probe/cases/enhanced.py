"""Cases of enhanced RTMP (E-RTMP v2): negotiation, ModEx, multitrack and other new packets passed on."""

from __future__ import annotations

from rtmp_relay.frames import Tag
from rtmp_spark.codec.amf import AmfObject
from rtmp_spark.codec.message import AUDIO, VIDEO

from ..case import PRACTICE, SHOULD, Section
from ..case_connections import Probe
from ..media_check import pass_through, small_media
from ..outcome import Failed, Inconclusive, Result, informational, unimplemented

case = Section("enhanced", "capabilities in connect, ModEx, multitrack, new packet types")
OFFER: dict[str, object] = {
    "fourCcList": ["av01", "vp09", "hvc1", "Opus", "mp4a", "avc1"],
    "videoFourCcInfoMap": {"*": 3.0},
    "audioFourCcInfoMap": {"*": 3.0},
    "capsEx": 15.0,
}
CLAUSE = "E-RTMP v2, Enhancing NetConnection connect Command"


async def answer(p: Probe, offer: dict[str, object]) -> AmfObject:
    """The properties in the answer to connect."""
    with p.precondition("handshake"):
        peer = await p.peer()
    found = await peer.connect(**offer)
    await peer.create_stream()
    values = [
        value for value in (found.command.args if found.command is not None else []) if isinstance(value, AmfObject)
    ]
    if not values:
        raise Inconclusive("the answer to connect has no object")
    return AmfObject([pair for value in values for pair in value.pairs])


async def negotiated(p: Probe) -> AmfObject:
    """As `answer`, as a precondition."""
    with p.precondition("connect with E-RTMP properties"):
        return await answer(p, OFFER)


@case(1, "connect with E-RTMP properties", PRACTICE, CLAUSE)
async def offer_accepted(p: Probe) -> Result:
    """connect with fourCcList, info maps and capsEx is accepted.

    Every current encoder sends them; old servers must ignore what they do not know."""
    await answer(p, OFFER)
    return None


@case(
    2,
    "capsEx in the answer",
    SHOULD,
    CLAUSE,
    "capsEx: The value represents capability flags which can be combined via a Bitwise OR",
)
async def caps_ex(p: Probe) -> Result:
    """capsEx is a number without unknown bits, or absent.

    Without it a client must assume the old protocol."""
    value = (await negotiated(p)).get("capsEx")
    if value is None:
        return unimplemented("no capsEx in the answer")
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 256:
        raise Failed(f"capsEx is {value!r}")
    names = [
        name for bit, name in enumerate(("reconnect", "multitrack", "ModEx", "nanoseconds")) if int(value) >> bit & 1
    ]
    return informational(", ".join(names) or "no capability")


for _number, _name in ((3, "videoFourCcInfoMap"), (4, "audioFourCcInfoMap")):

    @case(_number, f"{_name} in the answer", SHOULD, CLAUSE)
    async def info_map(p: Probe, name: str = _name) -> Result:
        """The map has a FourCC or `*` for each key and 1 to 7 for each value, or is absent.

        A publisher chooses its codec by it."""
        value = (await negotiated(p)).get(name)
        if value is None:
            return unimplemented(f"no {name} in the answer")
        if not isinstance(value, AmfObject):
            raise Failed(f"{name} is not an object")
        for key, mask in value.pairs:
            if not isinstance(key, str) or (key != "*" and len(key) != 4):
                raise Failed(f"{name} has the key {key!r}")
            if not isinstance(mask, (int, float)) or not 1 <= mask <= 7:
                raise Failed(f"{name} has the value {mask!r} for {key}")
        return informational(", ".join(f"{key}: {mask:g}" for key, mask in value.pairs if isinstance(mask, float)))


@case(5, "fourCcList only", PRACTICE, "E-RTMP v1, Enhancing NetConnection connect Command")
async def v1_offer(p: Probe) -> Result:
    """connect with the list of E-RTMP v1 is accepted.

    ffmpeg 6 sends only the list."""
    await answer(p, {"fourCcList": ["hvc1"]})
    return None


@case(6, "An empty fourCcList", PRACTICE, CLAUSE)
async def empty_offer(p: Probe) -> Result:
    """connect is accepted.

    A client without enhanced codecs may send an empty list."""
    await answer(p, {"fourCcList": [], "videoFourCcInfoMap": {}, "capsEx": 0.0})
    return None


def _frames(type_id: int, *payloads: bytes) -> list[Tag]:
    return [Tag(type_id, 40 * n, payload) for n, payload in enumerate(payloads)]


_KEY = b"\0\0\0\6\x65\x88\x84\0\x10\xff"
_INTER = b"\0\0\0\6\x41\x9a\x24\x6c\x41\x0f"
_NANO = b"\x02\0\0\x64\x01"  # ModEx: 3 bytes of data (100 ns), type 0 (nanoseconds), then packet type 1
_VIDEO_CONFIG = next(t.payload for t in small_media(enhanced=True, audio=False) if t.type_id == VIDEO)
_AUDIO_CONFIG = next(t.payload for t in small_media(enhanced=True, video=False) if t.type_id == AUDIO)
_TWO_SOUNDS = b"".join(bytes((n,)) + (6).to_bytes(3, "big") + bytes((33, n, 1, 2, 3, 4)) for n in (0, 1))
_TWO_CODECS = b"mp4a\0\0\0\6" + bytes((33, 9, 1, 2, 3, 4)) + b"Opus\1\0\0\3" + bytes((252, 1, 2))
_PACKETS: tuple[tuple[int, str, list[Tag]], ...] = (
    (7, "ModEx with nanoseconds, video", _frames(
        VIDEO, _VIDEO_CONFIG, b"\x97" + _NANO + b"avc1\0\0\0" + _KEY, b"\xa7" + _NANO + b"avc1\0\0\0" + _INTER)),
    (8, "ModEx with nanoseconds, audio", _frames(
        AUDIO, _AUDIO_CONFIG, b"\x97" + _NANO + b"mp4a\x21\1\2\3", b"\x97" + _NANO + b"mp4a\x21\4\5\6")),
    (9, "Multitrack audio, one codec", small_media(video=False, audio_tracks=3)),
    (10, "Multitrack audio, one track", _frames(
        AUDIO, _AUDIO_CONFIG, b"\x95\x01mp4a\x01" + bytes((33, 1, 2)), b"\x95\x01mp4a\x01" + bytes((33, 3, 4)))),
    (11, "Multitrack audio, many codecs", _frames(AUDIO, _AUDIO_CONFIG, b"\x95\x21" + _TWO_CODECS)),
    (12, "Multitrack video", _frames(
        VIDEO, _VIDEO_CONFIG, b"\x96\x11avc1\0" + (13).to_bytes(3, "big") + bytes(3) + _KEY + b"\1"
        + (13).to_bytes(3, "big") + bytes(3) + _KEY)),
    (13, "Multichannel configuration", _frames(
        AUDIO, _AUDIO_CONFIG, b"\x94mp4a\1\2\0\0\0\3", b"\x91mp4a" + bytes((33, 1, 2)))),
    (14, "Colour metadata (HDR)", _frames(
        VIDEO, _VIDEO_CONFIG, b"\x94avc1\2\0\x09colorInfo\3\0\0\x09", b"\x91avc1\0\0\0" + _KEY)),
    (15, "Frames without composition time (CodedFramesX)", _frames(
        VIDEO, _VIDEO_CONFIG, b"\x93avc1" + _KEY, b"\xa3avc1" + _INTER)),
    (16, "Command frame (seek)", _frames(
        VIDEO, _VIDEO_CONFIG, b"\x91avc1\0\0\0" + _KEY, b"\xd1\0", b"\xa1avc1\0\0\0" + _INTER)),
    (17, "Sequence end", _frames(
        VIDEO, _VIDEO_CONFIG, b"\x91avc1\0\0\0" + _KEY, b"\x92avc1", b"\x91avc1\0\0\0" + _KEY + b"\0\0\0\2\x0c\x80")),
    (18, "Frame type 0", _frames(
        VIDEO, bytes((_VIDEO_CONFIG[0] & 0x8F,)) + _VIDEO_CONFIG[1:], b"\x81avc1\0\0\0" + _KEY,
        b"\x81avc1\0\0\0" + _INTER)),
    (19, "Unknown FourCC", _frames(VIDEO, b"\x90zzzz\1\2", b"\x91zzzz\1\2\3", b"\xa1zzzz\4\5\6")),
)  # fmt: skip
for _number, _title, _tags in _PACKETS:

    @case(_number, f"{_title} passed on", PRACTICE, "E-RTMP v2")
    async def packets(p: Probe, tags: list[Tag] = _tags) -> Result:
        """A player gets the frames unchanged; a server that does not know them may refuse or drop them.

        A relay need not understand what it forwards, but must not damage it. MediaMTX writes frame type 0."""
        return await pass_through(p, tags, optional=True)
