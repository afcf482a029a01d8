"""Cases of media: every codec passed on, late joiners, timestamps, sizes (FLV 10.1, RTMP 1.0 7.1)."""

from __future__ import annotations

from rtmp_relay.frames import SET_DATA_FRAME, Frame, Tag
from rtmp_relay.synthetic_media import unique_bytes
from rtmp_spark.codec import amf0
from rtmp_spark.codec.amf import EcmaArray
from rtmp_spark.codec.command import metadata, parse_command
from rtmp_spark.codec.media.codecs import AUDIO_FORMATS, VIDEO_CODECS
from rtmp_spark.codec.media.tag import parse_tag
from rtmp_spark.codec.message import AGGREGATE, AUDIO, DATA_AMF0, DATA_AMF3, VIDEO, Message, dump_aggregate

from ..case import PRACTICE, Section
from ..case_connections import Probe
from ..media_check import arrival, coded, compare, deliver, elementary, forwarded, pass_through, small_media
from ..outcome import Closed, Failed, Inconclusive, Result, informational, non_strict, unimplemented
from ..peer import Peer
from ..wire import Silence

case = Section("media", "codecs passed on unchanged, late joiners, timestamps, sizes")

_AAC_ID, _AVC_ID, _HEVC_ID = 10, 7, 12


def _body(number: int, size: int = 90) -> bytes:
    return unique_bytes(b"probe%d" % number, size)


def legacy_audio(codec_id: int) -> list[Tag]:
    if codec_id == _AAC_ID:
        return small_media(video=False)
    return [Tag(AUDIO, 20 * n, bytes((codec_id << 4 | 15,)) + _body(n)) for n in range(4)]


def legacy_video(codec_id: int) -> list[Tag]:
    if codec_id == _AVC_ID:
        return small_media(audio=False)
    inside = b"\1\0\0\0" if codec_id == _HEVC_ID else b""
    frames = [(0x10 if n == 0 else 0x20, n) for n in range(4)]
    return [Tag(VIDEO, 40 * n, bytes((kind | codec_id,)) + inside + _body(n)) for kind, n in frames]


def enhanced_audio(fourcc: bytes) -> list[Tag]:
    config = [] if fourcc in (b"ac-3", b"ec-3", b".mp3") else [Tag(AUDIO, 0, b"\x90" + fourcc + b"\x12\x10")]
    return config + [Tag(AUDIO, 20 * n, b"\x91" + fourcc + _body(n)) for n in range(4)]


def enhanced_video(fourcc: bytes) -> list[Tag]:
    if fourcc == b"avc1":
        return small_media(audio=False, enhanced=True)
    time = b"\0\0\0" if fourcc in (b"hvc1", b"vvc1") else b""
    config = Tag(VIDEO, 0, b"\x90" + fourcc + b"\x81\x04\x0c\x00" + _body(99, 20))
    frames = [Tag(VIDEO, 40 * n, (b"\xa1" if n else b"\x91") + fourcc + time + _body(n)) for n in range(4)]
    return [config, *frames]


_CODECS = [
    *((f"audio codec {i} ({AUDIO_FORMATS[i]})", legacy_audio(i)) for i in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 14, 15)),
    *((f"video codec {i} ({VIDEO_CODECS[i]})", legacy_video(i)) for i in (2, 3, 4, 5, 6, 7, 12)),
    *((f"audio {c.decode()}", enhanced_audio(c)) for c in (b"mp4a", b"Opus", b"fLaC", b"ac-3", b"ec-3", b".mp3")),
    *((f"video {c.decode()}", enhanced_video(c)) for c in (b"avc1", b"hvc1", b"av01", b"vp09", b"vp08", b"vvc1")),
]
for _number, (_title, _tags) in enumerate(_CODECS, 1):

    @case(_number, f"{_title[0].upper()}{_title[1:]} passed on", PRACTICE, "FLV 10.1 E.4.2, E.4.3; E-RTMP v2")
    async def codec(p: Probe, tags: list[Tag] = _tags) -> Result:
        """A player gets the same codec data with the same steps between timestamps.

        A server may not support every codec, but must not damage one. A frame before the others starts the player."""
        first = tags[0] if tags[0].type_id == AUDIO and not Frame(*tags[0]).is_header else None
        return await pass_through(p, tags, optional=True, first=first)


