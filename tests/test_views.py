"""The SQL views run in DuckDB; on sample captures they return what is known about these captures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from rtmp_spark.cli import main
from rtmp_spark.schema import TABLES, arrow_schema
from rtmp_spark.views import VIEWS

CAPTURES = ("denied_and_unknown_app.pcap", "ffmpeg_publish_bframes_rtmpdump_play.pcap", "capture_gap_lost_packets.pcap")


@pytest.fixture
def lake(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> duckdb.DuckDBPyConnection:
    assert main(["inspect", *(str(sample_pcaps / name) for name in CAPTURES), "--json", "--keep-secrets"]) == 0
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for line in capsys.readouterr().out.splitlines():
        row = json.loads(line)
        rows[row.pop("table")].append({k: json.dumps(v) if k == "args" else v for k, v in row.items()})
    database = duckdb.connect()
    for name, made in rows.items():
        schema = arrow_schema(name)
        times = [f.name for f in schema if pa.types.is_timestamp(f.type)]
        plain = pa.schema([pa.field(f.name, pa.string() if f.name in times else f.type) for f in schema])
        database.register(f"_{name}", pa.Table.from_pylist(made, plain))
        casts = ", ".join(f"CAST({time} AS TIMESTAMPTZ) AS {time}" for time in times)
        database.sql(f"CREATE VIEW {name} AS SELECT * {f'REPLACE ({casts})' if casts else ''} FROM _{name}")
    for name, view in VIEWS.items():
        assert name not in TABLES
        database.sql(f"CREATE VIEW {name} AS {view.query}")
    return database


def test_every_view_returns_the_known_results(lake: duckdb.DuckDBPyConnection) -> None:
    def query(sql: str) -> list[Any]:
        return lake.sql(sql).fetchall()

    for name, view in VIEWS.items():
        assert view.answers and query(f"SELECT * FROM {name}"), name
    refused = "SELECT code FROM refusals WHERE rule_id = 'CMD_REFUSED'"
    assert query(refused) == [("NetStream.Play.StreamNotFound",)] * 2
    assert query("SELECT count(*) FROM endings") == query("SELECT count(*) FROM connections") == [(7,)]
    assert (
        query("SELECT count(*) FROM sessions") == query("SELECT count(*) FROM quality") == [(6,)]
    )  # one connect failed
    assert query("SELECT role, verdict FROM sessions WHERE name = 'd02' ORDER BY role") == [
        ("play", "ok"),
        ("publish", "ok"),
    ]
    assert query("SELECT name, publisher, player FROM latencies") == [("d02", "127.0.0.1", "127.0.0.1")]
    assert query("SELECT direction, missed_bytes > 0 FROM losses WHERE missed_bytes > 0") == [("c2s", True)]
    assert query("SELECT sum(connections), sum(errors) FROM programs") == [(7, 2)]
    troubles = dict(query("SELECT rule_id, string_split(path, '/')[-1] FROM troubles"))
    assert troubles["TCP_GAP"] == "capture_gap_lost_packets.pcap" and "SESSION_END" not in troubles
    frames = query(
        "SELECT sum(frames) FROM rates r JOIN sessions s USING (uid) WHERE s.name = 'd02' AND s.role = 'publish'"
    )
    assert frames == query(
        "SELECT video_messages - 2 FROM streams WHERE name = 'd02' AND role = 'publish'"
    )  # its two ends


def test_views_with_a_connection_name_both_ends_for_people_and_as_in_the_tables(
    lake: duckdb.DuckDBPyConnection,
) -> None:
    for name in ("sessions", "endings", "refusals", "troubles", "losses", "rates", "quality"):
        rows = lake.sql(
            f"""SELECT (v.client, v.client_port, v.server, v.server_port) = (c.orig_h, c.orig_p, c.resp_h, c.resp_p)
                AND (v.orig_h, v.orig_p, v.resp_h, v.resp_p) = (c.orig_h, c.orig_p, c.resp_h, c.resp_p)
                FROM {name} v JOIN connections c ON c.uid = v.uid"""
        ).fetchall()
        assert rows and all(same for (same,) in rows), name
    for name in ("sessions", "programs"):
        assert lake.sql(f"SELECT count(*) FROM {name} WHERE client_software IS DISTINCT FROM software").fetchall() == [
            (0,)
        ]


def test_rates_have_the_name_and_role_of_their_stream(lake: duckdb.DuckDBPyConnection) -> None:
    assert (
        lake.sql("SELECT count(*) FROM rates").fetchall()
        == lake.sql("SELECT count(*) FROM intervals WHERE video_bytes > 0 OR audio_bytes > 0").fetchall()
    )
    named = lake.sql("SELECT DISTINCT direction, role FROM rates WHERE name = 'd02' ORDER BY direction").fetchall()
    assert named == [("c2s", "publish"), ("s2c", "play")]


def test_a_rate_of_two_streams_has_no_name() -> None:
    """A connection publishes a, then b; both end and start in the third second."""
    database = duckdb.connect()
    for name in ("connections", "intervals", "streams"):
        database.register(f"_{name}", arrow_schema(name).empty_table())
        database.sql(f"CREATE TABLE {name} AS SELECT * FROM _{name}")
    database.sql("INSERT INTO connections (uid) VALUES ('C1')")
    for second in range(5):
        database.sql(
            f"""INSERT INTO intervals (uid, direction, ts_second, audio_bytes, video_bytes)
                VALUES ('C1', 'c2s', '2026-01-31 12:00:0{second}Z', 1, 0)"""
        )
    for name, start, end in (("a", "00.5", "02.1"), ("b", "02.9", "04.0")):
        database.sql(
            f"""INSERT INTO streams (uid, direction, name, role, ts_start, ts_end)
                VALUES ('C1', 'c2s', '{name}', 'publish', '2026-01-31 12:00:{start}Z', '2026-01-31 12:00:{end}Z')"""
        )
    rows = database.sql(f"SELECT name, role FROM ({VIEWS['rates'].query}) ORDER BY ts_second").fetchall()
    assert rows == [("a", "publish"), ("a", "publish"), (None, "publish"), ("b", "publish"), ("b", "publish")]
