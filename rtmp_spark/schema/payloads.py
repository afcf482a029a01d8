"""The table `payloads`."""

from __future__ import annotations

from .table import BYTES, INGEST_ID, MESSAGE_COLUMNS, MESSAGE_KEY, Table, required

PAYLOADS = Table(
    "payloads",
    "message payloads; empty unless payloads are kept",
    key=MESSAGE_KEY,
    cluster_by=("uid", "msg_no"),
    stats=("ingest_id", "uid"),
    columns=(*MESSAGE_COLUMNS, required("payload", BYTES, "available payload bytes of the message"), INGEST_ID),
    by_question={
        "Which one?": "uid direction msg_no",
        "What is it?": "payload",
        "Where does it come from?": "ingest_id",
    },
)
