"""One Spark session for all tests of this directory: starting one is most of their cost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import SparkSession

from rtmp_spark.codec.errors import UserError
from rtmp_spark.spark import start_spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    try:
        session = start_spark("local[2]", small=True)
    except UserError as error:
        pytest.skip(f"no Spark here: {error}")
    yield session
    session.stop()


@pytest.fixture
def java() -> str:
    found = shutil.which("java")
    if found is None:
        pytest.skip("java is not installed")
    return found
