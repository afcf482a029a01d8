"""Jars from Maven Central for tests of Hadoop's connectors, downloaded once by Ivy, which Spark contains."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from rtmp_spark.spark.session.jars import cache_directory

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
HADOOP = next(SPARK_JARS.glob("hadoop-client-api-*.jar")).stem.removeprefix("hadoop-client-api-")
_AWS = "software.amazon.awssdk"
_SDK = "2.35.4"  # the version that hadoop-aws 3.5.0 names
# hadoop-aws asks for all of Amazon's services in one jar of 670 MB; these parts of it are enough, in 14 MB.
S3A = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP}",
    *(f"{_AWS}:{name}:{_SDK}" for name in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")),
)
MINI_CLUSTER = (
    f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}",
    "org.junit.jupiter:junit-jupiter-api:5.13.4",  # which its classes call
)
# Spark has the jars of all other organisations.
_EXCLUDED = r"^(?!(org\.apache\.hadoop|software\.amazon.*|org\.reactivestreams|org\.junit.*|org\.opentest4j)$).*"

_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
_MODULE = """<ivy-module version="2.0">
  <info organisation="rtmp_spark" module="test"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    {dependencies}
    <exclude org="software.amazon.awssdk" module="bundle"/>
    <exclude org="{excluded}" matcher="regexp"/>
  </dependencies>
</ivy-module>
"""


def maven_jars(name: str, artifacts: tuple[str, ...]) -> list[Path]:
    """The jars of these artifacts with their dependencies. Skips the test if they cannot be downloaded."""
    directory = cache_directory() / f"test-{name}-{HADOOP}"
    if not directory.is_dir():
        _download(directory, artifacts)
    return sorted(directory.glob("*.jar"))


def _download(directory: Path, artifacts: tuple[str, ...]) -> None:
    work = directory.with_name(f"{directory.name}.{os.getpid()}")
    work.mkdir(parents=True)
    rows = [
        '<dependency org="{}" name="{}" rev="{}" conf="default->default"/>'.format(*artifact.split(":"))
        for artifact in artifacts
    ]
    (work / "ivy.xml").write_text(_MODULE.format(dependencies="\n    ".join(rows), excluded=_EXCLUDED))
    (work / "settings.xml").write_text(_SETTINGS)
    settings = os.environ.get("RTMP_SPARK_IVY_SETTINGS") or str(work / "settings.xml")
    command = [
        "java", "-cp", str(next(SPARK_JARS.glob("ivy-*.jar"))), "org.apache.ivy.Main", "-settings", settings,
        "-ivy", str(work / "ivy.xml"), "-cache", str(work / "cache"), "-confs", "default", "-types", "jar", "bundle",
        "-retrieve", f"{work}/jars/[artifact]-[revision].[ext]", "-error",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode or not (work / "jars").is_dir():
            pytest.skip(f"the jars of {artifacts[0]} cannot be downloaded: {done.stderr.strip()[-200:]}")
        (work / "jars").rename(directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)
