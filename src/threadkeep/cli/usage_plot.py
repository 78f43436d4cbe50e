"""Plots of usage reports: sums as bars over time, stacked by other keys, means as lines; without time a bar per key."""

from __future__ import annotations

import html
import io
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from threadkeep.cli.formatting import NANO, key_text, milliseconds, short
from threadkeep.cli.usage_table import COST, decimals_of, figure_texts, figures_of, measure_of
from threadkeep.domain.printing import printable
from threadkeep.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    from threadkeep import UsageRow

SUFFIXES: Final = (".svg", ".png", ".html")
TIMES: Final = ("hour", "day", "week", "month")
MAX_SERIES: Final = 7  # further ones are drawn as one
MAX_BARS: Final = 25  # likewise bars without a time
OTHERS: Final = ("others", "all others")  # the second one where a series has the name of the first
TOUCHING: Final = 200  # bars of more times than these touch, and are drawn as one shape
WIDTH, HEIGHT = 9.6, 4.6  # inches
PNG_DPI: Final = 150

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
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra("plot", "--plot") from error
    mpl.use("agg")


def write_plot(
    path: Path, by: Sequence[str], rows: Sequence[UsageRow], *, measure: str | None = None, about: str = ""
) -> None:
    """Draw a report; `about` says what it is of."""
    from matplotlib import rc_context

    plot, suffix = plot_of(by, rows, measure or measure_of(rows), about), path.suffix.lower()
    with rc_context(RULES), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about characters that the font does not have
        figure, svg = _draw(plot), io.StringIO()
        if suffix == ".png":
            figure.savefig(path, dpi=PNG_DPI, format="png")
            return
        figure.savefig(svg, format="svg", metadata={"Date": None})
    path.write_text(_page(plot, by, rows, svg.getvalue()) if suffix == ".html" else svg.getvalue(), encoding="utf-8")


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
    text = printable(key_text(key) or "unknown")
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

# How matplotlib draws: texts in SVG stay texts, and the same plot is the same file
RULES: Final[Any] = {
    "font.family": "sans-serif", "font.size": 10, "axes.edgecolor": PALE, "axes.labelcolor": INK, "text.color": INK,
    "xtick.color": INK, "ytick.color": INK, "svg.fonttype": "none", "svg.hashsalt": "threadkeep",
}  # fmt: skip
COST_DECIMALS: Final = ((50, 0), (0.05, 2), (0.0005, 4))  # on axes: from so many dollars on -> decimals


def _draw(plot: Plot) -> Any:
    from matplotlib.figure import Figure

    height = HEIGHT if plot.time else max(1.6, 0.9 + 0.3 * len(plot.axis))
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(_label(plot.title, len(plot.title)), loc="left", fontweight="bold", pad=12)
    axes.spines[["top", "right", "left" if plot.time else "bottom"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    if plot.remark:
        figure.supxlabel(plot.remark, x=0.01, ha="left", fontsize=9, color=GREY)
    if not plot.axis or not plot.series:
        axes.text(0.5, 0.5, "nothing to show", ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
    elif plot.time:
        _draw_times(axes, plot)
    else:
        _draw_bars(axes, plot)
    return figure


def _draw_times(axes: Any, plot: Plot) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    highest, labels = _draw_series(axes, plot), time_labels(plot.time, plot.axis)
    axes.grid(axis="y", color=PALE, linewidth=0.8)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _value_label(value, plot.measure, highest)))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _label_at(labels, x)))
    axes.set_xlim(-0.6, len(plot.axis) - 0.4)
    axes.set_ylim(0, highest * 1.05 or 1)


