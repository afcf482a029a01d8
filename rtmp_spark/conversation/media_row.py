"""Indices of the columns of `media_tags` in the rows that directions produce (those rows have no uid and direction)."""

from __future__ import annotations

from typing import Final

from rtmp_spark.schema import column_names

_COLUMNS: Final = column_names("media_tags")[2:]

MSG_NO: Final = _COLUMNS.index("msg_no")
TS: Final = _COLUMNS.index("ts")
FRAME: Final = _COLUMNS.index("frame")
STREAM_ID: Final = _COLUMNS.index("stream_id")
KIND: Final = _COLUMNS.index("kind")
CODEC: Final = _COLUMNS.index("codec")
ENHANCED: Final = _COLUMNS.index("enhanced")
TRACK_ID: Final = _COLUMNS.index("track_id")
PACKET_TYPE: Final = _COLUMNS.index("packet_type")
FRAME_TYPE: Final = _COLUMNS.index("frame_type")
IS_KEY: Final = _COLUMNS.index("is_key")
IS_CONFIG: Final = _COLUMNS.index("is_config")
DTS: Final = _COLUMNS.index("dts")
CTS: Final = _COLUMNS.index("cts")
SIZE: Final = _COLUMNS.index("size")
WIDTH: Final = _COLUMNS.index("width")
HEIGHT: Final = _COLUMNS.index("height")
SAMPLE_RATE: Final = _COLUMNS.index("sample_rate")
CHANNELS: Final = _COLUMNS.index("channels")
