"""What a provider may take of a setting: limits, which say what is sent where one is exceeded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.shared import schema_rules
from threadkeep.formats.shared.fields import value_at

NOTHING: Final = object()  # a setting is left out
AS_IT_IS: Final = object()  # a setting is refused, and sent nevertheless
Outcome = tuple[Any, str]  # what is sent, and why


class Limit(NamedTuple):
    """What a provider takes of a setting; `judge` returns None where it takes the value."""

    says: str  # for readers
    judge: Callable[[Any], Outcome | None]


class SettingRow(NamedTuple):
    """A row of the table: who takes what of a setting, and where that is stated."""

    who: str  # for readers
    formats: tuple[str, ...]
    path: str  # dots lead into objects
    limit: Limit
    source: str
    when: Callable[[JsonObject], bool] | None = None  # whether it counts in a request
    dialects: tuple[str | None, ...] | None = None  # None: all, and requests without one
    models: Callable[[str], bool] | None = None  # None: all
    providers: tuple[str, ...] | None = None  # None: all, and requests of which it is not known
    option: str | None = None  # the option that it comes from, for reports
    is_kept: bool = False  # whether it is sent nevertheless


def between(least: float, most: float, *others: float) -> Limit:
    """A number; another one becomes the nearest. `others` are taken, too."""

    def judge(value: Any) -> Outcome | None:
        if not isinstance(value, int | float) or isinstance(value, bool) or value in others:
            return None
        nearest = min(max(value, least), most)
        return None if nearest == value else (nearest, f"{value} was sent as {nearest}, the nearest that is taken")

    if math.isinf(most):
        return Limit(f"{least} and more", judge)
    return Limit(
        f"{least} to {most}{''.join(f', or {other}' for other in others)}" if most > least else f"{least}", judge
    )


def only(*values: Any, says: str) -> Limit:
    """One of some values, and no others: they are left out."""
    return Limit(says, lambda value: None if value in values else (NOTHING, says))


def other_than(refused: Any, says: str) -> Limit:
    """Any value but one, which is left out."""
    return Limit(says, lambda value: (NOTHING, says) if value == refused else None)


def absent(says: str) -> Limit:
    """No value at all."""
    return only(says=says)


def instead(values: dict[str, str], says: str) -> Limit:
    """Words in place of others."""
    return Limit(says, lambda value: (values[value], says) if isinstance(value, str) and value in values else None)


def longest(count: int) -> Limit:
    """A text of so many characters; a longer one is left out."""
    says = f"at most {count} characters"
    return Limit(says, lambda value: (NOTHING, says) if isinstance(value, str) and len(value) > count else None)


def first(count: int) -> Limit:
    """A list of so many values; the first are sent."""
    says = f"at most {count}"
    return Limit(says, lambda value: (value[:count], says) if isinstance(value, list) and len(value) > count else None)


def at_most(count: int) -> Limit:
    """A list of so many values, of which none can be left out."""
    says = f"at most {count}"
    return Limit(says, lambda value: (AS_IT_IS, says) if isinstance(value, list) and len(value) > count else None)


def without(word: str, says: str) -> Limit:
    """A list without a word."""
    return Limit(
        says,
        lambda value: (
            ([one for one in value if one != word] or NOTHING, says)
            if isinstance(value, list) and word in value
            else None
        ),
    )


def _without_blanks(value: Any) -> Outcome | None:
    kept = [text for text in value if not isinstance(text, str) or text.strip()] if isinstance(value, list) else value
    return None if kept == value else (kept or NOTHING, "texts of white space are refused")


NO_BLANKS: Final = Limit("no texts of white space", _without_blanks)


def flat_schemas(path: str, *others: str) -> Limit:
    """Schemas of objects, without choices at the top."""
    refused = frozenset({*schema_rules.CHOICES, *others})

    def judge(tools: Any) -> Outcome | None:
        flat = schema_rules.with_schemas(tools, path, lambda schema: schema_rules.without_choices(schema, refused))
        return None if flat == tools else (flat, "schemas are an object's, and have no choices at the top")

    return Limit(f"schemas of objects, without {', '.join([*schema_rules.CHOICES, *others])} at the top", judge)


def no_schemas(path: str, is_refused: Callable[[JsonObject], bool], says: str, *, only_strict: bool = False) -> Limit:
    """No schemas of a kind, which are sent nevertheless."""

    def judge(tools: Any) -> Outcome | None:
        given = tools if isinstance(tools, list) else []
        found = [value_at(tool, path) for tool in given if not only_strict or _is_strict(tool)]
        return (AS_IT_IS, says) if any(isinstance(one, dict) and is_refused(one) for one in found) else None

    return Limit(says, judge)


def _is_strict(tool: Any) -> bool:
    return value_at(tool, "strict") is True or value_at(tool, "function.strict") is True


def no_declarations(is_refused: Callable[[JsonObject], bool], says: str) -> Limit:
    """The same of the functions of Gemini."""
    limit = no_schemas("parameters", is_refused, says)
    return Limit(
        says,
        lambda tools: limit.judge(
            [one for tool in tools if isinstance(tool, dict) for one in tool.get("functionDeclarations") or ()]
        ),
    )


REFUSED: Final = Limit("none, which are sent nevertheless", lambda _: (AS_IT_IS, "the model takes none"))
NOT_BOTH: Final = Limit(
    "functions, or tools of the service", lambda _: (AS_IT_IS, "functions and tools of the service exclude each other")
)
