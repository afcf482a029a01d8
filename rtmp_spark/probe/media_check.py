"""Media that cases publish, and the comparison of what a player got.

Servers may remux, so audio and video are compared as elementary streams (the codec data without the tag header) and as
differences of timestamps. Equal bytes are ok; equal codec data in another tag is non-strict.
"""

from __future__ import annotations

from itertools import pairwise

from rtmp_relay.frames import Frame, Tag
from rtmp_relay.synthetic_media import Synthetic
from rtmp_spark.codec.errors import DecodeError
from rtmp_spark.codec.media.codecs import FAMILY_OF
from rtmp_spark.codec.media.tag import MediaTag, parse_tag
from rtmp_spark.codec.message import AUDIO, VIDEO

from .case_connections import Probe, unjudged
from .outcome import Failed, Inconclusive, Outcome, Result, non_strict, unimplemented
from .peer import Peer
from .received import Choice, Received
from .wire import Silence

_AVC = "avc"
_REMUXED_UNITS = (6, 7, 8, 9)  # SEI, parameter sets and access unit delimiters
_GROUP_S = 0.3  # without an arrival, after which more frames are sent
_GROUP_MS = 1000  # of media that ends a group
_REMUX_MS = 1  # rounding of servers that convert timestamps to another clock


def small_media(**changes: object) -> list[Tag]:
    """Metadata, configurations, ten video frames with two keyframes, and audio.

    Filler of another length makes each video frame unique, also for servers that remove its SEI.
    """
    values = {"seconds": 0.4, "fps": 25, "gop": 5, "video_bitrate": 100_000, **changes}
    tags, number = [], 0
    for tag in Synthetic(**values).tags():  # type: ignore[arg-type]
        if tag.type_id == VIDEO and not Frame(*tag).is_header:
            filler = b"\x0c" + b"\xff" * (16 + number) + b"\x80"
            tag = tag._replace(payload=tag.payload + len(filler).to_bytes(4, "big") + filler)
            number += 1
        tags.append(tag)
    return tags


def coded(tags: list[Tag], type_id: int | None = None) -> list[Tag]:
    """The coded frames: no configurations, no data, no empty messages."""
    kinds = (AUDIO, VIDEO) if type_id is None else (type_id,)
    return [tag for tag in tags if tag.type_id in kinds and tag.payload and not Frame(*tag).is_header]


def elementary(tag: Tag) -> tuple[object, ...]:
    """Codec and codec data of each track; the whole payload if the tag cannot be parsed."""
    try:
        return tuple(
            (FAMILY_OF.get(one.codec or "", one.codec), one.track_id, _units(tag, one))
            for one in parse_tag(tag.type_id, tag.payload)
        )
    except DecodeError:
        return (tag.payload,)


def _units(tag: Tag, one: MediaTag) -> object:
    """The NAL units of H.264 without those that servers add and remove at keyframes; other codec data as it is."""
    data = tag.payload[one.body_start : one.body_end]
    if tag.type_id != VIDEO or FAMILY_OF.get(one.codec or "", one.codec) != _AVC:
        return data
    units, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data) or end == at + 4:
            return data
        units.append(data[at + 4 : end])
        at = end
    return tuple(unit for unit in units if unit[0] & 31 not in _REMUXED_UNITS)


async def deliver(publisher: Peer, player: Peer, tags: list[Tag]) -> None:
    """Publish tags and wait until the player has the last coded frame of each kind. Raises Closed or Silence."""
    for tag in tags:
        await publisher.tag(tag)
    await arrival(publisher, player, tags)


async def arrival(publisher: Peer, player: Peer, tags: list[Tag]) -> None:
    """Wait until the player has the last coded frame of each kind. Raises Closed or Silence."""
    for type_id in (AUDIO, VIDEO):
        frames = coded(tags, type_id)
        if frames:
            word = "audio" if type_id == AUDIO else "video"
            await forwarded(publisher, player, tags, frame(frames[-1]), f"the last {word} frame")


