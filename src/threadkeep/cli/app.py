"""The commands and the options before them."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from typer import Option

from threadkeep.cli.commands import administration, append, conversations, demo, import_sessions, render, search, usage
from threadkeep.cli.failures import USAGE
from threadkeep.cli.options import AsJson, Tenant
from threadkeep.cli.program import Program
from threadkeep.cli.target import DEFAULT_URL, URL_VARIABLE, Target

# In the order of the help
COMMANDS: Final = {
    "ls": conversations.ls, "show": conversations.show, "branches": conversations.branches, "render": render.render,
    "import": import_sessions.import_sessions, "append": append.append, "search": search.search,
    "reindex": search.reindex, "usage": usage.usage, "tools": usage.tools, "stats": administration.stats,
    "retain": administration.retain, "erase-user": administration.erase_user, "demo": demo.demo,
}  # fmt: skip

app = typer.Typer(cls=Program, rich_markup_mode=None, pretty_exceptions_enable=False)
app.add_typer(administration.schema_commands, name="db")
app.add_typer(administration.tenant_commands, name="tenants")
for name, command in COMMANDS.items():
    app.command(name)(command)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    *,
    url: Annotated[
        str, Option("--url", metavar="URL", envvar=URL_VARIABLE, help="Database: sqlite, postgresql, mysql, mariadb.")
    ] = DEFAULT_URL,
    tenant: Tenant = None,
    as_json: AsJson = False,
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """LLM conversations as SQL rows: list and read them, render requests, append answers, count tokens."""
    context.obj = Target(url, tenant, as_json)
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
