"""The log of a program that serves, on standard error: one line for each message, whatever a peer calls itself."""

from __future__ import annotations

import logging

from rtmp_spark.commands.harmless import harmless


class _Lines(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = harmless(record.message)
        return super().formatMessage(record)


def log_to_terminal(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
