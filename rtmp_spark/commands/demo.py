"""`rtmp-spark demo`: the whole chain in one go, on this machine only.

A relay, a publisher that breaks one rule on purpose, two players of which one has a bad line, a pcap of all of it,
Delta tables by Spark, the findings and a page. Everything goes into a directory of its own, which nobody else uses,
so that two demos do not meet. It shows the other commands; it does nothing that they cannot do.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from rtmp_spark.codec.errors import UserError, ViolationCode

if TYPE_CHECKING:
    from rtmp_relay.client import Progress
    from rtmp_relay.relay import Relay
    from rtmp_spark.report.source import Tables

DEFAULT_FAULT = ViolationCode.MEDIA_ANNEXB
RTMP_PORT = 1935
SLOW_BYTES_PER_S = 40_000
SEND_BUFFER_BYTES = 32_768
PARTIES = ("publisher", "player", "slow player")  # in the order in which they come
_SEVERITIES = ("error", "warning", "info")
_INDENT = " " * 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("rtmp-spark-demo"), metavar="DIR",
        help="where everything goes (%(default)s); when it is there, DIR-2 and so on",
    )  # fmt: skip
    parser.add_argument(
        "--fault", default=DEFAULT_FAULT.value, metavar="CODE",
        help="the rule that the publisher breaks (%(default)s); `--fault help` lists them",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=8.0, metavar="S", help="length of the stream (%(default)s)")
    parser.add_argument("--no-spark", action="store_true", help="without tables: findings and page from the pcap")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end, and nothing else")


@dataclass
class Demo:
    """What the demo made."""

    directory: Path
    fault: str
    url: str = ""
    pcap: Path = field(init=False)
    lake: Path | None = None
    report: Path = field(init=False)
    findings: list[dict[str, Any]] = field(default_factory=list)
    deliveries: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pcap = self.directory / "session.pcap"
        self.report = self.directory / "report.html"

    @property
    def found(self) -> bool:
        return any(row["rule_id"] == self.fault for row in self.findings)


def run(args: argparse.Namespace) -> int:
    from rtmp_relay import faults

    if args.fault == "help":
        print(faults.listing("client"))
        return 0
    code = args.fault.upper().replace("-", "_")
    faults.factory(code, "client")
    if not 2 <= args.seconds <= 600:
        raise UserError(f"A stream of {args.seconds:g} s cannot be shown.", "Choose 2 to 600 seconds.")
    _loopback_is_there()
    if not args.no_spark:
        _spark_can_start()
    demo = Demo(_own_directory(args.output), code)
    steps = Steps(demo, 4 if args.no_spark else 5, silent=args.json or args.quiet)
    try:
        _run(demo, steps, args)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Stopped: {_left_behind(demo)}") from None
    if args.json:
        print(json.dumps(_as_json(demo)))
    else:
        show(demo)
    return 0


def _run(demo: Demo, steps: Steps, args: argparse.Namespace) -> None:
    with steps("traffic", "a relay, a publisher with a fault, two players, one of them on a slow line") as tell:
        summary = asyncio.run(_traffic(demo, args.seconds, tell))
        steps.note(summary)
    if args.no_spark:
        _from_capture(demo, steps)
    else:
        _from_lake(demo, steps)


def _loopback_is_there() -> None:
    """A container without a network may listen on 127.0.0.1 and still reach nobody there."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
            pass
    except OSError as error:
        text = f"Programs on this machine cannot reach each other over 127.0.0.1: {error.strerror or error}."
        raise UserError(text, "Bring the loopback interface up: ip link set lo up", 3) from None


_WITHOUT_SPARK = "Or see the rest without tables: rtmp-spark demo --no-spark"


