"""The `rtmp-spark` command: finds the subcommand, runs it, and prints errors as one sentence with a remedy.

Each subcommand is a module `rtmp_spark.commands.<name>` that is imported only when it is used, so `rtmp-spark --help`
is fast. A traceback is shown only with `--debug`. commands/exit_codes.py lists the exit codes.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import io
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Any

from rtmp_spark import __version__
from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.exit_codes import INTERRUPTED, PIPE_CLOSED, USAGE
from rtmp_spark.commands.options.command_parser import CommandParser
from rtmp_spark.commands.output.error_message import explain_error, print_error

# name -> (summary, examples), in the order of `rtmp-spark --help`.
COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "inspect": (
        "show the verdicts, connections and findings of captures, without Spark",
        (
            "rtmp-spark inspect trace.pcap",
            "rtmp-spark inspect captures/ -v",
            "rtmp-spark inspect trace.pcap --table commands",
            "rtmp-spark inspect client=near-client.pcap server=near-server.pcap --table paths",
            "rtmp-spark inspect part-*.pcap --table messages --json | jq .type_name",
        ),
    ),
    "ingest": (
        "decode captures into the Delta tables of a lake, with Spark",
        (
            "rtmp-spark ingest captures/ --lake lake",
            "rtmp-spark ingest 's3://archive/2026/*.pcap.gz' --lake s3a://lake/rtmp --sensor edge-1",
        ),
    ),
    "check": (
        "check captures against the rules as a CI gate, or run the golden vectors",
        (
            "rtmp-spark check trace.pcap --side server --fail-on error",
            "rtmp-spark check --vectors",
        ),
    ),
    "report": (
        "write a self-contained HTML report about captures or a lake",
        ("rtmp-spark report trace.pcap -o report.html",),
    ),
    "sql": (
        "query the tables of a lake or of captures with SQL, without Spark",
        (
            'rtmp-spark sql "SELECT rule_id, count(*) FROM findings GROUP BY ALL" --lake lake',
            "rtmp-spark sql \"SELECT * FROM sessions WHERE verdict <> 'ok'\" trace.pcap --csv",
        ),
    ),
    "extract": (
        "write published or played streams as playable FLV or MP4 files",
        (
            "rtmp-spark extract trace.pcap -o stream.flv",
            "rtmp-spark extract trace.pcap -o stream.mp4",
            "rtmp-spark extract trace.pcap -o - | ffprobe -",
            "rtmp-spark extract trace.pcap -o streams/",
            "rtmp-spark extract --lake lake --uid CXXXXXXXXXXXXXXXXXXXX -o stream.flv",
        ),
    ),
    "slice": (
        "copy the packets of one connection for Wireshark, with findings as comments",
        (
            "rtmp-spark slice captures/*.pcap --uid CXXXXXXXXXXXXXXXXXXXX -o one.pcapng",
            "rtmp-spark slice --lake lake --uid CXXXXXXXXXXXXXXXXXXXX -o one.pcapng",
        ),
    ),
    "relay": (
        "run a small RTMP relay for test traffic",
        (
            "rtmp-spark relay --listen 127.0.0.1:1935 --record recordings --tap session.pcap",
            "rtmp-spark relay --live --validate",
        ),
    ),
    "publish": (
        "publish an FLV file or synthetic media, optionally breaking a rule",
        (
            "rtmp-spark publish synthetic:seconds=5 rtmp://127.0.0.1/live/test",
            "rtmp-spark publish movie.flv rtmp://127.0.0.1/live/test --fault CHUNK_SIZE_NOT_APPLIED",
        ),
    ),
    "play": (
        "play a stream into an FLV file or to standard output",
        (
            "rtmp-spark play rtmp://127.0.0.1/live/test -o out.flv --duration 10",
            "rtmp-spark play rtmp://127.0.0.1/live/test -o - --duration 10 | ffprobe -",
        ),
    ),
    "tap": (
        "run a proxy that writes the traffic to a pcap, without root",
        (
            "rtmp-spark tap --listen 127.0.0.1:1936 --to 127.0.0.1:1935 -o session.pcap",
            "rtmp-spark tap --to 127.0.0.1:1935 -o session.pcap --live --validate",
        ),
    ),
    "probe": (
        "run the conformance suite against an RTMP server or client",
        (
            "rtmp-spark probe rtmp://127.0.0.1/live",
            "rtmp-spark probe rtmp://127.0.0.1/live --junit probe.xml --captures packets",
            "rtmp-spark probe --listen 127.0.0.1:1935",
        ),
    ),
    "demo": ("run everything once: a relay, a faulty stream, tables, findings and a report", ("rtmp-spark demo",)),
    "doctor": ("check the requirements on this machine", ("rtmp-spark doctor",)),
    "explain": ("explain a rule and what to do about it", ("rtmp-spark explain CHUNK_SIZE_NOT_APPLIED",)),
    "completion": (
        "print a completion script for bash or zsh",
        ("rtmp-spark completion bash > ~/.local/share/bash-completion/completions/rtmp-spark",),
    ),
}


_OBJECTS_BETWEEN_COLLECTIONS = 200_000  # the default, 700, searches all modules for cycles many times at the start


def installed_commands() -> list[str]:
    """The commands whose module is installed."""
    return list(filter(_is_installed, COMMANDS))


def _is_installed(name: str) -> bool:
    return find_spec(f"rtmp_spark.commands.{name}") is not None


def _skip_last_collection() -> None:
    """A process that ends need not search all its objects for cycles. DuckDB reports its objects as leaked then."""
    if "duckdb" not in sys.modules:
        gc.freeze()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in argv
    as_json = argv[:1] == ["ingest"] and "--json" in argv  # a scheduler gets one line, whatever happens
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(_skip_last_collection)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy does no linear algebra here: do not start its threads
    _set_output_encoding("--json" in argv)
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # --help and --version
        return stop.code if isinstance(stop.code, int) else USAGE
    except KeyboardInterrupt as stop:
        if debug:
            _print_traceback()
        if sys.stderr.isatty():
            print(file=sys.stderr)  # ends the line with ^C and the progress
        return print_error(str(stop) or "Interrupted.", "", INTERRUPTED, as_json=as_json)
    except BrokenPipeError:
        # `rtmp-spark ... | head` closed the pipe: prevent another error when Python flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        if debug:
            _print_traceback()
        return print_error(*explain_error(error), as_json=as_json)


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()


def _set_output_encoding(as_json: bool) -> None:
    """Let every character be printed, with replacements if the terminal cannot show it. JSON is always UTF-8."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if stream.encoding.lower().replace("-", "") == "utf8":
            stream.reconfigure(errors="backslashreplace")  # lone surrogates, as in file names that are not UTF-8
        elif as_json and stream is sys.stdout:
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        else:
            stream.reconfigure(errors="replace")


