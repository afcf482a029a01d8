"""A table as aligned columns of text (`inspect --table`, `sql`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TextIO

import pyarrow as pa

from rtmp_spark.analysis.row_sink import Batch
from rtmp_spark.commands.output.tables.json_lines import json_rows
from rtmp_spark.commands.output.terminal_escape import escape_for_terminal

_CELL_CHARS = 48  # of a text of a whole table that is not printed on a terminal
_NARROWEST = 12  # characters to which a column may be cut to fit the terminal
_NARROWEST_TEXT = 20  # and to which those of a table may be: less of a text says nothing
_FIRST_ROWS = 1000  # from which the widths are taken; DuckDB returns small results in several batches
_GAP = "  "


class _Form(NamedTuple):
    width: int | None
    chosen: bool


class _Column(NamedTuple):
    name: str
    width: int
    is_number: bool
    time_from: int | None  # of a time, where its shown part begins


def print_table(batches: Iterable[Batch], out: TextIO, width: int | None = None, *, chosen: bool = False) -> None:
    """Print aligned columns, numbers to the right. Widths are those of the first rows.

    With a `width`, lines fit into it: times without the date if it is always the same, and texts are cut. If a person
    has `chosen` the columns, all of them are shown, and without a `width` whole texts; otherwise columns without any
    value in the first rows are left out, and texts are cut.
    """
    form = _Form(width, chosen)
    columns: list[_Column] | None = None
    first: list[dict[str, Any]] = []
    for _, batch in batches:
        rows = list(json_rows(batch))
        schema = batch.schema
        if columns is None:
            first += rows
            if len(first) < _FIRST_ROWS:
                continue
            columns, rows = _begin(schema, first, out, form), first
        _print_rows(columns, rows, out, form)
    if columns is None and first:
        _print_rows(_begin(schema, first, out, form), first, out, form)


def _begin(schema: pa.Schema, first: list[dict[str, Any]], out: TextIO, form: _Form) -> list[_Column]:
    columns = _columns(schema, first, form)
    out.write(_line(columns, [cut(column.name, column.width) for column in columns]))
    return columns


def _print_rows(columns: list[_Column], rows: list[dict[str, Any]], out: TextIO, form: _Form) -> None:
    for row in rows:
        cells = [_cell(row[column.name], form, column.time_from) for column in columns]
        if form.width is not None:
            cells = [cut(cell, column.width) for cell, column in zip(cells, columns)]
        out.write(_line(columns, cells))
    out.flush()


def _columns(schema: pa.Schema, rows: list[dict[str, Any]], form: _Form) -> list[_Column]:
    found, width = [], form.width
    for field in schema:
        values = [row[field.name] for row in rows if row[field.name] is not None]
        if not values and not form.chosen:
            continue
        time_from = None
        if width is not None and pa.types.is_timestamp(field.type):
            time_from = 11 if len({value[:10] for value in values}) == 1 else 0
        widest = max((len(_cell(value, form, time_from)) for value in values), default=1)
        found.append(_Column(field.name, max(len(field.name), widest), _is_number(field.type), time_from))
    if width is None:
        return found
    # A part of a uid cannot be used.
    firm = [column.is_number or column.time_from is not None or "uid" in column.name for column in found]
    widths = fitted([column.width for column in found], firm, width, _NARROWEST_TEXT)
    return [column._replace(width=cut) for column, cut in zip(found, widths)]


def fitted(widths: Sequence[int], firm: Sequence[bool], width: int, narrowest: int = _NARROWEST) -> list[int]:
    """Column widths that fit into a line: the widest columns that are not firm are cut first, and the last columns
    are left out if that is not enough."""
    found = list(widths)
    least = [w if keep else min(w, narrowest) for w, keep in zip(widths, firm)]
    while len(found) > 1 and sum(least[: len(found)]) + len(_GAP) * (len(found) - 1) > width:
        found.pop()
    room = width - len(_GAP) * (len(found) - 1)
    while sum(found) > room:
        loose = [at for at in range(len(found)) if found[at] > least[at]]
        if not loose:
            break
        found[max(loose, key=lambda at: found[at])] -= 1
    return found


def cut(text: str, width: int) -> str:
    """The text, or its beginning with an ellipsis if it is too long."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _line(columns: Sequence[_Column], cells: Sequence[str]) -> str:
    aligned = (cell.rjust(c.width) if c.is_number else cell.ljust(c.width) for cell, c in zip(cells, columns))
    return _GAP.join(aligned).rstrip() + "\n"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _cell(value: Any, form: _Form, time_from: int | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, dict)):
        value = json.dumps(value, ensure_ascii=False)
    if time_from is not None:
        return str(value)[time_from:23].replace("T", " ")  # to the millisecond
    text = escape_for_terminal(str(value))
    if form.width is None and form.chosen:
        return text
    return cut(text, form.width or _CELL_CHARS)
