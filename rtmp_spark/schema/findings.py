"""The table `findings`."""

from __future__ import annotations

from .table import I64, INGEST_ID, TEXT, TIME, Column, Table, required

FINDINGS = Table(
    "findings",
    "one row per finding; the same problem seen many times is one row with a count",
    key=("rule_id", "severity", "uid", "direction", "stream_id", "frame"),
    cluster_by=("uid", "ts"),
    stats=("ingest_id", "uid", "ts", "rule_id"),
    columns=(
        required("rule_id", TEXT, "rule of the catalogue; see rtmp-spark explain CODE"),
        required("severity", TEXT, "error, warning or info"),
        Column("at_fault", TEXT, "client, server, network, capture or null"),
        Column("uid", TEXT, "connection; null for a finding about the file"),
        Column("direction", TEXT, "c2s or s2c; null for a finding about both"),
        Column("stream_id", I64, "message stream id; null for a finding about no single stream"),
        Column("msg_no", I64, "first message with the problem"),
        Column("msg_no_last", I64, "last message with the problem"),
        Column("capture_id", TEXT, "capture that contains frame"),
        Column("frame", I64, "first packet with the problem"),
        Column("frame_last", I64, "last packet with the problem, numbered in its own capture"),
        Column("ts", TIME, "when the problem was first seen"),
        Column("ts_last", TIME, "when the problem was last seen"),
        required("count", I64, "number of times"),
        required("title", TEXT, "title of the rule"),
        Column("detail", TEXT, "what was found, with the measured values"),
        Column("clause", TEXT, "clause of the specification that states the rule"),
        Column("expected", TEXT, "expected value"),
        Column("actual", TEXT, "actual value"),
        Column("fix_hint", TEXT, "how to fix it"),
        INGEST_ID,
    ),
    by_question={
        "Which one?": "uid direction stream_id msg_no msg_no_last",
        "Whose fault?": "at_fault",
        "When?": "ts ts_last",
        "What is it?": "rule_id severity title detail clause expected actual",
        "How much?": "count",
        "What to do?": "fix_hint",
        "Where does it come from?": "capture_id frame frame_last ingest_id",
    },
)
