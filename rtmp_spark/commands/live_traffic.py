"""The options `--live` and `--validate` of `relay` and `tap`: what is shown about traffic while it passes."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rtmp_spark.commands.output.finding_line import finding_line

if TYPE_CHECKING:
    from rtmp_relay.tap.pcap_tap import Observer
    from rtmp_relay.validation.validator import Validator
    from rtmp_spark.commands.output.live_display import LiveLines, LiveTable


def add_live_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--live",
        action="store_true",
        help="show frame rate, bitrate, pace and the last finding of each stream, as a table or in lines",
    )
    parser.add_argument(
        "--validate", action="store_true", help="print findings about the traffic as it happens, with remedies"
    )


@asynccontextmanager
async def observers(live: bool, validate: bool) -> AsyncIterator[tuple[Observer, ...]]:
    """The observers that the options need. While the context is open, the streams are shown."""
    if not live and not validate:
        yield ()
        return
    from rtmp_relay.validation.validator import Validator

    with _display(live) as display:
        validator = Validator(
            lambda finding: display.print(finding_line(finding)) if validate else None, whole=validate
        )
        showing = asyncio.create_task(_show_streams(validator, display)) if live else None
        try:
            yield (validator,)
        finally:
            if showing is not None:
                showing.cancel()


def _display(live: bool) -> LiveTable | LiveLines:
    from rtmp_spark.commands.output.live_display import LiveLines, LiveTable

    if live and sys.stdout.isatty():
        from rich.console import Console

        return LiveTable(Console(highlight=False))
    return LiveLines()


async def _show_streams(validator: Validator, display: LiveTable | LiveLines) -> None:
    from rtmp_relay.validation.stream_rows import stream_rows

    while True:
        now_ns = time.time_ns()
        rows, left_out = stream_rows(validator.active_streams(), now_ns, display.most_rows)
        display.show(rows, left_out, now_ns)
        await asyncio.sleep(display.interval_s)
