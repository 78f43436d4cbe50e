"""What may stand where in a request: one table by wire format, dialect and model, each row with its source.

The table is ``provider_rules.json``; sizes are in bytes, as base64.

Rows apply from the top: a later row takes precedence. The passes of the formats read the result, `rules_for`; the page
"How providers differ" of the documentation is made of the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.formats.shared.claude import follows, is_claude

MEGABYTE: Final = 1024 * 1024
# the text that stands for a turn or a result which the provider requires and the conversation does not have
FILLER: Final = "..."
NO_OUTPUT: Final = "(no output)"


@dataclass(frozen=True)
class ProviderRules:
    """What a provider takes. The defaults are the most lenient."""

    # texts that are refused: none, empty ones, white space in a message without other text, or all blank ones
    blank: Literal["taken", "not empty", "some text", "no blank"] = "taken"
    needs_content: bool = False  # whether an assistant message without text and calls is refused
    # system text: at any place, only as one leading message, or only as the user's text
    system: Literal["anywhere", "leading", "as user"] = "anywhere"
    takes_developer: bool = True  # whether the role `developer` is known
    starts_with_user: bool = False
    # what becomes of a last turn of the assistant: it is sent, sent and reported, or followed by a filler of the user
    last_turn: Literal["taken", "reported", "filled"] = "taken"
    alternates: bool = False  # whether the turns of user and assistant must alternate
    user_after_tool: bool = True  # whether a user message may stand directly behind a tool output
    tool_media: bool = True  # whether tool outputs take pictures and files
    error_media: bool = True  # whether those that report an error do
    refused_types: tuple[str, ...] = ()  # how refused media types begin; a picture by URL is of the type `image/`
    checks_types: bool = False  # whether the media type of a picture must be what its bytes are
    # whether media may stand elsewhere in the web: anywhere, behind https, or nowhere
    media_urls: Literal["taken", "https", "refused"] = "taken"
    longest_call_id: int | None = None  # characters
    calls: int | None = None  # how many calls an assistant message may have
    json_word: bool = False  # whether JSON mode needs the word JSON in the messages
    pictures: int | None = None  # how many a request may have; also with the documents
    documents: int | None = None
    picture_bytes: int | None = None  # the size of one picture, as base64
    document_bytes: int | None = None
    picture_side: int | None = None  # pixels
    media_bytes: int | None = None  # the size of all pictures and documents, as base64
    many_pictures: int | None = None  # beyond this number …
    many_side: int | None = None  # … pictures may have only so many pixels on a side

    @cached_property
    def takes_any_order(self) -> bool:
        """Whether messages of any role and content may stand anywhere."""
        is_free = self.system == "anywhere" and self.takes_developer and self.user_after_tool and not self.alternates
        is_open = not self.starts_with_user and self.last_turn == "taken"
        return is_free and is_open and self.blank == "taken" and not self.needs_content


ANYTHING: Final = ProviderRules()


class RuleRow(NamedTuple):
    """A row of the table: who has which rules, and where that is stated."""

    who: str  # for readers
    formats: tuple[str, ...]
    rules: Mapping[str, Any]  # fields of `ProviderRules`
    source: str
    dialects: tuple[str | None, ...] | None = None  # None: all, and requests without one
    models: Callable[[str], bool] | None = None  # None: all
    providers: tuple[str, ...] | None = None  # None: all, and requests of which it is not known


def named(pattern: str) -> Callable[[str], bool]:
    """Whether a model is named so, whatever vendor stands before the name."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda model: compiled.match(model.rpartition("/")[2]) is not None


def contains(pattern: str) -> Callable[[str], bool]:
    """Whether the name of a model has something in it."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda model: compiled.search(model) is not None


def _models(test: str) -> Callable[[str], bool]:
    """The test of models that a row names: ``claude``, or a word and what follows its colon."""
    word, _, rest = test.partition(":")
    if word == "claude":
        return (lambda model: follows(model, rest)) if rest else is_claude
    return (named if word == "named" else contains)(rest)


@cache
def table() -> tuple[RuleRow, ...]:
    """The rows, in order.

    In ``provider_rules.json`` a row has `who`, `formats`, `rules` and `source`, and may have `dialects`, `providers`
    and `models`: ``named:`` or ``contains:`` with a regular expression, ``claude``, or ``claude:`` with a rule of
    `formats.shared.claude`.
    """
    rows = loads(Path(__file__).with_name("provider_rules.json").read_bytes())
    for row in rows:
        row["rules"] = _tuples(row["rules"])
        if "models" in row:
            row["models"] = _models(row["models"])
    return tuple(RuleRow(**_tuples(row)) for row in rows)


def _tuples(values: JsonObject) -> JsonObject:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


class Applied(Protocol):
    """To whom a row of a table applies."""

    @property
    def formats(self) -> tuple[str, ...]: ...  # noqa: D102 - see the rows
    @property
    def dialects(self) -> tuple[str | None, ...] | None: ...  # noqa: D102
    @property
    def models(self) -> Callable[[str], bool] | None: ...  # noqa: D102
    @property
    def providers(self) -> tuple[str, ...] | None: ...  # noqa: D102


def applies(row: Applied, format_name: str, dialect: str | None, model: str | None, provider: str | None) -> bool:
    """Whether a row of a table is about requests of a format, dialect, model and provider."""
    if format_name not in row.formats or (row.dialects is not None and dialect not in row.dialects):
        return False
    if row.providers is not None and provider not in row.providers:
        return False
    return row.models is None or (model is not None and row.models(model))


@lru_cache(maxsize=256)
def rules_for(format_name: str, dialect: str | None, model: str | None, provider: str | None = None) -> ProviderRules:
    """What a request may hold, by its format, dialect, model and provider."""
    keys: dict[str, Any] = {}
    for row in table():
        if applies(row, format_name, dialect, model, provider):
            keys |= row.rules
    return replace(ANYTHING, **keys)
