"""What the driver sends to executors, and what they send back: small values, never rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pyarrow as pa

from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.lake.location import Location
from rtmp_spark.lake.parquet_files import WrittenFile

SCANNED = pa.schema(
    [
        pa.field("about", pa.string()),  # the SplitScans of a task as JSON
        pa.field("flows", pa.binary()),  # their connections
        pa.field("sections", pa.binary()),  # where their packets are staged
    ]
)
# What a bucket decodes: a section of staged packets, or the saved state of a connection of the group.
BUCKET_INPUT = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("group", pa.int32()),
        pa.field("split_id", pa.int64()),
        pa.field("run", pa.int32()),
        pa.field("position", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("state", pa.binary()),
    ]
)
PLANS = "plans.json"  # in the staging area: the splits of the round


@dataclass(frozen=True)
class ScanJob:
    """What every task of the scan needs."""

    staging: Location
    sort: bool  # write sorted copies, also of plain pcap files
    watched: str = ""  # directory for progress counters


@dataclass(frozen=True)
class DecodeJob:
    """What every task of the decode stage needs. Small: it travels with each task."""

    location: Location
    staging: Location
    ingest_id: int
    options: IngestOptions
    tables: tuple[str, ...]
    newest_ns: int  # the last packet of the new captures
    secrets: tuple[tuple[int, int, str], ...] = ()  # TLS secrets inside captures: file, run that they precede, key log
    several_files: bool = True  # a connection may have packets in more than one capture
    heavy: frozenset[int] = frozenset()  # buckets that may use helper processes
    watched: str = ""  # directory for progress counters


@dataclass
class BucketResult:
    """What one bucket wrote."""

    files: list[WrittenFile] = field(default_factory=list)
    staged: list[WrittenFile] = field(default_factory=list)  # rows that rules across connections may change
    open_uids: list[str] = field(default_factory=list)  # connections that may continue in a later ingest
    connections: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    other_flows: dict[int, int] = field(default_factory=dict)  # connections that are not RTMP, by file number

    def dump(self) -> str:
        return json.dumps(self, default=vars)

    @classmethod
    def parse(cls, text: str) -> BucketResult:
        fields = json.loads(text)
        for name in ("files", "staged"):
            fields[name] = [WrittenFile(**file) for file in fields[name]]
        fields["other_flows"] = {int(number): count for number, count in fields["other_flows"].items()}
        return cls(**fields)


@dataclass
class Decoded:
    buckets: list[BucketResult] = field(default_factory=list)
    crashed: list[tuple[int, str]] = field(default_factory=list)  # groups that kill their worker, and how