def _draw_series(axes: Any, plot: Plot) -> float:
    """Stack the bars of all series, or draw the lines of means; returns how high the highest one is."""
    bottom, handles, last = [0.0] * len(plot.axis), [], len(plot.series) - 1
    for number, (name, values) in enumerate(plot.series.items()):
        colour = COLOURS[-1] if name in OTHERS and number == last else COLOURS[number % (len(COLOURS) - 1)]
        if plot.measure in MEANS:
            handles += axes.plot(range(len(values)), values, color=colour, marker=".")
            bottom = [max(pair) for pair in zip(bottom, values, strict=True)]  # nothing is larger than NaN
            continue
        top = [low + value for low, value in zip(bottom, values, strict=True)]
        if len(values) > TOUCHING:
            edges = [x - 0.5 for x in range(len(values) + 1)]
            handles.append(axes.stairs(top, edges, baseline=bottom, fill=True, color=colour))
        else:
            handles.append(axes.bar(range(len(values)), values, bottom=bottom, width=0.82, color=colour))
        bottom = top
    if "" not in plot.series:
        # In the order in which the bars are stacked, seen from above
        names = [_label(name, 30) for name in reversed(plot.series)]
        outside: Any = {"frameon": False, "loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        legend = axes.legend(handles[::-1], ["?"] * len(names), **outside)
        for text, name in zip(legend.get_texts(), names, strict=True):
            text.set_text(name)  # only now: a legend leaves out what begins with an underscore
    return max(bottom)


def _draw_bars(axes: Any, plot: Plot) -> None:
    [values] = plot.series.values()
    axes.barh(range(len(values)), values, height=0.7, color=COLOURS[0])
    axes.set_yticks(range(len(values)), [_label(name) for name in plot.axis])
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.margins(x=0.12)
    for y, (name, value) in enumerate(zip(plot.axis, values, strict=True)):
        text = "unknown" if name in plot.unknown else _label(_value_label(value, plot.measure, max(values)))
        axes.annotate(text, (value, y), xytext=(4, 0), textcoords="offset points", va="center")


def _value_label(value: float, measure: str, largest: float) -> str:
    """A value on an axis or beside a bar."""
    if measure in {COST, "mean_cost_usd"}:
        decimals = next((decimals for limit, decimals in COST_DECIMALS if largest >= limit), 6)
        return "$0" if value == 0 else f"${value:,.{decimals}f}"
    if measure == "cache_hit_ratio":
        return f"{value * 100:.3g}%"
    if measure in ("mean_latency_ms", "mean_first_token_ms"):
        return milliseconds(value)
    return f"{value / 1000:,.0f} s" if measure == "latency_ms" else short(value)


def time_labels(kind: str | None, times: Sequence[Any]) -> list[str]:
    """A label for each time of an axis, unlike those of all others."""
    if kind == "month":
        return [f"{at:%b}\n{at:%Y}" for at in times]
    has_years = len({at.year for at in times}) > 1
    years = [f"{at:%Y}" if has_years or number == 0 else "" for number, at in enumerate(times)]
    if kind != "hour":
        return [f"{at.day} {at:%b}\n{year}".rstrip() for at, year in zip(times, years, strict=True)]
    has_offsets = len({at.utcoffset() for at in times}) > 1  # the clocks change in between
    hours = [f"{at:%H:%M}{at.isoformat()[-6:] if has_offsets else ''}" for at in times]
    return [f"{hour}\n{at.day} {at:%b} {year}".rstrip() for hour, at, year in zip(hours, times, years, strict=True)]


def _label_at(labels: Sequence[str], x: float) -> str:
    number = round(x)
    is_between = abs(x - number) > 0.01 or not 0 <= number < len(labels)  # noqa: PLR2004 - two bars
    return "" if is_between else labels[number]


def _label(text: str, width: int = 44) -> str:
    """A text that is cut where it is too long; two dollar signs would begin a formula."""
    return (text if len(text) <= width else f"{text[: width - 1]}…").replace("$", r"\$")


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
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{html.escape(plot.title)}</title>\n'
        f"<style>{STYLE}</style>\n{svg[svg.index('<svg') :]}\n"
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</html>\n"
    )


def _cells(tag: str, keys: Iterable[str], figures: Iterable[str]) -> str:
    texts = [(' class="key"', key) for key in keys] + [("", figure) for figure in figures]
    return "".join(f"<{tag}{attribute}>{html.escape(text)}</{tag}>" for attribute, text in texts)
