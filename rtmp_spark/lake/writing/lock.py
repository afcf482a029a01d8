"""Lets one writer work at a time, so that none works in vain. Correctness does not depend on this lock or on clocks.

A local lake has a file lock, which the kernel frees when its holder dies. Elsewhere the newest commit of the table
`_lease` names the holder and until when; a holder that died blocks the others for that long.
"""

from __future__ import annotations

import fcntl
import json
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError

from rtmp_spark.codec.errors import UserError

from ..commit import CHECKPOINT_INTERVAL, NO_HOOKS, commit_info, open_table
from ..faults import LakeFault, explained
from ..ledger import writer_name
from ..location import Location

LEASE_SECONDS = 300.0
RENEW_SECONDS = 60.0
_POLL_SECONDS = 0.2
LEASE = "_lease"


@contextmanager
def writer_lock(location: Location, wait_seconds: float) -> Iterator[None]:
    """Wait for other writers, at most so long; the sentence says for whom."""
    with _flock(location, wait_seconds) if location.is_local else _lease(location, wait_seconds):
        yield


@contextmanager
def _flock(location: Location, wait_seconds: float) -> Iterator[None]:
    path = Path(location.uri) / "_lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "ab+", buffering=0)  # noqa: SIM115 - unbuffered: closing must not fail on a full disk
    except OSError as error:
        sentence = f"The lake {location} cannot be written: {error.strerror}."
        raise LakeFault(sentence, "Check its path, its permissions and the space on the disk.") from error
    with file:

        def take() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError:  # a file system without locks
                return True
            return True

        def holder() -> str:
            try:
                return str(json.loads(path.read_text() or "{}").get("holder", "another process"))
            except (OSError, ValueError):
                return "another process"

        _wait(take, holder, location, wait_seconds)
        with suppress(OSError):  # a full disk shows itself when there is something to write
            file.truncate(0)
            file.write(json.dumps({"holder": writer_name(), "since": _now_text()}).encode())
        try:
            yield
        finally:
            with suppress(OSError):
                file.truncate(0)


def _now_text() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _wait(take: Callable[[], bool], holder: Callable[[], str], location: Location, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    announced = False
    while not take():
        if time.monotonic() >= deadline:
            raise UserError(f"{holder()} is writing to the lake {location}.", "Try again when it has finished.", 3)
        if not announced:
            print(f"rtmp-spark: waiting for {holder()}, which is writing to {location}", file=sys.stderr)
            announced = True
        time.sleep(_POLL_SECONDS)


@contextmanager
def _lease(location: Location, wait_seconds: float) -> Iterator[None]:
    lease = _Lease(location)
    with explained(str(location), "take the lease"):
        lease.create()
        _wait(lease.take, lease.holder, location, wait_seconds)
    done = threading.Event()

    def renew() -> None:
        while not done.wait(RENEW_SECONDS):
            with suppress(Exception):  # without the lease the writers may race, but no data is lost
                lease.extend(LEASE_SECONDS)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        with suppress(DeltaError, OSError):  # it expires by itself
            lease.extend(0)


class _Lease:
    """The newest commit of a table without rows: who holds the lake, and until when."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.me = f"{writer_name()} {uuid.uuid4().hex[:8]}"

    def create(self) -> None:
        uri, options = self.location.table(LEASE), self.location.storage_options
        with suppress(DeltaError):
            if not DeltaTable.is_deltatable(uri, storage_options=options):
                schema = pa.schema([("holder", pa.string())])
                DeltaTable.create(uri, schema=schema, storage_options=options, post_commithook_properties=NO_HOOKS)

    def take(self) -> bool:
        handle = open_table(self.location, LEASE)
        holder, until = self._newest(handle)
        return (holder in ("", self.me) or until < time.time()) and self._commit(handle, LEASE_SECONDS)

    def extend(self, seconds: float) -> bool:
        handle = open_table(self.location, LEASE)
        return self._newest(handle)[0] == self.me and self._commit(handle, seconds)

    def holder(self) -> str:
        return self._newest(open_table(self.location, LEASE))[0].rpartition(" ")[0] or "another process"

    def _newest(self, handle: DeltaTable) -> tuple[str, float]:
        info = commit_info(self.location, LEASE, handle.version()) or {}
        try:
            return str(info.get("holder", "")), float(str(info.get("until", 0)))
        except ValueError:
            return "", 0.0

    def _commit(self, handle: DeltaTable, seconds: float) -> bool:
        version = handle.version()
        terms = {"holder": self.me if seconds else "", "until": time.time() + seconds, "by": self.me}
        properties = CommitProperties(custom_metadata=terms, max_commit_retries=0)
        try:
            handle.create_write_transaction(
                [], "append", handle.schema(), commit_properties=properties, post_commithook_properties=NO_HOOKS
            )
        except DeltaError:
            return (commit_info(self.location, LEASE, version + 1) or {}).get("by") == self.me
        if (version + 1) % CHECKPOINT_INTERVAL == 0:
            with suppress(DeltaError, OSError):
                open_table(self.location, LEASE, version + 1).create_checkpoint()
        return True
