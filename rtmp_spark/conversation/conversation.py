"""Both directions of one connection: turns TCP items into facts in one order of time.

The parts: service_probe.py detects the protocol of the connection, directions.py decodes, roles.py decides who is the
client, fact_order.py brings the facts of both directions into one order. This module brings them together, from the
first item to the end of the connection, and gives the connection its uid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

from rtmp_spark.capture.service import RTMP
from rtmp_spark.capture.tcp.stream_items import Item
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.capture.unwrap.rtmpt.rtmpt_tunnels import Tunnels
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.capture.unwrap.wrapping import Noted, Wrapping, WrappingFacts
from rtmp_spark.codec.limits import AWAITED_US, ROLE_MESSAGES, UNDECIDED_BYTES
from rtmp_spark.conversation.decoding.decode_options import DEFAULT_OPTIONS, DecodeOptions
from rtmp_spark.conversation.decoding.directions import Directions, HookFactory, SavedDirection
from rtmp_spark.conversation.decoding.helper_process import HelperPool
from rtmp_spark.conversation.ending import Ending
from rtmp_spark.conversation.fact_order import FactOrder, OrderState, Release
from rtmp_spark.conversation.facts import Facts, Notable, Unread
from rtmp_spark.conversation.identity import make_uid
from rtmp_spark.conversation.roles import client_by_messages, client_by_ports
from rtmp_spark.conversation.service_probe import ProbeState, ServiceProbe

_NOT_WRAPPED = WrappingFacts()


@dataclass(frozen=True)
class ConversationOptions:
    """How a connection is read."""

    sensor: str = ""  # part of the uid
    decode: DecodeOptions = DEFAULT_OPTIONS
    keylog: KeyLog = field(default_factory=KeyLog)
    helpers: HelperPool | None = None
    hook: HookFactory | None = None


class ConversationState(TypedDict):
    client: int | None
    uid: str | None
    at: int
    probe: ProbeState
    order: OrderState
    directions: list[SavedDirection]


class Progress(NamedTuple):
    """What a window brought: decoded facts by direction, then facts of both directions in the order of time."""

    decoded: list[tuple[int, Facts]]
    released: Release | None
    is_over: bool = False  # both sides are done, although packets may follow


class Conversation:
    """One connection. Call `receive` for each item, `advance` after each window and `finish` at its end."""

    __slots__ = ("_at", "_sensor", "client", "connection", "directions", "ends", "order", "probe", "uid")

    def __init__(self, connection: Connection, options: ConversationOptions, tunnels: Tunnels | None = None) -> None:
        self.connection = connection
        self.ends = (connection.a, connection.b)
        self._sensor = options.sensor
        self.directions = Directions(connection, options.decode, options.helpers, options.hook)
        self.probe = ServiceProbe(connection, self.directions, options.keylog, tunnels or Tunnels())
        self.order = FactOrder()
        self.client: int | None = None if connection.midstream else 0  # the direction that the client sends
        self.uid: str | None = None
        self._at = 0  # the last packet of the previous window

    # -- what arrives -------------------------------------------------------------------------------------------

    def receive(self, item: Item) -> None:
        self.probe.receive(item)

    def receive_unwrapped(self, item: Item) -> None:
        """An item of an RTMPT session that other connections carry."""
        self.probe.receive_unwrapped(item)

    def refuse(self, why: str) -> None:
        """Stop reading the connection; it gets no rows."""
        self.probe.refuse(why)

    @property
    def refusal(self) -> str | None:
        return self.probe.refusal

    @property
    def wrapping(self) -> Wrapping | None:
        return self.probe.wrapping

    @property
    def wrapping_facts(self) -> WrappingFacts:
        return _NOT_WRAPPED if self.wrapping is None else self.wrapping.facts

    @property
    def service_name(self) -> str | None:
        """The outermost protocol of the connection."""
        return self.probe.service if self.wrapping is None else self.wrapping.facts.service

    def direction_name(self, number: int) -> str:
        return "c2s" if number == self.client else "s2c"

    # -- identity ------------------------------------------------------------------------------------------------

    def identify(self, *, final: bool = False) -> bool:
        """Decide whether it is RTMP, which side is the client, and the uid; True if all of this is known."""
        probe = self.probe
        if not final:
            if probe.refusal is not None:
                return False
            if probe.service is None:
                if max(probe.bytes_in) > UNDECIDED_BYTES:
                    probe.refuse("unknown")
                return False
            if not probe.accepted:
                probe.check(final=False)
        if not probe.accepted or probe.refusal is not None or not (final or self.connection.named):
            return False
        if self.client is None:
            self._decide_roles(final)
        if self.client is None:
            return False
        if self.uid is None:
            client, server = self.ends[self.client], self.ends[1 - self.client]
            self.uid = make_uid(self._sensor, client, server, (self.connection.ts_first_ns or 0) // 1000)
            self.directions.may_leave = True
        return True

    def _decide_roles(self, final: bool) -> None:
        decoders = self.directions.decoders
        self.client = client_by_messages([d.facts.notable if d is not None else () for d in decoders])
        if self.client is None:
            if final or self.directions.messages_seen >= ROLE_MESSAGES or self.probe.service != RTMP:
                self.client = client_by_ports(self.ends[0][1], self.ends[1][1])

    # -- facts ----------------------------------------------------------------------------------------------------

    def advance(self, at: int, second: int) -> Progress:
        """After a window whose last packet is `at`, of an identified connection: release the facts that can be
        ordered. Facts of the last window wait, because bytes of the next one may belong before them."""
        if self.directions.any_remote:
            self._catch_up(second)
        decoded = self._decoded()
        unread, newest_us, is_over = self._unread(), self._newest_us, False
        if unread is not None:
            released = self.order.release(min(self._at, unread.at - 1), newest_us, unread)
        elif self._is_over():
            is_over = self.wrapping is None
            released = self.order.release(None, newest_us, is_last=is_over)
            if is_over:
                self.directions.settle()
        else:
            released = self.order.release(self._at, newest_us)
        self._at = at
        return Progress(decoded, released, is_over)

    def finish(self) -> None:
        """The connection is over: decode everything. Call `identify(final=True)` next."""
        self.directions.bring_back()
        if self.wrapping is not None:
            self.connection.client_randoms = self.wrapping.client_randoms
        self.probe.finish()

    def release_all(self) -> Progress:
        return Progress(self._decoded(), self.order.release(None, self._newest_us, is_last=True))

    def rest(self) -> list[tuple[int, Facts]]:
        """No window follows for now: return what helper processes still decode."""
        if not self.directions.any_remote:
            return []
        self.directions.bring_back()
        return self._decoded()

    def _decoded(self) -> list[tuple[int, Facts]]:
        decoded = self.directions.take_facts()
        for number, facts in decoded:
            self.order.add(number, facts)
        return decoded

    @property
    def _newest_us(self) -> int:
        return (self.connection.ts_last_ns or 0) // 1000

    def _catch_up(self, second: int) -> None:
        """Wait for helper processes, so that the other direction does not wait longer than AWAITED_US."""
        if self._is_over():
            self.directions.bring_back()
        newest_us = max((second + 1) * 1_000_000, self._newest_us)
        self.directions.catch_up(newest_us - AWAITED_US)

    def _unread(self) -> Unread | None:
        """The first packet and time with bytes that are not decoded: they wait for a hole to be filled, or for more
        bytes to recognise the protocol or to find a message in. Facts from them belong before everything recorded after
        them. Bytes older than AWAITED_US are not waited for: all facts of the other side would have to wait, too.
        """
        found = [Unread(s.held[0][3], s.held[0][4] // 1000) for s in self.connection.sides if s.held]
        found += [*self.directions.unread, *self.probe.unread]
        if not found:
            return None
        since = self._newest_us - AWAITED_US
        found = [unread for unread in found if unread.ts >= since]
        return Unread(min(u.at for u in found), min(u.ts for u in found)) if found else None

    @property
    def unsettled_ns(self) -> int | None:
        """Later packets may change the figures of seconds from this time on, however old it is: a hole may be filled,
        waiting bytes may become a message, a zero window is counted when it ends, and what was acknowledged but not
        recorded is a gap at the end. None: no such seconds."""
        sides = self.connection.sides
        since = [piece.ts_ns for stream in sides for piece in stream.held]
        since += [stream.zero_since_ns for stream in sides if stream.zero_since_ns is not None]
        since += [stream.ts_last_ns or 0 for stream in sides if stream.missing_end is not None]
        since += [*self.probe.held_since_ns, *(us * 1000 for us in self.directions.buffered_since_us)]
        return min(since, default=None)

    def _is_over(self) -> bool:
        """Both sides sent FIN, and all their bytes are here."""
        a, b = self.connection.sides
        if a.fin is None or b.fin is None:
            return False
        return a.next_offset >= a.fin and b.next_offset >= b.fin

    # -- the end --------------------------------------------------------------------------------------------------

    def ending(self) -> Ending:
        connection = self.connection
        client = self.client or 0
        closer = connection.closed_by
        closed_by = None if closer is None else "client" if closer == client else "server"
        streams = {"c2s": connection.streams[client], "s2c": connection.streams[1 - client]}
        return Ending(
            closed_by, connection.close_kind, (connection.ts_first_ns or 0) // 1000,
            (connection.ts_last_ns or 0) // 1000, connection.frame_first, connection.frame_last,
            connection.midstream, streams, self.wrapping is not None and len(self.wrapping.carriers) > 1,
        )  # fmt: skip

    def wrapping_notes(self) -> list[Noted]:
        """What is worth a finding about TLS or HTTP around RTMP; call it once, at the end."""
        return [] if self.wrapping is None else [*self.wrapping.take_noted(), *self.wrapping.end_notes()]

    # -- state ----------------------------------------------------------------------------------------------------

    def state(self, redact_fact: Callable[[Notable], Notable], redact: Callable[[Facts], Facts]) -> ConversationState:
        """Everything that later items need, as JSON. Both functions remove secrets from facts that were not released
        or not taken yet."""
        return {
            "client": self.client,
            "uid": self.uid,
            "at": self._at,
            "probe": self.probe.state(),
            "order": self.order.state(redact_fact),
            "directions": self.directions.state(redact),
        }

    @classmethod
    def resume(
        cls, state: ConversationState, connection: Connection, options: ConversationOptions, tunnels: Tunnels
    ) -> Conversation:
        own = cls(connection, options, tunnels)
        own.client, own.uid, own._at = state["client"], state["uid"], state["at"]
        own.directions.may_leave = own.uid is not None
        own.probe.resume(state["probe"])
        own.order = FactOrder.resume(state["order"])
        own.directions.resume(state["directions"])
        return own
