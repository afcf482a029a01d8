"""Values on the command line: times, addresses, ports, sizes and counts."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.handmade_facts import SAMPLES

from rtmp_spark import cli
from rtmp_spark.commands.options.argument_types import parse_host, parse_time, size

SAMPLE = str(SAMPLES / "denied_and_unknown_app.pcap")


@pytest.mark.parametrize("option", ["--since", "--until"])
@pytest.mark.parametrize("text", ["soon", "inf", "nan", "1e400", "2026-13-01", ""])
def test_an_invalid_time_is_a_usage_error(option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", SAMPLE, option, text]) == 2
    assert f"Invalid time {text!r}" in capsys.readouterr().err


@given(st.datetimes(timezones=st.just(timezone.utc)))
def test_a_time_is_parsed_to_the_microsecond(when: datetime) -> None:
    """`--until` with the time of a row, as the tables show it, must include that row."""
    exact = (when - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
    assert parse_time(when.isoformat(timespec="microseconds").replace("+00:00", "Z")) == exact
    if when.year >= 1970 and when.year < 2200:
        assert parse_time(f"{exact // 10**6}.{exact % 10**6:06}") == exact


@pytest.mark.parametrize(
    "words", [("--host", "localhost"), ("--host", "1.2.3"), ("--port", "65536"), ("--port", "-1"), ("--port", "1; 2")]
)
def test_an_invalid_address_or_port_is_a_usage_error(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["inspect", SAMPLE], ["ingest", SAMPLE, "--lake", "none"]):
        assert cli.main([*command, *words]) == 2
        assert f" {words[1]!r} for {words[0]}." in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "play rtmp://127.0.0.1:1/live/x -o x.flv --duration -1",
        "play rtmp://127.0.0.1:1/live/x -o x.flv --duration nan",
        "tap --to 127.0.0.1:1 -o x.pcap --delay -1",
        "tap --to 127.0.0.1:1 -o x.pcap --piece -1",
        "tap --to 127.0.0.1:1 -o x.pcap --rate inf",
        "tap --to 127.0.0.1:1 -o x.pcap --rotate 0",
        "relay --max-connections -1",
        "relay --tap-rotate 5X",
        "ingest x.pcap --lake none --split-size 0",
        "ingest x.pcap --lake none --settle -1",
    ],
)
def test_an_invalid_quantity_is_a_usage_error(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words.split()) == 2
    assert f" {words.split()[-1]!r} for {words.split()[-2]}." in capsys.readouterr().err


def test_sizes_may_have_units() -> None:
    assert [size(text) for text in ("7", "64MB", "300k", "1.5KiB", "2G")] == [7, 64 << 20, 300 << 10, 1536, 2 << 30]


def test_an_address_may_be_written_in_any_form(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_host("::ffff:192.0.2.1") == "192.0.2.1"
    path = str(sample_pcaps / "ipv6_ffmpeg_publish.pcap")
    assert cli.main(["inspect", path, "--host", "0:0:0:0:0:0:0:1", "--table", "connections", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["orig_h"] == "::1"
