"""The exceptions of threadkeep.

Every error says what happened, where, and what to do about it. Errors of the database driver remain its ``__cause__``.
All of them can be copied and pickled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from reprlib import Repr
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from threadkeep.domain.rendering import Loss, Repair


# What the text of an error lists of the problems of arguments, and the characters of each: models send anything
_SHOWN_PROBLEMS: Final = 10
_PROBLEM_LENGTH: Final = 400
# What new conversations of a user have in common with those of others
SHARED: Final = (
    "All users of a tenant share external ids and the keys of new conversations: begin yours with the user's id."
)
_shown = Repr()
_shown.maxstring = _shown.maxother = 80


def shown(value: object) -> str:
    """Return a value for an error message, shortened whatever its size."""
    try:
        return _shown.repr(value)
    except ValueError:  # an integer of too many digits
        return f"a very large {type(value).__name__}"


def did_you_mean(names: Iterable[object]) -> str:
    """The beginning of a hint that names what may have been meant; nothing where there is none."""
    words = " or ".join(map(repr, names))
    return f"Did you mean {words}? " if words else ""


class ThreadkeepError(Exception):
    """Base class of all errors that threadkeep raises on purpose.

    Attributes:
        message: what happened, and where; without the leading `argument` and without `hint`.
        argument: the name of the argument or option that the error is about, which begins its text; None if there is
            none.
        hint: what to do about it, as sentences for Python users; None if the message is enough.

    The text of the error consists of all three. Other interfaces, such as the command line, word `argument` and `hint`
    in their own way.
    """

    message: str

    def __init__(self, message: str = "", *, argument: str | None = None, hint: str | None = None) -> None:
        self.message, self.argument, self.hint = message, argument, hint
        super().__init__(" ".join(part for part in (argument, message, hint) if part))

    def __reduce__(self) -> tuple[Any, ...]:
        """Support copying and pickling, which would otherwise call `__init__` with the text alone."""
        return _rebuild, (type(self), self.args), vars(self)


def _rebuild(kind: type[ThreadkeepError], args: tuple[Any, ...]) -> ThreadkeepError:
    """Return an error with its text; the caller sets its attributes."""
    error = kind.__new__(kind, *args)
    super(ThreadkeepError, error).__init__(*args)
    return error


class NotFound(ThreadkeepError, LookupError):
    """Something does not exist, or belongs to another tenant or user."""


class InvalidOption(ThreadkeepError, ValueError):
    """An argument or setting cannot be used."""


class AmbiguousId(InvalidOption):
    """Several conversations have an id that begins like this; `ids` are some of them."""

    def __init__(self, beginning: str, ids: Sequence[str], *, has_more: bool = False) -> None:
        self.ids = list(ids)
        more = " and more" if has_more else ""
        super().__init__(
            f"{shown(beginning)} is the beginning of more than one id: {', '.join(ids)}{more}.", hint="Give more of it."
        )


class InvalidItem(ThreadkeepError, ValueError):
    """An item or content part cannot be stored."""


class CursorExpired(ThreadkeepError):
    """Changes after a cursor of the change feed have been removed, or the database is an older copy of itself."""

    def __init__(self) -> None:
        super().__init__(
            "The change feed no longer has all changes after this cursor.",
            hint='Start again: take a cursor with changes(after="now"), read everything, and continue from the cursor.',
        )


class InvalidToolArguments(InvalidItem):
    """The arguments of a call do not match the tool `name`; `problems` are pairs of a path and what is wrong there.

    The text is meant for the model: send it back as the output of the call.
    """

    def __init__(self, name: str, problems: Sequence[tuple[str, str]]) -> None:
        self.name, self.problems = name, list(problems)
        texts = [f"{path}: {problem}" if path else problem for path, problem in problems[:_SHOWN_PROBLEMS]]
        if len(problems) > len(texts):
            texts.append(f"and {len(problems) - len(texts):,} other problems")
        listed = "; ".join(text if len(text) <= _PROBLEM_LENGTH else f"{text[:_PROBLEM_LENGTH]}…" for text in texts)
        super().__init__(f"The arguments of the tool {name!r} cannot be used: {listed}")


class TooLarge(ThreadkeepError):
    """A value exceeds a limit; nothing was written."""


class DamagedRow(ThreadkeepError):
    """A row of the database cannot be read because something else has changed it. `table` and `row` identify it."""

    def __init__(self, table: str, row: str, reason: object) -> None:
        self.table, self.row = table, row
        super().__init__(
            f"The row of threadkeep_{table} with {row} cannot be read: {reason}.",
            hint="Something other than threadkeep has changed it; restore it from a backup.",
        )


class PoolExhausted(ThreadkeepError):
    """No connection of the engine's pool became free in time; nothing was done."""

    def __init__(self) -> None:
        super().__init__(
            "All connections of the pool are in use, and none became free in time.",
            hint="Use fewer threads or tasks at once, or pass an engine with a larger pool_size.",
        )


