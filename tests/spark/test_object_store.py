"""Captures and lakes in an object store: the same tables as from local files, also with two drivers at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.maven_jars import S3A, maven_jars
from kit.object_store import ObjectStore
from kit.separate_ingest import INGEST, NAMES, assert_same, python
from kit.spark_submit import Submitter, finished

from rtmp_spark.lake.ledger import Ledger
from rtmp_spark.lake.location import locate
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.schema import TABLES
from rtmp_spark.spark.jars import delta_jars

pytestmark = [pytest.mark.slow, pytest.mark.spark]

CAPTURES = (f"s3://captures/50%25 of day 1/{NAMES[0]}", f"s3a://captures/{NAMES[1]}")


@pytest.fixture(scope="module")
def store(sample_pcaps: Path) -> Iterator[ObjectStore]:
    """An S3 server in its own process, with the captures."""
    pytest.importorskip("moto.server", reason="moto is not installed (extra: test)")
    found = ObjectStore()
    try:
        for bucket in ("captures", "lakes"):
            found.put(bucket)
        found.put(f"captures/50% of day 1/{NAMES[0]}", (sample_pcaps / NAMES[0]).read_bytes())
        found.put(f"captures/{NAMES[1]}", (sample_pcaps / NAMES[1]).read_bytes())
        yield found
    finally:
        found.close()


def test_captures_and_lake_from_the_shell(local: Path, store: ObjectStore) -> None:
    """A directory by `s3`, whose name needs no escape, and a file by `s3a`; the second ingest skips both."""
    addresses = ["s3://captures/50%25 of day 1", CAPTURES[1]]
    for _ in range(2):
        lake = "s3a://lakes/one"
        python(INGEST, "ingest", *addresses, "--lake", lake, "--split-size", "64KB", **store.environment)
        assert_same(local, "s3://lakes/one", store.environment)
    assert open_lake("s3://lakes/one", store.environment).published.ingest_id == 1


def for_executors(store: ObjectStore) -> dict[str, str]:
    """Executors read the captures with variables of their own; the credentials of the lake go with their work."""
    return {f"spark.executorEnv.{name}": value for name, value in store.environment.items()}


def test_spark_submit_on_a_standalone_cluster(
    local: Path, store: ObjectStore, standalone: str, spark_submit: Submitter
) -> None:
    """Two ingests. Executors that are separate processes write the files, the driver commits them."""
    for capture in CAPTURES:
        done = spark_submit.run(
            "ingest.py", capture, "--lake", "s3://lakes/two", "--split-size", "64KB",
            master=standalone, conf=for_executors(store), environment=store.environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-5000:]
    assert open_lake("s3://lakes/two", store.environment).published.ingest_id == 2
    assert_same(local, "s3://lakes/two", store.environment)


def test_executors_without_credentials_for_the_captures(
    store: ObjectStore, standalone: str, spark_submit: Submitter
) -> None:
    arguments = (CAPTURES[0], "--lake", "s3://lakes/none")
    done = spark_submit.run("ingest.py", *arguments, master=standalone, environment=store.environment)
    assert done.returncode == 3
    sentence = [line for line in done.stdout.splitlines() if line.startswith("rtmp-spark:")][-1]  # after its progress
    assert "published nothing" in sentence
    assert open_lake("s3://lakes/none", store.environment).published.ingest_id == 0


UNLOCKED = """
import sys, time
from contextlib import nullcontext
from pathlib import Path

from rtmp_spark.cli import main
from rtmp_spark.lake import failpoint, writer

writer.writer_lock = lambda *_: nullcontext()
meeting, mine = Path(sys.argv[1]), sys.argv[2]


def meet(place):
    if place == "files written":
        (meeting / mine).touch()
        deadline = time.monotonic() + 300
        while len(list(meeting.iterdir())) < 2:
            assert time.monotonic() < deadline, "the other driver did not arrive"
            time.sleep(0.001)


