"""Columns of `media_tags` as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.report.figures.downsampling import Numbers


def integers(column: Any) -> Numbers:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return np.asarray(pc.fill_null(column, 0).to_numpy(), np.int64)


def strings(column: Any) -> Numbers:
    return np.asarray(pc.fill_null(column, "").to_pylist(), object)


def flags(column: Any, word: str) -> Numbers:
    return np.asarray(pc.fill_null(pc.equal(column, word), False).to_pylist(), bool)


def keyframes(video: pa.Table) -> Numbers:
    return np.asarray(video["is_key"].to_pylist(), bool)


def seconds(rows: pa.Table, start: int) -> Numbers:
    return (integers(rows["ts"]) - start) / 1e6
