"""``threadkeep tenants``: who shares the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from threadkeep.cli.output import Column, iso, note, print_json, print_table, print_text
from threadkeep.cli.place import AsJson, Place, Url, connected, must_exist, opened_for_all, place_of
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from datetime import datetime

commands = typer.Typer(help="List, make and delete tenants.")
COLUMNS: Final = (Column("name"), Column("created_at", is_kept=True, exit=1))
Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.", show_default=False)]


@commands.command("ls")
def ls(context: typer.Context, *, url: Url = None, as_json: AsJson = False) -> None:
    """List tenants by name.

    One is named `default`: what is stored without a tenant is there.
    """
    place = place_of(context, url, None, is_json=as_json)
    found = tenants_of(place)
    if place.is_json:
        print_json({"tenants": [{"name": name, "created_at": iso(at)} for name, at in found]})
        return
    print_table(COLUMNS, found)
    if not found:
        note(f"threadkeep: no tenants in {place.shown}")


@commands.command("create")
def create(context: typer.Context, *, name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Make a tenant, to be named with --tenant."""
    place = place_of(context, url, None, is_json=as_json)
    with opened_for_all(place, is_made=True) as store:
        store.create_tenant(name)
    if place.is_json:
        print_json({"name": name})
    else:
        print_text(f"There is a tenant {name!r} now in {place.shown}.")


@commands.command("delete")
def delete(
    context: typer.Context,
    *,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do it: without this nothing is deleted.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Delete a tenant with all its conversations and its ledger."""
    if not yes:
        raise InvalidOption(f"Everything of the tenant {name!r} would be deleted for good. Say --yes to do it.")
    place = place_of(context, url, None, is_json=as_json)
    with opened_for_all(place) as store:
        store.delete_tenant(name)
    if place.is_json:
        print_json({"name": name})
    else:
        print_text(f"The tenant {name!r} is gone from {place.shown}.")


def tenants_of(place: Place) -> list[tuple[str, datetime]]:
    """All tenants, by name, and when they were made.

    Raises:
        SchemaError: the tables are missing or of another release.
    """
    from sqlalchemy import select

    from threadkeep import schema
    from threadkeep.db.tables import tenants

    must_exist(place)
    with connected(place) as engine, engine.connect() as connection:
        schema.check(connection)
        found = connection.execute(select(tenants.c.name, tenants.c.created_at).order_by(tenants.c.name))
        return [(name, at) for name, at in found]
