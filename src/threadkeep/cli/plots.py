"""Pictures of reports: bars over time, stacked by what else the report is grouped by, or one bar for each key."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from threadkeep.cli.figures import NANO, cost_decimals, dollars, key_text, short
from threadkeep.cli.output import printable
from threadkeep.cli.usage_table import COST, FIGURES, Figure, measure_of
from threadkeep.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    from threadkeep.domain.usage import UsageRow

KINDS: Final = (".svg", ".png", ".html")
TIMES: Final = ("hour", "day", "week", "month")
SERIES: Final = 7  # further ones are drawn as one
KEYS: Final = 25  # likewise bars without a time
OTHERS: Final = ("others", "all others")  # the second one where something is called like the first
TOUCHING: Final = 200  # bars of more times than these touch, and are drawn as one shape
WIDTH, HEIGHT = 9.6, 4.6  # inches
DOTS: Final = 150  # an inch of PNG
DECIMALS: Final = ((50, 0), (0.05, 2), (0.0005, 4))  # from so many dollars on -> decimals

# Colours that people who see colours differently can tell apart (Okabe and Ito), and grey for the others
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#999999")
NO_FORM: Final = re.compile(r"[\n\t\ufffe\uffff]")
INK, GREY, PALE = "#333333", "#777777", "#DDDDDD"

TITLES: Final = {
    COST: "Cost", "attempts": "Calls", "input_tokens": "Input tokens", "cached_tokens": "Input tokens from caches",
    "cache_write_tokens": "Input tokens written to caches", "output_tokens": "Output tokens",
    "reasoning_tokens": "Reasoning tokens", "total_tokens": "Tokens", "latency_ms": "Time spent waiting",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn: values by series, at places along an axis."""

    title: str
    measure: str
    time: str | None  # the kind of time along the axis; None: bars lie one below the other
    places: list[Any]
    series: dict[str, list[float]]
    remark: str = ""
    unknown: frozenset[str] = frozenset()  # bars of which nobody knows how long they are


def check_kind(path: Path, by: Sequence[str]) -> None:
    """Make sure that a picture of that name can be drawn, before anything is asked.

    Raises:
        InvalidOption: its ending is unknown, or there is nothing to compare.
        MissingExtra: matplotlib is not installed.
    """
    if path.suffix.lower() not in KINDS:
        raise InvalidOption(f"--plot {str(path)!r} has to end with {', '.join(KINDS)}.")
    if not by:
        raise InvalidOption("--plot needs --by: a picture compares days, models, users …")
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

    picture, kind = picture_of(by, rows, measure or measure_of(rows), about), path.suffix.lower()
    with rc_context(RULES), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # signs that the font does not have
        figure = _drawn(picture)
        if kind == ".html":
            path.write_text(_page(picture, by, rows, _svg(figure)), encoding="utf-8")
        elif kind == ".svg":
            path.write_text(_svg(figure), encoding="utf-8")
        else:
            figure.savefig(path, dpi=DOTS, format="png")


def picture_of(by: Sequence[str], rows: Sequence[UsageRow], measure: str, about: str = "") -> Picture:
    """What to draw of a report: the first time among its keys lies along the axis, the other keys are series."""
    time = next((name for name in by if name in TIMES), None)
    others = [name for name in by if name != time]
    named = zip(rows, _names(rows, others), strict=True)
    values = [(row.keys.get(time) if time else None, name, _value(row, measure)) for row, name in named]
    totals: dict[str, float] = {}
    for _, name, value in values:
        totals[name] = totals.get(name, 0) + (value or 0)
    title, remark = _title(measure, time, others, about), _remark(rows, measure)
    if time is None:
        unknown = frozenset(totals) - {name for _, name, value in values if value is not None}
        names, bars = _bars(totals)
        return Picture(title, measure, None, names, {"": bars}, remark, unknown)
    places = _all_times(time, sorted({at for at, _, _ in values}))
    return Picture(title, measure, time, places, _series(values, totals, places), remark)


def _title(measure: str, time: str | None, others: Sequence[str], about: str) -> str:
    names = ", ".join(name.removesuffix("_id").replace("_", " ") for name in others)
    return "".join(
        (
            TITLES.get(measure, measure),
            f" by {names}" if others else "",
            f" per {time}" if time else "",
            f", {about}" if about else "",
        )
    )


def _bars(totals: Mapping[str, float]) -> tuple[list[str], list[float]]:
    """The names and lengths of bars, the largest first; what there is no room for is one bar."""
    largest = sorted(totals, key=lambda name: -totals[name])
    names, rest = largest[:KEYS], largest[KEYS:]
    bars = [totals[name] for name in names]
    return (names, bars) if not rest else ([*names, _rest(totals)], [*bars, sum(totals[name] for name in rest)])


