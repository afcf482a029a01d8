"""The table `media_tags`."""

from __future__ import annotations

from .table import (
    BOOL,
    FRAME,
    I32,
    I64,
    INGEST_ID,
    INTS,
    MESSAGE_COLUMNS,
    MESSAGE_KEY,
    TEXT,
    TS,
    Column,
    Table,
    required,
)

MEDIA_TAGS = Table(
    "media_tags",
    "one row per audio or video tag; each track and each part of an aggregate message has its own row",
    key=(*MESSAGE_KEY, "part_no"),
    cluster_by=("uid", "ts"),
    stats=("ingest_id", "uid", "ts", "kind"),
    columns=(
        *MESSAGE_COLUMNS,
        required("part_no", I32, "part of the message, from 0: aggregate parts and tracks are both counted"),
        TS,
        FRAME,
        required("stream_id", I64, "message stream id"),
        required("kind", TEXT, "audio or video"),
        Column("codec", TEXT, "FourCC as sent if enhanced, else a legacy name or unknown_N; null if not specified"),
        required("enhanced", BOOL, "the tag has an Enhanced RTMP header"),
        required("track_id", I32, "track of a multitrack message, else 0"),
        required(
            "packet_type",
            TEXT,
            "config, frame, end, metadata, mpeg2ts_config, multichannel_config, command or unknown_N",
        ),
        Column(
            "frame_type",
            TEXT,
            "video only: key, inter, disposable, generated or info; a reserved one is read from the frame",
        ),
        required("is_key", BOOL, "flagged as a keyframe"),
        required("is_config", BOOL, "contains a codec configuration"),
        required("dts", I64, "decoding timestamp in ms"),
        Column("cts", I64, "composition time offset in ms"),
        Column("pts", I64, "presentation timestamp in ms"),
        Column("ts_ns_offset", I64, "nanosecond offset of ModEx"),
        required("size", I64, "bytes of codec data"),
        Column("nal_types", INTS, "NAL unit types in order"),
        Column("width", I32, "picture width from the current configuration"),
        Column("height", I32, "picture height from the current configuration"),
        Column("profile", I32, "profile from the current configuration"),
        Column("level", I32, "level from the current configuration"),
        Column("sample_rate", I32, "sample rate in Hz from the current configuration or the tag header"),
        Column("channels", I32, "number of audio channels"),
        Column("gop_no", I64, "number of keyframes of this track so far; null before the first"),
        INGEST_ID,
    ),
    by_question={
        "Which one?": "uid direction msg_no part_no stream_id track_id",
        "When?": "ts",
        "When in the media?": "dts cts pts ts_ns_offset",
        "What is it?": """
            kind codec enhanced packet_type frame_type is_key is_config nal_types width height profile level
            sample_rate channels gop_no
        """,
        "How much?": "size",
        "Where does it come from?": "frame ingest_id",
    },
)
