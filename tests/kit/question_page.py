"""Parses docs/questions.md and runs its code blocks.

`python tests/kit/question_page.py` replaces the outputs on the page by the current ones.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "questions.md"
KEY = "docs"
_BLOCK = re.compile(r"^```(sh|sql|python)\n(.*?)^```\n^```text\n(.*?)^```$", re.M | re.S)


@dataclass
class Question:
    number: int
    title: str
    blocks: dict[str, tuple[str, str]] = field(default_factory=dict)  # language: source, output

    @property
    def captures(self) -> list[str]:
        """The captures that the query reads: those named in it, otherwise those of the command."""
        found = re.findall(r"sample_pcaps/[\w.*]+", self.blocks["sql"][0] or "")
        found = found or re.findall(r"sample_pcaps/[\w.*]+", self.blocks["sh"][0])
        return [str(path.relative_to(ROOT)) for pattern in found for path in sorted(ROOT.glob(pattern))]


def questions(text: str | None = None) -> list[Question]:
    text = PAGE.read_text() if text is None else text
    found = []
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        number, _, title = part.split("\n", 1)[0].partition(". ")
        blocks = {match[1]: (match[2], match[3]) for match in _BLOCK.finditer(part)}
        found.append(Question(int(number), title, blocks))
    return found


def run_command(source: str, directory: Path) -> str:
    """The output of a shell command, run in a directory with a link to sample_pcaps."""
    samples = directory / "sample_pcaps"
    if not samples.exists():
        samples.symlink_to(ROOT / "sample_pcaps")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "RTMP_SPARK_REDACT_KEY": KEY, "COLUMNS": "160", "NO_COLOR": "1"}
    command = ["bash", "-c", source]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr


def tables_of(captures: list[str]) -> dict[str, Any]:
    from rtmp_spark.report.view import read_captures
    from rtmp_spark.schema import TABLES

    with mock.patch.dict(os.environ, RTMP_SPARK_REDACT_KEY=KEY):
        recording = read_captures(*[ROOT / path for path in captures])
        return {name: recording.table(name) for name in TABLES}


def run_query(source: str, captures: list[str]) -> tuple[list[str], list[tuple[Any, ...]]]:
    import duckdb

    with duckdb.connect() as connection:
        for name, table in tables_of(captures).items():
            connection.register(name, table)
        found = connection.execute(source)
        return [column[0] for column in found.description], found.fetchall()


def as_table(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    shown = [names, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(names))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in shown]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def run_cell(source: str, directory: Path) -> str:
    from rtmp_spark.report.view import read_captures

    output = io.StringIO()
    before = Path.cwd()
    samples = directory / "sample_pcaps"
    if not samples.exists():
        samples.symlink_to(ROOT / "sample_pcaps")
    os.chdir(directory)
    try:
        with contextlib.redirect_stdout(output), mock.patch.dict(os.environ, RTMP_SPARK_REDACT_KEY=KEY):
            exec(source, {"read_captures": read_captures})
    finally:
        os.chdir(before)
    return output.getvalue()


def run(question: Question, language: str, directory: Path) -> str:
    source = question.blocks[language][0]
    if language == "sh":
        return run_command(source, directory)
    if language == "sql":
        return as_table(*run_query(source, question.captures))
    return run_cell(source, directory)


def rewrite() -> None:
    text = PAGE.read_text()
    with tempfile.TemporaryDirectory() as directory:
        for question in questions(text):
            for language, (source, output) in question.blocks.items():
                fresh = run(question, language, Path(directory))
                assert "Unexpected error" not in fresh, f"question {question.number}: {fresh}"
                old = f"```{language}\n{source}```\n```text\n{output}```"
                assert text.count(old) == 1, old
                text = text.replace(old, f"```{language}\n{source}```\n```text\n{fresh}```")
    PAGE.write_text(text)


if __name__ == "__main__":
    rewrite()
