"""A stream key planted in every field that a peer fills: no table, page, line or saved state may show it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kit.decoded_tables import RtmpTalk, decode, redacting
from kit.planted_secrets import FIELDS, GLUED, KEY, PLACES, connecting, planted, publishing

from rtmp_spark import cli
from rtmp_spark.analysis.core import AnalysisCore
from rtmp_spark.analysis.recording import ALL_TABLES
from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.packets.dissector import Dissector


def test_no_table_contains_the_key(tmp_path: Path) -> None:
    settings = replace(redacting(), keep_payloads=True)
    tables = decode(planted(tmp_path / "planted.pcap"), settings=settings, tables=(*ALL_TABLES, "payloads"))
    for table, rows in tables.items():
        for row in rows:
            assert KEY not in repr(row).replace("\\x", ""), table
            assert KEY.encode().hex() not in repr(row), table


def shown(said: RtmpTalk, key: str, directory: Path) -> list[str]:
    """The columns that show the key."""
    settings, path = replace(redacting(), keep_payloads=True), said.bye().write(directory / "said.pcap")
    tables = decode(path, settings=settings, tables=(*ALL_TABLES, "payloads"))
    assert tables["commands"]
    wanted = (key.encode(), key.encode().hex().encode())
    return sorted(
        f"{table}.{column}"
        for table, rows in tables.items()
        for row in rows
        for column, value in row.items()
        for text in (value if isinstance(value, bytes) else str(value).encode(),)
        if any(form in text for form in wanted)
    )


KEYS = (KEY, "abcd-efgh-1jkl", "s7+A/Cxy==", "key with space", "x{y}a,b", "clé-1")
IN_PLACES = [(k, p) for k in KEYS for p in PLACES]


@pytest.mark.parametrize(("key", "place"), IN_PLACES)
def test_a_name_is_hidden_wherever_it_occurs(key: str, place: str, tmp_path: Path) -> None:
    for name_first in (True, False):
        said = connecting()
        if name_first:
            publishing(said, key)
        PLACES[place](said, key)
        if not name_first:
            publishing(said, key)
        assert shown(said, key, tmp_path) == []


@pytest.mark.parametrize("place", GLUED)
def test_a_name_with_letters_and_digits_is_hidden_inside_a_word(place: str, tmp_path: Path) -> None:
    for other_names in (0, 20):  # many lengths
        said = connecting()
        publishing(said, KEY)
        for number in range(other_names):
            said.command(0, "play", 0, None, "n" * (30 + number), stream_id=2)
        GLUED[place](said, KEY)
        assert shown(said, KEY, tmp_path) == []


@pytest.mark.parametrize(
    ("key", "word"), [("live1", "alive10"), ("livestream", "livestreams"), ("20240101", "v20240101b")]
)
def test_ordinary_words_that_contain_a_name_stay(key: str, word: str, tmp_path: Path) -> None:
    said = connecting()
    publishing(said, key)
    PLACES["text"](said, word)
    assert "commands.args" in shown(said, word, tmp_path)


@pytest.mark.parametrize("name", ["mp4:{}.mp4", "instance/{}", "{}?a=1"])
def test_the_key_is_found_without_what_belongs_to_the_name(name: str, tmp_path: Path) -> None:
    said = connecting()
    publishing(said, name.format(KEY))
    PLACES["path"](said, KEY)
    assert shown(said, KEY, tmp_path) == []


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_fields_that_are_secrets_by_their_name_or_form(fields: dict[str, object], tmp_path: Path) -> None:
    said = connecting(**fields)
    publishing(said, "cam")
    PLACES["text"](said, "something else")
    assert shown(said, KEY, tmp_path) == []


def test_no_saved_state_contains_the_key(tmp_path: Path) -> None:
    core, dissector = AnalysisCore(redacting(), ALL_TABLES), Dissector()
    states = 0
    for block in open_capture(planted(tmp_path / "planted.pcap")):
        for packet in range(len(block)):
            window = block.select([packet])
            core.feed(window, dissector.segments(window), 0)
            for found in core.open_connections(0):
                if found.state["analysis"] is not None:
                    shown = json.dumps(found.state["analysis"], default=str)
                    assert KEY not in shown
                    assert KEY.encode().hex() not in shown
                    states += 1
    assert states > 20


@pytest.mark.parametrize("words", [["inspect"], ["inspect", "--json"], ["check", "--json"], ["check"]])
def test_no_output_contains_the_key(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main([*words, str(planted(tmp_path / "planted.pcap"))])
    printed = capsys.readouterr()
    assert printed.out
    assert KEY not in printed.out + printed.err


def test_no_report_contains_the_key(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert cli.main(["report", str(planted(tmp_path / "planted.pcap")), "-o", str(page)]) == 0
    assert KEY not in page.read_text()


def test_no_packet_comment_of_a_slice_contains_the_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "slice.pcapng"
    assert cli.main(["slice", str(planted(tmp_path / "planted.pcap")), "-o", str(target)]) == 0
    comments = list(comment_options(target.read_bytes()))
    assert len(comments) > 3
    assert not [comment for comment in comments if KEY.encode() in comment]
    assert KEY not in capsys.readouterr().out


def comment_options(data: bytes) -> Iterator[bytes]:
    """The comments of the section and of enhanced packet blocks in a little-endian pcapng (its draft, 3.5 and 4)."""
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        option = at + (24 if kind == 0x0A0D0D0A else 28 + (int.from_bytes(data[at + 20 : at + 24], "little") + 3 & ~3))
        while kind in (6, 0x0A0D0D0A) and option < at + length - 4:
            code, size = struct.unpack_from("<HH", data, option)
            if code == 1:
                yield data[option + 4 : option + 4 + size]
            option += 4 + (size + 3 & ~3)
        at += length


def test_extract_warns_that_metadata_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = planted(tmp_path / "planted.pcap", media=True), tmp_path / "planted.flv"
    assert cli.main(["extract", str(source), "-o", str(target)]) == 0
    printed = capsys.readouterr()
    assert KEY.encode() in target.read_bytes()
    assert "keeps its metadata as sent" in printed.err
    assert KEY not in printed.out + printed.err
    assert cli.main(["extract", str(source), "-o", str(target), "--keep-secrets"]) == 0
    assert capsys.readouterr().err == ""


def test_extract_does_not_warn_without_a_secret(
    sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = sample_pcaps / "gst_rtmp2sink_publish_h264_aac.pcap"
    assert cli.main(["extract", str(source), "-o", f"{tmp_path}/"]) == 0
    assert capsys.readouterr().err == ""