async def late_join(p: Probe, tags: list[Tag]) -> tuple[Peer, Peer, int]:
    """Publish the first half, let a player join, publish the rest. Returns both and the index of the split."""
    publisher = await p.publisher()
    half = len(tags) // 2
    for tag in tags[:half]:
        await publisher.tag(tag)
    await publisher.fence()
    player = await p.player(publisher.name)
    for tag in tags[half:]:
        await publisher.tag(tag)
    await arrival(publisher, player, tags)
    return publisher, player, half


@case(40, "A late joiner gets the configurations first", PRACTICE, "FLV 10.1 E.4.3.1")
async def late_configuration(p: Probe) -> Result:
    """The AVC and AAC configurations arrive before the first coded frame of their kind.

    A decoder cannot start without them."""
    tags = small_media(seconds=6.0)
    _, player, _ = await late_join(p, tags)
    got = player.media()
    for type_id, word in ((VIDEO, "video"), (AUDIO, "audio")):
        of_kind = [tag for tag in got if tag.type_id == type_id]
        if not of_kind or not Frame(*of_kind[0]).is_header:
            raise Failed(f"the first {word} message of a late joiner is not the configuration")
        wanted = next(tag for tag in tags if tag.type_id == type_id)
        if elementary(of_kind[0]) != elementary(wanted):
            raise Failed(f"the {word} configuration changed")
    return None


@case(41, "A late joiner gets the metadata", PRACTICE, "FLV 10.1 E.5")
async def late_metadata(p: Probe) -> Result:
    """onMetaData with the publisher's width and height arrives before the first coded frame.

    Players size their window by it."""
    _, player, _ = await late_join(p, small_media(seconds=6.0, width=352, height=288))
    return _metadata(player, True)


def _metadata(player: Peer, before_media: bool) -> Result:
    for tag in player.tags():
        if before_media and tag.type_id == VIDEO and not Frame(*tag).is_header and tag.payload:
            raise Failed("the first coded frame arrived before onMetaData")
        found = metadata(parse_command(DATA_AMF0, tag.payload)) if tag.type_id == DATA_AMF0 else None
        if found is not None:
            size = found.get("width"), found.get("height")
            if size != (352.0, 288.0):
                raise Failed(f"onMetaData has the size {size!r} instead of 352 x 288")
            return None
    raise Failed("onMetaData did not arrive")


@case(42, "The first video frame of a late joiner is a keyframe", PRACTICE, "FLV 10.1 E.4.3.1")
async def first_is_key(p: Probe) -> Result:
    """The first coded video frame is a keyframe.

    Other frames show grey blocks until the next keyframe."""
    _, player, _ = await late_join(p, small_media(seconds=6.0, gop=25))
    frames = coded(player.tags(), VIDEO)
    if not Frame(*frames[0]).is_key:
        raise Failed("the first video frame is not a keyframe")
    return None


@case(43, "What a late joiner gets at once", PRACTICE, "GOP cache")
async def gop_cache(p: Probe) -> Result:
    """The first video frame is new, or the frames since the last keyframe come first, in order.

    A cache of the group of pictures starts players at once and adds delay; both are fine."""
    tags = small_media(seconds=6.0, gop=10)
    _, player, half = await late_join(p, tags)
    sent, got = coded(tags, VIDEO), coded(player.tags(), VIDEO)
    known = [elementary(tag) for tag in sent]
    places = [known.index(elementary(tag)) if elementary(tag) in known else -1 for tag in got]
    if -1 in places or places != list(range(places[0], len(sent))):
        raise Failed(f"the frames arrived as numbers {places[:12]}")
    before = len(coded(tags[:half], VIDEO)) - places[0]
    return informational(f"{before} frames from a cache" if before > 0 else "no cache")


for _number, _kind, _other in ((44, "audio", "video"), (45, "video", "audio")):

    @case(_number, f"A late joiner of a stream with {_kind} only", PRACTICE, "RTMP 1.0 7.1.4, 7.1.5")
    async def one_kind(p: Probe, kind: str = _kind, other: str = _other) -> Result:
        """The frames sent after it joined arrive.

        A server that waits for a keyframe must not wait in a stream without video."""
        tags = small_media(seconds=6.0, **{other: False})
        _, player, _ = await late_join(p, tags)
        got = [elementary(tag) for tag in coded(player.tags())]
        wanted = [elementary(tag) for tag in coded(tags)]
        if got != wanted[len(wanted) - len(got) :]:
            raise Failed(f"{kind} frames are missing or changed")
        return None


