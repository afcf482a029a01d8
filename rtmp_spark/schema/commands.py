"""The table `commands`."""

from __future__ import annotations

from .table import F64, FRAME, I32, I64, INGEST_ID, MESSAGE_COLUMNS, MESSAGE_KEY, TEXT, TS, Column, Table, required

COMMANDS = Table(
    "commands",
    "one row per command, data or shared object message",
    key=MESSAGE_KEY,
    cluster_by=("uid", "ts"),
    stats=("ingest_id", "uid", "ts", "name"),
    columns=(
        *MESSAGE_COLUMNS,
        TS,
        FRAME,
        required("stream_id", I64, "message stream id"),
        required("type_id", I32, "message type id, 15 to 20"),
        Column("name", TEXT, "name of the command, data handler or shared object"),
        Column("transaction_id", F64, "transaction id; null for data messages"),
        required("amf_version", I32, "0 or 3"),
        required(
            "args", TEXT, "JSON list of all values after the transaction id (data: after the name), secrets redacted"
        ),
        Column("response_to_msg_no", I64, "msg_no of the request in the other direction that this message answers"),
        Column("response_ms", F64, "time since that request"),
        Column("level", TEXT, "level of a status: status, warning or error"),
        Column("code", TEXT, "code of a status, for example NetStream.Publish.Start"),
        Column("description", TEXT, "description of a status, as the server sent it"),
        INGEST_ID,
    ),
    by_question={
        "Which one?": "uid direction msg_no",
        "When?": "ts",
        "What is it?": "stream_id type_id name transaction_id amf_version args",
        "What does it answer?": "response_to_msg_no response_ms level code description",
        "Where does it come from?": "frame ingest_id",
    },
)
