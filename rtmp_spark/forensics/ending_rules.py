"""Findings that only the end of a connection shows: TCP, the handshake, the wrapping, and how it ended.

A rule that needs packets which were not captured reports nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rtmp_spark.capture.problem import often
from rtmp_spark.capture.tcp.half_stream import Stream
from rtmp_spark.capture.unwrap.wrapping import Noted
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.limits import KEPT_CONFLICTS, TEARDOWN_US
from rtmp_spark.conversation.conversation import Conversation
from rtmp_spark.conversation.ending import Ending, player_left
from rtmp_spark.conversation.facts import CLIENT, RECEIVER, SENDER, SERVER
from rtmp_spark.conversation.session import Session
from rtmp_spark.forensics.answer_rules import client_left_early, unanswered_findings
from rtmp_spark.forensics.catalogue.entry import NO_ACTION
from rtmp_spark.forensics.findings import Finding, lasting
from rtmp_spark.forensics.loss_rules import loss_findings
from rtmp_spark.forensics.thresholds import ZERO_WINDOW_US

_SHOWN_BY: Final = {
    ViolationCode.HS_VERSION: 0,
    ViolationCode.HS_ENCRYPTED: 0,
}  # part of the handshake; else the last one


def end_findings(ending: Ending, session: Session, cause: str) -> list[Finding]:
    """Findings about the connection as a whole."""
    found = _tcp_findings(ending) + _handshake(ending, session) + unanswered_findings(ending, session, cause)
    if ending.close_kind == "rst":
        found += _reset(ending, session)
    found.append(_end(ending, cause))
    return found


def _tcp_findings(ending: Ending) -> list[Finding]:
    found: list[Finding] = []
    frame, ts = ending.frame_first, ending.ts_start
    if ending.midstream:
        found.append(Finding(ViolationCode.TCP_MIDSTREAM, "no SYN was captured", frame=frame, ts=ts))
    for direction, stream in ending.streams.items():
        if not stream.packets:
            detail = f"no packet from the {SENDER[direction]} was captured"
            code = ViolationCode.TCP_ONE_DIRECTION
            found.append(Finding(code, detail, direction=direction, frame=frame, ts=ts))
        if stream.zero_windows:
            found.append(_zero_windows(direction, stream))
        more = stream.conflicts - KEPT_CONFLICTS
        if more > 0:  # which reassembly did not report one by one
            detail = f"{more} more packets with different content"
            found.append(Finding(ViolationCode.TCP_CONFLICT, detail, direction=direction, times=more))
        if stream.loss.segments:
            found += loss_findings(direction, stream)
    again = sum([stream.duplicate_packets for stream in ending.streams.values()])
    if again:
        found.append(_duplicates(ending, again))
    return found


def wrapping_findings(conversation: Conversation, notes: Sequence[Noted]) -> list[Finding]:
    """Findings about TLS or HTTP around RTMP."""
    found = []
    connection = conversation.connection
    for note in notes:
        direction = None if note.direction is None else conversation.direction_name(note.direction)
        frame, ts_ns = note.frame, note.ts_ns
        if frame is None:  # about the connection as a whole
            frame, ts_ns = connection.frame_first, connection.ts_first_ns
        ts = None if ts_ns is None else ts_ns // 1000
        found.append(Finding(note.code, note.detail, direction=direction, frame=frame, ts=ts))
    return found


def _zero_windows(direction: str, stream: Stream) -> Finding:
    receiver = RECEIVER[direction]
    detail = (
        f"the {receiver} closed its window {often(stream.zero_windows)}, for "
        f"{lasting(stream.zero_window_ns // 1000)} in total; the {SENDER[direction]} waited"
    )
    severity = Severity.INFO if stream.zero_window_ns < ZERO_WINDOW_US * 1000 else None
    return Finding(
        ViolationCode.TCP_ZERO_WINDOW, detail, severity, receiver, direction, frame=stream.zero_frame,
        ts=stream.zero_ts_ns // 1000, times=stream.zero_windows,
    )  # fmt: skip


def _duplicates(ending: Ending, again: int) -> Finding:
    """`again` packets were recorded more than once."""
    streams = ending.streams.values()
    share = again / (again + sum(stream.packets for stream in streams))
    frame, ts_ns = min((s.duplicate_frame, s.duplicate_ts_ns) for s in streams if s.duplicate_frame is not None)
    detail = f"{100 * share:.1f} % of the packets are copies of packets that were recorded before"
    return Finding(ViolationCode.CAPTURE_DUPLICATES, detail, frame=frame, ts=ts_ns // 1000, times=again)


def _reset(ending: Ending, session: Session) -> list[Finding]:
    """A reset; none if a teardown or refusal explains it."""
    if session.teardown_ts or ending.belongs_to_refusal(session):
        return []
    lost = max((ts for d, ts in session.gap_ts.items() if session.gaps[d]), default=None)
    if lost is not None and ending.ts_end - lost < TEARDOWN_US:
        return []  # a teardown may be among the missing bytes
    if not (ending.recorded("c2s") and ending.recorded("s2c")):
        return []
    if ending.midstream and ending.ts_end - ending.ts_start < TEARDOWN_US:
        return []  # a teardown may have been sent before the capture began
    direction = "c2s" if ending.closed_by == CLIENT else "s2c"
    unacked = [ending.streams[d].unacked_bytes or 0 for d in ("c2s", "s2c")]
    left = player_left(ending, session)
    who = "the player left: it" if left else f"the {ending.closed_by}"
    detail = (
        f"{who} reset the connection; {unacked[0]} bytes of the client and {unacked[1]} bytes of the server were not "
        "acknowledged"
    )
    severity, at_fault = (Severity.INFO, None) if left else (None, ending.closed_by)
    code = ViolationCode.TCP_RESET
    return [
        Finding(
            code, detail, severity, at_fault, direction, frame=ending.frame_last, ts=ending.ts_end,
            fix_hint=NO_ACTION if left else None,
        )
    ]  # fmt: skip


def _handshake(ending: Ending, session: Session) -> list[Finding]:
    """HS_* from both sides; none for parts that were not captured or may still come."""
    handshake = session.handshake
    found = _handshake_faults(ending, session)
    if not found:
        return []
    incomplete = [f for f in found if f.code is ViolationCode.HS_INCOMPLETE]
    found = [f for f in found if f.code is not ViolationCode.HS_INCOMPLETE]
    wrong = {f.at_fault for f in found if f.code is ViolationCode.HS_VERSION}
    if wrong and (wrong != {ending.closed_by} or 1 not in handshake.parts["s2c"]):
        return found  # the close, or the silence, answers the wrong version
    if len(incomplete) == 2:  # the side that closed first left the other one waiting
        closer = "s2c" if ending.closed_by == SERVER else "c2s"
        incomplete = [f for f in incomplete if f.direction == closer]
    if 1 in handshake.parts["c2s"] and 1 not in handshake.parts["s2c"]:  # it was the server's turn
        incomplete = [_unanswered_handshake(ending, f) for f in incomplete]
    return found + incomplete


def _handshake_faults(ending: Ending, session: Session) -> list[Finding]:
    found: list[Finding] = []
    handshake = session.handshake
    verdicts = handshake.verdicts()
    if not any(verdict.violations for verdict in verdicts):
        return []
    may_miss_parts = (
        ending.midstream or ending.close_kind == "open" or bool(session.gaps["c2s"] or session.gaps["s2c"])
        or handshake.encrypted or session.refused_ts is not None
    )  # fmt: skip
    for direction, verdict in zip(("c2s", "s2c"), verdicts):
        if not handshake.parts[direction] and not handshake.encrypted:
            continue
        for code, detail in verdict.violations:
            if code is ViolationCode.HS_INCOMPLETE and may_miss_parts:
                continue
            if code is ViolationCode.HS_ENCRYPTED and direction == "s2c" and handshake.parts["c2s"]:
                continue
            at_fault = None if code is ViolationCode.HS_ENCRYPTED else SENDER[direction]
            part = _SHOWN_BY.get(code, 2)
            places = [place for place in handshake.places[direction] if place.part <= part]
            frame, ts = (places[-1].frame, places[-1].ts) if places else (ending.frame_first, ending.ts_start)
            found.append(Finding(code, detail, None, at_fault, direction, frame=frame, ts=ts))
    return found


def _unanswered_handshake(ending: Ending, incomplete: Finding) -> Finding:
    """C0 and C1 arrived in full, S0 and S1 did not: the server is at fault unless the client left early."""
    waited = ending.ts_end - (incomplete.ts or ending.ts_start)
    if not ending.recorded("s2c"):
        return incomplete._replace(at_fault=None)
    detail = f"the server did not answer C0 and C1 in full; the {ending.closed_by} closed {lasting(waited)} later"
    return incomplete._replace(detail=detail, at_fault=None if client_left_early(ending, waited) else SERVER)


def _end(ending: Ending, cause: str) -> Finding:
    if ending.close_kind != "open":
        detail = f"closed by the {ending.closed_by or 'unknown side'} with {ending.close_kind.upper()}"
    elif ending.recorded("c2s") and ending.recorded("s2c"):
        detail = "still open when the capture ended"
    else:
        detail = "no close was captured, and only one side was"
    silent = ending.silent_peer() if ending.close_kind == "open" else None
    if silent is not None:
        detail += f", although the {silent.peer} had not answered for {lasting(silent.silence_us)}"
    return Finding(
        ViolationCode.SESSION_END, f"{detail}; cause: {cause}", frame=ending.frame_last, ts=ending.ts_end
    )  # fmt: skip