def _rest(names: Mapping[str, float]) -> str:
    """What is drawn as one is called."""
    return next((name for name in OTHERS if name not in names), OTHERS[0])


def _series(
    values: Iterable[tuple[Any, str, float | None]], totals: Mapping[str, float], places: Sequence[Any]
) -> dict[str, list[float]]:
    """The values of each series at all places, the largest first; what there is no room for is one series."""
    largest = sorted(filter(totals.__getitem__, totals), key=lambda name: -totals[name])
    kept = largest if len(largest) <= SERIES + 1 else largest[:SERIES]
    rest = _rest(totals)
    found = {name: [0.0] * len(places) for name in [*kept, *([rest] if len(kept) < len(largest) else [])]}
    index = {at: number for number, at in enumerate(places)}
    for at, name, value in values:
        if value:
            found[name if name in found else rest][index[at]] += value
    return found


def _remark(rows: Sequence[UsageRow], measure: str) -> str:
    """What a picture of costs does not show."""
    attempts, costs = sum(row.attempts for row in rows), sum(row.costs for row in rows)
    if measure != COST or attempts == costs:
        return ""
    return f"Without {attempts - costs:,} of {attempts:,} calls, whose cost is unknown."


def _names(rows: Sequence[UsageRow], names: Sequence[str]) -> list[str]:
    """What each row is called; keys that read like others (None, and a user called unknown) get a number."""
    found: dict[tuple[Any, ...], str] = {}
    keys = [tuple(row.keys[name] for name in names) for row in rows]
    taken: set[str] = set()
    for key in dict.fromkeys(keys):
        text = " / ".join(map(_readable, key))
        numbered = (f"{text} ({number})" for number in count(2))
        found[key] = text if text not in taken else next(name for name in numbered if name not in taken)
        taken.add(found[key])
    return [found[key] for key in keys]


def _readable(key: Any) -> str:
    """A key on one line, without what XML and fonts have no form for."""
    text = printable(key_text(key) or "unknown").encode("utf-8", "backslashreplace").decode()
    return NO_FORM.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _value(row: UsageRow, measure: str) -> float | None:
    value = getattr(row, measure)
    return None if value is None else value / NANO if measure == COST else float(value)


def _all_times(kind: str, found: Sequence[Any]) -> list[Any]:
    """All times from the first to the last, also those at which nothing happened."""
    if not found:
        return []
    times = [found[0]]
    while times[-1] < found[-1]:
        times.append(_next(kind, times[-1]))
    return sorted({*times, *found})


def _next(kind: str, at: Any) -> Any:
    if kind == "hour":
        return (at + timedelta(hours=1)).astimezone(at.tzinfo)
    if kind == "month":
        return date(at.year + at.month // 12, at.month % 12 + 1, 1)
    return at + timedelta(days=7 if kind == "week" else 1)


# Drawing


# How matplotlib draws: texts in SVG stay texts, and the same picture is the same file
RULES: Final[Any] = {
    "font.family": "sans-serif", "font.size": 10, "axes.edgecolor": PALE, "axes.labelcolor": INK, "text.color": INK,
    "xtick.color": INK, "ytick.color": INK, "svg.fonttype": "none", "svg.hashsalt": "threadkeep",
}  # fmt: skip


def _drawn(picture: Picture) -> Any:
    from matplotlib.figure import Figure

    height = HEIGHT if picture.time else max(1.6, 0.9 + 0.3 * len(picture.places))
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(_without_dollars(picture.title), loc="left", fontweight="bold", pad=12)
    axes.spines[["top", "right", "left" if picture.time else "bottom"]].set_visible(False)
    axes.set_axisbelow(True)
    if picture.remark:
        figure.supxlabel(picture.remark, x=0.01, ha="left", fontsize=9, color=GREY)
    if not picture.places or not picture.series:
        axes.text(0.5, 0.5, "nothing to show", ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
    elif picture.time:
        _draw_times(axes, picture)
    else:
        _draw_bars(axes, picture)
    return figure


def _draw_times(axes: Any, picture: Picture) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    largest = _draw_series(axes, picture)
    axes.grid(axis="y", color=PALE, linewidth=0.8)
    axes.tick_params(length=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, picture.measure, largest)))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: _time_text(picture, place)))
    axes.set_xlim(-0.6, len(picture.places) - 0.4)
    axes.set_ylim(0, largest * 1.05)


