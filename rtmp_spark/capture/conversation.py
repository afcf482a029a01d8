"""Both directions of one connection: from TCP items to facts in one order of time, roles, and rows.

It finds out what the connection speaks and drops what is no RTMP, decides who is client (by SYN, else by what is
said), gives the connection its uid, puts the facts of both directions into one order and hands them to the session
fold and to the rules. Rows leave through a RowSink, batched across connections. Bytes are decoded in direction.py,
meaning is made in session.py; here they are only brought together.
"""

from __future__ import annotations

import hmac
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from rtmp_spark.capture.beside import LONG_RUN, Beside, Helpers
from rtmp_spark.capture.causality import put_off_answers
from rtmp_spark.capture.closing import Ending, close_cause, end_findings
from rtmp_spark.capture.connection import Connection
from rtmp_spark.capture.direction import DirectionDecoder
from rtmp_spark.capture.facts import CommandFact, ControlFact, FaultFact, HandshakeFact, LagFact, Notable, Row
from rtmp_spark.capture.findings import Finding, FindingFold
from rtmp_spark.capture.identity import make_uid
from rtmp_spark.capture.items import Conflict, End, Gap, Item, Lost, Run
from rtmp_spark.capture.redact import carries_credentials
from rtmp_spark.capture.roles import WORDS_WITHIN, client_by_ports, client_by_words
from rtmp_spark.capture.rows import RowSink
from rtmp_spark.capture.rtmpt import RtmptConnection, Tunnels
from rtmp_spark.capture.seconds import SETTLED_SECONDS, Seconds
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
)
from rtmp_spark.capture.session import Session
from rtmp_spark.capture.settings import Settings
from rtmp_spark.capture.summary import connection_row, ended, stream_row
from rtmp_spark.capture.tls import TlsSession
from rtmp_spark.capture.wrapping import Nested, Wrapping, WrappingFacts
from rtmp_spark.codec.handshake import PACKET_SIZE

_NEVER = 1 << 62  # later than every packet
_AWAITED_US = 120_000_000
UNDECIDED_BYTES = 512 << 10  # of one direction, before a connection that shows no RTMP is dropped


