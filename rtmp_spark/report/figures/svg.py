"""Figures as inline SVG in HTML. They are readable without scripts and fill the available width.

The SVG coordinates are the units of the data, and the plot is stretched without keeping proportions. Strokes and dots
are not stretched, and all labels are HTML outside the SVG. The script zooms by changing `viewBox` and reads the points
from the paths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rtmp_spark.report import page_text, units
from rtmp_spark.report.figures.figure import BARS, DOTS, LINE, STEMS, Figure, Lane, Mark, Series


def draw(figure: Figure, x_range: tuple[float, float] | None = None, flags: Sequence[Mark] = ()) -> str:
    """The figure as one `<figure>` element. `flags` are shown at the top edge of the plot."""
    caption = f"<figcaption><span class='t'>{page_text.escape(figure.title)}</span>{_legend(figure)}</figcaption>"
    if figure.empty:
        why = figure.missing or "No data was recorded."
        return f"<figure class='chart'>{caption}<p class='missing'>{page_text.escape(why, 600)}</p></figure>"
    x_low, x_high = x_range or _x_range(figure)
    if x_high - x_low < 1e-3:
        x_low, x_high = x_low - 0.5, x_high + 0.5
    y_low, y_high, ticks = _y_axis(figure)
    inside = [_grid(x_low, x_high, ticks), *(_mark(mark, y_low, y_high) for mark in figure.marks)]
    inside += [_series(series) for series in figure.series if series.x]
    box = f"{_n(x_low)} {_n(-y_high)} {_n(x_high - x_low)} {_n(y_high - y_low)}"
    labels = "".join(
        f"<span style='top:{(y_high - tick) / (y_high - y_low):.2%}'>{text}</span>"
        for tick, text in zip(ticks, axis_texts(ticks, figure.unit))
    )
    x_labels = "".join(
        f"<span{label_edge((tick - x_low) / (x_high - x_low))}>{time_text(tick, x_high - x_low)}</span>"
        for tick in nice_ticks(x_low, x_high, 6, time=True)
    )
    lanes = "".join(_lane(lane, x_low, x_high) for lane in figure.lanes)
    marks = "".join(
        f"<span class='{m.role}' style='left:{(m.x - x_low) / (x_high - x_low):.2%}'>{page_text.escape(m.words)}</span>"
        for m in figure.marks
    )
    flagged = "".join(
        f"<i class='{flag.role}' data-x='{_n(flag.x)}' style='left:{(flag.x - x_low) / (x_high - x_low):.2%}' "
        f"title='{page_text.escape(flag.words)}'></i>"
        for flag in flags
        if x_low <= flag.x <= x_high
    )
    return (
        f"<figure class='chart' data-unit='{figure.unit}' data-x='{_n(x_low)} {_n(x_high)}'>{caption}"
        f"<div class='plot'><div class='ylabels'>{labels}</div>"
        f"<div class='area' style='height:{figure.height}px'>"
        f"<svg viewBox='{box}' preserveAspectRatio='none' role='img' aria-label='{page_text.escape(figure.title)}'>"
        f"<g transform='scale(1,-1)'>{''.join(inside)}</g></svg>"
        f"<div class='marks'>{marks}</div><div class='flags'>{flagged}</div></div>"
        f"<div class='xlabels'>{x_labels}</div>{lanes}</div>{_note(figure)}</figure>"
    )


def label_edge(share: float) -> str:
    """The position of a label on the x axis. Near an end it is not centred, so that it stays inside the plot."""
    return f" style='left:{share:.2%};transform:translateX(-{share:.2%})'"


# Larger units of an axis: (from this value on, divisor, name). The script has the same table.
_SCALES = {
    "b/s": ((1e6, 1e6, "Mb/s"), (0, 1e3, "kb/s")),
    "B": ((1e9, 1e9, "GB"), (1e6, 1e6, "MB"), (1e3, 1e3, "kB"), (0, 1, "B")),
    "ms": ((1e4, 1e3, "s"), (0, 1, "ms")),
    "s": ((0, 1, "s"),),
}


def value_text(value: float, unit: str) -> str:
    """A single value in the unit that fits it."""
    return axis_texts([value], unit, 3 if unit in ("b/s", "B") else 4)[0]


def axis_texts(ticks: Sequence[float], unit: str, digits: int = 4) -> list[str]:
    """The labels of an axis, all in the unit that fits the largest value."""
    largest = max((abs(tick) for tick in ticks), default=0.0)
    divisor, name = next(((d, n) for least, d, n in _SCALES.get(unit, ()) if largest >= least), (1.0, ""))
    return [f"{units.number(tick / divisor, digits)} {name}".rstrip() for tick in ticks]


def time_text(seconds: float, span: float) -> str:
    """A time on the x axis, as precise as the length of the axis requires."""
    if span < 180:
        digits = 0 if span >= 5 else 1 if span >= 0.5 else 3
        return f"{seconds:.{digits}f} s"
    sign, whole = ("-" if seconds < 0 else ""), abs(round(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{sign}{hours}:{rest // 60:02}:{rest % 60:02}" if span >= 3600 else f"{sign}{whole // 60}:{whole % 60:02}"


def _n(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") or "0"


def _x_range(figure: Figure) -> tuple[float, float]:
    low = min(min(series.x) for series in figure.series if series.x)
    high = max(max(s.x) + (s.width if s.style == BARS else 0) for s in figure.series if s.x)
    return low, high


def _y_axis(figure: Figure) -> tuple[float, float, list[float]]:
    values = [y + base for series in figure.series for y, base in zip(series.y, series.base or [0.0] * len(series.y))]
    low, high = min(values), max(values)
    if low > 0 and (low < 0.6 * high or any(s.style in (BARS, STEMS) for s in figure.series)):
        low = 0.0
    if high < 0 and high > 0.4 * low:
        high = 0.0
    if high <= low:
        low, high = (max(low - 1, 0.0) if low > 0 else low - 1, high + 1) if low else (0.0, 1.0)
    found = nice_ticks(low, high, 4)
    step = found[1] - found[0] if len(found) > 1 else high - low
    margin = (high - low) * 0.06
    high = max(high + margin, found[-1])
    low = low if low == 0 else min(low - margin, found[0])
    return low, high, [tick for tick in found if low <= tick <= high] or [low, low + step]


def nice_ticks(low: float, high: float, wanted: int, *, time: bool = False) -> list[float]:
    rough = (high - low) / max(wanted, 1)
    if rough <= 0 or not math.isfinite(rough):
        return [low]
    if time and rough > 5:
        steps = (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
        step = float(next((s for s in steps if s >= rough), 86400 * math.ceil(rough / 86400)))
    else:
        scale = 10.0 ** math.floor(math.log10(rough))
        factors = (1, 2, 5, 10) if time else (1, 2, 2.5, 5, 10)  # no half seconds on a time axis
        step = next(m * scale for m in factors if m * scale >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [tick * step for tick in range(first, math.floor(high / step + 1e-9) + 1)]


def _grid(x_low: float, x_high: float, ticks: list[float]) -> str:
    return "<path class='grid' d='" + "".join(f"M{_n(x_low)},{_n(y)}H{_n(x_high)}" for y in ticks) + "'/>"


def _mark(mark: Mark, low: float, high: float) -> str:
    return f"<path class='mark {mark.role}' d='M{_n(mark.x)},{_n(low)}V{_n(high)}'/>"


def _series(series: Series) -> str:
    points = list(zip(map(_n, series.x), map(_n, series.y)))
    style = (
        DOTS if len(points) == 1 and series.style == LINE else series.style
    )  # a line with one point would be invisible
    if style == DOTS:
        path = "".join(f"M{x},{y}h0" for x, y in points)
    elif series.style == STEMS:
        path = "".join(f"M{x},0V{y}" for x, y in points)
    elif series.style == BARS:
        bases = series.base or [0.0] * len(points)
        path = "".join(
            f"M{_n(x)},{_n(base)}V{_n(base + y)}H{_n(x + series.width)}V{_n(base)}"
            for x, y, base in zip(series.x, series.y, bases)
        )
    else:
        path = "M" + "L".join(f"{x},{y}" for x, y in points)
    return f"<path class='{style} {series.role}' data-name='{page_text.escape(series.name)}' d='{path}'/>"


def _lane(lane: Lane, low: float, high: float) -> str:
    heights = lane.heights or [1.0] * len(lane.spans)
    bars = "".join(
        f"<rect x='{_n(start)}' y='{_n(1 - height)}' width='{_n(max(stop - start, (high - low) / 400))}' "
        f"height='{_n(height)}'><title>{page_text.escape(what)}</title></rect>"
        for (start, stop, what), height in zip(lane.spans, heights)
    )
    box = f"{_n(low)} 0 {_n(high - low)} 1"
    return (
        f"<div class='lane {lane.role}{' bars' if lane.heights else ''}'><span>{page_text.escape(lane.name)}</span>"
        f"<svg viewBox='{box}' preserveAspectRatio='none'>{bars}</svg></div>"
    )


def _legend(figure: Figure) -> str:
    shown = [s for s in figure.series if s.x]
    if not shown:
        return ""
    keys = "".join(f"<span class='k {s.role} {s.style}'>{page_text.escape(s.name)}</span>" for s in shown)
    return f"<span class='legend'>{keys}</span>"


def _note(figure: Figure) -> str:
    drawn = sum(len(series.x) for series in figure.series)
    total = sum(series.total for series in figure.series)
    words = [part for part in (figure.note, figure.hint) if part]
    if drawn < total:
        words.append(f"{drawn:,} of {total:,} points drawn: the first, last, lowest and highest of each slice.")
    return f"<p class='note'>{page_text.escape(' '.join(words), 600)}</p>" if words else ""
