"""Colours of text differ enough from their background: 4.5 to 1 (WCAG 2.2, 1.4.3)."""

from __future__ import annotations

import re

import pytest

from rtmp_spark.report.panel import asset

CSS = asset("report.css")
TEXT = ("--ink", "--dim", "--bad", "--warn", "--ok", "--info", "--video", "--absent", "--window", "--key")


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def themes() -> list[dict[str, str]]:
    """The custom properties of each block that sets them: light, dark by preference, dark by choice."""
    blocks = re.findall(r"\{([^{}]*--ink:[^{}]*)\}", CSS)
    return [dict(re.findall(r"(--[a-z]+): (#[0-9a-f]{6})", block)) for block in blocks]


def test_there_are_three_themes() -> None:
    assert len(themes()) == 3 and themes()[1] == themes()[2]


@pytest.mark.parametrize("theme", themes(), ids=["light", "dark", "dark chosen"])
@pytest.mark.parametrize("name", TEXT)
def test_text_on_paper_and_page(theme: dict[str, str], name: str) -> None:
    for background in ("--paper", "--soft") if name != "--dim" else ("--paper", "--soft", "--page"):
        assert contrast(theme[name], theme[background]) >= 4.5, background


def test_white_text_on_badges() -> None:
    colours = re.findall(r"\.badge\.\w+ \{ background: (#[0-9a-f]{6})", CSS)
    assert len(colours) >= 4 and len(set(colours)) == len(colours)
    assert all(contrast("#ffffff", colour) >= 4.5 for colour in colours)
