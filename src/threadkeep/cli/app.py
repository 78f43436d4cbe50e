"""The commands and the options before them."""

from __future__ import annotations

from typing import Annotated

import typer

from threadkeep.cli import (
    appending,
    branches,
    database,
    demo,
    importing,
    listing,
    rendering,
    retention,
    searching,
    showing,
    stats,
    tenants,
    tools,
    usage,
)
from threadkeep.cli.exits import USAGE
from threadkeep.cli.place import DEFAULT_URL, URL_VARIABLE, Place
from threadkeep.cli.program import Program

app = typer.Typer(cls=Program, rich_markup_mode=None, pretty_exceptions_enable=False)
app.add_typer(database.commands, name="db")
app.add_typer(tenants.commands, name="tenants")
app.command("ls")(listing.ls)
app.command("show")(showing.show)
app.command("branches")(branches.branches)
app.command("render")(rendering.render)
app.command("import")(importing.import_sessions)
app.command("append")(appending.append)
app.command("search")(searching.search)
app.command("reindex")(searching.reindex)
app.command("usage")(usage.usage)
app.command("tools")(tools.tools)
app.command("stats")(stats.stats)
app.command("retain")(retention.retain)
app.command("erase-user")(retention.erase_user)
app.command("demo")(demo.demo)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    *,
    url: Annotated[
        str,
        typer.Option("--url", metavar="URL", envvar=URL_VARIABLE, help="Database: sqlite, postgresql, mysql, mariadb."),
    ] = DEFAULT_URL,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Tenant, in a database that several share.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """LLM conversations as SQL rows: list and read them, render requests, append answers, count tokens."""
    context.obj = Place(url, tenant, as_json)
    if version:
        from threadkeep import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USAGE)


def main() -> None:
    """Run the command line of this process."""
    app(prog_name="threadkeep")
