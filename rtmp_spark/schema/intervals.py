"""The table `intervals`."""

from __future__ import annotations

from .table import DIRECTION, F64, I64, INGEST_ID, TIME, UID, Column, Table, required

INTERVALS = Table(
    "intervals",
    "one row per connection, direction and second",
    key=("uid", "direction", "ts_second"),
    cluster_by=("uid", "ts_second"),
    stats=("ingest_id", "uid", "ts_second"),
    columns=(
        UID,
        DIRECTION,
        required("ts_second", TIME, "start of the second"),
        required("packets", I64, "number of packets"),
        required("bytes", I64, "payload bytes in packets"),
        required("retransmitted_bytes", I64, "retransmitted payload bytes"),
        required("gap_bytes", I64, "bytes missing from the capture before data of this second"),
        required("zero_window_ms", F64, "time in which the receiver of this direction announced a zero window"),
        Column("window_min", I64, "smallest window announced by the receiver; null if the window scale is unknown"),
        Column("in_flight_max", I64, "most bytes sent and not yet acknowledged; null if no acknowledgement was seen"),
        Column("rtt_ms", F64, "mean time from data to its acknowledgement"),
        required("audio_bytes", I64, "payload bytes of audio messages completed in this second"),
        required("video_bytes", I64, "payload bytes of video messages completed in this second"),
        required("frames", I64, "video frames completed in this second"),
        required("keyframes", I64, "keyframes among these frames"),
        Column("dts_first", I64, "first media timestamp in this second, ms"),
        Column("dts_last", I64, "last media timestamp in this second, ms"),
        Column("ack_value", I64, "last RTMP Acknowledgement sent in this direction"),
        INGEST_ID,
    ),
    by_question={
        "Which one?": "uid direction",
        "When?": "ts_second",
        "When in the media?": "dts_first dts_last",
        "How much?": "packets bytes audio_bytes video_bytes frames keyframes",
        "How full is the connection?": "window_min in_flight_max rtt_ms ack_value",
        "What went wrong?": "retransmitted_bytes gap_bytes zero_window_ms",
        "Where does it come from?": "ingest_id",
    },
)
