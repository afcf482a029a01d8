"""Deliveries of many publishers and players: a lake gives the rows of `inspect`, and trouble never fails an ingest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit import capture_rewriting
from kit.in_process_ingest import InProcessStages, ingest_in_process, lake_rows
from kit.relay_captures import make_relayed

from rtmp_spark.analysis.recording import ALL_TABLES, Recording
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.ingest.publish import across_job, delivery_plan, delivery_search

TABLES = ("streams", "deliveries", "findings")
Rows = dict[str, list[str]]


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    names = ("players", "names", "same")
    return dict(zip(names, make_relayed(tmp_path_factory.mktemp("relayed"), *names)))


def cut(path: Path, parts: int, directory: Path) -> list[Path]:
    """The capture as several files, each with as many packets."""
    packets = capture_rewriting.read(path)
    step = -(-len(packets) // parts)
    paths = [directory / f"{path.stem}_{n}.pcap" for n in range(parts)]
    for n, part in enumerate(paths):
        part.write_bytes(capture_rewriting.pcap(capture_rewriting.build(packets[n * step : (n + 1) * step])))
    return paths


def apart(path: Path, parts: int, directory: Path) -> list[Path]:
    """The capture as several files of the same time, each with some of the connections."""
    packets = capture_rewriting.read(path)
    paths = [directory / f"{path.stem}_{n}.pcap" for n in range(parts)]
    for n, part in enumerate(paths):
        mine = [p for p in packets if (p.sport + p.dport) % parts == n]
        part.write_bytes(capture_rewriting.pcap(capture_rewriting.build(mine)))
    return paths


def of_inspect(paths: Sequence[Path]) -> Rows:
    settings = replace(IngestOptions().settings(), rules_across_connections=True)
    rows: Rows = {name: [] for name in TABLES}
    for table, batch in Recording(map(str, paths), settings, (*ALL_TABLES, "deliveries")).batches():
        if table in rows:
            rows[table] += [repr(row) for row in batch.drop_columns(["ingest_id"]).to_pylist()]
    return {name: sorted(found) for name, found in rows.items()}


def of_lake(lake: Path) -> Rows:
    return {
        name: sorted(repr({k: v for k, v in row.items() if k != "ingest_id"}) for row in lake_rows(lake, name))
        for name in TABLES
    }


def run(lake: Path, *ingests: Sequence[Path]) -> list[str]:
    incomplete: list[str] = []
    for paths in ingests:
        incomplete += ingest_in_process(lake, paths, keep_secrets=True).incomplete
    return incomplete


def limits(rows: Rows) -> list[str]:
    return [row for row in rows["findings"] if "CAPTURE_LIMIT" in row]


@pytest.mark.parametrize(("name", "deliveries"), [("players", 50), ("names", 40), ("same", 16 * 40)])
def test_the_rows_of_inspect(name: str, deliveries: int, captures: dict[str, Path], tmp_path: Path) -> None:
    """Every play came from one publication; where all have one content, a play is compared with 16 of 20."""
    expected = of_inspect([captures[name]])
    assert len(expected["deliveries"]) == deliveries
    assert len(limits(expected)) == (40 if name == "same" else 0)
    assert run(tmp_path / "lake", [captures[name]]) == []
    assert of_lake(tmp_path / "lake") == expected


@pytest.mark.parametrize("name", ["players", "names", "same"])
@pytest.mark.parametrize("divide", [cut, apart])
def test_several_ingests(
    name: str, divide: Callable[[Path, int, Path], list[Path]], captures: dict[str, Path], tmp_path: Path
) -> None:
    parts = divide(captures[name], 3, tmp_path)
    expected = of_inspect(parts)
    run(tmp_path / "lake", *([part] for part in parts))
    assert of_lake(tmp_path / "lake") == expected


@pytest.mark.parametrize(("cores", "batches"), [(1, 1), (2, 2), (8, 3)])
def test_a_batch_for_each_core(
    cores: int, batches: int, captures: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plays of each of the three names are matched by one task."""
    monkeypatch.setattr(delivery_plan, "SMALL_MESSAGES", 20)
    found: list[int] = []
    original = InProcessStages.run

    def counted(self: InProcessStages, task: Any, work: Sequence[str], seconds: float, small: bool) -> Any:
        found.append(len(work))
        return original(self, task, work, seconds, small)

    monkeypatch.setattr(InProcessStages, "run", counted)
    ingest_in_process(tmp_path / "lake", [captures["names"]], keep_secrets=True, buckets=cores)
    assert of_lake(tmp_path / "lake") == of_inspect([captures["names"]])
    assert found[-1] == batches