def _spark_can_start() -> None:
    """Before anything else: what is missing is told at once, and what must be fetched is."""
    try:
        from rtmp_spark.spark import jars

        jars.java_home()
        jars.delta_jars()
    except ModuleNotFoundError as error:
        text = f"The Python package {error.name} is missing."
        raise UserError(text, f"pip install 'rtmp-spark[spark]'. {_WITHOUT_SPARK}", 3) from None
    except UserError as error:
        raise UserError(error.text, f"{error.remedy} {_WITHOUT_SPARK}", error.exit_code) from None


def _own_directory(wanted: Path) -> Path:
    """A directory that was not there before; making it is what claims it."""
    for number in range(1, 1000):
        path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"{path} cannot be made: {error.strerror}.", "Choose another place with -o DIR.") from None
        return path
    raise UserError(f"There are a thousand demos beside {wanted}.", "Remove some.")


class Steps:
    """Tells on standard error what is being done; on a terminal the line is kept alive."""

    def __init__(self, demo: Demo, count: int, silent: bool) -> None:
        self._demo = demo
        self._count = count
        self._silent = silent
        self._alive = sys.stderr.isatty() and not silent
        self._number = 0
        self._line = ""  # that stands open

    @contextmanager
    def __call__(self, name: str, what: str) -> Iterator[Callable[[str], None]]:
        self._number += 1
        started = time.monotonic()
        self._say(f"[{self._number}/{self._count}] {what}\n")
        yield self._tell
        self.line_end()
        self._demo.seconds[name] = round(time.monotonic() - started, 1)

    def _tell(self, text: str) -> None:
        line = f"      {text}"
        if self._alive and line != self._line:
            self._say(f"\r{line:<{len(self._line)}}")
            self._line = line

    def line_end(self) -> None:
        if self._line:
            self._say(f"\r{'':<{len(self._line)}}\r")
            self._line = ""

    def note(self, text: str) -> None:
        self.line_end()
        self._say(f"      {text}\n")

    def _say(self, text: str) -> None:
        if not self._silent:
            sys.stderr.write(text)
            sys.stderr.flush()


# -- the traffic --------------------------------------------------------------------------------------------------


async def _traffic(demo: Demo, seconds: float, tell: Callable[[str], None]) -> str:
    from rtmp_relay import client, faults
    from rtmp_relay.proxy import Proxy, Weather
    from rtmp_relay.synthetic import Synthetic

    relay = await _start_relay(demo.pcap)
    line = Proxy(("127.0.0.1", 0), ("127.0.0.1", relay.port), downstream=Weather(bytes_per_s=SLOW_BYTES_PER_S))
    try:
        await line.start()
        demo.url = f"rtmp://127.0.0.1:{relay.port}/live/demo"
        fault = faults.factory(demo.fault, "client")()
        media = Synthetic(seconds=seconds, width=640, height=360, fps=50, gop=50, video_bitrate=2_000_000)

        def show(progress: Progress) -> None:
            tell(f"{progress.media_ms / 1000:4.1f} of {seconds:g} s, {progress.bytes / 1e6:.1f} MB")

        publishing = asyncio.ensure_future(client.publish(demo.url, media.tags(), fault=fault, on_progress=show))
        await asyncio.sleep(0.6)
        patience = seconds + 3
        good = asyncio.ensure_future(client.play_to_file(demo.url, demo.directory / "played.flv", duration_s=patience))
        await asyncio.sleep(0.2)
        slow_url = demo.url.replace(f":{relay.port}/", f":{line.port}/")
        slow = asyncio.ensure_future(
            client.play_to_file(slow_url, demo.directory / "played-slow.flv", duration_s=patience)
        )
        ended = await asyncio.gather(publishing, good, slow, return_exceptions=True)
    finally:
        await line.stop()
        await relay.stop()
    words = []
    for name, outcome in zip(PARTIES, ended):
        if isinstance(outcome, client.Progress):
            words.append(f"{name} {outcome.tags} tags")
        elif isinstance(outcome, UserError):  # what a fault may well lead to
            words.append(f"{name}: {outcome.text.rstrip('.')}")
        elif isinstance(outcome, BaseException):
            raise outcome
    return "; ".join(words)