_STARTS = ((46, "0xFFFFFF", 0xFFFFFF - 200), (47, "2^31", 0x80000000 - 200), (48, "2^32", 0x100000000 - 200))
for _number, _title, _first in _STARTS:

    @case(_number, f"Timestamps across {_title}", PRACTICE, "RTMP 1.0 5.3.1.3")
    async def across(p: Probe, first: int = _first) -> Result:
        """The steps between timestamps stay the same; the one across the limit may change by a frame's duration.

        Players stop or skip when timestamps jump. The limits are reached after 4.7 hours, 25 days and 50 days."""
        tags = small_media(first_timestamp=first)
        tags = [tag._replace(timestamp=tag.timestamp & 0xFFFFFFFF) for tag in tags]
        return await pass_through(p, tags, one_step_ms=40)


@case(49, "B frames keep their composition time", PRACTICE, "FLV 10.1 E.4.3.2")
async def composition_time(p: Probe) -> Result:
    """Composition times of 40, 120, 0 and 0 ms (I, P, B, B) arrive unchanged.

    They are the difference between decoding and display; without them B frames flicker."""
    tags = small_media(audio=False)
    offsets = (40, 120, 0, 0)
    changed = []
    for tag in tags:
        is_frame = tag.type_id == VIDEO and not Frame(*tag).is_header
        time = offsets[tag.timestamp // 40 % 4].to_bytes(3, "big")
        changed.append(tag._replace(payload=tag.payload[:2] + time + tag.payload[5:]) if is_frame else tag)
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    try:
        await deliver(publisher, player, changed)
    except Closed:
        await p.survives()
        raise Inconclusive(
            "the server closed the player; the slices of this video do not say that it is reordered"
        ) from None
    wanted = [parse_tag(VIDEO, tag.payload)[0].cts for tag in coded(changed, VIDEO)]
    found = [parse_tag(VIDEO, tag.payload)[0].cts for tag in coded(player.tags(), VIDEO)]
    if wanted != found:
        raise Failed(f"composition times {found[:6]} instead of {wanted[:6]}")
    return compare(changed, player.tags())


@case(50, "Aggregate message", PRACTICE, "RTMP 1.0 7.1.6")
async def aggregate(p: Probe) -> Result:
    """The frames of an aggregate arrive, together or one by one.

    Flash Media Server sends them; few servers split them."""
    publisher = await p.publisher()
    tags = small_media(video=False)[1:8]
    player = await p.player(publisher.name, tags)
    body = dump_aggregate([(tag.type_id, tag.timestamp, tag.payload) for tag in tags[1:]])
    await publisher.tag(tags[0])
    await publisher.send(Message(6, tags[1].timestamp, AGGREGATE, publisher.stream_id, body))
    if not await publisher.is_open():
        return unimplemented("the server closed the connection")
    last = elementary(tags[-1])
    try:
        await forwarded(
            publisher, player, tags, lambda _: any(elementary(tag) == last for tag in player.media()), "the last frame"
        )
    except Silence as silence:
        await p.confirm(silence)
        if coded(player.tags()):
            raise Failed("a part of the aggregate is missing") from None
        return unimplemented("aggregates are not forwarded")
    return compare(tags, player.tags())


for _number, _size in ((51, 1_000_000), (52, 5_000_000)):

    @case(_number, f"A video frame of {_size // 1_000_000} MB", PRACTICE, "RTMP 1.0 6.1.1")
    async def large_frame(p: Probe, size: int = _size) -> Result:
        """The frame arrives unchanged, or the publisher's connection is closed.

        Keyframes of 4K video exceed 1 MB; the protocol allows 16 MB, servers often less."""
        tags = small_media(audio=False)
        tags[2] = tags[2]._replace(payload=tags[2].payload + (size - 4).to_bytes(4, "big") + b"\x0c" + bytes(size - 5))
        return await pass_through(p, tags, optional=True)


@case(53, "onMetaData without @setDataFrame", PRACTICE, "RTMP 1.0 7.1.2")
async def no_set_data_frame(p: Probe) -> Result:
    """A player gets onMetaData with the publisher's values, and no @setDataFrame.

    @setDataFrame is an instruction to the server; players do not know it."""
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    tags = small_media(width=352, height=288)
    tags[0] = tags[0]._replace(payload=SET_DATA_FRAME + tags[0].payload)
    await deliver(publisher, player, tags)
    raw = [one.message.payload for one in player.inbox if one.message.type_id == DATA_AMF0]
    if any(payload.startswith(SET_DATA_FRAME) for payload in raw):
        raise Failed("the player got @setDataFrame")
    return _metadata(player, False)


for _number, _type in ((54, DATA_AMF0), (55, DATA_AMF3)):

    @case(_number, f"Data message of type {_type} passed on", PRACTICE, "RTMP 1.0 7.1.2")
    async def data_message(p: Probe, type_id: int = _type) -> Result:
        """onTextData arrives at a player, or is dropped; media continues. A type 15 may end the publisher's connection.

        Captions and cue points travel in data messages, type 15 (AMF3) only from Flash."""
        publisher = await p.publisher()
        player = await p.player(publisher.name)
        payload = amf0.dump_values(["onTextData", EcmaArray([("text", "hello")])])
        tags = small_media()
        await publisher.tag(tags[1])
        await publisher.tag(Tag(type_id, 0, b"\0" + payload if type_id == DATA_AMF3 else payload))
        try:
            await deliver(publisher, player, tags)
        except (Silence, Failed):
            if type_id == DATA_AMF3 and publisher.closed:
                await p.survives()
                return unimplemented("the server closed the publisher's connection")
            raise
        found = [tag for tag in player.tags() if tag.type_id == DATA_AMF0 and b"onTextData" in tag.payload]
        if not found:
            return unimplemented("data messages are not forwarded")
        if b"hello" not in found[0].payload:
            raise Failed("the data message changed")
        return None if compare(tags, player.tags()) is None else non_strict("media changed")


@case(56, "Silence and then media", PRACTICE, "RTMP 1.0 7.1")
async def silence_first(p: Probe) -> Result:
    """A publisher that sends nothing for a while keeps its stream; a player that waits gets the media.

    Encoders connect before their sources are ready."""
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    for _ in range(3):
        await p.reference()
        await publisher.fence()
    tags = small_media()
    await deliver(publisher, player, tags)
    return compare(tags, player.tags())


@case(57, "Audio and video keep their order", PRACTICE, "RTMP 1.0 5.3")
async def order(p: Probe) -> Result:
    """The order of all frames is that of the publisher.

    Some players need interleaved media; servers with separate queues change the order."""
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    tags = small_media(seconds=1.0)
    await deliver(publisher, player, tags)
    wanted, found = ([elementary(tag) for tag in coded(one)] for one in (tags, player.tags()))
    if sorted(map(repr, wanted)) != sorted(map(repr, found)):
        raise Failed(f"{len(found)} of {len(wanted)} frames arrived unchanged")
    return None if wanted == found else non_strict("the server changed the order of audio and video")


@case(58, "Frames with equal timestamps", PRACTICE, "RTMP 1.0 5.3.1")
async def equal_timestamps(p: Probe) -> Result:
    """All frames arrive.

    Several slices or tracks share a timestamp."""
    tags = [tag._replace(timestamp=1000) for tag in small_media()]
    return await pass_through(p, tags)


@case(59, "A new configuration during the stream", PRACTICE, "FLV 10.1 E.4.3.1")
async def new_configuration(p: Probe) -> Result:
    """The second configuration arrives between the frames of both.

    Encoders change the resolution without a new connection."""
    first = small_media(audio=False)
    second = small_media(audio=False, width=640, height=480, first_timestamp=1000)[1:]
    second = [
        tag if Frame(*tag).is_header else tag._replace(payload=tag.payload + b"\0\0\0\2\x0c\x80") for tag in second
    ]
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    await deliver(publisher, player, first + second)
    got = [elementary(tag) for tag in player.media(VIDEO)]
    wanted = [elementary(tag) for tag in first + second if tag.type_id == VIDEO]
    if got != wanted:
        changed = elementary(second[0])
        raise Failed("the configuration is missing" if changed not in got else "the video changed")
    return None


@case(60, "Media on a stream that is not published", PRACTICE, "RTMP 1.0 7.2.2")
async def media_unpublished(p: Probe) -> Result:
    """Media before publish is ignored, or the connection is closed; other connections work.

    It comes from encoders that do not wait for the answer."""
    peer = await p.connected()
    peer.stream_id = await peer.create_stream()
    for tag in small_media():
        await peer.tag(tag)
    alive = await peer.is_open()
    await p.survives()
    return None if alive else informational("the server closed the connection")


@case(61, "The first audio frame after a player joined", PRACTICE, "RTMP 1.0 7.1.4")
async def first_audio(p: Probe) -> Result:
    """Frames of MP3, which has no configuration, arrive from the first one on.

    A server that uses the first message only to start the player loses it."""
    return await pass_through(p, legacy_audio(2), optional=True)
