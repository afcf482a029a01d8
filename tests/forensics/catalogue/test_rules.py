"""Every rule has complete texts; its generators and vectors exist."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from kit.handmade_facts import SAMPLES

from rtmp_relay.faults.fault_catalogue import CATALOGUE as GENERATORS
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.forensics.catalogue.rules import CATALOGUE, FAMILIES, document, entry, reproduce, severities
from rtmp_spark.vectors import BUNDLED

ROOT = Path(__file__).parents[3]
ONE_DIRECTION = ("HS_", "CHUNK_", "MSG_", "CTRL_", "AMF_")
NEEDS_MORE = {"CTRL_PING_UNANSWERED", "CHUNK_RESYNC", "CHUNK_LIMIT", "MSG_ABORTED"}


def test_every_code_has_an_entry_in_a_known_family() -> None:
    assert set(CATALOGUE) == set(ViolationCode)
    assert {code.value.partition("_")[0] for code in ViolationCode} == set(FAMILIES)


@pytest.mark.parametrize("code", list(ViolationCode), ids=lambda code: code.value)
def test_an_entry_has_complete_texts(code: ViolationCode) -> None:
    found = CATALOGUE[code]
    assert not found.title.endswith(".") and len(found.title) < 70
    for text in (found.when, found.why, found.remedy):
        assert text.endswith(".") and len(text) > 10 and text[0] == text[0].upper()
    for cause in found.causes:
        assert all(text[0].isupper() and text.endswith(".") for text in cause[1:])
    assert len(set(severities(code))) == len(severities(code))
    assert entry(code).title == found.title


@pytest.mark.parametrize("code", list(ViolationCode), ids=lambda code: code.value)
def test_a_rule_with_a_generator_shows_its_command(code: ViolationCode) -> None:
    shown = reproduce(code)
    assert (shown is not None) == (code in GENERATORS)
    if shown is not None:
        side = "client" if shown.startswith("rtmp-spark publish") else "server"
        assert side in GENERATORS[code].sides


def test_a_rule_of_one_direction_has_a_vector() -> None:
    names = {path.stem for path in (BUNDLED / "invalid").rglob("*.json")}
    for code in ViolationCode:
        if code.value.startswith(ONE_DIRECTION) and code.value not in NEEDS_MORE:
            assert any(name == code.value or name.startswith(code.value + "_") for name in names), code


def test_the_document_is_up_to_date() -> None:
    written = (ROOT / "docs" / "findings.md").read_text()
    assert written == document(), "run: python -m rtmp_spark.forensics.catalogue.rules > docs/findings.md"


@pytest.mark.peers
@pytest.mark.parametrize("program", ["tshark"], indirect=True)
def test_tshark_accepts_the_display_filters(program: str) -> None:
    filters = " || ".join(f"({entry.wireshark})" for entry in CATALOGUE.values() if entry.wireshark)
    command = [program, "-r", str(SAMPLES / "ffmpeg_publish_h264_aac.pcap"), "-c", "1", "-Y", filters]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
