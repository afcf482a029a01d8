"""Rules of the exchange of commands that need no answer's content: CMD_BEFORE_CONNECT, CMD_TRANSACTION_REUSED,
CMD_RESPONSE_UNEXPECTED; and what was offered against what was sent: MEDIA_NOT_NEGOTIATED.

What was asked, refused or left unanswered is told by the session fold, which matches answers anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtmp_spark.capture.arguments import fields
from rtmp_spark.capture.facts import NEARBY_US, CommandFact, noted
from rtmp_spark.capture.findings import CLIENT, SENDER, Finding
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.message import COMMANDS
from rtmp_spark.forensics.measure import StreamMeasure

OTHER_WAY = {"c2s": "s2c", "s2c": "c2s"}
_ANSWERS = frozenset({"_result", "_error"})
# Nobody answers these with their transaction id, so that using one again harms nobody.
_UNANSWERED = frozenset(
    "publish play play2 pause seek receiveAudio receiveVideo deleteStream closeStream FCUnpublish onStatus onBWDone "
    "onFCPublish onFCUnpublish onFCSubscribe".split()
)
_MOST_IDS = 4096
_MOST_UNHEARD = 64


class ExchangeRules:
    __slots__ = ("_asked", "_commands", "_ever", "_lost", "_unheard", "offered")

    def __init__(self) -> None:
        self._commands = {"c2s": 0, "s2c": 0}
        self._asked: dict[str, dict[float, int]] = {"c2s": {}, "s2c": {}}  # id -> how often asked, less the answers
        self._ever: dict[str, set[float]] = {"c2s": set(), "s2c": set()}
        self._lost: frozenset[str] = frozenset()
        # Answers to nothing, by who did not ask, and ids used again, by who did not answer: if a gap is known of it
        # soon after, the question or the answer was in there.
        self._unheard: dict[str, list[Finding]] = {}
        self.offered: list[str] | None = None  # what connect offered; None when it was not seen

    def settle(self) -> None:
        for direction in OTHER_WAY:
            self._asked[direction].clear()
            self._ever[direction].clear()

    def gap(self, direction: str, ts: int) -> None:
        self._lost |= {direction}
        if direction in self._unheard:
            self._unheard[direction] = [f for f in self._unheard[direction] if (f.ts or 0) < ts - NEARBY_US]

    def end(self) -> list[Finding]:
        """Nothing more will be known of either side."""
        return self._unheard.pop("c2s", []) + self._unheard.pop("s2c", [])

    def command(self, direction: str, fact: CommandFact, from_start: Mapping[str, bool]) -> list[Finding]:
        """`from_start`: which directions were recorded from their first byte."""
        name = fact.name
        if name is None or fact.type_id not in COMMANDS:
            return []
        found = self._unheard.pop(direction, [])
        number = fact.transaction_id or 0.0
        if not self._commands[direction] and name != "connect" and direction == "c2s":
            found += self._before_connect(name, fact, from_start)
        self._commands[direction] += 1
        if name in _ANSWERS:
            return found + self._answer(direction, fact, number, from_start)
        if name == "connect" and direction == "c2s":
            self.offered = offered(fact.args)
        if number and name not in _UNANSWERED:
            asked = self._asked[direction]
            waiting = asked.get(number, 0)
            if waiting and all(from_start.values()) and OTHER_WAY[direction] not in self._lost:
                found += self._put_off(
                    OTHER_WAY[direction],
                    Finding(
                        ViolationCode.CMD_TRANSACTION_REUSED,
                        f"{name} has transaction id {number:g} while another command with it has no answer yet", None,
                        SENDER[direction], direction, None, fact.msg_no, fact.frame, fact.ts,
                        expected="an id of its own", actual=f"{number:g}",
                    ),
                )  # fmt: skip
            if len(asked) < _MOST_IDS:
                asked[number] = waiting + 1
        ever = self._ever[direction]
        if len(ever) < _MOST_IDS:
            ever.add(number)
        return found

    def _before_connect(self, name: str, fact: CommandFact, from_start: Mapping[str, bool]) -> list[Finding]:
        if not from_start["c2s"] or "c2s" in self._lost:
            return []
        return [
            Finding(
                ViolationCode.CMD_BEFORE_CONNECT, f"{name} comes before connect", None, CLIENT, "c2s", None,
                fact.msg_no, fact.frame, fact.ts, expected="connect", actual=name,
            )
        ]  # fmt: skip

    def _put_off(self, unheard_of: str, finding: Finding) -> list[Finding]:
        """Told when more is known of that direction; what is told now, because too many wait."""
        waiting = self._unheard.setdefault(unheard_of, [])
        waiting.append(finding)
        return [waiting.pop(0)] if len(waiting) > _MOST_UNHEARD else []

    def _answer(
        self, direction: str, fact: CommandFact, number: float, from_start: Mapping[str, bool]
    ) -> list[Finding]:
        asker = OTHER_WAY[direction]
        if fact.transaction_id is None:  # lost, or no number: told elsewhere, and it may answer anything
            return []
        asked = self._asked[asker]
        if asked.get(number):
            asked[number] -= 1
            return []
        ever = self._ever[asker]
        if number in ever or asker in self._lost or not all(from_start.values()) or len(ever) >= _MOST_IDS:
            return []  # a second answer, or one to a command that needs none
        return self._put_off(
            asker,
            Finding(
                ViolationCode.CMD_RESPONSE_UNEXPECTED,
                f"{fact.name} to transaction {number:g}, which nobody asked", None,
                SENDER[direction], direction, None, fact.msg_no, fact.frame, fact.ts,
                expected="answers to commands that were sent", actual=f"transaction {number:g}",
            ),
        )  # fmt: skip

    def state(self) -> list[Any]:
        asked = {d: [[number, count] for number, count in known.items()] for d, known in self._asked.items()}
        ever = {d: sorted(numbers) for d, numbers in self._ever.items()}
        lost = {d: d in self._lost for d in OTHER_WAY}
        unasked = {d: [finding.plain() for finding in self._unheard.get(d, ())] for d in OTHER_WAY}
        return [self._commands, asked, ever, lost, self.offered, unasked]

    def resume(self, state: list[Any]) -> None:
        commands, asked, ever, lost, self.offered, unasked = state
        self._commands, self._lost = dict(commands), frozenset(d for d, missing in lost.items() if missing)
        self._ever = {d: set(numbers) for d, numbers in ever.items()}
        self._asked = {d: dict(known) for d, known in asked.items()}
        self._unheard = {d: [Finding.from_plain(one) for one in found] for d, found in unasked.items()}


@noted
def offered(args: list[Any]) -> list[str]:
    """FourCCs that a connect names, `*` for all (E-RTMP v2, "Enhancing NetConnection connect Command")."""
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
    if codes is None or "*" in codes:
        return []
    found = []
    enhanced = [(key, track) for key, track in measure.tracks.items() if track.enhanced and track.frames]
    for (kind, _), track in sorted(enhanced, key=lambda item: (item[1].place or [], item[0])):
        msg_no, frame, ts = track.place or (None, None, None)
        if track.codec is not None and track.codec not in codes:
            found.append(
                Finding(
                    ViolationCode.MEDIA_NOT_NEGOTIATED, f"{kind} in {track.codec}, which connect did not offer", None,
                    SENDER[measure.direction], measure.direction, measure.stream_id, msg_no, frame, ts, 1,
                    f"{track.codec} in fourCcList or {kind}FourCcInfoMap", ", ".join(codes) or "none offered",
                )
            )  # fmt: skip
    return found
