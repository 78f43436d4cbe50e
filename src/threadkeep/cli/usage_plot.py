"""Plots of usage reports: sums as bars over time, stacked by other keys, means as lines; without time a bar per key."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from html import escape
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from threadkeep.cli.output import NANO, key_text, milliseconds, short
from threadkeep.cli.usage_table import COST, decimals_of, figure_texts, figures_of, measure_of
from threadkeep.domain import charts, printing
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from threadkeep import UsageRow

SUFFIXES: Final = (".svg", ".html")
TIMES: Final = ("hour", "day", "week", "month")
MAX_SERIES: Final = 7  # further ones are drawn as one
MAX_BARS: Final = 25  # likewise bars without a time
OTHERS: Final = ("others", "all others")  # the second one where a series has the name of the first
WIDTH: Final = 860  # of a plot, of which the names of the series have the right quarter
BASE: Final = 300  # the axis, from above
BAR: Final = 22  # the height of a bar without a time, with the gap to the next one
NAMES: Final = 270  # the room for the names of such bars

# Colours that people who see colours differently can tell apart (Okabe and Ito), and grey for the others
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#999999")
INK, GREY, PALE = "#333333", "#777777", "#DDDDDD"
_NOT_IN_XML: Final = re.compile(r"[\n\t\ufffe\uffff]")

TITLES: Final = {
    COST: "Cost", "attempts": "Calls", "input_tokens": "Input tokens", "cached_tokens": "Input tokens from caches",
    "cache_write_tokens": "Input tokens written to caches", "output_tokens": "Output tokens",
    "reasoning_tokens": "Reasoning tokens", "total_tokens": "Tokens", "latency_ms": "Time spent waiting",
    "mean_latency_ms": "Mean latency", "mean_first_token_ms": "Mean time to the first token",
    "mean_cost_usd": "Mean cost of a call",
    "cache_hit_ratio": "Share of the input that came from caches",
}  # fmt: skip
# What is divided by what, also where several rows are drawn as one
MEANS: Final = {
    "mean_latency_ms": ("latency_ms", "latencies"),
    "mean_first_token_ms": ("first_token_ms", "first_tokens"),
    "mean_cost_usd": (COST, "costs"),
    "cache_hit_ratio": ("cached_tokens", "cache_known_tokens"),
}


@dataclass(frozen=True, slots=True)
class Plot:
    """What is drawn."""

    title: str  # above the bars
    measure: str  # the figure that they show
    time: str | None  # what the axis counts: hours, days …; None: the bars lie one below the other
    axis: list[Any]  # the times or names along the axis
    series: dict[str, list[float]]  # the values of each series, one for each of these
    remark: str = ""  # below the bars
    unknown: frozenset[str] = frozenset()  # names of bars whose value is unknown


@dataclass(slots=True)
class _Total:
    """What is drawn at one place, of one or several rows."""

    amount: float = 0.0
    weight: int = 0
    is_known: bool = False

    def add(self, value: tuple[float, int] | None) -> None:
        if value is not None:
            self.amount, self.weight, self.is_known = self.amount + value[0], self.weight + value[1], True

    def figure(self, is_mean: bool, unknown: float = 0.0) -> float:
        if not is_mean:
            return self.amount
        return self.amount / self.weight if self.weight else unknown


def check_plot(path: Path | None, by: Sequence[str]) -> None:
    """Check that a plot with that file name, if one is wanted, can be drawn, before the report is made."""
    if path is None:
        return
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidOption(f"--plot {str(path)!r} must end with {', '.join(SUFFIXES)}.")
    if not by:
        raise InvalidOption("--plot needs --by: a plot compares days, models, users …")


def write_plot(
    path: Path, by: Sequence[str], rows: Sequence[UsageRow], *, measure: str | None = None, about: str = ""
) -> None:
    """Draw a report; `about` says what it is of."""
    plot = plot_of(by, rows, measure or measure_of(rows), about)
    # A plot as a file: its title, what it shows, the names of its series, and what it leaves out
    if not plot.axis or not plot.series:
        drawn, height = f'<text x="{WIDTH / 2}" y="80" text-anchor="middle">nothing to show</text>', 120
    elif plot.time:
        drawn, height = _draw_times(plot)
    else:
        drawn, height = _draw_bars(plot)
    if plot.remark:
        height += 24
        drawn += f'\n<text class="remark" x="12" y="{height - 10}">{escape(plot.remark)}</text>'
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">\n'
        f"<style>{STYLES}</style>\n"
        f'<text class="title" x="12" y="24">{escape(_cut(plot.title, 110))}</text>\n{drawn}\n</svg>\n'
    )
    path.write_text(_page(plot, by, rows, svg) if path.suffix.lower() == ".html" else svg, encoding="utf-8")


def plot_of(by: Sequence[str], rows: Sequence[UsageRow], measure: str, about: str = "") -> Plot:
    """What to draw of a report: the first time among its keys is the axis, the other keys are series."""
    time = next((name for name in by if name in TIMES), None)
    others = [name for name in by if name != time]
    names = zip(rows, _names(rows, others), strict=True)
    values = [(row.keys.get(time) if time else None, name, _value(row, measure)) for row, name in names]
    totals: dict[str, _Total] = {}
    for _, name, value in values:
        totals.setdefault(name, _Total()).add(value)
    title, remark, is_mean = _title(measure, time, others, about), _remark(rows, measure), measure in MEANS
    if time is not None:  # of means the ones of most calls are drawn
        ranks = {name: total.weight if is_mean else total.amount for name, total in totals.items()}
        largest = sorted(filter(ranks.get, ranks), key=lambda name: -ranks[name])
        times = _all_times(time, sorted({at for at, _, _ in values}))
        series = _series(values, largest, times, MAX_SERIES)
        shown = {name: [total.figure(is_mean, math.nan) for total in each] for name, each in series.items()}
        return Plot(title, measure, time, times, shown, remark)
    largest = sorted(totals, key=lambda name: -totals[name].figure(is_mean))
    bars = _series(values, largest, [None], MAX_BARS)
    unknown = frozenset(name for name, total in totals.items() if not total.is_known)
    lengths = [total.figure(is_mean) for (total,) in bars.values()]
    return Plot(title, measure, None, list(bars), {"": lengths}, remark, unknown)


def _title(measure: str, time: str | None, others: Sequence[str], about: str) -> str:
    names = ", ".join(name.removesuffix("_id").replace("_", " ") for name in others)
    parts = (TITLES.get(measure, measure), names and f" by {names}", time and f" per {time}", about and f", {about}")
    return "".join(part for part in parts if part)


def _series(
    values: Iterable[tuple[Any, str, tuple[float, int] | None]], names: Sequence[str], times: Sequence[Any], limit: int
) -> dict[str, list[_Total]]:
    """The totals of each of these series at all times; what is over the limit is one series."""
    others = next((name for name in OTHERS if name not in names), OTHERS[0])
    kept = names if len(names) <= limit + 1 else [*names[:limit], others]
    series = {name: [_Total() for _ in times] for name in kept}
    index = {at: number for number, at in enumerate(times)}
    for at, name, value in values:
        if value is not None and (name in series or others in series):
            series[name if name in series else others][index[at]].add(value)
    return series


def _remark(rows: Sequence[UsageRow], measure: str) -> str:
    """What a plot of costs does not show."""
    attempts, costs = sum(row.attempts for row in rows), sum(row.costs for row in rows)
    if measure not in {COST, "mean_cost_usd"} or attempts == costs:
        return ""
    return f"Without {attempts - costs:,} of {attempts:,} calls, whose cost is unknown."


def _names(rows: Sequence[UsageRow], columns: Sequence[str]) -> list[str]:
    """The name of each row; keys that read like others (None, and a user called unknown) get a number."""
    names: dict[tuple[Any, ...], str] = {}
    keys = [tuple(row.keys[column] for column in columns) for row in rows]
    for key in dict.fromkeys(keys):
        text, used = " / ".join(map(_readable, key)), set(names.values())
        numbered = (f"{text} ({number})" for number in count(2))
        names[key] = text if text not in used else next(name for name in numbered if name not in used)
    return [names[key] for key in keys]


def _readable(key: Any) -> str:
    """A key on one line, without what XML and fonts do not have."""
    text = printing.printable(key_text(key) or "unknown")
    return _NOT_IN_XML.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _value(row: UsageRow, measure: str) -> tuple[float, int] | None:
    """What a row adds to a total, and with which weight; None where it is unknown."""
    amount, weight = MEANS.get(measure, (measure, "attempts"))
    if getattr(row, measure) is None:
        return None
    value = getattr(row, amount)
    return value / NANO if amount == COST else float(value), getattr(row, weight)


def _all_times(kind: str, times: Sequence[Any]) -> list[Any]:
    """All times from the first to the last, also those at which nothing happened."""
    filled = list(times[:1])
    while filled and filled[-1] < times[-1]:
        filled.append(_next(kind, filled[-1]))
    return sorted({*filled, *times})


def _next(kind: str, at: Any) -> Any:
    if kind == "hour":
        return (at + timedelta(hours=1)).astimezone(at.tzinfo)
    if kind == "month":
        return date(at.year + at.month // 12, at.month % 12 + 1, 1)
    return at + timedelta(days=7 if kind == "week" else 1)


# Drawing

COST_DECIMALS: Final = ((50, 0), (0.05, 2), (0.0005, 4))  # on axes: from so many dollars on -> decimals
STYLES: Final = "".join([
    f"svg {{ font: 11px system-ui, sans-serif; fill: {INK}; background: white }} .title {{ font-size: 14px; ",
    f"font-weight: bold }} .remark {{ fill: {GREY} }} .grid, .axis {{ stroke: {PALE} }} path {{ fill: none; ",
    "stroke-width: 2; stroke-linejoin: round }",
    *(
        f" .k{number}, .d{number} {{ fill: {colour} }} .l{number} {{ stroke: {colour} }}"
        for number, colour in enumerate(COLOURS, 1)
    ),
])  # fmt: skip


def _draw_times(plot: Plot) -> tuple[str, int]:
    """Columns over time, stacked, or lines of means, with the names of the series in the order of the columns."""
    labels = time_labels(plot.time, plot.axis)
    if plot.measure in MEANS:
        series = [[None if math.isnan(value) else value for value in values] for values in plot.series.values()]
        largest = max((value for values in series for value in values if value is not None), default=0.0)
        chart = charts.lines(labels, series, _axis_text(plot, largest), BASE)
    else:
        stacks = list(zip(*plot.series.values(), strict=True))
        text = _axis_text(plot, max(map(sum, stacks)))
        words = [f"{' '.join(label.split())}: {text(sum(stack))}" for label, stack in zip(labels, stacks, strict=True)]
        chart = charts.columns([charts.Day(*one) for one in zip(labels, stacks, words, strict=True)], text, BASE)
    place = f'y="36" width="{charts.WIDTH}" height="{chart.height}"'
    drawn = [chart.svg(plot.title, place)]
    for number, name in enumerate(plot.series, 1) if "" not in plot.series else ():
        y = 44 + 18 * (len(plot.series) - number)
        drawn.append(f'<rect class="k{number}" x="{charts.WIDTH + 8}" y="{y}" width="10" height="10"/>')
        drawn.append(f'<text x="{charts.WIDTH + 24}" y="{y + 9}">{escape(_cut(name, 30))}</text>')
    return "\n".join(drawn), 36 + chart.height


def _draw_bars(plot: Plot) -> tuple[str, int]:
    """A bar for each name, the largest one first."""
    [values] = plot.series.values()
    text, scale = _axis_text(plot, max(values)), (WIDTH - NAMES - 90) / (max(values) or 1)
    drawn = []
    for number, (name, value) in enumerate(zip(plot.axis, values, strict=True)):
        y, length = 40 + BAR * number, round(value * scale, 2)
        shown = "unknown" if name in plot.unknown else text(value)
        drawn.append(
            f'<text x="{NAMES - 8}" y="{y + 12}" text-anchor="end">{escape(_cut(name, 44))}</text>'
            f'<rect class="k1" x="{NAMES}" y="{y}" width="{length}" height="{BAR - 6}"/>'
            f'<text x="{NAMES + length + 6}" y="{y + 12}">{shown}</text>'
        )
    return "\n".join(drawn), 48 + BAR * len(values)


def _axis_text(plot: Plot, largest: float) -> Callable[[float], str]:
    return partial(_value_label, measure=plot.measure, largest=largest)


def _value_label(value: float, measure: str, largest: float) -> str:
    """A value on an axis or next to a bar."""
    if measure in {COST, "mean_cost_usd"}:
        decimals = next((decimals for limit, decimals in COST_DECIMALS if largest >= limit), 6)
        return "$0" if value == 0 else f"${value:,.{decimals}f}"
    if measure == "cache_hit_ratio":
        return f"{value * 100:.3g}%"
    if measure in ("mean_latency_ms", "mean_first_token_ms"):
        return milliseconds(value)
    return f"{value / 1000:,.0f} s" if measure == "latency_ms" else short(value)


def time_labels(kind: str | None, times: Sequence[Any]) -> list[str]:
    """A unique label for each time of an axis."""
    if kind == "month":
        return [f"{at:%b}\n{at:%Y}" for at in times]
    has_years = len({at.year for at in times}) > 1
    years = [f"{at:%Y}" if has_years or number == 0 else "" for number, at in enumerate(times)]
    if kind != "hour":
        return [f"{at.day} {at:%b}\n{year}".rstrip() for at, year in zip(times, years, strict=True)]
    has_offsets = len({at.utcoffset() for at in times}) > 1  # the clocks change in between
    hours = [f"{at:%H:%M}{at.isoformat()[-6:] if has_offsets else ''}" for at in times]
    return [f"{hour}\n{at.day} {at:%b} {year}".rstrip() for hour, at, year in zip(hours, times, years, strict=True)]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


# Page

STYLE: Final = """
body { font: 15px/1.4 system-ui, sans-serif; color: #333; margin: 2rem auto; max-width: 72rem; padding: 0 1rem }
svg { width: 100%; height: auto }
table { border-collapse: collapse; margin-top: 1rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #ddd }
th.key, td.key { text-align: left }
"""


def _page(plot: Plot, by: Sequence[str], rows: Sequence[UsageRow], svg: str) -> str:
    """A page of its own: the plot, and the report as a table below."""
    figures, decimals = figures_of(rows), decimals_of(rows)
    head = _cells("th", by, [figure.title for figure in figures])
    body = "\n".join(
        f"<tr>{_cells('td', [_readable(row.keys[name]) for name in by], figure_texts(row, figures, decimals))}</tr>"
        for row in rows
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(plot.title)}</title>\n'
        f"<style>{STYLE}</style>\n{svg[svg.index('<svg') :]}\n"
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</html>\n"
    )


def _cells(tag: str, keys: Iterable[str], figures: Iterable[str]) -> str:
    texts = [(' class="key"', key) for key in keys] + [("", figure) for figure in figures]
    return "".join(f"<{tag}{attribute}>{escape(text)}</{tag}>" for attribute, text in texts)
