"""New lakes: a copy that is cut short leaves no table behind; a lake without its key is not hashed with none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rtmp_spark.codec.errors import UserError
from rtmp_spark.spark.ledger import Ledger
from rtmp_spark.spark.template import _copy


def test_a_table_is_copied_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "template" / "_delta_log"
    log.mkdir(parents=True)
    for number in range(2):
        (log / f"{number:020}.json").write_text('{"metaData":{"id":"00000000-0000-0000-0000-000000000000"}}')
    write = Path.write_text

    def die_at_the_second(path: Path, *given: Any, **more: Any) -> int:
        if path.name.endswith("1.json"):
            raise KeyboardInterrupt
        return write(path, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", die_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            _copy(tmp_path / "template", tmp_path / "messages")
    assert not (tmp_path / "messages").exists()
    _copy(tmp_path / "template", tmp_path / "messages")
    assert len(list((tmp_path / "messages" / "_delta_log").iterdir())) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["messages", "template"]


def test_a_lake_without_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RTMP_SPARK_REDACT_KEY", raising=False)
    ledger = Ledger(None, str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="lacks its key"):
        ledger.redact_key({})
    ledger.keep_key(b"secret")
    assert ledger.redact_key({}) == b"secret"
