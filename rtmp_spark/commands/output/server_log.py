"""The log of `relay` and `tap` on standard error, one line per message."""

from __future__ import annotations

import logging
import sys

from rtmp_spark.commands.output.terminal_escape import escape_for_terminal


class _EscapedLines(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escape_for_terminal(record.message)
        return super().formatMessage(record)


class _StandardError(logging.Handler):
    """Finds standard error for each message, because a live table replaces it to print above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


def log_to_terminal(level: str) -> None:
    handler = _StandardError()
    handler.setFormatter(_EscapedLines("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
