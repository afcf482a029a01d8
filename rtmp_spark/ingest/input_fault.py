"""Errors that the input of a task causes, apart from faults of the machine on which the task runs.

A task fails for many reasons: files vanish, stores throttle, memory ends, executors have another version of a library.
Only an error of the decoder itself, on bytes that were read without error, may be blamed on the input; every other one
fails the ingest, which publishes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rtmp_spark.codec.errors import UserError
from rtmp_spark.lake.faults import STORAGE_ERRORS

MACHINE = (*STORAGE_ERRORS, MemoryError, ImportError, UserError)


class InputFault(Exception):
    """The decoder failed on this input."""


@contextmanager
def blamed_on_input() -> Iterator[None]:
    """Turns an error of the block into an InputFault, unless it is a fault of the machine."""
    try:
        yield
    except MACHINE:
        raise
    except Exception as error:
        raise InputFault(f"{type(error).__name__}: {error}") from error
