"""A lake and its captures give the same page and the same connection object."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from kit.in_process_ingest import ingest_in_process

from rtmp_spark.cli import main
from rtmp_spark.codec.errors import UserError
from rtmp_spark.lake.reader import Lake, open_lake
from rtmp_spark.report.lake_tables import LakeTables, open_connection
from rtmp_spark.report.page import render
from rtmp_spark.report.view import read_captures

NAMES = ("ffmpeg_publish_bframes_rtmpdump_play", "denied_and_unknown_app")


@pytest.fixture(scope="module")
def captures(sample_pcaps: Path) -> list[str]:
    return [str(sample_pcaps / f"{name}.pcap") for name in NAMES]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, captures: list[str]) -> Lake:
    path = tmp_path_factory.mktemp("lake") / "lake"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RTMP_SPARK_REDACT_KEY", "lake test")
        ingest_in_process(path, captures)
    return open_lake(path)


def sections(page: str) -> str:
    """The page without its provenance, and with stream names that do not depend on the redaction key."""
    body = re.sub(r"<section class='provenance'>.*", "", page.split("<main>", 1)[1], flags=re.S)
    names = dict.fromkeys(re.findall(r"key-[a-z2-7]{16}", body))
    for number, name in enumerate(names):
        body = body.replace(name, f"name-{number}")
    return body


def test_the_same_page(lake: Lake, captures: list[str]) -> None:
    direct = sections(render(read_captures(*captures).tables))
    stored = sections(render(LakeTables(lake)))
    assert stored.count("<article") == 6
    assert "<h4>Delivery from the publisher</h4>" in stored
    assert stored.split("</section>") == direct.split("</section>")


def test_the_same_connection(lake: Lake, captures: list[str], tmp_path: Path) -> None:
    direct = read_captures(*captures).connections[0]
    stored = open_connection(lake, direct.uid)
    for panel in ("declared", "bitrate", "gop", "timestamps", "flow_control"):
        assert str(getattr(stored, panel)()) == str(getattr(direct, panel)())
    assert str(stored.hexdump(0)) == str(direct.hexdump(0))
    assert stored.export_pcap(tmp_path / "one.pcapng")
    with pytest.raises(UserError, match="no connection"):
        open_connection(lake, "CNOTTHERE")


def test_check_finds_the_same(lake: Lake, captures: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for source in (captures, ["--lake", lake.location.uri]):
        assert main(["check", *source, "--json"]) == 1, "something was refused"
        rows = [json.loads(line) | {"ingest_id": None} for line in capsys.readouterr().out.splitlines()]
        printed.append(sorted(json.dumps(row) for row in rows))
    assert printed[0] == printed[1]
    uid = read_captures(*captures).connections[0].uid
    assert main(["check", "--lake", lake.location.uri, "--uid", uid, "--json"]) == 0
    assert {json.loads(line)["uid"] for line in capsys.readouterr().out.splitlines()} == {uid}
    assert main(["check", "--lake", lake.location.uri, "--uid", "CNOTTHERE"]) == 2


@pytest.mark.parametrize("words", [["check"], ["report", "-o", "page.html"]])
def test_a_lake_without_rtmp(
    words: list[str], sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing, lake = tmp_path / "nothing.pcap", str(tmp_path / "lake")
    nothing.write_bytes((sample_pcaps / f"{NAMES[0]}.pcap").read_bytes()[:24])
    ingest_in_process(Path(lake), [nothing])
    assert main([*words, "--lake", lake]) == 5
    printed = capsys.readouterr()
    assert printed.err == f"rtmp-spark: {lake} has no RTMP connections.\n" and "rtmp-spark" not in printed.out


def test_the_command(lake: Lake, captures: list[str], tmp_path: Path) -> None:
    uid = read_captures(*captures).connections[0].uid
    page = tmp_path / "one.html"
    assert main(["report", "--lake", lake.location.uri, "--uid", uid, "-o", str(page)]) == 0
    assert page.read_text().count("<article") == 1
