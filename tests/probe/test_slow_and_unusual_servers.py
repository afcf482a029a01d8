"""What is no failure: a late answer, a server that wants media before players, ignores commands of publishers, or
forwards frames in groups."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from kit.broken_relay import GOOD, Variant, running

from rtmp_relay.faults.fault import Fault
from rtmp_relay.frames import Frame
from rtmp_relay.relay.live_stream import LiveStream
from rtmp_spark.codec.command import parse_command
from rtmp_spark.codec.events import MessageReceived
from rtmp_spark.codec.message import AUDIO, COMMANDS, VIDEO
from rtmp_spark.probe.case import Case
from rtmp_spark.probe.case_connections import Probe
from rtmp_spark.probe.catalogue import CASES
from rtmp_spark.probe.outcome import PASSED, Verdict
from rtmp_spark.probe.runner import CaseResult, run_case, run_cases
from rtmp_spark.probe.wire import Silence


@pytest.mark.parametrize(("late", "verdict"), [(True, Verdict.INCONCLUSIVE), (False, Verdict.FAILED)])
def test_an_answer_that_arrives_after_the_timeout_is_no_failure(late: bool, verdict: Verdict) -> None:
    async def arrives(_seconds: float) -> bool:
        return late

    async def script(_probe: Probe) -> None:
        raise Silence("an answer did not arrive", arrives)

    async def run() -> CaseResult:
        async with running(GOOD, 20.0) as target:
            return await run_case(dataclasses.replace(CASES[0], script=script), target)

    assert asyncio.run(run()).verdict is verdict


def unusual(closes_players: bool) -> Variant:
    """As MediaMTX or go2rtc: closes or ignores players before the stream has media, and reads no commands after publish
    or play."""
    with_media = False

    class Unusual(Fault):
        streaming = False

        def received_message(self, message: MessageReceived) -> MessageReceived | None:
            nonlocal with_media
            with_media = with_media or message.type_id in (AUDIO, VIDEO)
            if message.type_id not in COMMANDS:
                return message
            name = parse_command(message.type_id, message.payload).name
            if self.streaming:
                return None
            self.streaming = name in ("publish", "play")
            if name == "play" and not with_media:
                self.closes_connection = closes_players
                return None
            return message

    return Variant(Unusual)


_FEED = LiveStream.feed


def grouping() -> Variant:
    """As SRS: forwards frames in groups, and keeps the last ones until more arrive."""
    waiting: list[Frame] = []

    def feed(self: LiveStream, frame: Frame) -> None:
        waiting.append(frame)
        if len(waiting) > 8:
            for one in waiting:
                _FEED(self, one)
            waiting.clear()

    return Variant(patches=((LiveStream, "feed", feed),))


def results_on(variant: Variant, cases: list[Case]) -> dict[str, CaseResult]:
    async def run(timeout_s: float) -> dict[str, CaseResult]:
        async with running(variant, timeout_s) as target:
            return {result.case.id: result for result in await run_cases(cases, target, 1)}

    results = asyncio.run(run(1.0))
    if any(result.verdict is Verdict.INCONCLUSIVE for result in results.values()):  # this machine was too slow
        results = asyncio.run(run(8.0))
    return results


def test_frames_in_groups_are_no_failure() -> None:
    cases = [case for case in CASES if case.id in ("chunks/26", "media/19", "media/45")]
    results = results_on(grouping(), cases)
    assert {name: (one.verdict, one.detail) for name, one in results.items() if one.verdict is not Verdict.OK} == {}


@pytest.mark.slow
@pytest.mark.parametrize("variant", [unusual(True), unusual(False)], ids=["closes players", "ignores players"])
def test_unusual_servers_pass_cases_about_something_else(variant: Variant) -> None:
    wanted = ("chunks/26", "control/1", "control/3", "commands/30", "commands/57", "media/19", "media/40")
    cases = [case for case in CASES if case.id in wanted]

    results = results_on(variant, cases)
    assert results.pop("commands/57").verdict is Verdict.UNIMPLEMENTED
    assert {name: one.detail for name, one in results.items() if one.verdict not in PASSED} == {}
