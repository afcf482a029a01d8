"""One word, one sentence and the worst findings for a connection.

The word is that of its streams (`streams.verdict`), the worst of them; a connection without streams is judged by how
it ended. Nothing is found here that the tables do not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rtmp_spark.codec.errors import LAYER
from rtmp_spark.report import text

Row = dict[str, Any]
VERDICTS = ("failed", "no_media", "degraded", "unknown", "ok")  # worst first
SEVERITIES = ("error", "warning", "info")
WORST = 5


@dataclass(frozen=True)
class Verdict:
    word: str
    sentence: str
    rule_id: str | None = None


def judge(connection: Row, streams: Sequence[Row], findings: Sequence[Row]) -> Verdict:
    if streams:
        worst = min(streams, key=lambda row: VERDICTS.index(row["verdict"]))
        sentence = worst["verdict_text"] or _plain(worst, findings)
        return Verdict(worst["verdict"], sentence, worst["verdict_rule_id"])
    errors = [row for row in findings if row["severity"] == "error"]
    if connection["service"] in ("rtmpe", "rtmps") and connection["app"] is None:
        return Verdict("unknown", f"{connection['service'].upper()}: the contents are encrypted and were not read.")
    unanswered = [row for row in findings if row["rule_id"] == "CMD_NO_RESPONSE"]
    if connection["close_cause"] == "refused" or errors:
        first = next(iter([*errors, *unanswered]), {"detail": "the server refused it", "rule_id": None})
        return Verdict("failed", f"Nothing was published or played: {first['detail']}.", first["rule_id"])
    return Verdict("unknown", "Nothing was published or played in what was recorded.")


def _plain(stream: Row, findings: Sequence[Row]) -> str:
    warnings = sum(row["severity"] == "warning" for row in findings)
    done = {"publish": "published", "play": "played"}[stream["role"]]
    if stream["verdict"] == "ok":
        return f"The stream was {done} and nothing went wrong" + (
            f" beyond {text.one_of(warnings, 'warning')}." if warnings else "."
        )
    return f"The stream was {done}: {text.words(stream['verdict'])}."


def worst_findings(findings: Sequence[Row], most: int = WORST) -> list[Row]:
    """Errors and warnings first, what came first before what came later; infos only when there is nothing else."""
    ranked = ordered(findings)
    grave = [row for row in ranked if row["severity"] != "info"]
    return (grave or ranked)[:most]


def ordered(findings: Sequence[Row]) -> list[Row]:
    return sorted(
        findings,
        key=lambda r: (SEVERITIES.index(r["severity"]), r["ts"] or 0, r["frame"] or 0, LAYER.get(r["rule_id"], 0)),
    )


def ending(connection: Row) -> str:
    """Who ended it and why, in words."""
    cause = text.words(connection["close_cause"])
    if connection["close_kind"] == "open":
        return f"still open at the end of the recording ({cause})"
    how = {"fin": "FIN", "rst": "RST"}.get(connection["close_kind"], connection["close_kind"])
    return f"closed by the {connection['closed_by'] or 'peer'} with {how} ({cause})"
