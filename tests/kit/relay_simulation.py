"""Clients and a relay connected in memory, on a simulated clock.

All protocol code of the live programs runs here, in milliseconds of real time and with the same bytes in every run.
Tests, sample captures and the captures of faults (fault_captures.py) are made with it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from rtmp_relay.client.client_options import DEFAULT_CLIENT, ClientOptions
from rtmp_relay.client.client_session import PUBLISH, ClientSession, Step
from rtmp_relay.faults.fault import NO_FAULT, Fault
from rtmp_relay.frames import Tag
from rtmp_relay.relay.hub import DEFAULT_HUB, Hub, HubOptions
from rtmp_relay.relay.server_connection import DEFAULT_CONNECTION, ConnectionOptions, ServerConnection
from rtmp_relay.rtmp_url import RtmpUrl
from rtmp_relay.tap.pcap_tap import Observer

EPOCH_NS = 1_750_000_000_000_000_000
ONE_WAY_DELAY_S = 0.0005
SERVER_ADDRESS = ("192.0.2.1", 1935)


class SimulatedClient:
    """A client and its connection at the relay."""

    def __init__(self, number: int, session: ClientSession, connection: ServerConnection) -> None:
        self.number = number
        self.session = session
        self.connection = connection
        self.open = True
        self.received: list[Tag] = []


class Simulation:
    def __init__(
        self,
        observers: tuple[Observer, ...] = (),
        connection: ConnectionOptions = DEFAULT_CONNECTION,
        hub: HubOptions = DEFAULT_HUB,
        server: tuple[str, int] = SERVER_ADDRESS,
    ) -> None:
        self.hub = Hub(hub)
        self.now = 0.0
        self.clients: list[SimulatedClient] = []
        self._observers = observers
        self._options = connection
        self._server = server
        self._random = random.Random(1)

    def _time_ns(self) -> int:
        return EPOCH_NS + round(self.now * 1e9)

    def connect(
        self,
        role: str,
        name: str = "cam",
        *,
        app: str = "live",
        options: ClientOptions = DEFAULT_CLIENT,
        fault: Fault = NO_FAULT,
        server_fault: Fault = NO_FAULT,
    ) -> SimulatedClient:
        """Connect a new client and run it until it streams or ends, at most 12 seconds."""
        number = len(self.clients) + 1
        url = RtmpUrl("rtmp", *self._server, app, name)
        session = ClientSession(url, role, self._random.randbytes, options, fault)
        connection = ServerConnection(number, self.hub, self._options, self._random.randbytes, self.now, server_fault)
        client = SimulatedClient(number, session, connection)
        self.clients.append(client)
        for observer in self._observers:
            observer.opened(number, (f"198.51.100.{number}", 40000 + number), self._server, self._time_ns())
        session.begin(self.now)
        self.exchange_all()
        deadline = self.now + 12
        while session.step not in (Step.STREAMING, Step.ENDED) and self.now < deadline:
            self.wait(0.5)
        return client

    def exchange_all(self) -> None:
        """Carry bytes between the clients and the relay until no side has anything to send."""
        busy = True
        while busy:
            busy = False
            for client in self.clients:
                if client.open:
                    busy |= self._exchange(client)

    def _exchange(self, client: SimulatedClient) -> bool:
        session, connection = client.session, client.connection
        up = session.data_to_send()
        if up:
            self.now += ONE_WAY_DELAY_S
            self._observe(client, True, up)
            connection.receive_data(up, self.now)
        down = connection.data_to_send(self.now)
        if down:
            self.now += ONE_WAY_DELAY_S
            self._observe(client, False, down)
            session.receive_data(down, self.now)
            client.received += session.take_tags()
        if not up and not down and (connection.close_reason is not None or session.step is Step.ENDED):
            self.close(client, by_client=connection.close_reason is None)
            return True
        return bool(up or down)

    def _observe(self, client: SimulatedClient, from_client: bool, data: bytes) -> None:
        for observer in self._observers:
            observer.data(client.number, from_client, data, self._time_ns())

    def close(self, client: SimulatedClient, by_client: bool) -> None:
        """Close the TCP connection of a client."""
        if not client.open:
            return
        client.open = False
        client.connection.lost(self.now)
        client.session.receive_eof()
        for observer in self._observers:
            observer.closed(client.number, by_client, False, self._time_ns())

    def wait(self, seconds: float) -> None:
        """Advance the clock, checking all timers every half second."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            self.hub.tick(self.now)
            for client in self.clients:
                if client.open:
                    client.session.tick(self.now)
                    client.connection.tick(self.now)
            self.exchange_all()

    def stream(self, client: SimulatedClient, tags: Iterable[Tag], fault: Fault = NO_FAULT) -> None:
        """Publish the tags at their timestamps on the simulated clock."""
        start = self.now
        first: int | None = None
        for tag in fault.changed_tags(tags):
            first = tag.timestamp if first is None else first
            due = start + (fault.due_ms(tag) - first) / 1000
            if due > self.now:
                self.wait(due - self.now)
            extra_s = fault.extra_delay_s(tag)
            if extra_s:
                self.wait(extra_s)
            if client.session.step is not Step.STREAMING:
                return
            client.session.send_tag(tag)
            self.exchange_all()

    def finish(self) -> None:
        """End every client's stream and connection, publishers first."""
        for client in sorted(self.clients, key=lambda one: one.session.role != PUBLISH):
            if client.open:
                client.session.finish()
                self.exchange_all()
                self.close(client, by_client=True)
