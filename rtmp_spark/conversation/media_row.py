"""Indices of the columns of `media_tags` in the rows that directions produce (those rows have no uid and direction)."""

from __future__ import annotations

from rtmp_spark.schema import column_names

_COLUMNS = column_names("media_tags")[2:]

MSG_NO = _COLUMNS.index("msg_no")
TS = _COLUMNS.index("ts")
FRAME = _COLUMNS.index("frame")
STREAM_ID = _COLUMNS.index("stream_id")
KIND = _COLUMNS.index("kind")
CODEC = _COLUMNS.index("codec")
ENHANCED = _COLUMNS.index("enhanced")
TRACK_ID = _COLUMNS.index("track_id")
PACKET_TYPE = _COLUMNS.index("packet_type")
FRAME_TYPE = _COLUMNS.index("frame_type")
IS_KEY = _COLUMNS.index("is_key")
IS_CONFIG = _COLUMNS.index("is_config")
DTS = _COLUMNS.index("dts")
CTS = _COLUMNS.index("cts")
SIZE = _COLUMNS.index("size")
WIDTH = _COLUMNS.index("width")
HEIGHT = _COLUMNS.index("height")
SAMPLE_RATE = _COLUMNS.index("sample_rate")
CHANNELS = _COLUMNS.index("channels")