async def _start_relay(pcap: Path) -> Relay:
    """On the port of RTMP when it is free, else on any."""
    from rtmp_relay.relay import Relay, RelayOptions

    for port in (RTMP_PORT, 0):
        relay = Relay(RelayOptions(port=port, tap=pcap, send_buffer_bytes=SEND_BUFFER_BYTES))
        try:
            await relay.start()
            return relay
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES) or port == 0:
                text = f"No port of 127.0.0.1 can be listened on: {error.strerror}."
                raise UserError(text, "", 3) from None
    raise AssertionError


# -- tables, findings, page ---------------------------------------------------------------------------------------


def _from_lake(demo: Demo, steps: Steps) -> None:
    from rtmp_spark.spark import Lake, ingest, start_spark
    from rtmp_spark.spark.connection import LakeTables

    lake = demo.directory / "lake"
    with steps("spark", "Spark starts, on this machine"):
        spark = start_spark("local[2]", small=True)
    try:
        with steps("ingest", "Spark decodes the capture into Delta tables") as tell:
            summary = ingest(spark, [str(demo.pcap)], str(lake), progress=lambda progress: tell(progress.phase))
            demo.lake = lake
            rows = ", ".join(f"{name} {summary.rows[name]}" for name in ("messages", "media_tags", "findings"))
            steps.note(f"{summary.bytes / 1e6:.1f} MB: connections {summary.connections}, {rows}")
        tables = LakeTables(Lake(spark, str(lake)))
        command = shlex.join(["rtmp-spark", "report", "--lake", str(lake), "-o", str(demo.report)])
        _check_and_report(demo, steps, tables, command)
    finally:
        spark.stop()


def _from_capture(demo: Demo, steps: Steps) -> None:
    from rtmp_spark.commands import recording_options
    from rtmp_spark.report.source import DRAWN_COLUMNS, CaptureTables

    parser = argparse.ArgumentParser()
    recording_options.add_filter_arguments(parser)
    settings = recording_options.make_settings(parser.parse_args([]))
    with steps("decode", "the capture is decoded, without Spark"):
        tables = CaptureTables([demo.pcap], settings, columns=DRAWN_COLUMNS)
    command = shlex.join(["rtmp-spark", "report", str(demo.pcap), "-o", str(demo.report)])
    _check_and_report(demo, steps, tables, command)


def _check_and_report(demo: Demo, steps: Steps, tables: Tables, command: str) -> None:
    from rtmp_spark.report.page import pieces

    with steps("check", "the rules are checked"):
        connections = sorted(tables.rows("connections"), key=lambda row: row["ts_start"])
        parties = {row["uid"]: name for row, name in zip(connections, PARTIES)}
        demo.findings = [{**row, "party": parties.get(row["uid"])} for row in tables.rows("findings")]
        demo.deliveries = [{**row, "party": parties.get(row["play_uid"])} for row in tables.rows("deliveries")]
        demo.deliveries.sort(key=lambda row: row["party"] or "")
        demo.findings.sort(key=lambda row: _rank(row, demo.fault))
    with steps("report", "the page is drawn"), demo.report.open("w", encoding="utf-8", errors="replace") as file:
        file.writelines(pieces(tables, command=command))


def _rank(row: dict[str, Any], planted: str) -> tuple[bool, int, int, str, int]:
    party = PARTIES.index(row["party"]) if row["party"] in PARTIES else len(PARTIES)
    return row["rule_id"] != planted, _SEVERITIES.index(row["severity"]), party, row["rule_id"], row["frame"] or 0


# -- what a person reads ------------------------------------------------------------------------------------------


