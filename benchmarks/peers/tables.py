"""What was measured, as tables and as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.peers.measure import BASE, Result, Table
from benchmarks.peers.writing import Outcome
from benchmarks.report import shown

# database -> the library that an append of a turn is compared with, and the goal for the ratio
GOALS: Final = {"sqlite": ("simonw's llm", 0.7), "postgresql": ("langchain-postgres", 1.5)}
COMPARED: Final = "N=200"


def written(table: Table) -> str:
    """A Markdown table: times, and how many times those of threadkeep."""
    rows = [[name, *(_cell(column, name) for column in table.columns.values())] for name in table.rows()]
    return f"**{table.what}**\n\n{_markdown(['', *table.columns], rows)}"


def _cell(column: Mapping[str, Result], name: str) -> str:
    result, base = column.get(name), column.get(BASE)
    if result is None:
        return "-"
    if result.refusal is not None:
        return result.refusal[:60]
    time = shown(result.wall, "s")
    if base is None or base.refusal is not None:
        return time
    return f"{time} ({result.over(base):.2g}x, CPU {result.cpu_over(base):.2g}x)"


def rates(found: Mapping[str, Mapping[str, Outcome | str]]) -> str:
    """A Markdown table: turns a second, and what went wrong."""
    headers = list({what: None for cases in found.values() for what in cases})
    rows = [[name, *(_rate(cases.get(what, "-")) for what in headers)] for name, cases in found.items()]
    reasons = [
        f"- {name}: {outcome.reason}"
        for name, cases in found.items()
        for outcome in list(cases.values())[:1]
        if not isinstance(outcome, str) and outcome.reason
    ]
    return "\n".join([f"**Many writers**\n\n{_markdown(['', *headers], rows)}", "", *reasons])


def _rate(outcome: Outcome | str) -> str:
    if isinstance(outcome, str):
        return outcome[:60]
    wrong = {"refused": outcome.refused, "lost": outcome.lost, "torn apart": outcome.torn}
    said = ", ".join(f"{count} {what}" for what, count in wrong.items() if count)
    return f"{outcome.rate:,.0f}/s" + (f" (of {outcome.turns}: {said})" if said else "")


def goals(found: Sequence[Table]) -> str:
    """The goals, as far as both libraries were measured."""
    lines = []
    for table in found:
        other, must = GOALS[table.database]
        column = table.columns.get(COMPARED, {})
        if table.what != "Append a turn" or not {BASE, other} <= column.keys() or column[other].refusal:
            continue
        ratio, cpu = column[BASE].over(column[other]), column[BASE].cpu_over(column[other])
        verdict = "holds" if ratio <= must else "MISSED"
        lines.append(f"append a turn, {COMPARED}, over {other}: {ratio:.2f}x (CPU {cpu:.2f}x), goal {must}x: {verdict}")
    return "\n".join(lines)


def to_dict(table: Table) -> dict[str, Any]:
    columns = {
        what: {
            name: {"error": result.refusal}
            if result.refusal is not None
            else {"seconds": result.wall, "cpu_seconds": result.cpu}
            | ({"over_threadkeep": result.over(column[BASE])} if BASE in column else {})
            for name, result in column.items()
        }
        for what, column in table.columns.items()
    }
    return {"what": table.what, "columns": columns}


def rates_to_dict(found: Mapping[str, Mapping[str, Outcome | str]]) -> dict[str, Any]:
    return {
        name: {
            what: outcome
            if isinstance(outcome, str)
            else {
                "turns_per_second": outcome.rate, "turns": outcome.turns, "refused": outcome.refused,
                "lost": outcome.lost, "torn": outcome.torn,
            }
            for what, outcome in cases.items()
        }
        for name, cases in found.items()
    }  # fmt: skip


def _markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    everything = [headers, *rows]
    widths = [max(3, *(len(row[column]) for row in everything)) for column in range(len(headers))]

    def line(row: Sequence[str]) -> str:
        first, *others = (cell.rjust(width) if index else cell.ljust(width)
                          for index, (cell, width) in enumerate(zip(row, widths, strict=True)))  # fmt: skip
        return f"| {' | '.join([first, *others])} |"

    rule = "| " + " | ".join("-" * (width - 1) + ":" if index else "-" * width for index, width in enumerate(widths))
    return "\n".join([line(headers), f"{rule} |", *map(line, rows)])
