"""CMD_STREAM_ID: publish, play or media on a message stream id that createStream did not return.

An answer to createStream may follow the message that uses its id, so the ids are compared at the end. A refused publish
or play is reported with its answer (answer_rules.py).
"""

from __future__ import annotations

from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.codec.limits import MAX_STREAMS
from rtmp_spark.codec.message import COMMANDS
from rtmp_spark.conversation.facts import CLIENT, SENDER, STREAM_STARTS, CommandFact
from rtmp_spark.conversation.media_row import FRAME, KIND, MSG_NO, STREAM_ID, TS
from rtmp_spark.conversation.session import Session, SpanMedia
from rtmp_spark.forensics.findings import Finding, FindingFold
from rtmp_spark.forensics.position import Position, frame_with_file

# Uses by commands (stream id, name) and by media (direction, stream id, kind), each with its first position.
StreamIdState = SavedFields


class StreamIdRules:
    """The first use of each stream id: by a command, or by media of a direction."""

    __slots__ = ("_commands", "_media")

    def __init__(self) -> None:
        self._commands: dict[int, tuple[str, Position]] = {}
        self._media: dict[tuple[str, int], tuple[str, Position]] = {}

    def command(self, fact: CommandFact) -> None:
        """A command of the client."""
        if fact.name in STREAM_STARTS and fact.type_id in COMMANDS:
            if fact.stream_id not in self._commands and len(self._commands) < MAX_STREAMS:
                self._commands[fact.stream_id] = fact.name, Position(fact.msg_no, fact.frame, fact.ts)

    def media(self, media: SpanMedia) -> None:
        row = media.rows[0]
        key = media.span.direction, row[STREAM_ID]
        if key not in self._media and len(self._media) < MAX_STREAMS:
            place = Position(row[MSG_NO], frame_with_file(row[FRAME], media.known_at[0]), row[TS])
            self._media[key] = row[KIND], place

    def end(self, session: Session, findings: FindingFold) -> list[Finding]:
        """Return the findings, without those for ids of which `findings` has a refusal."""
        commands = [(number, *use) for number, use in self._commands.items() if session.is_uncreated(number)]
        media = [
            (*key, *use) for key, use in self._media.items()
            if key[1] not in self._commands and session.is_uncreated(key[1])
        ]  # fmt: skip
        if not commands and not media:
            return []
        refused = {stream_id for code, stream_id in findings.codes_by_stream() if code is ViolationCode.CMD_STREAM_ID}
        return [
            _finding("c2s", stream_id, f"{name} on stream {stream_id}", place, session)
            for stream_id, name, place in commands
            if stream_id not in refused
        ] + [
            _finding(direction, stream_id, f"{kind} on stream {stream_id}", place, session)
            for direction, stream_id, kind, place in media
        ]

    def state(self) -> StreamIdState:
        return (
            [(stream_id, *use) for stream_id, use in self._commands.items()],
            [(*key, *use) for key, use in self._media.items()],
        )

    def resume(self, state: StreamIdState) -> None:
        commands, media = state
        self._commands = {stream_id: (name, Position(*place)) for stream_id, name, place in commands}
        self._media = {(direction, i): (kind, Position(*place)) for direction, i, kind, place in media}


def _finding(direction: str, stream_id: int, use: str, place: Position, session: Session) -> Finding:
    made = created_text(session)
    return Finding(
        ViolationCode.CMD_STREAM_ID, f"{use}; createStream returned {made}", None, SENDER[direction], direction,
        stream_id, *place, expected=made, actual=str(stream_id),
    )  # fmt: skip


def refused_finding(session: Session, request: str, stream_id: int, place: Position, reason: str) -> Finding:
    """The finding, an error, for a publish or play that was refused."""
    made = created_text(session)
    detail = f"{request} on stream {stream_id}; createStream returned {made}; refused: {reason or 'no reason given'}"
    code = ViolationCode.CMD_STREAM_ID
    return Finding(
        code, detail, Severity.ERROR, CLIENT, "c2s", stream_id, *place, expected=made,
        actual=str(stream_id),
    )  # fmt: skip


def created_text(session: Session) -> str:
    """The ids that createStream returned, for example "1 and 2"."""
    listed = [str(stream_id) for stream_id in sorted(session.created)[:5]]
    if len(session.created) > len(listed):
        listed.append("others")
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"
