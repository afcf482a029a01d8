"""Documents that are true: generated pages are current, commands parse, blocks run, links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from docpages import ROOT, Block, blocks, commands, free_ports, prepare, run

from rtmp_relay.faults import CATALOGUE
from rtmp_spark import cli
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.schema import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
RUN = [ROOT / "README.md", DOCS / "cookbook.md"]  # questions.md has a test of its own, which compares the outputs
NEEDS_SPARK = re.compile(r"--lake|rtmp_spark\.spark|DeltaTable")


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["tables.md", "cli.md", "findings.md"])
def test_a_generated_page_is_current(page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == generator().PAGES[page](), "run: python docs/generate.py"


def test_the_numbers_of_the_first_page_are_true() -> None:
    first = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert f"[{len(ViolationCode)} rules]" in first
    assert f"[{len(TABLES)} tables]" in first
    assert f"lists {len(CATALOGUE)} ways to be wrong" in first


def test_generated_pages_leave_nothing_out() -> None:
    tables, line = (DOCS / "tables.md").read_text(), (DOCS / "cli.md").read_text()
    assert all(f"| `{column.name}` |" in tables for table in TABLES.values() for column in table.columns)
    assert all(f"\n## {name}\n" in line for name in cli.installed_commands())
    assert all(f"### {code.value}\n" in (DOCS / "findings.md").read_text() for code in ViolationCode)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_parses(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks(page):
        for command in commands(block.code) if block.language != "text" else ():
            if "[options]" in command or "help" in command:
                continue
            _, name, *arguments = shlex.split(command)
            try:
                cli.command_parser(name).parse_args(arguments)
            except SystemExit:
                pytest.fail(f"{page.name}: {command}: {capsys.readouterr().err}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_sentence_says_of_the_command_line_is_there(page: Path) -> None:
    for words in re.findall(r"`rtmp-spark ([a-z][^`]*)`", page.read_text(encoding="utf-8")):
        name, *rest = words.split()
        assert name in cli.installed_commands(), words
        known = cli.command_parser(name)._option_string_actions
        assert {word for word in rest if re.fullmatch(r"--[a-z-]+", word)} - {"--help"} <= set(known), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"
    for code in re.findall(r"--fault ([A-Z0-9_]{6,})", text):
        assert code in ViolationCode.__members__


def test_make_has_every_target_that_is_spoken_of() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE))
    for page in PAGES:
        spoken = set(re.findall(r"(?:`|^)make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert spoken <= targets, page.name
    help_text = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in help_text.splitlines()} == targets


def to_run(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in ("sh", "python") and block.not_run is None]


def test_what_is_not_run_says_why() -> None:
    reasons = [block.not_run for page in RUN for block in blocks(page) if block.language in ("sh", "python")]
    assert reasons.count(None) >= 10
    assert all(reason is None or len(reason.split()) >= 2 for reason in reasons)


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    prepare(tmp_path)
    ports = free_ports(2)
    for block in to_run(page):
        if not NEEDS_SPARK.search(block.code):
            run(block, tmp_path, ports)


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_the_spark_blocks_of_a_page_run_in_order(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one session: a person starts one per command, which is most of the time it takes."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    for block in to_run(page):
        if not NEEDS_SPARK.search(block.code):
            continue
        if block.language == "python":
            exec(compile(block.code, f"{page.name}:{block.line}", "exec"), {})
            continue
        for line in block.code.splitlines():
            name, *arguments = shlex.split(line)
            assert name == "rtmp-spark", "a Spark block is made of rtmp-spark commands"
            assert cli.main(arguments) in ((0, 1) if arguments[0] == "check" else (0,)), line
