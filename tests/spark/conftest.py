"""What the tests of this directory need besides the session that all share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from otherspark import NAMES
from pyspark.sql import SparkSession

from rtmp_spark.spark import ingest


@pytest.fixture
def java() -> str:
    found = shutil.which("java")
    if found is None:
        pytest.skip("java is not installed")
    return found


@pytest.fixture(scope="session")
def local(spark: SparkSession, sample_pcaps: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake that other kinds of Spark are compared with."""
    lake = tmp_path_factory.mktemp("local") / "lake"
    ingest(spark, [str(sample_pcaps / name) for name in NAMES], str(lake))
    return lake
