"""Captures without a network: clients and a relay joined in memory, on a clock that is only counted.

Everything that the live programs do with bytes happens here too, in milliseconds and the same every time: the way
to a capture for each fault, for tests and for the demo.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rtmp_spark.codec.errors import ViolationCode

from . import faults
from .caller import DEFAULT_CALLER, PLAY, PUBLISH, Caller, CallerOptions, Step
from .connection import DEFAULT_CONNECTION, ConnectionOptions, ServerConnection
from .fault import NO_FAULT, Fault
from .faults_content import AuthRounds
from .hub import DEFAULT_HUB, Hub, HubOptions
from .synthetic import Synthetic, Tag
from .tap import Observer, Tap
from .url import RtmpUrl

EPOCH_NS = 1_750_000_000_000_000_000
HOP_S = 0.0005
SERVER_ADDRESS = ("192.0.2.1", 1935)
_SMALL_WINDOW = 20_000
_LONG = 66.0  # seconds of media for what shows only over a minute


class Party:
    """A client and its connection at the relay."""

    def __init__(self, number: int, caller: Caller, connection: ServerConnection) -> None:
        self.number = number
        self.caller = caller
        self.connection = connection
        self.open = True
        self.received: list[Tag] = []


class Laboratory:
    def __init__(
        self,
        observers: tuple[Observer, ...] = (),
        connection: ConnectionOptions = DEFAULT_CONNECTION,
        hub: HubOptions = DEFAULT_HUB,
    ) -> None:
        self.hub = Hub(hub)
        self.now = 0.0
        self.parties: list[Party] = []
        self._observers = observers
        self._options = connection
        self._chance = random.Random(1)

    def _time_ns(self) -> int:
        return EPOCH_NS + round(self.now * 1e9)

    def call(
        self,
        role: str,
        name: str = "cam",
        *,
        app: str = "live",
        options: CallerOptions = DEFAULT_CALLER,
        fault: Fault = NO_FAULT,
        server_fault: Fault = NO_FAULT,
    ) -> Party:
        """A new client, talked to until it streams or ends."""
        number = len(self.parties) + 1
        url = RtmpUrl("rtmp", SERVER_ADDRESS[0], SERVER_ADDRESS[1], app, name)
        caller = Caller(url, role, self._chance.randbytes, options, fault)
        connection = ServerConnection(number, self.hub, self._options, self._chance.randbytes, self.now, server_fault)
        party = Party(number, caller, connection)
        self.parties.append(party)
        for observer in self._observers:
            observer.opened(number, (f"198.51.100.{number}", 40000 + number), SERVER_ADDRESS, self._time_ns())
        caller.begin(self.now)
        self.settle()
        deadline = self.now + 12
        while caller.step not in (Step.STREAMING, Step.ENDED) and self.now < deadline:
            self.wait(0.5)
        return party

    def settle(self) -> None:
        """Carry bytes back and forth until nobody has anything to say."""
        busy = True
        while busy:
            busy = False
            for party in self.parties:
                if party.open:
                    busy |= self._exchange(party)

    def _exchange(self, party: Party) -> bool:
        caller, connection = party.caller, party.connection
        up = caller.data_to_send()
        if up:
            self.now += HOP_S
            self._tell(party, True, up)
            connection.receive_data(up, self.now)
        down = connection.data_to_send(self.now)
        if down:
            self.now += HOP_S
            self._tell(party, False, down)
            caller.receive_data(down, self.now)
            party.received += caller.take_tags()
        if not up and not down and (connection.close_reason is not None or caller.step is Step.ENDED):
            self._close(party, by_client=connection.close_reason is None)
            return True
        return bool(up or down)

    def _tell(self, party: Party, from_client: bool, data: bytes) -> None:
        for observer in self._observers:
            observer.data(party.number, from_client, data, self._time_ns())

    def _close(self, party: Party, by_client: bool) -> None:
        if not party.open:
            return
        party.open = False
        party.connection.lost(self.now)
        party.caller.receive_eof()
        for observer in self._observers:
            observer.closed(party.number, by_client, False, self._time_ns())

    def wait(self, seconds: float) -> None:
        """Let time pass, with the clocks looked at every half second."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            self.hub.tick(self.now)
            for party in self.parties:
                if party.open:
                    party.caller.tick(self.now)
                    party.connection.tick(self.now)
            self.settle()

    def stream(self, party: Party, tags: Iterable[Tag], fault: Fault = NO_FAULT) -> None:
        """Publish in (counted) real time."""
        start = self.now
        first: int | None = None
        for tag in fault.spoil(tags):
            first = tag.timestamp if first is None else first
            due = start + (fault.due_ms(tag) - first) / 1000
            if due > self.now:
                self.wait(due - self.now)
            held = fault.hold_s(tag)
            if held:
                self.wait(held)
            if party.caller.step is not Step.STREAMING:
                return
            party.caller.send_tag(tag)
            self.settle()

    def finish(self) -> None:
        """Everybody leaves, publishers first."""
        for party in sorted(self.parties, key=lambda p: p.caller.role != PUBLISH):
            if party.open:
                party.caller.finish()
                self.settle()
                self._close(party, by_client=True)


