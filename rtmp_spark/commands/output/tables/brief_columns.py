"""The columns of each table that people look at first: `inspect --table` shows these on a terminal."""

from __future__ import annotations

BRIEF_COLUMNS: dict[str, tuple[str, ...]] = {
    "captures": ("ts_first", "path", "format", "packets", "size_bytes", "status", "error_hint"),
    "connections": ("ts_start", "orig_h", "orig_p", "resp_h", "resp_p", "service", "close_cause", "software", "uid"),
    "handshakes": ("ts_start", "c0_version", "s0_version", "c1_scheme", "s1_scheme", "complete", "duration_ms", "uid"),
    "messages": (
        "ts_first", "frame_first", "direction", "type_name", "stream_id", "timestamp", "length", "status", "uid",
    ),
    "controls": ("ts", "frame", "direction", "kind", "value", "event_stream_id", "event_value", "uid"),
    "commands": ("ts", "frame", "direction", "name", "code", "response_ms", "description", "transaction_id", "uid"),
    "media_tags": ("ts", "frame", "direction", "kind", "codec", "packet_type", "frame_type", "dts", "size", "uid"),
    "streams": (
        "ts_start", "role", "name", "verdict", "verdict_text", "fps", "video_bitrate", "received_bitrate", "pace",
    ),
    "deliveries": ("publish_uid", "play_uid", "latency_ms_p50", "latency_ms_p99", "burst_ms", "frames_missing"),
    "intervals": (
        "ts_second", "direction", "packets", "bytes", "retransmitted_bytes", "rtt_ms", "frames", "keyframes", "uid",
    ),
    "findings": ("ts", "severity", "rule_id", "frame", "detail", "at_fault", "count", "uid"),
    "paths": ("sensor_a", "sensor_b", "clock_offset_ms", "verdict", "uid_a", "uid_b"),
    "payloads": ("direction", "msg_no", "payload", "uid"),
    "open_flows": ("ts_last", "sensor", "state_version", "uid"),
}  # fmt: skip
