"""Why a Spark job failed: a fault of the machine, or of the input.

A fault of the machine (a missing or unreadable file, a full disk, too little memory, a lost executor, a store that
throttles) fails the ingest, which publishes nothing; the next run tries again. The death of a worker is the fault of an
input only if a worker dies again when it processes that input alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_WORKER_DIED = "Python worker exited"
_IN_PYTHON = (_WORKER_DIED, "PYTHON_EXCEPTION", "Traceback (most recent call")
_INPUT = re.compile(r"(?:[\w.]*\.)?InputFault\b")  # see rtmp_spark.ingest.input_fault
_OWN_ERROR = re.compile(r"^rtmp_spark\.[\w.]+: ")  # the text of our own errors needs no class name
_WITH_REMEDY = re.compile(r"rtmp_spark\.[\w.]+\.(?:UserError|LakeFault|LostRace): ")
_REASON_LENGTH = 300
_MACHINE_WORDS = ("No space left", "MemoryError: JVM", "ExecutorLostFailure", "Cannot allocate memory")


def reason(error: BaseException) -> str:
    """The last line of the Python traceback in a Spark error, else the last cause in Java, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(_WORKER_DIED in line for line in lines):
        return "the Python worker died"
    raised = _raised(lines)
    causes = [found[1] for x in lines if (found := re.match(r"(?:Caused by)?: (?:[\w.$]+: )?(\S.*)", x))]
    if not raised and causes and lines[0].startswith("An error occurred while calling"):
        raised = causes
    text = (raised or lines or [type(error).__name__])[-1 if raised else 0]
    return _OWN_ERROR.sub("", text)[:_REASON_LENGTH].rstrip(".")


def states_remedy(error: BaseException) -> bool:
    """True if the reason of a failed Spark job is a sentence of ours, which ends with its remedy."""
    raised = _raised([line.strip() for line in str(error).splitlines()])
    return bool(raised and _WITH_REMEDY.match(raised[-1]))


def is_inputs_fault(error: BaseException) -> bool:
    """True if a Python worker died, or if the decoder raised an error."""
    text = str(error)
    if not any(word in text for word in _IN_PYTHON) or any(word in text for word in _MACHINE_WORDS):
        return False
    return _WORKER_DIED in text or any(_INPUT.match(line.strip()) for line in text.splitlines())


def _raised(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception|Interrupt|Changed|Fault|Race)\b", line)]


def run_isolating(
    run: Callable[[Sequence[Item]], Result], items: Sequence[Item]
) -> tuple[list[Result], list[tuple[Item, str]]]:
    """The results of `run` over all items, and the items that kill their worker, with the reason.

    After a death the items are halved until an item that kills its worker is alone; it then gets a second attempt.
    If every item does, the machine is at fault, for example because the executors have another version of this package.
    """
    results, culprits = _halved(run, items)
    if len(culprits) == len(items) > 1:
        raise OSError(f"every part of the input kills its worker ({culprits[0][1]})")
    return results, culprits


def _halved(
    run: Callable[[Sequence[Item]], Result], items: Sequence[Item], attempts: int = 2
) -> tuple[list[Result], list[tuple[Item, str]]]:
    """`attempts`: how often an item that is alone is tried."""
    try:
        return [run(items)], []
    except Exception as error:
        if not is_inputs_fault(error):
            raise
        if len(items) == attempts == 1:
            return [], [(items[0], reason(error))]
    if len(items) == 1:
        return _halved(run, items, attempts - 1)
    results: list[Result] = []
    culprits: list[tuple[Item, str]] = []
    half = len(items) // 2
    for part in (items[:half], items[half:]):
        more, dead = _halved(run, part)
        results += more
        culprits += dead
    return results, culprits
