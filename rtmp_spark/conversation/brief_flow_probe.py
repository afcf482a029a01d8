"""Decides about connections of a few packets without decoding them: most are not RTMP, and there may be a million."""

from __future__ import annotations

from functools import lru_cache

from rtmp_spark.capture.service import (
    HTTP,
    RTMP,
    TLS,
    has_tls_record_in,
    has_tunnel_request_in,
    recognise,
    service_port,
)
from rtmp_spark.capture.tcp.brief_flows import BriefFlow
from rtmp_spark.capture.tcp.tcp_connection import endpoint
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.events import MessageReceived
from rtmp_spark.codec.limits import BRIEF_PAYLOADS_CACHED


def brief_refusal(flow: BriefFlow, *, has_keys: bool) -> str | None:
    """Why this connection with payload gives no rows, as `ServiceProbe` would say; None if only the probe can tell.

    It has no SYN, so each direction is read from the middle of a stream.
    """
    port = service_port(endpoint(flow.key)[1], endpoint(flow.key[18:])[1])
    refused = [_payload_refusal(payload, port) for payload in flow.payloads]
    if None in refused or (has_keys and TLS in refused):
        return None
    if has_keys and any(map(has_tls_record_in, flow.payloads)):
        return None
    return TLS if TLS in refused else "unknown"


@lru_cache(BRIEF_PAYLOADS_CACHED)
def _payload_refusal(payload: bytes, port: int) -> str | None:
    from rtmp_spark.codec.resync.search import may_find  # here, because most captures have no such connection

    start = recognise(payload, from_start=False, final=True, port=port)
    if start is None or start.refusal == HTTP or start.service not in (None, RTMP):
        return None
    if start.service is None:
        return start.refusal
    if start.phase != "midstream" or has_tunnel_request_in(payload):
        return None
    if not may_find(payload):
        return "unknown"
    decoder = RtmpDecoder(phase="midstream")
    events = decoder.receive_data(payload) + decoder.receive_eof()
    return None if any(isinstance(event, MessageReceived) for event in events) else "unknown"
