"""Findings about answers: requests that were refused, answered late or not at all."""

from __future__ import annotations

from typing import Final

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.conversation.connection_secrets import ConnectionSecrets
from rtmp_spark.conversation.ending import Ending
from rtmp_spark.conversation.facts import CLIENT, SERVER, STREAM_STARTS
from rtmp_spark.conversation.pending_requests import Request
from rtmp_spark.conversation.session import BAD_NAME, Exchange, Session
from rtmp_spark.forensics.findings import Finding, lasting
from rtmp_spark.forensics.position import Position
from rtmp_spark.forensics.stream_id_rules import refused_finding
from rtmp_spark.forensics.thresholds import RESPONSE_LIMIT_US

_IN_USE: Final = (
    "already",
    "in use",
    "is publishing",
    "busy",
    "duplicate",
)  # words of servers about a name that is taken


def answer_findings(session: Session, exchange: Exchange, secrets: ConnectionSecrets) -> list[Finding]:
    """What a command shows that answers another one or refuses something."""
    request = exchange.request
    if request is None and exchange.refuses is None:
        return []
    found = []
    if request is not None and (exchange.fact.name == "onStatus" or request.name in ("connect", "createStream")):
        found += _late(session, exchange, request)
    if exchange.refuses is not None:
        what = secrets.command_name(exchange.refuses) or "a command"
        found.append(_refused(session, exchange, what, secrets))
    return found


def _late(session: Session, exchange: Exchange, request: Request) -> list[Finding]:
    waited = exchange.fact.ts - request.ts
    if waited <= RESPONSE_LIMIT_US or session.gap_ts["s2c"] >= request.ts:  # an earlier answer may be in the gap
        return []
    return [_no_response(request, f"{request.name} was answered after {waited / 1e6:.1f} s", SERVER)]


def _no_response(request: Request, detail: str, at_fault: str | None) -> Finding:
    code = ViolationCode.CMD_NO_RESPONSE
    return Finding(code, detail, None, at_fault, "c2s", None, request.msg_no, request.frame, request.ts)


def _refused(session: Session, exchange: Exchange, what: str, secrets: ConnectionSecrets) -> Finding:
    fact, given, request = exchange.fact, exchange.status, exchange.request
    reason = secrets.hide(" ".join(text for text in (given.code, given.description) if text))
    if request is not None and request.name in STREAM_STARTS and not _is_about_access(given.code or "", reason):
        place = Position(request.msg_no, request.frame, request.ts)
        if request.nameless:
            detail = f"{what} without a stream name was refused: {reason or 'no reason given'}"
            return Finding(ViolationCode.CMD_STREAM_NAME, detail, None, CLIENT, "c2s", request.stream_id, *place)
        if session.is_uncreated(request.stream_id):
            return refused_finding(session, what, request.stream_id, place, reason)
    code, at_fault = ViolationCode.CMD_REFUSED, None
    if _is_auth_round(reason):
        code = ViolationCode.CMD_AUTH_ROUND
    elif given.code == BAD_NAME:
        code, at_fault = ViolationCode.SESSION_BAD_NAME, CLIENT
    detail = f"{what} was refused: {reason or 'no reason given'}"
    return Finding(code, detail, None, at_fault, exchange.direction, None, fact.msg_no, fact.frame, fact.ts)


def _is_auth_round(reason: str) -> bool:
    """A request for credentials; with reason= the credentials were rejected."""
    return "need auth" in reason or "needauth" in reason or ("authmod=" in reason and "reason=" not in reason)


def _is_about_access(code: str, reason: str) -> bool:
    """Whether a refusal has another reason than the name or the id of the stream."""
    if _is_auth_round(reason) or code.endswith(("Unauthorized", "StreamNotFound")):
        return True
    return code == BAD_NAME and any(word in reason.lower() for word in _IN_USE)


def unanswered_findings(ending: Ending, session: Session, cause: str) -> list[Finding]:
    """Requests without an answer when the connection ended; none if the answer may not have been captured."""
    if ending.midstream or session.gaps["s2c"] or not (ending.recorded("c2s") and ending.recorded("s2c")):
        return []
    if cause == "refused" and session.refused_ts is not None:
        return []
    found = []
    for request in session.unanswered():
        waited = ending.ts_end - request.ts
        if ending.close_kind == "open" and waited <= RESPONSE_LIMIT_US:
            continue
        closed = f"; the {ending.closed_by} closed {lasting(waited)} later"
        detail = f"{request.name} got no answer" + (closed if ending.closed_by else f" in {lasting(waited)}")
        found.append(_no_response(request, detail, None if client_left_early(ending, waited) else SERVER))
    return found


def client_left_early(ending: Ending, waited_us: int) -> bool:
    """Whether the client closed before an answer was due: it might still have come."""
    return ending.closed_by == CLIENT and waited_us <= RESPONSE_LIMIT_US
