"""A figure as plain values: series of points, lanes of time spans below them, vertical marks.

A Spark executor can make a figure and the driver can draw it: `as_json` and `from_json` keep everything. Figures know
nothing of SVG, colours or browsers. x is seconds since the start of the connection.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rtmp_spark.report.figures.downsampling import SLICES, Numbers, kept, medians

LINE, DOTS, STEMS, BARS = "line", "dots", "stems", "bars"


@dataclass(frozen=True)
class Series:
    """Points of one kind. `role` (video, audio, key, ...) decides the colour."""

    name: str
    role: str
    style: str
    x: list[float]
    y: list[float]
    total: int  # number of points before downsampling
    base: list[float] = field(default_factory=list)  # lower ends of stacked bars
    width: float = 1.0  # of bars, in x units


@dataclass(frozen=True)
class Lane:
    """Time spans below the axis, each with a tooltip: (from, to, tooltip). `heights` (0 to 1) makes them bars."""

    name: str
    role: str
    spans: list[tuple[float, float, str]]
    heights: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Mark:
    x: float
    role: str
    words: str


@dataclass(frozen=True)
class Figure:
    """One plot. `missing` says why there is nothing to draw."""

    key: str
    title: str
    unit: str  # b/s, B, ms, s or count
    series: list[Series] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    note: str = ""
    hint: str = ""  # how to read the plot
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
            Lane(one["name"], one["role"], [(a, b, c) for a, b, c in one["spans"]], one["heights"])
            for one in value["lanes"]
        ]
        parts["marks"] = [Mark(**one) for one in value["marks"]]
        return cls(**parts)


def downsampled(name: str, role: str, style: str, x: Numbers, y: Numbers, slices: int = SLICES) -> Series:
    """A downsampled series."""
    stay = kept(x, y, slices)
    return Series(name, role, style, _rounded(x[stay]), _rounded(y[stay]), len(x))


def median_line(name: str, role: str, x: Numbers, y: Numbers, slices: int = SLICES) -> list[Series]:
    """A line through all points; if there are too many, the median of each slice as a line and the extremes as dots."""
    if len(x) <= 4 * slices:
        return [downsampled(name, role, LINE, x, y, slices)]
    places, values = medians(x, y, slices // 2)
    line = Series(name, role, LINE, _rounded(places), _rounded(values), 0)
    around = downsampled(f"{name}, extremes", f"{role} faint", DOTS, x, y, slices // 2)
    return [around, line]


def _rounded(values: Numbers) -> list[float]:
    return [round(float(value), 3) for value in values]
