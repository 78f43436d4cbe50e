"""``threadkeep tenants``: the tenants that share a database."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from typer import Argument

from threadkeep.cli.options import Yes, on_target
from threadkeep.cli.output import Column, iso
from threadkeep.cli.target import Target
from threadkeep.errors import InvalidOption

commands = typer.Typer(help="List, create and delete tenants.")
COLUMNS: Final = (Column("name"), Column("created_at", is_time=True, no_wrap=True, drop_order=1))
Name = Annotated[str, Argument(metavar="NAME", help="The tenant's name.", show_default=False)]


@commands.command("ls")
@on_target("url", "as_json")
def ls(target: Target) -> None:
    """List tenants by name.

    One is named `default`: it has what is stored without a tenant.
    """
    target.report_list("tenants", tenants_of(target), COLUMNS, empty="no tenants")


@commands.command("create")
@on_target("url", "as_json")
def create(target: Target, *, name: Name) -> None:
    """Create a tenant, to be named with --tenant."""
    with target.store(all_tenants=True, create=True) as store:
        store.create_tenant(name)
    target.report({"name": name}, f"Created the tenant {name!r} in {target.shown_url}.")


@commands.command("delete")
@on_target("url", "as_json")
def delete(target: Target, *, name: Name, yes: Yes = False) -> None:
    """Delete a tenant with all its conversations and its ledger."""
    if not yes:
        raise InvalidOption(f"This deletes the tenant {name!r} and everything in it for good. Give --yes to do it.")
    with target.store(all_tenants=True) as store:
        store.delete_tenant(name)
    target.report({"name": name}, f"Deleted the tenant {name!r} from {target.shown_url}.")


def tenants_of(target: Target) -> list[dict[str, Any]]:
    """All tenants, by name, and when they were created.

    Raises:
        SchemaError: the tables are missing or those of another release.
    """
    from sqlalchemy import select

    from threadkeep import schema
    from threadkeep.db.tables import tenants

    target.check_exists()
    with target.engine() as engine, engine.connect() as connection:
        schema.check(connection)
        rows = connection.execute(select(tenants.c.name, tenants.c.created_at).order_by(tenants.c.name))
        return [{"name": row.name, "created_at": iso(row.created_at)} for row in rows]
