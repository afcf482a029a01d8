"""An ingest gives the same tables if executors are separate processes that do not have this package."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.in_process_ingest import ingest_in_process
from kit.object_store import ObjectStore
from kit.separate_ingest import INGEST, NAMES, QUICK_JAVA, assert_same, free_port, python
from kit.separate_ingest import S3_CAPTURES as CAPTURES
from kit.spark_submit import ELSEWHERE, SPARK, Submitter, finished, make_python

from rtmp_spark.lake.reader import open_lake

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone master with two workers, each a separate process that knows nothing of the driver's environment."""
    directory = tmp_path_factory.mktemp("standalone")
    port = free_port()
    spark_class = str(SPARK / "spark-class")
    environment = ELSEWHERE | QUICK_JAVA | {"SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> None:
        started.append(
            subprocess.Popen(
                [spark_class, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )

    master = f"spark://127.0.0.1:{port}"
    ui = str(free_port())
    start("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", ui)
    for n in range(2):
        start(
            "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
            "--work-dir", str(directory / f"work{n}"), "--webui-port", str(free_port()), master,
        )  # fmt: skip
    try:
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)


def test_a_standalone_master_with_two_workers(local: Path, standalone: str, sample_pcaps: Path, tmp_path: Path) -> None:
    """The workers do not have the package: the session sends it to them. Small splits give both of them work."""
    lake = tmp_path / "lake"
    arguments = (*(str(sample_pcaps / name) for name in NAMES), "--lake", str(lake), "--split-size", "64KB")
    python(INGEST, "ingest", *arguments, "--master", standalone, PYSPARK_PYTHON=str(make_python(tmp_path)))
    assert_same(local, lake)


COUNTING_CORES = """
import sys
from rtmp_spark.cli import main
from rtmp_spark.spark import pipeline

counted, count = [], pipeline.cluster_cores
pipeline.cluster_cores = lambda spark: counted.append(count(spark)) or counted[-1]
code = main(sys.argv[1:])
assert counted == [2], counted
sys.exit(code)
"""


def test_two_executors_of_a_local_cluster(local: Path, sample_pcaps: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    arguments = (*(str(sample_pcaps / name) for name in NAMES), "--lake", str(lake), "--split-size", "64KB")
    python(COUNTING_CORES, "ingest", *arguments, "--master", "local-cluster[2,1,1024]")
    assert_same(local, lake)


# The first task of each stage kills the JVM of its executor after its work, so that Spark loses the result and runs the
# task again. `os.link` succeeds for one task only.
LOSING_EXECUTORS = """
import os, sys
from pathlib import Path
from rtmp_spark.cli import main
from rtmp_spark.ingest.scan import plan
from rtmp_spark.spark import stages

def losing(directory, stage, task):
    def run(job, *work):
        result = task(job, *work)
        daemon = os.getppid()
        executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
        done = Path(directory, f"{stage} {executor}")
        done.write_text(Path(f"/proc/{executor}/cmdline").read_text())
        try:
            os.link(done, Path(directory, f"{stage} killed"))
        except FileExistsError:
            return result
        os.kill(executor, 9)
        raise SystemExit
    return run

plan.TASK_BYTES, plan.TASKS_PER_CORE = 1, 1_000_000  # a task for each file
stages.scan_splits = losing(sys.argv[1], "scan", stages.scan_splits)
stages.decode_bucket = losing(sys.argv[1], "decode", stages.decode_bucket)
sys.exit(main(sys.argv[2:]))
"""


def test_executors_lost_while_they_scan_and_decode(standalone: str, sample_pcaps: Path, tmp_path: Path) -> None:
    """The packets of compressed captures are in sorted copies, which must survive the executor that wrote them."""
    compressed = [tmp_path / f"{name}.gz" for name in NAMES]
    for name, path in zip(NAMES, compressed):
        path.write_bytes(gzip.compress((sample_pcaps / name).read_bytes(), 1))
    files = [*compressed, sample_pcaps / "pcapng_dumpcap_ffmpeg_publish.pcapng"]
    noted, lake = tmp_path / "noted", tmp_path / "lake"
    noted.mkdir()
    arguments = (str(noted), "ingest", *map(str, files), "--lake", str(lake), "--master", standalone)
    python(LOSING_EXECUTORS, *arguments, PYSPARK_PYTHON=str(make_python(tmp_path)))
    for stage in ("scan", "decode"):
        killed = noted / f"{stage} killed"
        assert "CoarseGrainedExecutorBackend" in killed.read_text()
        ends = {path.name for path in noted.glob(f"{stage} *") if not path.samefile(killed)}
        assert ends, "no other executor did the rest of the work"
    ingest_in_process(tmp_path / "undisturbed", files)
    assert_same(tmp_path / "undisturbed", lake)


def test_executors_without_credentials_for_the_captures(
    store: ObjectStore, standalone: str, spark_submit: Submitter
) -> None:
    arguments = (CAPTURES[0], "--lake", "s3://lakes/none")
    done = spark_submit.run("ingest.py", *arguments, master=standalone, environment=store.environment)
    assert done.returncode == 3
    sentence = [line for line in done.stdout.splitlines() if line.startswith("rtmp-spark:")][-1]  # after its progress
    assert "published nothing" in sentence
    assert open_lake("s3://lakes/none", store.environment).published.ingest_id == 0


def for_executors(store: ObjectStore) -> dict[str, str]:
    """Executors read the captures with variables of their own; the credentials of the lake go with their work."""
    return {f"spark.executorEnv.{name}": value for name, value in store.environment.items()}


def test_two_drivers_one_waits_for_the_other(
    local: Path, store: ObjectStore, standalone: str, spark_submit: Submitter
) -> None:
    """Executors with credentials of their own write the files, the drivers commit them."""
    conf = {"spark.cores.max": "1", **for_executors(store)}
    drivers = [
        spark_submit.start(
            "ingest.py", capture, "--lake", "s3://lakes/wait", "--split-size", "64KB",
            master=standalone, conf=conf, environment=store.environment,
        )
        for capture in CAPTURES
    ]  # fmt: skip
    done = [finished(driver) for driver in drivers]
    assert [result.returncode for result in done] == [0, 0], done[0].stderr[-3000:] + done[1].stderr[-3000:]
    assert open_lake("s3://lakes/wait", store.environment).published.ingest_id == 2
    assert_same(local, "s3://lakes/wait", store.environment, in_order=False)
