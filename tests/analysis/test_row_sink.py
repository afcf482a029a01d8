"""Rows into batches: the columns are those of the schema, and pyarrow's own conversion agrees."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtmp_spark import schema
from rtmp_spark.analysis import row_sink
from rtmp_spark.analysis.arrow_columns import arrow_column
from rtmp_spark.analysis.row_sink import RowSink

KINDS = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.binary(): st.binary(),
    pa.binary(4): st.binary(min_size=4, max_size=4),
    pa.list_(pa.string()): st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    pa.list_(pa.int32()): st.lists(st.integers(0, 255)),
    pa.timestamp("us", tz="UTC"): st.integers(0, 4 * 10**15),
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_columns_equal_those_of_pyarrow(kind: pa.DataType) -> None:
    @settings(deadline=None)  # the first call of pyarrow loads pandas
    @given(st.lists(st.none() | KINDS[kind]))
    def same(values: list[object]) -> None:
        ours = arrow_column(values, kind)
        ours.validate(full=True)
        assert ours.equals(pa.array(values, kind))
        given = [value for value in values if value is not None]
        assert arrow_column(given, kind, nullable=False).equals(pa.array(given, kind))

    same()


def test_pandas_is_not_loaded() -> None:
    code = "import sys, pyarrow as pa; from rtmp_spark.analysis.arrow_columns import arrow_column"
    use = "arrow_column(['a', None], pa.string()); sys.exit('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"{code}; {use}"], check=False)
    assert done.returncode == 0


def test_every_table_of_the_schema_can_be_filled() -> None:
    for table in schema.TABLES.values():
        assert set(table.key + table.cluster_by + table.stats) <= set(table.column_names)
        assert len(set(table.column_names)) == len(table.columns)
        assert all(column.comment for column in table.columns) and table.comment


def test_file_numbers_become_capture_ids_when_a_file_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sink, "BATCH_ROWS", 2)
    monkeypatch.setattr(row_sink, "HELD_BYTES", 1)  # everything goes through the temporary file
    sink = RowSink(["messages", "payloads"])
    empty = (0, 0, 1, 1, 0, 3, 8, "audio", 1, 0, 0, None, "absolute", None, 0, 1, 128, "complete", 0, False, 0)
    for number in range(5):
        sink.add_group("messages", "C1", "c2s", [(number, 0, number % 2, 5, 6, *empty[1:])])
        sink.add_group("payloads", "C1", "c2s", [(number, b"x" * number)])
    assert [table for table, _ in sink.ready()] == ["payloads", "payloads"], "messages wait for their capture ids"
    batches = list(sink.flush(["first", "second"]))
    messages = [row for table, batch in batches if table == "messages" for row in batch.to_pylist()]
    assert [row["msg_no"] for row in messages] == [0, 1, 2, 3, 4]
    assert [row["capture_id_last"] for row in messages] == ["first", "second", "first", "second", "first"]
    assert {batch.schema for table, batch in batches if table == "messages"} == {schema.arrow_schema("messages")}
    assert list(sink.flush(["first", "second"])) == []


def test_a_batch_ends_by_bytes_as_well_as_by_rows() -> None:
    sink = RowSink(["payloads"])
    for number in range(40):
        sink.add_group("payloads", "C1", "c2s", [(number, bytes(1 << 20))])
    batches = [batch for _, batch in sink.ready()]
    assert [len(batch) for batch in batches] == [16, 16]
    assert sum(len(batch) for _, batch in sink.flush([])) == 8
