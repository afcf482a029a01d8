"""Generates the pages of docs/ that are derived from the program: `python docs/generate.py` writes them.

tables.md comes from the schema and the views, cli.md from the argument parsers, findings.md from the catalogue of
rules, conformance.md from stored results of `rtmp-spark probe`, api.md from the docstrings of the public names and from
examples/. A test fails if a page differs from what this module generates.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import conformance_page
import pyarrow as pa

from rtmp_spark import cli
from rtmp_spark.forensics.catalogue import rules
from rtmp_spark.schema import TABLES, Table
from rtmp_spark.views import VIEWS

DOCS = Path(__file__).parent

TABLES_HEAD = """# Tables

Generated from `rtmp_spark/schema/` and `rtmp_spark/views.py` by `python docs/generate.py`; do not edit.

A lake is a directory with one Delta table per name: `<lake>/<table>`. Without Spark,
`rtmp-spark inspect FILE --table NAME --json` prints the same rows.

- `uid` identifies a TCP connection. It does not depend on the files, splits and order in which the input was read.
- `(uid, direction, msg_no)` identifies a message; `frame*` columns are packet numbers as in Wireshark.
- `direction` is `c2s` (client to server) or `s2c`; columns per direction end in `_c2s` and `_s2c`.
- Columns are grouped by the question that they answer. The tables have them in the order of `rtmp_spark/schema/`.
- Times are UTC with microseconds. Stream keys, tokens and passwords are replaced by a keyed hash unless the option
  `--keep-secrets` is given.
- Read a lake with `rtmp_spark.spark.Lake`, which omits the rows of ingests that did not commit. Other Delta readers see
  such rows between a crash and the next ingest.
"""
CLI_HEAD = """# Command line

Generated from the parsers by `python docs/generate.py`; do not edit. Every command has `--help` with examples, and
`rtmp-spark completion bash` (or `zsh`) prints a script that completes commands, options and rule ids.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | `check`: findings at or above `--fail-on`, or failed vectors; `probe`: a MUST that fails |
| 2 | wrong usage, or a path, uid or stream that does not exist |
| 3 | the environment lacks something; `rtmp-spark doctor` says what |
| 4 | a capture file could not be read |
| 5 | no RTMP found |
| 130 | interrupted with Ctrl-C |

An error is one sentence and its remedy, on standard error.
"""


API_HEAD = """# Python API

Generated from docstrings by `python docs/generate.py`; do not edit. A test runs the examples.

The names on this page are public: `__all__` of the three packages lists them. They follow semantic versioning: a
release that removes one of them, or changes what a call of it means, increases the first number of the version (before
1.0 the second), and the changelog names it. Columns of tables, rule ids, exit codes and SQL functions are under the
same promise. New names, columns and options may appear in any release. Everything else may change at any time.
"""
API = ("spark", "lake", "codec")


def api_page() -> str:
    parts = [API_HEAD]
    for package in API:
        module = importlib.import_module(f"rtmp_spark.{package}")
        example = (DOCS / "examples" / f"{package}.py").read_text(encoding="utf-8")
        parts += [f"## rtmp_spark.{package}\n", f"{_first_paragraph(module)}\n"]
        parts += [entry for name in sorted(module.__all__, key=str.lower) for entry in _api_entry(name, module)]
        parts += ["### Example\n", f"```python\n{example.rstrip()}\n```\n"]
    return "\n".join(parts)


def _api_entry(name: str, module: ModuleType) -> Iterator[str]:
    value = getattr(module, name)
    if isinstance(value, ModuleType):
        yield f"### {name}\n\nThe module `{value.__name__}`. {_first_paragraph(value)}\n"
        return
    yield f"### {name}\n"
    yield f"```text\n{name}{_signature(value)}\n```\n"
    yield f"{inspect.getdoc(value) or ''}\n"
    if inspect.isclass(value):
        methods = [(n, m) for n, m in vars(value).items() if not n.startswith("_") and _is_documented(m)]
        rows = [f"- `{n}{_signature(_function(m))}`: {_first_sentence(m)}" for n, m in methods]
        if rows:
            yield "\n".join(rows) + "\n"


def _is_documented(member: object) -> bool:
    function = _function(member)
    return inspect.isfunction(function) and bool(function.__doc__)


def _function(member: object) -> Any:
    return member.__func__ if isinstance(member, classmethod) else member


def _signature(value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, (Enum, Exception)):
        return ""
    found = inspect.signature(value)
    named = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    plain = re.sub(r"ForwardRef\(('[^']*')\)", r"\1", str(found.replace(parameters=named)))  # of a NamedTuple
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", plain)  # annotations are strings


def _first_paragraph(value: object) -> str:
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


def _first_sentence(member: object) -> str:
    return _first_paragraph(_function(member))


def tables_page() -> str:
    names = ", ".join(f"[{name}](#{name})" for name in (*TABLES, "views"))
    tables = (line for table in TABLES.values() for line in _table(table))
    return "\n".join([TABLES_HEAD, f"{names}\n", *tables, *_views()])


def _views() -> Iterator[str]:
    yield "## views\n"
    yield (
        "SQL views for common questions. `Lake(spark, path).create_views()` creates them, and one view per table, for\n"
        "`spark.sql`. They show the lake at the time of that call. `client`, `client_port`, `server` and\n"
        "`server_port` are `orig_h`, `orig_p`, `resp_h` and `resp_p` of `connections`; the views have both.\n"
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
    columns = {column.name: column for column in table.columns}
    for question, names in table.by_question.items():
        yield f"| **{question}** | | |"
        for column in (columns[name] for name in names.split()):
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
    shown = (action for action in parser.arguments if action.help != argparse.SUPPRESS)
    actions = [action for action in shown if "--help" not in action.option_strings]
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
    "findings.md": rules.document,
    "api.md": api_page,
    "conformance.md": lambda: conformance_page.document(DOCS / "conformance"),
}


if __name__ == "__main__":
    for page, make in PAGES.items():
        (DOCS / page).write_text(make(), encoding="utf-8")
        print(f"docs/{page}")
