"""What an ingest did, for whoever called it; it becomes final when `ingest` returns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Summary:
    """What an ingest did."""

    lake: str
    ingest_id: int | None = None
    files: int = 0
    bytes: int = 0
    ingested: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)  # skipped: path, size and time are in the ledger
    duplicates: list[str] = field(default_factory=list)  # skipped: the same content under another name
    grown: list[str] = field(default_factory=list)  # ingested before when they were shorter, whose rows they replace
    joined: list[str] = field(default_factory=list)  # not named, decoded again: they share connections with the others
    partial: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)
    connections: int = 0
    resumed: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # by phase
    splits: int = 0
    buckets: int = 0

    @property
    def exit_code(self) -> int:
        return 4 if self.failed or self.crashed else 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begun
