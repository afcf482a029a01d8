"""Media and data messages of a stream: `Tag` is the plain value, `Frame` what the relay knows about one.

A frame is parsed once (which tracks, whether it is a configuration or a keyframe) and encoded once for all players with
the same chunk size. A tag that cannot be parsed is forwarded unchanged; the relay does not repair media. MediaMTX and
other senders use frame type 0 for all enhanced video: their keyframes are recognised from the codec data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.errors import DecodeError
from rtmp_spark.codec.media import nal, video
from rtmp_spark.codec.media.codecs import FAMILY_OF, NAL_FAMILIES
from rtmp_spark.codec.media.tag import parse_tag
from rtmp_spark.codec.message import (
    AGGREGATE,
    AUDIO,
    DATA_AMF0,
    DATA_AMF3,
    VIDEO,
    Message,
    parse_aggregate,
)

# Towards players only frames use these csids, each with a full header, so that connections can share the bytes.
FRAME_CSIDS = {AUDIO: 4, VIDEO: 6, DATA_AMF0: 7}
SET_DATA_FRAME = b"\x02\x00\x0d@setDataFrame"
_CLEAR_DATA_FRAME = b"\x02\x00\x0f@clearDataFrame"
_ON_META_DATA = b"\x02\x00\x0aonMetaData"
# Packet types that a decoder needs before the first coded frame; `metadata` is the colour description of HDR video.
_HEADER_PACKETS = frozenset(("config", "mpeg2ts_config", "multichannel_config", "metadata"))


_INTER = 2 << 4  # the frame type bits of a legal frame
_RESERVED_FRAME_TYPES = frozenset((0, 6, 7))  # E-RTMP v2 VideoFrameType; legacy video has none of these either


class Tag(NamedTuple):
    """One FLV tag, or the RTMP message that carries it."""

    type_id: int
    timestamp: int
    payload: bytes


class Frame:
    """One message of a stream. `header_keys` lists the tracks that it configures; it is empty for other messages."""

    __slots__ = ("_encoded", "clears_metadata", "codec", "header_keys", "is_key", "is_metadata", "payload", "timestamp",
                 "type_id")  # fmt: skip

    def __init__(self, type_id: int, timestamp: int, payload: bytes) -> None:
        self.type_id = type_id
        self.timestamp = timestamp & 0xFFFFFFFF
        self.payload = payload
        self.is_key = False
        self.is_metadata = False
        self.clears_metadata = False
        self.codec: str | None = None
        self.header_keys: tuple[tuple[int, int, str], ...] = ()
        self._encoded: dict[tuple[int, int], bytes] = {}
        if type_id == DATA_AMF0:
            self._parse_data()
        elif payload:
            self._parse_media()

    def _parse_data(self) -> None:
        if self.payload.startswith(SET_DATA_FRAME):  # an instruction to the server, not for players
            self.payload = self.payload[len(SET_DATA_FRAME) :]
        self.is_metadata = self.payload.startswith(_ON_META_DATA)
        self.clears_metadata = self.payload.startswith(_CLEAR_DATA_FRAME)

    def _parse_media(self) -> None:
        payload, first = self.payload, self.payload[0]
        reserved = self.type_id == VIDEO and first >> 4 & 7 in _RESERVED_FRAME_TYPES
        if reserved:
            payload = bytes((first & 0x8F | _INTER,)) + payload[1:]
        try:
            tags = parse_tag(self.type_id, payload)
        except DecodeError:
            return
        if not tags:
            return
        self.codec = tags[0].codec
        if reserved:
            self.is_key = any(
                tag.packet_type == "frame" and _can_start_at(tag.codec, payload[tag.body_start : tag.body_end])
                for tag in tags
            )
        else:
            self.is_key = any(tag.is_key and not tag.is_config for tag in tags)
        if all(tag.packet_type in _HEADER_PACKETS for tag in tags):
            self.is_key = False
            self.header_keys = tuple((self.type_id, tag.track_id or 0, tag.packet_type or "") for tag in tags)

    @property
    def is_header(self) -> bool:
        return bool(self.header_keys)

    @property
    def is_coded_video(self) -> bool:
        return self.type_id == VIDEO and not self.header_keys and bool(self.payload)

    def encoded(self, chunk_size: int, stream_id: int) -> bytes:
        """Return the bytes for every player with this chunk size and stream id; they are encoded once."""
        key = (chunk_size, stream_id)
        data = self._encoded.get(key)
        if data is None:
            message = Message(FRAME_CSIDS[self.type_id], self.timestamp, self.type_id, stream_id, self.payload)
            data = self._encoded[key] = RtmpEncoder(chunk_size).send(message)
        return data

    def forget_encoded(self) -> None:
        self._encoded.clear()


def _can_start_at(codec: str | None, body: bytes) -> bool:
    """True if a decoder can start at this frame, as far as the codec data shows."""
    family = FAMILY_OF.get(codec or "", codec or "")
    try:
        if family in NAL_FAMILIES:  # nearly all senders use lengths of 4 bytes
            types = nal.walk_nals(body, 4, family, 0, len(body))
            return nal.random_access(family, types, body, 4, 0, len(body)) is not False
        return video.frame_header(family, body)[0] is True
    except DecodeError:
        return False


def frames_of(type_id: int, timestamp: int, payload: bytes) -> Iterator[Frame]:
    """Yield frames of a publisher's message. Aggregates are split, AMF3 data becomes AMF0, other types give none."""
    if type_id in FRAME_CSIDS:
        yield Frame(type_id, timestamp, payload)
    elif type_id == DATA_AMF3:
        # A format byte, then AMF0; AMF3 values inside carry their own marker.
        yield Frame(DATA_AMF0, timestamp, payload[1:] if payload[:1] == b"\0" else payload)
    elif type_id == AGGREGATE:
        for part in parse_aggregate(payload, timestamp).parts:
            if part.type_id != AGGREGATE:  # depth 1
                yield from frames_of(part.type_id, part.timestamp, part.payload)
