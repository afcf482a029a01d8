"""An ingest as a chain of rounds, each of which is published on its own.

Files are decoded in the order of their first packets, as in the sequential analysis, and a round is a stretch of that
order. Connections continue from one round into the next through `open_flows`, so the tables do not depend on where the
rounds are cut. What the driver holds and what a kill loses are bounded by one round; the next run continues after the
last one that was published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rtmp_spark import __version__
from rtmp_spark.ingest.captures.capture_paths import CaptureFile
from rtmp_spark.ingest.captures.known_captures import KnownCaptures
from rtmp_spark.ingest.captures.probed_files import ProbedFile, probe_all
from rtmp_spark.ingest.ingest_progress import ProgressReporter
from rtmp_spark.ingest.ingest_summary import PlannedRound, Summary
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.ingest.pipeline import Ingest
from rtmp_spark.ingest.scan.plan import split_count
from rtmp_spark.ingest.stages import Stages
from rtmp_spark.lake.compaction import compact_after_ingest
from rtmp_spark.lake.ledger import Ledger
from rtmp_spark.lake.location import Location
from rtmp_spark.lake.reader import Lake
from rtmp_spark.lake.writer import Writer, open_writer

ROUND_BYTES = 2 << 30  # for each core
ROUND_SPLITS = 4000


@dataclass
class Round:
    """Files that are decoded and published together."""

    files: list[ProbedFile] = field(default_factory=list)
    splits: int = 0
    next_head_ns: int | None = None  # the first packet of the files after this round

    @property
    def bytes(self) -> int:
        return sum(probed.file.size_bytes for probed in self.files)


def cut_into_rounds(files: Sequence[ProbedFile], round_bytes: int, split_bytes: int) -> list[Round]:
    """Stretches of the order of time, each with at most so many bytes and `ROUND_SPLITS` splits, or with one file.

    Files that begin at the same time stay together: one may be a copy of the beginning of the other, which is
    recognised only across rounds.
    """
    rounds: list[Round] = []
    room, before = 0, -1
    for probed in sorted(files, key=lambda probed: probed.order):
        size, splits = probed.file.size_bytes, split_count(probed, split_bytes)
        full = not rounds or size > room or rounds[-1].splits + splits > ROUND_SPLITS
        if full and (probed.head_ns is None or probed.head_ns != before):
            if rounds:
                rounds[-1].next_head_ns = probed.head_ns
            rounds.append(Round())
            room = round_bytes
        rounds[-1].files.append(probed)
        rounds[-1].splits += splits
        room, before = room - size, -1 if probed.head_ns is None else probed.head_ns
    return rounds


class IngestRun:
    """All rounds of one call of `ingest`."""

    def __init__(
        self,
        location: Location,
        stages: Stages,
        options: IngestOptions,
        summary: Summary,
        progress: ProgressReporter,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> None:
        self.location = location
        self.stages = stages
        self.options = options
        self.summary = summary
        self.progress = progress
        self.check_cancelled = check_cancelled

    def plan(self, files: Sequence[CaptureFile]) -> list[Round]:
        """The rounds of those files that the lake does not know. `--redo` is one round, however large: a connection
        must never lose its rows in one publication and get them back in another."""
        options = self.options
        if Ledger(self.location).find() is not None:
            known = KnownCaptures.of(Lake(self.location), options.sensor)
            chosen = known.select(files, options.verify or options.redo, __version__)
            self.summary.known += chosen.known
            self.summary.failed += chosen.failed
            files = chosen.new
        probed = probe_all(self.stages.run, files, self.stages.cores)
        size = options.round_bytes or ROUND_BYTES * self.stages.cores
        if options.redo:
            rounds = [Round(probed, sum(split_count(p, options.split_bytes) for p in probed))] if probed else []
        else:
            rounds = cut_into_rounds(probed, size, options.split_bytes)
        self.summary.planned = [PlannedRound(len(r.files), r.bytes, r.splits) for r in rounds]
        return rounds

    def run(self, files: Sequence[CaptureFile]) -> None:
        rounds = self.plan(files)
        # TLS secrets at the head of a file apply to all files, also to those before it.
        secrets = [p.secrets.encode("latin-1") for r in rounds for p in r.files if p.secrets]
        self.options = replace(self.options, keylog=b"\n".join(log for log in (self.options.keylog, *secrets) if log))
        self.progress.rounds = len(rounds)
        open_here: set[str] = set()
        for number, part in enumerate(rounds or [Round()], 1):
            self.check_cancelled()
            self.progress.begin_round(number)
            summary = Summary(self.summary.lake)
            writer: Writer | None = None
            try:
                with open_writer(self.location, wait_seconds=self.options.wait_seconds) as writer:
                    ingest = Ingest(self.stages, writer, self.options, summary, self.progress, self.check_cancelled)
                    ingest.run(part.files, part.next_head_ns, open_here)
                open_here |= ingest.open_uids
                self.options = replace(self.options, keylog=ingest.options.keylog)
            except Exception:
                if writer is not None and writer.published is not None:
                    self.summary.add(summary)
                raise
            self.summary.add(summary)
            compact_after_ingest(self.location, writer.published)
