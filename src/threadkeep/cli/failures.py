"""How commands fail: the exit code of an error, and its text in one line, worded for the command line.

Errors of threadkeep speak to Python users. Here, the argument is replaced with the option it comes from, and a hint
that contains a Python call or keyword argument with advice for the shell, if there is any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from threadkeep import errors

OTHER: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130  # as shells report a program that Ctrl-C ended
BROKEN_PIPE: Final = 141  # as shells report a program whose reader went away

# error -> exit code; the nearest class counts, everything else is OTHER
EXIT_CODES: Final[dict[type[BaseException], int]] = {
    errors.InvalidOption: USAGE,
    errors.InvalidItem: USAGE,
    errors.UnknownFormat: USAGE,
    errors.NotFound: 3,
    errors.ToolNotFound: 3,
    errors.Conflict: 4,
    errors.CannotParse: 5,
    errors.CannotRender: 6,
    errors.SchemaError: 7,
    errors.TooLarge: 8,
    errors.ThreadkeepError: OTHER,
    BrokenPipeError: BROKEN_PIPE,
    KeyboardInterrupt: INTERRUPTED,
}

# Python arguments that an option has the name of
_SAME_NAME: Final = (
    "account", "after", "branch", "by", "cache", "content", "dialect", "dynamic_context", "dynamic_context_at",
    "expected_head", "external_id", "first_token_ms", "format", "largest", "latency_ms", "limit", "model",
    "monthly_bodies", "on_conflict", "order", "order_by", "partitions", "provider", "raw_bodies", "read_url", "role",
    "server_state", "since", "status", "type", "tz", "unread_by", "until", "upstream", "upto", "url", "window",
)  # fmt: skip

# Python argument -> the option or argument of the command line that it comes from
OPTIONS: Final = {
    **{name: f"--{name.replace('_', '-')}" for name in _SAME_NAME},
    "beginning": "ID",
    "path": "--blobs",
    "place": "PLACE",
    "source": "--from",
    "user": "The user's id",
    "conversation_id": "--conversation",
    "id": "ID",
    "idempotency_key": "--key",
    "labels": "--label",
    "masked": "--mask",
    "name": "The tenant's name",
    "other": "--to",
    "tenant": "The tenant's name",
    "text": "TEXT",
    "upstreams": "--upstream",
    "user_id": "The user's id",
}

# error -> what to do about it in a shell, whatever its hint
ADVICE: Final[dict[type[errors.ThreadkeepError], str]] = {
    errors.CursorExpired: "Start again, without --after.",
    errors.HeadConflict: "Read what is new and try again, or give --on-conflict append or --on-conflict branch.",
    errors.LossError: "Without --strict it is rendered anyway, and the losses are reported on stderr.",
    errors.ResponseInProgress: "Wait until it ends, or give --on-conflict append, which ends it where it is, or "
    "--on-conflict branch.",
    errors.StreamChunk: "Give a file with all events, and --stream.",
}

# call or value that a hint names -> what does the same in a shell
CALLS: Final = {
    "blobs=": "Give --blobs with their folder or bucket, or use `threadkeep render --media-url`.",
    "None for the beginning": "Give the `cursor` of a line, or `now`; without --after, it starts at the beginning.",
    "branches(": "`threadkeep branches` lists them.",
    'existing="skip"': "Without --refuse it is left as it is.",
    "create_tenant(": "`threadkeep tenants create` creates one, `threadkeep tenants ls` lists them.",
    "find_conversation(": "For an id of your own use `threadkeep ls --external-id`.",
    "for_tenant(": "--tenant opens it.",
    "keys.list(": "`threadkeep keys ls` lists them.",
    "by the URL sqlite:///": "Open a backup with --url sqlite:///FILE, or put it back (docs/moving.md).",
    "prepare_threshold=": "Behind a pooler, give --url with ?prepare_threshold=none.",
    "purge_deleted(": "`threadkeep retain` removes what is left of it.",
    "reindex(": "Rebuild it with `threadkeep reindex --rebuild`.",
    "update(model=": 'Import it with one ("model" in the file, or --model), or let the application set it.',
    "upgrade(": "Run `threadkeep db upgrade`.",
}

_PYTHON: Final = re.compile(r"\w[(=]")  # a call, or a keyword argument


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error."""
    return next((EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES), OTHER)


def error_message(error: BaseException) -> str:
    """Return an error as one line; of a database error the driver's message and the database, without the statement."""
    if isinstance(error, errors.ThreadkeepError):
        return one_line(in_shell_words(error))
    driver_error = getattr(error, "orig", None)
    if driver_error is not None:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        said = one_line(str(driver_error)) or type(driver_error).__name__
        advice = errors.driver_advice(said)
        return f"The database says: {said}{notes}" + (f". {advice}" if advice else "")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + ("" if error.filename is None else f": {error.filename}")
    return one_line(str(error)) or type(error).__name__


def in_shell_words(error: errors.ThreadkeepError, options: Mapping[str, str] = OPTIONS) -> str:
    """Return the text of an error, with its argument replaced with one of these options and advice for the shell."""
    if error.argument is None and error.hint is None:
        return str(error)
    argument = None if error.argument is None else options.get(error.argument, error.argument)
    return " ".join(part for part in (argument, error.message, advice_on(error)) if part)


def advice_on(error: errors.ThreadkeepError) -> str | None:
    """Return what to do about an error in a shell, or None."""
    advice = next((ADVICE[kind] for kind in type(error).__mro__ if kind in ADVICE), None)
    if advice is not None or error.hint is None:
        return advice
    if isinstance(error, errors.SchemaMissing | errors.SchemaOutOfDate):
        return f"{error.hint.rpartition(', or call')[0]}."
    command = next((CALLS[call] for call in CALLS if call in error.hint), None)
    return command or (None if _PYTHON.search(error.hint) else error.hint)


@contextmanager
def about(option: str) -> Iterator[None]:
    """Let errors name this option, in which the URL or format stood that they are about."""
    try:
        yield
    except (errors.InvalidOption, errors.UnknownFormat) as error:
        if error.argument in {"url", "format"}:
            error.argument = option
        raise


def one_line(text: str) -> str:
    """Return a text with line breaks replaced with spaces."""
    return " ".join(text.split())
