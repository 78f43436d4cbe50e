"""Draw the figures of a run: ``python -m benchmarks.chart figures.json figures.svg``.

A run of other libraries gives bars of times over those of threadkeep, one of the server bars of calls a second and of
CPU time over those of a bare pass-through; both on a logarithmic scale. The same figures give the same file.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.peers.measure import BASE
from benchmarks.report import ANSWERS, CONTINUED, RECORDER, STORED, shown

# what -> the column that is drawn, and the title above it
DRAWN: Final = {
    "Append a turn": ("N=200", "Append a turn, N=200"),
    "Resume, nothing in memory": ("N=200", "Resume, nothing in memory, N=200"),
}
TITLES: Final = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
LEFT_OUT: Final = frozenset({"openai-agents SQLiteSession + llm-rosetta"})  # the same rows as without
NAMES: Final = {
    "smallest floor (by hand)": "smallest floor, by hand",
    "threadkeep, question stored first": "threadkeep, in two steps",
    "pydantic-ai, a row a run (by hand)": "pydantic-ai rows, by hand",
    "openai-agents SQLiteSession": "agents SQLiteSession",
    "openai-agents AdvancedSQLiteSession": "agents AdvancedSQLiteSession",
    "openai-agents SQLAlchemySession": "agents SQLAlchemySession",
    "google-adk DatabaseSessionService": "google-adk",
    "langgraph checkpointer": "langgraph checkpointer",
    "agno Db": "agno",
}
SERVED: Final = {
    ANSWERS: "answers, new conversations",
    CONTINUED: "answers, after 200 items",
    RECORDER: "recorder, calls passed",
    STORED: "recorder, calls stored",
}

WIDTH: Final = 960
PANEL: Final = 470  # pixels from the left edge of a column to that of the next
LABELS: Final = 200
BARS: Final = 150  # pixels of the whole scale
ROW: Final = 19
TOP: Final = 44
LEAST, MOST = 0.1, 100.0  # of the scale
LEAST_RATE, MOST_RATE = 0.01, 1.0  # of that for calls a second

STYLE: Final = """
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 13px }
.small { fill: #59636e; font-size: 11px }
.peer { fill: #9aa4af } .floor { fill: #c8d1da } .own { fill: #1a7f64 } .line { stroke: #59636e; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 }
.peer { fill: #6e7681 } .floor { fill: #3d444d } .own { fill: #3fb68b } .line { stroke: #9198a1 }
}
"""


class Bar(NamedTuple):
    """A figure over that of the base; `said` stands beside it, `kind` is its class in the style."""

    name: str
    ratio: float
    said: str
    kind: str


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    found = json.loads(source.read_text())
    target.write_text(served(found) if "lines" in found else drawn(found))


def drawn(found: Mapping[str, Any]) -> str:
    """The SVG of a run's figures of other libraries."""
    rows = [
        [(f"{DRAWN[what][1]}: {TITLES[database]}", list(_libraries(found.get(database, {}), what)), (LEAST, MOST))
         for database in TITLES]
        for what in DRAWN
    ]  # fmt: skip
    caption = "Times over those of threadkeep (shorter is faster), logarithmic; medians of one run"
    return _picture("Appending and resuming with threadkeep and other libraries", caption, rows)


def served(found: Mapping[str, Any]) -> str:
    """The SVG of a run's figures of the server's calls."""
    lines = {(line["database"], line["what"]): line for line in found["lines"]}
    rows = [
        [(f"Calls a second (longer is better): {database}", list(_calls(lines, database, "value")),
          (LEAST_RATE, MOST_RATE)),
         (f"CPU time of a call (shorter is better): {database}", list(_calls(lines, database, "cpu_ratio")),
          (LEAST, MOST))]
        for database in dict.fromkeys(database for database, what in lines if what.startswith(ANSWERS))
    ]  # fmt: skip
    caption = "Over those of a bare pass-through, which stores nothing; logarithmic; medians of one run with 16 clients"
    return _picture("Calls through threadkeep and through a bare pass-through", caption, rows)


Panel = tuple[str, list[Bar], tuple[float, float]]  # its title, its bars, and the least and the most of its scale


def _picture(title: str, caption: str, rows: Iterable[Iterable[Panel]]) -> str:
    elements: list[str] = []
    bottom = TOP
    for row in rows:
        begin = bottom
        for column, (heading, bars, scale) in enumerate(row):
            if bars:
                elements += _panel(column * PANEL, begin, heading, bars, scale)
                bottom = max(bottom, begin + 30 + ROW * len(bars) + 24)
    head = f'<text class="small" x="12" y="22">{caption}</text>'
    size = f'width="{WIDTH}" height="{bottom}" viewBox="0 0 {WIDTH} {bottom}"'
    body = "\n".join([f"<title>{title}</title>", f"<style>{STYLE}</style>", head, *elements])
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>\n{body}\n</svg>\n'


def _libraries(found: Mapping[str, Any], what: str) -> Iterator[Bar]:
    """The times of all libraries, the fastest first."""
    column: Mapping[str, Any] = next(
        (table["columns"][DRAWN[what][0]] for table in found.get("tables", ()) if table["what"] == what), {}
    )
    figures = [
        (name, one["over_threadkeep"], one["seconds"])
        for name, one in column.items()
        if "over_threadkeep" in one and name not in LEFT_OUT
    ]
    for name, ratio, seconds in sorted(figures, key=lambda figure: figure[1]):
        kind = "own" if name.startswith(BASE) else "floor" if name.startswith("smallest") else "peer"
        said = "1x" if name == BASE else f"{ratio:.2g}x" if ratio < MOST else f"{ratio:.0f}x"
        yield Bar(NAMES.get(name, name), ratio, f"{said}, {shown(seconds, 's')}", kind)


def _calls(lines: Mapping[tuple[str, str], Mapping[str, Any]], database: str, figure: str) -> Iterator[Bar]:
    """A figure of each kind of calls, and below it that of the build before, where it was measured."""
    yield Bar("bare pass-through", 1.0, "1x", "floor")
    for kind, name in SERVED.items():
        ratio = lines.get((database, f"{kind}, over a bare pass-through"), {}).get(figure)
        if ratio is None:
            continue
        yield Bar(name, ratio, f"{ratio:.2g}x", "own")
        over_other = lines.get((database, f"{kind}, over the other build"), {}).get(figure)
        if over_other is not None:
            yield Bar("the build before", ratio / over_other, f"{ratio / over_other:.2g}x", "peer")


def _panel(left: int, top: int, title: str, bars: list[Bar], scale: tuple[float, float]) -> Iterator[str]:
    yield f'<text class="title" x="{left + 12}" y="{top + 16}">{escape(title)}</text>'
    start, first, own = left + LABELS, top + 30, round(_place(1, scale), 1)
    for row, (name, ratio, said, kind) in enumerate(bars):
        y = first + row * ROW
        width = round(_place(ratio, scale), 1)
        yield f'<text x="{start - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
        yield f'<rect class="{kind}" x="{start}" y="{y + 2}" width="{max(width, 1)}" height="{ROW - 6}" rx="2"/>'
        yield f'<text class="small" x="{start + max(width, own) + 6}" y="{y + 12}">{said}</text>'
    yield f'<path class="line" d="M{start + own} {first - 2}V{first + len(bars) * ROW}" stroke-dasharray="2 3"/>'


def _place(ratio: float, scale: tuple[float, float]) -> float:
    """Pixels from the beginning of the scale."""
    least, most = scale
    bounded = min(max(ratio, least), most)
    return BARS * math.log(bounded / least) / math.log(most / least)


if __name__ == "__main__":
    main()
