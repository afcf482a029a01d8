"""Writers interleave at every step and may die at any step: the published rows always equal those of a serial run.

Each writer runs in a thread that stops at every failpoint until the test continues it, so an interleaving is a list of
choices that a seed reproduces. The lock is disabled, because correctness must not depend on it.

On an object store a writer commits its tables side by side. Here it commits them one after the other, in a random
order, so that the test can stop it between two commits.
"""

from __future__ import annotations

import random
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.lake_rows import Contents, contents, ingest_capture
from kit.object_store import ObjectStore, storage_options

from rtmp_spark.lake import failpoint
from rtmp_spark.lake.faults import LostRace
from rtmp_spark.lake.location import Location, locate
from rtmp_spark.lake.reader import open_lake

TABLES = ("captures", "messages", "connections")
INTERLEAVINGS, BATCHES = 200, 8
ON_S3 = 8  # of them; an interleaving takes seconds there
KILL_PERCENT, READ_PERCENT = 3, 4  # at each step
STEPS = {
    "locked", "store checked", "ledger read", "files written", "before publish", "after publish", "checkpoints written",
    *(f"{word} {table}" for word in ("before", "after") for table in TABLES),
}  # fmt: skip


class Killed(BaseException):
    pass


class Interleaved:
    """A writer that runs one step at each call of `step`."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.places: list[str] = []
        self.is_over = False
        self.error: BaseException | None = None
        self._kill = False
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        self._go.acquire()
        try:
            work()
        except BaseException as error:
            self.error = error
        finally:
            self.is_over = True
            self._stopped.release()

    def step(self, kill: bool = False) -> None:
        """Run to the next failpoint, or die at this one."""
        self._kill = kill
        self._go.release()
        self._stopped.acquire()
        if self.is_over:
            self._thread.join()

    def reached(self, place: str) -> None:
        self.places.append(place)
        self._stopped.release()
        self._go.acquire()
        if self._kill:
            raise Killed(place)

    @property
    def ident(self) -> int | None:
        return self._thread.ident


@contextmanager
def watched(writers: list[Interleaved]) -> Iterator[None]:
    def observe(place: str) -> None:
        for writer in writers:
            if writer.ident == threading.get_ident():
                writer.reached(place)

    failpoint.observers.append(observe)
    try:
        yield
    finally:
        failpoint.observers.remove(observe)


@pytest.fixture(autouse=True)
def without_lock_and_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtmp_spark.lake.writer.writer_lock", lambda *_: nullcontext())
    monkeypatch.setattr("rtmp_spark.lake.writer.require_put_if_absent", lambda _: None)


def run(lake: Location, chance: random.Random, seen: Counter[str]) -> set[str]:
    """One interleaving; returns the captures that are published after it."""
    captures = ["b", "c"] + (["b"] if chance.random() < 0.3 else [])  # sometimes two writers ingest the same file
    succeeded: list[str] = []

    def ingest(path: str) -> None:
        ingest_capture(lake, path)
        succeeded.append(path)

    writers = [Interleaved(partial(ingest, path)) for path in captures]
    before = 1
    with watched(writers):
        while running := [writer for writer in writers if not writer.is_over]:
            kill = chance.random() * 100 < KILL_PERCENT
            chosen = chance.choice(running)
            chosen.step(kill and bool(chosen.places))
            if chance.random() * 100 < READ_PERCENT:
                before, _ = check_published(lake, before)
    for writer in writers:
        seen.update(writer.places)
        seen[type(writer.error).__name__] += 1
        if isinstance(writer.error, Killed):
            seen[f"killed at {writer.error}"] += 1
        assert writer.error is None or isinstance(writer.error, Killed | LostRace), writer.error
    _, published = check_published(lake, before)
    assert published.issuperset(succeeded), "no success without rows"
    return published


def check_published(lake: Location, at_least: int) -> tuple[int, set[str]]:
    """Assert that a reader sees the result of whole ingests only; returns the number of the newest and the captures."""
    found = open_lake(lake)
    paths, numbers, packets = (
        found.table(table).to_table(columns=[column])[column].to_pylist()
        for table, column in (("captures", "path"), ("messages", "msg_no"), ("connections", "packets_c2s"))
    )
    assert len(set(paths)) == len(paths)
    assert sorted(numbers) == list(range(3 * len(paths)))
    assert packets == [len(paths)]
    assert found.published.ingest_id >= at_least
    return found.published.ingest_id, set(paths)


Make = Callable[[], Location]


@pytest.fixture
def started(new_lake: Make, tmp_path: Path) -> Make:
    """Makes lakes with one ingest."""
    first = new_lake()
    ingest_capture(first, "a")
    count = iter(range(1_000_000))

    def make() -> Location:
        path = tmp_path / f"started{next(count)}"
        for name in (*TABLES, "_ingests", "_redact"):
            shutil.copytree(Path(first.uri, name), path / name)
        return locate(path)

    return make


@pytest.fixture
def started_on_s3(started: Make, object_store: ObjectStore) -> Make:
    """Makes the same lakes on S3."""
    local = Path(started().uri)

    def make() -> Location:
        lake = locate(f"s3://lake/{uuid.uuid4().hex}", storage_options(object_store.url), environment={})
        for path in local.rglob("*"):
            if path.is_file():
                lake.write(str(path.relative_to(local)), path.read_bytes())
        return lake

    return make


def check_interleavings(make: Make, make_undisturbed: Make, numbers: Iterable[int]) -> None:
    seen: Counter[str] = Counter()
    serial: dict[tuple[str, ...], Contents] = {}
    for number in numbers:
        lake = make()
        published = run(lake, random.Random(number), seen)
        for path in sorted({"b", "c", "d"} - published):
            ingest_capture(lake, path)
        found = contents(lake, TABLES, without=())
        order = tuple(row["path"] for row in sorted(found["captures"], key=lambda row: row["ingest_id"]))
        assert sorted(order) == ["a", "b", "c", "d"]
        if order not in serial:
            undisturbed = make_undisturbed()
            for path in order:
                ingest_capture(undisturbed, path)
            serial[order] = contents(undisturbed, TABLES, without=())
        assert found == serial[order], f"interleaving {number}"
        if lake.is_local:
            shutil.rmtree(lake.uri)
    assert seen["LostRace"] and seen["Killed"], "the interleavings must reach races and deaths"
    assert seen.keys() >= STEPS, "the interleavings must reach every step"


# Each batch takes some seconds; one is enough for the quick loop.
@pytest.mark.parametrize("batch", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, BATCHES))])
def test_every_interleaving_equals_a_serial_run(started: Make, batch: int) -> None:
    check_interleavings(started, started, range(ON_S3 + batch, INTERLEAVINGS, BATCHES))


@pytest.mark.slow
def test_every_interleaving_on_an_object_store_equals_a_serial_run(
    started: Make, started_on_s3: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(0)

    class InThisThread(nullcontext[None]):
        """Runs the commits of a writer where `Interleaved` can stop them."""

        def __enter__(self) -> InThisThread:  # type: ignore[override]
            return self

        def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
            given = list(items)
            results = {n: function(given[n]) for n in chance.sample(range(len(given)), len(given))}
            return [results[n] for n in range(len(given))]

    monkeypatch.setattr("rtmp_spark.lake.writer.ThreadPoolExecutor", InThisThread)
    check_interleavings(started_on_s3, started, range(ON_S3))
