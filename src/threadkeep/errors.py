"""The exceptions of threadkeep.

::

    ThreadkeepError
    ├── NotFound (LookupError)            no such conversation, tenant, item or branch, or not yours
    ├── InvalidOption (ValueError)        an argument or setting that cannot be used
    ├── InvalidItem (ValueError)          an item or content part that cannot be stored
    ├── TooLarge                          a value over a limit of the library or the database server
    ├── FormatError
    │   ├── UnknownFormat                 no wire format of that name
    │   ├── CannotRender                  no request can be made of this conversation
    │   │   └── LossError                 strict rendering would lose or change something
    │   │       └── ItemRefused           … because of an item that no rendering can send (InvalidItem, too)
    │   └── CannotParse                   a provider body that cannot be understood
    │       ├── StreamChunk               a part of a stream instead of a whole body (CannotRender, too)
    │       └── ProviderError             the provider answered with an error
    ├── Conflict
    │   ├── HeadConflict                  somebody else appended first
    │   ├── IdempotencyConflict           the key was used with other content
    │   ├── ResponseInProgress            the branch has an unfinished streamed response
    │   └── LeaseLost                     a stream recorder whose lease was taken over
    ├── ToolNotFound                      no tool, or no handler, of that name
    ├── ParsedJsonError (ValueError)      the text of a response is not JSON
    ├── SchemaError
    │   ├── SchemaMissing                 the database has no tables of threadkeep
    │   ├── SchemaOutOfDate               the tables are of an older release
    │   └── SchemaTooNew                  the tables are of a newer release
    └── MissingExtra (ImportError)        an optional dependency is not installed

Every message says what happened, where, and what to do. Errors of the database driver stay as ``__cause__``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Report(Protocol):
    """What `LossError` needs to know of a loss or repair."""

    @property
    def code(self) -> str:
        """A short stable word."""

    @property
    def detail(self) -> str:
        """A sentence for people."""


class ThreadkeepError(Exception):
    """Base of everything that threadkeep raises on purpose."""


class NotFound(ThreadkeepError, LookupError):
    """There is nothing of that name, or it belongs to another tenant or user."""


class InvalidOption(ThreadkeepError, ValueError):
    """An argument or setting cannot be used."""


class InvalidItem(ThreadkeepError, ValueError):
    """An item or content part cannot be stored."""


class TooLarge(ThreadkeepError):
    """A value is over a limit; nothing was written."""


class FormatError(ThreadkeepError):
    """Base of the errors about wire formats."""


class UnknownFormat(FormatError):
    """No wire format has that name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        super().__init__(f"There is no format {name!r}. Known formats: {', '.join(known)}.")


class CannotRender(FormatError):
    """No request that the provider would take can be made of this conversation."""


class LossError(CannotRender):
    """Strict rendering refused to lose or change something; `losses` and `repairs` say what."""

    def __init__(self, format_name: str, losses: Sequence[Report], repairs: Sequence[Report] = ()) -> None:
        self.losses, self.repairs = list(losses), list(repairs)
        first = [*losses, *repairs][0]
        more = len(losses) + len(repairs) - 1
        super().__init__(
            f"Rendering for {format_name} is not exact: {first.code}: {first.detail.rstrip('.')}"
            + (f" (and {more} more)" if more else "")
            + ". Render with strict=False to send it anyway; the losses are reported there."
        )


class ItemRefused(LossError, InvalidItem):
    """Strict rendering met an item that cannot be sent as it is, such as an image with two sources."""


class CannotParse(FormatError):
    """A provider body cannot be understood."""


class StreamChunk(CannotParse, CannotRender):
    """The body is one event of a stream, which only an assembler can read."""

    def __init__(self, format_name: str, kind: str) -> None:
        self.kind = kind
        super().__init__(
            f"The body is one event of a stream ({kind}), not a response. Feed all events to "
            f"get_format({format_name!r}).assembler() and take its response; a conversation records them by "
            f"stream_response({format_name!r})."
        )


class ProviderError(CannotParse):
    """The provider answered with an error instead of a response.

    `code`, `message` and `type` are the provider's own words; `status` is the HTTP status where the body states it.
    """

    def __init__(
        self, message: str | None, *, code: str | None = None, type: str | None = None, status: int | None = None
    ) -> None:
        self.code, self.message, self.type, self.status = code, message, type, status
        named = code or type
        super().__init__(f"The provider returned an error: {f'{named}: ' if named else ''}{message or 'no message'}")


class Conflict(ThreadkeepError):
    """Somebody else changed the conversation first."""


class HeadConflict(Conflict):
    """The branch does not end where the caller expected; `head` is the position where it ends (-1 when empty)."""

    def __init__(self, expected: int, head: int) -> None:
        self.expected, self.head = expected, head
        super().__init__(
            f"The branch ends at position {head}, not at the expected {expected}. "
            'Read what is new and try again, or pass on_conflict="append" or on_conflict="branch".'
        )


class IdempotencyConflict(Conflict):
    """An idempotency key was used again with other content; nothing was written."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"The idempotency key {key!r} was used before with other content. Use a new key for new content."
        )


class ResponseInProgress(Conflict):
    """The branch has a streamed response in progress; `number` is its number."""

    def __init__(self, number: int, branch: int) -> None:
        self.number, self.branch = number, branch
        super().__init__(
            f"Response {number} is still being streamed on branch {branch}. Wait for its end, or pass "
            'on_conflict="append", which ends it where it is, or on_conflict="branch".'
        )


class LeaseLost(Conflict):
    """The lease of a stream recorder has expired and was taken over; `number` is that of its response."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(
            f"Somebody else has ended response {number}: its lease was over, or they asked for that. What had come of "
            "it is stored, with its ledger row; what came since is not. A longer lease= leaves more time."
        )


class ToolNotFound(ThreadkeepError):
    """There is no tool, or no handler, of that name."""


class ParsedJsonError(ThreadkeepError, ValueError):
    """The text of a response is not JSON; `text` is that text."""

    def __init__(self, text: str | None, reason: str) -> None:
        self.text = text
        super().__init__(f"The text of the response is not JSON: {reason}. Its text: {(text or '')[:200]!r}")


class SchemaError(ThreadkeepError):
    """Base of the errors about the database schema."""


UPGRADE_HINT = "Run `threadkeep db upgrade`, or call `threadkeep.schema.upgrade(engine)`."


class SchemaMissing(SchemaError):
    """The database has no tables of threadkeep."""

    def __init__(self, wanted: str) -> None:
        self.found, self.wanted = None, wanted
        super().__init__(f"The database has no tables of threadkeep, this version needs {wanted}. {UPGRADE_HINT}")


class SchemaOutOfDate(SchemaError):
    """The tables are of an older release."""

    def __init__(self, found: str, wanted: str) -> None:
        self.found, self.wanted = found, wanted
        super().__init__(f"The database has schema {found}, this version needs {wanted}. {UPGRADE_HINT}")


class SchemaTooNew(SchemaError):
    """The tables are of a newer release of threadkeep."""

    def __init__(self, found: str, wanted: str) -> None:
        self.found, self.wanted = found, wanted
        super().__init__(
            f"The database has schema {found}, which this version (schema {wanted}) does not know. "
            "Install the newer release of threadkeep that upgraded it."
        )


class MissingExtra(ThreadkeepError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, needed_for: str) -> None:
        self.extra = extra
        super().__init__(
            f"{needed_for} needs an optional dependency. Install it with `pip install threadkeep[{extra}]`."
        )
