"""The live display of streams: a table on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from rtmp_relay.validation.recent_measures import Measures
from rtmp_relay.validation.stream_rows import StreamRow
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.commands.output.live_display import LiveLines, LiveTable, stream_line, stream_table

FINDING = (ViolationCode.MEDIA_ANNEXB, Severity.ERROR)
PUBLISHED = StreamRow("live/key-abcdefghijklmnop", "publish", Measures(25.04, 812_400.0, 1.0, 12.4, 2000), 2, FINDING)
PLAYED = StreamRow("live/key-abcdefghijklmnop", "play", Measures(24.96, 2_512_000.0, 0.97, -7.0, 2000), None, None)
NEW = StreamRow("live/key-new", "publish", Measures(None, None, None, None, None), 0, None)
NOON_NS = 12 * 3600 * 1_000_000_000


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "localtime", time.gmtime)


def test_a_line_has_every_measure() -> None:
    assert stream_line(PUBLISHED, NOON_NS) == (
        "12:00:00 live/key-abcdefghijklmnop publish: 25.0 fps, 812 kb/s, pace 1.00, audio-video +12 ms, GOP 2.0 s, "
        "2 players, last finding MEDIA_ANNEXB"
    )
    assert stream_line(PLAYED, NOON_NS) == (
        "12:00:00 live/key-abcdefghijklmnop play: 25.0 fps, 2.51 Mb/s, pace 0.97, audio-video -7 ms, GOP 2.0 s"
    )


def test_a_line_of_a_stream_without_media() -> None:
    assert stream_line(NEW, NOON_NS) == "12:00:00 live/key-new publish: no media yet, 0 players"


def test_a_wide_table() -> None:
    assert [line.plain.rstrip() for line in stream_table([PUBLISHED, PLAYED, NEW], 0, 120)] == [
        "stream                     role      fps   kb/s  pace  a-v ms  GOP s  players  last finding",
        "live/key-abcdefghijklmnop  publish  25.0    812  1.00     +12    2.0        2  MEDIA_ANNEXB",
        "live/key-abcdefghijklmnop  play     25.0  2,512  0.97      -7    2.0        –  –",
        "live/key-new               publish     –      –     –       –      –        0  –",
    ]


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_table_fits(width: int) -> None:
    lines = [line.plain for line in stream_table([PUBLISHED, PLAYED], 3, width)]
    assert max(map(len, lines)) <= width
    assert lines[0].rstrip().endswith("last finding")
    assert "MEDIA_ANNEXB" in lines[1]
    assert lines[-1] == "and 3 more streams"


def test_a_table_without_streams() -> None:
    assert [line.plain for line in stream_table([], 0, 80)] == ["No streams."]


def test_an_application_name_cannot_control_the_terminal() -> None:
    row = NEW._replace(name="li\x1b[2Jve/x")
    assert "\x1b" not in stream_line(row, NOON_NS)
    assert "\x1b" not in stream_table([row], 0, 80)[1].plain


def test_the_table_is_replaced_in_place() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, height=30, color_system=None)
    with LiveTable(console) as display:
        display.show([PUBLISHED], 0, NOON_NS)
        display.print("a finding")
        display.show([PLAYED], 0, NOON_NS)
    text = file.getvalue()
    assert text.count("stream ") >= 2 and "\x1b[1A" in text  # the cursor moves up to rewrite the table
    assert text.index("a finding") < text.index("2,512")


def test_a_table_leaves_room_for_the_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=30)
    assert 20 <= LiveTable(console).most_rows < 30


def test_lines_and_their_end(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = LiveLines()
    lines.show([PUBLISHED, NEW], 4, NOON_NS)
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == stream_line(PUBLISHED, NOON_NS) and second == stream_line(NEW, NOON_NS)
    assert third == "12:00:00 and 4 more streams"

    def closed(*values: object, **options: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", closed)
    lines.print("nobody reads this")  # the traffic continues
    monkeypatch.undo()
    lines.print("nor this")
    assert capsys.readouterr().out == ""
