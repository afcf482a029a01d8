"""The table `open_flows`."""

from __future__ import annotations

from .table import BYTES, I32, INGEST_ID, TEXT, TIME, UID, Table, required

OPEN_FLOWS = Table(
    "open_flows",
    "connections that were still open at the end of the last file, to be continued by a later ingest",
    key=("uid",),
    cluster_by=("uid",),
    stats=("ingest_id", "uid", "ts_last"),
    columns=(
        UID,
        required("sensor", TEXT, "where it was captured"),
        required("ts_last", TIME, "time of the last packet so far"),
        required("state_version", I32, "version of the state format"),
        required("state", BYTES, "states of its reassembly, decoders and rules"),
        INGEST_ID,
    ),
    by_question={
        "Which one?": "uid",
        "When?": "ts_last",
        "What is it?": "state_version state",
        "Where does it come from?": "sensor ingest_id",
    },
)
