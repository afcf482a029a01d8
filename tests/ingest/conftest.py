"""Fixtures of the tests of the pipeline without Spark."""

from __future__ import annotations

import pytest

from rtmp_spark.ingest.scan import plan


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections of small captures are divided among buckets like those of large ones."""
    monkeypatch.setattr(plan, "LEAST_BUCKET_BYTES", 1)