def record_fault(code: str, path: Path, side: str | None = None) -> None:
    """A capture in which a client, or the relay, breaks this one rule."""
    recipe = faults.CATALOGUE[ViolationCode[code]]
    side = side or recipe.sides[0]
    tap = Tap(path)
    starves = recipe.code is ViolationCode.FLOW_ACK_STARVED
    listens = starves or recipe.code is ViolationCode.CTRL_PING_UNANSWERED
    relay_options = replace(
        DEFAULT_CONNECTION,
        ping_s=1.0 if recipe.code is ViolationCode.CTRL_PING_UNANSWERED else 10.0,
        window=_SMALL_WINDOW if starves else DEFAULT_CONNECTION.window,
    )
    laboratory = Laboratory((tap,), relay_options)
    make = faults.factory(code, side)
    media = Synthetic(seconds=_LONG if code == "TIME_SKEW" else 3.0)
    options = CallerOptions(window=_SMALL_WINDOW if starves else None, answer_s=6.0)
    if recipe.code is ViolationCode.CMD_AUTH_ROUND:
        assert isinstance(make, AuthRounds)
        for query in ("", "?authmod=adobe&user=someone"):
            laboratory.call(PUBLISH, app=f"live{query}", options=options, server_fault=make())
        final = "?authmod=adobe&user=someone&challenge=Y2hhbA==&response=cmVzcG9uc2U=&opaque=Y2hhbA=="
        party = laboratory.call(PUBLISH, app=f"live{final}", options=options, server_fault=make())
        laboratory.stream(party, media.tags())
    elif listens and side == "client":  # the one who gets data and does not say so
        party = laboratory.call(PUBLISH)
        laboratory.call(PLAY, fault=make())
        laboratory.stream(party, media.tags())
    elif side == "server":
        party = laboratory.call(PUBLISH, options=options, server_fault=make())
        laboratory.stream(party, media.tags())
    else:
        fault = make()
        party = laboratory.call(PUBLISH, options=options, fault=fault)
        if recipe.code is ViolationCode.SESSION_BAD_NAME:
            laboratory.call(PUBLISH, options=options)
        laboratory.stream(party, media.tags(), fault)
    laboratory.finish()
    tap.close()


def record_clean(path: Path, players: int = 1, seconds: float = 3.0) -> list[Party]:
    """A capture in which nobody does anything wrong: a publisher and its players."""
    tap = Tap(path)
    laboratory = Laboratory((tap,))
    party = laboratory.call(PUBLISH)
    for _ in range(players):
        laboratory.call(PLAY)
    laboratory.stream(party, Synthetic(seconds=seconds).tags())
    laboratory.finish()
    tap.close()
    return laboratory.parties
