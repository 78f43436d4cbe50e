"""Draw the figures of a run: ``python -m benchmarks.peers.chart figures.json peers.svg``.

Bars are times over those of threadkeep, on a logarithmic scale. The same figures give the same file.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.measure import BASE
from benchmarks.report import shown

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

WIDTH: Final = 960
PANEL: Final = 470  # pixels from the left edge of a column to that of the next
LABELS: Final = 200
BARS: Final = 150  # pixels of the whole scale
ROW: Final = 19
TOP: Final = 44
LEAST, MOST = 0.1, 100.0

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


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    target.write_text(drawn(json.loads(source.read_text())))


def drawn(found: Mapping[str, Any]) -> str:
    """The SVG of a run's figures."""
    elements: list[str] = []
    bottom = TOP
    for what in DRAWN:
        begin = bottom
        for column, database in enumerate(TITLES):
            bars = list(_bars(found.get(database, {}), what))
            if bars:
                elements += _panel(column * PANEL, begin, f"{DRAWN[what][1]}: {TITLES[database]}", bars)
                bottom = max(bottom, begin + 30 + ROW * len(bars) + 24)
    caption = "Times over those of threadkeep (shorter is faster), logarithmic; medians of one run"
    head = f'<text class="small" x="12" y="22">{caption}</text>'
    size = f'width="{WIDTH}" height="{bottom}" viewBox="0 0 {WIDTH} {bottom}"'
    title = "<title>Appending and resuming with threadkeep and other libraries</title>"
    body = "\n".join([title, f"<style>{STYLE}</style>", head, *elements])
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>\n{body}\n</svg>\n'


def _bars(found: Mapping[str, Any], what: str) -> Iterator[tuple[str, float, float]]:
    """Name, ratio and seconds of each library, the fastest first."""
    column: Mapping[str, Any] = next(
        (table["columns"][DRAWN[what][0]] for table in found.get("tables", ()) if table["what"] == what), {}
    )
    figures = [
        (name, one["over_threadkeep"], one["seconds"])
        for name, one in column.items()
        if "over_threadkeep" in one and name not in LEFT_OUT
    ]
    yield from sorted(figures, key=lambda figure: figure[1])


def _panel(left: int, top: int, title: str, bars: list[tuple[str, float, float]]) -> Iterator[str]:
    yield f'<text class="title" x="{left + 12}" y="{top + 16}">{escape(title)}</text>'
    start, first, own = left + LABELS, top + 30, round(_place(1), 1)
    for row, (name, ratio, seconds) in enumerate(bars):
        y = first + row * ROW
        kind = "own" if name.startswith(BASE) else "floor" if name.startswith("smallest") else "peer"
        width = round(_place(ratio), 1)
        yield f'<text x="{start - 8}" y="{y + 12}" text-anchor="end">{escape(NAMES.get(name, name))}</text>'
        yield f'<rect class="{kind}" x="{start}" y="{y + 2}" width="{max(width, 1)}" height="{ROW - 6}" rx="2"/>'
        said = "1x" if name == BASE else f"{ratio:.2g}x" if ratio < MOST else f"{ratio:.0f}x"
        yield f'<text class="small" x="{start + max(width, own) + 6}" y="{y + 12}">{said}, {shown(seconds, "s")}</text>'
    yield f'<path class="line" d="M{start + own} {first - 2}V{first + len(bars) * ROW}" stroke-dasharray="2 3"/>'


def _place(ratio: float) -> float:
    """Pixels from the beginning of the scale."""
    bounded = min(max(ratio, LEAST), MOST)
    return BARS * math.log(bounded / LEAST) / math.log(MOST / LEAST)


if __name__ == "__main__":
    main()