failpoint.observers.append(meet)
sys.exit(main(["ingest", *sys.argv[3:]]))
"""


def test_two_drivers_whose_lock_does_not_work(
    local: Path, store: ObjectStore, standalone: str, spark_submit: Submitter, tmp_path: Path
) -> None:
    """Both have written their files when they start to commit. At most one publishes, the other says so."""
    script, meeting = tmp_path / "unlocked.py", tmp_path / "meeting"
    script.write_text(UNLOCKED)
    meeting.mkdir()
    to_lake = ("--lake", "s3://lakes/race", "--split-size", "64KB")
    python(INGEST, "ingest", *CAPTURES, *to_lake, "--dry-run", **store.environment)
    one_core = {"spark.cores.max": "1", **for_executors(store)}
    drivers = [
        spark_submit.start(
            script, str(meeting), str(n), capture, *to_lake,
            master=standalone, conf=one_core, environment=store.environment,
        )
        for n, capture in enumerate(CAPTURES)
    ]  # fmt: skip
    done = [finished(driver) for driver in drivers]
    assert len(list(meeting.iterdir())) == 2
    losers = [result for result in done if result.returncode]
    assert losers, "both published"
    for loser in losers:
        assert loser.returncode == 3, loser.stderr[-5000:]
        assert "Another writer changed the lake s3://lakes/race during this run, so nothing" in loser.stdout
    where = locate("s3://lakes/race", store.environment)
    assert len(Ledger(where).history()) == len(done) - len(losers)
    assert open_lake(where).captures.count_rows() == len(done) - len(losers)
    python(INGEST, "ingest", *CAPTURES, *to_lake, **store.environment)
    assert_same(local, "s3://lakes/race", store.environment, in_order=False)


def test_two_drivers_one_waits_for_the_other(
    local: Path, store: ObjectStore, standalone: str, spark_submit: Submitter
) -> None:
    conf = {"spark.cores.max": "1", **for_executors(store)}
    drivers = [
        spark_submit.start(
            "ingest.py", capture, "--lake", "s3://lakes/wait", master=standalone, conf=conf,
            environment=store.environment,
        )
        for capture in CAPTURES
    ]  # fmt: skip
    done = [finished(driver) for driver in drivers]
    assert [result.returncode for result in done] == [0, 0], done[0].stderr[-3000:] + done[1].stderr[-3000:]
    assert open_lake("s3://lakes/wait", store.environment).published.ingest_id == 2
    assert_same(local, "s3://lakes/wait", store.environment, in_order=False)


READ = """
import json, sys
from rtmp_spark.spark import Lake, start_spark

spark = start_spark()
lake = Lake(spark, sys.argv[1])
lake.create_views()
one = lake.connections.first()["uid"]
print("found", json.dumps({
    "rows": {name: lake.table(name).count() for name in sys.argv[2:]},
    "one": [one, spark.sql(f"SELECT count(*) FROM messages WHERE uid = '{one}'").first()[0]],
    "sessions": spark.table("sessions").count(),
}))
"""


def test_delta_spark_reads_a_lake_on_s3a(
    store: ObjectStore, spark_submit: Submitter, sample_pcaps: Path, tmp_path: Path
) -> None:
    """With Hadoop's connector. The settings of the session are enough to open the lake; no variables are set."""
    jars = maven_jars("s3a", S3A)
    captures = [str(sample_pcaps / name) for name in NAMES]
    python(INGEST, "ingest", *captures, "--lake", "s3://lakes/read", **store.environment)
    conf = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.hadoop.fs.s3a.endpoint": store.url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.access.key": "key",
        "spark.hadoop.fs.s3a.secret.key": "secret",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    script = tmp_path / "read.py"
    script.write_text(READ)
    done = spark_submit.run(
        script, "s3://lakes/read", *TABLES, master="local[2]", jars=[*delta_jars(), *jars], conf=conf
    )
    assert done.returncode == 0, done.stderr[-5000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("found")]
    found = json.loads(line.removeprefix("found"))
    lake = open_lake("s3://lakes/read", store.environment)
    assert found["rows"] == {name: lake.table(name).count_rows() for name in TABLES}
    uid, messages = found["one"]
    assert messages == lake.read("messages")["uid"].to_pylist().count(uid) > 0
    assert found["sessions"] == lake.streams.count_rows() > 0
