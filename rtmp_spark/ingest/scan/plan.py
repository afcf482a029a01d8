"""The plan of an ingest: how files are split, in which order they are decoded, which connections share a bucket.

Pure functions over descriptions of files, run on the driver. Captures are numbered in order of their first packets,
after the last number of the lake. Groups are spread over buckets by weight; as long as buckets stay even, groups that
share files stay together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapreplace

from rtmp_spark.capture.files.file_facts import FileFacts
from rtmp_spark.ingest.captures.capture_paths import CaptureFile
from rtmp_spark.ingest.captures.probed_files import ProbedFile
from rtmp_spark.ingest.decode.decode_plan import FilePlan, SplitPlan
from rtmp_spark.ingest.scan.disjoint_sets import DisjointSets
from rtmp_spark.ingest.scan.split_scan import Split, SplitScan, fits, joined

TASK_BYTES = 64 << 20  # of input, the least that a scan task gets
TASKS_PER_CORE = 4  # of a scan, so that cores that are faster or less busy do more of them
TASK_FILES = 500
HEAVY_BYTES = 256 << 20  # below this, starting a helper process takes longer than it saves
BUCKET_BYTES = 2 << 30  # of payload in one bucket at most
LEAST_BUCKET_BYTES = 32 << 20  # of weight: a bucket with less costs more for its table files than its core saves time
SORTED_FROM = 15  # buckets; with fewer, reading a capture several times costs less than writing a copy of it


@dataclass
class Scanned:
    """One file after the first pass."""

    file: CaptureFile
    about: FileFacts
    splits: list[tuple[Split, SplitScan]]
    number: int = -1
    duplicate: bool = False

    @property
    def order(self) -> tuple[bool, int, str]:
        first = self.about.ts_head_ns
        return first is None, first or 0, self.file.path


def split_count(probed: ProbedFile, split_bytes: int) -> int:
    return -(-probed.file.size_bytes // split_bytes) if probed.can_be_cut else 1


def cut_into_splits(files: Iterable[ProbedFile], split_bytes: int) -> list[Split]:
    """Byte ranges of uncompressed captures; every other file is one split."""
    splits: list[Split] = []
    for probed in files:
        file, size = probed.file, probed.file.size_bytes
        if probed.can_be_cut:
            for start in range(0, size, split_bytes):
                end = min(start + split_bytes, size)
                splits.append(Split(len(splits), file.path, start, end, size, file.modified_ns, probed.format or ""))
        else:
            splits.append(Split(len(splits), file.path, 0, 0, size, file.modified_ns, ""))
    return splits


def pack_into_tasks(splits: Sequence[Split], cores: int) -> list[list[Split]]:
    """Splits share a task as long as all cores have several: starting a Python task costs as much as scanning 10 MB."""
    costs = [(split.end or split.size_bytes) - split.start for split in splits]
    share = max(sum(costs) // (TASKS_PER_CORE * cores), TASK_BYTES)
    tasks: list[list[Split]] = []
    room = 0
    for split, cost in zip(splits, costs):
        if not tasks or cost > 2 * room or len(tasks[-1]) >= TASK_FILES:  # less than half of it belongs to the share
            tasks.append([])
            room = share
        tasks[-1].append(split)
        room -= cost
    return tasks


def combine_scans(
    files: Sequence[CaptureFile], splits: Sequence[Split], scans: Mapping[int, SplitScan]
) -> tuple[list[Scanned], list[CaptureFile]]:
    """Files whose splits fit together, and files that must be scanned again as a whole."""
    by_path: dict[str, list[tuple[Split, SplitScan]]] = {}
    for split in splits:
        by_path.setdefault(split.path, []).append((split, scans[split.split_id]))
    good: list[Scanned] = []
    again: list[CaptureFile] = []
    for file in files:
        parts = by_path[file.path]
        if parts[0][0].end == 0:
            good.append(Scanned(file, parts[0][1].facts, parts))
        elif fits([scan for _, scan in parts]):
            facts = joined([scan for _, scan in parts], file.size_bytes)
            good.append(Scanned(file, facts, parts))
        else:
            again.append(file)
    return good, again


def number_captures(
    scanned: list[Scanned], known: Iterable[str], first: int, failed: Collection[tuple[object, ...]] = ()
) -> None:
    """Number new captures in order of time. Known content gets no number, nor does a file that failed before in the
    same state (`failed`: path, size, modification time in microseconds, reason)."""
    seen = set(known)
    for item in sorted(scanned, key=lambda s: s.order):
        capture_id = item.about.capture_id
        if capture_id is not None and item.about.status != "failed":
            if capture_id in seen:
                item.duplicate = True
                continue
            seen.add(capture_id)
        file = item.file
        if item.about.status == "failed":
            if (file.path, file.size_bytes, file.modified_ns // 1000, item.about.error_hint) in failed:
                continue
        item.number = first
        first += 1


def split_plans(scanned: Sequence[Scanned], next_head_ns: int | None = None) -> dict[int, SplitPlan]:
    """`scanned` in the order of their numbers; `next_head_ns`: the first packet of the files of later rounds."""
    plans: dict[int, SplitPlan] = {}
    heads = [item.about.ts_head_ns for item in scanned[1:]]
    for item, head_ns in zip(scanned, [*heads, None]):
        if item.number < 0 or item.about.capture_id is None:
            continue
        file = FilePlan(
            item.number,
            item.file.path,
            item.about.capture_id,
            item.file.size_bytes,
            item.file.modified_ns,
            next_head_ns if head_ns is None else head_ns,
        )
        frames = 0
        for split, scan in item.splits:
            plans[split.split_id] = SplitPlan(file, split.start, frames, scan.staged, scan.is_copy)
            frames += scan.facts.packets
    return plans


def is_sorted(size_bytes: int, cores: int) -> bool:
    """Whether sorted copies pay for uncompressed captures of this size."""
    return size_bytes >= cores * TASK_BYTES and max(cores, size_bytes // BUCKET_BYTES) >= SORTED_FROM


@dataclass
class Buckets:
    """The bucket of each group."""

    of_group: dict[int, int] = field(default_factory=dict)
    count: int = 0
    heavy: frozenset[int] = frozenset()  # buckets so large that all others would wait for them

    @property
    def groups(self) -> frozenset[int]:
        return frozenset(self.of_group)


def assign_buckets(
    weights: Mapping[int, int], bound: Iterable[Sequence[int]], near: Iterable[Sequence[int]], cores: int
) -> Buckets:
    """Assign groups to buckets, the heaviest first, each to the lightest bucket.

    There are as many buckets as cores, or more if they become too large, or fewer if they become too small.
    Groups in `bound` always share a bucket; groups in `near` (they share files) do while buckets stay even.
    """
    total = sum(weights.values())
    rounds = max(1, -(-total // (BUCKET_BYTES * cores)))  # whole rounds, so that no core is idle in the last one
    count = max(1, min(len(weights), rounds * cores, -(-total // LEAST_BUCKET_BYTES)))
    most = total // count + 1
    sets = DisjointSets(weights)
    load = dict(weights)
    for limit, wanted in ((total, bound), (most // 4, near)):
        for groups in wanted:
            roots = sorted({sets.root(g) for g in groups})
            if len(roots) > 1 and sum(load[r] for r in roots) <= limit:
                for other in roots[1:]:
                    sets.join(roots[0], other)
                    load[roots[0]] += load[other]
    buckets = Buckets(count=count)
    filled = [(0, bucket) for bucket in range(count)]
    place: dict[int, int] = {}
    for top in sorted({sets.root(g) for g in weights}, key=lambda r: (-load[r], r)):
        weight, lightest = filled[0]
        place[top] = lightest
        heapreplace(filled, (weight + load[top], lightest))
    for group in weights:
        buckets.of_group[group] = place[sets.root(group)]
    buckets.heavy = frozenset(b for weight, b in filled if weight > HEAVY_BYTES and 2 * weight * cores > 3 * total)
    return buckets
