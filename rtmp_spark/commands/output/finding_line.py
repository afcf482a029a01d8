"""A finding of live traffic as one line: time, stream, rule, detail and remedy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rtmp_spark.commands.output.terminal_escape import escape_for_terminal
from rtmp_spark.forensics.catalogue.rules import entry

if TYPE_CHECKING:
    from rtmp_relay.validation.validator import ReportedFinding


def local_time(time_ns: int, milliseconds: bool = True) -> str:
    """The time of day as in the log of the relay."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return time.strftime("%H:%M:%S", time.localtime(seconds)) + (f".{rest // 1_000_000:03}" if milliseconds else "")


def finding_line(finding: ReportedFinding) -> str:
    where = f"connection {finding.connection}" if finding.stream is None else f"{finding.stream} {finding.role}"
    at_fault = f" ({finding.at_fault})" if finding.at_fault else ""
    texts = entry(finding.code)
    remedy = f" -> {texts.fix_hint}" if texts.fix_hint else ""
    rule = f"{finding.severity.value} {finding.code.value}{at_fault}: {finding.detail or texts.title}"
    return escape_for_terminal(f"{local_time(finding.time_ns)} {where}: {rule}{remedy}")
