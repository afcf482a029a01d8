"""The rows that sum up a connection at its end: `connections` and `streams`.

Measures that need more than a session (bitrates, drift, stalls) are left null here; forensics fills them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtmp_spark.capture.closing import Ending
from rtmp_spark.capture.facts import Row
from rtmp_spark.capture.findings import FindingFold
from rtmp_spark.capture.identity import community_id
from rtmp_spark.capture.settings import Settings
from rtmp_spark.capture.spans import StreamSpan
from rtmp_spark.codec.errors import Severity, ViolationCode

if TYPE_CHECKING:
    from rtmp_spark.capture.conversation import Conversation

_COUNTED = (
    "packets", "captured_bytes", "delivered_bytes", "duplicate_bytes", "conflict_bytes", "skipped_bytes",
    "missed_bytes", "retransmitted_bytes", "out_of_order_packets",
)  # fmt: skip


def connection_row(conversation: Conversation, settings: Settings, ending: Ending, cause: str) -> Row:
    connection, session, redact = conversation.connection, conversation.session, settings.redactor
    client = conversation.client or 0
    ends = conversation.ends
    (orig_h, orig_p), (resp_h, resp_p) = ends[client], ends[1 - client]
    files = sorted(connection.files)
    both = (ending.streams["c2s"], ending.streams["s2c"])
    silence = [ending.silence_us(d) for d in ("c2s", "s2c")]
    counted: list[Any] = [int(getattr(stream, name)) for name in _COUNTED for stream in both]
    names = dict.fromkeys(redact.stream_name(s.name) for s in session.spans if s.name is not None)
    return (
        conversation.uid, files, orig_h, orig_p, resp_h, resp_p, ending.ts_start, ending.ts_end, settings.sensor,
        connection.vlan, community_id(*ends), conversation.service, connection.midstream,
        ending.closed_by, ending.close_kind, cause, *[None if s is None else s // 1000 for s in silence],
        *[stream.unacked_bytes for stream in both], *counted,
        session.app and redact.parameters(session.app),
        session.tc_url and redact.text(session.tc_url, session.known_secrets),
        session.flash_ver, session.server_ver, None, list(names),
    )  # fmt: skip


def stream_row(conversation: Conversation, settings: Settings, span: StreamSpan, findings: FindingFold) -> Row:
    session, redact = conversation.session, settings.redactor
    startup = None if span.first_media is None else (span.first_media - span.ts_start) / 1000
    gaps = session.gaps[span.direction]
    return (
        conversation.uid, span.stream_id, span.direction, session.app and redact.parameters(session.app),
        span.name and redact.stream_name(span.name), span.role, 1, None, None, span.ts_start, span.ts_end,
        span.audio, span.video, span.bytes, span.video_codec, None, span.audio_codec, None, span.width, None,
        span.height, None, None, None, None, None, None, None, span.sample_rate, None, span.channels, None,
        None, None, None, None, startup, span.first_key, None, None, gaps, *_verdict(span, gaps, findings),
    )  # fmt: skip


def _verdict(span: StreamSpan, gaps: int, findings: FindingFold) -> tuple[str, str | None, str | None]:
    if span.refused:
        return "failed", ViolationCode.CMD_REFUSED.value, f"the {span.role} was refused"
    if not span.audio + span.video:
        return "no_media", None, "no media came"
    if Severity.ERROR in findings.severities():
        return "degraded", None, "there are errors among the findings"
    if gaps:
        return "degraded", ViolationCode.TCP_GAP.value, "the recording lacks bytes of it"
    return "ok", None, None
