"""Every table: its columns, Arrow types, nullability and comments, in one data structure.

Spark schemas, `CREATE TABLE` statements, docs, the JSON Lines of `inspect` and the checks derive from `TABLES`.
It knows nothing of Spark and computes nothing: names, types and words only. All integers are signed (Spark has
no others); times are UTC microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 1

BOOL, I32, I64, F64, TEXT, BYTES = pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.binary()
TIME = pa.timestamp("us", tz="UTC")
TEXTS, INTS = pa.list_(pa.string()), pa.list_(pa.int32())

DIRECTIONS = ("c2s", "s2c")


@dataclass(frozen=True)
class Column:
    name: str
    type: pa.DataType
    comment: str
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """One table. `key` names its rows; `cluster_by` is how a lake lays it out; `stats` are worth skipping files by."""

    name: str
    comment: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    cluster_by: tuple[str, ...]
    stats: tuple[str, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    def arrow_schema(self) -> pa.Schema:
        fields = [pa.field(c.name, c.type, c.nullable, {b"comment": c.comment.encode()}) for c in self.columns]
        return pa.schema(fields, {b"comment": self.comment.encode()})


def _must(name: str, kind: pa.DataType, comment: str) -> Column:
    return Column(name, kind, comment, nullable=False)


_UID = _must("uid", TEXT, "the connection: C and 20 base32 characters of a hash over sensor, endpoints and start")
_DIRECTION = _must("direction", TEXT, "c2s (client to server) or s2c")
_MSG_NO = _must("msg_no", I64, "number of the message in its direction, from 0, in order of completion")
_TS = _must("ts", TIME, "time of the packet that completed the message")
_FRAME = _must("frame", I64, "packet that completed the message, 1-based in its capture as Wireshark counts")
_MESSAGE = (_UID, _DIRECTION, _MSG_NO)
_INGEST = Column("ingest_id", I64, "the ingest that wrote this row; null outside a lake")


def _per_direction(name: str, kind: pa.DataType, comment: str, nullable: bool = False) -> tuple[Column, ...]:
    words = {"c2s": "client to server", "s2c": "server to client"}
    return tuple(Column(f"{name}_{d}", kind, f"{comment}; {words[d]}", nullable) for d in DIRECTIONS)


def _measured(name: str, kind: pa.DataType, comment: str) -> tuple[Column, Column]:
    return Column(name, kind, f"{comment}, measured"), Column(f"declared_{name}", kind, f"{comment}, by onMetaData")


def _percentiles(name: str, comment: str) -> tuple[Column, ...]:
    return tuple(Column(f"{name}_{p}", F64, f"{comment}, {p}") for p in ("p50", "p95", "p99"))


_CAPTURES = (
    Column("capture_id", TEXT, "tree hash over 1 MiB blocks of the decompressed bytes; null when unreadable"),
    _must("sensor", TEXT, "where it was recorded, as the user named it; empty by default"),
    _must("path", TEXT, "the file as given"),
    Column("size_bytes", I64, "size of the file as stored"),
    Column("modified_at", TIME, "modification time of the file"),
    Column("format", TEXT, "pcap or pcapng"),
    Column("compression", TEXT, "gzip, zstd or null"),
    Column("link_types", INTS, "link types of the packets, as libpcap numbers them"),
    Column("snaplen", I64, "bytes kept of a packet at most; null when unlimited or unknown"),
    _must("packets", I64, "packets read"),
    _must("packets_truncated", I64, "packets cut by the snapshot length"),
    _must("other_flows", I64, "TCP connections in this file that gave no row: not RTMP, or without data"),
    Column("ts_first", TIME, "earliest packet"),
    Column("ts_last", TIME, "latest packet"),
    _must("status", TEXT, "ok, partial (damaged, read up to there) or failed"),
    Column("error_code", TEXT, "rule id or short word of what is wrong with the file"),
    Column("error_hint", TEXT, "what is wrong and what to do about it"),
    _must("codec_version", TEXT, "version of this program"),
    Column("ingested_at", TIME, "when the rows were written; null outside a lake"),
    _INGEST,
)

_CONNECTIONS = (
    _UID,
    _must("capture_ids", TEXTS, "captures that hold packets of it, in the order of time"),
    _must("orig_h", TEXT, "client address"),
    _must("orig_p", I32, "client port"),
    _must("resp_h", TEXT, "server address"),
    _must("resp_p", I32, "server port"),
    _must("ts_start", TIME, "first packet"),
    _must("ts_end", TIME, "last packet"),
    _must("sensor", TEXT, "where it was recorded"),
    Column("vlan", I32, "outermost VLAN id"),
    _must("community_id", TEXT, "Community ID v1 flow hash, seed 0"),
    _must("service", TEXT, "rtmp, rtmpe, rtmpt or rtmps"),
    _must("midstream", BOOL, "the recording starts inside the connection"),
    Column("closed_by", TEXT, "client, server or null"),
    _must("close_kind", TEXT, "fin, rst or open"),
    _must(
        "close_cause",
        TEXT,
        "teardown, refused, idle_timeout, peer_vanished, ack_stall, protocol_error, capture_ended or unknown",
    ),
    *_per_direction("silence_ms", I64, "from its last payload byte to the end of the connection", nullable=True),
    *_per_direction("unacked_bytes", I64, "bytes the receiver had not acknowledged (TCP) at the end", nullable=True),
    *_per_direction("packets", I64, "packets"),
    *_per_direction("captured_bytes", I64, "payload bytes in packets: delivered + duplicate + conflict + skipped"),
    *_per_direction("delivered_bytes", I64, "bytes of the reassembled stream"),
    *_per_direction("duplicate_bytes", I64, "bytes seen before with the same content"),
    *_per_direction("conflict_bytes", I64, "bytes seen before with other content; the first ones won"),
    *_per_direction("skipped_bytes", I64, "bytes outside the stream: after a reset, out of window"),
    *_per_direction("missed_bytes", I64, "bytes of the stream that are in no packet"),
    *_per_direction("retransmitted_bytes", I64, "bytes sent again"),
    *_per_direction("out_of_order_packets", I64, "packets that came before their predecessors"),
    Column("app", TEXT, "application of connect"),
    Column("tc_url", TEXT, "tcUrl of connect, secrets redacted"),
    Column("flash_ver", TEXT, "flashVer of connect"),
    Column("server_ver", TEXT, "fmsVer of the server's answer"),
    Column("software", TEXT, "the client's software by fingerprint, name/version or name; null when unknown"),
    Column("server_software", TEXT, "the server's, likewise"),
    _must("software_evidence", TEXTS, "what the fingerprints rest on, `client: ...` and `server: ...`"),
    _must("stream_names", TEXTS, "names published or played, secrets redacted"),
    Column("session_id", TEXT, "session of RTMPT: TCP connections with the same one carry parts of one conversation"),
    Column("server_name", TEXT, "host name that the client asked for (TLS SNI)"),
    Column("tls_version", TEXT, "TLS 1.2, TLS 1.3, ...; null without TLS"),
    Column("tls_cipher", TEXT, "cipher suite, by its registered name; null without TLS"),
    _INGEST,
)

_HANDSHAKES = (
    _UID,
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
    _must("complete", BOOL, "all of C0, C1, C2 and S0, S1, S2 were seen"),
    Column("ts_start", TIME, "first handshake byte"),
    Column("duration_ms", F64, "first handshake byte to the last"),
    _INGEST,
)

_MESSAGES = (
    *_MESSAGE,
    _must("capture_id", TEXT, "capture of its first byte"),
    _must("capture_id_last", TEXT, "capture of its last byte"),
    _must("ts_first", TIME, "packet time of its first byte"),
    _must("ts_last", TIME, "packet time of its last byte"),
    _must("frame_first", I64, "packet of its first byte, 1-based in capture_id"),
    _must("frame_last", I64, "packet of its last byte, 1-based in capture_id_last"),
    _must("stream_offset", I64, "offset of its first chunk header in the direction's bytes"),
    _must("fmt", I32, "format of its first chunk header, 0 to 3"),
    _must("csid", I32, "chunk stream id"),
    _must("type_id", I32, "message type"),
    _must("type_name", TEXT, "message type in words"),
    _must("stream_id", I64, "message stream id"),
    _must("timestamp", I64, "ms, unwrapped"),
    _must("timestamp_raw", I64, "24-bit field in effect, as sent"),
    Column("timestamp_delta", I64, "what was added to the previous timestamp; null for an absolute one"),
    _must("timestamp_rule", TEXT, "absolute, delta, repeat_delta, repeat_zero, ext_absolute, ext_delta or inferred"),
    Column("ext_timestamp", I64, "32-bit extended field in effect, where there is one"),
    _must("length", I64, "payload bytes as announced"),
    _must("chunks", I32, "chunks seen"),
    _must("chunk_size", I64, "chunk size in effect at its first chunk"),
    _must("status", TEXT, "complete, truncated, aborted or gap"),
    _must("missing_bytes", I64, "announced bytes that are not there"),
    _must("inferred", BOOL, "decoded after a resynchronisation"),
    _must("payload_crc32", I64, "CRC-32 of the payload bytes that are there"),
    _INGEST,
)

_CONTROLS = (
    *_MESSAGE,
    _TS,
    _FRAME,
    _must("kind", TEXT, "the message type, or for user control the event"),
    Column("value", I64, "chunk size, csid, sequence number or window"),
    Column("limit_type", I32, "of Set Peer Bandwidth: 0 hard, 1 soft, 2 dynamic"),
    Column("event_type", I32, "user control event number"),
    Column("event_stream_id", I64, "stream the event is about"),
    Column("event_value", I64, "buffer length in ms, or the time of a ping"),
    _INGEST,
)

_COMMANDS = (
    *_MESSAGE,
    _TS,
    _FRAME,
    _must("stream_id", I64, "message stream id"),
    _must("type_id", I32, "message type, 15 to 20"),
    Column("name", TEXT, "command, data handler or shared object name"),
    Column("transaction_id", F64, "null for data messages"),
    _must("amf_version", I32, "0 or 3"),
    _must("args", TEXT, "JSON list of all values after the transaction id (data: after the name), secrets redacted"),
    Column("response_to_msg_no", I64, "message of the other direction that this one answers"),
    Column("response_ms", F64, "time since that message"),
    Column("level", TEXT, "of a status: status, warning or error"),
    Column("code", TEXT, "of a status: NetStream.Publish.Start and the like"),
    Column("description", TEXT, "of a status: the server's words"),
    _INGEST,
)

_MEDIA_TAGS = (
    *_MESSAGE,
    _must("part_no", I32, "part of the message, from 0: aggregate parts and tracks each count"),
    _TS,
    _FRAME,
    _must("stream_id", I64, "message stream id"),
    _must("kind", TEXT, "audio or video"),
    Column("codec", TEXT, "FourCC as sent when enhanced, else a legacy name; unknown_N; null when none is named"),
    _must("enhanced", BOOL, "E-RTMP header"),
    _must("track_id", I32, "track of multitrack, else 0"),
    _must("packet_type", TEXT, "config, frame, end, metadata, mpeg2ts_config, multichannel_config or command"),
    Column("frame_type", TEXT, "video: key, inter, disposable, generated or info"),
    _must("is_key", BOOL, "flagged as key frame"),
    _must("is_config", BOOL, "decoder configuration"),
    _must("dts", I64, "decoding time, ms"),
    Column("cts", I64, "composition offset, ms"),
    Column("pts", I64, "presentation time, ms"),
    Column("ts_ns_offset", I64, "nanosecond offset of ModEx"),
    _must("size", I64, "bytes of codec data"),
    Column("nal_types", INTS, "NAL unit types in order"),
    Column("width", I32, "picture width by the configuration in effect"),
    Column("height", I32, "picture height by the configuration in effect"),
    Column("profile", I32, "profile by the configuration in effect"),
    Column("level", I32, "level by the configuration in effect"),
    Column("sample_rate", I32, "Hz, by the configuration in effect or the tag header"),
    Column("channels", I32, "audio channels"),
    Column("gop_no", I64, "key frames of this track so far; null before the first"),
    _INGEST,
)

_STREAMS = (
    _UID,
    _must("stream_id", I64, "message stream id"),
    Column("direction", TEXT, "direction of its media"),
    Column("app", TEXT, "application of connect"),
    Column("name", TEXT, "stream name, secrets redacted"),
    _must("role", TEXT, "publish or play, as the client asked"),
    _must("attempt_no", I32, "which try this is of this app, name, role (and player), one after another, from 1"),
    Column("prev_uid", TEXT, "connection of the try before"),
    Column("down_ms", F64, "break since the try before"),
    _must("ts_start", TIME, "publish or play command, or first media when it was not captured"),
    _must("ts_end", TIME, "last media or the end of the stream"),
    _must("audio_messages", I64, "audio messages"),
    _must("video_messages", I64, "video messages"),
    _must("media_bytes", I64, "bytes of codec data"),
    *_measured("video_codec", TEXT, "video codec"),
    *_measured("audio_codec", TEXT, "audio codec"),
    *_measured("width", I32, "picture width"),
    *_measured("height", I32, "picture height"),
    *_measured("fps", F64, "frames a second"),
    *_measured("video_bitrate", F64, "video bits a second"),
    *_measured("audio_bitrate", F64, "audio bits a second"),
    *_measured("sample_rate", I32, "audio sample rate"),
    *_measured("channels", I32, "audio channels"),
    Column("keyframe_interval_ms_p50", F64, "median distance of key frames"),
    Column("keyframe_interval_ms_max", F64, "longest distance of key frames"),
    Column("av_skew_ms", F64, "audio minus video, median"),
    Column("av_drift_ms_per_min", F64, "how fast audio and video part"),
    Column("startup_ms", F64, "connect to the first media"),
    Column("first_is_key", BOOL, "the first picture is a key frame"),
    Column("stalls", I64, "times without a coded frame for 1 s, or without one of a track for 2 s"),
    Column("stall_ms", F64, "time in stalls"),
    Column("gaps", I64, "holes in the recording inside the stream"),
    _must("verdict", TEXT, "ok, degraded, failed, no_media or unknown"),
    Column("verdict_rule_id", TEXT, "finding behind the verdict"),
    Column("verdict_text", TEXT, "the verdict in one sentence"),
    _INGEST,
)

_DELIVERIES = (
    _must("uid", TEXT, "the playing connection, same as play_uid"),
    _must("publish_uid", TEXT, "publishing connection"),
    _must("publish_stream_id", I64, "its message stream id"),
    _must("play_uid", TEXT, "playing connection"),
    _must("play_stream_id", I64, "its message stream id"),
    *_percentiles("latency_ms", "publish to play"),
    Column("first_frame_ms", F64, "play command to the first coded frame"),
    Column("burst_ms", F64, "media time delivered faster than real time at the start (cached GOP)"),
    _must("headers_replayed", I64, "configurations from before it started that it was given"),
    _must(
        "frames_published",
        I64,
        "coded frames published while it played, but for those on their way at its end",
    ),
    _must("frames_missing", I64, "of these, never played"),
    _must("frames_changed", I64, "of these, played with other bytes"),
    _INGEST,
)

_INTERVALS = (
    _UID,
    _DIRECTION,
    _must("ts_second", TIME, "start of the second"),
    _must("packets", I64, "packets"),
    _must("bytes", I64, "payload bytes in packets"),
    _must("retransmitted_bytes", I64, "payload bytes sent again"),
    _must("gap_bytes", I64, "bytes missing before data of this second"),
    _must("zero_window_ms", F64, "time in which the receiver of this direction had closed its window"),
    Column("window_min", I64, "smallest window announced by the receiver of this direction; null: scale unknown"),
    Column("in_flight_max", I64, "most bytes sent and not yet acknowledged; null: no acknowledgement recorded"),
    Column("rtt_ms", F64, "mean time from data to its acknowledgement"),
    _must("audio_bytes", I64, "payload of audio messages completed in this second"),
    _must("video_bytes", I64, "payload of video messages completed in this second"),
    _must("frames", I64, "video frames completed in this second"),
    _must("keyframes", I64, "key frames among them"),
    Column("dts_first", I64, "first media timestamp of the second, ms"),
    Column("dts_last", I64, "last media timestamp of the second, ms"),
    Column("ack_value", I64, "last RTMP Acknowledgement sent in this direction"),
    _INGEST,
)

_FINDINGS = (
    _must("rule_id", TEXT, "what was found, as in the catalogue: rtmp-spark explain CODE"),
    _must("severity", TEXT, "error, warning or info"),
    Column("at_fault", TEXT, "client, server, network, capture or null"),
    Column("uid", TEXT, "connection; null when it is about the file"),
    Column("direction", TEXT, "c2s or s2c, where it belongs to one"),
    Column("stream_id", I64, "message stream id, where it belongs to one"),
    Column("msg_no", I64, "first message it was seen at"),
    Column("msg_no_last", I64, "last message it was seen at"),
    Column("capture_id", TEXT, "capture of the frame"),
    Column("frame", I64, "first packet it was seen at"),
    Column("frame_last", I64, "last packet it was seen at, in its own capture"),
    Column("ts", TIME, "when it was first seen"),
    Column("ts_last", TIME, "when it was last seen"),
    _must("count", I64, "how many times"),
    _must("title", TEXT, "one line"),
    Column("detail", TEXT, "the numbers"),
    Column("clause", TEXT, "where the rule is written"),
    Column("expected", TEXT, "what should have been there"),
    Column("actual", TEXT, "what was there"),
    Column("fix_hint", TEXT, "what to do about it"),
    _INGEST,
)

_PAYLOADS = (*_MESSAGE, _must("payload", BYTES, "the bytes of the message that are there"), _INGEST)

_OPEN_FLOWS = (
    _UID,
    _must("sensor", TEXT, "where it was recorded"),
    _must("ts_last", TIME, "last packet so far"),
    _must("state_version", I32, "layout of state"),
    _must("state", BYTES, "states of its reassembly, decoders and rules"),
    _INGEST,
)


def _table(name: str, comment: str, columns: tuple[Column, ...], key: str, cluster_by: str, stats: str) -> Table:
    return Table(name, comment, columns, *(tuple(words.split()) for words in (key, cluster_by, f"ingest_id {stats}")))


_PER_MESSAGE = "uid direction msg_no"

TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        _table(
            "captures", "one row per capture file: the ledger", _CAPTURES, "capture_id path", "ts_first", "ts_first"
        ),
        _table(
            "connections",
            "one row per TCP connection that speaks RTMP or something like it",
            _CONNECTIONS,
            "uid",
            "uid ts_start",
            "uid ts_start ts_end",
        ),
        _table(
            "handshakes",
            "one row per connection whose handshake was seen",
            _HANDSHAKES,
            "uid",
            "uid ts_start",
            "uid ts_start",
        ),
        _table(
            "messages",
            "one row per RTMP message, complete or not",
            _MESSAGES,
            _PER_MESSAGE,
            "uid ts_first",
            "uid ts_first type_id",
        ),
        _table(
            "controls", "one row per protocol or user control message", _CONTROLS, _PER_MESSAGE, "uid ts", "uid ts kind"
        ),
        _table(
            "commands",
            "one row per command, data or shared-object message",
            _COMMANDS,
            _PER_MESSAGE,
            "uid ts",
            "uid ts name",
        ),
        _table(
            "media_tags",
            "one row per audio or video tag; each track and aggregate part on its own",
            _MEDIA_TAGS,
            f"{_PER_MESSAGE} part_no",
            "uid ts",
            "uid ts kind",
        ),
        _table(
            "streams",
            "one row per published or played stream in a connection",
            _STREAMS,
            "uid stream_id role ts_start",
            "uid ts_start",
            "uid ts_start",
        ),
        _table(
            "deliveries",
            "one row per published and played stream matched by content",
            _DELIVERIES,
            "publish_uid publish_stream_id play_uid play_stream_id",
            "uid",
            "uid",
        ),
        _table(
            "intervals",
            "one row per connection, direction and second",
            _INTERVALS,
            "uid direction ts_second",
            "uid ts_second",
            "uid ts_second",
        ),
        _table(
            "findings",
            "one row per thing worth telling",
            _FINDINGS,
            "rule_id severity uid direction stream_id frame",
            "uid ts",
            "uid ts rule_id",
        ),
        _table("payloads", "message payloads, only when kept", _PAYLOADS, _PER_MESSAGE, "uid msg_no", "uid"),
        _table(
            "open_flows",
            "connections still open at the end of the last file",
            _OPEN_FLOWS,
            "uid",
            "uid",
            "uid ts_last",
        ),
    )
}

MESSAGE_TABLES = ("messages", "controls", "commands", "media_tags", "payloads")

_SCHEMAS = {name: table.arrow_schema() for name, table in TABLES.items()}


def arrow_schema(table: str) -> pa.Schema:
    return _SCHEMAS[table]


def column_names(table: str) -> tuple[str, ...]:
    return TABLES[table].column_names


def conform(batch: pa.RecordBatch, table: str) -> pa.RecordBatch:
    """The batch with exactly the table's columns in the table's order; raises where names or types differ."""
    schema = _SCHEMAS[table]
    if set(batch.schema.names) != set(schema.names) or batch.num_columns != len(schema):
        odd = sorted(set(batch.schema.names) ^ set(schema.names))
        raise ValueError(f"{table}: columns differ from the schema: {', '.join(odd) or 'repeated names'}")
    arrays = [batch.column(batch.schema.get_field_index(name)) for name in schema.names]
    for field, array in zip(schema, arrays):
        if array.type != field.type:
            raise ValueError(f"{table}.{field.name}: {array.type}, the schema says {field.type}")
        if not field.nullable and array.null_count:
            raise ValueError(f"{table}.{field.name}: null where the schema allows none")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
