"""Frames: media and data messages as the hub sees them, judged once and encoded once for all who get them.

Judging means only: which tracks, a configuration or not, a random access point or not. A tag that makes no sense is
passed on as it is; the relay does not mend media.
"""

from __future__ import annotations

from collections.abc import Iterator

from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.errors import DecodeError
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

# Only frames use these csids towards players, each with a full header, so that bytes can be shared by connections.
FRAME_CSIDS = {AUDIO: 4, VIDEO: 6, DATA_AMF0: 7}
_SET_DATA_FRAME = b"\x02\x00\x0d@setDataFrame"
_CLEAR_DATA_FRAME = b"\x02\x00\x0f@clearDataFrame"
_ON_META_DATA = b"\x02\x00\x0aonMetaData"
# What a decoder must have before the first coded frame; `metadata` is the colour description of HDR video.
_HEADER_PACKETS = frozenset(("config", "mpeg2ts_config", "multichannel_config", "metadata"))


class Frame:
    """One message of a stream. `header_keys` names what it configures, and is empty for everything else."""

    __slots__ = ("_wire", "clears_metadata", "codec", "header_keys", "is_key", "is_metadata", "payload", "timestamp",
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
        self._wire: dict[tuple[int, int], bytes] = {}
        if type_id == DATA_AMF0:
            self._judge_data()
        elif payload:
            self._judge_media()

    def _judge_data(self) -> None:
        if self.payload.startswith(_SET_DATA_FRAME):  # an instruction to us, not for players
            self.payload = self.payload[len(_SET_DATA_FRAME) :]
        self.is_metadata = self.payload.startswith(_ON_META_DATA)
        self.clears_metadata = self.payload.startswith(_CLEAR_DATA_FRAME)

    def _judge_media(self) -> None:
        try:
            tags = parse_tag(self.type_id, self.payload)
        except DecodeError:
            return
        if not tags:
            return
        self.codec = tags[0].codec
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

    def wire(self, chunk_size: int, stream_id: int) -> bytes:
        """The bytes for every player with this chunk size and stream id; made once."""
        key = (chunk_size, stream_id)
        data = self._wire.get(key)
        if data is None:
            message = Message(FRAME_CSIDS[self.type_id], self.timestamp, self.type_id, stream_id, self.payload)
            data = self._wire[key] = RtmpEncoder(chunk_size).send(message)
        return data

    def forget_wire(self) -> None:
        self._wire.clear()


def frames_of(type_id: int, timestamp: int, payload: bytes) -> Iterator[Frame]:
    """What a publisher's message is to its players: aggregates split, AMF3 data as AMF0, anything else nothing."""
    if type_id in FRAME_CSIDS:
        yield Frame(type_id, timestamp, payload)
    elif type_id == DATA_AMF3:
        # A format byte, then AMF0; AMF3 values inside carry their own marker.
        yield Frame(DATA_AMF0, timestamp, payload[1:] if payload[:1] == b"\0" else payload)
    elif type_id == AGGREGATE:
        for part in parse_aggregate(payload, timestamp).parts:
            if part.type_id != AGGREGATE:  # depth 1
                yield from frames_of(part.type_id, part.timestamp, part.payload)
