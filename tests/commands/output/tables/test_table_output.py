"""`inspect --table`: choice of rows and columns, and text that fits a terminal."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from rtmp_spark.cli import main
from rtmp_spark.commands.output.tables.brief_columns import BRIEF_COLUMNS
from rtmp_spark.commands.output.tables.column_table import fitted, print_table
from rtmp_spark.commands.output.tables.table_output import print_batches
from rtmp_spark.schema import TABLES

PUBLISH = "ffmpeg_publish_h264_aac.pcap"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["inspect", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_brief_columns_exist() -> None:
    assert set(TABLES) <= set(BRIEF_COLUMNS)
    assert all(set(BRIEF_COLUMNS[name]) <= set(table.column_names) for name, table in TABLES.items())


def test_csv_and_json_have_all_columns_unless_some_are_chosen(
    sample_pcaps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = sample_pcaps / PUBLISH
    rows = list(csv.reader(io.StringIO(run(capsys, capture, "--table", "commands", "--csv"))))
    assert tuple(rows[0]) == TABLES["commands"].column_names and len(rows) == 13
    chosen = run(capsys, capture, "--table", "commands", "--csv", "--columns", "name,frame").splitlines()
    assert chosen[0] == "name,frame" and chosen[1].startswith("connect,")
    assert [*json.loads(run(capsys, capture, "--table", "streams", "--json", "--columns", "role"))] == ["role"]


def test_csv_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.record_batch({"name": ["a\x1b[31m\r\x9b\u202e", "two\nlines", "é"]})
    print_batches([("sql", rows)], ["name"], argparse.Namespace(json=False, csv=True), chosen=True)
    assert capsys.readouterr().out == 'name\na\\u001b[31m\\u000d\\u009b\\u202e\n"two\nlines"\né\n'


@pytest.mark.parametrize("width", [None, 40])
def test_widths_fit_the_rows_of_all_small_batches(width: int | None) -> None:
    """DuckDB returns the groups of a query in several batches, in any order."""
    batches = [pa.record_batch({"verdict": [verdict], "n": [n]}) for verdict, n in (("ok", 7), ("degraded", 33))]
    out = io.StringIO()
    print_table((("sql", batch) for batch in batches), out, width)
    assert out.getvalue() == "verdict    n\nok         7\ndegraded  33\n"


def test_chosen_columns_are_shown_even_if_empty_and_texts_are_whole() -> None:
    rows = pa.record_batch({"detail": ["x" * 60], "at_fault": pa.array([None], pa.string())})
    shown = {}
    for chosen in (True, False):
        out = io.StringIO()
        print_table([("findings", rows)], out, chosen=chosen)
        shown[chosen] = out.getvalue().split()
    assert shown == {True: ["detail", "at_fault", "x" * 60, "-"], False: ["detail", "x" * 47 + "…"]}


def test_sql_prints_no_errors(sample_pcaps: Path) -> None:
    pytest.importorskip("duckdb", reason="sql needs DuckDB: pip install '.[lake]'")
    command = [sys.executable, "-m", "rtmp_spark.cli", "sql", "SELECT 1 AS n", str(sample_pcaps / PUBLISH), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("n\n1\n", "")


def test_a_condition_and_a_limit(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb", reason="conditions need DuckDB: pip install '.[lake]'")
    where = ("--where", "kind = 'video' AND is_key", "--columns", "frame_type", "--csv")
    keys = run(capsys, sample_pcaps / PUBLISH, "--table", "media_tags", *where).splitlines()[1:]
    assert keys and set(keys) == {"key"}
    assert len(run(capsys, sample_pcaps / PUBLISH, "--table", "media_tags", "--limit", 3, *where).splitlines()) == 4
    assert len(run(capsys, sample_pcaps / PUBLISH, "--table", "messages", "--limit", 7, "--json").splitlines()) == 7


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--columns", "name"], "--columns, --where, --limit and --csv need --table."),
        (["--table", "commands", "--columns", "nam"], "The table commands has no column nam."),
        (["--table", "commands", "--where", "nam = 1"], "The query failed: "),
        (["--table", "commands", "--limit", "-1"], "Invalid count '-1' for --limit."),
        (["--table", "commands", "--csv", "--json"], "not allowed with"),
        (["--table", "sessions"], "sessions is a view, not a table. Use: rtmp-spark sql"),
    ],
)
def test_mistakes(arguments: list[str], sentence: str, sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(sample_pcaps / PUBLISH), *arguments]) == 2
    assert sentence in capsys.readouterr().err


def on_a_terminal(columns: int, *arguments: object) -> list[str]:
    """The lines that a command prints on a terminal of this width."""
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "50"}
    command = [sys.executable, "-m", "rtmp_spark.cli", "inspect", *map(str, arguments)]
    with subprocess.Popen(command, stdout=slave, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(slave)
        parts = []
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the other side is closed
                break
            parts.append(part)
            if not part:
                break
    os.close(master)
    assert process.returncode == 0
    return b"".join(parts).decode().replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_a_table_on_a_terminal_fits_and_is_in_order_of_time(sample_pcaps: Path, width: int) -> None:
    capture = sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap"
    lines = on_a_terminal(width, capture, "--table", "messages")
    assert max(map(len, lines)) <= width
    assert lines[0].split()[:2] == ["ts_first", "frame_first"]
    whole = on_a_terminal(300, capture, "--table", "messages")
    times = [line.split()[0] for line in whole[1:]]
    assert times == sorted(times) and len(times) > 500


def test_a_wide_terminal_shows_whole_texts_and_a_narrow_one_no_part_of_a_uid(sample_pcaps: Path) -> None:
    capture = sample_pcaps / "lossy_mtu1500_client_side.pcap"
    detail = "4.2 % of the bytes from the client were lost and retransmitted, worst second 8 %"
    assert detail in on_a_terminal(200, capture, "--table", "findings")[1]
    narrow = "\n".join(on_a_terminal(80, capture, "--table", "commands"))
    assert "NetConnection.Conne" in narrow and "uid" not in narrow


def test_the_widest_columns_are_cut_first() -> None:
    loose = [False] * 3
    assert fitted([10, 40, 20], loose, 74) == [10, 40, 20]
    assert fitted([10, 40, 20], loose, 54) == [10, 20, 20]
    assert fitted([10, 40, 40], loose, 54) == [10, 20, 20]
    assert fitted([14, 16, 13], loose, 40) == [12, 12, 12]
    assert fitted([14, 16, 13], loose, 39) == [14, 16]  # the last column does not fit
    assert fitted([14, 16, 13], [False, True, False], 44) == [12, 16, 12]
