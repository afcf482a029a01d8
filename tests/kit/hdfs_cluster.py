"""An HDFS on loopback: a namenode and a datanode in one process (Hadoop's MiniDFSCluster)."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from kit.maven_jars import MINI_CLUSTER, SPARK_JARS, maven_jars
from kit.separate_ingest import QUICK_JAVA, free_port


class HdfsCluster:
    def __init__(self, directory: Path) -> None:
        own = maven_jars("minicluster", MINI_CLUSTER)
        names = ("commons-cli", "commons-lang3", "slf4j-api", "jcl-over-slf4j")
        shared = [path for name in names for path in SPARK_JARS.glob(f"{name}-*.jar")]
        details = directory / "details.json"
        port = free_port()
        self.uri = f"hdfs://127.0.0.1:{port}"
        command = [
            "java", *QUICK_JAVA["JAVA_TOOL_OPTIONS"].split(), "-Xmx512m", "-cp", ":".join(map(str, [*own, *shared])),
            "org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1", "-nnport", str(port),
            "-writeDetails", str(details), "-D", "dfs.permissions.enabled=false",
        ]  # fmt: skip
        log = (directory / "log").open("wb")
        self._process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
        deadline = time.monotonic() + 180
        while not details.exists():  # written when the datanode has arrived
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.close()
                raise RuntimeError((directory / "log").read_text()[-2000:])
            time.sleep(0.1)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
