"""Rules accept whatever a peer sends, and their state is JSON."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.handmade_facts import frame

from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.conversation.connection_secrets import ConnectionSecrets
from rtmp_spark.conversation.ending import Ending, close_cause
from rtmp_spark.conversation.facts import CommandFact, ControlFact, GapFact, HandshakeFact, Notable, Place
from rtmp_spark.conversation.session import Session
from rtmp_spark.forensics.answer_rules import answer_findings
from rtmp_spark.forensics.connection_rules import ConnectionRules
from rtmp_spark.forensics.ending_rules import end_findings
from rtmp_spark.forensics.fact_rules import fact_findings
from rtmp_spark.forensics.findings import Finding, FindingFold
from rtmp_spark.forensics.streams.stalls import Stall, Stalls
from rtmp_spark.redact import Redactor
from rtmp_spark.schema import column_names

_RULE_ID, _TITLE = column_names("findings").index("rule_id"), column_names("findings").index("title")

NAMES = (
    "connect", "_result", "_error", "createStream", "publish", "play", "seek", "pause", "onStatus", "onMetaData",
    "@setDataFrame", "deleteStream", "closeStream", "releaseStream", "FCPublish", None, "", "x" * 300,
)  # fmt: skip
FIELDS = (
    "code", "level", "description", "fmsVer", "flashVer", "encoder", "width", "height", "framerate", "videocodecid",
    "audiocodecid", "audiosamplerate", "stereo", "fourCcList", "videoFourCcInfoMap", "data", "srs_server",
)  # fmt: skip
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8) | st.just({"$undefined": True}),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
        | st.builds(lambda fields: {"$ecma": fields}, st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4))
    ),
    max_leaves=8,
)
NUMBERS = st.integers(0, 1 << 33)
COMMANDS = st.builds(
    CommandFact, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(0, 2), st.sampled_from([15, 17, 18, 20]),
    st.sampled_from(NAMES), st.none() | st.floats(), st.sampled_from([0, 3]), st.lists(VALUES, max_size=4),
)  # fmt: skip
KINDS = (
    "acknowledgement", "window_ack_size", "ping_request", "ping_response", "set_chunk_size", "set_buffer_length",
    "stream_eof", "stream_begin", "stream_is_recorded", "abort", "unknown_event",
)  # fmt: skip
MAYBE = st.none() | NUMBERS
CONTROLS = st.builds(
    ControlFact, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.sampled_from(KINDS), MAYBE, MAYBE, MAYBE, MAYBE, MAYBE
)
OTHERS = st.builds(
    HandshakeFact, NUMBERS, NUMBERS, NUMBERS, st.integers(0, 2), st.binary(min_size=1, max_size=1536)
) | (st.builds(GapFact, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans(), st.booleans()))
MEDIA = st.builds(
    lambda kind, at, dts, **other: frame(kind, at, dts, **other),
    st.sampled_from(["audio", "video"]), st.integers(0, 10**7), st.integers(0, 1 << 40), track_id=st.integers(0, 255),
    codec=st.sampled_from([None, "avc", "aac", "hvc1", "Opus", "unknown_9"]), size=st.integers(0, 9), width=MAYBE,
    height=MAYBE, sample_rate=MAYBE, enhanced=st.booleans(), stream_id=st.integers(0, 2),
    packet_type=st.sampled_from(["frame", "config", "end", "metadata", "command"]), is_config=st.booleans(),
)  # fmt: skip
STEPS = st.lists(st.tuples(st.sampled_from(["c2s", "s2c"]), COMMANDS | CONTROLS | OTHERS | MEDIA), max_size=30)


def ended() -> Ending:
    """The server closed the connection with FIN, 2 s after the last data."""
    connection = Connection(bytes(36), 0)
    end = 1 << 34
    for stream in connection.sides:
        stream.packets = 1
        stream.delivered_bytes = stream.missed_bytes = 1000
        stream.top_ts_ns, stream.fin_ts_ns = (end - 2_000_000) * 1000, 1 << 43
    streams = {"c2s": connection.sides[0], "s2c": connection.sides[1]}
    return Ending("server", "fin", 0, end, 1, 2, False, streams)


def feed(
    session: Session, rules: ConnectionRules, secrets: ConnectionSecrets, direction: str, step: Any, number: int
) -> list[Finding]:
    found: list[Finding] = []
    if isinstance(step, CommandFact):
        found = answer_findings(session, session.receive_command(direction, step), secrets)
        rules.receive_command(direction, step)
    elif isinstance(step, Notable):
        session.receive(direction, step)
        found = fact_findings(session, direction, step)
        rules.receive(direction, step)
    else:
        for media in session.receive_media(direction, [step], [number]):
            rules.receive_media(media)
    rules.passed(direction, [Place(number, number, number, number + 9, number, number, 3, 9, 1)])
    return found + rules.advance(number)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_rules_accept_any_facts(steps: list[tuple[str, Any]]) -> None:
    redactor = Redactor(b"key")
    session, secrets = Session(), ConnectionSecrets(redactor)
    rules = ConnectionRules(session, secrets)
    findings = FindingFold()
    for number, (direction, step) in enumerate(steps):
        findings.extend(feed(session, rules, secrets, direction, step, number))
        if number == len(steps) // 2:
            saved = json.loads(json.dumps([session.state(secrets), rules.state()]))
            session = Session.resume(saved[0])
            rules = ConnectionRules(session, secrets)
            rules.resume(saved[1])
    ending = ended()
    cause = rules.close_cause(ending, close_cause(ending, session))
    findings.extend(end_findings(ending, session, cause))
    rules.end(ending, cause, findings)
    for row in findings.rows("C"):
        assert row[_RULE_ID] and row[_TITLE]
    for span in session.spans:
        columns = rules.stream_columns(span, findings)
        assert columns.verdict in ("ok", "degraded", "failed", "no_media", "unknown")
    assert rules.client() and rules.server()


class CountingSet(set[int]):
    """Counts lookups, and fails after too many."""

    lookups = 0

    def __contains__(self, second: object) -> bool:
        self.lookups += 1
        assert self.lookups < 1000
        return super().__contains__(second)


def test_a_stall_of_years_is_not_searched_second_by_second() -> None:
    """One wrong bit in the time of a packet causes such a stall."""
    for seconds, cause in ((CountingSet({5}), "the network stalled"), (CountingSet(), "waited at the client")):
        stalls, stall = Stalls(), Stall(0, 1 << 51, 0, 0, None, None)
        stall.lead_ms = 1 << 50
        stalls.begin(stall)
        (finding,) = stalls.findings("c2s", 1, seconds)
        assert cause in finding.detail
