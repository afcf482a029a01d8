"""The rows that summarise a connection at its end: `connections`, `handshakes` and `streams`."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Final

from rtmp_spark.capture.tcp.half_stream import Stream
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
from rtmp_spark.forensics.software.fingerprint import Fingerprint
from rtmp_spark.forensics.streams.stream_verdict import StreamColumns

_Software = tuple[str | None, str | None, tuple[str, ...]]  # of client and server, and the evidence
_FIRST_ATTEMPT: Final = (1, None, None)  # attempts.py numbers the others
_counters: Final = attrgetter(
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
    app: str | None,
) -> Row:
    """`app` without its secrets."""
    connection, redact = conversation.connection, secrets.redactor
    client = conversation.client or 0
    ends = conversation.ends
    (orig_h, orig_p), (resp_h, resp_p) = ends[client], ends[1 - client]
    to_server, to_client = ending.streams["c2s"], ending.streams["s2c"]
    silence = (ending.silence_us("c2s"), ending.silence_us("s2c"))
    counted = map(int, chain.from_iterable(zip(_counters(to_server), _counters(to_client))))
    names = dict.fromkeys([redact.stream_name(s.name) for s in session.spans if s.name is not None])
    wrapping = conversation.wrapping_facts
    return (
        conversation.uid, sorted(connection.files), orig_h, orig_p, resp_h, resp_p, ending.ts_start, ending.ts_end,
        sensor, connection.vlan, community_id(*ends), conversation.service_name, connection.midstream,
        ending.closed_by, ending.close_kind, cause, *[None if s is None else s // 1000 for s in silence],
        to_server.unacked_bytes, to_client.unacked_bytes, *counted,
        app, session.tc_url and secrets.address(session.tc_url),
        session.flash_ver and secrets.hide(session.flash_ver), session.server_ver and secrets.hide(session.server_ver),
        *_software(rules), list(names),
        wrapping.session_id, wrapping.server_name, wrapping.tls_version, wrapping.tls_cipher,
        loss_pct(to_server), loss_pct(to_client),
    )  # fmt: skip


def ended_connection(conversation: Conversation, ending: Ending, cause: str) -> Ended:
    """The connection as the rules across connections see it."""
    client = conversation.client or 0
    (orig_h, _), (resp_h, resp_p) = conversation.ends[client], conversation.ends[1 - client]
    closed = (ending.closed_by, ending.close_kind, cause)
    return Ended(conversation.uid or "", orig_h, resp_h, resp_p, ending.ts_start, *closed)


def _software(rules: ConnectionRules | None) -> _Software:
    if rules is None:
        return None, None, ()
    return _recognised(rules.client(), rules.server())


@lru_cache(256)  # the same few programs connect to the same few servers
def _recognised(client: Fingerprint, server: Fingerprint) -> _Software:
    evidence = [f"client: {one}" for one in client.evidence] + [f"server: {one}" for one in server.evidence]
    return client.software, server.software, tuple(evidence)


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
    uid: str, app: str | None, span: StreamSpan, secrets: ConnectionSecrets, columns: StreamColumns, stream: Stream
) -> Row:
    """`app` without its secrets; `stream` has the counters of its direction."""
    return (
        uid, span.stream_id, span.direction, app, span.name and secrets.redactor.stream_name(span.name), span.role,
        *_FIRST_ATTEMPT, span.ts_start, span.ts_end, span.audio, span.video, span.bytes, *columns, loss_pct(stream),
    )  # fmt: skip
