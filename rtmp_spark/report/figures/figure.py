"""What is to be drawn, as plain values: series of points, lanes of spans beneath them, marks across them.

A figure can be made on an executor and drawn elsewhere: `as_json` and `from_json` keep everything. It knows nothing
of SVG, colours or browsers. x is seconds since the start of the connection unless the figure says otherwise.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rtmp_spark.report.thin import SLICES, Numbers, kept, medians

LINE, DOTS, STEMS, BARS = "line", "dots", "stems", "bars"


@dataclass(frozen=True)
class Series:
    """Points of one kind. `role` says what they are (video, audio, key, ...), which decides the colour."""

    name: str
    role: str
    style: str
    x: list[float]
    y: list[float]
    total: int  # points before thinning
    base: list[float] = field(default_factory=list)  # of bars that stand on others
    width: float = 1.0  # of bars, on the x axis


@dataclass(frozen=True)
class Lane:
    """Spans of time beneath the axis, each with words for a pointer: (from, to, words)."""

    name: str
    role: str
    spans: list[tuple[float, float, str]]


@dataclass(frozen=True)
class Mark:
    x: float
    role: str
    words: str


@dataclass(frozen=True)
class Figure:
    """One plot. `missing` says why there is nothing to draw, when there is nothing."""

    key: str
    title: str
    unit: str  # b/s, B, ms, s, count: how values are written
    series: list[Series] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    note: str = ""
    hint: str = ""  # how to read it
    missing: str = ""
    height: int = 180

    @property
    def empty(self) -> bool:
        return not any(series.x for series in self.series)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Figure:
        parts = dict(value)
        parts["series"] = [Series(**one) for one in value["series"]]
        parts["lanes"] = [
            Lane(one["name"], one["role"], [(a, b, c) for a, b, c in one["spans"]]) for one in value["lanes"]
        ]
        parts["marks"] = [Mark(**one) for one in value["marks"]]
        return cls(**parts)


def thinned(name: str, role: str, style: str, x: Numbers, y: Numbers, slices: int = SLICES) -> Series:
    """A series of the points that matter of these."""
    stay = kept(x, y, slices)
    return Series(name, role, style, _rounded(x[stay]), _rounded(y[stay]), len(x))


def summed_up(name: str, role: str, x: Numbers, y: Numbers, slices: int = SLICES) -> list[Series]:
    """A line; of many points the median of each slice as the line, and the extremes around it as dots."""
    if len(x) <= 4 * slices:
        return [thinned(name, role, LINE, x, y, slices)]
    places, values = medians(x, y, slices // 2)
    line = Series(name, role, LINE, _rounded(places), _rounded(values), 0)
    around = thinned(f"{name}, extremes", f"{role} faint", DOTS, x, y, slices // 2)
    return [around, line]


def _rounded(values: Numbers) -> list[float]:
    return [round(float(value), 3) for value in values]
