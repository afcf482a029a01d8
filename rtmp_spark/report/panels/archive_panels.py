"""Panels for many connections: verdicts per day, failure reasons per day, findings per software."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rtmp_spark.report import page_text, units, verdict
from rtmp_spark.report.judged_connections import JudgedConnections, software
from rtmp_spark.report.panels.html_table import table

Row = dict[str, Any]
ARCHIVE_FROM = 25  # connections; with fewer, counts per day say nothing
MOST_RULES, MOST_SOFTWARE, MOST_DAYS, MOST_REASONS = 10, 14, 31, 8


def archive_panels(judged: JudgedConnections) -> str:
    return (
        f"<h2>Sessions per day, by verdict</h2>{verdicts_by_day(judged)}"
        f"<h2>Failure reasons per day</h2>{reasons_by_day(judged)}"
        f"<h2>Findings per software</h2>{findings_by_software(judged)}"
    )


def verdicts_by_day(judged: JudgedConnections) -> str:
    days: dict[str, Counter[str]] = {}
    for row, _, _, found in judged.all:
        days.setdefault(units.utc_day(row["ts_start"]), Counter())[found.word] += 1
    return _stacked(days, list(reversed(verdict.VERDICTS)), {word: word for word in verdict.VERDICTS})


def reason(row: Row, found: verdict.Verdict) -> str:
    """Why a session is not ok: the rule that decided its verdict, else how its connection ended."""
    if found.rule_id and found.rule_id != "SESSION_END":
        return found.rule_id
    cause = "" if found.word == "no_media" else f": {units.spaced(row['close_cause'])}"
    return units.spaced(found.word) + cause


def reasons_by_day(judged: JudgedConnections) -> str:
    days: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter()
    for row, _, _, found in judged.all:
        if found.word not in ("ok", "unknown"):
            why = reason(row, found)
            total[why] += 1
            days.setdefault(units.utc_day(row["ts_start"]), Counter())[why] += 1
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
            f"title='{page_text.escape(word)}: {counted[word]:,}'></span>"
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
    keys = "".join(f"<span class='k {role} bars'>{page_text.escape(word)}</span>" for role, word in named)
    older = len(days) - len(last)
    note = f"<p class='note'>{units.counted(older, 'earlier day')} not shown.</p>" if older else ""
    return f"<div class='days'><div class='legend'>{keys}</div>{''.join(rows)}</div>{note}"


def findings_by_software(judged: JudgedConnections) -> str:
    """The number of sessions of each client software that broke each rule; errors and warnings only."""
    sessions: Counter[str] = Counter()
    broken: dict[str, Counter[str]] = {}
    rules: Counter[str] = Counter()
    for row, _, findings, _ in judged.all:
        name = software(row)
        sessions[name] += 1
        for rule in {finding["rule_id"] for finding in findings if finding["severity"] != "info"}:
            broken.setdefault(name, Counter())[rule] += 1
            rules[rule] += 1
    if not rules:
        return "<p class='note'>No errors or warnings.</p>"
    shown = [rule for rule, _ in rules.most_common(MOST_RULES)]
    lines = [
        [
            page_text.untrusted(name, 60),
            f"{count:,}",
            *(_cell(broken.get(name, Counter())[rule], count) for rule in shown),
        ]
        for name, count in sessions.most_common(MOST_SOFTWARE)
    ]
    left = len(sessions) - len(lines)
    note = f"<p class='note'>{left:,} more client names are not listed.</p>" if left > 0 else ""
    rules_head = [f"#<code class='rule'>{page_text.escape(rule).replace('_', '_<wbr>')}</code>" for rule in shown]
    return table(["software", "#sessions", *rules_head], lines, "matrix") + note


def _cell(count: int, of: int) -> str:
    if not count:
        return "<td class='n dim'>·</td>"
    return f"<td class='n hit' style='--share:{count / of:.2f}' title='{count:,} of {of:,} sessions'>{count:,}</td>"
