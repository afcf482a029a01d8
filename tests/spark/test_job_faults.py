"""Which failed jobs are faults of the machine, and the one sentence about each. Texts as Spark 4.2 prints them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rtmp_spark.spark.job_faults import is_inputs_fault, reason, run_isolating, states_remedy

TRACEBACK = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "tasks.py", line 60, in decode_bucket
    decoder.batches()
{}
"""
DIED = (
    "Job aborted due to stage failure: ... org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
)


@pytest.mark.parametrize(
    ("last_line", "is_inputs", "text"),
    [
        (
            "rtmp_spark.ingest.captures.capture_paths.CaptureChanged: a.pcap was rewritten.",
            False,
            "a.pcap was rewritten",
        ),
        ("rtmp_spark.lake.faults.LakeFault: the disk is full.", False, "the disk is full"),
        ("OSError: [Errno 5] Input/output error", False, "OSError: [Errno 5] Input/output error"),
        ("MemoryError", False, "MemoryError"),
        ("pyarrow.lib.ArrowMemoryError: malloc of size 1", False, "pyarrow.lib.ArrowMemoryError: malloc of size 1"),
        (
            "rtmp_spark.ingest.input_fault.InputFault: IndexError: list index out of range",
            True,
            "IndexError: list index out of range",
        ),
        (
            "AttributeError: an older package on the executors",
            False,
            "AttributeError: an older package on the executors",
        ),
        ("_internal.DeltaError: Generic error: 503", False, "_internal.DeltaError: Generic error: 503"),
    ],
)
def test_errors_of_python(last_line: str, is_inputs: bool, text: str) -> None:
    error = Exception(TRACEBACK.format(last_line))
    assert is_inputs_fault(error) is is_inputs
    assert reason(error) == text
    assert states_remedy(error) is ("LakeFault" in last_line)


@pytest.mark.parametrize(
    ("text", "is_inputs"),
    [
        (DIED, True),
        (f"ExecutorLostFailure (executor 1 exited) {DIED}", False),
        ("java.io.IOException: No space left on device", False),
        ("java.lang.OutOfMemoryError: Java heap space", False),
    ],
)
def test_errors_of_spark(text: str, is_inputs: bool) -> None:
    assert is_inputs_fault(Exception(text)) is is_inputs


def test_only_items_that_kill_again_alone_are_culprits() -> None:
    runs: list[Sequence[int]] = []

    def run(items: Sequence[int]) -> int:
        runs.append(items)
        if 3 in items or (5 in items and len(runs) < 5):
            raise Exception(DIED)
        return sum(items)

    results, culprits = run_isolating(run, list(range(8)))
    assert sum(results) == sum(range(8)) - 3
    assert culprits == [(3, "the Python worker died")]
    assert runs.count([3]) == 2


def test_a_machine_on_which_everything_fails_is_at_fault() -> None:
    def run(items: Sequence[int]) -> int:
        raise Exception(DIED)

    with pytest.raises(OSError, match="every part of the input kills its worker"):
        run_isolating(run, [1, 2])


def test_a_fault_of_the_machine_ends_it() -> None:
    def run(items: Sequence[int]) -> int:
        raise OSError("the store does not answer")

    with pytest.raises(OSError, match="the store"):
        run_isolating(run, [1, 2])
