"""CONTRIBUTING.md: every file that a recipe names exists and contains the identifiers that the step names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
# A step is "1. `path`: `identifier`, `identifier`. What to do."; a path that ends with / is a directory.
_STEP = re.compile(r"^\d+\. `(?P<path>[^`]+)`: (?P<identifiers>`[^`]+`(?:, `[^`]+`)*)\. ")
WANTED = (
    "A rule", "A threshold of a rule", "A fault", "A message type or control event", "A FourCC", "A link type",
    "A column of `connections`", "A column of `messages`", "A measure of a stream (a column of `streams`)", "A view",
    "A limit", "A command", "An ingest option", "A TLS cipher", "A report panel", "A number on the report page",
    "The progress display", "Redaction of a field", "A software fingerprint",
    "A case of the conformance suite", "The relay", "The GOP cache",
    "The file format of the lake", "A golden vector", "A sample capture", "A fuzz target", "A compiled module",
    "A document",
)  # fmt: skip


class Step(NamedTuple):
    recipe: str
    path: str
    identifiers: tuple[str, ...]


def recipes(text: str) -> dict[str, list[str]]:
    """Return the numbered lines of each `###` section, continuation lines joined."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        found[title] = [line for line in body.replace("\n   ", " ").splitlines() if line]
    return found


def steps(text: str) -> Iterator[Step]:
    """Yield the steps of all recipes. Raises AssertionError for a line that is not a step."""
    for title, lines in recipes(text).items():
        for line in lines:
            match = _STEP.match(line)
            assert match, f"{title}: not a step: {line}"
            yield Step(title, match["path"], tuple(re.findall(r"`([^`]+)`", match["identifiers"])))


def problems(step: Step, root: Path = ROOT) -> list[str]:
    """Return what is wrong with a step: a missing file, or identifiers that it does not contain."""
    path = root / step.path
    if step.path.endswith("/"):
        files = [file for file in path.rglob("*") if file.suffix in (".py", ".json", ".tsv", ".md")]
    else:
        files = [path] if path.is_file() else []
    if not files:
        return [f"{step.recipe}: {step.path} does not exist"]
    text = "\n".join(f"{file.name}\n{file.read_text(encoding='utf-8')}" for file in files)
    return [f"{step.recipe}: {step.path} does not contain {name}" for name in step.identifiers if name not in text]


PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_every_recipe_is_there() -> None:
    assert tuple(recipes(PAGE)) == WANTED


@pytest.mark.parametrize("recipe", WANTED)
def test_the_files_of_a_recipe_contain_what_it_names(recipe: str) -> None:
    own = [step for step in steps(PAGE) if step.recipe == recipe]
    assert own
    assert [problem for step in own for problem in problems(step)] == []


def test_other_files_in_the_text_exist() -> None:
    text = PAGE.partition("## How to add something")[0]
    named = re.findall(r"`((?:rtmp_spark|server|tests|docs|bench|sample_pcaps)/[^`*]*)`", text)
    assert len(named) >= 5
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1. `rtmp_spark/nowhere.py`: `Limits`. Do it.", "rtmp_spark/nowhere.py does not exist"),
        ("1. `rtmp_spark/cli.py`: `NoSuchName`. Do it.", "rtmp_spark/cli.py does not contain NoSuchName"),
        ("1. `rtmp_spark/codec/nowhere/`: `Limits`. Do it.", "rtmp_spark/codec/nowhere/ does not exist"),
    ],
)
def test_a_wrong_step_is_found(line: str, expected: str) -> None:
    (step,) = steps(f"### A thing\n\n{line}\n")
    assert problems(step) == [f"A thing: {expected}"]


def test_a_line_that_names_no_file_is_found() -> None:
    with pytest.raises(AssertionError, match="not a step"):
        list(steps("### A thing\n\n1. Think about it.\n"))
