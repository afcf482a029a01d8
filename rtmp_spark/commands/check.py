"""`rtmp-spark check`: a gate for CI. Findings of captures or of a lake, or the golden vectors.

Findings can be narrowed to one side, to codes that are not ignored and to what a baseline does not hold yet; exit 1
when one of the rest is as severe as `--fail-on`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rtmp_spark.codec.errors import Severity, UserError, ViolationCode

ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)
FINDINGS_FAIL = 1
_TABLES = ("findings", "connections", "captures")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from rtmp_spark.commands.recording_options import add_filter_arguments

    parser.add_argument("paths", nargs="*", metavar="FILE", help="pcap or pcapng; several are one recording")
    parser.add_argument("--lake", metavar="DIR", help="the findings of a lake instead")
    parser.add_argument("--side", choices=("client", "server"), help="only what this side is at fault for")
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="CODE", help="leave this out; may be given several times"
    )
    parser.add_argument("--baseline", metavar="FILE", help="leave out what this earlier output of --json holds")
    parser.add_argument(
        "--fail-on",
        choices=[s.value for s in ORDER],
        default="error",
        help="least severity that gives exit code 1 (default %(default)s)",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="JSON Lines, one finding a line")
    shape.add_argument("--junit", metavar="FILE", help="write JUnit XML for CI servers, besides the text")
    vectors = parser.add_argument_group("golden vectors")
    vectors.add_argument(
        "--vectors", nargs="?", const="", metavar="DIR", help="run the vectors of DIR (default: the bundled ones)"
    )
    vectors.add_argument(
        "--decoder", metavar="CMD", help="a program that reads a vector as JSON and prints what it makes of it"
    )
    add_filter_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.vectors is not None:
        if args.paths or args.lake or args.json or args.junit:
            raise UserError("--vectors goes with nothing but --decoder.", "Check captures apart from vectors.")
        return check_vectors(args.vectors, args.decoder, args.quiet)
    if args.decoder is not None:
        raise UserError("--decoder goes with --vectors.", "Add --vectors.")
    if bool(args.paths) == bool(args.lake):
        raise UserError("Give captures, or --lake, or --vectors.", "rtmp-spark check trace.pcap")
    return check_findings(args)


def check_vectors(directory: str, decoder: str | None, quiet: bool) -> int:
    from rtmp_spark.commands.progress import ProgressLine
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
        print(f"{skipped} skipped: the decoder does not do them")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


# -- findings -----------------------------------------------------------------------------------------------------


def check_findings(args: argparse.Namespace) -> int:
    from rtmp_spark.commands import check_output, inspect_output
    from rtmp_spark.commands.output_file import output_path, whole_file
    from rtmp_spark.commands.terminal import printer

    junit = output_path(args.junit, args.paths) if args.junit else None
    ignored = _codes(args.ignore)
    known = _baseline(args.baseline)
    tables, code = _of_lake(args) if args.lake else _of_captures(args)
    findings, connections = tables["findings"], tables["connections"]
    files = inspect_output.file_names(tables["captures"])
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
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
    else:
        check_output.show(kept, connections, printer(), files)
    if junit is not None:
        with whole_file(junit) as file:
            file.write(check_output.junit(failed, connections, files).encode("utf-8", "replace"))
    if code:
        return code
    return FINDINGS_FAIL if failed else 0


def _codes(given: list[str]) -> set[str]:
    codes = {code for text in given for code in text.replace(",", " ").split()}
    for code in sorted(codes):
        if code not in ViolationCode.__members__:
            raise UserError(f"{code} is no finding.", "`rtmp-spark explain` lists them.")
    return codes


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What makes two findings of two recordings the same."""
    return (row["rule_id"], row["severity"], row["at_fault"], row["direction"])


def _baseline(path: str | None) -> set[tuple[Any, ...]]:
    if path is None:
        return set()
    remedy = "Make it with `rtmp-spark check ... --json > FILE`."
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return {_key(json.loads(line)) for line in lines if line.strip()}
    except OSError:
        raise UserError(f"The baseline {path} cannot be read.", remedy) from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is no baseline.", remedy) from None


def _of_captures(args: argparse.Namespace) -> tuple[dict[str, list[dict[str, Any]]], int]:
    from rtmp_spark.capture.recording import Recording
    from rtmp_spark.commands.inspect_output import json_rows
    from rtmp_spark.commands.progress import BytesRead
    from rtmp_spark.commands.recording_options import check_paths, exit_code, make_settings, tell_problems

    paths = check_paths(args.paths)
    progress = BytesRead(paths, args.quiet)
    recording = Recording(paths, make_settings(args), _TABLES, progress=progress)
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in _TABLES}
    for table, batch in recording.batches():
        tables[table] += json_rows(batch)
    progress.done()
    tell_problems(recording.files)
    return tables, exit_code(recording, args)


def _of_lake(args: argparse.Namespace) -> tuple[dict[str, list[dict[str, Any]]], int]:
    from rtmp_spark.commands.inspect_output import json_rows
    from rtmp_spark.commands.recording_options import NO_RTMP, refuse_for_lake
    from rtmp_spark.spark import Lake
    from rtmp_spark.spark.session import start_spark_for

    refuse_for_lake(args)
    lake = Lake(start_spark_for(args.lake), args.lake)
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, chosen in lake.tables(_TABLES).items():
        if name == "captures":
            chosen = chosen.select("capture_id", "path")
        elif args.uid:
            chosen = chosen.where(chosen.uid.isin([args.uid]))
        tables[name] = [row for batch in chosen.toArrow().to_batches() for row in json_rows(batch)]
    if args.uid and not tables["connections"]:
        raise UserError(f"There is no connection {args.uid} in the lake.", "Leave --uid out to see them all.")
    if not tables["connections"]:
        print(f"rtmp-spark: no RTMP in {args.lake}.", file=sys.stderr)
        return tables, NO_RTMP
    return tables, 0
