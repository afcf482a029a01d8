"""`rtmp-spark probe`: run the conformance suite against an RTMP server, or play scenarios for a connecting client."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.exit_codes import ENVIRONMENT, FINDINGS
from rtmp_spark.commands.options.tls_options import add_client_arguments, client_context

if TYPE_CHECKING:
    from rtmp_spark.probe.case import Case
    from rtmp_spark.probe.runner import CaseResult
    from rtmp_spark.probe.wire import Target

_STYLES = {"failed": "bold red", "non-strict": "yellow", "inconclusive": "yellow", "detail": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", nargs="?", metavar="URL", help="rtmp://host[:port]/app[/name], or rtmps, rtmpt, rtmpts")
    parser.add_argument("--listen", metavar="HOST:PORT", help="test clients: play a scenario for each that connects")
    parser.add_argument("--list", action="store_true", help="list the cases and exit; with --listen, the scenarios")
    parser.add_argument(
        "--only", action="append", default=[], metavar="X", help="run this section or case; may be repeated"
    )
    parser.add_argument(
        "--skip", action="append", default=[], metavar="X", help="do not run this section or case; may be repeated"
    )
    parser.add_argument(
        "--scenario", action="append", default=[], metavar="X", help="with --listen: play this scenario; repeatable"
    )
    parser.add_argument("--strict", action="store_true", help="a SHOULD that fails makes the exit code 1 too")
    parser.add_argument("--hostile", action="store_true", help="also run cases that could harm the server")
    parser.add_argument("--publish-key", default="", metavar="KEY", help="publish as name?key=KEY")
    parser.add_argument(
        "--timeout", type=float, default=5.0, metavar="S", help="seconds to wait for an answer (%(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="cases at a time (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON Lines, one case per line")
    parser.add_argument("--junit", metavar="FILE", help="also write JUnit XML for CI servers")
    parser.add_argument("--html", metavar="FILE", help="also write an HTML page")
    parser.add_argument("--captures", type=Path, metavar="DIR", help="write the packets of each case as pcapng")
    add_client_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from rtmp_spark.commands.output.output_file import output_path

    if args.scenario and not args.listen:
        raise UserError("--scenario needs --listen.", "Use --only for the cases of a server.")
    if args.listen and (args.only or args.skip):
        raise UserError("--only and --skip do not apply to --listen.", "Use --scenario.")
    if args.list:
        return _list(args)
    if bool(args.url) == bool(args.listen):
        raise UserError("Give a URL or --listen.", "For example: rtmp-spark probe rtmp://127.0.0.1/live")
    if not 0 < args.timeout < math.inf or args.jobs < 1:
        raise UserError("--timeout and --jobs must be positive.", "Use --timeout 5 --jobs 4.")
    for file in (args.junit, args.html):
        if file:
            output_path(file, ())  # an unusable path is reported before the run
    if args.listen:
        return _probe_clients(args)
    return _probe_server(args)


def _list(args: argparse.Namespace) -> int:
    from rtmp_spark.probe.catalogue import choose
    from rtmp_spark.probe.scenarios import choose_scenarios

    cases = choose_scenarios(args.scenario) if args.listen else choose(args.only, args.skip, hostile=True)
    if args.json:
        for case in cases:
            print(json.dumps(_described(case), ensure_ascii=False))
        return 0
    for case in cases:
        print(f"{case.id:<16} {case.level.value:<9} {case.title}{' (--hostile)' if case.hostile else ''}")
    print(f"{len(cases)} cases")
    return 0


def _described(case: Case) -> dict[str, object]:
    return {
        "id": case.id, "title": case.title, "level": case.level.value, "clause": case.clause,
        "requirement": case.requirement, "expected": case.expected, "rationale": case.rationale,
        "hostile": case.hostile,
    }  # fmt: skip


def _probe_server(args: argparse.Namespace) -> int:
    from rtmp_relay.rtmp_url import without_name
    from rtmp_spark.commands.output.progress.progress_line import ProgressLine
    from rtmp_spark.probe.catalogue import choose
    from rtmp_spark.probe.outcome import Verdict
    from rtmp_spark.probe.runner import run_cases

    cases = choose(args.only, args.skip, args.hostile)
    if not cases:
        raise UserError("No case is left to run.", "Hostile cases need --hostile.")
    target = _target(args)
    progress = ProgressLine(args.quiet)
    done = 0

    def count(result: CaseResult) -> None:
        nonlocal done
        done += 1
        progress.show(f"{done} of {len(cases)} cases, {result.case.id}")

    async def all_cases() -> tuple[list[CaseResult], bool]:
        if problem := await _unreachable(target):
            raise UserError(problem, _remedy(problem), ENVIRONMENT)
        results = await run_cases(cases, target, args.jobs, args.captures, count)
        if any(result.unreachable for result in results):
            return results, True
        undecided = any(result.verdict is Verdict.INCONCLUSIVE for result in results)
        return results, undecided and bool(await _unreachable(target))

    results, lost = asyncio.run(all_cases())
    progress.done()
    if lost:
        print("The server stopped during the run: it does not answer any more.", file=sys.stderr)
    return _report(args, results, without_name(args.url), lost)


def _target(args: argparse.Namespace) -> Target:
    from rtmp_relay.rtmp_url import RTMPT_PORTS, parse_url, without_name
    from rtmp_spark.probe.wire import Target

    where, mark, query = args.url.partition("?")
    scheme, _, path = where.partition("://")
    if path.strip("/").count("/") == 0:
        raise UserError(f"{without_name(args.url)!r} has no app.", f"Write it as {scheme}://host[:port]/app[/name].")
    with_name = path.strip("/").count("/") >= 2
    url = parse_url(args.url if with_name else where.rstrip("/") + "/probe" + mark + query, rtmpt=True)
    name, _, query = url.name.partition("?")
    tls = client_context(args) if url.scheme in ("rtmps", "rtmpts") else None
    key, rtmpt = args.publish_key, url.scheme in RTMPT_PORTS
    return Target(url.host, url.port, url.app, url.tc_url, tls, args.timeout, name, query, key, rtmpt)


async def _unreachable(target: Target) -> str:
    """Why no RTMP server can be reached; empty if one reacts to a handshake, even if only by closing the connection."""
    from rtmp_relay.rtmp_url import endpoint, why
    from rtmp_spark.probe.rtmpt import NotRtmpt
    from rtmp_spark.probe.transcript import Transcript
    from rtmp_spark.probe.wire import Silence, Wire

    where = endpoint(target.host, target.port)
    try:
        wire = await Wire.open(target, Transcript(False))
    except NotRtmpt as error:
        return f"{where} does not speak RTMPT ({error})."
    except (OSError, asyncio.TimeoutError) as error:
        reason = why(error) if isinstance(error, OSError) and str(error) else "no answer"
        return f"{where} cannot be reached ({reason})."
    try:
        await wire.send(b"\3" + bytes(1536))
        await wire.receive()
    except Silence:
        return f"{where} accepts connections but does not answer a handshake within {target.timeout_s:g} s."
    finally:
        await wire.close()
    return ""


def _remedy(problem: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in problem:
        return "Trust the certificate with --tls-ca FILE, or use --tls-insecure."
    if "does not speak RTMPT" in problem:
        return "Check the address, or use rtmp://."
    return "Check the address and whether the server is running."


def _probe_clients(args: argparse.Namespace) -> int:
    from rtmp_relay.rtmp_url import endpoint, parse_endpoint, why
    from rtmp_spark.probe.listener import listen
    from rtmp_spark.probe.scenarios import choose_scenarios

    scenarios = choose_scenarios(args.scenario)
    host, port = parse_endpoint(args.listen)

    def ready(actual: int, scenario: Case) -> None:
        if not args.quiet:
            where = f"rtmp://{endpoint(host, actual)}/live/{scenario.id.rpartition('/')[2]}"
            print(f"waiting for a client at {where} ({scenario.title})", file=sys.stderr, flush=True)

    try:
        results = asyncio.run(listen(scenarios, host, port, args.timeout, args.captures, ready))
    except OSError as error:
        text = f"Cannot listen on {endpoint(host, port)} ({why(error)})."
        raise UserError(text, "Choose another --listen.", ENVIRONMENT) from None
    return _report(args, results, f"client at {args.listen}")


def _report(args: argparse.Namespace, results: list[CaseResult], target: str, lost: bool = False) -> int:
    from rtmp_spark.commands.output.output_file import output_path, whole_file
    from rtmp_spark.commands.output.terminal import line_printer
    from rtmp_spark.probe import results as written

    if args.json:
        for result in results:
            sys.stdout.write(json.dumps(result.to_json(), ensure_ascii=False) + "\n")
    else:
        show = line_printer()
        for line, verdict in written.summary(results):
            show(line, _STYLES.get(verdict, ""))
    if args.junit:
        with whole_file(output_path(args.junit, ())) as file:
            file.write(written.junit(results, args.strict, target).encode("utf-8", "replace"))
    if args.html:
        command = f"rtmp-spark probe {target}"
        with whole_file(output_path(args.html, ())) as file:
            file.write(written.page(results, target, command).encode("utf-8", "replace"))
    print(written.counts(results), file=sys.stderr if args.json else sys.stdout, flush=True)
    if any(written.is_failure(result, args.strict) for result in results):
        return FINDINGS
    return ENVIRONMENT if lost else 0
