"""Runs cases against a server: some at a time, each with its own connections and a bound on its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .case import Case
from .case_connections import Probe
from .outcome import Failed, Inconclusive, Outcome, Result, Unreachable, Verdict
from .transcript import Transcript
from .wire import Silence, Target

TIMEOUTS_PER_CASE = 8  # how many answers a case may wait for in vain, at most


@dataclass(frozen=True)
class CaseResult:
    case: Case
    verdict: Verdict
    detail: str
    milliseconds: int
    sent: tuple[str, ...]
    received: tuple[str, ...]
    capture: str | None = None  # file name
    unreachable: bool = False  # the server accepted no connection any more

    def to_json(self) -> dict[str, object]:
        case = self.case
        return {
            "id": case.id,
            "section": case.section,
            "title": case.title,
            "level": case.level.value,
            "clause": case.clause,
            "requirement": case.requirement,
            "expected": case.expected,
            "rationale": case.rationale,
            "verdict": self.verdict.value,
            "detail": self.detail,
            "milliseconds": self.milliseconds,
            "sent": list(self.sent),
            "received": list(self.received),
            "capture": self.capture,
        }


async def run_case(case: Case, target: Target, captures: Path | None = None) -> CaseResult:
    transcript = Transcript(captures is not None, target.secrets)
    probe = Probe(target, case.id, transcript)
    started = time.monotonic()
    unreachable = False
    try:
        outcome = await asyncio.wait_for(_judge(case, probe), target.timeout_s * TIMEOUTS_PER_CASE)
    except asyncio.TimeoutError:
        outcome = Outcome(Verdict.INCONCLUSIVE, "the case took too long")
    except Unreachable as error:
        outcome, unreachable = Outcome(Verdict.INCONCLUSIVE, str(error)), True
    milliseconds = round((time.monotonic() - started) * 1000)
    await probe.finish()
    result = case_result(case, outcome, milliseconds, transcript, captures)
    return replace(result, unreachable=unreachable)


def case_result(
    case: Case, outcome: Outcome, milliseconds: int, transcript: Transcript, captures: Path | None
) -> CaseResult:
    """The result of a case; its packets are written to the directory `captures`."""
    verdict, detail = outcome
    name = None
    if captures is not None:
        name = f"{case.section}-{case.number:02d}.pcapng"
        about = [f"{case.id} {case.title}", f"{case.level.value} {case.clause}: {case.requirement or case.expected}"]
        transcript.save(captures / name, [*about, f"{verdict.value}: {detail}".rstrip(": ")])
    return CaseResult(
        case, verdict, detail, milliseconds, tuple(transcript.sent), tuple(transcript.received), name
    )  # fmt: skip


async def _judge(case: Case, probe: Probe) -> Outcome:
    async def on_silence(silence: Silence) -> Outcome:
        took_ms = await probe.confirm(silence)
        return Outcome(Verdict.FAILED, f"{silence}, while a new connection was answered in {took_ms} ms")

    return await outcome_of(case.script(probe), on_silence)


async def outcome_of(script: Awaitable[Result], on_silence: Callable[[Silence], Awaitable[Outcome]]) -> Outcome:
    """How a script ends. Raises Unreachable."""
    try:
        try:
            return await script or Outcome(Verdict.OK)
        except Silence as silence:
            return await on_silence(silence)
    except Failed as error:
        return Outcome(Verdict.FAILED, str(error))
    except Unreachable:
        raise
    except Inconclusive as error:
        return Outcome(Verdict.INCONCLUSIVE, str(error))
    except Exception as error:  # a mistake in one script must not end the run
        return Outcome(Verdict.INCONCLUSIVE, f"error in the script: {type(error).__name__}: {error}")


async def run_cases(
    cases: Sequence[Case],
    target: Target,
    jobs: int,
    captures: Path | None = None,
    on_result: Callable[[CaseResult], None] = lambda _: None,
) -> list[CaseResult]:
    """Run cases, `jobs` at a time; hostile ones alone and last. Returns the results in the order of the cases.

    If the server accepts no connection any more, the remaining cases are not run.
    """
    if captures is not None:
        captures.mkdir(parents=True, exist_ok=True)
    results: dict[str, CaseResult] = {}
    dead = False
    free = asyncio.Semaphore(jobs)

    async def one(case: Case) -> None:
        nonlocal dead
        async with free:
            if dead:
                text = "not run: the server accepts no connection any more"
                result = CaseResult(case, Verdict.INCONCLUSIVE, text, 0, (), (), None, True)
            else:
                result = await run_case(case, target, captures)
                dead = dead or result.unreachable
            results[case.id] = result
            on_result(result)

    await asyncio.gather(*(one(case) for case in cases if not case.hostile))
    for case in cases:
        if case.hostile:
            await one(case)
    return [results[case.id] for case in cases]
