"""The public names: their documentation is complete, and the examples use and run them."""

from __future__ import annotations

import ast
import importlib
import inspect
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
PACKAGES = ["codec", "lake", "spark"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_documented_and_in_the_example(package: str) -> None:
    pytest.importorskip("pyspark" if package == "spark" else "deltalake", reason="the extra is not installed")
    module = importlib.import_module(f"rtmp_spark.{package}")
    tree = ast.parse((EXAMPLES / f"{package}.py").read_text())
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name in module.__all__:
        assert inspect.getdoc(getattr(module, name)), name
        assert name in used, f"the example does not use {name}"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_the_example_of_the_codec_runs() -> None:
    runpy.run_path(str(EXAMPLES / "codec.py"))
