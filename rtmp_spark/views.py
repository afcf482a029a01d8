"""SQL views for the common questions, over the tables of a lake: what each answers, and the query.

Plain SQL that other engines understand too (a test runs every one in DuckDB). They join and choose columns; nothing is
worked out here that a table does not say.
"""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    answers: str
    query: str


_ENDS = "c.orig_h AS client, c.orig_p AS client_port, c.resp_h AS server, c.resp_p AS server_port"

VIEWS: dict[str, View] = {
    "sessions": View(
        "what was published and played, by whom, and how it went; one row per stream",
        f"""SELECT s.uid, s.stream_id, s.ts_start, s.ts_end, {_ENDS}, s.app, s.name, s.role, s.attempt_no, s.verdict,
            s.verdict_rule_id, s.verdict_text, c.closed_by, c.close_kind, c.close_cause, c.software, c.server_software
            FROM streams s JOIN connections c ON c.uid = s.uid""",
    ),
    "endings": View(
        "who closed each connection, how and why, and who had been silent; one row per connection",
        f"""SELECT c.uid, c.ts_start, c.ts_end, {_ENDS}, c.app, c.closed_by, c.close_kind, c.close_cause,
            c.silence_ms_c2s, c.silence_ms_s2c, c.unacked_bytes_c2s, c.unacked_bytes_s2c, f.detail
            FROM connections c LEFT JOIN findings f ON f.uid = c.uid AND f.rule_id = 'SESSION_END'""",
    ),
    "refusals": View(
        "what a server refused or left unanswered, with its words; one row per refusal",
        f"""SELECT f.uid, f.ts, {_ENDS}, c.app, c.stream_names, f.rule_id, f.detail, k.code, k.description
            FROM findings f JOIN connections c ON c.uid = f.uid
            LEFT JOIN commands k ON k.uid = f.uid AND k.direction = f.direction AND k.msg_no = f.msg_no
            WHERE f.rule_id IN ('CMD_REFUSED', 'CMD_NO_RESPONSE', 'CMD_AUTH_ROUND', 'SESSION_BAD_NAME')""",
    ),
    "troubles": View(
        "findings that are worth a look, with the ends of their connection; one row per finding",
        f"""SELECT f.severity, f.rule_id, f.at_fault, f.detail, f.fix_hint, f.ts, f.count, f.uid, {_ENDS}, c.app,
            c.stream_names, p.path, f.frame
            FROM findings f LEFT JOIN connections c ON c.uid = f.uid
            LEFT JOIN (SELECT capture_id, min(path) AS path FROM captures GROUP BY capture_id) p
            ON p.capture_id = f.capture_id
            WHERE f.severity <> 'info'""",
    ),
    "losses": View(
        "bytes that are missing or were sent again; one row per connection and direction that has some",
        f"""SELECT c.uid, {_ENDS}, d.direction, d.delivered_bytes, d.missed_bytes, d.retransmitted_bytes,
            d.out_of_order_packets
            FROM connections c JOIN (
              SELECT uid, 'c2s' AS direction, delivered_bytes_c2s AS delivered_bytes, missed_bytes_c2s AS missed_bytes,
                retransmitted_bytes_c2s AS retransmitted_bytes, out_of_order_packets_c2s AS out_of_order_packets
              FROM connections
              UNION ALL
              SELECT uid, 's2c', delivered_bytes_s2c, missed_bytes_s2c, retransmitted_bytes_s2c,
                out_of_order_packets_s2c
              FROM connections
            ) d ON d.uid = c.uid
            WHERE d.missed_bytes > 0 OR d.retransmitted_bytes > 0 OR d.out_of_order_packets > 0""",
    ),
    "rates": View(
        "bits and frames of each second; one row per connection, direction and second with media",
        """SELECT i.uid, i.direction, i.ts_second, i.bytes * 8 / 1000.0 AS kbps,
            i.video_bytes * 8 / 1000.0 AS video_kbps, i.audio_bytes * 8 / 1000.0 AS audio_kbps, i.frames, i.keyframes,
            i.rtt_ms, i.retransmitted_bytes, i.zero_window_ms
            FROM intervals i WHERE i.video_bytes > 0 OR i.audio_bytes > 0""",
    ),
    "quality": View(
        "what really arrived against what was declared, keyframes, skew, stalls; one row per stream",
        """SELECT s.uid, s.stream_id, s.app, s.name, s.role, s.video_codec, s.width, s.height, s.fps, s.declared_fps,
            s.video_bitrate / 1000 AS video_kbps, s.audio_codec, s.sample_rate, s.channels,
            s.audio_bitrate / 1000 AS audio_kbps, s.keyframe_interval_ms_p50, s.keyframe_interval_ms_max,
            s.first_is_key, s.startup_ms, s.av_skew_ms, s.av_drift_ms_per_min, s.stalls, s.stall_ms, s.gaps
            FROM streams s""",
    ),
    "latencies": View(
        "how long what was published took to its players; one row per pair",
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
        "which software talked to which, how often, and with how many errors and warnings; one row per pair",
        """SELECT c.software, c.server_software, count(*) AS connections, sum(coalesce(f.errors, 0)) AS errors,
            sum(coalesce(f.warnings, 0)) AS warnings
            FROM connections c LEFT JOIN (
              SELECT uid, count(CASE WHEN severity = 'error' THEN 1 END) AS errors,
                count(CASE WHEN severity = 'warning' THEN 1 END) AS warnings
              FROM findings GROUP BY uid
            ) f ON f.uid = c.uid
            GROUP BY c.software, c.server_software""",
    ),
}