class Conversation:
    """One connection. Feed it items, ask it to `advance` after each window, and to `close` at its end."""

    __slots__ = (
        "_at", "_folded", "_held", "_judge", "_media", "_media_at", "_notable", "_out", "_sequence", "_settings",
        "_started", "_stash", "accepted", "bytes_in", "client", "connection", "directions", "ends", "findings",
        "_named", "_tunnels", "refusal", "seconds", "service", "session", "shown", "uid", "wrapping",
    )  # fmt: skip

    def __init__(self, connection: Connection, settings: Settings, tunnels: Tunnels | None = None) -> None:
        self.connection = connection
        self._tunnels = tunnels if tunnels is not None else Tunnels()
        self._settings = settings
        self.service: str | None = None
        self.refusal: str | None = None  # why it gives no rows
        self.accepted = False
        self.client: int | None = None if connection.midstream else 0
        self.uid: str | None = None
        self.shown = True  # unless nobody will look at its rows
        self.directions: list[DirectionDecoder | None] = [None, None]
        self._out: dict[int, Beside] = {}  # directions that are decoded in another process
        self.bytes_in = [0, 0]
        self._held: list[list[Item]] = [[], []]  # until it is known how to read them
        self._started: list[Start | None] = [None, None]
        self.wrapping: Wrapping | None = None  # what RTMP is carried in, if not in TCP itself
        self._named: str | None = None  # service that the outside alone tells
        self.session = Session(settings.redactor, settings.command_rows)
        self._judge = settings.judge(self.session) if settings.judge is not None else None
        self.session.judge = self._judge
        self.findings = FindingFold()
        self._notable: list[tuple[int, int, int, Notable]] = []  # at, direction, sequence, fact
        self._media: list[list[Row]] = [[], []]
        self._media_at: list[list[int]] = [[], []]
        self._sequence = 0
        self._folded = False  # all that was collected
        self._at = 0
        self.seconds = [Seconds(), Seconds()]
        self._stash: list[tuple[str, str, list[Row]]] | None = [] if settings.stream is not None else None
        host, port = settings.host, settings.port
        self.ends = ends = (connection.a, connection.b)
        if (host is not None and host not in (ends[0][0], ends[1][0])) or (
            port is not None and port not in (ends[0][1], ends[1][1])
        ):
            self._refuse("filtered")

    # -- what arrives -------------------------------------------------------------------------------------------

    def receive(self, item: Item) -> None:
        if self.wrapping is None:
            self.take_inside(item)
        elif self.refusal is None:
            self._inside(self.wrapping, self.wrapping.receive(item))
            self._judge_wrapping()

    def _inside(self, outer: Wrapping, items: Sequence[Item]) -> None:
        """What a wrapping gave; the first of it may show that there is another wrapping inside."""
        for item in items:
            if self.wrapping is outer or not isinstance(self.wrapping, Nested):
                self.take_inside(item)
            else:
                self._inside(self.wrapping, self.wrapping.inner.receive(item))

    def take_inside(self, item: Item) -> None:
        """An item without wrapping."""
        if self.refusal is not None:
            return
        number = item.direction
        if isinstance(item, Run):
            self.bytes_in[number] += len(item.data)
        decoder = self.directions[number]
        if decoder is not None:
            if self._settings.helpers is None or not self._goes_out(number, decoder, item, self._settings.helpers):
                _feed(self.directions[number] or decoder, item)
        elif self.service is None or self.service in (RTMP, RTMPE):
            self._held[number].append(item)
            self._start(number, final=isinstance(item, End))

    def _goes_out(self, number: int, decoder: DirectionDecoder, item: Item, helpers: Helpers) -> bool:
        """Long runs of a connection that is known are decoded beside; for anything else a direction comes home."""
        if not isinstance(item, Run) or len(item.data) < LONG_RUN:
            self.come_home(number)
            return False
        if number not in self._out:
            if self.uid is None or self.wrapping is not None:
                return False
            settings = self._settings
            if settings.hook is not None or settings.keep_payloads or decoder.phase != "chunks":
                return False
            helper = helpers.take()
            if helper is None:
                return False
            self._out[number] = Beside(decoder, helper, helpers)
        self._out[number].receive_run(item)
        return True

    def come_home(self, *numbers: int) -> None:
        """All that these directions (none named: both) were told is decoded, and they are here."""
        for number in numbers or (0, 1):
            beside = self._out.pop(number, None)
            if beside is not None:
                self.directions[number] = beside.home()

    def _prefix(self, number: int) -> tuple[bytes, bool]:
        """The first contiguous bytes of a direction, and whether they are its first."""
        pieces: list[bytes] = []
        size, offset = 0, -1
        first = 0
        for item in self._held[number]:
            if not isinstance(item, Run):
                continue
            if offset < 0:
                first = item.offset
            elif item.offset != offset:
                break
            pieces.append(item.data[:PREFIX_BYTES] if not pieces else item.data)
            size += len(item.data)
            offset = item.offset + len(item.data)
            if size >= PREFIX_BYTES:
                break
        prefix = pieces[0] if len(pieces) == 1 else b"".join(pieces)[:PREFIX_BYTES]
        connection = self.connection
        told = connection.streams[number].syn or (number == 0 and connection.origin_known)  # by the peer's SYN-ACK
        joined = self.wrapping is not None and self.wrapping.joined
        return prefix, first == 0 and told and not joined

    def _start(self, number: int, final: bool) -> None:
        """Try to find out how to read a direction; once known, feed it what was held."""
        if self._started[number] is None:
            prefix, from_start = self._prefix(number)
            ports = {self.ends[0][1], self.ends[1][1]}
            port = min(RTMP_PORTS & ports or ports)
            self._started[number] = recognise(prefix, from_start=from_start, final=final, port=port)
        start, other = self._started[number], self._started[1 - number]
        if start is None:
            return
        if self.wrapping is None and self._is_tls(number, start):
            self._wrap(TlsSession(self.connection, self._settings.keylog), start.service)
        elif not isinstance(self.wrapping, (Nested, RtmptConnection)) and self._is_tunnel(number, start):
            self._wrap(RtmptConnection(self.connection, self._tunnels, self.take_inside), start.service)
        elif start.service is None:
            self._not_recognised(number, start, other)
        elif start.service == RTMP:
            self.service = self.service or RTMP
            self._begin_direction(number, start.phase or "midstream")
            if other is not None and other.refusal == "unknown" and self.directions[1 - number] is None:
                self._begin_direction(1 - number, "handshake")
        elif start.service == RTMPE:
            self.service = RTMPE
            self._begin_direction(number, "handshake")
        else:
            self.service = start.service
            self.accepted = True
            self._held = [[], []]
            self.connection.drop()

    def _nothing_inside(self) -> None:
        wrapping, named = self.wrapping, self._named
        if named is None and wrapping is not None and wrapping.readable and wrapping.refusal == HTTP:
            named = RTMPT
        if wrapping is None or named is None:
            self._refuse("no data")
        else:
            self._accept_as(named)

    def _is_tls(self, number: int, start: Start) -> bool:
        """Whether to look inside: always where RTMP is to be expected, elsewhere only with keys at hand."""
        if start.service == RTMPS:
            return True
        if not len(self._settings.keylog):
            return False
        return start.refusal == TLS or (start.phase == "midstream" and has_tls_record(self._held[number]))

    def _is_tunnel(self, number: int, start: Start) -> bool:
        if start.service == RTMPT or start.refusal == HTTP:
            return True
        return start.phase == "midstream" and has_tunnel_request(self._held[number])

    def _wrap(self, wrapping: Wrapping, named: str | None) -> None:
        """What came so far, and all that comes, goes through the wrapping first."""
        self._named = named
        self.wrapping = outer = wrapping if self.wrapping is None else Nested(self.wrapping, wrapping)
        held, self._held = self._held, [[], []]
        self._started, self.bytes_in = [None, None], [0, 0]
        for items in held:
            for item in items:
                self._inside(outer, wrapping.receive(item))
        self._judge_wrapping()

    def _judge_wrapping(self) -> None:
        if self.wrapping is None or self.wrapping.readable is not False or self.service is not None:
            return
        if self._named is None:
            self._refuse(self.wrapping.refusal)
        else:
            self._accept_as(self._named)

    def _accept_as(self, service: str) -> None:
        """A connection that is worth a row though nothing in it is read."""
        self.service = service
        self.accepted = True
        self._held = [[], []]
        self.connection.drop()

    def wrapping_state(self) -> dict[str, Any] | None:
        """Without secrets: whoever resumes it brings the key log again."""
        if self.wrapping is None:
            return None
        kind = {TLS: "tls", HTTP: "rtmpt"}[self.wrapping.refusal] if not isinstance(self.wrapping, Nested) else "nested"
        return {"kind": kind, "named": self._named, "state": self.wrapping.state()}

    def resume_wrapping(self, saved: dict[str, Any] | None) -> None:
        if saved is None:
            return
        self._named = saved["named"]
        self.wrapping = self._resumed(saved["kind"], saved["state"])

    def _resumed(self, kind: str, state: dict[str, Any]) -> Wrapping:
        if kind == "tls":
            return TlsSession.resume(state, self.connection, self._settings.keylog)
        if kind == "rtmpt":
            return RtmptConnection.resume(state, self.connection, self._tunnels, self.take_inside)
        return Nested(self._resumed("tls", state["outer"]), self._resumed("rtmpt", state["inner"]))

    @property
    def wrapping_facts(self) -> WrappingFacts:
        return WrappingFacts() if self.wrapping is None else self.wrapping.facts

    @property
    def service_name(self) -> str | None:
        """What it speaks, by its outermost layer."""
        return self.service if self.wrapping is None else self.wrapping.facts.service

    def _not_recognised(self, number: int, start: Start, other: Start | None) -> None:
        if start.refusal == "no data":
            if self._meant_rtmp(1 - number, other):
                self.service = RTMP
                self._begin_direction(1 - number, "handshake")  # nobody answers a wrong version byte
            elif other is not None and other.service == RTMP and any(isinstance(i, Gap) for i in self._held[number]):
                self._begin_direction(number, "midstream")  # all that it said was lost by the recorder
            elif other is not None and other.service is None:
                self._nothing_inside()
            return
        if start.refusal != "unknown":
            self._refuse(start.refusal or "unknown")
        elif other is not None and other.service == RTMP and other.phase == "handshake":
            self._begin_direction(number, "handshake")  # the peer answers as RTMP does: a wrong version byte
        elif other is not None or self.bytes_in[number] > UNDECIDED_BYTES:
            self._refuse("unknown")

    def _meant_rtmp(self, number: int, start: Start | None) -> bool:
        """Whether a direction that got no answer is as long as C0 and C1 are, to a port where RTMP is spoken."""
        if start is None or start.refusal != "unknown" or self.ends[1 - number][1] not in RTMP_PORTS:
            return False
        return self.bytes_in[number] == 1 + PACKET_SIZE and self._prefix(number)[1]

    def _begin_direction(self, number: int, phase: str) -> None:
        settings = self._settings
        hook = settings.hook(self, number) if settings.hook is not None else None
        decoder = DirectionDecoder(
            phase,
            limits=settings.limits,
            keep_payloads=settings.keep_payloads,
            message_rows=settings.message_rows,
            interval_rows=settings.interval_rows,
            hook=hook,
        )
        self.directions[number] = decoder
        held, self._held[number] = self._held[number], []
        for item in held:
            _feed(decoder, item)

    def _refuse(self, why: str) -> None:
        self.come_home()
        self.refusal = why
        self._held = [[], []]
        self.directions = [None, None]
        self.connection.drop()

    # -- is it RTMP, and who is who -----------------------------------------------------------------------------

    def _check(self, final: bool) -> None:
        """Accept the connection when something in it proves RTMP; drop it when nothing does for long."""
        decoders = [d for d in self.directions if d is not None]
        if any(d.messages_seen and d.synchronised for d in decoders):
            self.accepted = True
            return
        parts = [self._parts(number) for number in (0, 1)]
        if 1 in parts[0] and 1 in parts[1]:
            if self.service == RTMPE or self._echoes(parts[0], parts[1]) or self._echoes(parts[1], parts[0]):
                self.accepted = True
                return
        if final:
            versions = [p[0][:1] for p in parts if 0 in p]
            answered = len(versions) == 2 and all(1 in p for p in parts)
            on_port = bool(RTMP_PORTS & {self.ends[0][1], self.ends[1][1]})
            long_enough = max(self.bytes_in) > PACKET_SIZE
            if versions and (answered or (on_port and (long_enough or versions[0] == b"\x03"))):
                self.accepted = True
                return
        if final or max(self.bytes_in) > UNDECIDED_BYTES:
            self._refuse("unknown" if any(self.bytes_in) else "no data")

    def _parts(self, number: int) -> dict[int, bytes]:
        decoder = self.directions[number]
        if decoder is None:
            return {}
        return {f.part: f.data for f in decoder.facts.notable if isinstance(f, HandshakeFact)}

    @staticmethod
    def _echoes(own: dict[int, bytes], peer: dict[int, bytes]) -> bool:
        return 2 in own and hmac.compare_digest(own[2][8:], peer[1][8:])

    def _decide_roles(self, final: bool) -> None:
        decoders = self.directions
        self.client = client_by_words([d.facts.notable if d is not None else () for d in decoders])
        if self.client is None:
            heard = max((d.messages_seen for d in decoders if d is not None), default=0)
            if final or heard >= WORDS_WITHIN or self.service != RTMP:
                self.client = client_by_ports(self.ends[0][1], self.ends[1][1])

    # -- rows -----------------------------------------------------------------------------------------------------

    def advance(self, sink: RowSink, at: int, newest_second: int) -> None:
        """After a window whose last packet is `at`: let out what is settled."""
        if self.refusal is not None or self.service is None:
            if self.refusal is None and max(self.bytes_in) > UNDECIDED_BYTES:
                self._refuse("unknown")
            return
        if not self.accepted:
            self._check(final=False)
        if not self._ready(final=False):
            return
        if self._out:
            self._catch_up(newest_second)
        self._collect(sink)
        unread = self._unread()
        if unread is not None:
            self._fold(sink, min(self._at, unread[0] - 1), unread)
        elif self._over():
            self._fold(sink, None)
            self._settle()
        else:
            self._fold(sink, self._at)
        self._at = at
        self._emit_seconds(sink, newest_second - SETTLED_SECONDS)

    def _catch_up(self, newest_second: int) -> None:
        """Nothing is out for longer than others wait for it."""
        if self._over():
            self.come_home()
        newest_us = max((newest_second + 1) * 1_000_000, (self.connection.ts_last_ns or 0) // 1000)
        for beside in self._out.values():
            beside.catch_up(newest_us - _AWAITED_US)

    def _unread(self) -> tuple[int, int] | None:
        """The first packet whose bytes nobody has read yet, and its time: they wait behind a hole, or for more of them
        to find a message in. What they say will have its place before all that was recorded after them. Nobody waits
        for more than two minutes: all that the other side says waits as well."""
        found = [(s.held[0][3], s.held[0][4] // 1000) for s in self.connection.sides if s.held]
        for number, decoder in enumerate(self.directions):
            reader = self._out.get(number, decoder)
            if reader is not None and reader.unread is not None:
                found.append(reader.unread)
        if found:
            since = (self.connection.ts_last_ns or 0) // 1000 - _AWAITED_US
            found = [place for place in found if place[1] >= since]
        return (min(at for at, _ in found), min(ts for _, ts in found)) if found else None

    def _over(self) -> bool:
        """Both sides said that they are done, and all that they sent is here."""
        return all(stream.fin is not None and stream.next_offset >= stream.fin for stream in self.connection.sides)

    def _settle(self) -> None:
        """No byte will come any more, yet packets may for a minute: what only bytes need is let go of."""
        if self.wrapping is not None:
            return
        for decoder in self.directions:
            if decoder is not None:
                decoder.settle()
        if self._judge is not None:
            self._judge.settle()

    def _ready(self, final: bool) -> bool:
        if not self.accepted or self.refusal is not None or not (final or self.connection.named):
            return False
        if self.client is None:
            self._decide_roles(final)
        if self.client is None:
            return False
        fresh = self.uid is None
        if fresh:
            client, server = self.ends[self.client], self.ends[1 - self.client]
            self.uid = make_uid(self._settings.sensor, client, server, (self.connection.ts_first_ns or 0) // 1000)
        if self._settings.uid not in (None, self.uid):
            if final or self.wrapping is None or not self.wrapping.carriers:  # else it may carry the one that is wanted
                self._refuse("filtered")
            for decoder in self.directions:
                if decoder is not None:
                    decoder.take_facts()
            return False
        if fresh and not self._settings.filters_late:
            self._ask_for_show()
        return True

    def _ask_for_show(self) -> None:
        if self._settings.shown is not None and self.shown:
            self.shown = self.session.shown = self._settings.shown(self)

    def direction_name(self, number: int) -> str:
        return "c2s" if number == self.client else "s2c"

    def _emit(self, sink: RowSink, table: str, direction: str, rows: list[Row], ts: int = -1) -> None:
        """Rows of a message table; `ts` is the column that the time filters look at."""
        if not rows or not sink.wants(table):
            return
        if ts >= 0:
            rows = self._in_time(rows, ts)
        if self._stash is not None:
            self._stash.append((table, direction, rows))
        else:
            sink.add_group(table, self.uid or "", direction, rows)

    def _in_time(self, rows: list[Row], ts: int) -> list[Row]:
        settings = self._settings
        if settings.since is None and settings.until is None:
            return rows
        return [row for row in rows if settings.in_time(row[ts])]

    def _collect(self, sink: RowSink) -> None:
        for number, decoder in enumerate(self.directions):
            if decoder is None or not (decoder.facts.passed or decoder.facts.notable):
                continue
            facts = decoder.take_facts()
            self._folded = False
            direction = self.direction_name(number)
            self._emit(sink, "messages", direction, facts.messages, 4)
            self._emit(sink, "controls", direction, facts.controls, 1)
            self._emit(sink, "media_tags", direction, facts.media, 2)
            if facts.payloads:
                told = {place[4] for place in self._in_time(facts.passed, 1)}
                kept = [row for row in self._harmless(facts.payloads, facts.notable) if row[0] in told]
                self._emit(sink, "payloads", direction, kept)
            if self._judge is not None:
                self._judge.passed(direction, facts.passed, facts.firsts)
            if self._settings.frames is not None and facts.media:
                shown = self._in_time(facts.messages, 4), self._in_time(facts.media, 2)  # a lake has no others
                self._settings.frames.collect(self.uid or "", direction, *shown)
            self._media[number] += facts.media
            self._media_at[number] += facts.media_at
            base = self._sequence
            self._notable += [(fact[0], number, i, fact) for i, fact in enumerate(facts.notable, base)]
            self._sequence += len(facts.notable)
            self.seconds[number].add_media(facts.seconds)

    def _harmless(self, payloads: list[Row], notable: list[Notable]) -> list[Row]:
        if self._settings.redactor.keeps_secrets:
            return payloads
        secret = {f.msg_no for f in notable if isinstance(f, CommandFact) and carries_credentials(f.name)}
        return [row for row in payloads if row[0] not in secret]

    def _fold(self, sink: RowSink, up_to: int | None, unread: tuple[int, int] | None = None) -> None:
        """Facts known at packet `up_to` (None: all), both directions in one order, through session and rules. Of what
        was recorded from `unread` on not all is known."""
        if self._folded:
            return
        self._folded = up_to is None
        self._notable.sort()
        waits_at = self._put_off_answers(unread)
        session, names = self.session, (self.direction_name(0), self.direction_name(1))
        if up_to is not None and waits_at is not None:  # else rows would depend on where windows end
            up_to = min(up_to, waits_at - 1)
        cut = len(self._notable) if up_to is None else bisect_right(self._notable, (up_to, 2, 0))
        told, judged = session.notable, None if self._judge is None else self._judge.notable
        done = [0, 0]  # how many media rows of each direction; they go at once, not with each fact of a packet
        media_next = self._media_next(done)
        for at, number, _, fact in self._notable[:cut]:
            if media_next <= at:
                # A fault goes before the media of its packet: it may say that a time there means nothing. So does the
                # handshake; what was said goes where its sender put it.
                said = fact.msg_no if isinstance(fact, (CommandFact, ControlFact, LagFact)) else None
                before = at - 1 if said is not None or type(fact) in (FaultFact, HandshakeFact) else at
                if media_next <= before:
                    self._fold_media(before, done)
                if said is not None:
                    self._fold_media_before(number, at, said, done)
                media_next = self._media_next(done)
            direction = names[number]
            told(direction, fact)
            if judged is not None:
                judged(direction, fact)
        del self._notable[:cut]
        self._fold_media(up_to, done)
        for number, count in enumerate(done):
            if count:
                del self._media[number][:count], self._media_at[number][:count]
        if self._judge is not None:
            self.findings.extend(self._judge.advance(up_to))
        if session.commands:
            for direction in ("c2s", "s2c"):
                self._emit(sink, "commands", direction, session.commands.pop(direction, []), 1)
        if session.found:
            self.findings.extend(session.found)
            session.found = []
        self._match_stream(sink)

    def _put_off_answers(self, unread: tuple[int, int] | None) -> int | None:
        names, newest_us = (self.direction_name(0), self.direction_name(1)), (self.connection.ts_last_ns or 0) // 1000
        beyond: list[tuple[int, int, int, Notable]] = []
        if unread is not None:
            newest_us = min(newest_us, unread[1])
            known = bisect_left(self._notable, (unread[0],))
            beyond, self._notable = self._notable[known:], self._notable[:known]
        waits_at = put_off_answers(
            self._notable, self._media_at, lambda number, fact: self.session.unasked(names[number], fact), newest_us
        )
        if beyond:
            self._notable = sorted(self._notable + beyond)
        return waits_at

    def _media_next(self, done: list[int]) -> int:
        """The packet that made the next media row known, behind those that are done."""
        return min([known[count] for known, count in zip(self._media_at, done) if count < len(known)], default=_NEVER)

    def _fold_media(self, up_to: int | None, done: list[int]) -> None:
        for number in (0, 1):
            known = self._media_at[number]
            self._fold_next_media(
                number, len(known) if up_to is None else bisect_right(known, up_to, done[number]), done
            )

    def _fold_media_before(self, number: int, at: int, msg_no: int, done: list[int]) -> None:
        """What packet `at` made known of a direction's media in messages before this one."""
        rows, known = self._media[number], self._media_at[number]
        cut = done[number]
        while cut < len(rows) and known[cut] == at and rows[cut][0] < msg_no:
            cut += 1
        self._fold_next_media(number, cut, done)

    def _fold_next_media(self, number: int, cut: int, done: list[int]) -> None:
        begin, done[number] = done[number], cut
        if begin < cut:
            rows, known_at = self._media[number][begin:cut], self._media_at[number][begin:cut]
            self.session.media(self.direction_name(number), rows, known_at)

    def _match_stream(self, sink: RowSink) -> None:
        wanted = self._settings.stream
        if self._stash is None or wanted is None:
            return
        if any(self._settings.redactor.matches(wanted, span.name) for span in self.session.spans):
            stash, self._stash = self._stash, None
            for table, direction, rows in stash:
                sink.add_group(table, self.uid or "", direction, rows)

    def _emit_seconds(self, sink: RowSink, before: int | None) -> None:
        if self.uid is None or self._stash is not None:
            return
        for number, seconds in enumerate(self.seconds):
            if seconds.empty:
                continue
            direction = self.direction_name(number)
            rows = seconds.take(self.uid, direction, before)
            if not rows:
                continue
            if self._judge is not None:
                self._judge.seconds(direction, rows)
            since, until = self._settings.since, self._settings.until
            if since is not None:
                rows = [row for row in rows if row[2] + 1_000_000 > since]
            if until is not None:
                rows = [row for row in rows if row[2] <= until]
            sink.add("intervals", rows)

    # -- the end --------------------------------------------------------------------------------------------------

    def rest(self, sink: RowSink) -> None:
        """No window follows for now: what is decoded elsewhere comes home, as if it had been decoded here."""
        if self._out:
            self.come_home()
            self._collect(sink)

    def close(self, sink: RowSink) -> bool:
        """The connection is over, its accounting final; returns whether it gave rows."""
        self.come_home()
        if self.wrapping is not None:
            self.connection.client_randoms = self.wrapping.client_randoms
        if self.wrapping is not None and self.refusal is None:
            self._inside(self.wrapping, self.wrapping.finish())
            self._judge_wrapping()
        if self.refusal is None and self.service is None:
            for number in (0, 1):
                if self._started[number] is None:
                    self._start(number, final=True)
            if self.service is None and self.refusal is None:
                self._nothing_inside()
        if self.refusal is None and not self.accepted:
            self._check(final=True)
        if not self._ready(final=True):
            return False
        self._collect(sink)
        self._fold(sink, None)
        if self._stash is not None:
            self.refusal = "filtered"
            return False
        ending = self._ending()
        since, until = self._settings.since, self._settings.until
        if (since is not None and ending.ts_end < since) or (until is not None and ending.ts_start > until):
            self.refusal = "filtered"
            return False
        self._note_wrapping()
        self._finish_rows(sink, ending)
        if self._settings.closed is not None:
            self._settings.closed(self)
        return True

    def release(self) -> None:
        """It is closed and told. The session and its judge know each other: let them go at once."""
        self.session.judge = self._judge = None

    def _ending(self) -> Ending:
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

    def _note_wrapping(self) -> None:
        if self.wrapping is None:
            return
        for note in (*self.wrapping.take_noted(), *self.wrapping.end_notes()):
            direction = None if note.direction is None else self.direction_name(note.direction)
            frame, ts_ns = note.frame, note.ts_ns
            if frame is None:  # about the connection as a whole
                frame, ts_ns = self.connection.frame_first, self.connection.ts_first_ns
            ts = None if ts_ns is None else ts_ns // 1000
            self.findings.add(Finding(note.code, note.detail, direction=direction, frame=frame, ts=ts))

    def _finish_rows(self, sink: RowSink, ending: Ending) -> None:
        uid = self.uid or ""
        session = self.session
        goodbye = self.wrapping_facts.goodbye_ns
        if goodbye is not None:
            session.torn_down.setdefault("c2s", goodbye // 1000)
        cause = close_cause(ending, session)
        if self._judge is not None:
            cause = self._judge.close_cause(ending, cause)
        self.findings.extend(end_findings(ending, session, cause))
        self._emit_seconds(sink, None)
        if self._judge is not None:
            self._judge.end(ending, cause, self.findings)
        settings = self._settings
        self._ask_for_show()
        if sink.wants("handshakes"):
            sink.add("handshakes", session.handshake.rows(uid))
        sink.add_late("streams", [stream_row(self, settings, span, self.findings) for span in session.spans])
        rows = [r for r in self.findings.rows(uid, settings.catalogue) if settings.in_time(r[11])]
        sink.add_late("endings", [ended(self, ending, cause)])
        if settings.hindsight is None:
            sink.add("findings", rows)
        else:
            sink.add_late("findings", rows)
        if self.shown and sink.wants("connections"):
            sink.add("connections", [connection_row(self, settings, ending, cause)])


def _feed(decoder: DirectionDecoder, item: Item) -> None:
    if isinstance(item, Run):
        decoder.receive_run(item)
    elif isinstance(item, Gap):
        decoder.receive_gap(item)
    elif isinstance(item, Conflict):
        decoder.receive_conflict(item)
    elif isinstance(item, Lost):
        decoder.receive_lost(item)
    elif isinstance(item, End):
        decoder.receive_end()
