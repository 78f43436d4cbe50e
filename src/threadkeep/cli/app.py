"""The command-line program: its commands and global options, and how errors become a line on stderr and exit code."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Option
from typer.core import TyperGroup

from threadkeep.cli.commands import (
    administration,
    append,
    changes,
    conversations,
    demo,
    doctor,
    editing,
    import_sessions,
    moving,
    render,
    search,
    tree,
    usage,
)
from threadkeep.cli.failures import BROKEN_PIPE, INTERRUPTED, USAGE, error_message, exit_code, one_line
from threadkeep.cli.options import AsJson, Tenant
from threadkeep.cli.target import DEFAULT_URL, URL_VARIABLE, Target
from threadkeep.domain.printing import printable
from threadkeep.errors import ThreadkeepError

# Since 0.20, Typer has its own copy of Click; its parser raises the base classes of BadParameter.
PARSER_ERRORS: Final[tuple[type[Exception], ...]] = tuple(
    kind for kind in typer.BadParameter.__mro__ if issubclass(kind, Exception) and hasattr(kind, "format_message")
)
ENDINGS: Final[tuple[type[Exception], ...]] = (typer.Exit, *PARSER_ERRORS)

# Typer checks values with Pydantic; these parts of its messages are not useful.
PYDANTIC_NOISE: Final = re.compile(r"(?<=: )Value error, |, unable to parse .*$")


class Program(TyperGroup):
    """The commands, and all the ways in which a run can end."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line and exit."""
        _open_streams()
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # for lone surrogates, and characters that the terminal's encoding lacks
                stream.reconfigure(errors="backslashreplace")
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except PARSER_ERRORS as error:
            _print_error(_usage_message(error))
            code = USAGE
        except typer.Abort:
            code = INTERRUPTED
        except SystemExit as exit_:  # how Typer ends if the help is printed to a closed pipe
            if not isinstance(exit_.__context__, BrokenPipeError):
                raise
            code = BROKEN_PIPE
        except OSError as error:  # while printing the help, which happens outside `invoke`
            _print_error(error_message(error))
            code = exit_code(error)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; errors become exit codes."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except ENDINGS:  # first, because `_expected_errors` loads SQLAlchemy
            raise
        except BrokenPipeError as error:
            # What is buffered goes to the null device; flushing it to the closed pipe at exit would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(BROKEN_PIPE) from error
        except _expected_errors() as error:
            _print_error(error_message(error))
            raise typer.Exit(exit_code(error)) from error
        return result


def _open_streams() -> None:
    """Open the null device for closed streams (``>&-``), which are None in Python, so that using them would fail."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - used until the end


def _usage_message(error: Any) -> str:
    """Return the message of the parser, and how to get help."""
    context = getattr(error, "ctx", None)
    hint = "" if context is None else f" Try: {context.command_path} --help"
    text = PYDANTIC_NOISE.sub("", one_line(error.format_message())).rstrip(".")
    return text + ("" if text.endswith("?") else ".") + hint


def _expected_errors() -> tuple[type[Exception], ...]:
    """Return the errors that are not bugs, for which a traceback would not help."""
    from sqlalchemy.exc import SQLAlchemyError

    return ThreadkeepError, SQLAlchemyError, OSError


def _print_error(message: str) -> None:
    typer.echo(printable(f"threadkeep: {message}"), err=True)


# In the order of the help
COMMANDS: Final = {
    "ls": conversations.ls, "show": conversations.show, "branches": conversations.branches, "tree": tree.tree,
    "render": render.render,
    "import": import_sessions.import_sessions, "append": append.append, "search": search.search,
    "reindex": search.reindex, "changes": changes.changes, "usage": usage.usage, "tools": usage.tools,
    "stats": administration.stats,
    "title": editing.title, "label": editing.label, "fork": editing.fork, "archive": editing.archive,
    "unarchive": editing.unarchive, "delete": editing.delete, "export": moving.export, "restore": moving.restore,
    "copy": moving.copy, "backup": moving.backup, "doctor": doctor.doctor, "retain": administration.retain,
    "erase-user": administration.erase_user, "demo": demo.demo,
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
        str,
        Option("--url", metavar="URL", envvar=URL_VARIABLE, help="Database URL (SQLite, PostgreSQL, MySQL, MariaDB)."),
    ] = DEFAULT_URL,
    tenant: Tenant = None,
    as_json: AsJson = False,
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Store LLM conversations in SQL: list and read them, render requests, append responses, report usage."""
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
