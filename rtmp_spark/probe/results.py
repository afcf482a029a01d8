"""What is written about the results of a run: lines for people, JUnit XML and an HTML page."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import quoteattr

from rtmp_spark import __version__
from rtmp_spark.report.page_text import printable
from rtmp_spark.report.panel import asset
from rtmp_spark.report.panels.html_table import table

from .case import Level
from .outcome import PASSED, Verdict
from .runner import CaseResult

_SHOWN = 400  # characters of a detail
# A verdict as one of the report's badges.
_BADGES = {
    Verdict.OK: "ok", Verdict.NON_STRICT: "degraded", Verdict.INFORMATIONAL: "info", Verdict.UNIMPLEMENTED: "unknown",
    Verdict.FAILED: "failed", Verdict.INCONCLUSIVE: "unknown",
}  # fmt: skip


def counts(results: Sequence[CaseResult]) -> str:
    """The last line of a run."""
    passed = sum(result.verdict in PASSED for result in results)
    failed = sum(result.verdict is Verdict.FAILED for result in results)
    return f"{passed} passed, {failed} failed, {len(results) - passed - failed} skipped"


def is_failure(result: CaseResult, strict: bool) -> bool:
    """True if the result makes the exit code 1: a failed MUST; with `strict` also a failed SHOULD."""
    binding = (Level.MUST, Level.SHOULD) if strict else (Level.MUST,)
    return result.verdict is Verdict.FAILED and result.case.level in binding


def summary(results: Sequence[CaseResult]) -> Iterator[tuple[str, str]]:
    """(line, verdict or empty) of the summary: sections, then everything that is not ok."""
    sections = dict.fromkeys(result.case.section for result in results)
    width = max((len(name) for name in sections), default=0)
    for name in sections:
        found = Counter(result.verdict for result in results if result.case.section == name)
        parts = [f"{found[verdict]} {verdict.value}" for verdict in Verdict if found[verdict]]
        worst = Verdict.FAILED.value if found[Verdict.FAILED] else ""
        yield f"{name:<{width}}  {', '.join(parts)}", worst
    for verdict in reversed(Verdict):
        for result in results:
            if result.verdict is verdict is not Verdict.OK:
                case = result.case
                yield f"{verdict.value:<14} {case.id:<14} {case.level.value:<9} {case.title}", verdict.value
                if result.detail:
                    yield f"{'':<14} {printable(result.detail, _SHOWN)}", "detail"
                if verdict is Verdict.FAILED and case.requirement:
                    yield f"{'':<14} {case.clause}: {printable(case.requirement, _SHOWN)}", "detail"
    for level in Level:
        of_level = [result for result in results if result.case.level is level]
        if of_level:
            broken = sum(result.verdict is Verdict.FAILED for result in of_level)
            yield f"{level.value:<9} {len(of_level)} cases, {broken} failed", ""


def junit(results: Sequence[CaseResult], strict: bool, target: str) -> str:
    """JUnit XML. What makes the exit code 1 is a failure; other failures and undecided cases are skipped tests."""
    lines = []
    for result in results:
        case = result.case
        seconds = f"{result.milliseconds / 1000:.3f}"
        name = _attribute(f"{case.id} {case.title}")
        head = f"    <testcase classname={_attribute(f'rtmp.{case.section}')} name={name} time={quoteattr(seconds)}"
        if is_failure(result, strict):
            text = _attribute(result.detail)
            body = _text(f"{case.clause}: {case.requirement}\nexpected: {case.expected}\n" + _exchange(result))
            lines.append(f"{head}>\n      <failure type={_attribute(case.level.value)} message={text}>{body}</failure>")
            lines.append("    </testcase>")
        elif result.verdict not in PASSED:
            text = _attribute(f"{case.level.value} {result.verdict.value}: {result.detail}")
            lines.append(f"{head}>\n      <skipped message={text}/>\n    </testcase>")
        else:
            lines.append(f"{head}/>")
    failures = sum(is_failure(result, strict) for result in results)
    skipped = sum(result.verdict not in PASSED for result in results) - failures
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n'
        f'  <testsuite name={_attribute(f"rtmp-spark probe {target}")} tests="{len(results)}" failures="{failures}" '
        f'errors="0" skipped="{skipped}">\n' + "\n".join(lines) + "\n  </testsuite>\n</testsuites>\n"
    )


def _exchange(result: CaseResult) -> str:
    return "".join(f"sent: {line}\n" for line in result.sent) + "".join(
        f"received: {line}\n" for line in result.received
    )


def _text(text: str) -> str:
    return html.escape(printable(text.replace("\n", " | "), 4000), quote=False).replace(" | ", "\n")


def _attribute(text: str) -> str:
    return quoteattr(printable(text, _SHOWN))


def page(results: Sequence[CaseResult], target: str, command: str) -> str:
    """One HTML file in the style of the report."""
    title = f"RTMP conformance: {target}"
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    rows = []
    for name in dict.fromkeys(result.case.section for result in results):
        found = Counter(result.verdict for result in results if result.case.section == name)
        rows.append([_e(name), *(str(found[verdict] or "") for verdict in Verdict)])
    sections = table(["section", *(f"#{verdict.value}" for verdict in Verdict)], rows)
    details = "".join(_details(result) for result in results)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{_e(title)}</title><link rel='icon' href='data:,'><style>{asset('report.css')}</style></head>"
        f"<body class='rs page'><header class='top'><div><h1>{_e(title)}</h1>"
        f"<p class='dim'>{_e(command)} (rtmp-spark {__version__})</p></div></header><main>"
        f"<section><h2>{counts(results)}</h2>{sections}</section><section><h2>Cases</h2>{details}</section>"
        "</main></body></html>\n"
    )


def _details(result: CaseResult) -> str:
    case = result.case
    rows = [
        ("requirement", f"{case.clause}: {case.requirement}" if case.requirement else case.clause),
        ("expected", case.expected),
        ("rationale", case.rationale),
        ("result", result.detail),
        ("sent", "\n".join(result.sent)),
        ("received", "\n".join(result.received)),
        ("packets", result.capture or ""),
    ]
    cells = [[_e(name), f"<pre>{_e(text)}</pre>" if "\n" in text else _e(text)] for name, text in rows if text]
    badge = f"<span class='badge {_BADGES[result.verdict]}'>{result.verdict.value}</span>"
    return (
        f"<details id='{_e(case.id)}'{' open' if result.verdict is Verdict.FAILED else ''}><summary>{badge} "
        f"<b>{_e(case.id)}</b> {_e(case.title)} <span class='dim'>{case.level.value}, {result.milliseconds} ms</span>"
        f"</summary>{table(['', ''], [tuple(row) for row in cells])}</details>"
    )


def _e(text: str) -> str:
    lines = [printable(line, 4000) for line in text.split("\n")]
    return html.escape("\n".join(lines))
