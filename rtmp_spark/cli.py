"""The `rtmp-spark` command: finds the subcommand, runs it, and turns what went wrong into one sentence.

It knows the subcommands only by name: each lives in `rtmp_spark.commands.<name>` and is imported when it is chosen,
so that `rtmp-spark --help` costs nothing. It does no work of its own and never shows a traceback unasked.

Exit codes: 0 fine; 1 findings (`check` only); 2 usage; 3 environment; 4 a file failed; 5 no RTMP in what was given.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, NoReturn

from rtmp_spark import __version__
from rtmp_spark.codec.errors import CaptureError, RtmpSparkError, UserError
from rtmp_spark.commands.harmless import harmless

USAGE, ENVIRONMENT, FILE_FAILED = 2, 3, 4
INTERRUPTED = 128 + signal.SIGINT
PIPE_CLOSED = 128 + signal.SIGPIPE
PATH_ERRORS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
DISK_ERRORS = frozenset({errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.EIO})

# name -> (one line of help, examples); in the order in which people meet them.
COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "inspect": (
        "connections, messages and findings of captures, in the terminal, without Spark",
        (
            "rtmp-spark inspect trace.pcap",
            "rtmp-spark inspect trace.pcap --table commands",
            "rtmp-spark inspect part-*.pcap --table messages --json | jq .type_name",
        ),
    ),
    "ingest": (
        "captures into the Delta tables of a lake, with Spark",
        (
            "rtmp-spark ingest captures/ --lake lake",
            "rtmp-spark ingest 's3://archive/2026/*.pcap.gz' --lake s3a://lake/rtmp --sensor edge-1",
        ),
    ),
    "check": (
        "findings with their clauses, as a gate for CI; or the golden vectors",
        (
            "rtmp-spark check trace.pcap --side server --fail-on error",
            "rtmp-spark check --vectors",
        ),
    ),
    "report": (
        "one self-contained HTML page about captures or a lake",
        ("rtmp-spark report trace.pcap -o report.html",),
    ),
    "extract": (
        "a playable FLV of what was published or played",
        ("rtmp-spark extract trace.pcap -o stream.flv", "rtmp-spark extract trace.pcap -o streams/"),
    ),
    "slice": (
        "the packets of one connection, for Wireshark, with the findings as comments",
        ("rtmp-spark slice captures/*.pcap --uid CXXXXXXXXXXXXXXXXXXXX -o one.pcapng",),
    ),
    "relay": (
        "a small RTMP relay for test traffic",
        ("rtmp-spark relay --listen 127.0.0.1:1935 --record recordings --tap session.pcap",),
    ),
    "publish": (
        "publish an FLV file or made-up media, keeping or breaking the rules",
        (
            "rtmp-spark publish synthetic:seconds=5 rtmp://127.0.0.1/live/test",
            "rtmp-spark publish movie.flv rtmp://127.0.0.1/live/test --fault CHUNK_SIZE_NOT_APPLIED",
        ),
    ),
    "play": (
        "play a stream into an FLV file",
        ("rtmp-spark play rtmp://127.0.0.1/live/test -o out.flv --duration 10",),
    ),
    "tap": (
        "a proxy that records what passes as a pcap, without root",
        ("rtmp-spark tap --listen 127.0.0.1:1936 --to 127.0.0.1:1935 -o session.pcap",),
    ),
    "demo": ("relay, a faulty stream, tables, findings and a report in one go", ("rtmp-spark demo",)),
    "doctor": ("what this machine has and lacks, with the remedies", ("rtmp-spark doctor",)),
    "explain": ("what a finding means and what to do about it", ("rtmp-spark explain CHUNK_SIZE_NOT_APPLIED",)),
    "completion": (
        "a script that completes commands, options and rule ids in bash or zsh",
        ("rtmp-spark completion bash > ~/.local/share/bash-completion/completions/rtmp-spark",),
    ),
}


def installed_commands() -> list[str]:
    """Those of COMMANDS whose module is there."""
    return [name for name in COMMANDS if find_spec(f"rtmp_spark.commands.{name}") is not None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in argv
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy multiplies nothing here: one idle thread a core less
    _say_whatever_comes("--json" in argv)
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse has said everything already
        return stop.code if isinstance(stop.code, int) else USAGE
    except KeyboardInterrupt as stop:
        if debug:
            traceback.print_exc()
        if sys.stderr.isatty():
            print(file=sys.stderr)  # ^C stands there, maybe behind a line of progress
        return _complain(str(stop) or "Stopped.", "", INTERRUPTED)
    except BrokenPipeError:
        # `rtmp-spark ... | head`: nobody listens any more, and Python must not complain about that at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _complain(*_explanation(error))


def _say_whatever_comes(as_json: bool) -> None:
    """No text from a capture ends a command because the terminal has no letter for it; JSON is UTF-8 everywhere."""
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
            f"There is no command {argv[0]}.", _nearest(argv[0], COMMANDS, "`rtmp-spark --help` lists them.")
        )
    parser = _parser(chosen)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        raise _wrong_word(chosen, args.command, unknown[0])
    if args.command is None:
        parser.print_help()
        return USAGE
    _set_colour(args)
    return int(args.run(args))


def _wrong_word(first: str | None, command: str | None, word: str) -> UserError:
    """What to say about a word of the command line that nothing can be done with; `first` is a command in front."""
    if command is None:
        known = _nearest(word, ("--help", "--version"), "`rtmp-spark --help` lists the commands.")
        return UserError(f"rtmp-spark has no option {word}.", known)
    if first is None:
        return UserError(f"{word} stands before the command.", "Write it behind: rtmp-spark COMMAND [OPTION ...].")
    if not word.startswith("-"):
        return UserError(
            f"{command} has no place for {word}.", "Name files one after the other, options before or behind."
        )
    options = [text for action in command_parser(command)._actions for text in action.option_strings]
    lists = f"`rtmp-spark {command} --help` lists the options."
    return UserError(f"{command} has no option {word}.", _nearest(word.partition("=")[0], options, lists))


def _nearest(word: str, known: Iterable[str], otherwise: str) -> str:
    near = get_close_matches(word, list(known), 1, 0.7)
    return f"Did you mean {near[0]}?" if near else otherwise


class _Parser(argparse.ArgumentParser):
    """What is wrong with a command line is told as everything else: one sentence and its remedy, not all options."""

    def error(self, message: str) -> NoReturn:
        raise _wrong_value(self.prog, message)


def _wrong_value(prog: str, message: str) -> UserError:
    """argparse's own words, such as `argument --port: expected one argument`, as a sentence and a remedy."""
    shows = f"`{prog} --help` shows how."
    needed = re.fullmatch(r"the following arguments are required: (.+)", message)
    if needed:
        return UserError(f"{prog.rpartition(' ')[2]} needs {needed[1].replace('/--', ' or --')}.", shows)
    about, word, rest = message.removeprefix("argument ").partition(": ")
    if not word:
        return UserError(f"{message}.", shows)
    chosen = re.fullmatch(r"invalid choice: (.+?) \(choose from (.+)\)", rest)
    if chosen:
        known = chosen[2].replace("'", "")
        return UserError(f"{about} cannot be {chosen[1]}.", f"Choose one of {known}.")
    if rest == "expected one argument":
        return UserError(f"{about} stands without its value.", shows)
    sentence, told, remedy = rest.rpartition("; ")
    if not told or not remedy:
        return UserError(f"{about}: {rest}.", shows)
    return UserError(f"{about}: {sentence}.", f"{remedy[0].upper()}{remedy[1:]}.")


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    """The whole parser, with the arguments of the chosen command only."""
    parser = _Parser(
        prog="rtmp-spark",
        description="Decode RTMP out of packet captures and say what went wrong.",
        epilog="`rtmp-spark COMMAND --help` shows the options of a command and examples.",
    )
    parser.add_argument("--version", action="version", version=f"rtmp-spark {__version__}")
    parser.set_defaults(command=None)
    subparsers = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name in installed_commands():
        sub = subparsers.add_parser(name, help=COMMANDS[name][0], **_texts(name))
        sub.set_defaults(command=name)
        if name == chosen:
            _add_arguments(sub, name)
    return parser


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one command, for what describes the command line: documents, completion."""
    parser = argparse.ArgumentParser(prog=f"rtmp-spark {name}", **_texts(name))
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
    parser.add_argument("--quiet", action="store_true", help="no progress: only results, warnings and errors")
    parser.add_argument("--debug", action="store_true", help="show the traceback when something goes wrong")
    parser.add_argument("--no-color", action="store_true", help="no colours; NO_COLOR=1 does the same")


def _set_colour(args: argparse.Namespace) -> None:
    if args.no_color:
        os.environ["NO_COLOR"] = "1"  # what rich and the programs that we start look at


def _explanation(error: Exception) -> tuple[str, str, int]:
    """What to tell a person about an error: the sentence, the remedy, the exit code."""
    if isinstance(error, UserError):
        return error.text, error.remedy, error.exit_code
    if isinstance(error, CaptureError):
        return error.detail, error.hint, FILE_FAILED
    if isinstance(error, PATH_ERRORS) and error.filename:
        return f"{error.filename}: {(error.strerror or 'cannot be read').lower()}.", "Check the path.", USAGE
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        what = error.filename or "What was to be written"
        return f"{what}: {os.strerror(error.errno).lower()}.", "Make room, or write to another place.", ENVIRONMENT
    if isinstance(error, ModuleNotFoundError):
        return f"The Python package {error.name} is missing.", "`rtmp-spark doctor` says what to install.", ENVIRONMENT
    if isinstance(error, RtmpSparkError):
        return str(error), "", FILE_FAILED
    text = f"Something unforeseen went wrong ({type(error).__name__}: {error})."
    return text, "Run it again with --debug and report what it shows.", ENVIRONMENT


def _complain(text: str, remedy: str, exit_code: int) -> int:
    between = "" if text.endswith("\n") else " "  # a list ends its line itself
    for line in f"rtmp-spark: {text}{between}{remedy}".rstrip().split("\n"):
        print(harmless(line), file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
