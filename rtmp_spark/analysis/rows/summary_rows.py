"""The rows that summarise a connection at its end: `connections`, `handshakes` and `streams`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from operator import attrgetter

from rtmp_spark.conversation.connection_secrets import ConnectionSecrets
from rtmp_spark.conversation.conversation import Conversation
from rtmp_spark.conversation.ending import Ending
from rtmp_spark.conversation.facts import Row
from rtmp_spark.conversation.handshakes import Handshakes
from rtmp_spark.conversation.identity import community_id
from rtmp_spark.conversation.session import Session
from rtmp_spark.conversation.stream_span import StreamSpan
from rtmp_spark.forensics.connection_rules import ConnectionRules
from rtmp_spark.forensics.ended_connection import Ended
from rtmp_spark.forensics.loss_rules import loss_pct
from rtmp_spark.schema import column_names

_STREAM_COLUMNS = column_names("streams")[:-1]  # without ingest_id
_counters = attrgetter(
    "packets", "captured_bytes", "delivered_bytes", "duplicate_bytes", "conflict_bytes", "skipped_bytes",
    "missed_bytes", "retransmitted_bytes", "out_of_order_packets",
)  # fmt: skip


def connection_row(
    conversation: Conversation,
    session: Session,
    rules: ConnectionRules | None,
    secrets: ConnectionSecrets,
    sensor: str,
    ending: Ending,
    cause: str,
) -> Row:
    connection, redact = conversation.connection, secrets.redactor
    client = conversation.client or 0
    ends = conversation.ends
    (orig_h, orig_p), (resp_h, resp_p) = ends[client], ends[1 - client]
    both = (ending.streams["c2s"], ending.streams["s2c"])
    silence = [ending.silence_us(d) for d in ("c2s", "s2c")]
    counted = map(int, chain.from_iterable(zip(*map(_counters, both))))
    names = dict.fromkeys([redact.stream_name(s.name) for s in session.spans if s.name is not None])
    wrapping = conversation.wrapping_facts
    return (
        conversation.uid, sorted(connection.files), orig_h, orig_p, resp_h, resp_p, ending.ts_start, ending.ts_end,
        sensor, connection.vlan, community_id(*ends), conversation.service_name, connection.midstream,
        ending.closed_by, ending.close_kind, cause, *[None if s is None else s // 1000 for s in silence],
        *[stream.unacked_bytes for stream in both], *counted,
        session.app and secrets.address(session.app), session.tc_url and secrets.address(session.tc_url),
        session.flash_ver and secrets.hide(session.flash_ver), session.server_ver and secrets.hide(session.server_ver),
        *_software(rules), list(names),
        wrapping.session_id, wrapping.server_name, wrapping.tls_version, wrapping.tls_cipher,
        *map(loss_pct, both),
    )  # fmt: skip


def ended_connection(conversation: Conversation, ending: Ending, cause: str) -> Ended:
    """The connection as the rules across connections see it."""
    client = conversation.client or 0
    (orig_h, _), (resp_h, resp_p) = conversation.ends[client], conversation.ends[1 - client]
    closed = (ending.closed_by, ending.close_kind, cause)
    return Ended(conversation.uid or "", orig_h, resp_h, resp_p, ending.ts_start, *closed)


def _software(rules: ConnectionRules | None) -> tuple[str | None, str | None, list[str]]:
    if rules is None:
        return None, None, []
    client, server = rules.client(), rules.server()
    evidence = [f"client: {one}" for one in client.evidence] + [f"server: {one}" for one in server.evidence]
    return client.software, server.software, evidence


def handshake_rows(uid: str, handshake: Handshakes) -> list[Row]:
    """One row, or none if no part of the handshake was captured."""
    if not handshake.times:
        return []
    client, server = handshake.verdicts()
    start, end = handshake.times
    return [
        (
            uid, client.version, server.version, client.time, server.time, client.packet_version,
            server.packet_version, client.scheme, server.scheme, client.kind, server.kind, handshake.complete, start,
            (end - start) / 1000,
        )
    ]  # fmt: skip


def stream_row(
    uid: str, session: Session, span: StreamSpan, secrets: ConnectionSecrets, measured: Mapping[str, object]
) -> Row:
    """`measured` are the columns that the rules give."""
    redact = secrets.redactor
    known: dict[str, object] = {
        "uid": uid,
        "stream_id": span.stream_id,
        "direction": span.direction,
        "app": session.app and secrets.address(session.app),
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
    known.update(measured)
    return tuple(map(known.get, _STREAM_COLUMNS))
