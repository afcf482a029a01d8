"""Every notebook runs from top to bottom and contains no outputs. Asserts in the notebooks check their answers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SLOW = ("05_an_archive_in_sql.ipynb", "06_an_archive_on_spark.ipynb")  # start Spark
EXTRA = "notebooks need the extra: pip install 'rtmp-spark[notebook]'"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped_and_it_is_a_question_with_an_answer(path: Path) -> None:
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    words = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert code and all(not cell["outputs"] and cell["execution_count"] is None for cell in code)
    assert cells[0]["cell_type"] == "markdown"
    assert "?**" in words[0]  # begins with the question
    assert words[-2] == "## The answer"  # and ends with the answer, in words
    assert any("assert " in line for cell in code for line in cell["source"]), "an answer may become wrong unseen"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=p.stem, marks=[pytest.mark.spark] if p.name in SLOW else []) for p in NOTEBOOKS],
)
def test_it_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason=EXTRA)  # seconds, so not before it is needed
    nbclient = pytest.importorskip("nbclient", reason=EXTRA)
    if path.name in SLOW:
        pytest.importorskip("pyspark", reason="pyspark is not installed")
    monkeypatch.setenv("RTMP_SPARK_REDACT_KEY", "notebooks")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
