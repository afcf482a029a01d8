"""What a notebook cell shows: HTML in the browser, text where it is printed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@cache
def asset(name: str) -> str:
    """The text of a bundled style sheet or script."""
    return files("rtmp_spark.report").joinpath("assets", name).read_text("utf-8")


@dataclass(frozen=True)
class Panel:
    """HTML for a notebook, text for a terminal."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return f"<style>{asset('report.css')}</style><div class='rs'>{self.html}</div>"

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__
