"""Lakes for tests: creating one takes longer than copying one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.object_store import ObjectStore

from rtmp_spark.lake import failpoint
from rtmp_spark.lake.location import Location, locate
from rtmp_spark.lake.tables import create_lake


@pytest.fixture(scope="session")
def empty_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake without rows, to be copied."""
    path = tmp_path_factory.mktemp("template") / "lake"
    create_lake(locate(path))
    return path


@pytest.fixture
def new_lake(empty_lake: Path, tmp_path: Path) -> Callable[[], Location]:
    """Makes lakes without rows, each in a directory of its own."""
    count = iter(range(1_000_000))

    def make() -> Location:
        path = tmp_path / f"lake{next(count)}"
        shutil.copytree(empty_lake, path)
        return locate(path)

    return make


@pytest.fixture
def lake(new_lake: Callable[[], Location]) -> Location:
    return new_lake()


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    pytest.importorskip("moto.server", reason="moto[server] is not installed (extra: test)")
    store = ObjectStore()
    yield store
    store.close()


class Killed(BaseException):
    """Simulates the death of a process: no code of ours may catch it."""


@pytest.fixture
def die_at() -> Iterator[Callable[[str], None]]:
    """Raises `Killed` at a failpoint, once."""
    added: list[Callable[[str], None]] = []

    def arrange(name: str) -> None:
        def observe(reached: str) -> None:
            if reached == name:
                failpoint.observers.remove(observe)
                raise Killed(name)

        added.append(observe)
        failpoint.observers.append(observe)

    yield arrange
    left = [observe for observe in added if observe in failpoint.observers]
    for observe in left:
        failpoint.observers.remove(observe)
    assert not left, "a failpoint was never reached"
