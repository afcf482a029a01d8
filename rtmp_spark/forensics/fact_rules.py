"""Findings from single facts: faults of messages, missing bytes, contradicting packets, late answers, refusals."""

from __future__ import annotations

from typing import Final

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.conversation.facts import SENDER, ConflictFact, FaultFact, GapFact, Notable
from rtmp_spark.conversation.session import Session
from rtmp_spark.forensics.findings import CAPTURE, NETWORK, Finding

_LOST_BY: Final = {
    None: "the receiver's packets were not captured, so it is unknown whether they arrived",
    True: "the receiver acknowledged them, so the capture tool dropped them",
    False: "the receiver did not acknowledge them",
}
_CHECKSUM: Final = {
    None: "",
    True: "; the TCP checksum of the later packet is correct, so the sender sent both",
    False: "; the TCP checksum of the later packet is wrong: the network or the capture tool damaged it",
}
FACTS_WITH_FINDINGS: Final = frozenset({FaultFact, GapFact, ConflictFact})
_HANDSHAKE: Final = "HS_"  # judged at the end of the connection, from both sides


def fact_findings(session: Session, direction: str, fact: Notable) -> list[Finding]:
    """What a fact shows after the session has received it. answer_rules.py has the rules for commands."""
    kind = type(fact)
    if kind is FaultFact:
        return _fault(session, direction, fact)  # type: ignore[arg-type]
    if kind is GapFact:
        return _gap(direction, fact)  # type: ignore[arg-type]
    if kind is ConflictFact:
        return _conflict(direction, fact)  # type: ignore[arg-type]
    return []


def _fault(session: Session, direction: str, fact: FaultFact) -> list[Finding]:
    """The finding for a violation; none if another finding reports it."""
    code = fact.code
    if code.startswith(_HANDSHAKE):
        return []
    at_fault: str | None = SENDER[direction]
    if code is ViolationCode.CHUNK_RESYNC:
        has_handshake = bool(session.handshake.parts[direction])
        if fact.offset == 0 and not has_handshake:
            return []  # the capture starts inside the stream: reported as TCP_MIDSTREAM
        at_fault = at_fault if has_handshake and not session.gaps[direction] else None
    elif code is ViolationCode.MSG_TRUNCATED or code.startswith(("TLS_", "RTMPT_")):
        at_fault = None
    elif direction == "s2c" and (
        (code.startswith("MEDIA_") and code is not ViolationCode.MEDIA_RESERVED)
        or (code.startswith("AMF_") and fact.msg_no == session.last_data_no)
    ):
        # A server forwards what its publishers sent, but it is the sender of a tag header that receivers reject.
        at_fault = None
    stream_id = stream_ts = None
    if code.startswith("MEDIA_"):  # other faults affect everything after them
        stream_id = fact.stream_id
        span = None if stream_id is None else session.find_span(direction, stream_id)
        if span is not None:
            stream_id, stream_ts = span.stream_id, span.ts_start
    return [
        Finding(
            code, fact.detail, fact.severity, at_fault, direction, stream_id, fact.msg_no, fact.frame, fact.ts,
            stream_ts=stream_ts,
        )
    ]  # fmt: skip


def _gap(direction: str, fact: GapFact) -> list[Finding]:
    if fact.cut:
        return []  # reported once for the file, as CAPTURE_SNAPLEN
    detail = f"{fact.length} bytes at offset {fact.offset} are missing: {_LOST_BY[fact.acked]}"
    lost_by = CAPTURE if fact.acked else NETWORK
    return [
        Finding(ViolationCode.TCP_GAP, detail, None, lost_by, direction, None, None, fact.frame, fact.ts)
    ]  # fmt: skip


def _conflict(direction: str, fact: ConflictFact) -> list[Finding]:
    detail = (
        f"{fact.length} bytes at offset {fact.offset} were sent twice with different content "
        f"(crc32 {fact.crc_first:08x}, then {fact.crc_second:08x}){_CHECKSUM[fact.intact]}"
    )
    return [
        Finding(ViolationCode.TCP_CONFLICT, detail, None, None, direction, None, None, fact.frame, fact.ts)
    ]  # fmt: skip
