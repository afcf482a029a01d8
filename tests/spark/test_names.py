"""The names of `rtmp_spark.spark`, whose modules are imported when a name is first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rtmp_spark.spark


def test_every_name_leads_to_what_it_names() -> None:
    for name in rtmp_spark.spark.__all__:
        found = getattr(rtmp_spark.spark, name)
        assert found.__name__ == name and found.__module__.startswith("rtmp_spark.")
    assert set(rtmp_spark.spark.__all__) <= set(dir(rtmp_spark.spark))


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ingets'"):
        rtmp_spark.spark.ingets  # noqa: B018
    with pytest.raises(ImportError):
        from rtmp_spark.spark import ingets  # noqa: F401


def test_neither_a_session_nor_a_task_of_an_ingest_needs_pandas() -> None:
    """Importing it takes a quarter of a second, in the driver before Java starts and in each Python worker."""
    code = (
        "import sys, pyarrow as pa, rtmp_spark.spark.session.spark_session, rtmp_spark.spark.stages\n"
        "from rtmp_spark.analysis.arrow_columns import arrow_batch\n"
        "arrow_batch([['text']], pa.schema([('result', pa.string())]))\n"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
