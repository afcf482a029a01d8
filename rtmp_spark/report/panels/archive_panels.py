"""The page of an archive: sessions by verdict, findings by software, failure reasons by day.

Counts over rows of `connections`, `streams` and `findings`; the sessions themselves are listed by overview.py.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rtmp_spark.report import text, verdict
from rtmp_spark.report.grid import table
from rtmp_spark.report.overview import Judged, software

Row = dict[str, Any]
ARCHIVE_FROM = 25  # connections; fewer are an incident, not an archive
MOST_RULES, MOST_SOFTWARE, MOST_DAYS, MOST_REASONS = 10, 14, 31, 8


def panels(judged: Judged) -> str:
    return (
        f"<h3>Sessions by verdict, by day</h3>{verdicts_by_day(judged)}"
        f"<h3>Failure reasons by day</h3>{reasons_by_day(judged)}"
        f"<h3>Findings by software</h3>{findings_by_software(judged)}"
    )


def verdicts_by_day(judged: Judged) -> str:
    days: dict[str, Counter[str]] = {}
    for row, _, _, found in judged.rows:
        days.setdefault(text.day(row["ts_start"]), Counter())[found.word] += 1
    return _stacked(days, list(reversed(verdict.VERDICTS)), {word: word for word in verdict.VERDICTS})


def reason(row: Row, found: verdict.Verdict) -> str:
    """Why a session is not ok, in one word: the rule behind its verdict, else how its connection ended."""
    if found.rule_id and found.rule_id != "SESSION_END":
        return found.rule_id
    cause = "" if found.word == "no_media" else f": {text.words(row['close_cause'])}"
    return text.words(found.word) + cause


def reasons_by_day(judged: Judged) -> str:
    days: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter()
    for row, _, _, found in judged.rows:
        if found.word not in ("ok", "unknown"):
            why = reason(row, found)
            total[why] += 1
            days.setdefault(text.day(row["ts_start"]), Counter())[why] += 1
    if not total:
        return "<p class='note'>No session failed.</p>"
    shown = [why for why, _ in total.most_common(MOST_REASONS)]
    return _stacked(days, shown, {why: f"c{index}" for index, why in enumerate(shown)})


def _stacked(days: dict[str, Counter[str]], order: list[str], roles: dict[str, str]) -> str:
    last = sorted(days)[-MOST_DAYS:]
    most = max(sum(days[day].values()) for day in last)
    rows = []
    for day in last:
        counted = days[day]
        others = sum(counted.values()) - sum(counted[word] for word in order)
        bars = "".join(
            f"<span class='{roles[word]}' style='width:{counted[word] / most:.3%}' "
            f"title='{text.escape(word)}: {counted[word]:,}'></span>"
            for word in order
            if counted[word]
        )
        if others:
            bars += f"<span class='other' style='width:{others / most:.3%}' title='others: {others:,}'></span>"
        rows.append(
            f"<div class='day'><span class='when'>{day}</span><div class='bars'>{bars}</div>"
            f"<span class='n'>{sum(counted.values()):,}</span></div>"
        )
    used = [word for word in order if any(days[day][word] for day in last)]
    named = [(roles[word], word.replace("no_media", "no media")) for word in used]
    keys = "".join(f"<span class='k {role} bars'>{text.escape(word)}</span>" for role, word in named)
    older = len(days) - len(last)
    note = f"<p class='note'>{text.one_of(older, 'earlier day')} not shown.</p>" if older else ""
    return f"<div class='days'><div class='legend'>{keys}</div>{''.join(rows)}</div>{note}"


def findings_by_software(judged: Judged) -> str:
    """In how many sessions of each software each rule was broken; errors and warnings."""
    sessions: Counter[str] = Counter()
    broken: dict[str, Counter[str]] = {}
    rules: Counter[str] = Counter()
    for row, _, findings, _ in judged.rows:
        name = software(row)
        sessions[name] += 1
        for rule in {finding["rule_id"] for finding in findings if finding["severity"] != "info"}:
            broken.setdefault(name, Counter())[rule] += 1
            rules[rule] += 1
    if not rules:
        return "<p class='note'>No errors or warnings.</p>"
    shown = [rule for rule, _ in rules.most_common(MOST_RULES)]
    lines = [
        [text.wire(name, 60), f"{count:,}", *(_cell(broken.get(name, Counter())[rule], count) for rule in shown)]
        for name, count in sessions.most_common(MOST_SOFTWARE)
    ]
    left = len(sessions) - len(lines)
    note = f"<p class='note'>{left:,} more names are left out.</p>" if left > 0 else ""
    rules_head = [f"#<code class='rule'>{text.escape(rule).replace('_', '_<wbr>')}</code>" for rule in shown]
    return table(["software", "#sessions", *rules_head], lines, "matrix") + note


def _cell(count: int, of: int) -> str:
    if not count:
        return "<td class='n dim'>·</td>"
    return f"<td class='n hit' style='--share:{count / of:.2f}' title='{count:,} of {of:,} sessions'>{count:,}</td>"
