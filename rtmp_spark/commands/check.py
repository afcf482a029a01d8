"""`rtmp-spark check`: a gate for CI. It checks the findings of captures or of a lake, or runs the golden vectors.

Findings can be limited to one side, to rules that are not ignored and to findings that are not in a baseline. The exit
code is 1 if one of the remaining findings is at least as severe as `--fail-on`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rtmp_spark.codec.errors import Severity, UserError, ViolationCode, path_remedy
from rtmp_spark.commands.exit_codes import FINDINGS, NO_RTMP
from rtmp_spark.commands.output.tables.json_lines import json_line

ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)
_TABLES = ("findings", "connections", "streams", "captures", "paths")
_COLUMNS = {  # of tables that are not read as a whole
    "captures": ["capture_id", "path"],
    "streams": ["uid", "role", "verdict", "verdict_rule_id", "verdict_text"],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from rtmp_spark.commands.options.capture_options import add_filter_arguments, add_jobs_argument, add_path_argument

    add_path_argument(parser, or_lake=True, with_sensor=True)
    parser.add_argument("--lake", metavar="DIR", help="check the findings of a lake instead")
    parser.add_argument("--side", choices=("client", "server"), help="only findings where this side is at fault")
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="CODE", help="ignore this rule; may be repeated"
    )
    parser.add_argument("--baseline", metavar="FILE", help="ignore findings that are in this earlier --json output")
    parser.add_argument(
        "--fail-on",
        choices=[s.value for s in ORDER],
        default="error",
        help="lowest severity that makes the exit code 1 (default %(default)s)",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON Lines, one finding per line")
    shape.add_argument("--junit", metavar="FILE", help="also write JUnit XML for CI servers")
    vectors = parser.add_argument_group("golden vectors")
    vectors.add_argument(
        "--vectors",
        nargs="?",
        const="",
        metavar="DIR",
        help="run the golden vectors in DIR (default: the bundled ones)",
    )
    vectors.add_argument(
        "--decoder", metavar="CMD", help="test this program: it reads a vector as JSON and prints the decoded events"
    )
    add_filter_arguments(parser)
    add_jobs_argument(parser)


def run(args: argparse.Namespace) -> int:
    if args.vectors is not None:
        if args.paths or args.lake or args.json or args.junit:
            raise UserError("--vectors can only be combined with --decoder.", "Check captures in a separate run.")
        return check_vectors(args.vectors, args.decoder, args.quiet)
    if args.decoder is not None:
        raise UserError("--decoder needs --vectors.", "Add --vectors.")
    if bool(args.paths) == bool(args.lake):
        raise UserError("Give captures, --lake or --vectors.", "For example: rtmp-spark check trace.pcap")
    return check_findings(args)


def check_vectors(directory: str, decoder: str | None, quiet: bool) -> int:
    from rtmp_spark.commands.output.progress.progress_line import ProgressLine
    from rtmp_spark.vectors import BUNDLED
    from rtmp_spark.vectors.run import run_directory, vector_files

    where = Path(directory) if directory else BUNDLED
    count = len(vector_files(where))
    progress = ProgressLine(quiet)
    passed = failed = skipped = 0
    for number, (name, failures, left_out) in enumerate(run_directory(where, decoder), 1):
        progress.show(f"{number} of {count} vectors")
        if left_out:
            skipped += 1
        elif failures:
            failed += 1
            progress.done()
            print(f"FAIL {name}: {failures[0]}")
        else:
            passed += 1
    progress.done()
    if skipped:
        print(f"{skipped} skipped: not supported by the decoder")
    print(f"{passed} passed, {failed} failed")
    return FINDINGS if failed else 0


# -- findings -----------------------------------------------------------------------------------------------------


def check_findings(args: argparse.Namespace) -> int:
    from rtmp_spark.commands.options.sensor_files import all_files, files_by_sensor
    from rtmp_spark.commands.output import check_output
    from rtmp_spark.commands.output.output_file import output_path, whole_file
    from rtmp_spark.commands.output.terminal import line_printer, short_capture_names
    from rtmp_spark.report.judged_connections import JudgedConnections

    captures = files_by_sensor(args)
    junit = output_path(args.junit, all_files(captures)) if args.junit else None
    ignored = _codes(args.ignore)
    known = _baseline(args.baseline)
    tables, code = _of_lake(args) if args.lake else _of_captures(args, captures)
    findings, connections = tables["findings"], tables["connections"]
    files = short_capture_names(tables["captures"])
    kept = [
        row
        for row in findings
        if (args.side is None or row["at_fault"] == args.side)
        and row["rule_id"] not in ignored
        and _key(row) not in known
    ]
    failing = ORDER[: ORDER.index(Severity(args.fail_on)) + 1]
    failed = [row for row in kept if Severity(row["severity"]) in failing]
    if args.json:
        for row in kept:
            sys.stdout.write(json_line(row) + "\n")
    else:
        judged = JudgedConnections(connections, tables["streams"], findings)
        check_output.print_findings(kept, judged, line_printer(), files, tables["paths"])
    if junit is not None:
        with whole_file(junit) as file:
            file.write(check_output.junit(failed, kept, connections, files).encode("utf-8", "replace"))
    if code:
        return code
    return FINDINGS if failed else 0


def _codes(given: list[str]) -> set[str]:
    codes = {code for text in given for code in text.replace(",", " ").split()}
    for code in sorted(codes):
        if code not in ViolationCode.__members__:
            raise UserError(f"Unknown rule {code}.", "`rtmp-spark explain` lists all rules.")
    return codes


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Findings with equal keys are the same finding in two recordings."""
    return (row["rule_id"], row["severity"], row["at_fault"], row["direction"])


