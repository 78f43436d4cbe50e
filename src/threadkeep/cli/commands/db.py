"""``threadkeep db``: the schema, and the sums of the usage ledger."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from threadkeep.cli.commands.tenants import tenants_of
from threadkeep.cli.formatting import number_of
from threadkeep.cli.options import Text, on_target
from threadkeep.cli.target import Target
from threadkeep.errors import InvalidOption

commands = typer.Typer(help="Set up and upgrade the tables.")


@commands.command("upgrade")
@on_target()
def upgrade(target: Target) -> None:
    """Create the tables, or bring them to the newest schema."""
    from threadkeep import schema

    with target.engine() as engine:
        before = schema.current(engine)
        schema.upgrade(engine)
        now = schema.current(engine)
    change = "already" if before == now else f"now (before: {before or 'no tables'})"
    target.report({"before": before, "revision": now}, f"{target.shown_url} is at {now} {change}.")


@commands.command("current")
@on_target()
def current(target: Target) -> None:
    """Print the revision of the schema, or `none`."""
    from threadkeep import schema

    revision = None
    if not target.is_missing:  # a command that only looks must not create the file
        with target.engine() as engine:
            revision = schema.current(engine)
    target.report({"revision": revision, "newest": schema.HEAD}, revision or "none")


@commands.command("check")
@on_target()
def check(target: Target) -> None:
    """Succeed if the schema is the one of this version.

    Otherwise the error says which command to run.
    """
    from threadkeep import schema

    target.check_exists()
    with target.engine() as engine:
        schema.check(engine)
    target.report({"revision": schema.HEAD}, f"{target.shown_url} is at {schema.HEAD}, as it should be.")


@commands.command("reconcile")
@on_target()
def reconcile(target: Target) -> None:
    """Sum up the past days of the ledger, and repair wrong sums.

    Reports say the same without it, and are faster with it: run it once a day. Without --tenant: for all of them.
    """
    names = [tenant["name"] for tenant in tenants_of(target)] if target.tenant is None else [target.tenant]
    filled = repaired = 0
    if names:
        with target.store(all_tenants=True) as store:
            for name in names:
                result = store.for_tenant(name).reconcile_usage()
                filled, repaired = filled + result.filled, repaired + result.repaired
    target.report(
        {"filled": filled, "repaired": repaired}, f"{number_of(filled, 'day')} summed up, {repaired:,} repaired."
    )


@commands.command("sql")
@on_target()
def sql(
    target: Target,
    *,
    dialect: Annotated[
        Text,
        Option("--dialect", metavar="NAME", help="sqlite, postgresql, mysql or mariadb; default: that of the URL."),
    ] = None,
) -> None:
    """Print the SQL of an upgrade, without running it.

    It is what `db upgrade` runs on an empty database.
    """
    from threadkeep import schema
    from threadkeep.store.engines import parsed_url

    name = dialect or parsed_url(target.url).get_backend_name()
    if name not in {"sqlite", "postgresql", "mysql", "mariadb"}:
        raise InvalidOption(f"There is no SQL for {name!r}. Dialects: sqlite, postgresql, mysql, mariadb.")
    text = schema.upgrade_sql(name)
    target.report({"dialect": name, "sql": text}, text.rstrip())
