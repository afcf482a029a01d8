"""Whatever a peer says, the rules end in findings and a state that JSON can hold."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rulekit import frame

from rtmp_spark.capture.facts import CommandFact, ControlFact, GapFact, HandshakeFact, Notable
from rtmp_spark.capture.findings import FindingFold
from rtmp_spark.capture.redact import Redactor
from rtmp_spark.capture.session import Session
from rtmp_spark.forensics.catalogue import entry
from rtmp_spark.forensics.judge import Judge
from rtmp_spark.forensics.stalls import Stall, Stalls

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


class Ended:
    """The end of a connection, as far as rules look at it."""

    closed_by, close_kind, midstream, ts_end, ts_start = "server", "fin", False, 1 << 34, 0

    class Stream:
        delivered_bytes = missed_bytes = 1000
        fin_ts_ns = 1 << 43

    streams: dict[str, Any] = {"c2s": Stream, "s2c": Stream}  # noqa: RUF012

    def recorded(self, direction: str) -> bool:
        return True

    def silence_us(self, direction: str) -> int | None:
        return 2_000_000


def fed(session: Session, judge: Judge, findings: FindingFold, direction: str, step: Any, number: int) -> None:
    if isinstance(step, Notable):
        session.notable(direction, step)
        judge.notable(direction, step)
    else:
        session.media(direction, [step], [number])
    judge.passed(direction, [(number, number, number, number + 9, number, number, 3, 9, 1)])
    findings.extend(judge.advance(number))


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_any_conversation_is_judged(steps: list[tuple[str, Any]]) -> None:
    session = Session(Redactor(b"key"))
    judge = Judge(session)
    session.judge = judge
    findings = FindingFold()
    for number, (direction, step) in enumerate(steps):
        fed(session, judge, findings, direction, step, number)
        if number == len(steps) // 2:
            kept = json.loads(json.dumps([session.state(), judge.state()]))
            session = Session.resume(kept[0], Redactor(b"key"), True, Judge)
            assert isinstance(session.judge, Judge)
            judge = session.judge
            judge.resume(kept[1])
    cause = judge.close_cause(Ended(), "unknown")
    judge.end(Ended(), cause, findings)
    for row in findings.rows("C", entry):
        assert row[0] and row[14]
    for span in session.spans:
        columns = judge.stream_columns(span, findings)
        assert columns["verdict"] in ("ok", "degraded", "failed", "no_media", "unknown")
    assert judge.client() and judge.server()


class Asked(set[int]):
    """Seconds that count how often they are asked for."""

    times = 0

    def __contains__(self, second: object) -> bool:
        self.times += 1
        assert self.times < 1000
        return super().__contains__(second)


def test_a_pause_of_years_is_not_looked_through_second_by_second() -> None:
    """One wrong bit in the time of a packet makes one."""
    for seconds, told in ((Asked({5}), "the network held it up"), (Asked(), "the sender held it back")):
        stalls, stall = Stalls(), Stall(0, 1 << 51, 0, 0, None, None)
        stall.lead_ms = 1 << 50
        stalls.begin(stall)
        (finding,) = stalls.findings("c2s", 1, seconds)
        assert told in finding.detail