def show(demo: Demo) -> None:
    from rtmp_relay import faults
    from rtmp_spark.commands.harmless import harmless

    recipe = faults.CATALOGUE[ViolationCode[demo.fault]]
    width = min(100, max(60, shutil.get_terminal_size((100, 24)).columns))
    print(f"\nPlanted: {demo.fault} ({recipe.what}). {'Found.' if demo.found else 'Not found!'}\n")
    for row in (row for row in demo.findings if row["severity"] != "info" or row["rule_id"] == demo.fault):
        times = f" x{row['count']}" if row["count"] > 1 else ""
        print(f"{row['severity']:<8} {row['rule_id']}{times}, {row['party'] or 'the capture'}: {row['title']}.")
        for text in (row["detail"], row["fix_hint"] and f"-> {row['fix_hint']}"):
            if text:
                print(fill(harmless(text), width, initial_indent=_INDENT, subsequent_indent=_INDENT))
    notes = sum(row["severity"] == "info" for row in demo.findings)
    print(f"{'info':<8} {notes} more in the page and in the table findings.")
    for row in demo.deliveries:
        print(
            f"{'':<8} {row['party']}: {row['frames_missing']} of {row['frames_published']} frames missing, "
            f"{row['latency_ms_p50']:,.1f} ms behind the publisher at the median, {row['latency_ms_p99']:,.1f} at p99."
        )
    print("\nMade:")
    made = ((demo.pcap, "every byte of the three connections"), (demo.directory / "played.flv", "what a player got"))
    tables = () if demo.lake is None else ((demo.lake, "the Delta tables"),)
    for path, what in (*made, *tables, (demo.report, "the page; open it in a browser")):
        print(f"  {_short(path):<44} {what}")
    print("\nGo on with:")
    for command in go_on(demo):
        print(f"  {command}")
    print(f"\nIn {sum(demo.seconds.values()):.0f} s. The page: {demo.report.resolve().as_uri()}")


def go_on(demo: Demo) -> list[str]:
    """Commands that show what the demo made, ready to paste."""
    pcap, uid = _short(demo.pcap), next((row["uid"] for row in demo.findings if row["uid"]), None)
    commands = [
        ["inspect", pcap],
        ["inspect", pcap, "--table", "commands"],
        ["explain", demo.fault],
        ["check", pcap, "--side", "client"],
    ]
    if uid:
        commands.append(["slice", pcap, "--uid", uid, "-o", _short(demo.directory / "one.pcapng")])
    if demo.lake is not None:
        commands.append(["check", "--lake", _short(demo.lake)])
    return [shlex.join([*_program(), *words]) for words in commands]


def _program() -> list[str]:
    """How this program can be started from here."""
    if shutil.which("rtmp-spark"):
        return ["rtmp-spark"]
    beside = Path(sys.executable).with_name("rtmp-spark")
    if beside.exists():
        short = _short(beside)
        return [short if "/" in short else f"./{short}"]
    return [_short(Path(sys.executable)), "-m", "rtmp_spark.cli"]


def _as_json(demo: Demo) -> dict[str, Any]:
    keys = ("rule_id", "severity", "party", "at_fault", "uid", "frame", "count", "title", "detail", "clause")
    return {
        "directory": str(demo.directory),
        "url": demo.url,
        "pcap": str(demo.pcap),
        "lake": None if demo.lake is None else str(demo.lake),
        "report": str(demo.report),
        "fault": demo.fault,
        "found": demo.found,
        "findings": [{key: row[key] for key in keys} for row in demo.findings],
        "commands": go_on(demo),
        "seconds": demo.seconds,
    }


def _left_behind(demo: Demo) -> str:
    names = ", ".join(sorted(path.name for path in demo.directory.iterdir())) or "nothing"
    return f"{_short(demo.directory)} holds what was made so far: {names}."


def _short(path: Path) -> str:
    """As short as it can be said from here."""
    try:
        relative = os.path.relpath(path)
    except ValueError:
        return str(path)
    return relative if len(relative) < len(str(path)) else str(path)