# what drivers say -> what to do about it
_DRIVER_ADVICE: Final = {
    r"file is not a database": "Give a URL with the file of a database; if this was one, restore a backup.",
    r"Connection refused|Connect call failed": "Start the server, or give a URL with its host and port.",
    r"resolve host|host name|Name or service not known|name resolution|No address associated": "Give a URL with a host "
    "that is known.",
    r"password authentication failed|Access denied|role \".*\" does not exist": "Give a URL with a user and password "
    "that the server knows.",
    r'database ".*" does not exist|Unknown database': "Create it on the server, or give a URL with another one.",
}


def driver_advice(said: str) -> str | None:
    """What to do about what the driver of a database says; None if it is not known."""
    return next((advice for text, advice in _DRIVER_ADVICE.items() if re.search(text, said)), None)


class DatabaseUnavailable(ThreadkeepError):
    """The database could not be opened: its server does not answer, lacks it, or refuses the user; a file is none.

    `database` is its URL, without a password; the driver's error is the cause. Once a store is open, errors of drivers
    are raised as they are.
    """

    def __init__(self, database: str, said: str) -> None:
        self.database = database
        reason = " ".join(said.partition("\n\tIs the server running")[0].split()).rstrip(".")
        hint = driver_advice(said) or "See whether the server runs, and what its log says."
        super().__init__(f"The database {database} cannot be opened: {reason}.", hint=hint)


class UnitOfWorkEnded(ThreadkeepError):
    """A conversation, recorder, iterator or store of a unit of work was used after the end of its transaction."""

    def __init__(self) -> None:
        super().__init__(
            "This unit of work has ended: its transaction was committed, rolled back or closed.",
            hint="Open the conversation again, from the store or in another unit of work.",
        )


class FormatError(ThreadkeepError):
    """Base class of errors about wire formats."""


_LONGEST_NAME = 80
# name of a vendor -> the formats that it speaks
_FORMATS_OF = {
    "openai": ("open_responses", "chat_completion"), "anthropic": ("messages",), "bedrock": ("converse",),
    "google": ("gemini", "interactions"),
}  # fmt: skip


