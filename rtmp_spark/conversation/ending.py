"""How a connection ended: who closed it and why. `unknown` where the capture does not show it.

The findings about the end are made in forensics/ending_rules.py.
"""

from __future__ import annotations

from typing import NamedTuple

from rtmp_spark.capture.tcp.half_stream import Stream
from rtmp_spark.codec.limits import (
    IDLE_PUBLISHER_US,
    IDLE_US,
    REFUSAL_US,
    RETRANSMITTED_US,
    TEARDOWN_US,
    TURNED_AWAY_US,
)
from rtmp_spark.conversation.facts import CLIENT, OTHER_DIRECTION, SENDER, SERVER
from rtmp_spark.conversation.session import Session


class SilentPeer(NamedTuple):
    peer: str
    silence_us: int


class Ending(NamedTuple):
    """What is known about the end of a connection. `streams` holds the counters of TCP by direction."""

    closed_by: str | None
    close_kind: str
    ts_start: int
    ts_end: int
    frame_first: int
    frame_last: int
    midstream: bool
    streams: dict[str, Stream]
    several_carriers: bool = False  # an RTMPT session that used other TCP connections too

    def recorded(self, direction: str) -> bool:
        return bool(self.streams[direction].packets)

    def silence_us(self, direction: str) -> int | None:
        """Time between the last data of a direction and the end."""
        last = self.streams[direction].top_ts_ns
        return max(self.ts_end - last // 1000, 0) if last else None

    def peer_closed_ns(self, direction: str) -> int:
        """When the receiver of a direction sent its FIN; 0 if it did not."""
        return self.streams[OTHER_DIRECTION[direction]].fin_ts_ns

    def silent_peer(self) -> SilentPeer | None:
        """The side that, at the end, did not answer although data was retransmitted to it."""
        for direction, other, peer in (("c2s", "s2c", SERVER), ("s2c", "c2s", CLIENT)):
            sender, receiver = self.streams[direction], self.streams[other]
            if not sender.unacked_bytes or sender.ts_last_ns is None or receiver.ts_last_ns is None:
                continue
            silence = (sender.ts_last_ns - receiver.ts_last_ns) // 1000
            if silence >= IDLE_US and sender.ts_last_ns - sender.top_ts_ns >= RETRANSMITTED_US * 1000:
                return SilentPeer(peer, silence)
        return None

    def belongs_to_refusal(self, session: Session) -> bool:
        return session.refused_ts is not None and self.ts_end - session.refused_ts <= REFUSAL_US


def player_left(ending: Ending, session: Session) -> bool:
    """Whether a client closed that had only played: players leave whenever they like, few of them with a teardown."""
    roles = {span.role for span in session.spans}
    return ending.closed_by == CLIENT and roles == {"play"} and any(span.has_media for span in session.spans)


def close_cause(ending: Ending, session: Session) -> str:
    """The value of `connections.close_cause`, as far as TCP and the session show it."""
    if ending.close_kind == "open":
        return "capture_ended" if ending.silent_peer() is None else "peer_vanished"
    if ending.belongs_to_refusal(session):
        return "refused"
    teardowns = _heard_teardowns(ending, session)
    if teardowns and not _streaming_after(session, max(teardowns)):
        return "teardown"
    closer = ending.closed_by
    if closer is not None and session.framing_errors["s2c" if closer == CLIENT else "c2s"]:
        return "protocol_error"
    media_way = next((span.direction for span in reversed(session.spans)), None)
    silence = ending.silence_us(media_way) if media_way else None
    enough = IDLE_US
    if media_way == "c2s" and closer == SERVER:  # not for players: one that waits may have been asked to
        silence, enough = _without_media_us(ending, session, media_way), IDLE_PUBLISHER_US
    if silence is not None and silence >= enough:
        return "idle_timeout" if closer != SENDER[media_way or "c2s"] else "unknown"
    if closer == SERVER and _turned_away(ending, session):
        return "refused"
    if session.gaps["c2s"] or session.gaps["s2c"]:
        return "unknown"  # a teardown may be among the missing bytes
    if any(not span.ended and span.has_media for span in session.spans):
        return "peer_vanished" if closer == CLIENT or ending.close_kind == "rst" else "unknown"
    return "unknown"


def _without_media_us(ending: Ending, session: Session, media_way: str) -> int:
    """How long the receiver of media had received none when it closed; answers to pings do not count."""
    closed = ending.peer_closed_ns(media_way) // 1000 or ending.ts_end
    return closed - max(span.ts_end for span in session.spans if span.direction == media_way)


def _turned_away(ending: Ending, session: Session) -> bool:
    """Whether the server closed immediately after a request, without an answer and before any media."""
    if any(span.has_media for span in session.spans):
        return False
    asked = [span.ts_start for span in session.spans] + [request.ts for request in session.unanswered()]
    return bool(asked) and ending.ts_end - max(asked) <= TURNED_AWAY_US


def _heard_teardowns(ending: Ending, session: Session) -> list[int]:
    """Times of teardowns, without those sent to a peer that had already closed."""
    if ending.several_carriers:
        return list(session.teardown_ts.values())
    return [
        ts
        for direction, ts in session.teardown_ts.items()
        if not ending.peer_closed_ns(direction) or ts <= ending.peer_closed_ns(direction) // 1000
    ]


def _streaming_after(session: Session, teardown: int) -> bool:
    """Whether media continued long after the last teardown."""
    return any(span.ts_end - teardown > TEARDOWN_US for span in session.spans if not span.ended)