def _run(argv: list[str]) -> int:
    chosen = argv[0] if argv and argv[0] in COMMANDS else None
    if chosen is None and argv and not argv[0].startswith("-"):
        raise UserError(
            f"Unknown command {argv[0]}.", _nearest(argv[0], COMMANDS, "`rtmp-spark --help` lists the commands.")
        )
    if chosen is not None and _is_installed(chosen):
        parser = command_parser(chosen)
        parser.set_defaults(command=chosen)
        args, unknown = parser.parse_known_args(argv[1:])
    else:
        parser = _parser_of_all()
        args, unknown = parser.parse_known_args(argv)
    if unknown:
        raise _unknown_argument(chosen, args.command, unknown[0])
    if args.command is None:
        parser.print_help()
        return USAGE
    _set_colour(args)
    return int(args.run(args))


def _unknown_argument(first: str | None, command: str | None, word: str) -> UserError:
    """The error for an argument that the parser does not know. `first` is the command, if the line begins with one."""
    if command is None:
        known = _nearest(word, ("--help", "--version"), "`rtmp-spark --help` lists the commands.")
        return UserError(f"Unknown option {word}.", known)
    if first is None:
        return UserError(
            f"{word} precedes the command.", "Options must follow the command: rtmp-spark COMMAND [OPTION ...]."
        )
    if not word.startswith("-"):
        return UserError(f"Unexpected argument {word}.", f"See `rtmp-spark {command} --help`.")
    options = [text for action in command_parser(command).arguments for text in action.option_strings]
    see_help = f"`rtmp-spark {command} --help` lists the options."
    return UserError(f"{command} has no option {word}.", _nearest(word.partition("=")[0], options, see_help))


def _nearest(word: str, known: Iterable[str], otherwise: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), 1, 0.7)
    return f"Did you mean {near[0]}?" if near else otherwise


def _parser_of_all() -> CommandParser:
    """The parser of a line that does not begin with a command: it knows the commands, but not their arguments."""
    parser = CommandParser(
        prog="rtmp-spark",
        description="Find out why an RTMP stream broke, from a packet capture.",
        epilog="`rtmp-spark COMMAND --help` shows the options of a command and examples.",
    )
    parser.add_argument("--version", action="version", version=f"rtmp-spark {__version__}")
    parser.set_defaults(command=None)
    subparsers = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name in installed_commands():
        sub = subparsers.add_parser(name, help=COMMANDS[name][0], **_texts(name))
        sub.set_defaults(command=name)
    return parser


def command_parser(name: str) -> CommandParser:
    """The parser of one command, for documentation and completion."""
    parser = CommandParser(prog=f"rtmp-spark {name}", **_texts(name))
    _add_arguments(parser, name)
    return parser


def _texts(name: str) -> dict[str, Any]:
    summary, examples = COMMANDS[name]
    return {
        "description": f"{summary[0].upper()}{summary[1:]}.",
        "epilog": "\n  ".join(["examples:", *examples]),
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def _add_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    module = importlib.import_module(f"rtmp_spark.commands.{name}")
    module.add_arguments(parser)
    parser.set_defaults(run=module.run)
    parser.add_argument("--quiet", action="store_true", help="no progress output; only results, warnings and errors")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument("--no-color", action="store_true", help="no colours, like NO_COLOR=1")


def _set_colour(args: argparse.Namespace) -> None:
    if args.no_color:
        os.environ["NO_COLOR"] = "1"  # read by rich and by child processes


if __name__ == "__main__":
    sys.exit(main())
