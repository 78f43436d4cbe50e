"""``threadkeep stats``: how much is stored."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

from typer import Option

from threadkeep.cli.formatting import size
from threadkeep.cli.options import MAX_PAGE, OnlyUser, on_target
from threadkeep.cli.output import Column, cell_text, is_terminal, print_json, print_table, print_text
from threadkeep.cli.target import Target

FIGURES: Final = (
    "active", "archived", "branches", "items", "responses", "media", "attempts", "item_bytes", "body_bytes",
    "media_bytes",
)  # fmt: skip
# What is printed for people: title, count, bytes
LINES: Final = (
    ("conversations", "active", None), ("archived conversations", "archived", None), ("branches", "branches", None),
    ("items", "items", "item_bytes"), ("responses, with their raw bodies", "responses", "body_bytes"),
    ("pictures and files", "media", "media_bytes"), ("rows of the usage ledger", "attempts", None),
)  # fmt: skip
OVERVIEW: Final = (Column(""), Column("count", is_number=True), Column("size", is_number=True))
LARGEST: Final = (
    Column("id", no_wrap=True),
    Column("user", "user_id", drop_order=2),
    Column("items", is_number=True),
    Column("size", is_number=True),
    Column("title", drop_order=1),
)


@on_target()
def stats(
    target: Target,
    *,
    largest: Annotated[
        int,
        Option("--largest", metavar="N", min=1, max=MAX_PAGE, help="How many of the largest conversations to list."),
    ] = 10,
    user: OnlyUser = None,
) -> None:
    """Print how much is stored, and the largest conversations.

    It reads every row, which takes a while in a large database.
    """
    with target.store(user=user) as store:
        statistics = asdict(store.statistics(largest=largest))
    if target.is_json:
        print_json(statistics)
    elif is_terminal():
        print_table(OVERVIEW, [_overview_record(statistics, *line) for line in LINES])
        if statistics["largest"]:
            print_text("Largest conversations", is_bold=True)
            print_table(LARGEST, [one | {"size": size(one["item_bytes"])} for one in statistics["largest"]])
    else:
        print_text("\n".join(f"{name}\t{cell_text(statistics[name]) or ''}" for name in FIGURES) + "\n")
        if statistics["largest"]:
            print_table(LARGEST, [one | {"size": one["item_bytes"]} for one in statistics["largest"]])


def _overview_record(statistics: dict[str, Any], title: str, count: str, bytes_: str | None) -> dict[str, Any]:
    """A line for people."""
    return {"": title, "count": statistics[count], "size": "" if bytes_ is None else size(statistics[bytes_])}
