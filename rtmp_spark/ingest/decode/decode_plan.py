"""What a bucket reads: captures, byte ranges of them, and the sections of its groups in the staging area."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from rtmp_spark.ingest.scan.staged_packets import Section


@dataclass(frozen=True)
class FilePlan:
    """One capture of an ingest."""

    number: int  # in the lake, in order of time
    path: str
    capture_id: str
    size_bytes: int
    modified_ns: int
    next_head_ns: int | None = None  # the first packet of the next capture


@dataclass(frozen=True)
class SplitPlan:
    """A byte range of a capture, the number of packets before it, and the staged file with its packets."""

    file: FilePlan
    start: int
    frames_before: int
    staged: str
    is_copy: bool  # the staged file holds the packets themselves


def dump_plans(plans: Mapping[int, SplitPlan]) -> bytes:
    return json.dumps(dict(plans), default=vars).encode()


def parse_plans(content: bytes) -> dict[int, SplitPlan]:
    found = json.loads(content)
    return {int(split_id): SplitPlan(**{**plan, "file": FilePlan(**plan["file"])}) for split_id, plan in found.items()}


@dataclass
class Piece:
    """What one bucket reads of one run of a split."""

    split: SplitPlan
    run: int = 0
    sections: list[Section] = field(default_factory=list)

    @property
    def place(self) -> tuple[int, int]:
        """The number of the file, and the run."""
        return self.split.file.number, self.run

    @property
    def size_bytes(self) -> int:
        """Bytes of packets, at most."""
        return sum(length for _, length in self.sections) if self.split.is_copy else self.split.file.size_bytes

    @property
    def order(self) -> tuple[int, int, int]:
        return self.split.file.number, self.split.start, self.run
