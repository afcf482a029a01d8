"""Fixtures of the Spark tests, besides the session that all tests share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from kit.object_store import ObjectStore
from kit.separate_ingest import NAMES
from kit.spark_submit import Submitter, make_package, make_python
from pyspark.sql import SparkSession

from rtmp_spark.ingest.scan import plan
from rtmp_spark.spark import ingest


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections of small captures are divided among buckets like those of large ones."""
    monkeypatch.setattr(plan, "LEAST_BUCKET_BYTES", 1)


@pytest.fixture(scope="session")
def java() -> str:
    found = shutil.which("java")
    if found is None:
        pytest.skip("java is not installed")
    return found


@pytest.fixture(scope="session")
def local(spark: SparkSession, sample_pcaps: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake with which the lakes of other kinds of Spark sessions are compared."""
    lake = tmp_path_factory.mktemp("local") / "lake"
    ingest(spark, [str(sample_pcaps / name) for name in NAMES], str(lake))
    return lake


@pytest.fixture(scope="session")
def store(sample_pcaps: Path) -> Iterator[ObjectStore]:
    """An S3 server in its own process, with the captures."""
    pytest.importorskip("moto.server", reason="moto is not installed (extra: test)")
    found = ObjectStore()
    try:
        for bucket in ("captures", "lakes"):
            found.put(bucket)
        found.put(f"captures/50% of day 1/{NAMES[0]}", (sample_pcaps / NAMES[0]).read_bytes())
        found.put(f"captures/{NAMES[1]}", (sample_pcaps / NAMES[1]).read_bytes())
        yield found
    finally:
        found.close()


@pytest.fixture
def spark_submit(tmp_path: Path) -> Submitter:
    return Submitter(tmp_path, make_package(tmp_path), make_python(tmp_path))
