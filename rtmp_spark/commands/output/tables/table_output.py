"""One table of a recording as people or scripts want it: chosen rows and columns, as text, CSV or JSON Lines."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from shutil import get_terminal_size
from typing import TextIO

import pyarrow as pa

from rtmp_spark.analysis.row_sink import Batch
from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.output.tables.brief_columns import BRIEF_COLUMNS
from rtmp_spark.commands.output.tables.column_table import print_table
from rtmp_spark.commands.output.tables.json_lines import escape_controls, json_rows, print_json
from rtmp_spark.schema import TABLES, arrow_schema


def check_columns(table: str, columns: Sequence[str]) -> None:
    """Raise UserError if the table lacks one of the columns."""
    unknown = [name for name in columns if name not in TABLES[table].column_names]
    if unknown:
        remedy = f"Its columns are {', '.join(TABLES[table].column_names)}."
        raise UserError(f"The table {table} has no column {', '.join(unknown)}.", remedy)


def print_chosen(batches: Iterable[Batch], table: str, args: argparse.Namespace) -> None:
    """Print one table as `--columns`, `--where`, `--limit`, `--csv` and `--json` say.

    As text on a terminal it has the most important columns, in order of time.
    """
    columns: Sequence[str] = args.columns or TABLES[table].column_names
    people = not args.csv and not args.json and sys.stdout.isatty()
    if people and not args.columns:
        columns = BRIEF_COLUMNS[table]
    if args.where is not None:
        batches = _matching(batches, table, args.where)
    chosen: Iterable[Batch] = ((name, batch.select(list(columns))) for name, batch in batches)
    if people:
        chosen = _by_time(chosen, columns, table)
    if args.limit is not None:
        chosen = _first(chosen, args.limit)
    print_batches(chosen, columns, args, chosen=bool(args.columns))


def print_batches(batches: Iterable[Batch], columns: Sequence[str], args: argparse.Namespace, *, chosen: bool) -> None:
    """Print rows with these columns as `--csv` or `--json` say, else as text that fits the terminal."""
    if args.json:
        print_json(batches, sys.stdout, with_table=False)
    elif args.csv:
        _print_csv(batches, columns, sys.stdout)
    else:
        width = get_terminal_size().columns if sys.stdout.isatty() else None
        print_table(batches, sys.stdout, width, chosen=chosen)


def _print_csv(batches: Iterable[Batch], columns: Sequence[str], out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for _, batch in batches:
        for row in json_rows(batch):
            writer.writerow([escape_controls(v) if isinstance(v, str) else v for v in row.values()])


def _matching(batches: Iterable[Batch], table: str, where: str) -> Iterator[Batch]:
    from rtmp_spark.lake.sql import connect, query

    rows = pa.Table.from_batches([batch for _, batch in batches], arrow_schema(table))
    for batch in query(connect({table: rows}), f"SELECT * FROM {table} WHERE {where}"):
        yield table, batch


def _by_time(batches: Iterable[Batch], columns: Sequence[str], table: str) -> Iterator[Batch]:
    parts = [batch for _, batch in batches]
    if not parts:
        return
    rows = pa.Table.from_batches(parts)
    times = [name for name in columns if pa.types.is_timestamp(rows.schema.field(name).type)]
    for batch in (rows.sort_by(times[0]) if times else rows).combine_chunks().to_batches():
        yield table, batch


def _first(batches: Iterable[Batch], limit: int) -> Iterator[Batch]:
    """At most so many rows. All batches are read: the result of a recording depends on its end."""
    for name, batch in batches:
        yield name, batch.slice(0, limit)
        limit = max(limit - batch.num_rows, 0)
