"""Captures and lakes in an object store: the same tables as from local files, also with two drivers at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.maven_jars import S3A, maven_jars
from kit.object_store import ObjectStore
from kit.separate_ingest import INGEST, QUICK_JAVA, assert_same, python
from kit.separate_ingest import S3_CAPTURES as CAPTURES
from kit.spark_submit import Submitter, finished

from rtmp_spark.lake.ledger import Ledger
from rtmp_spark.lake.location import locate
from rtmp_spark.lake.reader import Lake, open_lake
from rtmp_spark.schema import TABLES
from rtmp_spark.spark.session.jars import delta_jars

pytestmark = [pytest.mark.slow, pytest.mark.spark]

ONE = "s3://lakes/one"
TWICE = "import sys; from rtmp_spark.cli import main; sys.exit(main(sys.argv[1:]) or main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def lake(store: ObjectStore) -> Lake:
    """Ingested from the shell, twice: a directory by `s3`, whose name needs no escape, and a file by `s3a`."""
    addresses = ["s3://captures/50%25 of day 1", CAPTURES[1]]
    python(TWICE, "ingest", *addresses, "--lake", "s3a://lakes/one", "--split-size", "64KB", **store.environment)
    return open_lake(ONE, store.environment)


def test_captures_and_lake_from_the_shell(local: Path, store: ObjectStore, lake: Lake) -> None:
    assert_same(local, ONE, store.environment)
    assert lake.published.ingest_id == 1, "the second ingest skips both"


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


def test_two_drivers_whose_lock_does_not_work(local: Path, store: ObjectStore, tmp_path: Path) -> None:
    """Both have written their files when they start to commit. At most one publishes, the other says so."""
    to_lake = ("--lake", "s3://lakes/race", "--split-size", "64KB")
    environment = os.environ | QUICK_JAVA | store.environment
    drivers = [
        subprocess.Popen(
            [sys.executable, "-c", UNLOCKED, str(tmp_path), str(n), capture, *to_lake, "--master", "local[1]"],
            env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for n, capture in enumerate(CAPTURES)
    ]  # fmt: skip
    done = [finished(driver) for driver in drivers]
    assert len(list(tmp_path.iterdir())) == 2
    losers = [result for result in done if result.returncode]
    assert losers, "both published"
    for loser in losers:
        assert loser.returncode == 3, loser.stderr[-5000:]
        assert "Another writer changed the lake s3://lakes/race during this run, so nothing" in loser.stderr
    where = locate("s3://lakes/race", store.environment)
    assert len(Ledger(where).history()) == len(done) - len(losers)
    assert open_lake(where).captures.count_rows() == len(done) - len(losers)
    python(INGEST, "ingest", *CAPTURES, *to_lake, **store.environment)
    assert_same(local, "s3://lakes/race", store.environment, in_order=False)


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
    store: ObjectStore, lake: Lake, spark_submit: Submitter, tmp_path: Path
) -> None:
    """With Hadoop's connector. The settings of the session are enough to open the lake; no variables are set."""
    jars = maven_jars("s3a", S3A)
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
    done = spark_submit.run(script, ONE, *TABLES, master="local[2]", jars=[*delta_jars(), *jars], conf=conf)
    assert done.returncode == 0, done.stderr[-5000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("found")]
    found = json.loads(line.removeprefix("found"))
    assert found["rows"] == {name: lake.table(name).count_rows() for name in TABLES}
    uid, messages = found["one"]
    assert messages == lake.read("messages")["uid"].to_pylist().count(uid) > 0
    assert found["sessions"] == lake.streams.count_rows() > 0
