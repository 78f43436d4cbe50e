"""Exit codes, and how an error is said in one line."""

from __future__ import annotations

from typing import Final

from threadkeep.cli.words import in_words
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


def error_text(error: BaseException) -> str:
    """An error in one line; of a database error what the driver says and of which database, without the statement."""
    if isinstance(error, ThreadkeepError):
        return in_words(one_line(str(error)))
    driver = getattr(error, "orig", None)
    if driver is not None:
        place = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        return f"The database says: {one_line(str(driver)) or type(driver).__name__}{place}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + ("" if error.filename is None else f": {error.filename}")
    return one_line(str(error)) or type(error).__name__


def one_line(text: str) -> str:
    """A text with its line breaks as blanks."""
    return " ".join(text.split())
