"""The program around the commands: every error ends in one line on stderr and an exit code."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperGroup

from threadkeep.cli.exits import BROKEN_PIPE, INTERRUPTED, USAGE, error_text, exit_code, one_line
from threadkeep.cli.output import printable
from threadkeep.errors import ThreadkeepError

# Typer brings its own copy of Click from 0.20 on; the classes above BadParameter are what its parser raises.
PARSER_ERRORS: Final[tuple[type[Exception], ...]] = tuple(
    kind for kind in typer.BadParameter.__mro__ if issubclass(kind, Exception) and hasattr(kind, "format_message")
)

ENDS: Final[tuple[type[Exception], ...]] = (typer.Exit, *PARSER_ERRORS)  # of runs that came to no error of ours

# Typer checks values by Pydantic, whose messages begin and end like this.
WORDS_OF_PARSER: Final = re.compile(r"(?<=: )Value error, |, unable to parse .*$")


class Program(TyperGroup):
    """The commands, with the ways a run can end."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line and exit."""
        _open_streams()
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # lone surrogates, and what the terminal's encoding has no form for
                stream.reconfigure(errors="backslashreplace")
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except PARSER_ERRORS as error:
            _complain(_usage_text(error))
            code = USAGE
        except typer.Abort:
            code = INTERRUPTED
        except SystemExit as end:  # how Typer ends when nobody reads the help
            if not isinstance(end.__context__, BrokenPipeError):
                raise
            code = BROKEN_PIPE
        except OSError as error:  # of the help, which is printed before there is a command
            _complain(error_text(error))
            code = exit_code(error)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; its errors become exit codes."""
        try:
            found = super().invoke(ctx)
            sys.stdout.flush()
        except ENDS:  # before anything asks for SQLAlchemy's errors, and loads it
            raise
        except BrokenPipeError as error:
            _silence()
            raise typer.Exit(BROKEN_PIPE) from error
        except _expected() as error:
            _complain(error_text(error))
            raise typer.Exit(exit_code(error)) from error
        return found


def _open_streams() -> None:
    """Put nothing where a stream was closed (``>&-``): Python has None for it, on which every use fails."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - used until the end


def _usage_text(error: Any) -> str:
    """What the parser complains of, and where the help is."""
    context = getattr(error, "ctx", None)
    hint = "" if context is None else f" Try: {context.command_path} --help"
    return WORDS_OF_PARSER.sub("", one_line(error.format_message())).rstrip(".") + "." + hint


def _expected() -> tuple[type[Exception], ...]:
    """Errors that are no defects; a traceback would not help. Asked for only when something failed."""
    from sqlalchemy.exc import SQLAlchemyError

    return ThreadkeepError, SQLAlchemyError, OSError


def _complain(text: str) -> None:
    typer.echo(printable(f"threadkeep: {text}"), err=True)


def _silence() -> None:
    """Nobody reads any more: what is still buffered goes nowhere, instead of failing once more at the very end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
