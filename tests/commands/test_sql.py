"""`rtmp-spark sql` over captures and over a lake, without Spark."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from kit.in_process_ingest import ingest_in_process

from rtmp_spark.cli import main
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.lake.sql import connect, query
from rtmp_spark.schema import TABLES
from rtmp_spark.views import VIEWS

CAPTURE = "denied_and_unknown_app.pcap"
COUNTS = "SELECT rule_id, count(*) AS n FROM findings GROUP BY ALL ORDER BY ALL"


@pytest.fixture(scope="module")
def lake(sample_pcaps: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("sql") / "lake"
    ingest_in_process(lake, [sample_pcaps / CAPTURE])
    return lake


def test_captures_and_lake_give_the_same_rows(
    lake: Path, sample_pcaps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for source in ([str(sample_pcaps / CAPTURE)], ["--lake", str(lake)]):
        assert main(["sql", COUNTS, *source, "--json"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    rows = {row["rule_id"]: row["n"] for row in map(json.loads, printed[0].splitlines())}
    assert rows["CMD_REFUSED"] == 2 and rows["SESSION_END"] == 4  # see tests/expectations


def test_csv_has_a_header_and_every_row(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "SELECT orig_p, app FROM connections ORDER BY orig_p", "--lake", str(lake), "--csv"]) == 0
    out = capsys.readouterr().out
    assert "\r" not in out, "a shell would keep it in the last column"
    header, *rows = csv.reader(out.splitlines())
    assert header == ["orig_p", "app"] and len(rows) == 4


def test_csv_of_no_rows_has_a_header(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "SELECT orig_p, app FROM connections WHERE false", "--lake", str(lake), "--csv"]) == 0
    assert capsys.readouterr().out.splitlines() == ["orig_p,app"]


def test_columns_of_the_same_name_are_all_there(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A join has them easily; as keys of one row they would replace each other and move the values after them."""
    text = "SELECT 1 AS n, 2 AS n, 3 AS n_1, 4 AS x"
    assert main(["sql", text, "--lake", str(lake), "--csv"]) == 0
    header, values = csv.reader(capsys.readouterr().out.splitlines())
    assert (header, values) == (["n", "n_1", "n_1_1", "x"], ["1", "2", "3", "4"])
    assert main(["sql", text, "--lake", str(lake), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"n": 1, "n_1": 2, "n_1_1": 3, "x": 4}


def test_a_table_for_people(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", COUNTS, "--lake", str(lake)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["rule_id", "n"] and len(lines) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["SELECT nothing FROM connections", "--lake", "{lake}"], "Candidate bindings: "),
        (["SELECT * FROM nothing", "--lake", "{lake}"], "Tables and views: captures, "),
        (["SELEKT", "--lake", "{lake}"], 'The query failed: Parser Error: syntax error at or near "SELEKT". Correct'),
        (["SELECT 1"], "needs captures or a lake"),
        (["SELECT 1", "--lake", "{lake}/messages"], "lake"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], message: str, lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", *(word.format(lake=lake) for word in arguments)]) in (2, 3)
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and len(error.splitlines()) == 1


@pytest.mark.parametrize("name", [*TABLES, *VIEWS])
def test_every_table_and_view_can_be_queried(name: str, lake: Path) -> None:
    rows = query(connect(open_lake(lake).tables()), f"SELECT * FROM {name}").read_all()
    assert rows.num_columns > 3


@pytest.mark.parametrize("text", ["SELECT * FROM messages", "SELECT count(uid) FROM messages"])
def test_rows_that_cannot_be_read_are_a_fault_of_the_lake(
    text: str, lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not of the query; a query over the other tables is answered, even if a whole table is gone."""
    damaged = tmp_path / "lake"
    shutil.copytree(lake, damaged)
    shutil.rmtree(damaged / "deliveries")
    path = next((damaged / "messages").glob("*.parquet"))
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(2000) + content[2004:])
    assert main(["sql", text, "--lake", str(damaged)]) == 3
    error = capsys.readouterr().err
    assert "Could not read the table messages" in error and len(error.splitlines()) == 1
    assert main(["sql", COUNTS, "--lake", str(damaged)]) == 0
