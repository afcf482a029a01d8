"""Strings from the network are shown as text and cannot change the page."""

from __future__ import annotations

import unicodedata
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from rtmp_spark.report import page_text


class Words(HTMLParser):
    """The text that a browser would show, and the tags it would create."""

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
def test_any_text_stays_text(value: str) -> None:
    words = Words(f"<p>{page_text.untrusted(value)}</p>")
    assert words.tags == ["p", "bdi"]
    assert not [c for c in words.shown if unicodedata.category(c) in ("Cc", "Cs") or c in "\u202a\u202e\u2066\u200f"]


@given(st.text())
def test_any_text_stays_one_attribute(value: str) -> None:
    words = Words(f"<p title='{page_text.escape(value)}' class=\"{page_text.escape(value)}\"></p>")
    assert words.tags == ["p"]
    assert words.shown == ""


def test_long_text_is_cut_with_a_note_of_its_length() -> None:
    shown = page_text.printable("x" * 65_536)
    assert len(shown) < 300
    assert "65,536 characters" in shown


def test_invisible_characters_become_visible() -> None:
    assert page_text.printable("a\x00b\nc\u202ed\x7f") == "a␀b␊c⟨U+202E⟩d␡"


def test_backticks_become_code() -> None:
    assert page_text.prose("run `tcpdump -B <n>`") == "Run <code>tcpdump -B &lt;n&gt;</code>"
