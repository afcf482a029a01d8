"""Every notebook runs from top to bottom, contains no outputs, and its last output is the answer in its words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SLOW = ("05_an_archive_in_sql.ipynb", "06_an_archive_on_spark.ipynb")  # start Spark
# Of each notebook: rows, as plain text, that its answer shows.
ANSWERS = {
    "01_quick_look": [
        "publish ffmpeg/5.1 nginx-rtmp ok avc 320x240 25.0 aac",
        "play rtmpdump nginx-rtmp ok",
        "1 2.0 True",
    ],
    "02_why_did_it_drop": [
        "stopped 0 live client fin peer_vanished",
        "came back 0 live client fin teardown 1 live client fin teardown",
        "1 nosuchapp server fin refused",
        "lossy link 0 live client fin teardown",
    ],
    "03_av_drift_and_timestamps": ["drifting 129 297.09", "TIME_SKEW", "seeking"],
    "04_server_conformance": ["nginx-rtmp warning CMD_NO_RESPONSE", "Node-Media-Server warning CMD_STREAM_ID"],
    "05_an_archive_in_sql": ["failed play rtmpdump refused 2", "no_media publish ffmpeg/5.1 refused 1"],
    "06_an_archive_on_spark": ["none play failed 2", "2 ok"],
}
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
    assert not any("assert " in line for cell in code for line in cell["source"]), "answers are shown"


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
    answer = next(n for n, cell in enumerate(notebook.cells) if cell.source == "## The answer") + 1
    outputs = [part.get("text") or part["data"]["text/plain"] for part in notebook.cells[answer].outputs]
    shown = " ".join("\n".join(outputs).split())
    assert not [words for words in ANSWERS[path.stem] if words not in shown], shown