async def forwarded(publisher: Peer, player: Peer, tags: list[Tag], choice: Choice, what: str) -> None:
    """Wait for a message that follows from published tags. Raises Closed or Silence.

    A server may forward frames in groups, as SRS does. If nothing arrives, the publisher sends more frames.
    """
    try:
        await player.wait(choice, what, timeout_s=0.01 if publisher.learned.get("groups") else _GROUP_S)
    except Silence:
        last = [coded(tags, type_id)[-1] for type_id in (AUDIO, VIDEO) if coded(tags, type_id)]
        for later in range(40, _GROUP_MS, 40):
            for tag in last:
                await publisher.tag(unjudged(tag._replace(timestamp=tags[-1].timestamp + later & 0xFFFFFFFF)))
        await player.wait(choice, what)
        publisher.learned["groups"] = True


def frame(tag: Tag) -> Choice:
    """Chooses the message with the codec data of a tag."""
    wanted = elementary(tag)

    def choice(one: Received) -> bool:
        message = one.message
        if message.type_id not in (AUDIO, VIDEO) or not message.payload:
            return False
        return elementary(Tag(message.type_id, message.timestamp, message.payload)) == wanted

    return choice


def compare(sent: list[Tag], got: list[Tag], one_step_ms: int = 0) -> Result:
    """Compare coded frames and their timestamps. Raises Failed. One step of each kind may change by `one_step_ms`."""
    worst: Outcome | None = None
    for type_id, word in ((AUDIO, "audio"), (VIDEO, "video")):
        wanted, found = coded(sent, type_id), coded(got, type_id)
        if not wanted:
            continue
        if [tag.payload for tag in wanted] != [tag.payload for tag in found]:
            if [elementary(tag) for tag in wanted] != [elementary(tag) for tag in found]:
                raise Failed(_difference(wanted, found, word))
            worst = non_strict(f"the {word} arrived with other tag headers or parameter sets")
        steps = [later.timestamp - earlier.timestamp for earlier, later in pairwise(wanted)]
        arrived = [later.timestamp - earlier.timestamp for earlier, later in pairwise(found)]
        changes = [abs(_signed(a - b)) for a, b in zip(steps, arrived, strict=True)]
        off = max(changes, default=0)
        once = off <= one_step_ms and sum(change > _REMUX_MS for change in changes) == 1
        if off > _REMUX_MS and not once:
            raise Failed(f"the distance between {word} timestamps changed by {off} ms")
        if off:
            worst = non_strict(f"{word} timestamps are off by {off} ms" + (", once" if once else ""))
    return worst


def _signed(value: int) -> int:
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def _difference(wanted: list[Tag], found: list[Tag], word: str) -> str:
    if len(wanted) != len(found):
        return f"{len(found)} of {len(wanted)} {word} frames arrived"
    number = next(i for i, (a, b) in enumerate(zip(wanted, found, strict=True)) if elementary(a) != elementary(b))
    return f"the codec data of {word} frame {number + 1} of {len(wanted)} changed"


async def pass_through(
    p: Probe, tags: list[Tag], optional: bool = False, first: Tag | None = None, one_step_ms: int = 0
) -> Result:
    """Publish tags to a player that is already there, and compare. `optional`: a server may refuse or drop them.

    `first` is published before the tags and not compared; `one_step_ms` is passed to `compare`.
    """
    publisher = await p.publisher()
    try:
        player = await p.player(publisher.name, tags)
    except Inconclusive as error:
        if optional and publisher.closed:
            await p.survives()
            return unimplemented(f"the server closed the publisher's connection ({error})")
        if optional and p.target.learned.get("media first"):
            await p.reference()
            return unimplemented(f"the server lets no player join ({error})")
        raise
    if first is not None:
        await publisher.tag(unjudged(first))
    try:
        await deliver(publisher, player, tags)
    except (Silence, Failed) as error:
        if not optional or coded(player.tags()):
            raise
        await (p.confirm(error) if isinstance(error, Silence) else p.survives())
        await player.is_open()
        how = "closed the publisher's connection" if publisher.closed else "does not forward it"
        return unimplemented(f"the server {how} ({error})")
    return compare(tags, player.tags(), one_step_ms)