class UnknownFormat(FormatError):
    """There is no wire format with that `name`."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        word = name.lower() if type(name) is str else ""
        if not word or len(word) > _LONGEST_NAME:  # a body
            meant = "The format is the second argument. "
        else:
            meant = did_you_mean(_FORMATS_OF.get(word) or get_close_matches(word, known, n=1))
        hint = f"{meant}Known formats: {', '.join(known)}."
        super().__init__(f"must be the name of a format, not {shown(name)}.", argument="format", hint=hint)


class CannotRender(FormatError):
    """The conversation cannot be rendered as a request that the provider would accept."""


class LossError(CannotRender):
    """Strict rendering would have lost or changed something; `losses` and `repairs` list what."""

    def __init__(self, format_name: str, losses: Sequence[Any], repairs: Sequence[Any] = ()) -> None:
        self.losses: list[Loss] = list(losses)
        self.repairs: list[Repair] = list(repairs)
        reports: list[Loss | Repair] = [*self.losses, *self.repairs]
        first, more = reports[0], f" (and {len(reports) - 1} more)" if len(reports) > 1 else ""
        super().__init__(
            f"Rendering for {format_name} is not exact: {first.code}: {first.detail.rstrip('.')}{more}.",
            hint="Render with strict=False to send it anyway; the losses are reported there.",
        )


class ItemRefused(LossError, InvalidItem):
    """Strict rendering found an item that cannot be sent as it is, such as an image with two sources."""


class CannotParse(FormatError):
    """A provider's body cannot be parsed."""


class StreamChunk(CannotParse, CannotRender):
    """The body is a single event of a stream, which only an assembler can read; `kind` is the type of the event."""

    def __init__(self, format_name: str, kind: str) -> None:
        self.kind = kind
        super().__init__(
            f"The body is one event of a stream ({kind}), not a response.",
            hint=f"Feed all events to get_format({format_name!r}).assembler() and take its response; a conversation "
            f"records them with stream_response({format_name!r}).",
        )


class ProviderError(CannotParse):
    """The provider returned an error instead of a response.

    `code`, `message` and `type` are the provider's own values, or None; `status` is the HTTP status if the body
    contains it.
    """

    message: str | None  # type: ignore[assignment]  # the provider's: None says that it gave none

    def __init__(
        self, message: str | None, *, code: str | None = None, type: str | None = None, status: int | None = None
    ) -> None:
        name = code or type
        super().__init__(f"The provider returned an error: {f'{name}: ' if name else ''}{message or 'no message'}")
        self.code, self.message, self.type, self.status = code, message, type, status


class Conflict(ThreadkeepError):
    """Another writer was first, or has not ended."""


class HeadConflict(Conflict):
    """The branch does not end where the caller expected; `head` is the position where it ends (-1 if empty)."""

    def __init__(self, expected: int, head: int) -> None:
        self.expected, self.head = expected, head
        super().__init__(
            f"The branch ends at position {head}, not at the expected {expected}.",
            hint='Read what is new and try again, or pass on_conflict="append" or on_conflict="branch".',
        )


class IdempotencyConflict(Conflict):
    """An idempotency `key` was used again with different content, or for what was redacted; nothing was written."""

    def __init__(self, key: str, *, is_redacted: bool = False, is_shared: bool = False) -> None:
        self.key = key
        what = "for content that was redacted since" if is_redacted else "with other content"
        hint = f"Use a new key for new content. {SHARED}" if is_shared else "Use a new key for new content."
        super().__init__(f"The idempotency key {key!r} was used before {what}.", hint=hint)


class ResponseInProgress(Conflict):
    """The `branch` has a streamed response in progress; `number` is its number.

    `retry_after` is the number of seconds until its lease expires. A running recorder renews its lease; if the recorder
    has died, the next writer takes over after that time. `is_repeated` says whether it began under the idempotency key
    of the call that was refused, which is the same call again.
    """

    is_repeated = False

    def __init__(self, number: int, branch: int, retry_after: float = 0.0) -> None:
        self.number, self.branch, self.retry_after = number, branch, retry_after
        super().__init__(
            f"Response {number} is still being streamed on branch {branch}.",
            hint="Try again after `retry_after` seconds. Unless it has the same idempotency key, "
            'on_conflict="append" ends it where it is, and on_conflict="branch" leaves it alone.',
        )


