"""Drops findings that another finding explains, so that one cause gives one finding."""

from __future__ import annotations

from typing import Final

from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.conversation.ending import Ending, player_left
from rtmp_spark.conversation.facts import CLIENT, RECEIVER
from rtmp_spark.conversation.session import Session
from rtmp_spark.forensics.findings import FindingFold
from rtmp_spark.forensics.thresholds import REFUSED_AFTER_ERROR_US, RESET_AFTER_ERROR_US

# A finding of the first rule in a direction explains those of the others.
_EXPLAINS: Final = {
    ViolationCode.CHUNK_LIMIT: (ViolationCode.MSG_TRUNCATED,),
}
# Findings that follow from a close which answers an error.
_AFTER_CLOSE: Final = (ViolationCode.CMD_NO_RESPONSE, ViolationCode.SESSION_NO_MEDIA, ViolationCode.MSG_TRUNCATED)


def drop_explained(findings: FindingFold, ending: Ending, session: Session) -> None:
    codes = findings.codes()
    if ViolationCode.MSG_TRUNCATED in codes:
        _drop_truncated_messages(findings, ending, session)
    if codes.isdisjoint(_EXPLAINS) and Severity.ERROR not in findings.severities():
        return
    known = findings.first_ones()
    for cause in known:
        for code in _EXPLAINS.get(cause.code, ()):
            findings.drop(code, cause.direction)
    errors = [f for f in known if f.severity is Severity.ERROR]
    closed_by = ending.closed_by
    if closed_by is not None and any(f.at_fault not in (None, closed_by) for f in errors):
        for code in _AFTER_CLOSE:
            findings.drop(code)
        if findings.errors_since(ending.ts_end - RESET_AFTER_ERROR_US) - {None, closed_by}:
            findings.drop(ViolationCode.TCP_RESET)
    for refusal in known:
        if refusal.code is ViolationCode.CMD_REFUSED and refusal.ts is not None:
            since = refusal.ts - REFUSED_AFTER_ERROR_US
            if any(f.at_fault == CLIENT and f.ts is not None and since <= f.ts <= refusal.ts for f in errors):
                findings.drop(ViolationCode.CMD_REFUSED)


def _drop_truncated_messages(findings: FindingFold, ending: Ending, session: Session) -> None:
    if ending.close_kind == "open":  # the capture ended inside the message, not the stream
        findings.drop(ViolationCode.MSG_TRUNCATED)
    _drop_unreceived_messages(findings, ending)
    if player_left(ending, session):  # FFmpeg players send half of deleteStream
        if ViolationCode.TCP_RESET in findings.codes():
            findings.drop(ViolationCode.MSG_TRUNCATED, "c2s")
        findings.lower_to_info(ViolationCode.MSG_TRUNCATED, "c2s")


def _drop_unreceived_messages(findings: FindingFold, ending: Ending) -> None:
    """Drop truncated messages whose receiver reset the connection, and those begun after their receiver had closed, by
    their times or because they were never acknowledged (the directions may have two clocks): the close truncated
    them."""
    for cut in [f for f in findings.first_ones() if f.code is ViolationCode.MSG_TRUNCATED]:
        direction = cut.direction or "s2c"
        reset = ending.close_kind == "rst" and ending.closed_by == RECEIVER[direction]
        closed_ns = ending.peer_closed_ns(direction)
        late = cut.ts is not None and closed_ns and cut.ts * 1000 >= closed_ns
        if reset or late or (closed_ns and ending.streams[direction].unacked_bytes):
            findings.drop(cut.code, cut.direction)
