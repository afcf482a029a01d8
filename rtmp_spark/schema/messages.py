"""The table `messages`."""

from __future__ import annotations

from .table import BOOL, I32, I64, INGEST_ID, MESSAGE_COLUMNS, MESSAGE_KEY, TEXT, TIME, Column, Table, required

MESSAGES = Table(
    "messages",
    "one row per RTMP message, complete or not",
    key=MESSAGE_KEY,
    cluster_by=("uid", "ts_first"),
    stats=("ingest_id", "uid", "ts_first", "type_id"),
    columns=(
        *MESSAGE_COLUMNS,
        required("capture_id", TEXT, "capture of its first byte"),
        required("capture_id_last", TEXT, "capture of its last byte"),
        required("ts_first", TIME, "packet time of its first byte"),
        required("ts_last", TIME, "packet time of its last byte"),
        required("frame_first", I64, "packet of its first byte, 1-based in capture_id"),
        required("frame_last", I64, "packet of its last byte, 1-based in capture_id_last"),
        required("stream_offset", I64, "offset of its first chunk header in the byte stream of the direction"),
        required("fmt", I32, "fmt of its first chunk header, 0 to 3"),
        required("csid", I32, "chunk stream id"),
        required("type_id", I32, "message type id"),
        required("type_name", TEXT, "message type name"),
        required("stream_id", I64, "message stream id"),
        required("timestamp", I64, "timestamp in ms, continued across wraps of the field"),
        required("timestamp_raw", I64, "24-bit timestamp field that applies, as sent"),
        Column("timestamp_delta", I64, "delta to the previous timestamp; null for an absolute timestamp"),
        required(
            "timestamp_rule",
            TEXT,
            "absolute, delta, repeat_delta, repeat_zero, ext_absolute, ext_delta or inferred",
        ),
        Column("ext_timestamp", I64, "32-bit extended timestamp field that applies; null if there is none"),
        required("length", I64, "announced payload length in bytes"),
        required("chunks", I32, "number of chunks received"),
        required("chunk_size", I64, "chunk size in effect at its first chunk"),
        required("status", TEXT, "complete, truncated, aborted or gap"),
        required("missing_bytes", I64, "announced payload bytes that are missing"),
        required("inferred", BOOL, "decoded after a resynchronisation"),
        required("payload_crc32", I64, "CRC-32 of the available payload bytes"),
        INGEST_ID,
    ),
    by_question={
        "Which one?": "uid direction msg_no",
        "When?": "ts_first ts_last",
        "When in the media?": "timestamp timestamp_raw timestamp_delta timestamp_rule ext_timestamp",
        "What is it?": "fmt csid type_id type_name stream_id payload_crc32",
        "How much?": "length chunks chunk_size",
        "What went wrong?": "status missing_bytes inferred",
        "Where does it come from?": "capture_id capture_id_last frame_first frame_last stream_offset ingest_id",
    },
)
