"""The documents are correct: generated pages are current, commands parse, code blocks run, links and names exist."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
import subprocess
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from kit.doc_blocks import ROOT, Block, blocks, commands, free_ports, prepare, run
from test_imports import ORDER

from rtmp_relay.faults.fault_catalogue import CATALOGUE
from rtmp_spark import cli
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.forensics.catalogue.rules import CATALOGUE as RULES
from rtmp_spark.schema import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
RUN = [
    ROOT / "README.md",
    *(DOCS / f"{name}.md" for name in ("cookbook", "troubleshooting", "obs", "ffmpeg", "gstreamer")),
]  # tests/test_questions.py runs questions.md and compares the outputs
RULE_LAYERS = "AMF|CAPTURE|CHUNK|CMD|CTRL|FLOW|HS|MEDIA|MSG|SESSION|TCP|TIME"
NEEDS_SPARK = re.compile(r"--lake|rtmp_spark\.spark|open_lake\(")


def generator() -> ModuleType:
    return script("generate")


def script(name: str) -> ModuleType:
    """A Python file of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["tables.md", "cli.md", "findings.md", "conformance.md", "api.md"])
def test_generated_page_is_current(page: str) -> None:
    if page == "api.md":
        pytest.importorskip("pyspark", reason="pyspark is not installed")
    assert (DOCS / page).read_text(encoding="utf-8") == generator().PAGES[page](), "run: python docs/generate.py"


def test_numbers_in_readme_and_comparison_are_current() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"[{len(ViolationCode)} rules]" in readme
    assert f"[{len(TABLES)} Delta tables]" in readme
    assert f"lists {len(CATALOGUE)} faults" in readme
    comparison = (DOCS / "compare.md").read_text(encoding="utf-8")
    assert f"| {len(ViolationCode)} rules with" in comparison and f"| {len(TABLES)} tables," in comparison


def test_demo_output_in_readme_has_current_texts() -> None:
    (shown,) = (block.code for block in blocks(ROOT / "README.md") if block.language == "text")
    shown = " ".join(shown.split())
    planted = ViolationCode.MEDIA_ANNEXB
    annexb, slow = RULES[planted], RULES[ViolationCode.TIME_SLOW]
    for text in (CATALOGUE[planted].what, f": {annexb.title}.", f"-> {annexb.remedy}", f": {slow.title}."):
        assert text in shown


def test_generated_pages_list_all_columns_commands_and_rules() -> None:
    tables, line = (DOCS / "tables.md").read_text(), (DOCS / "cli.md").read_text()
    assert all(f"| `{column.name}` |" in tables for table in TABLES.values() for column in table.columns)
    assert all(f"\n## {name}\n" in line for name in cli.installed_commands())
    assert all(f"### {code.value}\n" in (DOCS / "findings.md").read_text() for code in ViolationCode)


