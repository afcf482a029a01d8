"""The SQL views, in an engine that is not Spark: what they say of sample captures is what these are known for."""

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


def test_every_view_answers(lake: duckdb.DuckDBPyConnection) -> None:
    def ask(query: str) -> list[Any]:
        return lake.sql(query).fetchall()

    for name, view in VIEWS.items():
        assert view.answers and ask(f"SELECT * FROM {name}"), name
    refused = "SELECT code FROM refusals WHERE rule_id = 'CMD_REFUSED'"
    assert ask(refused) == [("NetStream.Play.StreamNotFound",)] * 2
    assert ask("SELECT count(*) FROM endings") == ask("SELECT count(*) FROM connections") == [(7,)]
    assert ask("SELECT count(*) FROM sessions") == ask("SELECT count(*) FROM quality") == [(6,)]  # one connect failed
    assert ask("SELECT role, verdict FROM sessions WHERE name = 'd02' ORDER BY role") == [
        ("play", "ok"),
        ("publish", "ok"),
    ]
    assert ask("SELECT name, publisher, player FROM latencies") == [("d02", "127.0.0.1", "127.0.0.1")]
    assert ask("SELECT direction, missed_bytes > 0 FROM losses WHERE missed_bytes > 0") == [("c2s", True)]
    assert ask("SELECT sum(connections), sum(errors) FROM programs") == [(7, 2)]
    troubles = dict(ask("SELECT rule_id, string_split(path, '/')[-1] FROM troubles"))
    assert troubles["TCP_GAP"] == "capture_gap_lost_packets.pcap" and "SESSION_END" not in troubles
    seen = ask(
        "SELECT sum(frames) FROM rates r JOIN sessions s USING (uid) WHERE s.name = 'd02' AND s.role = 'publish'"
    )
    assert seen == ask("SELECT video_messages - 2 FROM streams WHERE name = 'd02' AND role = 'publish'")  # its two ends