def _baseline(path: str | None) -> set[tuple[Any, ...]]:
    if path is None:
        return set()
    remedy = "Create one with `rtmp-spark check ... --json > FILE`."
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return {_key(json.loads(line)) for line in lines if line.strip()}
    except FileNotFoundError:
        raise UserError(f"The baseline {path} does not exist.", remedy) from None
    except OSError as error:
        raise UserError(f"The baseline {path} cannot be read: {error.strerror}.", path_remedy(error)) from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is not a baseline.", remedy) from None


def _of_captures(
    args: argparse.Namespace, captures: dict[str, list[str]]
) -> tuple[dict[str, list[dict[str, Any]]], int]:
    from rtmp_spark.analysis.sensor_recordings import SensorRecordings
    from rtmp_spark.commands.options.capture_options import make_settings
    from rtmp_spark.commands.options.sensor_files import all_files
    from rtmp_spark.commands.output.capture_outcome import exit_code, print_file_problems
    from rtmp_spark.commands.output.progress.progress_line import BytesRead
    from rtmp_spark.commands.output.tables.json_lines import json_rows

    progress = BytesRead(all_files(captures), args.quiet)
    recording = SensorRecordings(captures, make_settings(args), _TABLES, progress=progress)
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in _TABLES}
    for table, batch in recording.batches():
        tables[table] += json_rows(batch.select(_COLUMNS.get(table, batch.schema.names)))
    progress.done()
    print_file_problems(recording.files)
    return tables, exit_code(recording, args)


def _of_lake(args: argparse.Namespace) -> tuple[dict[str, list[dict[str, Any]]], int]:
    import pyarrow.compute as pc

    from rtmp_spark.commands.options.capture_options import refuse_for_lake
    from rtmp_spark.commands.output.tables.json_lines import json_rows
    from rtmp_spark.lake.reader import open_lake

    refuse_for_lake(args)
    lake = open_lake(args.lake)
    own = pc.field("uid") == args.uid if args.uid else None
    tables: dict[str, list[dict[str, Any]]] = {}
    for name in _TABLES:
        if name == "captures":
            rows = lake.read(name, _COLUMNS[name])
        elif name == "paths" and args.uid:
            rows = lake.read(name, where=(pc.field("uid_a") == args.uid) | (pc.field("uid_b") == args.uid))
        else:
            rows = lake.read(name, _COLUMNS.get(name), own)
        tables[name] = [row for batch in rows.to_batches() for row in json_rows(batch)]
    if args.uid and not tables["connections"]:
        raise UserError(f"No connection {args.uid} in {args.lake}.", "Without --uid, all connections are checked.")
    if not tables["connections"]:
        print(f"rtmp-spark: {args.lake} has no RTMP connections.", file=sys.stderr)
        return tables, NO_RTMP
    return tables, 0
