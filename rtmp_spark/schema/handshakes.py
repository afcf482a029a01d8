"""The table `handshakes`."""

from __future__ import annotations

from .table import BOOL, F64, I32, I64, INGEST_ID, TEXT, TIME, UID, Column, Table, required

HANDSHAKES = Table(
    "handshakes",
    "one row per connection with a captured RTMP handshake",
    key=("uid",),
    cluster_by=("uid", "ts_start"),
    stats=("ingest_id", "uid", "ts_start"),
    columns=(
        UID,
        Column("c0_version", I32, "version byte of C0"),
        Column("s0_version", I32, "version byte of S0"),
        Column("c1_time", I64, "time field of C1"),
        Column("s1_time", I64, "time field of S1"),
        Column("c1_version", I64, "bytes 4-7 of C1 as a number"),
        Column("s1_version", I64, "bytes 4-7 of S1 as a number"),
        Column("c1_scheme", TEXT, "plain, digest0, digest1 or rtmpe"),
        Column("s1_scheme", TEXT, "plain, digest0, digest1 or rtmpe"),
        Column("c2_kind", TEXT, "echo, signature or other"),
        Column("s2_kind", TEXT, "echo, signature or other"),
        required("complete", BOOL, "all of C0, C1, C2 and S0, S1, S2 were captured"),
        Column("ts_start", TIME, "time of the first handshake byte"),
        Column("duration_ms", F64, "time from the first handshake byte to the last"),
        INGEST_ID,
    ),
    by_question={
        "Which one?": "uid",
        "When?": "ts_start duration_ms",
        "What is it?": """
            c0_version s0_version c1_time s1_time c1_version s1_version c1_scheme s1_scheme c2_kind s2_kind
        """,
        "What went wrong?": "complete",
        "Where does it come from?": "ingest_id",
    },
)
