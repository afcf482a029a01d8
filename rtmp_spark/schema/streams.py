"""The table `streams`."""

from __future__ import annotations

import pyarrow as pa

from .table import BOOL, F64, I32, I64, INGEST_ID, TEXT, TIME, UID, Column, Table, required


def _measured(name: str, kind: pa.DataType, comment: str) -> tuple[Column, Column]:
    """Two columns: as measured, and as declared in onMetaData."""
    return Column(name, kind, f"{comment}, measured"), Column(f"declared_{name}", kind, f"{comment}, by onMetaData")


STREAMS = Table(
    "streams",
    "one row per stream that a connection published or played",
    key=("uid", "stream_id", "role", "ts_start"),
    cluster_by=("uid", "ts_start"),
    stats=("ingest_id", "uid", "ts_start"),
    columns=(
        UID,
        required("stream_id", I64, "message stream id"),
        Column("direction", TEXT, "direction of its media"),
        Column("app", TEXT, "application named in connect"),
        Column("name", TEXT, "stream name, secrets redacted"),
        required("role", TEXT, "publish or play, as requested by the client"),
        required("attempt_no", I32, "number of the attempt for this app, name and role (and player), from 1"),
        Column("prev_uid", TEXT, "connection of the previous attempt"),
        Column("down_ms", F64, "gap since the end of the previous attempt"),
        required("ts_start", TIME, "time of the publish or play command, or of the first media if it was not captured"),
        required("ts_end", TIME, "time of the last media or of the end of the stream"),
        required("audio_messages", I64, "number of audio messages"),
        required("video_messages", I64, "number of video messages"),
        required("media_bytes", I64, "bytes of codec data"),
        *_measured("video_codec", TEXT, "video codec"),
        *_measured("audio_codec", TEXT, "audio codec"),
        *_measured("width", I32, "picture width"),
        *_measured("height", I32, "picture height"),
        *_measured("fps", F64, "frame rate in frames per second"),
        *_measured("video_bitrate", F64, "video bits per second"),
        *_measured("audio_bitrate", F64, "audio bits per second"),
        *_measured("sample_rate", I32, "audio sample rate"),
        *_measured("channels", I32, "number of audio channels"),
        Column("keyframe_interval_ms_p50", F64, "median keyframe interval"),
        Column("keyframe_interval_ms_max", F64, "longest keyframe interval"),
        Column("av_skew_ms", F64, "median of audio minus video timestamps"),
        Column("av_drift_ms_per_min", F64, "drift between audio and video timestamps"),
        Column("startup_ms", F64, "time from connect to the first media"),
        Column("first_is_key", BOOL, "the first video frame is a keyframe"),
        Column("stalls", I64, "number of times without a coded frame for 1 s, or without one of a track for 2 s"),
        Column("stall_ms", F64, "total time in stalls"),
        Column("gaps", I64, "number of places in the stream where data is missing from the capture"),
        required("verdict", TEXT, "ok, degraded, failed, no_media or unknown"),
        Column("verdict_rule_id", TEXT, "rule id of the finding that the verdict is based on"),
        Column("verdict_text", TEXT, "the verdict in one sentence"),
        Column("pace", F64, "media time over wall time: below 1, media arrived slower than real time"),
        Column("received_bitrate", F64, "audio and video bits per second of wall time; the others are by media time"),
        Column("loss_pct", F64, "loss_pct of the connection in the direction of the media"),
        INGEST_ID,
    ),
    by_question={
        "Which one?": "uid stream_id direction attempt_no prev_uid",
        "Who?": "app name role",
        "When?": "down_ms ts_start ts_end startup_ms",
        "What is it?": """
            video_codec declared_video_codec audio_codec declared_audio_codec width declared_width height
            declared_height fps declared_fps sample_rate declared_sample_rate channels declared_channels
            keyframe_interval_ms_p50 keyframe_interval_ms_max first_is_key
        """,
        "How much?": """
            audio_messages video_messages media_bytes video_bitrate declared_video_bitrate audio_bitrate
            declared_audio_bitrate pace received_bitrate
        """,
        "What went wrong?": """
            av_skew_ms av_drift_ms_per_min stalls stall_ms gaps verdict verdict_rule_id verdict_text loss_pct
        """,
        "Where does it come from?": "ingest_id",
    },
)
