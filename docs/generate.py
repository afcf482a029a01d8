"""The pages of docs/ that are made from the program: `python docs/generate.py` writes them.

tables.md from the schema and the views, cli.md from the parsers, findings.md from the catalogue. A test compares them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from rtmp_spark import cli
from rtmp_spark.forensics import catalogue
from rtmp_spark.schema import TABLES, Table
from rtmp_spark.views import VIEWS

DOCS = Path(__file__).parent

TABLES_HEAD = """# Tables

Made from `rtmp_spark/schema.py` and `rtmp_spark/views.py` by `python docs/generate.py`; do not edit.

A lake is a directory with one Delta table per name, `<lake>/<table>`. The same rows come without Spark from
`rtmp-spark inspect FILE --table NAME --json`.

- `uid` is one TCP connection, the same whatever the files, splits and order in which it was read.
- `(uid, direction, msg_no)` is one message; `frame*` are packet numbers as Wireshark counts them in that capture.
- `direction` is `c2s` (client to server) or `s2c`; columns per direction end in `_c2s` and `_s2c`.
- Times are UTC with microseconds. Stream keys, tokens and passwords are a keyed hash unless `--keep-secrets`.
- Read a lake through `rtmp_spark.spark.Lake`, which leaves out the rows of ingests that never committed; other Delta
  readers see them only between a crash and the next ingest.
"""
CLI_HEAD = """# Command line

Made from the parsers by `python docs/generate.py`; do not edit. Every command has `--help` with examples, and
`rtmp-spark completion bash` (or `zsh`) prints a script that completes commands, options and rule ids.

Exit codes: 0 fine; 1 findings at or above `--fail-on`, or vectors that fail (`check` only); 2 usage, also a path, uid
or stream that is not there; 3 the environment lacks something (`rtmp-spark doctor`); 4 a file failed; 5 no RTMP in what
was given; 130 stopped with Ctrl-C. Errors are one sentence and its remedy on standard error.
"""


def tables_page() -> str:
    names = ", ".join(f"[{name}](#{name})" for name in (*TABLES, "views"))
    tables = (line for table in TABLES.values() for line in _table(table))
    return "\n".join([TABLES_HEAD, f"{names}\n", *tables, *_views()])


def _views() -> Iterator[str]:
    yield "## views\n"
    yield (
        "SQL views for the common questions. `Lake(spark, path).create_views()` makes them and one for every table,\n"
        "for `spark.sql`; they show the lake as it is then.\n"
    )
    yield "| view | |"
    yield "|---|---|"
    for name, view in VIEWS.items():
        yield f"| `{name}` | {_cell(view.answers)} |"
    yield ""


def _table(table: Table) -> Iterator[str]:
    yield f"## {table.name}\n"
    key = f" Key: {', '.join(f'`{name}`' for name in table.key)}." if table.key else ""
    yield f"{_sentence(table.comment)}{key}\n"
    yield "| column | type | |"
    yield "|---|---|---|"
    for column in table.columns:
        kind = _type(column.type) + ("" if column.nullable else ", never null")
        yield f"| `{column.name}` | {kind} | {_cell(column.comment)} |"
    yield ""


def _type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array of {_type(kind.value_type)}"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return {"bool": "boolean", "int32": "int", "int64": "bigint"}.get(str(kind), str(kind))


def cli_page() -> str:
    parts = [CLI_HEAD]
    for name in cli.installed_commands():
        parts += [*_command(name)]
    return "\n".join(parts)


def _command(name: str) -> Iterator[str]:
    parser = cli.command_parser(name)
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    operands = [action for action in actions if not action.option_strings]
    yield f"## {name}\n"
    yield f"{parser.description}\n"
    needed = [f"{action.option_strings[-1]} {action.metavar}" for action in actions if _is_needed(action)]
    usage = ["rtmp-spark", name, *(_operand(action) for action in operands), *needed, "[options]"]
    yield "```\n" + " ".join(usage) + "\n```\n"
    yield "| option | |"
    yield "|---|---|"
    for action in [*operands, *(action for action in actions if action.option_strings)]:
        yield f"| {_name(action)} | {_cell(_help(parser, action))} |"
    yield "\nExamples:\n\n```"
    yield from cli.COMMANDS[name][1]
    yield "```\n"


def _is_needed(action: argparse.Action) -> bool:
    return bool(action.option_strings) and action.required


def _operand(action: argparse.Action) -> str:
    word = str(action.metavar or "|".join(map(str, action.choices or (action.dest,))))
    return {"?": f"[{word}]", "*": f"[{word} ...]", "+": f"{word} [{word} ...]"}.get(str(action.nargs), word)


def _name(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{_operand(action)}`"
    value = ""
    if action.nargs != 0:
        word = action.metavar or ("\\|".join(map(str, action.choices)) if action.choices else action.dest.upper())
        value = f" [{word}]" if action.nargs == "?" else f" {word}"
    return f"`{', '.join(action.option_strings)}{value}`"


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    words = [text] if text else []
    if action.choices and action.option_strings and "default" not in text and action.default is not None:
        words.append(f"default {action.default}")
    return "; ".join(words)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


PAGES: dict[str, Callable[[], str]] = {
    "tables.md": tables_page,
    "cli.md": cli_page,
    "findings.md": catalogue.document,
}


if __name__ == "__main__":
    for page, make in PAGES.items():
        (DOCS / page).write_text(make(), encoding="utf-8")
        print(f"docs/{page}")
