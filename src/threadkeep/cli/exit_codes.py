"""Exit codes."""

from __future__ import annotations

from typing import Final

from threadkeep.errors import (
    CannotParse,
    CannotRender,
    Conflict,
    InvalidItem,
    InvalidOption,
    NotFound,
    SchemaError,
    ThreadkeepError,
    TooLarge,
    ToolNotFound,
    UnknownFormat,
)

OTHER: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130  # as shells report a program that Ctrl-C ended
BROKEN_PIPE: Final = 141  # as shells report a program whose reader went away

# error -> exit code; the nearest class counts, everything else is OTHER
EXIT_CODES: Final[dict[type[BaseException], int]] = {
    InvalidOption: USAGE,
    InvalidItem: USAGE,
    UnknownFormat: USAGE,
    NotFound: 3,
    ToolNotFound: 3,
    Conflict: 4,
    CannotParse: 5,
    CannotRender: 6,
    SchemaError: 7,
    TooLarge: 8,
    ThreadkeepError: OTHER,
    BrokenPipeError: BROKEN_PIPE,
    KeyboardInterrupt: INTERRUPTED,
}


def exit_code(error: BaseException) -> int:
    """The exit code of an error."""
    return next((EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES), OTHER)
