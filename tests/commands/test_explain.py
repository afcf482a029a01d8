"""`rtmp-spark explain` knows every rule and every close cause."""

from __future__ import annotations

import json
import re

import pytest

from rtmp_spark.cli import main
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.schema import TABLES


@pytest.mark.parametrize("code", list(ViolationCode), ids=lambda code: code.value)
def test_every_rule_is_explained(capsys: pytest.CaptureFixture[str], code: ViolationCode) -> None:
    assert main(["explain", code.value]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{code.value}: ") and "\nWhy it matters\n  " in out


def test_explain_accepts_and_suggests_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "chunk-size-zero"]) == 0
    assert "--fault CHUNK_SIZE_ZERO" in capsys.readouterr().out
    assert main(["explain", "CHUNK_SIZE_NULL"]) == 2
    assert "CHUNK_SIZE_" in capsys.readouterr().err
    assert main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(ViolationCode)
    assert main(["explain", "TCP_GAP", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["severities"] == ["warning"]


def test_explain_has_a_remedy_for_every_close_cause(capsys: pytest.CaptureFixture[str]) -> None:
    column = next(column for column in TABLES["connections"].columns if column.name == "close_cause")
    causes = re.findall(r"[a-z_]{5,}", column.comment)
    assert len(causes) == 8
    for cause in causes:
        assert main(["explain", cause]) == 0
        out = capsys.readouterr().out
        assert out.startswith("SESSION_END: ")
        table = out.partition("\nCauses\n")[2].partition("\n\n")[0]
        head, _, first, *rest = table.splitlines()
        assert re.split(r"\s{2,}", head.strip()) == ["cause", "meaning", "what to do"]
        assert re.match(rf"  {cause} +\w.*  \w", first), cause
        assert not any(re.match(r"  \S", line) for line in rest), "only this cause"
    assert main(["explain", "SESSION_END", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["causes"]] == causes
