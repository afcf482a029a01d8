"""`spark.readStream.format("pcap")`: the packets of each file once, as files are closed.

    spark.readStream.format("pcap").option("maxFilesPerTrigger", 100).load("captures")

A directory, a pattern or a file; several as JSON in option `paths`, because `readStream` loads one path only. What is
closed is told as by `ingest --follow`, with every trigger: `availableNow`, too, leaves the file that a recorder is at
to the next run. Option `settle` is the seconds after which an unchanged file is closed (10; 0 takes all that is there).

The offset names the files of its batch, so that a batch that is run again reads the same, and holds eight bytes for
each file delivered before that is still listed: files may come late and with old times, so no time could stand for
them. A file that changed is another file, since recorders use names again: it is delivered again, whole. Choose
`settle` longer than the pauses of the recorder. What is delivered is forgotten when it is not listed any more, unless a
whole name is away: of a pattern, files that come back after a while come again.

A bad file never stops the stream; what is wrong with it stands in Spark's log (RTMP_SPARK_LOG in a session of ours).
One that cannot be opened waits until it can; one that is no capture, or that was deleted after its batch was planned,
has no rows. Names are checked when a stream begins: after that, what is not there is not there yet, or no more.
"""

from __future__ import annotations

import glob
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

from .paths import CaptureFile, NothingThere, closed_files, list_captures, open_file
from .source import PacketRange, PcapReader, number

SETTLE_SECONDS = 10
_DIGEST_BYTES = 8

Offset = dict[str, Any]  # files: path -> [size, time], of this batch; seen: digests, those of this batch too


class PcapStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str]) -> None:
        self.reader = PcapReader(options)
        self.settle_seconds = number(options, "settle", SETTLE_SECONDS, "Give whole seconds.")
        self.max_files = number(options, "maxFilesPerTrigger", 0, "Give a number of files; 0 is no limit.")
        self.available: tuple[list[CaptureFile], bool, float] | None = None  # all that this run may look at, and when
        self.told: set[str] = set()

    def initialOffset(self) -> Offset:
        list_captures(path for path in self.reader.paths if not glob.has_magic(path))  # a mistyped name is told
        return {"files": {}, "seen": ""}

    def prepareForTriggerAvailableNow(self) -> None:
        self.available = *self._listed(), time.time()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self.max_files) if self.max_files else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        listed, whole, now = self.available or (*self._listed(), time.time())
        seen = _unpack(start["seen"])
        closed = sorted(closed_files(listed, self.settle_seconds, now), key=lambda f: (f.modified_ns, f.path))
        fresh = (f for f in closed if _digest(f) not in seen and self._opens(f.path))
        batch = list(islice(fresh, limit.max_files if isinstance(limit, ReadMaxFiles) else None))
        if not batch:
            return start
        if whole:
            seen &= {_digest(f) for f in listed}
        seen |= {_digest(f) for f in batch}
        return {"files": {f.path: [f.size_bytes, f.modified_ns] for f in batch}, "seen": _pack(seen)}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        if start == end:
            return []
        return self.reader.ranges(CaptureFile(path, *status) for path, status in end["files"].items())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PacketRange)
        try:
            yield from self.reader.packets(partition)
        except (CaptureError, FileNotFoundError, PermissionError) as error:  # others may pass: Spark tries again
            _tell(f"{partition.path} has no packets for the stream: {error}")

    def _listed(self) -> tuple[list[CaptureFile], bool]:
        """The files that are there, and whether that is all: a directory may be away for a while."""
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
            if path not in self.told:
                _tell(f"the stream waits for {path}: {error}")
            self.told.add(path)
            return False
        return True


def _tell(text: str) -> None:
    print(f"rtmp-spark: {text}", file=sys.stderr, flush=True)


def _digest(file: CaptureFile) -> bytes:
    name = f"{file.size_bytes} {file.modified_ns} {file.path}"
    return blake2b(name.encode("utf-8", "surrogateescape"), digest_size=_DIGEST_BYTES).digest()


def _pack(digests: set[bytes]) -> str:
    return b64encode(b"".join(sorted(digests))).decode()


def _unpack(text: str) -> set[bytes]:
    data = b64decode(text)
    return {data[at : at + _DIGEST_BYTES] for at in range(0, len(data), _DIGEST_BYTES)}
