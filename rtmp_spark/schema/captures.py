"""The table `captures`."""

from __future__ import annotations

from .table import I64, INGEST_ID, INTS, TEXT, TIME, Column, Table, required

CAPTURES = Table(
    "captures",
    "one row per capture file; also the ledger of ingested files",
    key=("capture_id", "path"),
    cluster_by=("ts_first",),
    stats=("ingest_id", "ts_first"),
    columns=(
        Column("capture_id", TEXT, "tree hash over 1 MiB blocks of the decompressed bytes; null if unreadable"),
        required("sensor", TEXT, "where it was captured, as named by the user; empty by default"),
        required("path", TEXT, "path of the file as given"),
        Column("size_bytes", I64, "size of the file as stored"),
        Column("modified_at", TIME, "modification time of the file"),
        Column("format", TEXT, "pcap or pcapng"),
        Column("compression", TEXT, "gzip, zstd or null"),
        Column("link_types", INTS, "link types of the packets (libpcap numbers)"),
        Column("snaplen", I64, "snapshot length: most bytes kept per packet; null if unlimited or unknown"),
        required("packets", I64, "number of packets read"),
        required("packets_truncated", I64, "number of packets truncated by the snapshot length"),
        required(
            "other_flows", I64, "TCP connections in this file without a row, by this ingest alone: not RTMP, or no data"
        ),
        Column("ts_first", TIME, "time of the earliest packet"),
        Column("ts_last", TIME, "time of the latest packet"),
        required("status", TEXT, "ok, partial (damaged; read up to the damage) or failed"),
        Column("error_code", TEXT, "rule id or short code of the problem with the file"),
        Column("error_hint", TEXT, "what is wrong with the file and how to fix it"),
        required("codec_version", TEXT, "version of rtmp-spark"),
        Column("ingested_at", TIME, "when the rows were written; null outside a lake"),
        INGEST_ID,
    ),
    by_question={
        "Which one?": "capture_id sensor path",
        "When?": "modified_at ts_first ts_last ingested_at",
        "What is it?": "format compression link_types snaplen",
        "How much?": "size_bytes packets packets_truncated other_flows",
        "What went wrong?": "status error_code error_hint",
        "Where does it come from?": "codec_version ingest_id",
    },
)
