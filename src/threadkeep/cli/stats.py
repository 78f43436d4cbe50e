"""``threadkeep stats``: how much is stored."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from threadkeep.cli.figures import size
from threadkeep.cli.output import Cell, Column, is_terminal, print_json, print_table, print_text
from threadkeep.cli.place import LARGEST_PAGE, AsJson, Tenant, Url, opened, place_of

if TYPE_CHECKING:
    from threadkeep.domain.statistics import Statistics

COUNTS: Final = ("active", "archived", "branches", "items", "responses", "media", "attempts")
SIZES: Final = ("item_bytes", "body_bytes", "media_bytes")
# What is printed for people: title, count, bytes
LINES: Final = (
    ("conversations", "active", None), ("archived conversations", "archived", None), ("branches", "branches", None),
    ("items", "items", "item_bytes"), ("responses, with their raw bodies", "responses", "body_bytes"),
    ("pictures and files", "media", "media_bytes"), ("rows of the usage ledger", "attempts", None),
)  # fmt: skip
LARGEST: Final = (
    Column("id", is_kept=True),
    Column("user", exit=2),
    Column("items", is_number=True),
    Column("size", is_number=True),
    Column("title", exit=1),
)


def stats(
    context: typer.Context,
    *,
    largest: Annotated[
        int,
        typer.Option(
            "--largest", metavar="N", min=1, max=LARGEST_PAGE, help="How many of the largest conversations to list."
        ),
    ] = 10,
    user: Annotated[str | None, typer.Option("--user", metavar="ID", help="Only of this user.")] = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Print how much is stored, and the largest conversations.

    It looks at every row, which takes a while in a large database.
    """
    place = place_of(context, url, tenant, is_json=as_json)
    with opened(place, user=user) as store:
        found = store.statistics(largest=largest)
    if place.is_json:
        print_json(asdict(found))
        return
    if is_terminal():
        print_table([Column(""), Column("count", is_number=True), Column("size", is_number=True)], readable(found))
        if found.largest:
            print_text("Largest conversations", is_bold=True)
    else:
        for name in (*COUNTS, *SIZES):
            value = getattr(found, name)
            typer.echo(f"{name}\t{'' if value is None else value}")
        typer.echo()
    if found.largest:
        shown = size if is_terminal() else int
        print_table(
            LARGEST, [[one.id, one.user_id, one.items, shown(one.item_bytes), one.title] for one in found.largest]
        )


def readable(found: Statistics) -> list[list[Cell]]:
    """Lines for people."""
    return [
        [title, getattr(found, count), "" if bytes_ is None else size(getattr(found, bytes_))]
        for title, count, bytes_ in LINES
    ]
