"""Strings from the wire are shown and do nothing."""

from __future__ import annotations

import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtmp_spark.report import text


class Words(HTMLParser):
    """What a browser would show, and which tags it would make."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.shown = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.shown += data


@given(st.text())
def test_any_text_is_text(value: str) -> None:
    words = Words(f"<p>{text.wire(value)}</p>")
    assert words.tags == ["p", "bdi"]
    assert not [c for c in words.shown if unicodedata.category(c) in ("Cc", "Cs") or c in "\u202a\u202e\u2066\u200f"]


@given(st.text())
def test_any_text_is_one_attribute(value: str) -> None:
    words = Words(f"<p title='{text.escape(value)}' class=\"{text.escape(value)}\"></p>")
    assert words.tags == ["p"]
    assert words.shown == ""


def test_long_text_is_cut_and_says_so() -> None:
    shown = text.harmless("x" * 65_536)
    assert len(shown) < 300
    assert "65,536 characters" in shown


def test_invisible_characters_become_visible() -> None:
    assert text.harmless("a\x00b\nc\u202ed\x7f") == "a␀b␊c⟨U+202E⟩d␡"


def test_code_in_our_own_sentences() -> None:
    assert text.prose("run `tcpdump -B <n>`") == "Run <code>tcpdump -B &lt;n&gt;</code>"


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(0.5, "0.5 ms"), (44, "44 ms"), (5200, "5.2 s"), (150_000, "2 min 30 s"), (16_777_215, "4 h 39 min")],
)
def test_spans(milliseconds: float, words: str) -> None:
    assert text.span(milliseconds) == words


@pytest.mark.parametrize(
    ("bits", "words"), [(0, "0 kb/s"), (64_300, "64.3 kb/s"), (999_000, "999 kb/s"), (5_440_000, "5.44 Mb/s")]
)
def test_bitrates(bits: float, words: str) -> None:
    assert text.bitrate(bits) == words
