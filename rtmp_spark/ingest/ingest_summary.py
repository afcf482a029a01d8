"""The summary of an ingest; complete when `ingest` returns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class PlannedRound:
    """What a round will read."""

    files: int
    bytes: int
    splits: int


@dataclass(frozen=True)
class PublishedRound:
    """What a round published."""

    ingest_id: int
    files: int
    connections: int
    seconds: float


@dataclass
class Summary:
    """Results of an ingest, for display and for callers."""

    lake: str
    ingest_id: int | None = None
    files: int = 0
    bytes: int = 0
    ingested: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)  # skipped: path, size and modification time are known
    duplicates: list[str] = field(default_factory=list)  # skipped: the same content as another capture
    grown: list[str] = field(default_factory=list)  # ingested before while they were shorter; their rows are replaced
    joined: list[str] = field(
        default_factory=list
    )  # decoded again although not named: they share connections with the named ones
    partial: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)  # what could not be compared across connections
    connections: int = 0
    resumed: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # by phase
    splits: int = 0
    buckets: int = 0
    planned: list[PlannedRound] = field(default_factory=list)
    rounds: list[PublishedRound] = field(default_factory=list)  # published

    @property
    def exit_code(self) -> int:
        return 4 if self.failed or self.crashed else 0

    def add(self, part: Summary) -> None:
        """Add what a round did."""
        for one in fields(self):
            if isinstance(getattr(self, one.name), list):
                getattr(self, one.name).extend(getattr(part, one.name))
        for name in ("files", "bytes", "connections", "resumed", "splits", "buckets"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        for table, count in part.rows.items():
            self.rows[table] = self.rows.get(table, 0) + count
        for phase, seconds in part.seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
        if part.ingest_id is not None:
            self.ingest_id = part.ingest_id
            took = sum(part.seconds.values())
            self.rounds.append(PublishedRound(part.ingest_id, len(part.ingested), part.connections, took))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begun
