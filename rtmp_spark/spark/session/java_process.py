"""Starts the Java of a local session of our own, before pyspark is imported.

pyspark has to be imported before it starts Java, then runs two shell scripts and a Java that reads the user's Spark
settings, and the Java after that prepares for clusters. A local session of ours needs none of this: here Java starts at
once, with the class that pyspark connects to, while Python imports pyspark.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

_GATEWAY = "org.apache.spark.api.python.PythonGatewayServer"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"  # where pyspark looks for a Java that runs
# Only pyspark's scripts read these settings of the user.
_FOR_THE_SCRIPTS = (
    "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "SPARK_DIST_CLASSPATH", "SPARK_TESTING", "PYSPARK_SUBMIT_ARGS",
    "HADOOP_CONF_DIR", "YARN_CONF_DIR",
)  # fmt: skip
_POLL_SECONDS = 0.005
_OPENED = (
    "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect", "java.base/java.io",
    "java.base/java.net", "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
    "java.base/sun.nio.cs", "java.base/sun.security.action", "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)  # fmt: skip
# Those of org.apache.spark.launcher.JavaModuleOptions, in its order.
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
_running: list[subprocess.Popen[bytes]] = []  # with their inputs: Java ends when its input is closed


def spark_home() -> Path:
    """The directory of pyspark, which is not imported."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    return Path(spec.origin).parent


@contextmanager
def java_process(settings: Mapping[str, str]) -> Iterator[Callable[[], None]]:
    """Java starts now; the function that is returned waits for it, after which pyspark connects to it.

    If the user has own Spark settings, or Java may run already, nothing happens here and pyspark starts Java.
    """
    home = spark_home()
    if "pyspark" in sys.modules or any(name in os.environ for name in _FOR_THE_SCRIPTS) or (home / "conf").exists():
        yield lambda: None
        return
    directory = Path(tempfile.mkdtemp())
    address = directory / "address"
    java = _start(home, settings, address)
    try:
        yield lambda: _connect(java, address)
    finally:
        if _PORT in os.environ:  # pyspark uses this Java from now on, also if the session does not start
            _running.append(java)
        else:
            java.kill()
            java.wait()
        for name in (_PORT, _SECRET):
            os.environ.pop(name, None)
        shutil.rmtree(directory, ignore_errors=True)


def _start(home: Path, settings: Mapping[str, str], address: Path) -> subprocess.Popen[bytes]:
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home, "bin", "java")) if java_home else "java"
    # The class path is that of pyspark's scripts, so that both use the same class archive.
    logging = sorted(str(jar) for jar in (home / "jars").glob("slf4j-api-*.jar"))
    path = [settings.get("spark.driver.extraClassPath", ""), f"{home}/conf", *logging, f"{home}/jars/*"]
    return subprocess.Popen(
        [
            java, "-cp", ":".join(filter(None, path)), f"-Xmx{settings['spark.driver.memory']}",
            *shlex.split(settings["spark.driver.extraJavaOptions"]), *MODULE_OPTIONS, _GATEWAY,
        ],
        stdin=subprocess.PIPE,
        env=os.environ
        | {"SPARK_HOME": str(home), "PYTHONHASHSEED": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # Ctrl-C is for the Python process
    )  # fmt: skip


def _connect(java: subprocess.Popen[bytes], address: Path) -> None:
    """Name the port and the secret that Java wrote where pyspark looks for them."""
    while not address.exists():  # it appears complete
        if java.poll() is not None:
            raise RuntimeError("Java ended before Spark started")
        time.sleep(_POLL_SECONDS)
    content = address.read_bytes()
    secret = content[8 : 8 + int.from_bytes(content[4:8], "big")]
    os.environ[_PORT], os.environ[_SECRET] = str(int.from_bytes(content[:4], "big")), secret.decode()
