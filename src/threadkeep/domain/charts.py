"""Charts as SVG, for pages and files: nothing has to run where they are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10
from typing import Final

WIDTH: Final = 640
HEIGHT: Final = 200
LEFT: Final = 52  # for the labels of the axis
RIGHT: Final = 6
TOP: Final = 8
BOTTOM: Final = 22
LINE: Final = 12  # of a label below the axis
TICKS: Final = 4
MAX_LABELS: Final = 8  # below the axis
_STEPS: Final = (4, 8, 12, 16, 20, 24, 32, 40)  # a quarter of each is a whole number


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid, or a label below the axis: where, and its text, which may have several lines."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A column: its parts (upper edge, height and class of each), what it says, and what it leads to."""

    x: float
    width: float
    parts: Sequence[tuple[float, float, str]]
    title: str
    href: str | None

    def svg(self) -> str:
        """Return it as an element of SVG."""
        title = escape(self.title)
        link = f'a href="{escape(self.href)}" aria-label="{title}"' if self.href else "g"
        rects = (
            f'<rect class="{color}" x="{self.x}" y="{y}" width="{self.width}" height="{height}"/>'
            for y, height, color in self.parts
        )
        return f"<{link}><title>{title}</title>{''.join(rects)}</{link[0]}>"


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points: its path, the points with what they say, and its number, from 1."""

    path: str
    points: Sequence[tuple[float, float, str]]
    number: int

    def svg(self) -> str:
        """Return it as elements of SVG."""
        dots = (
            f'<circle class="d{self.number}" cx="{x}" cy="{y}" r="2.6"><title>{escape(words)}</title></circle>'
            for x, y, words in self.points
        )
        return f'<path class="l{self.number}" d="{self.path}"/>{"".join(dots)}'


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of columns or lines over times."""

    columns: Sequence[Bar]
    lines: Sequence[Curve]
    ticks: Sequence[Tick]
    labels: Sequence[Tick]
    base: int = HEIGHT - BOTTOM

    @property
    def height(self) -> int:
        """The height, with all lines of the labels below the axis."""
        return self.base + BOTTOM + LINE * max((tick.label.count("\n") for tick in self.labels), default=0)

    def svg(self, title: str, place: str = "") -> str:
        """Return the chart as SVG, to be styled by classes: grid, axis, k1, k2 … (columns), l1 and d1 … (lines).

        Args:
            title: what is shown, for those who do not see it.
            place: further attributes of the element, such as where it is in another one.
        """
        grid = (
            f'<line class="{"grid" if number else "axis"}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{tick.at}" '
            f'y2="{tick.at}"/><text x="{LEFT - 6}" y="{tick.at + 3.5}" text-anchor="end">{escape(tick.label)}</text>'
            for number, tick in enumerate(self.ticks)
        )
        labels = (
            f'<text x="{tick.at}" y="{self.base + 16 + LINE * number}" text-anchor="middle">{escape(line)}</text>'
            for tick in self.labels
            for number, line in enumerate(tick.label.split("\n"))
        )
        columns = (column.svg() for column in self.columns if column.parts)
        parts = "\n".join([*grid, *labels, *columns, *(line.svg() for line in self.lines)])
        box = f'viewBox="0 0 {WIDTH} {self.height}" role="group" aria-label="{escape(title)}"'
        return f"<svg {box}{place and ' '}{place}>\n{parts}\n</svg>"


@dataclass(frozen=True, slots=True)
class Day:
    """What a column shows: a label, values from below to above, what it says, and what it leads to."""

    label: str
    values: Sequence[float]
    title: str
    href: str | None = None


@dataclass(frozen=True, slots=True)
class _Axes:
    """Where values and times are: the largest value, the number of times, and the height of the axis from above."""

    most: float
    count: int
    base: int

    @property
    def step(self) -> float:
        return (WIDTH - LEFT - RIGHT) / max(1, self.count)

    def height(self, value: float) -> float:
        return (self.base - TOP) * value / self.most

    def ticks(self, text: Callable[[float], str]) -> list[Tick]:
        values = [self.most * number / TICKS for number in range(TICKS + 1)]
        return [Tick(round(self.base - self.height(value), 2), text(value)) for value in values]

    def labels(self, labels: Sequence[str]) -> list[Tick]:
        every = -(-len(labels) // MAX_LABELS) or 1
        return [
            Tick(round(LEFT + (number + 0.5) * self.step, 2), label)
            for number, label in enumerate(labels)
            if not number % every
        ]


def columns(days: Sequence[Day], text: Callable[[float], str], base: int = HEIGHT - BOTTOM) -> Chart:
    """Return a chart of stacked columns; `text` writes the values of the axis, which is `base` units from above."""
    frame = _Axes(_ceiling(max((sum(day.values) for day in days), default=0)), len(days), base)
    width = max(1.0, frame.step * 0.78)
    drawn = []
    for number, day in enumerate(days):
        parts, y = [], float(base)
        for kind, value in enumerate(day.values, 1):
            height = frame.height(value)
            y -= height
            if height > 0:
                parts.append((round(y, 2), round(height, 2), f"k{kind}"))
        x = LEFT + number * frame.step + (frame.step - width) / 2
        drawn.append(Bar(round(x, 2), round(width, 2), parts, day.title, day.href))
    return Chart(drawn, (), frame.ticks(text), frame.labels([day.label for day in days]), base)


def lines(
    labels: Sequence[str],
    series: Sequence[Sequence[float | None]],
    text: Callable[[float], str],
    base: int = HEIGHT - BOTTOM,
) -> Chart:
    """Return a chart of lines; where a value is unknown, a line is interrupted."""
    most = max((value for values in series for value in values if value is not None), default=0)
    frame = _Axes(_ceiling(most), len(labels), base)
    drawn = []
    for number, values in enumerate(series, 1):
        points, path, is_down = [], [], False
        for index, value in enumerate(values):
            if value is not None:
                x = round(LEFT + (index + 0.5) * frame.step, 2)
                y = round(base - frame.height(value), 2)
                path.append(f"{'L' if is_down else 'M'}{x} {y}")
                points.append((x, y, f"{labels[index]}: {text(value)}"))
            is_down = value is not None
        drawn.append(Curve(" ".join(path), points, number))
    return Chart((), drawn, frame.ticks(text), frame.labels(labels), base)


def _ceiling(value: float) -> float:
    """A round number above a value."""
    if value <= 0:
        return 1.0
    power = floor(log10(value)) - 1
    return next(step * 10.0**one for one in (power, power + 1) for step in _STEPS if step * 10.0**one >= value)
