"""Settings of our own session."""

from __future__ import annotations

import pytest

from rtmp_spark.spark.session.spark_session import local_settings


def test_a_garbage_collector_that_the_user_chose(java: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java does not start with two."""
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    assert "-XX:+UseParallelGC" in local_settings(small=True)["spark.driver.extraJavaOptions"]
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xmx1g -XX:+UseG1GC")
    assert "GC" not in local_settings(small=True)["spark.driver.extraJavaOptions"]
