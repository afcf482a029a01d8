"""What every test may ask for: the sample captures, a Spark session, and which real programs this machine has."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same examples every time, so that a run is red only for what changed; a long search is random.
hypothesis.settings.register_profile("steady", derandomize="RTMP_SPARK_EXAMPLES" not in os.environ, deadline=None)
hypothesis.settings.load_profile("steady")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def sample_pcaps() -> Path:
    """The directory of the bundled captures."""
    return ROOT / "sample_pcaps"


@pytest.fixture(scope="session")
def oracle() -> Path:
    """What the other side got of the bundled captures, as FLV tags."""
    return ROOT / "sample_pcaps" / "oracle"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests of a process: starting one costs more than most of them."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from rtmp_spark.codec.errors import UserError
    from rtmp_spark.spark import start_spark
    from rtmp_spark.spark.jars import delta_jars, java_home

    try:
        java_home()
        delta_jars()
    except UserError as error:
        pytest.skip(f"no Spark here: {error}")
    session = start_spark("local[2]", small=True)  # everything is there: not to start is a failure
    yield session
    session.stop()


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks for the session starts Spark."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture
def program(request: pytest.FixtureRequest) -> str:
    """The path of a real program, named by `@pytest.mark.parametrize("program", ["tshark"], indirect=True)`."""
    name: str = request.param
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found