def _draw_series(axes: Any, picture: Picture) -> float:
    """Stack the bars of all series; returns how high the highest stack is."""
    bottom, handles, last = [0.0] * len(picture.places), [], len(picture.series) - 1
    for number, (name, values) in enumerate(picture.series.items()):
        colour = COLOURS[-1] if name in OTHERS and number == last else COLOURS[number % (len(COLOURS) - 1)]
        top = [low + value for low, value in zip(bottom, values, strict=True)]
        if len(values) > TOUCHING:
            edges = [place - 0.5 for place in range(len(values) + 1)]
            handles.append(axes.stairs(top, edges, baseline=bottom, fill=True, color=colour))
        else:
            handles.append(axes.bar(range(len(values)), values, bottom=bottom, width=0.82, color=colour))
        bottom = top
    if "" not in picture.series:
        # in the order in which the bars are stacked, seen from above
        names = [_without_dollars(_cut(name, 30)) for name in reversed(picture.series)]
        place: Any = {"frameon": False, "loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        legend = axes.legend(handles[::-1], ["?"] * len(names), **place)
        for text, name in zip(legend.get_texts(), names, strict=True):
            text.set_text(name)  # only now: a legend leaves out what begins with an underscore
    return max(bottom)


def _draw_bars(axes: Any, picture: Picture) -> None:
    [values] = picture.series.values()
    places = range(len(values))
    axes.barh(places, values, height=0.7, color=COLOURS[0])
    axes.set_yticks(places, [_without_dollars(_cut(name)) for name in picture.places])
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.set_xticks([])
    axes.margins(x=0.12)
    for place, (name, value) in enumerate(zip(picture.places, values, strict=True)):
        text = "unknown" if name in picture.unknown else _without_dollars(_tick(value, picture.measure, max(values)))
        axes.annotate(text, (value, place), xytext=(4, 0), textcoords="offset points", va="center")


def _tick(value: float, measure: str, largest: float) -> str:
    """A value on an axis or beside a bar."""
    if measure == COST:
        decimals = next((decimals for limit, decimals in DECIMALS if largest >= limit), 6)
        return "$0" if value == 0 else f"${value:,.{decimals}f}"
    if measure == "latency_ms":
        return f"{value / 1000:,.0f} s"
    return short(value)


def _time_text(picture: Picture, place: float) -> str:
    number = round(place)
    if abs(place - number) > 0.01 or not 0 <= number < len(picture.places):  # noqa: PLR2004 - between two bars
        return ""
    at = picture.places[number]
    if isinstance(at, datetime):
        is_first = number == 0 or at.hour == 0
        return f"{at:%H:%M}\n{at.day} {at:%b}" if is_first else f"{at:%H:%M}"
    if picture.time == "month":
        return f"{at:%b}\n{at:%Y}"
    return f"{at.day} {at:%b}" + (f"\n{at:%Y}" if number == 0 else "")


def _cut(name: str, width: int = 44) -> str:
    return name if len(name) <= width else f"{name[: width - 1]}…"


def _without_dollars(text: str) -> str:
    """Two dollar signs would begin a formula."""
    return text.replace("$", r"\$")


def _svg(figure: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


# Page

STYLE: Final = """
body { font: 15px/1.4 system-ui, sans-serif; color: #333; margin: 2rem auto; max-width: 72rem; padding: 0 1rem }
svg { width: 100%; height: auto }
table { border-collapse: collapse; margin-top: 1rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #ddd }
th.key, td.key { text-align: left }
"""


def _page(picture: Picture, by: Sequence[str], rows: Sequence[UsageRow], svg: str) -> str:
    """A page of its own: the picture, and the report as a table below."""
    figures = [one for one in FIGURES if one.always or any(getattr(row, one.name) for row in rows)]
    heads = [f'<th class="key">{_text(name)}</th>' for name in by] + [f"<th>{_text(one.title)}</th>" for one in figures]
    decimals = cost_decimals(max((row.cost_nano or 0 for row in rows), default=0))

    def cell(row: UsageRow, one: Figure) -> str:
        value = getattr(row, one.name)
        return _text(dollars(value, decimals=decimals) if one.name == COST else one.shown(value))

    lines = [
        "".join(
            [f'<td class="key">{_text(_readable(row.keys[name]))}</td>' for name in by]
            + [f"<td>{cell(row, one)}</td>" for one in figures]
        )
        for row in rows
    ]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{_text(picture.title)}</title>\n'
        f"<style>{STYLE}</style>\n{svg[svg.index('<svg') :]}\n"
        f"<table>\n<thead><tr>{''.join(heads)}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</html>\n"
    )


def _text(text: str) -> str:
    return html.escape(text)
