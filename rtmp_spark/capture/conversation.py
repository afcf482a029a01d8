"""Both directions of one connection: from TCP items to facts in one order of time, roles, and rows.

It finds out what the connection speaks and drops what is no RTMP, decides who is client (by SYN, else by what is
said), gives the connection its uid, puts the facts of both directions into one order and hands them to the session
fold and to the rules. Rows leave through a RowSink, batched across connections. Bytes are decoded in direction.py,
meaning is made in session.py; here they are only brought together.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from rtmp_spark.capture.closing import Ending, close_cause, end_findings
from rtmp_spark.capture.direction import DirectionDecoder, MessageHook
from rtmp_spark.capture.facts import FRAME_BITS, CommandFact, ControlFact, HandshakeFact, Notable, Row
from rtmp_spark.capture.findings import Catalogue, FindingFold, Rule, plain_entry
from rtmp_spark.capture.redact import Redactor, carries_credentials
from rtmp_spark.capture.rows import RowSink
from rtmp_spark.capture.seconds import SETTLED_SECONDS, Seconds
from rtmp_spark.capture.service import PREFIX_BYTES, RTMP, RTMP_PORTS, RTMPE, Start, recognise
from rtmp_spark.capture.session import Session, StreamSpan
from rtmp_spark.capture.tcp import Conflict, Connection, End, Gap, Item, Run
from rtmp_spark.codec.errors import Severity
from rtmp_spark.codec.handshake import PACKET_SIZE
from rtmp_spark.codec.limits import DEFAULT_LIMITS, Limits

UNDECIDED_BYTES = 512 << 10  # of one direction, before a connection that shows no RTMP is dropped
ROLE_MESSAGES = 64  # messages that may pass before the ports decide who is client
_CLIENT_SAYS = frozenset(
    {
        "connect", "createStream", "releaseStream", "FCPublish", "FCUnpublish", "FCSubscribe", "publish", "play", "play2",
        "pause", "seek", "deleteStream", "closeStream", "receiveAudio", "receiveVideo", "getStreamLength", "_checkbw",
        "@setDataFrame", "@clearDataFrame", "set_buffer_length", "ping_response", "swf_verify_response",
    }
)  # fmt: skip
_SERVER_SAYS = frozenset(
    {
        "_result", "_error", "onStatus", "onBWDone", "onFCPublish", "onFCUnpublish", "onFCSubscribe", "|RtmpSampleAccess",
        "stream_begin", "stream_eof", "stream_dry", "stream_is_recorded", "ping_request", "swf_verify_request",
        "buffer_empty", "buffer_ready",
    }
)  # fmt: skip

RuleFactory = Callable[[], Rule]


@dataclass
class Settings:
    """What a recording wants to know and how."""

    sensor: str = ""
    limits: Limits = DEFAULT_LIMITS
    redactor: Redactor = field(default_factory=lambda: Redactor(None))
    keep_payloads: bool = False
    rules: Sequence[RuleFactory] = ()
    catalogue: Catalogue = plain_entry
    hook: Callable[[Conversation, int], MessageHook | None] | None = None  # sees every message of a direction
    closed: Callable[[Conversation], None] | None = None  # sees every connection that gave rows, at its end
    uid: str | None = None
    host: str | None = None
    port: int | None = None
    stream: str | None = None
    since: int | None = None  # microseconds
    until: int | None = None


def make_uid(sensor: str, client: tuple[str, int], server: tuple[str, int], ts_start: int) -> str:
    text = "\n".join([sensor, client[0], str(client[1]), server[0], str(server[1]), str(ts_start)])
    return "C" + base64.b32encode(hashlib.sha256(text.encode()).digest()).decode()[:20]


def community_id(a: tuple[str, int], b: tuple[str, int]) -> str:
    """Community ID v1 with seed 0: the same for both directions, as Zeek and Suricata write it."""
    ends = sorted((ip_address(host).packed, port) for host, port in (a, b))
    text = b"\0\0" + ends[0][0] + ends[1][0] + b"\x06\0" + ends[0][1].to_bytes(2, "big") + ends[1][1].to_bytes(2, "big")
    return "1:" + base64.b64encode(hashlib.sha1(text).digest()).decode()


class Conversation:
    """One connection. Feed it items, ask it to `advance` after each window, and to `close` at its end."""

    __slots__ = (
        "_at", "_findings", "_held", "_media", "_media_at", "_notable", "_rules", "_sequence", "_settings", "_started", "_stash",
        "accepted", "bytes_in", "client", "connection", "directions", "refusal", "seconds", "service", "session", "uid",
    )  # fmt: skip

    def __init__(self, connection: Connection, settings: Settings) -> None:
        self.connection = connection
        self._settings = settings
        self.service: str | None = None
        self.refusal: str | None = None  # why it gives no rows
        self.accepted = False
        self.client: int | None = None if connection.midstream else 0
        self.uid: str | None = None
        self.directions: list[DirectionDecoder | None] = [None, None]
        self.bytes_in = [0, 0]
        self._held: list[list[Item]] = [[], []]  # until it is known how to read them
        self._started: list[Start | None] = [None, None]
        self.session = Session(settings.redactor)
        self._rules = [make() for make in settings.rules]
        self._findings = FindingFold()
        self._notable: list[tuple[int, int, int, Notable]] = []  # at, direction, sequence, fact
        self._media: list[list[Row]] = [[], []]
        self._media_at: list[list[int]] = [[], []]
        self._sequence = 0
        self._at = 0
        self.seconds = [Seconds(), Seconds()]
        self._stash: list[tuple[str, str, list[Row]]] | None = [] if settings.stream is not None else None
        host, port = settings.host, settings.port
        ends = (connection.a, connection.b)
        if (host is not None and host not in (ends[0][0], ends[1][0])) or (
            port is not None and port not in (ends[0][1], ends[1][1])
        ):
            self._refuse("filtered")

    # -- what arrives -------------------------------------------------------------------------------------------

    def receive(self, item: Item) -> None:
        if self.refusal is not None:
            return
        number = item.direction
        if isinstance(item, Run):
            self.bytes_in[number] += len(item.data)
        decoder = self.directions[number]
        if decoder is not None:
            _feed(decoder, item)
        elif self.service is None or self.service in (RTMP, RTMPE):
            self._held[number].append(item)
            self._start(number, final=isinstance(item, End))

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
        return b"".join(pieces)[:PREFIX_BYTES], first == 0 and self.connection.streams[number].syn

    def _start(self, number: int, final: bool) -> None:
        """Try to find out how to read a direction; once known, feed it what was held."""
        if self._started[number] is None:
            prefix, from_start = self._prefix(number)
            port = min(self.connection.a[1], self.connection.b[1])
            self._started[number] = recognise(prefix, from_start=from_start, final=final, port=port)
        start, other = self._started[number], self._started[1 - number]
        if start is None:
            return
        if start.service is None:
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

    def _not_recognised(self, number: int, start: Start, other: Start | None) -> None:
        if start.refusal == "no data":
            if other is not None and other.service is None:
                self._refuse("no data")
            return
        if start.refusal != "unknown":
            self._refuse(start.refusal or "unknown")
        elif other is not None and other.service == RTMP and other.phase == "handshake":
            self._begin_direction(number, "handshake")  # the peer answers as RTMP does: a wrong version byte
        elif other is not None or self.bytes_in[number] > UNDECIDED_BYTES:
            self._refuse("unknown")

    def _begin_direction(self, number: int, phase: str) -> None:
        settings = self._settings
        hook = settings.hook(self, number) if settings.hook is not None else None
        decoder = DirectionDecoder(phase, limits=settings.limits, keep_payloads=settings.keep_payloads, hook=hook)
        self.directions[number] = decoder
        held, self._held[number] = self._held[number], []
        for item in held:
            _feed(decoder, item)

    def _refuse(self, why: str) -> None:
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
            on_port = bool(RTMP_PORTS & {self.connection.a[1], self.connection.b[1]})
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
        """Without a SYN: the first telling word, else the ports."""
        told: list[tuple[int, int]] = []  # at, number of the client's direction
        seen = 0
        for number, decoder in enumerate(self.directions):
            if decoder is None:
                continue
            seen = max(seen, decoder.messages_seen)
            for fact in decoder.facts.notable:
                word = None
                if isinstance(fact, CommandFact):
                    word = fact.name
                elif isinstance(fact, ControlFact):
                    word = fact.kind
                elif isinstance(fact, HandshakeFact) and fact.part == 0:
                    told.append((fact.at, number))  # the client speaks first; sorting finds it
                    break
                if word is None or fact.msg_no >= ROLE_MESSAGES:  # type: ignore[union-attr]
                    continue
                if word in _CLIENT_SAYS or word in _SERVER_SAYS:
                    told.append((fact.at, number if word in _CLIENT_SAYS else 1 - number))
                    break
        if told:
            self.client = min(told)[1]
        elif final or seen >= ROLE_MESSAGES or self.service not in (RTMP, None):
            a, b = self.connection.a[1], self.connection.b[1]
            known = [number for number, port in ((1, a), (0, b)) if port in RTMP_PORTS]
            self.client = known[0] if len(known) == 1 else (0 if a >= b else 1)

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
        self._collect(sink)
        self._fold(sink, self._at)
        self._at = at
        self._emit_seconds(sink, newest_second - SETTLED_SECONDS)

    def _ready(self, final: bool) -> bool:
        if not self.accepted or self.refusal is not None:
            return False
        if self.client is None:
            self._decide_roles(final)
        if self.client is None:
            return False
        if self.uid is None:
            ends = (self.connection.a, self.connection.b)
            client, server = ends[self.client], ends[1 - self.client]
            self.uid = make_uid(self._settings.sensor, client, server, self.connection.ts_first_ns // 1000)
            if self._settings.uid is not None and self._settings.uid != self.uid:
                self._refuse("filtered")
                return False
        return True

    def direction_name(self, number: int) -> str:
        return "c2s" if number == self.client else "s2c"

    def _emit(self, sink: RowSink, table: str, direction: str, rows: list[Row], ts: int = -1) -> None:
        """Rows of a message table; `ts` is the column that the time filters look at."""
        if not rows or not sink.wants(table):
            return
        since, until = self._settings.since, self._settings.until
        if ts >= 0 and (since is not None or until is not None):
            low, high = since or 0, until if until is not None else 1 << 62
            rows = [row for row in rows if low <= row[ts] <= high]
        if self._stash is not None:
            self._stash.append((table, direction, rows))
        else:
            sink.add_group(table, self.uid or "", direction, rows)

    def _collect(self, sink: RowSink) -> None:
        for number, decoder in enumerate(self.directions):
            if decoder is None:
                continue
            facts = decoder.take_facts()
            direction = self.direction_name(number)
            self._emit(sink, "messages", direction, facts.messages, 4)
            self._emit(sink, "controls", direction, facts.controls, 1)
            self._emit(sink, "media_tags", direction, facts.media, 2)
            if facts.payloads:
                self._emit(sink, "payloads", direction, self._harmless(facts.payloads, facts.notable))
            self._media[number] += facts.media
            self._media_at[number] += facts.media_at
            base = self._sequence
            self._notable += [(fact.at, number, base + i, fact) for i, fact in enumerate(facts.notable)]
            self._sequence += len(facts.notable)
            self.seconds[number].add_media(facts.seconds)

    def _harmless(self, payloads: list[Row], notable: list[Notable]) -> list[Row]:
        if self._settings.redactor.keeps_secrets:
            return payloads
        secret = {f.msg_no for f in notable if isinstance(f, CommandFact) and carries_credentials(f.name)}
        return [row for row in payloads if row[0] not in secret]

    def _fold(self, sink: RowSink, up_to: int | None) -> None:
        """Facts known at packet `up_to` (None: all), both directions in one order, through session and rules."""
        self._notable.sort()
        cut = len(self._notable) if up_to is None else bisect_right(self._notable, (up_to, 2, 0))
        session = self.session
        for at, number, _, fact in self._notable[:cut]:
            self._fold_media(at)
            direction = self.direction_name(number)
            session.notable(direction, fact)
            for rule in self._rules:
                self._findings.extend(rule.notable(direction, fact))
        del self._notable[:cut]
        self._fold_media(up_to)
        for direction, rows in session.commands.items():
            if rows:
                session.commands[direction] = []
                self._emit(sink, "commands", direction, rows, 1)
        if session.found:
            self._findings.extend(session.found)
            session.found = []
        self._match_stream(sink)

    def _fold_media(self, up_to: int | None) -> None:
        for number in (0, 1):
            known = self._media_at[number]
            if not known or (up_to is not None and known[0] > up_to):
                continue
            cut = len(known) if up_to is None else bisect_right(known, up_to)
            rows = self._media[number][:cut]
            del self._media[number][:cut], known[:cut]
            direction = self.direction_name(number)
            self.session.media(direction, rows)
            for rule in self._rules:
                self._findings.extend(rule.media(direction, rows))

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
        for number in (0, 1):
            rows = self.seconds[number].take(self.uid, self.direction_name(number), before)
            since, until = self._settings.since, self._settings.until
            if since is not None:
                rows = [row for row in rows if row[2] + 1_000_000 > since]
            if until is not None:
                rows = [row for row in rows if row[2] <= until]
            sink.add("intervals", rows)

    # -- the end --------------------------------------------------------------------------------------------------

    def close(self, sink: RowSink) -> bool:
        """The connection is over, its accounting final; returns whether it gave rows."""
        if self.refusal is None and self.service is None:
            for number in (0, 1):
                if self._started[number] is None:
                    self._start(number, final=True)
            if self.service is None and self.refusal is None:
                self._refuse("no data")
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
        self._finish_rows(sink, ending)
        if self._settings.closed is not None:
            self._settings.closed(self)
        return True

    def _ending(self) -> Ending:
        connection = self.connection
        client = self.client or 0
        closed_by = None
        if connection.closed_by is not None:
            closed_by = "client" if connection.closed_by == client else "server"
        streams = {"c2s": connection.streams[client], "s2c": connection.streams[1 - client]}
        return Ending(
            closed_by, connection.close_kind, connection.ts_first_ns // 1000, connection.ts_last_ns // 1000,
            connection.frame_last, connection.midstream, streams,
        )  # fmt: skip

    def _finish_rows(self, sink: RowSink, ending: Ending) -> None:
        uid = self.uid or ""
        session = self.session
        cause = close_cause(ending, session)
        self._findings.extend(end_findings(ending, session, cause))
        for rule in self._rules:
            self._findings.extend(rule.end(ending))
        self._emit_seconds(sink, None)
        handshake = session.handshake_row(uid)
        if handshake is not None:
            sink.add("handshakes", [handshake])
        sink.add_late("streams", [self._stream_row(span) for span in session.spans])
        rows = self._findings.rows(uid, self._settings.catalogue)
        low, high = self._settings.since or 0, self._settings.until or 1 << 62
        sink.add("findings", [row for row in rows if row[11] is None or low <= row[11] <= high])
        sink.add("connections", [self._connection_row(ending, cause)])

    def _connection_row(self, ending: Ending, cause: str) -> Row:
        connection, session, redact = self.connection, self.session, self._settings.redactor
        client = self.client or 0
        ends = (connection.a, connection.b)
        (orig_h, orig_p), (resp_h, resp_p) = ends[client], ends[1 - client]
        files = list(range(connection.frame_first >> FRAME_BITS, (connection.frame_last >> FRAME_BITS) + 1))
        both = (ending.streams["c2s"], ending.streams["s2c"])
        silence = [ending.silence_us(d) for d in ("c2s", "s2c")]
        counted: list[Any] = []
        for name in (
            "packets", "captured_bytes", "delivered_bytes", "duplicate_bytes", "conflict_bytes", "skipped_bytes",
            "missed_bytes", "retransmitted_bytes", "out_of_order_packets",
        ):  # fmt: skip
            counted += [int(getattr(stream, name)) for stream in both]
        names = dict.fromkeys(redact.stream_name(s.name) for s in session.spans if s.name is not None)
        return (
            self.uid, files, orig_h, orig_p, resp_h, resp_p, ending.ts_start, ending.ts_end, self._settings.sensor,
            connection.vlan, community_id(connection.a, connection.b), self.service, connection.midstream,
            ending.closed_by, ending.close_kind, cause, *[None if s is None else s // 1000 for s in silence],
            *[stream.unacked_bytes for stream in both], *counted,
            session.app and redact.parameters(session.app),
            session.tc_url and redact.text(session.tc_url, session.known_secrets),
            session.flash_ver, session.server_ver, None, list(names),
        )  # fmt: skip

    def _stream_row(self, span: StreamSpan) -> Row:
        session, redact = self.session, self._settings.redactor
        verdict, rule, text = self._verdict(span)
        startup = None if span.first_media is None else (span.first_media - span.ts_start) / 1000
        return (
            self.uid, span.stream_id, span.direction, session.app and redact.parameters(session.app),
            span.name and redact.stream_name(span.name), span.role, 1, None, None, span.ts_start, span.ts_end,
            span.audio, span.video, span.bytes, span.video_codec, None, span.audio_codec, None, span.width, None,
            span.height, None, None, None, None, None, None, None, span.sample_rate, None, span.channels, None,
            None, None, None, None, startup, span.first_key, None, None, session.gaps[span.direction], verdict, rule,
            text,
        )  # fmt: skip

    def _verdict(self, span: StreamSpan) -> tuple[str, str | None, str | None]:
        if span.refused:
            return "failed", "CMD_REFUSED", f"the {span.role} was refused"
        if not span.audio + span.video:
            return "no_media", None, "no media came"
        severities = self._findings.severities()
        if Severity.ERROR in severities:
            return "degraded", None, "there are errors among the findings"
        if self.session.gaps[span.direction]:
            return "degraded", "TCP_GAP", "the recording lacks bytes of it"
        return "ok", None, None


def _feed(decoder: DirectionDecoder, item: Item) -> None:
    if isinstance(item, Run):
        decoder.receive_run(item)
    elif isinstance(item, Gap):
        decoder.receive_gap(item)
    elif isinstance(item, Conflict):
        decoder.receive_conflict(item)
    elif isinstance(item, End):
        decoder.receive_end()
