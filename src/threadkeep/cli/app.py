"""The command-line program: its commands and global options, and how errors become a line on stderr and exit code."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Option
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from threadkeep.cli.failures import BROKEN_PIPE, INTERRUPTED, USAGE, error_message, exit_code, one_line
from threadkeep.cli.options import AsJson, Tenant
from threadkeep.cli.target import BLOBS_VARIABLE, DEFAULT_URL, READ_URL_VARIABLE, URL_VARIABLE, Target
from threadkeep.domain.printing import printable
from threadkeep.errors import ThreadkeepError

APP_OPTIONS: Mapping[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}

_SURROGATES: Final = re.compile("[\ud800-\udfff]")


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name; one that is still the name of a function or group, ``module:name``, is loaded when asked for.

    Args:
        package: the package of the modules.
        places: where each command is, by its name, in the order of the help.
    """

    def __init__(self, package: str, places: Mapping[str, str]) -> None:
        self._package = package
        self._commands: dict[str, Any] = dict(places)

    def __getitem__(self, name: str) -> Any:
        command = self._commands[name]
        if isinstance(command, str):
            command = self._commands[name] = self._load(name, command)
        return command

    def __setitem__(self, name: str, command: Any) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)

    def _load(self, name: str, place: str) -> Any:
        module, _, attribute = place.partition(":")
        found = getattr(import_module(f"{self._package}.{module}"), attribute)
        alone = typer.Typer(**APP_OPTIONS)
        if isinstance(found, typer.Typer):
            alone.add_typer(found, name=name)
        else:
            alone.command(name, cls=QuickCommand)(found)
        return typer.main.get_group(alone).commands[name]


class QuickCommand(TyperCommand):
    """A command that starts without loading Pydantic, if its values are texts, flags and defaults."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        return without_conversions(super().get_params(ctx))


def without_conversions(parameters: list[Any]) -> list[Any]:
    """Let Typer convert only values that need it: it loads Pydantic even for those that are not given."""
    for parameter in parameters:
        if isinstance(parameter, TyperOption | TyperArgument) and "get_runtime_param" not in vars(parameter):
            vars(parameter)["get_runtime_param"] = Conversion(parameter).get
    return parameters


class Conversion:
    """Typer's conversion of the values of a parameter, skipped for a value that is its result already.

    With a release of Typer that does not ask the parameter for it, commands take longer to start, and are the same
    otherwise.
    """

    def __init__(self, parameter: Any) -> None:
        self._descriptor, self._get_own = parameter.type_descriptor, parameter.get_runtime_param

    def get(self) -> Conversion:
        """Return it, for Typer."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value as the command expects it; raise Typer's BadParameter if it is none."""
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        if value is param.default or value in (self._descriptor.choices or ()) or self._is_text(value, is_list=is_list):
            return value
        return self._get_own().coerce(value, param=param, ctx=ctx)

    def _is_text(self, value: Any, *, is_list: bool) -> bool:
        """Whether text is expected, and this is some; what has no Unicode is left to Typer to refuse."""
        texts = value if is_list and isinstance(value, list | tuple) else [value]
        is_text = self._descriptor.annotation in (str, list[str]) and all(isinstance(text, str) for text in texts)
        return is_text and not any(_SURROGATES.search(text) for text in texts)


# Since 0.20, Typer has its own copy of Click; its parser raises the base classes of BadParameter.
PARSER_ERRORS: Final[tuple[type[Exception], ...]] = tuple(
    kind for kind in typer.BadParameter.__mro__ if issubclass(kind, Exception) and hasattr(kind, "format_message")
)
ENDINGS: Final[tuple[type[Exception], ...]] = (typer.Exit, *PARSER_ERRORS)

# Typer checks values with Pydantic; these parts of its messages are not useful.
PYDANTIC_NOISE: Final = re.compile(r"(?<=: )Value error, |, unable to parse .*$")

