"""CMD_BEFORE_CONNECT, CMD_TRANSACTION_REUSED, CMD_RESPONSE_UNEXPECTED and MEDIA_NOT_NEGOTIATED.

These rules need the names and transaction ids of commands only. Refused and unanswered requests are reported where
requests are matched with their responses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.json_value import Json, SavedFields
from rtmp_spark.codec.limits import HELD_COMMAND_FINDINGS, NEARBY_US, TRANSACTION_IDS
from rtmp_spark.codec.message import COMMANDS
from rtmp_spark.codec.shared_arguments import noted
from rtmp_spark.conversation.command_arguments import fields
from rtmp_spark.conversation.facts import CLIENT, OTHER_DIRECTION, SENDER, CommandFact
from rtmp_spark.forensics.findings import Finding
from rtmp_spark.forensics.position import NO_POSITION
from rtmp_spark.forensics.streams.stream_measure import StreamMeasure

_NO_DIRECTIONS: Final[frozenset[str]] = frozenset()
_RESPONSES: Final = frozenset({"_result", "_error"})
# Peers do not respond to these with their transaction id, so reusing an id is harmless.
_UNANSWERED: Final = frozenset(
    "publish play play2 pause seek receiveAudio receiveVideo deleteStream closeStream FCUnpublish onStatus onBWDone "
    "onFCPublish onFCUnpublish onFCSubscribe".split()
)

ExchangeState = SavedFields  # in the order of `ExchangeRules.state`


class ExchangeRules:
    """The rules for the commands of both directions of one connection."""

    __slots__ = ("_commands", "_held", "_incomplete", "_pending", "_used", "offered")

    def __init__(self) -> None:
        self._commands = {"c2s": 0, "s2c": 0}
        self._pending: dict[str, dict[float, int]] = {"c2s": {}, "s2c": {}}  # id -> requests minus responses
        self._used: dict[str, set[float]] = {"c2s": set(), "s2c": set()}  # all ids of requests
        self._incomplete = _NO_DIRECTIONS  # directions with missing bytes
        # Findings by the direction whose bytes they rest on: its next command confirms them. If a gap in that direction
        # becomes known first, the gap may contain the request or response, and they are dropped.
        self._held: dict[str, list[Finding]] = {}
        self.offered: list[str] | None = None  # FourCCs that connect offers; None if connect was not captured

    def settle(self) -> None:
        """Free memory: no more messages will come."""
        for direction in OTHER_DIRECTION:
            self._pending[direction].clear()
            self._used[direction].clear()

    def gap(self, direction: str, ts: int) -> None:
        self._incomplete |= {direction}
        if direction in self._held:
            self._held[direction] = [f for f in self._held[direction] if (f.ts or 0) < ts - NEARBY_US]

    def end(self) -> list[Finding]:
        """Return the findings held until now: no gap will become known any more."""
        return self._held.pop("c2s", []) + self._held.pop("s2c", [])

    def command(self, direction: str, fact: CommandFact, from_start: Mapping[str, bool]) -> list[Finding]:
        """Check a command; `from_start` says which directions were captured from their first byte."""
        name = fact.name
        if name is None or fact.type_id not in COMMANDS:
            return []
        found = self._held.pop(direction, []) if self._held else []
        number = fact.transaction_id or 0.0
        before = self._commands[direction]
        if not before and name != "connect" and direction == "c2s":
            found += self._before_connect(name, fact, from_start)
        self._commands[direction] = before + 1
        if name in _RESPONSES:
            return found + self._response(direction, fact, number, from_start)
        if name == "connect" and direction == "c2s":
            self.offered = offered(fact.args)
        if number and name not in _UNANSWERED:
            pending = self._pending[direction]
            waiting = pending.get(number, 0)
            if waiting and all(from_start.values()) and OTHER_DIRECTION[direction] not in self._incomplete:
                found += self._hold(
                    OTHER_DIRECTION[direction],
                    Finding(
                        ViolationCode.CMD_TRANSACTION_REUSED,
                        f"{name} has transaction id {number:g}; an earlier command with this id has no response yet",
                        None, SENDER[direction], direction, None, fact.msg_no, fact.frame, fact.ts,
                        expected="an unused id", actual=f"{number:g}",
                    ),
                )  # fmt: skip
            if len(pending) < TRANSACTION_IDS:
                pending[number] = waiting + 1
        used = self._used[direction]
        if len(used) < TRANSACTION_IDS:
            used.add(number)
        return found

    def _before_connect(self, name: str, fact: CommandFact, from_start: Mapping[str, bool]) -> list[Finding]:
        if not from_start["c2s"] or "c2s" in self._incomplete:
            return []
        return [
            Finding(
                ViolationCode.CMD_BEFORE_CONNECT, f"{name} before connect", None, CLIENT, "c2s", None,
                fact.msg_no, fact.frame, fact.ts, expected="connect", actual=name,
            )
        ]  # fmt: skip

    def _hold(self, direction: str, finding: Finding) -> list[Finding]:
        """Hold a finding until the next command of the direction; return the oldest if too many are held."""
        waiting = self._held.setdefault(direction, [])
        waiting.append(finding)
        return [waiting.pop(0)] if len(waiting) > HELD_COMMAND_FINDINGS else []

    def _response(
        self, direction: str, fact: CommandFact, number: float, from_start: Mapping[str, bool]
    ) -> list[Finding]:
        requester = OTHER_DIRECTION[direction]
        if fact.transaction_id is None:  # missing or not a number, which another rule reports
            return []
        pending = self._pending[requester]
        if pending.get(number):
            pending[number] -= 1
            return []
        used = self._used[requester]
        if (
            number in used
            or len(used) >= TRANSACTION_IDS
            or requester in self._incomplete
            or not all(from_start.values())
        ):
            return []  # a second response, or one to a command that needs none
        return self._hold(
            requester,
            Finding(
                ViolationCode.CMD_RESPONSE_UNEXPECTED,
                f"{fact.name} with transaction id {number:g}, which no command used", None,
                SENDER[direction], direction, None, fact.msg_no, fact.frame, fact.ts,
                expected="the id of a command without a response", actual=f"{number:g}",
            ),
        )  # fmt: skip

    def state(self, hide: Callable[[str], str] = str) -> ExchangeState:
        """`hide` replaces the known secrets in a text."""
        pending = {d: list(known.items()) for d, known in self._pending.items()}
        used = {d: sorted(numbers) for d, numbers in self._used.items()}
        incomplete = {d: d in self._incomplete for d in OTHER_DIRECTION}
        held = {
            d: [finding.without_secrets(hide).plain() for finding in self._held.get(d, ())] for d in OTHER_DIRECTION
        }
        # No FourCC is longer than four characters, so a longer text matches none, hidden or not.
        offered = self.offered and [code if len(code) <= 4 else hide(code) for code in self.offered]
        return self._commands, pending, used, incomplete, offered, held

    def resume(self, state: ExchangeState) -> None:
        commands, pending, used, incomplete, self.offered, held = state
        self._commands = dict(commands)
        self._pending = {d: dict(known) for d, known in pending.items()}
        self._used = {d: set(numbers) for d, numbers in used.items()}
        self._incomplete = frozenset(d for d, missing in incomplete.items() if missing)
        self._held = {d: [Finding.from_plain(one) for one in found] for d, found in held.items()}


@noted
def offered(args: list[Json]) -> list[str]:
    """The FourCCs that connect offers, `*` for all (E-RTMP v2, "Enhancing NetConnection connect Command")."""
    given = fields(args[0]) if args else {}
    codes: list[str] = []
    listed = given.get("fourCcList")
    if isinstance(listed, dict):
        listed = listed.get("$array", list(fields(listed).values()))
    if isinstance(listed, list):
        codes += [code for code in listed if isinstance(code, str)]
    for name in ("videoFourCcInfoMap", "audioFourCcInfoMap"):
        codes += list(fields(given.get(name)))
    return codes


def not_negotiated(measure: StreamMeasure, codes: list[str] | None) -> list[Finding]:
    """Return a finding for each enhanced track whose codec is not in `codes`, the FourCCs that connect offered."""
    if codes is None or "*" in codes:
        return []
    found = []
    enhanced = [(key, track) for key, track in measure.tracks.items() if track.enhanced and track.frames]
    if not enhanced:
        return []
    for (kind, _), track in sorted(enhanced, key=lambda item: (item[1].place or (), item[0])):
        msg_no, frame, ts = track.place or NO_POSITION
        if track.codec is not None and track.codec not in codes:
            found.append(
                Finding(
                    ViolationCode.MEDIA_NOT_NEGOTIATED, f"{kind} in {track.codec}, which connect does not offer", None,
                    SENDER[measure.direction], measure.direction, measure.stream_id, msg_no, frame, ts, 1,
                    f"{track.codec} in fourCcList or {kind}FourCcInfoMap", ", ".join(codes) or "nothing offered",
                )
            )  # fmt: skip
    return found
