"""What every test may ask for: the sample captures, and which real programs this machine has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import hypothesis
import pytest

# The same examples every time, so that a run is red only for what changed; a long search is random.
hypothesis.settings.register_profile("steady", derandomize="RTMP_SPARK_EXAMPLES" not in os.environ, deadline=None)
hypothesis.settings.load_profile("steady")

ROOT = Path(__file__).parent.parent
SPARK_TESTS = ROOT / "tests" / "spark"


@pytest.fixture(scope="session")
def sample_pcaps() -> Path:
    """The directory of the bundled captures."""
    return ROOT / "sample_pcaps"


@pytest.fixture(scope="session")
def oracle() -> Path:
    """What the other side got of the bundled captures, as FLV tags."""
    return ROOT / "sample_pcaps" / "oracle"


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups in its own hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the Spark tests, and keep them in one worker: one JVM is heavy enough."""
    for item in items:
        if SPARK_TESTS in item.path.parents:
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture
def program(request: pytest.FixtureRequest) -> str:
    """The path of a real program, named by `@pytest.mark.parametrize("program", ["tshark"], indirect=True)`."""
    name: str = request.param
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found
