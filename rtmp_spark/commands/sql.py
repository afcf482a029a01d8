"""`rtmp-spark sql`: a query over the tables of a lake or of captures, by DuckDB, without Spark."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.options.capture_options import (
    add_filter_arguments,
    add_path_argument,
    make_settings,
    refuse_for_lake,
)
from rtmp_spark.commands.options.sensor_files import all_files, files_by_sensor

if TYPE_CHECKING:
    import pyarrow as pa


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", help="one SQL statement, in DuckDB's dialect")
    add_path_argument(parser, or_lake=True, with_sensor=True)
    parser.add_argument("--lake", metavar="DIR", help="query a lake instead of captures")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print CSV with a header line")
    form.add_argument("--json", action="store_true", help="print JSON Lines, one row per line")
    add_filter_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from rtmp_spark.commands.output.tables.table_output import print_batches
    from rtmp_spark.lake.sql import connect, query

    if bool(args.paths) == (args.lake is not None):
        raise UserError("A query needs captures or a lake.", "Give files, or --lake DIR.")
    code = 0
    tables: dict[str, Any]
    if args.lake is not None:
        from rtmp_spark.lake.reader import open_lake
        from rtmp_spark.lake.sql import tables_of
        from rtmp_spark.schema import TABLES

        refuse_for_lake(args)
        lake = open_lake(args.lake)
        tables = {name: lake.table(name) for name in tables_of(args.query) or TABLES}
    else:
        tables, code = _tables_of_captures(args)
    rows = query(connect(tables), args.query)
    print_batches((("", batch) for batch in rows), rows.schema.names, args, chosen=True)
    return code


def _tables_of_captures(args: argparse.Namespace) -> tuple[dict[str, pa.Table], int]:
    """The tables that the query reads; the others are not kept in memory."""
    import pyarrow as pa

    from rtmp_spark.analysis.sensor_recordings import SensorRecordings
    from rtmp_spark.commands.output.capture_outcome import exit_code, print_file_problems
    from rtmp_spark.commands.output.progress.progress_line import BytesRead
    from rtmp_spark.lake.sql import tables_of
    from rtmp_spark.schema import arrow_schema

    settings = make_settings(args)
    wanted = sorted(tables_of(args.query)) or ["captures"]
    settings.keep_payloads = "payloads" in wanted
    captures = files_by_sensor(args)
    progress = BytesRead(all_files(captures), args.quiet)
    recording = SensorRecordings(captures, settings, wanted, progress=progress)
    found: dict[str, list[pa.RecordBatch]] = {name: [] for name in wanted}
    for table, batch in recording.batches():
        found[table].append(batch)
    progress.done()
    print_file_problems(recording.files)
    tables = {name: pa.Table.from_batches(parts, arrow_schema(name)) for name, parts in found.items()}
    return tables, exit_code(recording, args)
