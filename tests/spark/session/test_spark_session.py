"""Settings of our own session."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rtmp_spark.spark.session.java_process import MODULE_OPTIONS
from rtmp_spark.spark.session.spark_session import local_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_garbage_collector_that_the_user_chose(java: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java does not start with two."""
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    assert "-XX:+UseParallelGC" in local_settings(small=True)["spark.driver.extraJavaOptions"]
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xmx1g -XX:+UseG1GC")
    assert "GC" not in local_settings(small=True)["spark.driver.extraJavaOptions"]


@pytest.mark.spark
def test_java_gets_the_options_that_spark_wants(spark: SparkSession) -> None:
    """Another version of Spark may want others."""
    wanted: Any = spark
    assert (
        tuple(wanted._jvm.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptions().split()) == MODULE_OPTIONS
    )


START = """
import os
import sys
from rtmp_spark.spark import start_spark

spark = start_spark("local[1]", small=True)
java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
assert spark.range(3).mapInArrow(lambda batches: batches, "id long").count() == 3
spark.range(3).write.format("delta").save(sys.argv[1])
assert spark.read.format("delta").load(sys.argv[1]).count() == 3
with open(f"/proc/{java}/cmdline") as command:
    print(java, "SparkSubmit" in command.read(), "PYSPARK_GATEWAY_PORT" in os.environ)
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("settings", [{}, {"PYSPARK_SUBMIT_ARGS": "pyspark-shell"}])
def test_java_starts_without_scripts_unless_the_user_has_settings_for_them(
    java: str, settings: dict[str, str], tmp_path: Path
) -> None:
    """Either way the session works with Delta tables, and Java ends with the process."""
    command = [sys.executable, "-c", START, str(tmp_path / "table")]
    done = subprocess.run(command, env=os.environ | settings, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    pid, by_scripts, port = done.stdout.split()
    assert (by_scripts, port) == (str(bool(settings)), "False")
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "Java still runs"
        time.sleep(0.1)


@pytest.mark.spark
def test_a_session_starts_after_one_that_did_not(java: str) -> None:
    """The Java of the first one is used again: pyspark keeps its connection to it."""
    tries = (
        "from rtmp_spark.spark import start_spark\n"
        "for master in ('local[0]', 'local[1]'):\n"
        "    try: print(start_spark(master, delta=False, small=True).range(5).count())\n"
        "    except Exception as error: print(type(error).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", tries], text=True, capture_output=True)
    assert done.stdout.split() == ["UserError", "5"], done.stderr


@pytest.mark.parametrize("master", ["local[1]", "spark://nowhere:1", "sc://nowhere"])
def test_without_pyspark_its_absence_is_the_error(master: str) -> None:
    """Not that Spark did not start, or that Java is missing: the command says which extra to install."""
    code = (
        "import importlib.util, sys\nfrom rtmp_spark.spark import start_spark\n"
        "class Absent:\n    def find_spec(self, name, *_):\n"
        "        if name == 'pyspark': raise ModuleNotFoundError(\"No module named 'pyspark'\", name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        f"try:\n    start_spark({master!r})\nexcept ModuleNotFoundError as error:\n    print(error.name)"
    )
    environment = os.environ | {"RTMP_SPARK_CLASS_ARCHIVE": "0", "JAVA_HOME": "", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True)
    assert done.stdout == "pyspark\n", done.stderr
