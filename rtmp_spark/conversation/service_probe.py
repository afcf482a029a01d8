"""Detects the protocol of a connection and removes TLS and HTTP around RTMP.

Items are held until the first bytes of their direction show how to read them; then the direction begins to be decoded.
A connection that is not RTMP, or cannot be read, is refused: TCP stops delivering its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, cast

from rtmp_spark.capture.service import (
    HTTP,
    PREFIX_BYTES,
    RTMP,
    RTMP_PORTS,
    RTMPE,
    RTMPS,
    RTMPT,
    TLS,
    Start,
    has_tls_record,
    has_tunnel_request,
    recognise,
    service_port,
)
from rtmp_spark.capture.tcp.stream_items import End, Gap, Item, Run
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.capture.unwrap.rtmpt.rtmpt_tunnels import Tunnels
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.capture.unwrap.wrapping import Nested, Wrapping
from rtmp_spark.codec.handshake import PACKET_SIZE
from rtmp_spark.codec.json_value import Json, SavedFields
from rtmp_spark.codec.limits import UNDECIDED_BYTES
from rtmp_spark.conversation.acceptance import is_plausible, is_proven
from rtmp_spark.conversation.decoding.directions import Directions
from rtmp_spark.conversation.fact_json import SavedItem, item_from_json, item_to_json
from rtmp_spark.conversation.facts import Unread


class WrappingState(TypedDict):
    kind: str
    service: str | None
    state: dict[str, Json]


class ProbeState(TypedDict):
    service: str | None
    refusal: str | None
    accepted: bool
    bytes_in: list[int]
    wrapping: WrappingState | None
    starts: list[SavedFields | None]  # of a `Start`
    held: list[list[SavedItem]]


class ServiceProbe:
    """`service` is None until it is known. `accepted`: the connection is RTMP, or is worth a row although nothing in
    it can be read. `refusal`: why it gets no rows."""

    __slots__ = (
        "_connection", "_directions", "_held", "_keylog", "_outer_service", "_ports", "_starts", "_tunnels",
        "accepted", "bytes_in", "refusal", "service", "wrapping",
    )  # fmt: skip

    def __init__(self, connection: Connection, directions: Directions, keylog: KeyLog, tunnels: Tunnels) -> None:
        self._connection = connection
        self._directions = directions
        self._keylog = keylog
        self._tunnels = tunnels
        self._ports = (connection.a[1], connection.b[1])
        self._held: list[list[Item]] = [[], []]  # until it is known how to read them
        self._starts: list[Start | None] = [None, None]
        self._outer_service: str | None = None  # the service if nothing inside the wrapping can be read
        self.wrapping: Wrapping | None = None  # what RTMP is carried in, if not in TCP itself
        self.service: str | None = None
        self.refusal: str | None = None
        self.accepted = False
        self.bytes_in = [0, 0]

    # -- what arrives -------------------------------------------------------------------------------------------

    def receive(self, item: Item) -> None:
        """An item of TCP."""
        if self.wrapping is None:
            self.receive_unwrapped(item)
        elif self.refusal is None and not self._is_opaque:
            self._receive_inner(self.wrapping, self.wrapping.receive(item))
            self._judge_wrapping()

    def _receive_inner(self, outer: Wrapping, items: Sequence[Item]) -> None:
        """Items out of a wrapping; the first of them may show that there is another wrapping inside."""
        for item in items:
            if self.wrapping is outer or not isinstance(self.wrapping, Nested):
                self.receive_unwrapped(item)
            else:
                self._receive_inner(self.wrapping, self.wrapping.inner.receive(item))

    def receive_unwrapped(self, item: Item) -> None:
        if self.refusal is not None:
            return
        number = item.direction
        if isinstance(item, Run):
            self.bytes_in[number] += len(item.data)
        if self._directions.decoders[number] is not None:
            self._directions.receive(item, wrapped=self.wrapping is not None)
        elif self.service is None or self.service in (RTMP, RTMPE):
            self._held[number].append(item)
            self._start(number, final=isinstance(item, End))

    def finish(self) -> None:
        """No more items: decide by what arrived."""
        if self.wrapping is not None and self.refusal is None:
            self._receive_inner(self.wrapping, self.wrapping.finish())
            self._judge_wrapping()
        if self._is_undecided():
            for number in (0, 1):
                if self._starts[number] is None:
                    self._start(number, final=True)
            if self._is_undecided():
                self._nothing_inside()
        if self.refusal is None and not self.accepted:
            self.check(final=True)

    @property
    def _is_opaque(self) -> bool:
        """Whether it has a row although nothing in it is read."""
        return self.accepted and self._directions.decoders == [None, None]

    def _is_undecided(self) -> bool:
        return self.service is None and self.refusal is None

    @property
    def unread(self) -> list[Unread]:
        """The first packets and times of bytes that are held here or in a wrapping."""
        found = [] if self.wrapping is None or self._is_opaque else self.wrapping.held
        for items in self._held:
            runs = [item for item in items if isinstance(item, Run)]
            if runs:
                found.append((min(int(r.seg_frames.min()) for r in runs), min(int(r.seg_ts_ns.min()) for r in runs)))
        return [Unread(frame, ts_ns // 1000) for frame, ts_ns in found]

    @property
    def held_since_ns(self) -> list[int]:
        """The time of the oldest packet of each run that is held."""
        held = [int(item.seg_ts_ns.min()) for items in self._held for item in items if isinstance(item, Run)]
        return (
            held if self.wrapping is None or self._is_opaque else [*held, *(ts_ns for _, ts_ns in self.wrapping.held)]
        )

    # -- protocol of a direction ----------------------------------------------------------------------------------

    def _prefix(self, number: int) -> tuple[bytes, bool]:
        """The first contiguous bytes of a direction, and whether they are the first bytes of the connection."""
        prefix, offset = _contiguous_prefix(self._held[number])
        connection = self._connection
        syn = connection.streams[number].syn or (number == 0 and connection.origin_known)  # by the peer's SYN-ACK
        joined = self.wrapping is not None and self.wrapping.joined
        return prefix, offset == 0 and syn and not joined

    def _start(self, number: int, final: bool) -> None:
        """Try to find out how to read a direction; once this is known, decode what was held."""
        if self._starts[number] is None:
            prefix, from_start = self._prefix(number)
            port = service_port(*self._ports)
            self._starts[number] = recognise(prefix, from_start=from_start, final=final, port=port)
        start, other = self._starts[number], self._starts[1 - number]
        if start is None:
            return
        if self.wrapping is None and self._is_tls(number, start):
            self._wrap_tls(start.service)
        elif (self.wrapping is None or self.wrapping.refusal == TLS) and self._is_tunnel(number, start):
            self._wrap_tunnel(start.service)
        elif start.service is None:
            self._not_recognised(number, start, other)
        elif start.service == RTMP:
            self.service = self.service or RTMP
            self._begin(number, start.phase or "midstream")
            if other is not None and other.refusal == "unknown" and self._directions.decoders[1 - number] is None:
                self._begin(1 - number, "handshake")
        elif start.service == RTMPE:
            self.service = RTMPE
            self._begin(number, "handshake")
        else:
            self._accept_as(start.service)

    def _begin(self, number: int, phase: str) -> None:
        held, self._held[number] = self._held[number], []
        self._directions.begin(number, phase, held)

    def _not_recognised(self, number: int, start: Start, other: Start | None) -> None:
        if start.refusal == "no data":
            if self._is_unanswered_handshake(1 - number, other):
                self.service = RTMP
                self._begin(1 - number, "handshake")
            elif other is not None and other.service == RTMP and any(isinstance(i, Gap) for i in self._held[number]):
                self._begin(number, "midstream")  # the capture tool dropped everything it sent
            elif other is not None and other.service is None:
                self._nothing_inside()
            return
        if start.refusal != "unknown":
            self.refuse(start.refusal or "unknown")
        elif other is not None and other.service == RTMP and other.phase == "handshake":
            self._begin(number, "handshake")  # the peer speaks RTMP, so this is a wrong version byte
        elif other is not None or self.bytes_in[number] > UNDECIDED_BYTES:
            self.refuse("unknown")

    def _is_unanswered_handshake(self, number: int, start: Start | None) -> bool:
        """Whether a direction that got no answer is as long as C0 and C1, and was sent to a port of RTMP. Servers do
        not answer a wrong version byte."""
        if start is None or start.refusal != "unknown" or self._ports[1 - number] not in RTMP_PORTS:
            return False
        return self.bytes_in[number] == 1 + PACKET_SIZE and self._prefix(number)[1]

    # -- wrappings ------------------------------------------------------------------------------------------------

    def _is_tls(self, number: int, start: Start) -> bool:
        """Whether to look inside TLS: always on ports of RTMPS, elsewhere only if there are keys."""
        if start.service == RTMPS:
            return True
        if not len(self._keylog):
            return False
        return start.refusal == TLS or (start.phase == "midstream" and has_tls_record(self._held[number]))

    def _is_tunnel(self, number: int, start: Start) -> bool:
        if start.service == RTMPT or start.refusal == HTTP:
            return True
        return start.phase == "midstream" and has_tunnel_request(self._held[number])

    # TLS and RTMPT are imported where they are used: most captures contain neither.

    def _wrap_tls(self, service: str | None) -> None:
        from rtmp_spark.capture.unwrap.tls.tls_session import TlsSession

        self._wrap(TlsSession(self._connection, self._keylog), service)

    def _wrap_tunnel(self, service: str | None) -> None:
        from rtmp_spark.capture.unwrap.rtmpt.rtmpt_connection import RtmptConnection

        self._wrap(RtmptConnection(self._connection, self._tunnels, self.receive_unwrapped), service)

    def _wrap(self, wrapping: Wrapping, service: str | None) -> None:
        """Pass what was held, and everything that follows, through the wrapping first."""
        self._outer_service = service
        self.wrapping = outer = wrapping if self.wrapping is None else Nested(self.wrapping, wrapping)
        held, self._held = self._held, [[], []]
        self._starts, self.bytes_in = [None, None], [0, 0]
        for items in held:
            for item in items:
                self._receive_inner(outer, wrapping.receive(item))
        self._judge_wrapping()

    def _judge_wrapping(self) -> None:
        """Decide about a connection whose wrapping turned out to be unreadable."""
        if self.wrapping is None or self.wrapping.readable is not False or self.service is not None:
            return
        if self._outer_service is None:
            self.refuse(self.wrapping.refusal)
        else:
            self._accept_as(self._outer_service)

    def _nothing_inside(self) -> None:
        wrapping, service = self.wrapping, self._outer_service
        if service is None and wrapping is not None and wrapping.readable and wrapping.refusal == HTTP:
            service = RTMPT
        if wrapping is None or service is None:
            self.refuse("no data")
        else:
            self._accept_as(service)

    def _accept_as(self, service: str) -> None:
        """Accept a connection that is worth a row although nothing in it is read."""
        self.service = service
        self.accepted = True
        self._held = [[], []]

    # -- the decision -----------------------------------------------------------------------------------------------

    def refuse(self, why: str) -> None:
        self.refusal = why
        self._held = [[], []]
        self._directions.clear()
        self._connection.drop()

    def check(self, final: bool) -> None:
        """Accept the connection if something in it proves RTMP; refuse it if nothing did for long."""
        if is_proven(self._directions, encrypted=self.service == RTMPE) or (
            final and is_plausible(self._directions, self.bytes_in, on_rtmp_port=not RTMP_PORTS.isdisjoint(self._ports))
        ):
            self.accepted = True
        elif final or max(self.bytes_in) > UNDECIDED_BYTES:
            self.refuse("unknown" if any(self.bytes_in) else "no data")

    # -- state ------------------------------------------------------------------------------------------------------

    def state(self) -> ProbeState:
        """Without TLS secrets: `resume` needs the key log again."""
        return {
            "service": self.service,
            "refusal": self.refusal,
            "accepted": self.accepted,
            "bytes_in": self.bytes_in,
            "wrapping": self._wrapping_state(),
            "starts": [None if start is None else (*start,) for start in self._starts],
            "held": [[item_to_json(item) for item in items] for items in self._held],
        }

    def resume(self, state: ProbeState) -> None:
        self.service, self.refusal, self.accepted = state["service"], state["refusal"], state["accepted"]
        self.bytes_in = state["bytes_in"]
        self._starts = [None if start is None else Start(*start) for start in state["starts"]]
        self._held = [[item_from_json(item, self._connection) for item in items] for items in state["held"]]
        wrapping = state["wrapping"]
        if wrapping is not None:
            self._outer_service = wrapping["service"]
            self.wrapping = self._resume_wrapping(wrapping["kind"], wrapping["state"])

    def _wrapping_state(self) -> WrappingState | None:
        if self.wrapping is None:
            return None
        kind = {TLS: "tls", HTTP: "rtmpt"}[self.wrapping.refusal] if not isinstance(self.wrapping, Nested) else "nested"
        return {"kind": kind, "service": self._outer_service, "state": self.wrapping.state()}

    def _resume_wrapping(self, kind: str, state: dict[str, Json]) -> Wrapping:
        if kind == "tls":
            from rtmp_spark.capture.unwrap.tls.tls_session import TlsSession

            return TlsSession.resume(state, self._connection, self._keylog)
        if kind == "rtmpt":
            from rtmp_spark.capture.unwrap.rtmpt.rtmpt_connection import RtmptConnection

            return RtmptConnection.resume(state, self._connection, self._tunnels, self.receive_unwrapped)
        outer, inner = cast("dict[str, Json]", state["outer"]), cast("dict[str, Json]", state["inner"])
        return Nested(self._resume_wrapping("tls", outer), self._resume_wrapping("rtmpt", inner))


def _contiguous_prefix(items: Sequence[Item]) -> tuple[bytes, int]:
    """The first bytes of a direction up to a gap, and their stream offset."""
    pieces: list[bytes] = []
    size, end, first = 0, -1, 0
    for item in items:
        if not isinstance(item, Run):
            continue
        if end < 0:
            first = item.offset
        elif item.offset != end:
            break
        pieces.append(item.data[:PREFIX_BYTES] if not pieces else item.data)
        size += len(item.data)
        end = item.offset + len(item.data)
        if size >= PREFIX_BYTES:
            break
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)[:PREFIX_BYTES], first
