"""Charts as geometry: templates draw them as SVG, so that nothing has to run in the browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Final

WIDTH: Final = 640
HEIGHT: Final = 200
LEFT: Final = 52  # for the labels of the axis
RIGHT: Final = 6
TOP: Final = 8
BOTTOM: Final = 22
TICKS: Final = 4
MAX_LABELS: Final = 8  # below the axis
_STEPS: Final = (4, 8, 12, 16, 20, 24, 32, 40)  # a quarter of each is a whole number


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid, or a label below the axis: where, and its text."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a column: its upper edge, its height, and the name of its colour."""

    y: float
    height: float
    color: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its parts, what it says, and what it leads to."""

    x: float
    width: float
    segments: Sequence[Segment]
    title: str
    href: str | None


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points: its path, the points with what they say, and the name of its colour."""

    path: str
    points: Sequence[tuple[float, float, str]]
    color: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of columns or lines over days."""

    columns: Sequence[Column]
    lines: Sequence[Line]
    ticks: Sequence[Tick]
    labels: Sequence[Tick]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    base: int = HEIGHT - BOTTOM
    right: int = WIDTH - RIGHT


@dataclass(frozen=True, slots=True)
class Day:
    """What a column shows: a label, values from below to above, what it says, and what it leads to."""

    label: str
    values: Sequence[float]
    title: str
    href: str | None = None


def columns(days: Sequence[Day], text: Callable[[float], str]) -> Chart:
    """Return a chart of stacked columns; `text` writes the values of the axis."""
    most = _ceiling(max((sum(day.values) for day in days), default=0))
    step = (WIDTH - LEFT - RIGHT) / max(1, len(days))
    drawn = []
    for number, day in enumerate(days):
        segments, y = [], float(HEIGHT - BOTTOM)
        for kind, value in enumerate(day.values):
            height = _scaled(value, most)
            y -= height
            if height > 0:
                segments.append(Segment(round(y, 2), round(height, 2), f"k{kind + 1}"))
        x, width = LEFT + number * step, max(1.0, step * 0.78)
        drawn.append(Column(round(x + (step - width) / 2, 2), round(width, 2), segments, day.title, day.href))
    return Chart(drawn, (), _ticks(most, text), _labels([day.label for day in days], step))


def lines(labels: Sequence[str], series: Sequence[Sequence[float | None]], text: Callable[[float], str]) -> Chart:
    """Return a chart of lines; where a value is unknown, a line is interrupted."""
    most = _ceiling(max((value for values in series for value in values if value is not None), default=0))
    step = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    drawn = []
    for number, values in enumerate(series):
        points, path, is_down = [], [], False
        for index, value in enumerate(values):
            if value is None:
                is_down = False
                continue
            x = round(LEFT + (index + 0.5) * step, 2)
            y = round(HEIGHT - BOTTOM - _scaled(value, most), 2)
            path.append(f"{'L' if is_down else 'M'}{x} {y}")
            points.append((x, y, f"{labels[index]}: {text(value)}"))
            is_down = True
        drawn.append(Line(" ".join(path), points, f"l{number + 1}"))
    return Chart((), drawn, _ticks(most, text), _labels(labels, step))


def _scaled(value: float, most: float) -> float:
    return (HEIGHT - TOP - BOTTOM) * value / most if most else 0.0


def _ceiling(value: float) -> float:
    """A round number above a value."""
    if value <= 0:
        return 1.0
    power = floor(log10(value)) - 1
    return next(step * 10.0**one for one in (power, power + 1) for step in _STEPS if step * 10.0**one >= value)


def _ticks(most: float, text: Callable[[float], str]) -> list[Tick]:
    values = [most * number / TICKS for number in range(TICKS + 1)]
    return [Tick(round(HEIGHT - BOTTOM - _scaled(value, most), 2), text(value)) for value in values]


def _labels(labels: Sequence[str], step: float) -> list[Tick]:
    every = -(-len(labels) // MAX_LABELS) or 1
    return [
        Tick(round(LEFT + (number + 0.5) * step, 2), label) for number, label in enumerate(labels) if not number % every
    ]


def percentile(values: Sequence[int], share: float) -> float | None:
    """Return the value below which a share (0 to 1) of the values lies; None of none.

    >>> percentile([10, 20, 30, 40], 0.5)
    25.0
    """
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
