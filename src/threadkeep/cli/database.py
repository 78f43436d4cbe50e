"""``threadkeep db``: the schema."""

from __future__ import annotations

from typing import Annotated

import typer

from threadkeep.cli.figures import number_of
from threadkeep.cli.output import print_json, print_text
from threadkeep.cli.place import AsJson, Tenant, Url, connected, is_absent, must_exist, opened_for_all, place_of
from threadkeep.cli.tenants import tenants_of

commands = typer.Typer(help="Set up and upgrade the tables.")


@commands.command("upgrade")
def upgrade(context: typer.Context, *, url: Url = None, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Make the tables, or bring them to the newest schema."""
    from threadkeep import schema

    place = place_of(context, url, tenant, is_json=as_json)
    with connected(place) as engine:
        before = schema.current(engine)
        schema.upgrade(engine)
        now = schema.current(engine)
    if place.is_json:
        print_json({"before": before, "revision": now})
    elif before == now:
        print_text(f"{place.shown} is at {now} already.")
    else:
        print_text(f"{place.shown} is at {now} now (before: {before or 'no tables'}).")


@commands.command("current")
def current(context: typer.Context, *, url: Url = None, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Print the revision of the schema, or `none`."""
    from threadkeep import schema

    place = place_of(context, url, tenant, is_json=as_json)
    found = None
    if not is_absent(place.url):  # to look must not make a file
        with connected(place) as engine:
            found = schema.current(engine)
    if place.is_json:
        print_json({"revision": found, "newest": schema.HEAD})
    else:
        print_text(found or "none")


@commands.command("check")
def check(context: typer.Context, *, url: Url = None, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Succeed if the schema is the one of this version.

    Otherwise the error says which command to run.
    """
    from threadkeep import schema

    place = place_of(context, url, tenant, is_json=as_json)
    must_exist(place)
    with connected(place) as engine:
        schema.check(engine)
    if place.is_json:
        print_json({"revision": schema.HEAD})
    else:
        print_text(f"{place.shown} is at {schema.HEAD}, as it should be.")


@commands.command("reconcile")
def reconcile(context: typer.Context, *, url: Url = None, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Sum up the days of the ledger that are over, and mend wrong sums.

    Reports say the same without it, and are faster with it: run it once a day. Without --tenant: for all of them.
    """
    place = place_of(context, url, tenant, is_json=as_json)
    names = [place.tenant] if place.tenant is not None else [name for name, _ in tenants_of(place)]
    filled = mended = 0
    if names:
        with opened_for_all(place) as store:
            for name in names:
                found = store.for_tenant(name).reconcile_usage()
                filled, mended = filled + found.filled, mended + found.mended
    if place.is_json:
        print_json({"filled": filled, "mended": mended})
    else:
        print_text(f"{number_of(filled, 'day')} summed up, {mended:,} mended.")


@commands.command("sql")
def sql(
    context: typer.Context,
    *,
    dialect: Annotated[
        str | None,
        typer.Option(
            "--dialect", metavar="NAME", help="sqlite, postgresql, mysql or mariadb; default: that of the URL."
        ),
    ] = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Print the SQL of an upgrade, without running it.

    It is what `db upgrade` runs on an empty database.
    """
    from threadkeep import schema

    place = place_of(context, url, tenant, is_json=as_json)
    name = dialect_of(place.url, dialect)
    text = schema.upgrade_sql(name)
    if place.is_json:
        print_json({"dialect": name, "sql": text})
    else:
        typer.echo(text.rstrip())


def dialect_of(url: str, dialect: str | None) -> str:
    """The dialect that was asked for, else that of the URL.

    Raises:
        InvalidOption: threadkeep does not run on it.
    """
    from threadkeep.errors import InvalidOption
    from threadkeep.store.engines import parsed_url

    if dialect is None:
        dialect = parsed_url(url).get_backend_name()
    if dialect not in {"sqlite", "postgresql", "mysql", "mariadb"}:
        raise InvalidOption(f"There is no SQL for {dialect!r}. Dialects: sqlite, postgresql, mysql, mariadb.")
    return dialect
