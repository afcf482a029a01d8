"""Converts Python values into Arrow arrays by writing the buffers directly.

`pa.array` inspects every value and loads pandas if it is installed. The columns here hold one type and None, so numpy
and `str.join` can make their buffers. A type that no table uses raises TypeError.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rtmp_spark.conversation.facts import Row

_NUMBERS = {pa.int32(): np.int32, pa.int64(): np.int64, pa.float64(): np.float64}


def arrow_batch(columns: Iterable[Sequence[object]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [arrow_column(values, field.type, field.nullable) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def arrow_rows(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    return arrow_batch(zip(*rows) if rows else [()] * len(schema), schema)


def arrow_column(values: Sequence[object], kind: pa.DataType, nullable: bool = True) -> pa.Array:
    """An array of type `kind`. Values may be None if the column is nullable."""
    count = len(values)
    if count == 0:
        return pa.nulls(0, kind)
    # Counting None takes as long as making a column of numbers. If None is not allowed, integers and strings raise.
    missing = values.count(None) if nullable or kind in (pa.float64(), pa.bool_()) else 0
    if missing == count:
        return pa.nulls(count, kind)
    validity = None
    if missing:
        present = np.fromiter((value is not None for value in values), bool, count)
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    given: Any = values
    numpy_type = np.int64 if pa.types.is_timestamp(kind) else _NUMBERS.get(kind)
    if numpy_type is not None:
        if missing:
            given = [0 if value is None else value for value in values]
        data = np.array(given, numpy_type)
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(data)])
    if pa.types.is_boolean(kind):
        bits = np.packbits(np.fromiter(map(bool, values), bool, count), bitorder="little")
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(bits)])
    if pa.types.is_string(kind):
        return _texts(given, count, validity, kind)
    if pa.types.is_binary(kind):
        given = [value or b"" for value in values] if missing else values
        buffers = [validity, pa.py_buffer(_offsets(given)), pa.py_buffer(b"".join(given))]
        return pa.Array.from_buffers(kind, count, buffers)
    if pa.types.is_fixed_size_binary(kind):
        given = [value or bytes(kind.byte_width) for value in values] if missing else values
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(b"".join(given))])
    if pa.types.is_list(kind):
        given = [value or () for value in values] if missing else values
        offsets = _offsets(given)
        items = arrow_column(list(chain.from_iterable(given)), kind.value_type)
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(offsets)], children=[items])
    raise TypeError(f"no table has a column of type {kind}")


def _offsets(pieces: Sequence[Sized]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(pieces) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, pieces), np.int32, len(pieces)), out=offsets[1:])
    return offsets


def _texts(values: Sequence[str | None], count: int, validity: pa.Buffer | None, kind: pa.DataType) -> pa.Array:
    given: Sequence[str] = [value or "" for value in values] if validity is not None else values  # type: ignore[assignment]
    joined = "".join(given)
    if joined.isascii():
        data, offsets = joined.encode(), _offsets(given)
    else:
        pieces = [text.encode("utf-8", "replace") for text in given]
        data, offsets = b"".join(pieces), _offsets(pieces)
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(offsets), pa.py_buffer(data)])
