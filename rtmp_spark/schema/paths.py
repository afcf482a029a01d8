"""The table `paths`."""

from __future__ import annotations

from .table import F64, I64, INGEST_ID, TEXT, Column, Table, per_direction, required

PATHS = Table(
    "paths",
    "one row per connection that was captured at two sensors: what the network did between them",
    key=("uid_a", "uid_b"),
    cluster_by=("uid",),
    stats=("ingest_id", "uid"),
    columns=(
        required("uid", TEXT, "the connection at the sensor nearer to the client, same as uid_a"),
        required("uid_a", TEXT, "the connection at the sensor nearer to the client"),
        required("uid_b", TEXT, "the same connection at the sensor nearer to the server"),
        required("sensor_a", TEXT, "sensor nearer to the client"),
        required("sensor_b", TEXT, "sensor nearer to the server"),
        Column("clock_offset_ms", F64, "clock of sensor_b minus that of sensor_a, if both directions are equally fast"),
        *(
            Column(f"delay_ms_{percentile}", F64, f"time of a message between the sensors, {percentile}")
            for percentile in ("p50", "p95")
        ),
        *per_direction("packets_lost", I64, "packets that left one sensor and did not reach the other", True),
        *per_direction("bytes_lost", I64, "payload bytes that left one sensor and did not reach the other", True),
        required("verdict", TEXT, "where the trouble is: network, server, client or unknown"),
        INGEST_ID,
    ),
    by_question={
        "Which one?": "uid uid_a uid_b sensor_a sensor_b",
        "How late?": "clock_offset_ms delay_ms_p50 delay_ms_p95",
        "What went wrong?": "packets_lost_c2s packets_lost_s2c bytes_lost_c2s bytes_lost_s2c verdict",
        "Where does it come from?": "ingest_id",
    },
)
