"""The rows that sum up a connection at its end: `connections` and `streams`.

Measures that need more than a session (bitrates, drift, stalls) are left null here; forensics fills them.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rtmp_spark.capture.closing import Ending
from rtmp_spark.capture.facts import Row
from rtmp_spark.capture.findings import FindingFold
from rtmp_spark.capture.identity import community_id
from rtmp_spark.capture.judging import Ended, Judge
from rtmp_spark.capture.settings import Settings
from rtmp_spark.capture.spans import StreamSpan
from rtmp_spark.schema import column_names

if TYPE_CHECKING:
    from rtmp_spark.capture.conversation import Conversation

_STREAM_COLUMNS = column_names("streams")[:-1]  # the ingest is known to the lake only
_COUNTED = (
    "packets", "captured_bytes", "delivered_bytes", "duplicate_bytes", "conflict_bytes", "skipped_bytes",
    "missed_bytes", "retransmitted_bytes", "out_of_order_packets",
)  # fmt: skip
_counters = attrgetter(*_COUNTED)


def connection_row(conversation: Conversation, settings: Settings, ending: Ending, cause: str) -> Row:
    connection, session, redact = conversation.connection, conversation.session, settings.redactor
    client = conversation.client or 0
    ends = conversation.ends
    (orig_h, orig_p), (resp_h, resp_p) = ends[client], ends[1 - client]
    files = sorted(connection.files)
    both = (ending.streams["c2s"], ending.streams["s2c"])
    silence = [ending.silence_us(d) for d in ("c2s", "s2c")]
    counted = [int(value) for pair in zip(*map(_counters, both)) for value in pair]
    names = dict.fromkeys(redact.stream_name(s.name) for s in session.spans if s.name is not None)
    return (
        conversation.uid, files, orig_h, orig_p, resp_h, resp_p, ending.ts_start, ending.ts_end, settings.sensor,
        connection.vlan, community_id(*ends), conversation.service_name, connection.midstream,
        ending.closed_by, ending.close_kind, cause, *[None if s is None else s // 1000 for s in silence],
        *[stream.unacked_bytes for stream in both], *counted,
        session.app and redact.parameters(session.app),
        session.tc_url and redact.text(session.tc_url, session.known_secrets),
        session.flash_ver, session.server_ver, *_software(session.judge), list(names),
        *conversation.wrapping_facts[1:5],
    )  # fmt: skip


def ended(conversation: Conversation, ending: Ending, cause: str) -> Ended:
    """What of a connection several connections are judged together by."""
    client = conversation.client or 0
    (orig_h, _), (resp_h, resp_p) = conversation.ends[client], conversation.ends[1 - client]
    closed = (ending.closed_by, ending.close_kind, cause)
    return Ended(conversation.uid or "", orig_h, resp_h, resp_p, ending.ts_start, *closed)


def _software(judge: Judge | None) -> tuple[str | None, str | None, list[str]]:
    if judge is None:
        return None, None, []
    client, server = judge.client(), judge.server()
    evidence = [f"client: {one}" for one in client.evidence] + [f"server: {one}" for one in server.evidence]
    return client.software, server.software, evidence


def stream_row(conversation: Conversation, settings: Settings, span: StreamSpan, findings: FindingFold) -> Row:
    session, redact = conversation.session, settings.redactor
    known: dict[str, Any] = {
        "uid": conversation.uid,
        "stream_id": span.stream_id,
        "direction": span.direction,
        "app": session.app and redact.parameters(session.app),
        "name": span.name and redact.stream_name(span.name),
        "role": span.role,
        "attempt_no": 1,
        "ts_start": span.ts_start,
        "ts_end": span.ts_end,
        "audio_messages": span.audio,
        "video_messages": span.video,
        "media_bytes": span.bytes,
        "gaps": session.gaps[span.direction],
        "verdict": "unknown",
    }
    if session.judge is not None and conversation.shown:
        known |= session.judge.stream_columns(span, findings)
    return tuple(map(known.get, _STREAM_COLUMNS))
