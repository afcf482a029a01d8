"""The report in a real browser: no console errors, no requests, and working controls."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from kit import browser
from kit.decoded_tables import RtmpTalk

from rtmp_spark.cli import main
from rtmp_spark.codec.amf import EcmaArray
from rtmp_spark.report.table_source import CaptureTables
from rtmp_spark.report.view import judged_settings, read_captures

pytestmark = pytest.mark.slow
EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
TURNED = "abc\u202egpj.exe\u2066\x00\x1b[31m\n\u200f"


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    program = browser.find()
    if program is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    pytest.importorskip("websocket", reason="the debugging port speaks WebSocket: pip install websocket-client")
    with browser.Browser(program) as started:
        yield started


def hostile_capture(path: Path) -> Path:
    """A publisher that sends markup, control characters, direction marks and 64 KB texts in every field."""
    long = "A" * 65_000
    talk = RtmpTalk().handshake()
    connect = {"app": f"live{EVIL}", "tcUrl": f"rtmp://h/{TURNED}", "flashVer": f"{EVIL}{TURNED}"}
    talk.command(0, "connect", 1, connect)
    talk.command(1, "_result", 1, {"fmsVer": EVIL}, {"level": "status", "code": "NetConnection.Connect.Success"})
    talk.command(0, "createStream", 2, None).command(1, "_result", 2, None, 1)
    talk.command(0, "publish", 3, None, f"name{EVIL}", "live", stream_id=1)
    refused = {"level": "error", "code": f"NetStream.Publish.BadName{EVIL}", "description": f"{EVIL} {TURNED} {long}"}
    talk.command(1, "onStatus", 0, None, refused, stream_id=1)
    meta = {"encoder": f"{EVIL}{TURNED}{long}", "videocodecid": f"{EVIL}", "width": float("nan"), "framerate": EVIL}
    talk.command(0, "@setDataFrame", None, "onMetaData", EcmaArray(list(meta.items())), stream_id=1)
    talk.command(0, f"{EVIL}{TURNED}", 4, None, EVIL, stream_id=1)
    for number in range(20):
        talk.wait(0.05).send(0, 8, b"\xaf\x01" + bytes(20), stream_id=1, timestamp=number * 50)
    return talk.bye().write(path)


def report(tmp_path: Path, *arguments: Path | str) -> str:
    page = tmp_path / "report.html"
    assert main(["report", *map(str, arguments), "-o", str(page), "--keep-secrets"]) == 0
    return page.as_uri()


def healthy(page: browser.Browser) -> None:
    assert page.complaints == []
    assert page.requests == []


def test_one_connection(chromium: browser.Browser, tmp_path: Path, sample_pcaps: Path) -> None:
    chromium.open(report(tmp_path, sample_pcaps / "ffmpeg_publish_h264_aac.pcap"))
    assert chromium.run("document.querySelectorAll('.part').length") == 10
    assert chromium.run("document.querySelectorAll('figure.chart[data-x]').length") >= 8
    healthy(chromium)


# Rules that JupyterLab 4.6 applies to every output.
JUPYTER = """
.jp-RenderedHTMLCommon table { table-layout: fixed; margin-left: auto; margin-right: auto; }
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon td { text-align: right; }
.jp-OutputArea-output dt { font-weight: bold; float: left; width: 20%; }
.jp-OutputArea-output dd { float: left; width: 80%; }
"""


def test_jupyter_styles_do_not_change_the_layout(chromium: browser.Browser, tmp_path: Path, sample_pcaps: Path) -> None:
    recording = read_captures(sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap")
    outputs = recording._repr_html_() + recording.connections[0]._repr_html_()
    page = tmp_path / "notebook.html"
    classes = "jp-OutputArea-output jp-RenderedHTMLCommon"
    page.write_text(f"<meta charset=utf-8><style>{JUPYTER}</style><div class='{classes}'>{outputs}</div>", "utf-8")
    chromium.resize(1100, 900)
    chromium.open(page.as_uri())
    cell = "document.querySelector('table.connections td:nth-child({})')"
    assert chromium.run(f"getComputedStyle({cell.format(4)}).textAlign") == "left"
    assert chromium.run(f"getComputedStyle({cell.format(8)}).textAlign") == "right"  # bytes
    assert "44878" in chromium.run(f"{cell.format(4)}.innerText")
    line = "(() => {{ const r = document.createRange(); r.selectNodeContents({}.firstChild); return {}; }})()"
    assert chromium.run(line.format(cell.format(4), "r.getClientRects().length")) == 1  # no address is broken in two
    words = "document.querySelector('dl.facts dt')"
    assert chromium.run(line.format(words, "r.getClientRects().length")) == 1


def test_hover_shows_the_value_and_dragging_zooms(
    chromium: browser.Browser, tmp_path: Path, sample_pcaps: Path
) -> None:
    chromium.resize(1280, 900)
    chromium.open(report(tmp_path, sample_pcaps / "ffmpeg_publish_h264_aac.pcap"))
    script = "(() => { const a = document.querySelector('[id$=-bitrate] .area'); a.scrollIntoView({block: 'center'}); "
    script += "const b = a.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
    left, top, width, height = chromium.run(script)
    chromium.mouse("mouseMoved", left + width / 2, top + height / 2)
    tip = chromium.run("document.querySelector('[id$=-bitrate] .tip').innerText")
    assert "video:" in tip and "kb/s" in tip
    boxes = "[...document.querySelectorAll('.area svg')].map(s => s.getAttribute('viewBox').split(' ').map(Number))"
    before = chromium.run(boxes)
    chromium.mouse("mousePressed", left + width * 0.25, top + 20, 1)
    chromium.mouse("mouseMoved", left + width * 0.5, top + 20, 1)
    chromium.mouse("mouseReleased", left + width * 0.5, top + 20)
    after = chromium.run(boxes)
    assert all(new[2] < 0.3 * old[2] for old, new in zip(before, after))  # every plot of the session
    chromium.run("document.querySelector('[id$=-bitrate] .area').dispatchEvent(new MouseEvent('dblclick'))")
    assert chromium.run(boxes) == before
    healthy(chromium)


def test_the_tooltip_has_times_packet_and_findings(
    chromium: browser.Browser, tmp_path: Path, sample_pcaps: Path
) -> None:
    """The packet and the finding are those of the tables."""
    capture = sample_pcaps / "encoder_waits_for_acknowledgements.pcap"
    chromium.resize(1280, 900)
    row = next(f for f in CaptureTables([capture], judged_settings()).rows("findings") if f["severity"] == "error")
    chromium.open(report(tmp_path, capture, "--uid", row["uid"]))
    flag = "document.querySelector('[id$=-bitrate] .flags i.bad')"
    assert chromium.run(f"{flag}.title") == f"{row['rule_id']}, packet {row['frame']}"
    place = f"(() => {{ {flag}.scrollIntoView({{block: 'center'}}); const b = {flag}.getBoundingClientRect(); "
    x, y = chromium.run(place + "return [b.left + b.width / 2, b.top + 20]; })()")
    chromium.mouse("mouseMoved", x, y)
    tip = chromium.run("document.querySelector('[id$=-bitrate] .tip').innerText")
    assert " UTC" in tip and row["rule_id"] in tip
    near = int(tip.split("near packet ")[1].split()[0])
    assert abs(near - row["frame"]) <= 20
    healthy(chromium)


def test_zooming_by_keyboard_rescales_both_axes_and_can_be_reset(
    chromium: browser.Browser, tmp_path: Path, sample_pcaps: Path
) -> None:
    chromium.resize(1280, 900)
    chromium.open(report(tmp_path, sample_pcaps / "ffmpeg_publish_h264_aac.pcap"))
    area, reset = (f"document.querySelector('[id$=-timestamps] {name}')" for name in (".area", "button.reset"))
    box = f"{area}.querySelector('svg').getAttribute('viewBox').split(' ').map(Number)"
    before = chromium.run(box)
    assert chromium.run(f"{reset}.hidden") is True
    for key in ("+", "+", "+"):
        chromium.run(f"{area}.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', cancelable: true}}))")
    after = chromium.run(box)
    assert after[2] == pytest.approx(before[2] / 8) and after[3] < before[3]
    assert chromium.run(f"{reset}.hidden") is False
    chromium.run(f"{reset}.click()")
    assert chromium.run(box) == before
    healthy(chromium)


def test_tables_are_sorted_by_value(chromium: browser.Browser, tmp_path: Path, sample_pcaps: Path) -> None:
    captures = [sample_pcaps / f"{name}.pcap" for name in ("denied_and_unknown_app", "republish_same_name")]
    chromium.open(report(tmp_path, *captures))
    column = "[...document.querySelectorAll('table.connections tbody tr')].map(row => row.cells[6].innerText)"
    click = (
        "[...document.querySelectorAll('table.connections button.sort')].find(b => b.innerText == 'duration').click()"
    )
    scales = {"ms": 1e-3, "s": 1}

    def values() -> list[float]:
        chromium.run(click)
        return [float(number) * scales[unit] for number, unit in map(str.split, chromium.run(column))]

    rising = values()
    assert rising == sorted(rising) and len(set(rising)) > 1
    assert values() == rising[::-1]
    healthy(chromium)


def test_headings_do_not_skip_a_level(chromium: browser.Browser, tmp_path: Path, sample_pcaps: Path) -> None:
    for names in (("ffmpeg_publish_h264_aac",), ("denied_and_unknown_app", "republish_same_name")):
        chromium.open(report(tmp_path, *(sample_pcaps / f"{name}.pcap" for name in names)))
        levels = chromium.run("[...document.querySelectorAll('h1, h2, h3, h4')].map(h => Number(h.tagName[1]))")
        assert all(then <= before + 1 for before, then in pairwise(levels))


def test_clicking_through_several_connections(chromium: browser.Browser, tmp_path: Path, sample_pcaps: Path) -> None:
    captures = [sample_pcaps / f"{name}.pcap" for name in ("denied_and_unknown_app", "republish_same_name")]
    chromium.open(report(tmp_path, *captures))
    visible = "[...document.querySelectorAll('article.session')].filter(s => s.offsetParent !== null).map(s => s.id)"
    assert chromium.run(visible) == []
    uids = chromium.run("[...document.querySelectorAll('table.connections a')].map(a => a.hash.slice(1))")
    assert len(uids) == 6
    for number, uid in enumerate(uids):
        chromium.run(f"document.querySelectorAll('table.connections a')[{number}].click()")
        chromium.run("new Promise(done => setTimeout(done, 50))")
        assert chromium.run(visible) == [uid]
        chromium.run("location.hash = 'overview'")
        chromium.run("new Promise(done => setTimeout(done, 50))")
    assert chromium.run(visible) == []
    healthy(chromium)


def test_strings_from_the_network_cannot_run_scripts(chromium: browser.Browser, tmp_path: Path) -> None:
    chromium.open(report(tmp_path, hostile_capture(tmp_path / "hostile.pcap")))
    assert "owned" not in chromium.run("document.title")
    assert chromium.run("document.querySelectorAll('main img, main script, main iframe, [onerror]').length") == 0
    shown = chromium.run("document.body.innerText")
    assert EVIL in shown  # as text
    assert not set(shown) & set("\u202e\u2066\u200f\x00\x1b")
    assert "A" * 2000 not in shown
    healthy(chromium)


def test_narrow_and_dark(chromium: browser.Browser, tmp_path: Path, sample_pcaps: Path) -> None:
    chromium.resize(420, 900)
    chromium.dark()
    chromium.open(report(tmp_path, sample_pcaps / "ffmpeg_publish_h264_aac.pcap"))
    assert chromium.run("document.documentElement.scrollWidth") <= 420  # no horizontal scrolling
    luminance = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    assert chromium.run(luminance) < 150
    chromium.run("document.querySelector('button.theme').click()")
    assert chromium.run(luminance) > 600
    chromium.dark(False)
    chromium.resize(1280, 900)
    healthy(chromium)


def test_an_archive_fits_and_names_the_problems(chromium: browser.Browser, tmp_path: Path, sample_pcaps: Path) -> None:
    chromium.resize(1280, 900)
    captures = sorted(path for path in sample_pcaps.glob("*.pcap") if "rotated" not in path.name)
    chromium.open(report(tmp_path, *captures))
    wider = "[...document.querySelectorAll('.overview .wide')].filter(e => e.scrollWidth > e.clientWidth).length"
    assert chromium.run("document.querySelectorAll('.overview table.matrix').length") == 1
    assert chromium.run(wider) == 0
    listed = chromium.run("document.querySelector('table.connections').innerText")
    refused, killed = (
        {row["verdict_text"] for view in read_captures(sample_pcaps / name).connections for row in view.streams}
        for name in ("denied_and_unknown_app.pcap", "publisher_killed_midstream.pcap")
    )
    for sentence in filter(None, refused | killed):  # an error, and a verdict without error or warning
        assert sentence[1:100] in listed
    chromium.resize(400, 900)
    assert chromium.run("document.documentElement.scrollWidth") <= 400
    chromium.resize(1280, 900)
    healthy(chromium)
