"""Requests that wait for an answer, and the request that a given answer belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypedDict

from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.codec.limits import MAX_PENDING_REQUESTS
from rtmp_spark.conversation.command_arguments import Status
from rtmp_spark.conversation.facts import STREAM_STARTS, CommandFact

ANSWERED_BY_STATUS: Final = STREAM_STARTS | {"pause", "seek"}
_NEED_AN_ANSWER: Final = frozenset({"connect", "createStream"})
_PLAYS: Final = frozenset({"play", "play2"})
_AFTER_RESET: Final = frozenset({"NetStream.Play.Start", "NetStream.Play.Reset", "NetStream.Data.Start"})


RequestState = SavedFields  # the arguments of `Request`


class PendingState(TypedDict):
    by_transaction: dict[str, list[SavedFields]]  # transaction id and request, by direction
    by_stream: list[SavedFields]  # stream id and requests


class Request:
    """A command that may be answered. `answered` is used for commands of streams only: a play has several answers.
    `nameless`: it is about a stream and does not name one."""

    __slots__ = ("answered", "frame", "msg_no", "name", "nameless", "stream_id", "ts")

    def __init__(
        self, msg_no: int, ts: int, name: str | None, frame: int, stream_id: int = 0, nameless: bool = False,
        answered: bool = False,
    ) -> None:  # fmt: skip
        self.msg_no = msg_no
        self.ts = ts
        self.name = name
        self.frame = frame
        self.stream_id = stream_id
        self.nameless = nameless
        self.answered = answered

    def state(self, name: str | None) -> RequestState:
        """`name`: the name as it is saved."""
        return self.msg_no, self.ts, name, self.frame, self.stream_id, self.nameless, self.answered


class PendingRequests:
    __slots__ = ("_by_stream", "_by_transaction", "_unanswered")

    def __init__(self) -> None:
        self._by_transaction: dict[str, dict[float, Request]] = {"c2s": {}, "s2c": {}}
        self._by_stream: dict[int, list[Request]] = {}  # commands of the client, oldest first
        self._unanswered: dict[int, None] = {}  # streams whose oldest command has no answer

    def add(self, direction: str, transaction_id: float, fact: CommandFact) -> None:
        pending = self._by_transaction[direction]
        if len(pending) < MAX_PENDING_REQUESTS:
            pending[transaction_id] = Request(fact.msg_no, fact.ts, fact.name, fact.frame)

    def add_for_stream(self, fact: CommandFact, nameless: bool) -> None:
        """A command of the client that an onStatus may answer."""
        waiting = self._by_stream.setdefault(fact.stream_id, [])
        if len(waiting) < MAX_PENDING_REQUESTS:
            waiting.append(Request(fact.msg_no, fact.ts, fact.name, fact.frame, fact.stream_id, nameless))
            self._note(fact.stream_id)

    def _note(self, stream_id: int) -> None:
        waiting = self._by_stream.get(stream_id)
        if waiting and not waiting[0].answered:
            self._unanswered[stream_id] = None
        else:
            self._unanswered.pop(stream_id, None)
        if not waiting:
            self._by_stream.pop(stream_id, None)

    def awaits_stream(self) -> bool:
        """Whether a createStream of the client has no answer yet."""
        return any(request.name == "createStream" for request in self._by_transaction["c2s"].values())

    def answer(self, direction: str, answer: CommandFact) -> Request | None:
        """The request of `direction` that a _result or _error of the other side answers; it waits no longer."""
        return self._by_transaction[direction].pop(answer.transaction_id or 0.0, None)

    def status(self, answer: CommandFact, given: Status) -> tuple[int, Request] | None:
        """The request that an onStatus answers, and its stream: the oldest request of the stream without an answer, or
        a play after Reset."""
        stream_id = answer.stream_id
        waiting = self._by_stream.get(stream_id)
        if not waiting:
            if stream_id:
                return None
            # Some servers answer on stream 0; the answer belongs to the only stream that waits.
            if len(self._unanswered) != 1:
                return None
            stream_id = next(iter(self._unanswered))
            waiting = self._by_stream[stream_id]
        request = waiting[0]
        if not request.answered:
            request.answered = True
        elif len(waiting) > 1:
            waiting.pop(0)
            request = waiting[0]
            request.answered = True
        elif request.name not in _PLAYS or (given.code not in _AFTER_RESET and given.level != "error"):
            return None
        if given.code == "NetStream.Play.Start" or request.name not in _PLAYS:
            waiting.pop(0)
        self._note(stream_id)
        return stream_id, request

    def settle(self) -> None:
        """Free memory: no more commands will come."""
        for direction, pending in self._by_transaction.items():
            needed = {number: request for number, request in pending.items() if request.name in _NEED_AN_ANSWER}
            self._by_transaction[direction] = needed

    def unanswered(self) -> list[Request]:
        """Requests of the client that need an answer and have none, oldest first."""
        plain = [r for r in self._by_transaction["c2s"].values() if r.name in _NEED_AN_ANSWER]
        streams = [
            r for waiting in self._by_stream.values() for r in waiting
            if not r.answered and r.name in ("publish", "play", "play2")
        ]  # fmt: skip
        return sorted(plain + streams, key=lambda request: (request.ts, request.msg_no))

    def state(self, saved_name: Callable[[str | None], str | None]) -> PendingState:
        """`saved_name` replaces the secrets in a name that the client chose."""
        return {
            "by_transaction": {
                direction: [(number, request.state(saved_name(request.name))) for number, request in pending.items()]
                for direction, pending in self._by_transaction.items()
            },
            "by_stream": [
                (i, [request.state(request.name) for request in waiting]) for i, waiting in self._by_stream.items()
            ],
        }

    @classmethod
    def resume(cls, state: PendingState) -> PendingRequests:
        own = cls()
        own._by_transaction = {
            direction: {number: Request(*request) for number, request in requests}
            for direction, requests in state["by_transaction"].items()
        }
        own._by_stream = {i: [Request(*request) for request in waiting] for i, waiting in state["by_stream"]}
        for stream_id in list(own._by_stream):
            own._note(stream_id)
        return own
