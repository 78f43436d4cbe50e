"""Session options: one table of names and coercions, and the rules that are more than a name."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, Final, Generic, Protocol, Self, TypeVar, overload

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import json_copy, shown
from threadkeep.errors import InvalidItem, InvalidOption

T = TypeVar("T")
Coercion = Callable[[str, Any], Any]

FORMAT_NAMES: Final = ("open_responses", "chat_completion", "messages", "gemini", "converse")
# vendors that speak a format in their own way; what they do differently stands in `threadkeep.formats.dialects`
DIALECTS: Final = (
    "compatible", "deepseek", "minimax", "mistral", "moonshot", "openai", "openrouter", "xiaomi", "zai",
)  # fmt: skip
_ALIKE: Final = 0.75  # likeness to the name of a format from which a key of `extra` counts as misspelt

_NUMBER: Final = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise InvalidOption(f"{name} is {shown(value)}. Give text.")


def _identifier(name: str, value: object) -> str:
    """Text; ids are often numbers elsewhere."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _text(name, str(value) if is_number else value)


def _number(name: str, value: object) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        try:
            number = float(value)  # type: ignore[arg-type]  # a Real, or text that was matched
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise InvalidOption(f"{name} is {shown(value)}. Give a number.")


def _integer(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(_number(name, value))


def _boolean(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _BOOLEANS:
        return _BOOLEANS[value.strip().lower()]
    raise InvalidOption(f"{name} is {shown(value)}. Give True or False.")


_BOOLEANS: Final = {"true": True, "false": False}


def _json(name: str, value: object) -> Any:
    try:
        return json_copy(value, name)
    except InvalidItem as error:
        raise InvalidOption(str(error)) from None


def _object(name: str, value: object) -> JsonObject:
    copied = _json(name, value)
    if not isinstance(copied, dict):
        raise InvalidOption(f"{name} is {shown(value)}. Give a dict.")
    return copied


def _extra(name: str, value: object) -> JsonObject:
    """Flat keys, and objects of keys for one format under its name, which must not be misspelt."""
    found = _object(name, value)
    for key, inner in found.items():
        if not isinstance(inner, dict) or key in FORMAT_NAMES:
            continue
        close = difflib.get_close_matches(key.lower().replace("-", "_"), FORMAT_NAMES, n=1, cutoff=_ALIKE)
        if close:
            raise InvalidOption(f"{name} has an object {shown(key)}, which is no format. Did you mean {close[0]!r}?")
    return found


def dialect_name(name: str, value: object) -> str:
    """The name of a dialect.

    Raises:
        InvalidOption: it is none; the message lists them.
    """
    if isinstance(value, str) and value in DIALECTS:
        return value
    raise InvalidOption(f"{name} is {shown(value)}. Give one of {', '.join(DIALECTS)}.")


def _list(name: str, value: object) -> list[Any]:
    copied = _json(name, value)
    if not isinstance(copied, list):
        raise InvalidOption(f"{name} is {shown(value)}. Give a list.")
    return copied


# option -> what makes its value of what the user gave
OPTIONS: Final[dict[str, Coercion]] = {
    "model": _text,
    "instructions": _text,
    "previous_response_id": _identifier,
    "conversation": _json,
    "temperature": _number,
    "top_p": _number,
    "presence_penalty": _number,
    "frequency_penalty": _number,
    "max_output_tokens": _integer,
    "max_tool_calls": _integer,
    "top_logprobs": _integer,
    "parallel_tool_calls": _boolean,
    "stream": _boolean,
    "background": _boolean,
    "store": _boolean,
    "include": _list,
    "tool_choice": _json,
    "metadata": _object,
    "text": _object,
    "reasoning": _object,
    "stream_options": _object,
    "truncation": _identifier,
    "service_tier": _identifier,
    "safety_identifier": _identifier,
    "user": _identifier,
    "prompt": _object,
    "prompt_cache_key": _identifier,
    "prompt_cache_retention": _identifier,
    "prompt_cache_options": _object,
    "context_management": _json,
    "moderation": _json,
    "access_programs": _json,
    "image": _json,
    "dialect": dialect_name,
    "extra": _extra,
}

# names that other APIs have for the same -> what to write here
_ELSEWHERE: Final = {
    "messages": "input=[…], or import_request(payload, format) for a whole request",
    "contents": "input=[…], or import_request(payload, format) for a whole request",
    "system_prompt": "instructions=…",
    "system_instruction": "instructions=…",
    "model_id": "model=…",
    "max_completion_tokens": "max_output_tokens=…",
    "reasoning_effort": 'reasoning={"effort": …}',
    "thinking": 'reasoning={"effort": …}, or think(…)',
    "response_format": "json_output(schema)",
    "functions": "tools=[…]",
} | {
    name: f'extra={{"{name}": …}}'
    for name in ("stop", "stop_sequences", "seed", "top_k", "n", "logit_bias", "logprobs", "safety_settings")
}

# options that say where the provider keeps the conversation: they belong to its items, not to its configuration
SERVER_STATE: Final = ("previous_response_id", "conversation")


def unknown_option(name: object, known: Mapping[str, object] | list[str]) -> InvalidOption:
    """The error for a name that is no option; it names what to write instead, or those that look like it."""
    if name in _ELSEWHERE and "model" in known:
        return InvalidOption(f"There is no option {shown(name)}. Write {_ELSEWHERE[str(name)]}.")
    close = difflib.get_close_matches(str(name), list(known), n=3)
    hint = f"Did you mean {' or '.join(close)}?" if close else f"Options: {', '.join(known)}."
    return InvalidOption(f"There is no option {shown(name)}. {hint}")


def coerced(options: Mapping[str, Any], besides: Iterable[str] = ()) -> JsonObject:
    """Options as they are stored: numbers as numbers, structures copied; None (and an empty `extra`) is unset.

    `besides` are names that the caller takes, too: an error for a misspelt one may mean them.

    Raises:
        InvalidOption: an option is unknown, or its value cannot be used; the message names it.
    """
    found: JsonObject = {}
    for name, value in options.items():
        coercion = OPTIONS.get(name)
        if coercion is None:
            raise unknown_option(name, [*OPTIONS, *besides])
        kept = None if value is None else coercion(name, value)
        found[name] = None if name == "extra" and not kept else kept
    return found


def settings_with(settings: Mapping[str, Any], options: Mapping[str, Any], besides: Iterable[str] = ()) -> JsonObject:
    """Settings with these options on top; an option of None is taken out. `besides`: as `coerced`.

    Raises:
        InvalidOption: as `coerced`.
    """
    merged = {**settings, **coerced(options, besides)}
    return {name: value for name, value in merged.items() if value is not None}


def settings_at_creation(options: Mapping[str, Any]) -> JsonObject:
    """The settings of a new session or conversation; an empty `metadata` counts as unset there.

    Raises:
        InvalidOption: as `coerced`.
    """
    settings = settings_with({}, options)
    if settings.get("metadata") == {}:
        del settings["metadata"]
    return settings


def json_output_text(
    text: Mapping[str, Any] | None,
    schema: Mapping[str, Any],
    *,
    name: str = "response",
    strict: bool | None = None,
    description: str | None = None,
) -> JsonObject:
    """The `text` option that asks for JSON of this schema; what else stood in `text` stays.

    Raises:
        InvalidOption: the schema is no JSON object.
    """
    found: JsonObject = {"type": "json_schema", "name": _text("name", name), "schema": _object("schema", schema)}
    if strict is not None:
        found["strict"] = _boolean("strict", strict)
    if description is not None:
        found["description"] = _text("description", description)
    return {**(text or {}), "format": found}


EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def thinking(
    enabled: bool | None = None,
    *,
    effort: str | None = None,
    budget_tokens: int | None = None,
) -> JsonObject | None:
    """The `reasoning` option for an effort or a budget; None (unset) for ``False``.

    Raises:
        InvalidOption: neither or both are given, or one of them cannot be used.
    """
    given = [value for value in (effort, budget_tokens) if value is not None]
    if enabled is False:
        if given:
            raise InvalidOption("think(False) takes no effort and no budget_tokens. Leave out the one or the other.")
        return None
    if enabled not in (None, True):
        raise InvalidOption(f"think() was given {shown(enabled)}. Give effort= or budget_tokens=, or False.")
    if len(given) != 1:
        raise InvalidOption(f"think() was given {len(given) or 'no'} options. Give either effort= or budget_tokens=.")
    if effort is not None:
        if effort not in EFFORTS:
            raise InvalidOption(f"effort is {shown(effort)}. Give one of {', '.join(EFFORTS)}.")
        return {"effort": effort}
    if not isinstance(budget_tokens, int) or isinstance(budget_tokens, bool) or budget_tokens <= 0:
        raise InvalidOption(f"budget_tokens is {shown(budget_tokens)}. Give a positive number of tokens.")
    return {"budget_tokens": budget_tokens}


class HasSettings(Protocol):
    """What `Setting` reads from."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The options that are set."""


class Assignable(Protocol):
    """What `Setting` writes to."""

    def _assign_option(self, name: str, value: object) -> None:
        """Take an option that was assigned as an attribute."""


class Setting(Generic[T]):
    """An attribute that is a session option: reading gives its value or None, assigning coerces."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: HasSettings, owner: type) -> T | None: ...
    def __get__(self, instance: HasSettings | None, owner: type) -> Self | T | None:
        return self if instance is None else instance.settings.get(self._name)

    def __set__(self, instance: Assignable, value: object) -> None:
        instance._assign_option(self._name, value)  # noqa: SLF001 - a hook, not a method for users


class OptionAttributes:
    """Options as attributes, for classes with `settings` and `_assign_option`.

    All but one: `user` is a method there (read ``settings["user"]``).
    """

    __slots__ = ()

    model = Setting[str]()
    instructions = Setting[str]()
    previous_response_id = Setting[str]()
    conversation = Setting[str | JsonObject]()
    temperature = Setting[float]()
    top_p = Setting[float]()
    presence_penalty = Setting[float]()
    frequency_penalty = Setting[float]()
    max_output_tokens = Setting[int]()
    max_tool_calls = Setting[int]()
    top_logprobs = Setting[int]()
    parallel_tool_calls = Setting[bool]()
    stream = Setting[bool]()
    background = Setting[bool]()
    store = Setting[bool]()
    include = Setting[list[Any]]()
    tool_choice = Setting[str | JsonObject]()
    metadata = Setting[JsonObject]()
    text = Setting[JsonObject]()
    reasoning = Setting[JsonObject]()
    stream_options = Setting[JsonObject]()
    truncation = Setting[str]()
    service_tier = Setting[str]()
    safety_identifier = Setting[str]()
    prompt = Setting[JsonObject]()
    prompt_cache_key = Setting[str]()
    prompt_cache_retention = Setting[str]()
    prompt_cache_options = Setting[JsonObject]()
    context_management = Setting[list[Any] | JsonObject]()
    moderation = Setting[JsonObject]()
    access_programs = Setting[JsonObject]()
    image = Setting[JsonObject]()
    dialect = Setting[str]()

    @property
    def extra(self: HasSettings) -> JsonObject:
        """A copy of the keys for single formats; empty when there are none."""
        return dict(self.settings.get("extra") or {})

    @extra.setter
    def extra(self: Assignable, value: Mapping[str, Any] | None) -> None:
        """Assigning replaces them all."""
        self._assign_option("extra", value)
