"""SQL views over the tables of a lake for common questions: what each view answers, and its query.

The queries are plain SQL that returns the same rows and types in Spark and in DuckDB (a test compares them). They join
tables, select columns and convert units; they do not compute measures that are not in a table.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rtmp_spark.schema import TABLES


class View(NamedTuple):
    answers: str
    query: str

    def over(self, schema: str) -> str:
        """The query with every table taken from a schema of a catalog."""
        names = "|".join(TABLES)
        return re.sub(rf"\b(FROM|JOIN)\s+({names})\b", rf"\1 {schema}.\2", self.query)


# The endpoints, with names for people and with the names that the table `connections` has.
_ENDS = """c.orig_h AS client, c.orig_p AS client_port, c.resp_h AS server, c.resp_p AS server_port,
            c.orig_h, c.orig_p, c.resp_h, c.resp_p"""

VIEWS: dict[str, View] = {
    "sessions": View(
        "published and played streams with their endpoints, verdict and end; one row per stream",
        f"""SELECT s.uid, s.stream_id, s.ts_start, s.ts_end, {_ENDS}, s.app, s.name, s.role, s.attempt_no, s.verdict,
            s.verdict_rule_id, s.verdict_text, c.closed_by, c.close_kind, c.close_cause, c.software,
            c.software AS client_software, c.server_software
            FROM streams s JOIN connections c ON c.uid = s.uid""",
    ),
    "endings": View(
        "who closed each connection, how and why, and how long each side had been silent; one row per connection",
        f"""SELECT c.uid, c.ts_start, c.ts_end, {_ENDS}, c.app, c.closed_by, c.close_kind, c.close_cause,
            c.silence_ms_c2s, c.silence_ms_s2c, c.unacked_bytes_c2s, c.unacked_bytes_s2c, f.detail
            FROM connections c LEFT JOIN findings f ON f.uid = c.uid AND f.rule_id = 'SESSION_END'""",
    ),
    "refusals": View(
        "requests that a server refused or did not answer, with its code and description; one row per refusal",
        f"""SELECT f.uid, f.ts, {_ENDS}, c.app, c.stream_names, f.rule_id, f.detail, k.code, k.description
            FROM findings f JOIN connections c ON c.uid = f.uid
            LEFT JOIN commands k ON k.uid = f.uid AND k.direction = f.direction AND k.msg_no = f.msg_no
            WHERE f.rule_id IN ('CMD_REFUSED', 'CMD_NO_RESPONSE', 'CMD_AUTH_ROUND', 'SESSION_BAD_NAME')""",
    ),
    "troubles": View(
        "errors and warnings with the endpoints of their connection; one row per finding",
        f"""SELECT f.severity, f.rule_id, f.at_fault, f.detail, f.fix_hint, f.ts, f.count, f.uid, {_ENDS}, c.app,
            c.stream_names, p.path, f.frame
            FROM findings f LEFT JOIN connections c ON c.uid = f.uid
            LEFT JOIN (SELECT capture_id, min(path) AS path FROM captures GROUP BY capture_id) p
            ON p.capture_id = f.capture_id
            WHERE f.severity <> 'info'""",
    ),
    "losses": View(
        "missing, retransmitted and lost bytes and out-of-order packets; one row per affected connection and direction",
        f"""SELECT c.uid, {_ENDS}, d.direction, d.delivered_bytes, d.missed_bytes, d.retransmitted_bytes,
            d.out_of_order_packets, d.loss_pct
            FROM connections c JOIN (
              SELECT uid, 'c2s' AS direction, delivered_bytes_c2s AS delivered_bytes, missed_bytes_c2s AS missed_bytes,
                retransmitted_bytes_c2s AS retransmitted_bytes, out_of_order_packets_c2s AS out_of_order_packets,
                loss_pct_c2s AS loss_pct
              FROM connections
              UNION ALL
              SELECT uid, 's2c', delivered_bytes_s2c, missed_bytes_s2c, retransmitted_bytes_s2c,
                out_of_order_packets_s2c, loss_pct_s2c
              FROM connections
            ) d ON d.uid = c.uid
            WHERE d.missed_bytes > 0 OR d.retransmitted_bytes > 0 OR d.out_of_order_packets > 0""",
    ),
    "rates": View(
        "bitrate and frame rate over time; name and role of the stream are null if several share a second; "
        "one row per connection, direction and second with media",
        f"""SELECT i.uid, {_ENDS}, i.direction, s.name, s.role, i.ts_second, i.bytes * 8 / 1e3 AS kbps,
            i.video_bytes * 8 / 1e3 AS video_kbps, i.audio_bytes * 8 / 1e3 AS audio_kbps, i.frames, i.keyframes,
            i.rtt_ms, i.retransmitted_bytes, i.zero_window_ms
            FROM intervals i JOIN connections c ON c.uid = i.uid
            LEFT JOIN (
              SELECT n.uid, n.direction, n.ts_second,
                CASE WHEN min(m.name) = max(m.name) THEN min(m.name) END AS name,
                CASE WHEN min(m.role) = max(m.role) THEN min(m.role) END AS role
              FROM intervals n JOIN streams m ON m.uid = n.uid AND m.direction = n.direction
                AND m.ts_start < n.ts_second + INTERVAL '1' SECOND AND m.ts_end >= n.ts_second
              GROUP BY n.uid, n.direction, n.ts_second
            ) s ON s.uid = i.uid AND s.direction = i.direction AND s.ts_second = i.ts_second
            WHERE i.video_bytes > 0 OR i.audio_bytes > 0""",
    ),
    "quality": View(
        "measured media properties, pace, keyframe intervals, audio/video skew and stalls; one row per stream",
        f"""SELECT s.uid, s.stream_id, {_ENDS}, s.app, s.name, s.role, s.video_codec,
            s.width, s.height, s.fps, s.declared_fps,
            s.video_bitrate / 1000 AS video_kbps, s.audio_codec, s.sample_rate, s.channels,
            s.audio_bitrate / 1000 AS audio_kbps, s.keyframe_interval_ms_p50, s.keyframe_interval_ms_max,
            s.first_is_key, s.startup_ms, s.av_skew_ms, s.av_drift_ms_per_min, s.stalls, s.stall_ms, s.gaps,
            s.received_bitrate / 1000 AS received_kbps, s.pace
            FROM streams s JOIN connections c ON c.uid = s.uid""",
    ),
    "latencies": View(
        "latency from publisher to player; one row per pair of streams",
        """SELECT d.publish_uid, d.publish_stream_id, d.play_uid, d.play_stream_id, s.app, s.name,
            p.orig_h AS publisher, q.orig_h AS player, d.latency_ms_p50, d.latency_ms_p95, d.latency_ms_p99,
            d.first_frame_ms, d.burst_ms, d.frames_published, d.frames_missing, d.frames_changed
            FROM deliveries d
            LEFT JOIN (SELECT uid, stream_id, min(app) AS app, min(name) AS name FROM streams WHERE role = 'publish'
              GROUP BY uid, stream_id) s ON s.uid = d.publish_uid AND s.stream_id = d.publish_stream_id
            LEFT JOIN connections p ON p.uid = d.publish_uid
            LEFT JOIN connections q ON q.uid = d.play_uid""",
    ),
    "programs": View(
        "client and server software with the number of connections, errors and warnings; one row per pair",
        """SELECT c.software, c.software AS client_software, c.server_software, count(*) AS connections,
            CAST(sum(coalesce(f.errors, 0)) AS BIGINT) AS errors,
            CAST(sum(coalesce(f.warnings, 0)) AS BIGINT) AS warnings
            FROM connections c LEFT JOIN (
              SELECT uid, count(CASE WHEN severity = 'error' THEN 1 END) AS errors,
                count(CASE WHEN severity = 'warning' THEN 1 END) AS warnings
              FROM findings GROUP BY uid
            ) f ON f.uid = c.uid
            GROUP BY c.software, c.server_software""",
    ),
}
