"""The plan of an ingest: which files are new, how they are cut, which connections are decoded together.

Runs on the driver over descriptions, never over packets. Files are ordered by the time of their first packet and
numbered on from the lake's last; index groups are spread over buckets by their bytes, kept together where they
share a file that can only be read whole, or a file at all while there are enough of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapreplace

from .decode import FilePlan, SplitPlan
from .paths import CaptureFile
from .scan import About, Split, fits, is_plain_pcap, joined, unreadable
from .sets import Sets

TASK_BYTES = 64 << 20
TASK_FILES = 500
HEAVY_BYTES = 256 << 20  # on less a second process saves no more than its start takes
BUCKET_BYTES = 2 << 30  # of payload, when there is more than the cores can share; each bucket reads its files again


@dataclass
class Scanned:
    """One file after the first pass."""

    file: CaptureFile
    about: About
    splits: list[tuple[Split, About]]
    whole: bool
    number: int = -1
    duplicate: bool = False

    @property
    def order(self) -> tuple[bool, int, str]:
        first = self.about.ts_head_ns
        return first is None, first or 0, self.file.path


def cut(files: Sequence[CaptureFile], split_bytes: int) -> list[Split]:
    """Byte ranges of the plain pcaps that are worth it; everything else in one piece."""
    splits: list[Split] = []
    for file in files:
        size = file.size_bytes
        if size > 0 and is_plain_pcap(file.path):
            for start in range(0, size, split_bytes):
                end = min(start + split_bytes, size)
                splits.append(Split(len(splits), file.path, start, end, size))
        else:
            splits.append(Split(len(splits), file.path, 0, 0, size))
    return splits


def pack(splits: Iterable[Split]) -> list[list[Split]]:
    """Small splits share a task: a Python task costs as much as a few megabytes."""
    tasks: list[list[Split]] = []
    room = 0
    for split in splits:
        cost = (split.end or split.size_bytes) - split.start
        if not tasks or cost > room or len(tasks[-1]) >= TASK_FILES:
            tasks.append([])
            room = TASK_BYTES
        tasks[-1].append(split)
        room -= cost
    return tasks


def judge(
    files: Sequence[CaptureFile], splits: Sequence[Split], abouts: Mapping[int, About]
) -> tuple[list[Scanned], list[CaptureFile]]:
    """Files whose scan is good, and those that must be scanned again as a whole."""
    by_path: dict[str, list[tuple[Split, About]]] = {}
    for split in splits:
        by_path.setdefault(split.path, []).append((split, abouts[split.split_id]))
    good: list[Scanned] = []
    again: list[CaptureFile] = []
    for file in files:
        parts = by_path[file.path]
        if parts[0][0].end == 0:
            about = parts[0][1]
            unreadable(about)
            good.append(Scanned(file, about, parts, whole=True))
        elif fits([about for _, about in parts]):
            about = joined([about for _, about in parts], file.size_bytes)
            unreadable(about)
            good.append(Scanned(file, about, parts, whole=False))
        else:
            again.append(file)
    return good, again


def number(
    scanned: list[Scanned], known: Iterable[str], first: int, failed: Collection[tuple[object, ...]] = ()
) -> None:
    """Give new captures their numbers in the order of time; content that is known already gets none, nor do files that
    `failed` before as they are now (path, size, time in microseconds and reason)."""
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


def split_plans(scanned: Iterable[Scanned]) -> dict[int, SplitPlan]:
    plans: dict[int, SplitPlan] = {}
    for item in scanned:
        if item.number < 0 or item.about.capture_id is None:
            continue
        file = FilePlan(item.number, item.file.path, item.about.capture_id, item.whole)
        frames = 0
        for split, about in item.splits:
            plans[split.split_id] = SplitPlan(file, split.start, frames)
            frames += about.packets
    return plans


@dataclass
class Buckets:
    """Which group is decoded where."""

    of_group: dict[int, int] = field(default_factory=dict)
    count: int = 0
    heavy: frozenset[int] = frozenset()  # buckets that others would wait for

    @property
    def groups(self) -> frozenset[int]:
        return frozenset(self.of_group)


def assign(
    weights: Mapping[int, int],
    bound: Iterable[Sequence[int]],
    together: Iterable[Sequence[int]],
    near: Iterable[Sequence[int]],
    cores: int,
) -> Buckets:
    """Groups to buckets, heaviest first into the lightest. `bound` groups stay together whatever they weigh, `together`
    (they share a whole file) unless that is too much for one bucket, `near` (they share files) where buckets stay even.
    """
    total = sum(weights.values())
    rounds = max(1, -(-total // (BUCKET_BYTES * cores)))  # full ones, so that no core waits for the last bucket
    count = max(1, min(len(weights), rounds * cores))
    most = total // count + 1
    sets = Sets(weights)
    load = dict(weights)
    for limit, wanted in ((total, bound), (most, together), (most // 4, near)):
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
