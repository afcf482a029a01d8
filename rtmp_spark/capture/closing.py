"""How a connection ended: who closed it, why, and the findings that only its end can show.

Pure functions over the accounting of TCP and the session fold. Where the recording cannot tell, the answer is
`unknown`, and a rule that needs what was not recorded stays silent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rtmp_spark.capture.block import often
from rtmp_spark.capture.findings import CLIENT, SERVER, Finding, lasting
from rtmp_spark.capture.session import RESPONSE_LIMIT_US, Session
from rtmp_spark.codec.errors import ViolationCode

IDLE_US = 5_000_000  # silence this long before a close is taken for a timeout
_AGAIN_US = 3_000_000  # so long nothing new is sent to a peer that acknowledges nothing
_REFUSAL_US = 5_000_000  # a close this soon after a refusal belongs to it
_TURNED_AWAY_US = 1_000_000
_GOODBYE_US = 10_000_000
_WHO = {"c2s": CLIENT, "s2c": SERVER}
_SHOWN_BY = {ViolationCode.HS_VERSION: 0, ViolationCode.HS_ENCRYPTED: 0}  # the part of the handshake; else the last


class Ending(NamedTuple):
    """What is known about the end of a connection; streams are (client's, server's), as tcp.py accounts them."""

    closed_by: str | None
    close_kind: str
    ts_start: int
    ts_end: int
    frame_first: int
    frame_last: int
    midstream: bool
    streams: dict[str, Any]
    carried_on: bool = False  # what it carried went over other connections too (RTMPT)

    def recorded(self, direction: str) -> bool:
        return bool(self.streams[direction].packets)

    def silence_us(self, direction: str) -> int | None:
        last = self.streams[direction].top_ts_ns
        return max(self.ts_end - last // 1000, 0) if last else None

    def unheard(self) -> tuple[str, int] | None:
        """Who, by the last packets, answered nothing any more though bytes were sent to it again; and for how long."""
        for direction, other, silent in (("c2s", "s2c", SERVER), ("s2c", "c2s", CLIENT)):
            sender, receiver = self.streams[direction], self.streams[other]
            if sender.unacked_bytes and receiver.packets:
                silence = (sender.ts_last_ns - receiver.ts_last_ns) // 1000
                if silence >= IDLE_US and sender.ts_last_ns - sender.top_ts_ns >= _AGAIN_US * 1000:
                    return silent, silence
        return None


def close_cause(ending: Ending, session: Session) -> str:
    if ending.close_kind == "open":
        return "capture_ended" if ending.unheard() is None else "peer_vanished"
    if _refused(ending, session):
        return "refused"
    goodbyes = _in_time(ending, session)
    if goodbyes and not _streaming_after(session, max(goodbyes)):
        return "teardown"
    closer = ending.closed_by
    other_way = "s2c" if closer == CLIENT else "c2s"
    if closer is not None and session.faults[other_way]:
        return "protocol_error"
    media_way = next((span.direction for span in reversed(session.spans)), None)
    silence = ending.silence_us(media_way) if media_way else None
    if media_way == "c2s" and closer == SERVER:  # a player that waits may have been told to
        silence = _without_media_us(ending, session, media_way)
    if silence is not None and silence >= IDLE_US:
        return "idle_timeout" if closer != _WHO[media_way or "c2s"] else "unknown"
    if closer == SERVER and _turned_away(ending, session):
        return "refused"
    if session.gaps["c2s"] or session.gaps["s2c"]:
        return "unknown"  # a goodbye may be among what is missing
    if any(not span.ended and span.audio + span.video for span in session.spans):
        return "peer_vanished" if closer == CLIENT or ending.close_kind == "rst" else "unknown"
    return "unknown"


def _refused(ending: Ending, session: Session) -> bool:
    """Whether the close belongs to a refusal."""
    return session.refused is not None and ending.ts_end - session.refused <= _REFUSAL_US


def _without_media_us(ending: Ending, session: Session, media_way: str) -> int:
    """How long the receiver of media had none when it closed: answers to pings and the like are no media."""
    closed = ending.streams["s2c" if media_way == "c2s" else "c2s"].fin_ts_ns // 1000 or ending.ts_end
    return int(closed - max(span.ts_end for span in session.spans if span.direction == media_way))


def _turned_away(ending: Ending, session: Session) -> bool:
    """Whether the server closed at once after a request, without a word and before any media."""
    if any(span.audio + span.video for span in session.spans):
        return False
    asked = [span.ts_start for span in session.spans] + [request[1] for request in session.unanswered()]
    return bool(asked) and ending.ts_end - max(asked) <= _TURNED_AWAY_US


def _in_time(ending: Ending, session: Session) -> list[int]:
    """When goodbyes were said, but for those to a peer that had closed already."""
    if ending.carried_on:
        return list(session.torn_down.values())
    closed = {"c2s": ending.streams["s2c"].fin_ts_ns, "s2c": ending.streams["c2s"].fin_ts_ns}
    return [ts for way, ts in session.torn_down.items() if not closed[way] or ts <= closed[way] // 1000]


def _streaming_after(session: Session, goodbye: int) -> bool:
    """Whether media went on long after the last goodbye."""
    return any(span.ts_end - goodbye > _GOODBYE_US for span in session.spans if not span.ended)


def end_findings(ending: Ending, session: Session, cause: str) -> list[Finding]:
    """Findings about the connection as a whole."""
    found: list[Finding] = []
    code = ViolationCode
    frame, ts = ending.frame_last, ending.ts_end
    missing = [d for d in ("c2s", "s2c") if not ending.recorded(d)]
    begin = ending.frame_first
    if ending.midstream:
        found.append(Finding(code.TCP_MIDSTREAM, "no SYN was recorded", frame=begin, ts=ending.ts_start))
    for direction in missing:
        detail = f"no packet from the {_WHO[direction]} was recorded"
        found.append(Finding(code.TCP_ONE_DIRECTION, detail, direction=direction, frame=begin, ts=ending.ts_start))
    for direction in ("c2s", "s2c"):
        stream = ending.streams[direction]
        if stream.zero_windows:
            receiver = SERVER if direction == "c2s" else CLIENT
            detail = (
                f"the {receiver} closed its window {often(stream.zero_windows)}, for "
                f"{lasting(stream.zero_window_ns // 1000)} in all; the {_WHO[direction]} waited"
            )
            found.append(
                Finding(
                    code.TCP_ZERO_WINDOW, detail, None, receiver, direction, frame=stream.zero_frame,
                    ts=stream.zero_ts_ns // 1000, times=stream.zero_windows,
                )
            )  # fmt: skip
    found += _reset(ending, session)
    found += _handshake(ending, session)
    found += _unanswered(ending, session, cause)
    who = ending.closed_by or "nobody"
    words = {
        "fin": f"closed by the {who} with FIN",
        "rst": f"closed by the {who} with RST",
        "open": "no close was recorded, and only one side was" if missing else "still open when the recording ended",
    }
    told = words[ending.close_kind]
    unheard = ending.unheard() if ending.close_kind == "open" else None
    if unheard is not None:
        told += f", though the {unheard[0]} had answered nothing for {lasting(unheard[1])}"
    found.append(Finding(code.SESSION_END, f"{told}; cause: {cause}", frame=frame, ts=ts))
    return found


def _reset(ending: Ending, session: Session) -> list[Finding]:
    if ending.close_kind != "rst" or session.torn_down or _refused(ending, session):
        return []
    lost = max((ts for d, ts in session.gap_ts.items() if session.gaps[d]), default=None)
    if lost is not None and ending.ts_end - lost < _GOODBYE_US:
        return []  # a goodbye may be among what is missing
    if not (ending.recorded("c2s") and ending.recorded("s2c")):
        return []
    if ending.midstream and ending.ts_end - ending.ts_start < _GOODBYE_US:
        return []  # or before the recording
    direction = "c2s" if ending.closed_by == CLIENT else "s2c"
    unacked = [ending.streams[d].unacked_bytes or 0 for d in ("c2s", "s2c")]
    detail = (
        f"the {ending.closed_by} reset the connection with {unacked[0]} bytes of the client and {unacked[1]} "
        "of the server unacknowledged"
    )
    return [
        Finding(
            ViolationCode.TCP_RESET,
            detail,
            None,
            ending.closed_by,
            direction,
            frame=ending.frame_last,
            ts=ending.ts_end,
        )
    ]


def _handshake(ending: Ending, session: Session) -> list[Finding]:
    """HS_* from both sides; nothing where parts were not recorded or may still come."""
    found: list[Finding] = []
    verdicts = dict(zip(("c2s", "s2c"), session.handshake.verdicts()))
    missing_ok = ending.midstream or ending.close_kind == "open"
    for direction, verdict in verdicts.items():
        if not session.handshake.parts[direction] and not session.handshake.encrypted:
            continue
        for code, detail in verdict.violations:
            if code is ViolationCode.HS_INCOMPLETE:
                gap = session.gaps["c2s"] or session.gaps["s2c"]
                if missing_ok or gap or session.handshake.encrypted or session.refused is not None:
                    continue
            if code is ViolationCode.HS_ENCRYPTED and direction == "s2c" and session.handshake.parts["c2s"]:
                continue
            at_fault = None if code is ViolationCode.HS_ENCRYPTED else _WHO[direction]
            part = _SHOWN_BY.get(code, 2)
            places = [place for place in session.handshake.places[direction] if place[0] <= part]
            _, frame, ts = places[-1] if places else (part, ending.frame_first, ending.ts_start)
            found.append(Finding(code, detail, None, at_fault, direction, frame=frame, ts=ts))
    incomplete = [f for f in found if f.code is ViolationCode.HS_INCOMPLETE]
    found = [f for f in found if f.code is not ViolationCode.HS_INCOMPLETE]
    wrong = {f.at_fault for f in found if f.code is ViolationCode.HS_VERSION}
    if wrong and (wrong != {ending.closed_by} or 1 not in session.handshake.parts["s2c"]):
        return found  # a close, or silence, that answers the version is no fault of its own
    if len(incomplete) == 2:  # one connection ended once: who closed first left the other waiting
        closer = "s2c" if ending.closed_by == SERVER else "c2s"
        incomplete = [f for f in incomplete if f.direction == closer]
    if 1 in session.handshake.parts["c2s"] and 1 not in session.handshake.parts["s2c"]:  # it was the server's turn
        incomplete = [_unanswered_handshake(ending, f) for f in incomplete]
    return found + incomplete


def _unanswered_handshake(ending: Ending, told: Finding) -> Finding:
    """C0 and C1 came whole, S0 and S1 did not: a client that waited long enough cannot have gone on."""
    waited = ending.ts_end - (told.ts or ending.ts_start)
    if not ending.recorded("s2c"):
        return told._replace(at_fault=None)
    detail = f"C0 and C1 got no whole answer; the {ending.closed_by} closed {lasting(waited)} later"
    hasty = ending.closed_by == CLIENT and waited <= RESPONSE_LIMIT_US  # who knows whether it would have come
    return told._replace(detail=detail, at_fault=None if hasty else SERVER)


def _unanswered(ending: Ending, session: Session, cause: str) -> list[Finding]:
    if ending.midstream or session.gaps["s2c"] or not (ending.recorded("c2s") and ending.recorded("s2c")):
        return []
    found = []
    for msg_no, ts, name, frame, *_ in session.unanswered():
        waited = ending.ts_end - ts
        if cause == "refused" and session.refused is not None:
            continue
        if ending.close_kind == "open" and waited <= RESPONSE_LIMIT_US:
            continue
        closed = f"; the {ending.closed_by} closed {lasting(waited)} later"
        detail = f"{name} got no answer" + (closed if ending.closed_by else f" in {lasting(waited)}")
        hasty = ending.closed_by == CLIENT and waited <= RESPONSE_LIMIT_US  # who knows whether it would have come
        at_fault = None if hasty else SERVER
        found.append(Finding(ViolationCode.CMD_NO_RESPONSE, detail, None, at_fault, "c2s", None, msg_no, frame, ts))
    return found
