"""The golden vectors of tags and FLV files: reads them and compares results with the expected ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rtmp_spark.codec.errors import Fault, Severity
from rtmp_spark.codec.media.tag import MediaTag


def joined(pieces: list[Any]) -> bytes:
    return b"".join(
        bytes.fromhex(piece) if isinstance(piece, str) else bytes.fromhex(piece["fill"]) * piece["length"]
        for piece in pieces
    )


def vector(path: Path) -> dict[str, Any]:
    loaded = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def compare(expect: dict[str, Any], tags: list[MediaTag], faults: list[Fault]) -> None:
    assert len(tags) == len(expect["tags"])
    for tag, wanted in zip(tags, expect["tags"]):
        assert {name: getattr(tag, name) for name in wanted} == wanted
    seen = list(dict.fromkeys(code.value for code, severity, _ in faults if severity is not Severity.INFO))
    assert seen == expect.get("findings", [])
    if "infos" in expect:
        infos = list(dict.fromkeys(code.value for code, severity, _ in faults if severity is Severity.INFO))
        assert infos == expect["infos"]
