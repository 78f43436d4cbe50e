"""The engine behind the field tables: every session option has exactly one row in the table of every format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.options import OPTIONS
from threadkeep.errors import CannotRender, InvalidOption
from threadkeep.formats.reports import Context

How = Callable[[Any, Context], Any]
DEFAULTS: Final[tuple[Any, ...]] = (False, "", [], {})  # values that ask for nothing

# service tiers that only other APIs than OpenAI's have, and that no server of its formats takes
TIERS_ELSEWHERE: Final = frozenset({"standard", "standard_only", "unspecified", "reserved"})

_METADATA_PAIRS, _METADATA_KEY, _METADATA_VALUE = 16, 64, 512
_METADATA_RULE: Final = "the format takes 16 pairs of texts, keys to 64 and values to 512 characters"


class Field(NamedTuple):
    """An option that the format has: where it goes, what becomes of its value (None leaves it out), and the way back.

    Without `back` a value is read as it stands.
    """

    option: str
    target: str  # a key of the request; dots lead into objects
    how: How | None = None
    back: Callable[[Any], Any] | None = None


class Spread(NamedTuple):
    """An option that becomes several keys of the request; without `back` these keys are not read as that option.

    Dots in a key lead into objects, as in a `Field`.
    """

    option: str
    targets: tuple[str, ...]
    how: Callable[[Any, Context], JsonObject]
    back: Callable[[JsonObject], Any] | None = None


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
            for target, found in row.how(value, context).items():
                _place(body, target, found)
        else:
            _place(body, row.target, value if row.how is None else row.how(value, context))
    return body


def read_fields(rows: Iterable[Row], body: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The options that a request sets, and the keys that say something else; nulls are left out.

    A key is read as an option only if that option gives the very key back, and can be set; else it stays what it is.
    """
    settings: JsonObject = {}
    left = {key: value for key, value in body.items() if value is not None}
    for row in rows:
        if isinstance(row, Dropped | Elsewhere):
            continue
        targets = row.targets if isinstance(row, Spread) else (row.target,)
        given = {target: value for target in targets if (value := _at(left, target)) is not None}
        if given and (value := _option(row, given)) is not None:
            settings[row.option] = value
            for target in given:
                left = _without(left, target.split("."))
    return settings, left


def _option(row: Field | Spread, given: JsonObject) -> Any:
    """The value of the option that renders as these keys, as it is kept; None when there is none."""
    scratch = Context()
    try:
        if isinstance(row, Spread):
            found = None if row.back is None else row.back(given)
        else:
            found = given[row.target] if row.back is None else row.back(given[row.target])
        value = None if found is None else OPTIONS[row.option](row.option, found)
        if value is None or render_fields((row,), {row.option: value}, scratch) != _nested(given):
            return None
    except (InvalidOption, CannotRender):
        return None
    return None if scratch.losses or scratch.repairs else value


def _at(body: Any, target: str) -> Any:
    for key in target.split("."):
        body = body.get(key) if isinstance(body, dict) else None
    return body


def _nested(given: JsonObject) -> JsonObject:
    found: JsonObject = {}
    for target, value in given.items():
        _place(found, target, value)
    return found


def _without(body: JsonObject, path: list[str]) -> JsonObject:
    """A body without a key; objects that become empty go, too."""
    key, *inner = path
    found = dict(body)
    kept = _without(found[key], inner) if inner else None
    if kept:
        found[key] = kept
    else:
        del found[key]
    return found


def service_tier(value: Any, context: Context) -> Any:
    """The service tier, unless it is one of another API than OpenAI's."""
    if isinstance(value, str) and value in TIERS_ELSEWHERE:
        context.lose("option", "service_tier", f"The format has no service tier {value!r}.")
        return None
    return value


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