def test_the_glossary_defines_each_term_once() -> None:
    rows = re.findall(r"^\| (.+?) \| ", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    terms = Counter(term for row in rows if row != "term" for term in row.split(", "))
    assert len(terms) > 80 and terms.most_common(1)[0][1] == 1, terms.most_common(1)


def test_the_page_of_tables_groups_every_column_under_one_question() -> None:
    for table in TABLES.values():
        grouped = [name for names in table.by_question.values() for name in names.split()]
        assert sorted(grouped) == sorted(table.column_names), table.name
    page = (DOCS / "tables.md").read_text(encoding="utf-8")
    assert "| **Who?** | | |\n| `orig_h` |" in page and "| **How did it end?** | | |\n| `closed_by` |" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_code_blocks_parse(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
def test_commands_and_options_in_the_text_exist(page: Path) -> None:
    for words in re.findall(r"`rtmp-spark ([a-z][^`]*)`", page.read_text(encoding="utf-8")):
        name, *rest = words.split()
        assert name in cli.installed_commands(), words
        known = cli.command_parser(name)._option_string_actions
        assert {word for word in rest if re.fullmatch(r"--[a-z-]+", word)} - {"--help"} <= set(known), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_link_targets_and_fault_codes_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"
    for code in re.findall(r"--fault ([A-Z0-9_]{6,})", text):
        assert code in ViolationCode.__members__
    for code in re.findall(rf"`((?:{RULE_LAYERS})_[A-Z0-9_]+)`", text):
        assert code in ViolationCode.__members__ or any(rule.startswith(code) for rule in ViolationCode.__members__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_have_a_heading(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = {anchor(found) for found in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= headings


def anchor(heading: str) -> str:
    """The fragment that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


TREE = r"(?:analysis|capture|codec|commands|conversation|forensics|ingest|report|spark|vectors)"


def named_objects(text: str) -> list[str]:
    """Dotted names of modules, classes and functions in backticks, relative to rtmp_spark."""
    return re.findall(rf"`({TREE}(?:\.\w+)+)`", text)


def resolve(name: str) -> object:
    """The module, class or function of this dotted name relative to rtmp_spark."""
    parts = name.split(".")
    found: object = importlib.import_module(f"rtmp_spark.{parts[0]}")
    for number, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            found = importlib.import_module(".".join(["rtmp_spark", *parts[:number]]))
        else:
            found = getattr(found, part)
    return found


def test_names_in_architecture_exist() -> None:
    pytest.importorskip("pyspark")
    columns = {f"{table.name}.{column.name}" for table in TABLES.values() for column in table.columns}
    names = set(named_objects((DOCS / "architecture.md").read_text(encoding="utf-8"))) - columns
    assert len(names) > 25
    missing = []
    for name in sorted(names):
        try:
            resolve(name)
        except (ImportError, AttributeError):
            missing.append(name)
    assert missing == []


def test_resolving_an_unknown_name_fails() -> None:
    assert named_objects("`codec.decoder.RtmpDecoder.receive_dat`") == ["codec.decoder.RtmpDecoder.receive_dat"]
    for name in ("codec.decoder.RtmpDecoder.receive_dat", "codec.decodr.RtmpDecoder", "codec.decoder.RtmpDecodr"):
        with pytest.raises((ImportError, AttributeError)):
            resolve(name)


def test_architecture_lists_every_package_in_layer_order() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    existing = {path.parent.name for path in (ROOT / "rtmp_spark").glob("*/__init__.py")}
    existing |= {path.stem for path in (ROOT / "rtmp_spark").glob("*.py")} - {"__init__"} | {"rtmp_relay"}
    order = dict.fromkeys(package.name.removeprefix("rtmp_spark.").split(".")[0] for package in ORDER)
    assert re.findall(r"^\| `(\w+)`", text, re.MULTILINE) == [name for name in order if name in existing]
    picture = next(block.code for block in blocks(DOCS / "architecture.md") if block.language == "text")
    assert {name for name in existing if (ROOT / "rtmp_spark" / name).is_dir()} <= set(re.findall(r"\w+", picture))


def test_make_targets_in_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"(?:`|^)make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= targets, page.name
    help_text = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in help_text.splitlines()} == targets


def blocks_to_run(page: Path) -> list[Block]:
    """The shell and Python blocks of a page that are not marked `not run`."""
    return [block for block in blocks(page) if block.language in ("sh", "python") and block.not_run is None]


def test_blocks_that_are_not_run_state_a_reason() -> None:
    reasons = [block.not_run for page in RUN for block in blocks(page) if block.language in ("sh", "python")]
    assert reasons.count(None) >= 10
    assert all(reason is None or len(reason.split()) >= 2 for reason in reasons)


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_code_blocks_run_in_order(page: Path, tmp_path: Path) -> None:
    prepare(tmp_path)
    ports = free_ports(2)
    for block in blocks_to_run(page):
        if not NEEDS_SPARK.search(block.code):
            run(block, tmp_path, ports)


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_spark_code_blocks_run_in_order(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ingests share one session, because starting a session takes longer than running a block."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    for block in blocks_to_run(page):
        if not NEEDS_SPARK.search(block.code):
            continue
        if block.language == "python":
            exec(compile(block.code, f"{page.name}:{block.line}", "exec"), {})
            continue
        if "rtmp-spark ingest" not in block.code:  # the other commands read a lake without Spark
            run(block, tmp_path, [])
            continue
        for line in block.code.splitlines():
            name, *arguments = shlex.split(line)
            assert name == "rtmp-spark", "a block with an ingest contains only rtmp-spark commands"
            assert cli.main(arguments) in ((0, 1) if arguments[0] == "check" else (0,)), line


def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason="the documentation site: pip install '.[docs]'")
    site = script("build_site")
    listed = {name for names in site.SECTIONS.values() for name in names} | {"index"}
    assert listed == {page.stem for page in DOCS.glob("*.md")} | {Path(name).stem for name in site.MOVED.values()}
    assert site.build(tmp_path / "site") == 0
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "troubleshooting.html" in page
    assert re.findall(r"(?:src|rel=\"stylesheet\" href)=\"https?://[^\"]+", page) == [], "it works without a network"


def test_links_of_a_page_on_the_site() -> None:
    site = script("build_site")
    text = "[a](../README.md) [b](tables.md#views) [c](../bench/lake.py) [d](https://example.com/x.md)\n"
    fenced = "```\n[a](../README.md)\n```\n"
    assert site.with_site_links(text + fenced, "docs/lake.md") == (
        "[a](index.md) [b](tables.md#views) [c] [d](https://example.com/x.md)\n" + fenced
    )
