"""The table `deliveries`."""

from __future__ import annotations

from .table import F64, I64, INGEST_ID, TEXT, Column, Table, required

DELIVERIES = Table(
    "deliveries",
    "one row per published stream and the played stream that has the same content",
    key=("publish_uid", "publish_stream_id", "play_uid", "play_stream_id"),
    cluster_by=("uid",),
    stats=("ingest_id", "uid"),
    columns=(
        required("uid", TEXT, "playing connection, same as play_uid"),
        required("publish_uid", TEXT, "publishing connection"),
        required("publish_stream_id", I64, "message stream id of the published stream"),
        required("play_uid", TEXT, "playing connection"),
        required("play_stream_id", I64, "message stream id of the played stream"),
        *(
            Column(f"latency_ms_{percentile}", F64, f"latency from publish to play, {percentile}")
            for percentile in ("p50", "p95", "p99")
        ),
        Column("first_frame_ms", F64, "time from the play command to the first coded frame"),
        Column("burst_ms", F64, "media time delivered faster than real time at the start (cached GOP)"),
        required("headers_replayed", I64, "configurations received that were published before the play started"),
        required("frames_published", I64, "coded frames published during the play, without those in flight at its end"),
        required(
            "frames_missing",
            I64,
            "of these, frames that the captured play does not have; its gaps (streams.gaps) may hold some",
        ),
        required("frames_changed", I64, "of these, frames that were played with different bytes"),
        INGEST_ID,
    ),
    by_question={
        "Which one?": "uid publish_uid publish_stream_id play_uid play_stream_id",
        "How late?": "latency_ms_p50 latency_ms_p95 latency_ms_p99 first_frame_ms burst_ms",
        "How much?": "headers_replayed frames_published",
        "What went wrong?": "frames_missing frames_changed",
        "Where does it come from?": "ingest_id",
    },
)
