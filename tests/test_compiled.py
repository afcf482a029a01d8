"""The optional wheel with compiled modules: the rules of setup.py for these modules, and the tables that it writes."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import typing
import zipfile
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("setuptools", reason="setuptools is not installed")  # setup.py imports it

ROOT = Path(__file__).parent.parent
# Every table of every sample, against what pure Python wrote; connections that are saved and resumed; helper processes.
TESTS = (
    "analysis/test_baselines.py", "analysis/test_divided_recording.py", "analysis/test_early_closing.py",
    "conversation/test_session.py", "forensics/streams",
    "ingest/test_equal_tables.py::test_helper_processes_change_nothing",
    "ingest/test_equal_tables.py::test_a_tunnel_goes_on_in_the_next_ingest",
    "ingest/test_equal_tables.py::test_ingests_one_by_one[nginx_vod_rtmpdump_play.pcap]",
)  # fmt: skip


def compiled() -> list[Path]:
    """The paths of the modules that setup.py compiles, relative to the root."""
    spec = importlib.util.spec_from_file_location("setup_of_rtmp_spark", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [Path(path) for path in module.paths()]


def name_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


def has_tuple(annotation: Any) -> bool:
    kind = typing.get_origin(annotation) or annotation
    if isinstance(kind, type) and issubclass(kind, tuple):
        return True
    return any(not isinstance(inner, typing.ForwardRef) and has_tuple(inner) for inner in typing.get_args(annotation))


def test_every_compiled_module_exists() -> None:
    assert [str(path) for path in compiled() if not (ROOT / path).is_file()] == []
    assert len(set(compiled())) == len(compiled())


@pytest.mark.parametrize("path", compiled(), ids=name_of)
def test_saved_states_have_no_tuples(path: Path) -> None:
    """JSON reads a tuple back as a list, which a compiled `resume` rejects."""
    module = importlib.import_module(name_of(path))
    for found in vars(module).values():
        if not isinstance(found, type) or found.__module__ != module.__name__:
            continue
        if typing.is_typeddict(found):
            annotations = typing.get_type_hints(found)
        else:
            resume = getattr(found, "resume", None)
            annotations = {"state": typing.get_type_hints(resume).get("state")} if resume is not None else {}
        assert [name for name, annotation in annotations.items() if has_tuple(annotation)] == [], found


def test_classes_of_compiled_modules_have_no_subclasses_elsewhere() -> None:
    """Python refuses to create a subclass of a compiled class, except in a compiled module."""
    listed = set(compiled())
    wrong = []
    for path in [*ROOT.glob("rtmp_spark/**/*.py"), *ROOT.glob("server/**/*.py")]:
        if path.relative_to(ROOT) in listed:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        package = ".".join(path.relative_to(ROOT).parent.parts)
        imported = {
            alias.asname or alias.name: Path(*resolve_name("." * node.level + node.module, package).split("."))
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in imported]
                native = [base for base in bases if is_native(imported[base].with_suffix(".py"), base, listed)]
                wrong += [f"{path}: {node.name}({base})" for base in native]
    assert wrong == []


def is_native(path: Path, name: str, listed: set[Path]) -> bool:
    """Whether this name of this module is a class that mypyc compiles to a native class."""
    if path not in listed:
        return False
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return not {"NamedTuple", "TypedDict"} & {ast.unparse(base) for base in node.bases}
    return False


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the compiled wheel. It is built without optimisation, from a copy: this takes half a minute."""
    pytest.importorskip("mypyc", reason="mypyc (of mypy) is not installed")
    pytest.importorskip("setuptools", minversion="77", reason="setuptools 77 or later is not installed")
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        pytest.skip(f"no C compiler ({compiler})")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        pytest.skip("the headers of Python are not installed (python3-dev)")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("compiled")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("rtmp_spark", "server"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    built = subprocess.run(
        [sys.executable, "setup.py", "-q", "bdist_wheel"],
        cwd=source, capture_output=True, text=True, env={**os.environ, "RTMP_SPARK_COMPILED": "unoptimised"},
    )  # fmt: skip
    assert built.returncode == 0, (built.stdout + built.stderr)[-3000:]
    (wheel,) = (source / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out)
    return out


@pytest.mark.slow
def test_the_compiled_program_passes_tests_and_writes_the_same_tables(installed: Path, tmp_path: Path) -> None:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    extensions = {path.relative_to(installed).as_posix().removesuffix(suffix) for path in installed.rglob(f"*{suffix}")}
    assert {path.with_suffix("").as_posix() for path in compiled()} <= extensions
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    command.append(f"--config-file={ROOT / 'pyproject.toml'}")
    # Not in the root, whose source would be imported instead.
    done = subprocess.run(
        [*command, *(str(ROOT / "tests" / name) for name in TESTS)],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(installed)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
