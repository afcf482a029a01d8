"""Fixtures for all tests: the sample captures, a Spark session, and installed programs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same examples in every run, so that only a change can make a test fail; RTMP_SPARK_EXAMPLES searches randomly.
hypothesis.settings.register_profile("steady", derandomize="RTMP_SPARK_EXAMPLES" not in os.environ, deadline=None)
hypothesis.settings.load_profile("steady")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def sample_pcaps() -> Path:
    """The directory of the sample captures."""
    return ROOT / "sample_pcaps"


@pytest.fixture(scope="session")
def oracle() -> Path:
    """The directory of FLV tags that servers recorded and players received in the sample captures."""
    return ROOT / "sample_pcaps" / "oracle"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests of a process, because starting one takes longer than most tests."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from rtmp_spark.codec.errors import UserError
    from rtmp_spark.spark import start_spark
    from rtmp_spark.spark.session.jars import delta_jars, java_home

    try:
        java_home()
        delta_jars()
    except UserError as error:
        pytest.skip(f"Spark is not available: {error}")
    session = start_spark("local[2]", small=True)  # all requirements are met, so a failure to start is an error
    yield session
    session.stop()


@pytest.hookimpl(wrapper=True, optionalhook=True)  # optional: unknown without pytest-xdist
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One worker more than cores for `-n auto`, because many tests wait: for a relay, a timeout, another program."""
    return (yield) + 1


@pytest.hookimpl(tryfirst=True)  # before -m selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses the Spark session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture
def program(request: pytest.FixtureRequest) -> str:
    """The path of a program, chosen with `@pytest.mark.parametrize("program", ["tshark"], indirect=True)`."""
    name: str = request.param
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found
