"""The examples of docs/api.md that need Spark or a lake run."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def test_examples(
    spark: SparkSession, local: Path, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sample_pcaps").symlink_to(sample_pcaps)
    shutil.copytree(local, "lake")
    for name in ("spark", "lake"):
        runpy.run_path(str(EXAMPLES / f"{name}.py"))
