"""An ingest gives the same tables if executors are separate processes: local cluster and standalone master."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.separate_ingest import INGEST, NAMES, assert_same, python
from kit.spark_submit import make_python

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def run(lake: Path, sample_pcaps: Path, *extra: str, **environment: str) -> None:
    """Small splits, so that both executors have work."""
    captures = (str(sample_pcaps / name) for name in NAMES)
    python(INGEST, "ingest", *captures, "--lake", str(lake), "--split-size", "64KB", *extra, **environment)


def test_a_local_cluster(local: Path, sample_pcaps: Path, tmp_path: Path) -> None:
    run(tmp_path / "lake", sample_pcaps, "--master", "local-cluster[2,1,1024]")
    assert_same(local, tmp_path / "lake")


def test_a_standalone_master_with_two_workers(local: Path, standalone: str, sample_pcaps: Path, tmp_path: Path) -> None:
    """The workers do not have the package: the session sends it to them."""
    run(tmp_path / "lake", sample_pcaps, "--master", standalone, PYSPARK_PYTHON=str(make_python(tmp_path)))
    assert_same(local, tmp_path / "lake")