@pytest.mark.parametrize("name", ["players", "names", "same"])
@pytest.mark.parametrize("limit", ["BATCH_MESSAGES", "BATCH_PLAYS"])
def test_many_small_batches(
    name: str, limit: str, captures: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks that can hold a few streams at a time, or have a few plays."""
    if limit == "BATCH_PLAYS":
        monkeypatch.setattr(delivery_plan, limit, 3)
    else:
        for module in (delivery_plan, delivery_search):
            monkeypatch.setattr(module, limit, 100)
    batches: list[int] = []
    original = InProcessStages.run

    def counted(self: InProcessStages, task: Any, work: Sequence[str], seconds: float, small: bool) -> Any:
        batches.append(len(work))
        return original(self, task, work, seconds, small)

    monkeypatch.setattr(InProcessStages, "run", counted)
    run(tmp_path / "lake", [captures[name]])
    assert of_lake(tmp_path / "lake") == of_inspect([captures[name]])
    assert batches[-1] > (2 if limit == "BATCH_PLAYS" and name != "players" else 10)


def test_a_play_of_the_lake_is_compared_again(captures: dict[str, Path], tmp_path: Path) -> None:
    """A later ingest brings more publishers of the same content and time: rows and finding are replaced."""
    parts = apart(captures["same"], 4, tmp_path)
    lake = tmp_path / "lake"
    run(lake, parts[:2])
    before = of_lake(lake)
    assert before["deliveries"] and not limits(before)
    run(lake, parts[2:])
    after = of_lake(lake)
    assert after == of_inspect(parts)
    assert len(limits(after)) == 40
    run(lake, [make_relayed(tmp_path, "players")[0]])
    assert limits(of_lake(lake)) == limits(after)


def test_an_error_in_the_search_is_a_finding(
    captures: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(delivery_search, "delivery", fail)
    incomplete = run(tmp_path / "lake", [captures["names"]])
    assert incomplete == ["40 played streams were not matched with published ones: MemoryError: no more"]
    found = of_lake(tmp_path / "lake")
    assert found["deliveries"] == [] and found["streams"] == of_inspect([captures["names"]])["streams"]
    (finding,) = limits(found)
    assert incomplete[0] in finding and "'count': 40" in finding and "--redo" in finding


def test_a_search_that_takes_too_long_is_a_finding(
    captures: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_search, "time", SimpleNamespace(time=lambda: 1e12))
    incomplete = run(tmp_path / "lake", [captures["names"]])
    assert incomplete == ["40 played streams were not matched with published ones: it took too long"]
    assert len(limits(of_lake(tmp_path / "lake"))) == 1


def test_an_error_in_the_rules_is_a_finding(
    captures: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(across_job, "neighbours", fail)
    incomplete = run(tmp_path / "lake", [captures["names"]])
    assert incomplete == ["connections were not compared with each other: RecursionError: too deep"]
    found, whole = of_lake(tmp_path / "lake"), of_inspect([captures["names"]])
    assert len(found["streams"]) == len(whole["streams"]) and len(limits(found)) == 1
    assert len(lake_rows(tmp_path / "lake", "messages")) > 3000


def test_rows_of_the_lake_stay_if_the_search_fails(
    captures: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A play that should have been matched again keeps its deliveries."""
    parts = apart(captures["same"], 4, tmp_path)
    run(tmp_path / "lake", parts[:2])
    before = of_lake(tmp_path / "lake")["deliveries"]

    def fail(*_: object) -> None:
        raise ValueError("damaged")

    monkeypatch.setattr(delivery_search, "delivery", fail)
    run(tmp_path / "lake", parts[2:])
    assert of_lake(tmp_path / "lake")["deliveries"] == before
