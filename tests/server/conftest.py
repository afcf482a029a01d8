"""Fixtures that start relays and other programs as processes and end them after the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.relay_process import Programs, RelayProcess, StartRelay


@pytest.fixture
def start_relay(tmp_path: Path) -> Iterator[StartRelay]:
    started: list[RelayProcess] = []

    def start(*arguments: str) -> RelayProcess:
        relay = RelayProcess(list(arguments), tmp_path / f"relay{len(started)}.log")
        started.append(relay)
        return relay

    yield start
    for relay in started:
        if relay.alive:
            relay.stop()


@pytest.fixture
def programs() -> Iterator[Programs]:
    running = Programs()
    yield running
    running.end_all()