# Between two collections of garbage, instead of 700: what is imported is no garbage, and looking at it again and again
# takes a tenth of the start of a command.
NEW_OBJECTS: Final = 50_000

# The commands in the order of the help, and where each of them is in `threadkeep.cli.commands`
COMMANDS: Final = {
    "ls": "conversations:ls", "show": "conversations:show", "branches": "conversations:branches",
    "tree": "conversations:tree",
    "render": "render:render", "import": "import_sessions:import_sessions", "append": "append:append",
    "search": "search:search", "reindex": "search:reindex", "changes": "search:changes", "usage": "usage:usage",
    "export-usage": "usage:export_usage", "tools": "usage:tools", "stats": "administration:stats",
    "title": "append:title", "label": "append:label", "fork": "append:fork", "archive": "append:archive",
    "unarchive": "append:unarchive", "delete": "append:delete", "export": "moving:export",
    "restore": "moving:restore", "copy": "moving:copy", "backup": "moving:backup", "doctor": "administration:doctor",
    "retain": "administration:retain", "erase-user": "administration:erase_user", "keys": "keys:commands",
    "serve": "serve:serve", "record": "serve:record", "view": "serve:view", "mcp": "serve:mcp",
    "init": "init:init", "demo": "demo:demo", "db": "administration:schema_commands",
    "tenants": "administration:tenant_commands",
}  # fmt: skip


class Program(TyperGroup):
    """The commands, and all the ways in which a run can end."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = LazyCommands("threadkeep.cli.commands", COMMANDS)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options."""
        return without_conversions(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Click's hook
        """Return the names of the commands, without loading them."""
        return list(self.commands)

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line and exit."""
        # Open the null device for closed streams (``>&-``), which are None in Python, so that using them would fail
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - used until the end
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


def _usage_message(error: Any) -> str:
    """Return the message of the parser, and how to get help."""
    context = getattr(error, "ctx", None)
    hint = "" if context is None else f" Try: {context.command_path} --help"
    text = PYDANTIC_NOISE.sub("", one_line(error.format_message())).rstrip(".")
    return text + ("" if text.endswith("?") else ".") + hint


def _expected_errors() -> tuple[type[Exception], ...]:
    """Return the errors that are not bugs, for which a traceback would not help."""
    from sqlalchemy.exc import SQLAlchemyError

    buckets = sys.modules.get("botocore.exceptions")  # where a command has used one
    of_buckets = () if buckets is None else (buckets.BotoCoreError, buckets.ClientError)
    return ThreadkeepError, SQLAlchemyError, OSError, *of_buckets


def _print_error(message: str) -> None:
    typer.echo(printable(f"threadkeep: {message}"), err=True)


app = typer.Typer(cls=Program, **APP_OPTIONS)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    *,
    url: Annotated[
        str,
        Option("--url", metavar="URL", envvar=URL_VARIABLE, help="Database URL (SQLite, PostgreSQL, MySQL, MariaDB)."),
    ] = DEFAULT_URL,
    read_url: Annotated[
        str | None,
        Option("--read-url", metavar="URL", envvar=READ_URL_VARIABLE, help="Replica to read from; writes go to --url."),
    ] = None,
    tenant: Tenant = None,
    blobs: Annotated[
        str | None,
        Option(
            "--blobs",
            metavar="PLACE",
            envvar=BLOBS_VARIABLE,
            help="Folder or s3://BUCKET/PREFIX of the media that are not in the database.",
        ),
    ] = None,
    as_json: AsJson = False,
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Store LLM conversations in SQL: list and read them, render requests, append responses, report usage."""
    if _is_given(context, "url") and not _is_given(context, "read_url"):  # the replica is one of another database
        read_url = None
    context.obj = Target(url, tenant, as_json, read_url, blobs)
    if version:
        from threadkeep import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USAGE)


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option was given, and did not come from the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def main() -> None:
    """Run the command line of this process."""
    gc.set_threshold(NEW_OBJECTS)
    app(prog_name="threadkeep")
