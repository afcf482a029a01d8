"""Every notebook runs from top to bottom, and holds no outputs. Their own asserts carry the answers they end with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks need the extra: pip install 'rtmp-spark[notebook]'")
nbclient = pytest.importorskip("nbclient", reason="notebooks need the extra: pip install 'rtmp-spark[notebook]'")

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SLOW = "05_an_archive_in_sql.ipynb"  # starts Spark


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped_and_it_is_a_question_with_an_answer(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    cells = notebook.cells
    assert all(not cell.outputs and cell.execution_count is None for cell in cells if cell.cell_type == "code")
    assert cells[0].cell_type == "markdown"
    assert "?**" in cells[0].source  # begins with the question
    words = [cell for cell in cells if cell.cell_type == "markdown"]
    assert words[-2].source == "## The answer"  # and ends with the answer, in words
    asserting = [cell for cell in cells if cell.cell_type == "code" and "assert " in cell.source]
    assert asserting, "nothing would notice if the answer became wrong"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=p.stem, marks=[pytest.mark.spark] if p.name == SLOW else []) for p in NOTEBOOKS],
)
def test_it_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.name == SLOW:
        pytest.importorskip("pyspark", reason="pyspark is not installed")
    monkeypatch.setenv("RTMP_SPARK_REDACT_KEY", "notebooks")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