class LeaseLost(Conflict):
    """Another writer ended the response of a stream recorder; `number` is the number of that response."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(
            f"Response {number} was ended by another writer: its lease had expired, or that writer asked for it. "
            "What had arrived by then is stored, with its ledger row; what arrived later is not.",
            hint="Pass a longer lease= where the process, or its database, may stand still for longer than that.",
        )


class UnitOfWorkRolledBack(Conflict):
    """The database rolled back a unit of work, after a deadlock or a lost connection; nothing of it was stored."""

    def __init__(self) -> None:
        super().__init__(
            "The database has rolled back this unit of work.",
            hint="Run it again from its beginning, or pass a function to run_in_transaction(), which does.",
        )


class StateConflict(Conflict):
    """Another writer has written the state `name`: it has the `version` (0: it does not exist), not the `expected` one.

    Nothing was written but the ledger row of a response; only a recorder has stored its response by then, without any
    of its states.
    """

    def __init__(self, name: str, expected: int, version: int) -> None:
        self.name, self.expected, self.version = name, expected, version
        found = f"has version {version}" if version else "does not exist"
        wanted = f"version {expected} was expected" if expected else "it was expected not to exist"
        super().__init__(f"The state {name!r} {found}, but {wanted}.", hint="Read it with state() and try again.")


class ToolNotFound(ThreadkeepError):
    """There is no tool, or no handler, with that name."""


class ParsedJsonError(ThreadkeepError, ValueError):
    """The text of a response is not JSON; `text` is that text, or None if there is none."""

    def __init__(self, text: str | None, reason: str) -> None:
        self.text = text
        start = f" The text begins with {text[:200]!r}." if text else ""
        super().__init__(
            f"The text of the response is not JSON: {reason}.{start}",
            hint="Ask for JSON with json_output(...), or call parsed_json() without strict=True, which returns None.",
        )


class SchemaError(ThreadkeepError):
    """Base class of errors about the database schema."""


def _upgrade_hint(url: str | None) -> str:
    shown_url = quote(url) if url else "<your URL>"
    return f"Run `threadkeep --url {shown_url} db upgrade`, or call `threadkeep.schema.upgrade(engine)`."


class SchemaMissing(SchemaError):
    """The database has no threadkeep tables; `wanted` is the revision that this version needs."""

    def __init__(self, wanted: str, url: str | None = None) -> None:
        self.found, self.wanted = None, wanted
        message = f"The database has no tables of threadkeep; this version needs schema {wanted}."
        super().__init__(message, hint=_upgrade_hint(url))


class SchemaOutOfDate(SchemaError):
    """The tables belong to an older release: `found` is their revision, `wanted` the one that this version needs."""

    def __init__(self, found: str, wanted: str, url: str | None = None) -> None:
        self.found, self.wanted = found, wanted
        message = f"The database has schema {found}; this version needs {wanted}."
        super().__init__(message, hint=_upgrade_hint(url))


class SchemaTooNew(SchemaError):
    """The tables belong to a newer release: `found` is their revision, `wanted` the newest one this version knows."""

    def __init__(self, found: str, wanted: str) -> None:
        self.found, self.wanted = found, wanted
        super().__init__(
            f"The database has schema {found}, which this version (schema {wanted}) does not know.",
            hint="Install the newer release of threadkeep that upgraded it.",
        )


class SchemaUnknown(SchemaError):
    """The tables are of no release that this version can upgrade: `found` is their revision, `wanted` its own."""

    def __init__(self, found: str, wanted: str) -> None:
        self.found, self.wanted = found, wanted
        super().__init__(
            f"The database has schema {found}, which is of no release before this version (schema {wanted}).",
            hint="Export it with the version that made it, and import that into a new database.",
        )


class MissingExtra(ThreadkeepError, ImportError):
    """An optional dependency is not installed; `extra` is the extra of threadkeep that installs it."""

    def __init__(self, extra: str, needed_for: str) -> None:
        self.extra = extra
        super().__init__(
            f"{needed_for} needs an optional dependency.", hint=f'Install it with `pip install "threadkeep[{extra}]"`.'
        )
