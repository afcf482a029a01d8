"""The table `connections`."""

from __future__ import annotations

from .table import BOOL, F64, I32, I64, INGEST_ID, TEXT, TEXTS, TIME, UID, Column, Table, per_direction, required

CONNECTIONS = Table(
    "connections",
    "one row per TCP connection with RTMP or one of its variants (RTMPE, RTMPT, RTMPS)",
    key=("uid",),
    cluster_by=("uid", "ts_start"),
    stats=("ingest_id", "uid", "ts_start", "ts_end"),
    columns=(
        UID,
        required("capture_ids", TEXTS, "captures that contain its packets, in order of time"),
        required("orig_h", TEXT, "client address"),
        required("orig_p", I32, "client port"),
        required("resp_h", TEXT, "server address"),
        required("resp_p", I32, "server port"),
        required("ts_start", TIME, "time of the first packet"),
        required("ts_end", TIME, "time of the last packet"),
        required("sensor", TEXT, "where it was captured"),
        Column("vlan", I32, "outermost VLAN id"),
        required("community_id", TEXT, "Community ID v1 flow hash, seed 0"),
        required("service", TEXT, "rtmp, rtmpe, rtmpt or rtmps"),
        required("midstream", BOOL, "the capture starts inside the connection"),
        Column("closed_by", TEXT, "client, server or null"),
        required("close_kind", TEXT, "fin, rst or open"),
        required(
            "close_cause",
            TEXT,
            "teardown, refused, idle_timeout, peer_vanished, ack_stall, protocol_error, capture_ended or unknown",
        ),
        *per_direction("silence_ms", I64, "time from the last payload byte to the end of the connection", True),
        *per_direction("unacked_bytes", I64, "bytes without a TCP acknowledgement at the end", True),
        *per_direction("packets", I64, "number of packets"),
        *per_direction("captured_bytes", I64, "payload bytes in packets: delivered + duplicate + conflict + skipped"),
        *per_direction("delivered_bytes", I64, "bytes of the reassembled stream"),
        *per_direction("duplicate_bytes", I64, "bytes captured again with the same content"),
        *per_direction("conflict_bytes", I64, "bytes captured again with different content; the first ones are used"),
        *per_direction("skipped_bytes", I64, "bytes outside the stream: after a reset or outside the window"),
        *per_direction("missed_bytes", I64, "bytes of the stream that are missing from the capture"),
        *per_direction("retransmitted_bytes", I64, "retransmitted bytes"),
        *per_direction("out_of_order_packets", I64, "packets captured before packets with lower sequence numbers"),
        Column("app", TEXT, "application named in connect"),
        Column("tc_url", TEXT, "tcUrl of connect, secrets redacted"),
        Column("flash_ver", TEXT, "flashVer of connect"),
        Column("server_ver", TEXT, "fmsVer of the server's response"),
        Column("software", TEXT, "client software by fingerprint, name/version or name; null if unknown"),
        Column("server_software", TEXT, "server software by fingerprint, name/version or name; null if unknown"),
        required("software_evidence", TEXTS, "evidence for both fingerprints, as `client: ...` and `server: ...`"),
        required("stream_names", TEXTS, "names of the published and played streams, secrets redacted"),
        Column("session_id", TEXT, "RTMPT session: all TCP connections with this id carry the same session"),
        Column("server_name", TEXT, "host name requested by the client (TLS SNI)"),
        Column("tls_version", TEXT, "TLS 1.2, TLS 1.3, ...; null without TLS"),
        Column("tls_cipher", TEXT, "registered name of the cipher suite; null without TLS"),
        *per_direction("loss_pct", F64, "bytes that the network lost, in percent of those sent", True),
        INGEST_ID,
    ),
    by_question={
        "Which one?": "uid",
        "Who?": """
            orig_h orig_p resp_h resp_p app tc_url flash_ver server_ver software server_software software_evidence
            stream_names session_id server_name
        """,
        "When?": "ts_start ts_end",
        "What is it?": "community_id service midstream tls_version tls_cipher",
        "How much?": """
            packets_c2s packets_s2c captured_bytes_c2s captured_bytes_s2c delivered_bytes_c2s delivered_bytes_s2c
        """,
        "How did it end?": """
            closed_by close_kind close_cause silence_ms_c2s silence_ms_s2c unacked_bytes_c2s unacked_bytes_s2c
        """,
        "What went wrong?": """
            duplicate_bytes_c2s duplicate_bytes_s2c conflict_bytes_c2s conflict_bytes_s2c skipped_bytes_c2s
            skipped_bytes_s2c missed_bytes_c2s missed_bytes_s2c retransmitted_bytes_c2s retransmitted_bytes_s2c
            out_of_order_packets_c2s out_of_order_packets_s2c loss_pct_c2s loss_pct_s2c
        """,
        "Where does it come from?": "capture_ids sensor vlan ingest_id",
    },
)
