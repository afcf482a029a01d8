"""Every table of every sample capture as text that can be reviewed; a change shows as a diff.

`UPDATE_BASELINES=1 pytest tests/analysis/test_baselines.py` rewrites them. A baseline has all rows of small tables; of
long tables it has the number of rows, a digest of all rows and the first few. Values that differ between runs are left
out.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.decoded_tables import Rows, decode, redacting

from rtmp_spark.schema import TABLES

ROOT = Path(__file__).parents[1]
BASELINES = ROOT / "baselines"
SAMPLES = sorted(path.name for path in (ROOT.parent / "sample_pcaps").iterdir() if ".pcap" in path.name)
LONG = {"messages": 10, "media_tags": 6, "intervals": 4}
VOLATILE = {"path", "modified_at", "codec_version", "ingested_at", "ingest_id"}


def written(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if hasattr(value, "isoformat"):
        return str(value.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    return json.dumps(value, ensure_ascii=True) if not isinstance(value, str) or not value.isprintable() else value


def line(row: dict[str, Any]) -> str:
    return "  " + " ".join(f"{k}={written(v)}" for k, v in row.items() if v is not None and k not in VOLATILE)


def ordered(table: str, rows: Rows) -> Rows:
    def key(row: dict[str, Any]) -> list[tuple[bool, Any]]:
        return [
            (row[name] is not None, row[name] if row[name] is not None else 0)
            for name in TABLES[table].key
            if name in row
        ]

    return sorted(rows, key=lambda row: (key(row), line(row)))


def text(tables: dict[str, Rows]) -> str:
    parts = []
    for table, rows in tables.items():
        lines = [line(row) for row in ordered(table, rows)]
        head = f"{table}: {len(lines)}"
        if table in LONG:
            digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
            head += f" rows, sha256 {digest}, the first {LONG[table]}"
            lines = lines[: LONG[table]]
        parts.append("\n".join([head, *lines]))
    return "\n\n".join(parts) + "\n"


@pytest.mark.parametrize("name", SAMPLES)
def test_tables_are_as_reviewed(sample_pcaps: Path, name: str) -> None:
    settings = replace(redacting(), measured=False, rules_across_connections=False)
    found = text(decode(sample_pcaps / name, settings=settings))
    baseline = BASELINES / f"{name}.txt"
    if os.environ.get("UPDATE_BASELINES"):
        baseline.parent.mkdir(exist_ok=True)
        baseline.write_text(found)
    assert baseline.exists(), "no baseline; UPDATE_BASELINES=1 writes it, and a person reviews it"
    assert found == baseline.read_text()


def test_no_baseline_without_its_capture() -> None:
    assert {path.name for path in BASELINES.glob("*.txt")} == {f"{name}.txt" for name in SAMPLES}
