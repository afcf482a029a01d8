"""The verdict of a connection in one word and one sentence, and its worst findings.

A connection has the worst verdict of its streams (`streams.verdict`). Without streams, its findings and how it ended
decide. Everything comes from the tables; no rule is checked here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from rtmp_spark.codec.errors import LAYER
from rtmp_spark.report import units

Row = dict[str, Any]
VERDICTS = ("failed", "no_media", "degraded", "unknown", "ok")  # worst first
SEVERITIES = ("error", "warning", "info")
WORST = 5


class Verdict(NamedTuple):
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
        return Verdict("unknown", f"{connection['service'].upper()}: the payload is encrypted and was not decoded.")
    unanswered = [row for row in findings if row["rule_id"] == "CMD_NO_RESPONSE"]
    if connection["close_cause"] == "refused" or errors:
        first = next(iter([*errors, *unanswered]), {"detail": "the server refused the connection", "rule_id": None})
        return Verdict("failed", f"Nothing was published or played: {first['detail']}.", first["rule_id"])
    return Verdict("unknown", "Nothing was published or played in this recording.")


def _plain(stream: Row, findings: Sequence[Row]) -> str:
    warnings = sum(row["severity"] == "warning" for row in findings)
    done = {"publish": "published", "play": "played"}[stream["role"]]
    if stream["verdict"] == "ok":
        return f"The stream was {done} without errors" + (
            f" ({units.counted(warnings, 'warning')})." if warnings else "."
        )
    return f"The stream was {done}: {units.spaced(stream['verdict'])}."


def counted_verdicts(counts: Counter[str]) -> str:
    """1 failed, 12 ok."""
    return ", ".join(f"{counts[word]:,} {units.spaced(word)}" for word in VERDICTS if counts[word])


def worst_findings(findings: Sequence[Row], most: int = WORST) -> list[Row]:
    """The first errors and warnings by severity and time; infos only if there are no others."""
    ranked = ordered(findings)
    grave = [row for row in ranked if row["severity"] != "info"]
    return (grave or ranked)[:most]


def ordered(findings: Sequence[Row]) -> list[Row]:
    return sorted(
        findings,
        key=lambda r: (SEVERITIES.index(r["severity"]), r["ts"] or 0, r["frame"] or 0, LAYER.get(r["rule_id"], 0)),
    )


def ending(connection: Row) -> str:
    """Who closed the connection, how, and why."""
    cause = units.spaced(connection["close_cause"])
    if connection["close_kind"] == "open":
        return f"still open at the end of the recording ({cause})"
    how = {"fin": "FIN", "rst": "RST"}.get(connection["close_kind"], connection["close_kind"])
    return f"closed by the {connection['closed_by'] or 'peer'} with {how} ({cause})"
