"""Acknowledgements and pings in a hand-written conversation."""

from __future__ import annotations

import json

from kit.handmade_facts import control, passed

from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.forensics.acknowledgement_rules import FlowRules
from rtmp_spark.forensics.findings import Finding

CODE = ViolationCode
SECOND = 1_000_000


def conversation(
    *, window: int | None = 1000, acks: dict[int, int] | None = None, bytes_each: int = 500, count: int = 20,
    pause_at: int | None = None, resume: bool = False, silence_us: int = 0, teardown: bool = False,
) -> list[Finding]:  # fmt: skip
    """The client sends `count` messages, one packet and 10 ms each; `acks` maps packets to acknowledged bytes."""
    flow = FlowRules()
    found: list[Finding] = []
    if window is not None:
        found += flow.control("c2s", control("window_ack_size", window, at=0))
    ts = 0
    for at in range(1, count + 1):
        ts += 3 * SECOND if at == pause_at else 10_000
        flow.passed("c2s", [passed(at, ts, (at - 1) * bytes_each, at * bytes_each)])
        if acks and at in acks:
            found += flow.control("s2c", control("acknowledgement", acks[at], at=at, ts=ts))
        flow.advance(at)
        if resume:
            again = FlowRules()
            again.resume(json.loads(json.dumps(flow.state())))
            flow = again
    total = {"c2s": count * bytes_each, "s2c": 0}
    is_settled = flow.is_settled
    at_end = flow.end(
        {"c2s": ts + silence_us, "s2c": ts + silence_us}, {"c2s": silence_us, "s2c": None}, total, teardown
    )
    assert not (is_settled and at_end), "what is settled gives nothing at the end"
    return found + at_end


def test_nothing_to_judge_is_settled() -> None:
    flow = FlowRules()
    flow.control("c2s", control("window_ack_size", 1000, at=0))
    flow.passed("c2s", [passed(1, 10_000, 0, 500)])
    assert not flow.is_settled
    flow.advance(1)
    assert flow.is_settled
    flow.control("s2c", control("ping_request", 5, at=2))
    assert not flow.is_settled


def test_timely_acknowledgements() -> None:
    assert conversation(acks={at: at * 500 for at in range(2, 21, 2)}) == []


def test_without_a_window_nothing_is_reported() -> None:
    assert conversation(window=None) == []


def test_two_windows_without_an_acknowledgement() -> None:
    """Messages start every 500 bytes: the sixth starts at 2500, after two windows of 1000."""
    (finding,) = conversation()
    assert finding.code is CODE.FLOW_ACK_STARVED and finding.severity is None
    assert finding.at_fault == "server" and finding.msg_no == 6
    assert "9500 bytes" in finding.detail


def test_it_is_an_error_if_the_sender_stopped() -> None:
    (finding,) = conversation(pause_at=10)
    assert finding.severity is Severity.ERROR
    (finding,) = conversation(silence_us=2 * SECOND)
    assert finding.severity is Severity.ERROR
    (finding,) = conversation(silence_us=2 * SECOND, teardown=True)
    assert finding.severity is None


def test_an_acknowledgement_ends_the_wait() -> None:
    found = conversation(acks={10: 5000})
    assert [f.code for f in found] == [CODE.FLOW_ACK_STARVED, CODE.FLOW_ACK_STARVED]
    assert [f.msg_no for f in found] == [6, 15]


def test_an_acknowledgement_of_unsent_bytes() -> None:
    found = conversation(acks={1: 500, 3: 1500, 5: 2500, 7: 100_000, 8: 100_001}, count=8)
    assert [f.code for f in found] == [CODE.FLOW_ACK_EARLY, CODE.FLOW_ACK_EARLY]


def test_a_message_in_flight_counts_completely() -> None:
    """The receiver acknowledges 1500 bytes and a part of the fourth message."""
    assert conversation(acks={1: 500, 3: 1999, 5: 2500}, count=6) == []


def test_acknowledgements_that_go_backwards() -> None:
    found = conversation(acks={2: 1000, 4: 900, 6: 3000}, count=7)
    assert [f.code for f in found] == [CODE.FLOW_ACK_BACKWARDS]
    assert "900 bytes after one of 1000" in found[0].detail


def test_acknowledgements_may_wrap_and_restart() -> None:
    flow = FlowRules()
    for before, after in ((0xFFFF_FF00, 300), (0xF000_0001, 0)):
        flow = FlowRules()
        assert flow.control("s2c", control("acknowledgement", before)) == []
        assert flow.control("s2c", control("acknowledgement", after)) == []


def test_resumed_rules_continue_like_the_original() -> None:
    for arguments in ({}, {"pause_at": 10}, {"acks": {10: 5000}}, {"acks": {7: 100_000}, "count": 8}):
        assert conversation(**arguments, resume=True) == conversation(**arguments)  # type: ignore[arg-type]


def pinged(response: int | None, end_us: int) -> list[Finding]:
    flow = FlowRules()
    flow.control("s2c", control("ping_request", event_value=7, ts=0))
    if response is not None:
        flow.control("c2s", control("ping_response", event_value=response, ts=10))
    return flow.end({"c2s": 9 * SECOND, "s2c": end_us}, {"c2s": 0, "s2c": 0}, {"c2s": 0, "s2c": 0}, False)


def test_pings() -> None:
    assert pinged(7, 9 * SECOND) == []
    assert pinged(None, SECOND // 2) == []  # the response may be in flight
    (finding,) = pinged(None, 9 * SECOND)
    assert finding.code is CODE.CTRL_PING_UNANSWERED and finding.at_fault == "client"


def test_a_response_may_be_in_missing_data() -> None:
    flow = FlowRules()
    flow.control("s2c", control("ping_request", event_value=7, ts=0))
    flow.gap("c2s", 0)
    assert flow.end({"c2s": 9 * SECOND, "s2c": 9 * SECOND}, {"c2s": 0, "s2c": 0}, {"c2s": 0, "s2c": 0}, False) == []


def test_a_sender_that_waited_for_an_acknowledgement_stopped() -> None:
    """The Acknowledgement arrives 3 s after the last message."""
    flow = FlowRules()
    flow.control("c2s", control("window_ack_size", 1000, at=0))
    flow.passed("c2s", [passed(at, at * 10_000, (at - 1) * 500, at * 500) for at in range(1, 8)])
    flow.advance(7)
    (finding,) = flow.control("s2c", control("acknowledgement", 3500, at=8, ts=70_000 + 3 * SECOND))
    assert finding.severity is Severity.ERROR and "stopped" in finding.detail
    assert flow.waits("c2s") == [(70_000, 70_000 + 3 * SECOND)] and flow.waits("s2c") == []
