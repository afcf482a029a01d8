"""`spark.readStream.format("pcap")`: reads the packets of each capture file once, after the file is closed.

    spark.readStream.format("pcap").option("maxFilesPerTrigger", 100).load("captures")

The path is a directory, a pattern or a file. Pass several paths as a JSON list in the option `paths`, because
`readStream` loads only one. A file counts as closed under the same conditions as in `ingest --follow`, with every
trigger: `availableNow` also leaves the file that is being written to the next run. The option `settle` is the number of
seconds after which an unchanged file counts as closed (default 10; 0 reads every file at once).

The offset lists the files of its batch, so a batch that Spark repeats reads the same files. It does not grow with the
number of files: a file that arrived before the time `before` was delivered, and only of later ones the offset holds a
digest of eight bytes each. On a local disk a file arrives when its inode last changed, so a file that is copied or
moved into the directory is new, whatever its modification time. In an object store it arrives at its modification
time; `late` (seconds, default 3600) is how much later it may appear, for example after a long upload. `before` is that
much older than the newest delivered file, and never newer than a file that waits. Capture tools reuse file names, so a
file that changed is delivered again from its start; choose `settle` longer than the pauses between two writes. A file
whose owner or permissions change after `late` is delivered again too.

A bad file never stops the stream; the reason is written to Spark's log (RTMP_SPARK_LOG in a session that we started). A
file that cannot be opened is tried again at the next trigger. A file that is not a capture, or that was deleted after
its batch was planned, gives no rows. Paths are checked only when the stream starts, because later a path may be missing
for a while.
"""

from __future__ import annotations

import glob
import os
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from rtmp_spark.codec.errors import CaptureError, UserError
from rtmp_spark.ingest.captures.capture_paths import (
    CaptureFile,
    NothingThere,
    closed_files,
    is_uri,
    list_captures,
    open_file,
)

from .pcap_reader import FileList, PacketRange, PcapReader
from .source_options import SourceOptions

SETTLE_SECONDS = 10
LATE_SECONDS = 3600
_DIGEST_BYTES = 8

# files: path -> [size, time] of this batch; before: files that arrived earlier (ns) were delivered; seen: digests of
# delivered files that arrived later
Offset = dict[str, Any]


class PcapStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self.reader = PcapReader(options)
        self.settle_seconds = options.number("settle", SETTLE_SECONDS, "Give whole seconds.")
        self.late_ns = options.number("late", LATE_SECONDS, "Give whole seconds.") * 1_000_000_000
        self.max_files = options.number("maxFilesPerTrigger", 0, "Give a number of files; 0 means no limit.")
        self.available: tuple[list[CaptureFile], bool, float] | None = None  # `_listed()` and its time
        self.reported: set[str] = set()

    def initialOffset(self) -> Offset:
        list_captures(path for path in self.reader.paths if not glob.has_magic(path))  # reports a mistyped path
        return {"files": {}, "before": 0, "seen": ""}

    def prepareForTriggerAvailableNow(self) -> None:
        self.available = *self._listed(), time.time()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self.max_files) if self.max_files else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        listed, whole, now = self.available or (*self._listed(), time.time())
        now_ns = int(now * 1e9)
        before = min(start.get("before", 0), now_ns)  # the clock may have been wrong
        seen = _unpack(start["seen"])
        recent = {_digest(file): (arrived, file) for file in listed if (arrived := _arrived_ns(file)) > before}
        closed = closed_files(listed, self.settle_seconds, now)
        known = {_digest(file) for file in closed} & recent.keys() - seen
        new = sorted((recent[digest][1] for digest in known), key=lambda f: (f.modified_ns, f.path))
        fresh = (file for file in new if self._opens(file.path))
        batch = list(islice(fresh, limit.max_files if isinstance(limit, ReadMaxFiles) else None))
        if not batch:
            return start
        seen |= {_digest(file) for file in batch}
        waiting = [arrived for digest, (arrived, _) in recent.items() if digest not in seen]
        newest = max(arrived for digest, (arrived, _) in recent.items() if digest in seen)
        before = max(before, min(newest - self.late_ns, now_ns - self.late_ns, *(arrived - 1 for arrived in waiting)))
        if whole:
            seen &= {digest for digest, (arrived, _) in recent.items() if arrived > before}
        files = {file.path: [file.size_bytes, file.modified_ns] for file in batch}
        return {"files": files, "before": before, "seen": _pack(seen)}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        if start == end:
            return []
        return self.reader.ranges(CaptureFile(path, *status) for path, status in end["files"].items())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, (PacketRange, FileList))
        try:
            yield from self.reader.rows(partition)
        except (CaptureError, FileNotFoundError, PermissionError) as error:  # Spark retries after other errors
            _log(f"{getattr(partition, 'path', 'a file')} has no packets for the stream: {error}")

    def _listed(self) -> tuple[list[CaptureFile], bool]:
        """The files that exist now, and whether every path matched something (a directory may be unmounted)."""
        found: dict[str, CaptureFile] = {}
        whole = True
        for path in self.reader.paths:
            try:
                found.update((file.path, file) for file in list_captures([path]))
            except NothingThere:
                whole = False
        return list(found.values()), whole

    def _opens(self, path: str) -> bool:
        try:
            open_file(path).close()
        except (OSError, UserError) as error:
            if path not in self.reported:
                _log(f"the stream waits for {path}: {error}")
            self.reported.add(path)
            return False
        return True


def _log(text: str) -> None:
    print(f"rtmp-spark: {text}", file=sys.stderr, flush=True)


def _arrived_ns(file: CaptureFile) -> int:
    """When a file was last written, moved to its place or given other permissions."""
    if is_uri(file.path):
        return file.modified_ns
    try:
        return os.stat(file.path).st_ctime_ns  # noqa: PTH116 - one call for each file and trigger
    except OSError:  # deleted since it was listed
        return file.modified_ns


def _digest(file: CaptureFile) -> bytes:
    name = f"{file.size_bytes} {file.modified_ns} {file.path}"
    return blake2b(name.encode("utf-8", "surrogateescape"), digest_size=_DIGEST_BYTES).digest()


def _pack(digests: set[bytes]) -> str:
    return b64encode(b"".join(sorted(digests))).decode()


def _unpack(text: str) -> set[bytes]:
    data = b64decode(text)
    return {data[at : at + _DIGEST_BYTES] for at in range(0, len(data), _DIGEST_BYTES)}
