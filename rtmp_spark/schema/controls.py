"""The table `controls`."""

from __future__ import annotations

from .table import FRAME, I32, I64, INGEST_ID, MESSAGE_COLUMNS, MESSAGE_KEY, TEXT, TS, Column, Table, required

CONTROLS = Table(
    "controls",
    "one row per protocol control or user control message",
    key=MESSAGE_KEY,
    cluster_by=("uid", "ts"),
    stats=("ingest_id", "uid", "ts", "kind"),
    columns=(
        *MESSAGE_COLUMNS,
        TS,
        FRAME,
        required("kind", TEXT, "message type, or the event of a user control message"),
        Column("value", I64, "chunk size, csid, sequence number or window"),
        Column("limit_type", I32, "limit type of Set Peer Bandwidth: 0 hard, 1 soft, 2 dynamic"),
        Column("event_type", I32, "user control event number"),
        Column("event_stream_id", I64, "message stream id in the event"),
        Column("event_value", I64, "buffer length in ms, or the timestamp of a ping"),
        INGEST_ID,
    ),
    by_question={
        "Which one?": "uid direction msg_no",
        "When?": "ts",
        "What is it?": "kind value limit_type event_type event_stream_id event_value",
        "Where does it come from?": "frame ingest_id",
    },
)
