"""What can go wrong with the storage of a lake, as one sentence with its remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake.exceptions import DeltaError, DeltaProtocolError

from rtmp_spark.codec.errors import UserError

STORAGE_ERRORS = (OSError, DeltaError, pa.ArrowException)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_INTERNALS = re.compile(r"( 0: <unknown>|: ParsedLogPath).*")
_CAUSE_LENGTH = 200
_REMEDIES = (  # in the text of an error, and what to do about it
    ("No space left", "the disk is full", "Free some space and run it again."),
    ("Read-only file system", "the file system is read-only", "Use a lake on a file system that can be written."),
    ("Permission denied", "permission denied", "Check who owns the lake and its permissions."),
    ("AccessDenied", "the store denied the access", "Check the credentials and the policy of the bucket."),
    ("InvalidAccessKeyId", "the store does not know the access key", "Check the credentials."),
    ("NoSuchBucket", "the bucket does not exist", "Create the bucket, or correct the path."),
    ("SlowDown", "the store throttled the requests", "Run it again later."),
)


class LakeFault(UserError):
    """The storage failed or the lake is damaged: nothing was published."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text, remedy, exit_code=3)


class LostRace(LakeFault):
    """Another writer committed first: nothing of this ingest was published."""

    def __init__(self, lake: str) -> None:
        super().__init__(
            f"Another writer changed the lake {lake} during this run, so nothing more was published.",
            "Run it again.",
        )


def damaged(lake: str, table: str, version: int) -> LakeFault:
    return LakeFault(
        f"Version {version} of the table {table!r} of the lake {lake} is damaged, or another program wrote it.",
        f"Restore {table}/_delta_log from a backup, or ingest into a new lake.",
    )


def cause_of(error: BaseException) -> str:
    """The text of an error in one line, without the colours and the internals of delta-rs."""
    text = " ".join(_COLOURS.sub("", str(error)).replace("↳", ":").split())
    text = _INTERNALS.sub("", text)
    return text[:_CAUSE_LENGTH].rstrip(" .:") or type(error).__name__


@contextmanager
def explained(lake: str, what: str) -> Iterator[None]:
    """Turn errors of delta-rs, pyarrow and the operating system into a `LakeFault`: `what` could not be done."""
    try:
        yield
    except UserError:
        raise
    except DeltaProtocolError as error:
        sentence = f"Could not {what} of the lake {lake}: {cause_of(error)}."
        raise LakeFault(sentence, "Another program added a table feature; restore the table from a backup.") from error
    except STORAGE_ERRORS as error:
        text = str(error)
        for sign, cause, remedy in _REMEDIES:
            if sign in text:
                raise LakeFault(f"Could not {what} of the lake {lake}: {cause}.", remedy) from error
        remedy = "Check that the storage can be reached; if the lake is damaged, restore it from a backup."
        raise LakeFault(f"Could not {what} of the lake {lake}: {cause_of(error)}.", remedy) from error
