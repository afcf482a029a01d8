"""`rtmp-spark demo`: run the whole chain once, on this machine only.

It runs a relay, a publisher that breaks one rule, and two players, one of them on a slow link; records them as a pcap;
ingests the capture into Delta tables with Spark; checks the rules and writes a report. All files go into a new
directory, so several demos do not interfere. Everything can be done with the other commands too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtmp_spark.codec.errors import UserError, ViolationCode
from rtmp_spark.commands.demo_traffic import PARTIES, make_traffic
from rtmp_spark.commands.exit_codes import ENVIRONMENT
from rtmp_spark.commands.output.demo_output import DemoResult, as_json, print_result, short_path
from rtmp_spark.commands.output.progress.step_lines import StepLines
from rtmp_spark.install_command import install_command
from rtmp_spark.report.verdict import SEVERITIES

if TYPE_CHECKING:
    from rtmp_spark.report.table_source import Tables

DEFAULT_FAULT = ViolationCode.MEDIA_ANNEXB
_WITHOUT_SPARK = "Or run the demo without tables: rtmp-spark demo --no-spark"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("rtmp-spark-demo"), metavar="DIR",
        help="directory for all files (%(default)s); if it exists, DIR-2 and so on",
    )  # fmt: skip
    parser.add_argument(
        "--fault", default=DEFAULT_FAULT.value, metavar="CODE",
        help="the rule that the publisher breaks (%(default)s); `--fault help` lists the rules",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, default=8.0, metavar="S", help="length of the stream in seconds (%(default)s)"
    )
    parser.add_argument("--no-spark", action="store_true", help="no tables; findings and report from the pcap")
    parser.add_argument("--json", action="store_true", help="print only one JSON object at the end")


def run(args: argparse.Namespace) -> int:
    from rtmp_relay.faults import fault_catalogue

    if args.fault == "help":
        print(fault_catalogue.listing("client"))
        return 0
    code = args.fault.upper().replace("-", "_")
    fault_catalogue.factory(code, "client")
    if not 2 <= args.seconds <= 600:
        raise UserError(f"Invalid length {args.seconds:g} s.", "Choose 2 to 600 seconds.")
    _check_loopback()
    if not args.no_spark:
        _check_spark()
    demo = DemoResult(_new_directory(args.output), code)
    steps = StepLines(4 if args.no_spark else 5, silent=args.json or args.quiet)
    try:
        with steps.step(
            "traffic", "Running a relay, a publisher with a fault and two players, one on a slow link"
        ) as show:
            summary = asyncio.run(make_traffic(demo, args.seconds, show))
            steps.note(summary)
        if args.no_spark:
            _from_capture(demo, steps)
        else:
            _from_lake(demo, steps)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Interrupted. {_files_so_far(demo)}") from None
    if args.json:
        print(json.dumps(as_json(demo, steps.seconds)))
    else:
        print_result(demo, sum(steps.seconds.values()))
    return 0


def _check_loopback() -> None:
    """In a container without a network, listening on 127.0.0.1 may work but connecting may not."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
            pass
    except OSError as error:
        text = f"Cannot connect to 127.0.0.1: {error.strerror or error}."
        raise UserError(text, "Enable the loopback interface: ip link set lo up", ENVIRONMENT) from None


def _check_spark() -> None:
    """Report missing requirements, and download the Delta jars, before the demo begins."""
    try:
        from rtmp_spark.spark.session import jars

        jars.java_home()
        jars.delta_jars()
    except ModuleNotFoundError as error:
        text = f"The Python package {error.name} is not installed."
        raise UserError(text, f"{install_command('spark')}. {_WITHOUT_SPARK}", ENVIRONMENT) from None
    except UserError as error:
        raise UserError(error.text, f"{error.remedy} {_WITHOUT_SPARK}", error.exit_code) from None


def _new_directory(wanted: Path) -> Path:
    """A directory that did not exist before. Creating it reserves it for this demo."""
    for number in range(1, 1000):
        path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"Cannot create {path}: {error.strerror}.", "Choose another directory with -o.") from None
        return path
    raise UserError(f"{wanted} and 998 numbered directories exist already.", "Remove some of them.")


def _from_lake(demo: DemoResult, steps: StepLines) -> None:
    from rtmp_spark.lake.reader import open_lake
    from rtmp_spark.report.lake_tables import LakeTables
    from rtmp_spark.spark import ingest, start_spark

    lake = demo.directory / "lake"
    with steps.step("spark", "Starting Spark on this machine"):
        spark = start_spark("local[2]", small=True)
    try:
        with steps.step("ingest", "Decoding the capture into Delta tables") as show:
            summary = ingest(spark, [str(demo.pcap)], str(lake), progress=lambda progress: show(progress.phase))
            demo.lake = lake
            rows = ", ".join(f"{name} {summary.rows[name]}" for name in ("messages", "media_tags", "findings"))
            steps.note(f"{summary.bytes / 1e6:.1f} MB: connections {summary.connections}, {rows}")
        tables = LakeTables(open_lake(lake))
        command = shlex.join(["rtmp-spark", "report", "--lake", str(lake), "-o", str(demo.report)])
        _check_and_report(demo, steps, tables, command)
    finally:
        spark.stop()


def _from_capture(demo: DemoResult, steps: StepLines) -> None:
    from rtmp_spark.report.table_source import DRAWN_COLUMNS, CaptureTables
    from rtmp_spark.report.view import judged_settings

    with steps.step("decode", "Decoding the capture without Spark"):
        tables = CaptureTables([demo.pcap], judged_settings(), columns=DRAWN_COLUMNS)
    command = shlex.join(["rtmp-spark", "report", str(demo.pcap), "-o", str(demo.report)])
    _check_and_report(demo, steps, tables, command)


def _check_and_report(demo: DemoResult, steps: StepLines, tables: Tables, command: str) -> None:
    from rtmp_spark.report.page import pieces

    with steps.step("check", "Checking the rules"):
        connections = sorted(tables.rows("connections"), key=lambda row: row["ts_start"])
        parties = {row["uid"]: name for row, name in zip(connections, PARTIES)}
        demo.findings = [{**row, "party": parties.get(row["uid"])} for row in tables.rows("findings")]
        demo.deliveries = [{**row, "party": parties.get(row["play_uid"])} for row in tables.rows("deliveries")]
        demo.deliveries.sort(key=lambda row: row["party"] or "")
        demo.findings.sort(key=lambda row: _rank(row, demo.fault))
    with steps.step("report", "Writing the report"), demo.report.open("w", encoding="utf-8", errors="replace") as file:
        file.writelines(pieces(tables, command=command))


def _rank(row: dict[str, Any], planted: str) -> tuple[bool, int, int, str, int]:
    """Sort key of findings: the planted fault first, then by severity, party and rule."""
    party = PARTIES.index(row["party"]) if row["party"] in PARTIES else len(PARTIES)
    return row["rule_id"] != planted, SEVERITIES.index(row["severity"]), party, row["rule_id"], row["frame"] or 0


def _files_so_far(demo: DemoResult) -> str:
    names = ", ".join(sorted(path.name for path in demo.directory.iterdir())) or "no files"
    return f"{short_path(demo.directory)} holds the files made so far: {names}."
