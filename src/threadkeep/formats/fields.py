"""The engine behind the field tables: every session option has exactly one row in the table of every format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.formats.reports import Context

How = Callable[[Any, Context], Any]
DEFAULTS: Final[tuple[Any, ...]] = (False, "", [], {})  # values that ask for nothing

_METADATA_PAIRS, _METADATA_KEY, _METADATA_VALUE = 16, 64, 512
_METADATA_RULE: Final = "the format takes 16 pairs of texts, keys to 64 and values to 512 characters"


class Field(NamedTuple):
    """An option that the format has: where it goes, and what becomes of its value (None leaves it out)."""

    option: str
    target: str  # a key of the request; dots lead into objects
    how: How | None = None


class Spread(NamedTuple):
    """An option that becomes several keys of the request."""

    option: str
    targets: tuple[str, ...]
    how: Callable[[Any, Context], JsonObject]


class Dropped(NamedTuple):
    """An option that the format does not have, and why; a value other than `DEFAULTS` and `silent` is a loss."""

    option: str
    reason: str
    silent: tuple[Any, ...] = ()


class Elsewhere(NamedTuple):
    """An option that is no plain field; `what` says what becomes of it."""

    option: str
    what: str


Row = Field | Spread | Dropped | Elsewhere


def render_fields(rows: Iterable[Row], settings: JsonObject, context: Context) -> JsonObject:
    """The request's keys for the options that are set; what the format does not have is reported."""
    body: JsonObject = {}
    for row in rows:
        value = settings.get(row.option)
        if value is None or isinstance(row, Elsewhere):
            continue
        if isinstance(row, Dropped):
            if value not in DEFAULTS and value not in row.silent:
                context.lose("option", row.option, f"{row.option} was left out: {row.reason}.")
        elif isinstance(row, Spread):
            body.update(row.how(value, context))
        else:
            _place(body, row.target, value if row.how is None else row.how(value, context))
    return body


def metadata(value: Any, context: Context) -> Any:
    """Metadata within the limits of OpenAI: 16 pairs of texts, keys of 64 and values of 512 characters."""
    if not isinstance(value, dict):
        return value
    found: JsonObject = {}
    for key, inner in value.items():
        text = dumps(inner).decode() if isinstance(inner, int | float) else inner
        if isinstance(text, str) and len(key) <= _METADATA_KEY and len(text) <= _METADATA_VALUE:
            found[key] = text
        elif inner is not None:
            context.lose("metadata", f"metadata.{key}", f"metadata.{key} was left out: {_METADATA_RULE}.")
    for key in list(found)[_METADATA_PAIRS:]:
        del found[key]
        context.lose("metadata", f"metadata.{key}", f"metadata.{key} was left out: {_METADATA_RULE}.")
    return found


def _place(body: JsonObject, target: str, value: Any) -> None:
    if value is None:
        return
    *outer, last = target.split(".")
    for key in outer:
        body = body.setdefault(key, {})
    body[last] = value
