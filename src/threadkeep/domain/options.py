"""Session options: one table, with a row for each option.

A row of `OptionAttributes` such as ``temperature = Option(number, "…")`` says all that threadkeep knows of an option:
its name, how a value is checked, the type that reading the attribute gives (that of the check), its documentation, and
what other APIs call it. `OPTIONS` is the same table by name.

Type checkers cannot compute keyword types from a table, so `SessionOptions` repeats the names, with the types that an
argument may have; a test compares the two and prints the line that is missing.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Final, Generic, Self, TypedDict, TypeVar, overload

from threadkeep.domain.content import Content
from threadkeep.domain.formats import format_names
from threadkeep.domain.items import Input
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import copy_or_raise, mismatch, shown
from threadkeep.domain.tools import Tool
from threadkeep.errors import InvalidOption

T = TypeVar("T")
Json = Mapping[str, Any]

# vendors that speak a format in their own way; what they do differently stands in `threadkeep.formats.shared.dialects`
DIALECTS: Final = (
    "compatible", "deepseek", "minimax", "mistral", "moonshot", "openai", "openrouter", "xiaomi", "zai",
)  # fmt: skip
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SIMILARITY: Final = 0.75  # to the name of a format, from which a key of `extra` counts as misspelt
_NUMBER: Final = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}

# Checks of values. They take the name of an option, for messages, and return the value as it is stored. Numbers are
# made of their texts; nothing else is turned into something else.


def string(name: str, value: object) -> str:
    """Text."""
    if isinstance(value, str):
        return value
    raise mismatch(InvalidOption, "text", value, name)


def identifier(name: str, value: object) -> str:
    """Text; ids are often numbers elsewhere."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return string(name, shown(value) if is_number else value)


def number(name: str, value: object) -> float:
    """A finite number, or the text of one."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        try:
            result = float(value)  # type: ignore[arg-type]  # a Real, or text that was matched
        except OverflowError:
            result = math.inf
        if math.isfinite(result):
            return result
    raise mismatch(InvalidOption, "a number", value, name)


def integer(name: str, value: object) -> int:
    """A whole number; fractions are cut off."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(number(name, value))


def boolean(name: str, value: object) -> bool:
    """True or False, or the text of one."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _BOOLEANS:
        return _BOOLEANS[value.strip().lower()]
    raise mismatch(InvalidOption, "True or False", value, name)


def json_value(name: str, value: object) -> Any:
    """Any JSON value, copied."""
    return copy_or_raise(InvalidOption, value, name)


def json_object(name: str, value: object) -> JsonObject:
    """A JSON object, copied."""
    result = json_value(name, value)
    if isinstance(result, dict):
        return result
    raise mismatch(InvalidOption, "a dict", value, name)


def json_list(name: str, value: object) -> list[Any]:
    """A JSON array, copied."""
    result = json_value(name, value)
    if isinstance(result, list):
        return result
    raise mismatch(InvalidOption, "a list", value, name)


def dialect_name(name: str, value: object) -> str:
    """The name of a dialect."""
    if isinstance(value, str) and value in DIALECTS:
        return value
    raise mismatch(InvalidOption, f"one of {', '.join(DIALECTS)}", value, name)


def extra_keys(name: str, value: object) -> JsonObject | None:
    """Flat keys, and objects of keys for one format under its name, which must not be misspelt."""
    result = json_object(name, value)
    for key, inner in result.items():
        if not isinstance(inner, dict) or key in format_names():
            continue
        similar = difflib.get_close_matches(key.lower().replace("-", "_"), format_names(), n=1, cutoff=_SIMILARITY)
        if similar:
            problem = f"has an object under {shown(key)}, which is not the name of a format."
            raise InvalidOption(problem, argument=name, hint=f"Did you mean {similar[0]!r}?")
    return result or None


class Option(Generic[T]):
    """A session option, and the attribute of that name: reading gives its value or None, assigning checks it.

    What has such attributes has `settings`, the options that are set, and takes assigned ones by `_assign_option`.
    `aliases` are what other APIs call it, to be explained in errors; `instead` is what to write here where ``name=…``
    is not enough, with ``{alias}`` for what was written.
    """

    def __init__(
        self, check: Callable[[str, Any], T | None], doc: str, *, aliases: Sequence[str] = (), instead: str = ""
    ) -> None:
        self._check = check
        self.__doc__ = doc
        self.aliases, self.instead = aliases, instead

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def coerce(self, value: object) -> T | None:
        """The value as it is stored: numbers as numbers, structures copied; None for an option that is unset."""
        return None if value is None else self._check(self.name, value)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T | None: ...
    def __get__(self, instance: Any, owner: type) -> Self | T | None:
        return self if instance is None else instance.settings.get(self.name)

    def __set__(self, instance: Any, value: T | None) -> None:
        instance._assign_option(self.name, value)  # noqa: SLF001 - a hook, not a method for users


class _Extra(Option[JsonObject]):
    """Reading gives a copy, which is empty where nothing is set."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> JsonObject: ...
    def __get__(self, instance: Any, owner: type) -> Self | JsonObject:
        return self if instance is None else dict(instance.settings.get(self.name) or {})


class OptionAttributes:
    """Session options as attributes; each is None where it is not set.

    One more, `user`, is a method of sessions and conversations: read ``settings["user"]``.
    """

    __slots__ = ()

    # fmt: off
    model = Option(string, "The model to ask, as its provider names it.", aliases=("model_id",))
    instructions = Option(string, "What the model is told before anything else.",
                          aliases=("system_prompt", "system_instruction"))
    previous_response_id = Option(identifier, "The answer to continue from, where the provider keeps the conversation.")
    conversation = Option[str | JsonObject](json_value, "The conversation kept by the provider: its id, or an object.")
    temperature = Option(number, "How random the answer is; 0 is the least.")
    top_p = Option(number, "Nucleus sampling: the share of probability to draw tokens from, 0 to 1.")
    presence_penalty = Option(number, "How strongly tokens are avoided that occur already.")
    frequency_penalty = Option(number, "How strongly tokens are avoided that occur often.")
    max_output_tokens = Option(integer, "The largest number of output tokens, reasoning included.",
                               aliases=("max_completion_tokens",))
    max_tool_calls = Option(integer, "The largest number of calls of built-in tools in an answer.")
    top_logprobs = Option(integer, "How many alternatives of each token to return, with their log probabilities.")
    parallel_tool_calls = Option(boolean, "Whether the model may call several tools in one answer.")
    stream = Option(boolean, "Whether the provider sends the answer in pieces.")
    background = Option(boolean, "Whether the provider answers in the background; the answer is fetched later.")
    store = Option(boolean, "Whether the provider keeps the answer.")
    include = Option(json_list, "What else the provider returns, such as `reasoning.encrypted_content`.")
    tool_choice = Option[str | JsonObject](json_value, "`auto`, `none`, `required`, or an object that names a tool.")
    metadata = Option(json_object, "Keys and texts that the provider stores with the answer. "
                                   "What only your application needs goes into labels.")
    text = Option(json_object, "The form of the answer: `format` (see `json_output`) and `verbosity`.",
                  aliases=("response_format",), instead="json_output(schema)")
    reasoning = Option(json_object, "How much the model reasons: `effort` or `budget_tokens` (see `think`), `summary`.",
                       aliases=("reasoning_effort", "thinking"), instead='reasoning={"effort": …}, or think(…)')
    stream_options = Option(json_object, "Options of a stream, such as `include_usage`.")
    truncation = Option(identifier, "What happens to input that is too long: `auto` or `disabled`.")
    service_tier = Option(identifier, "The provider's service tier, such as `flex` or `priority`.")
    safety_identifier = Option(identifier, "A stable id of the end user, for the provider's abuse detection.")
    prompt = Option(json_object, "A prompt template that the provider keeps: `id`, `version`, `variables`.")
    prompt_cache_key = Option(identifier, "A key that requests with the same beginning share, for prompt caches.")
    prompt_cache_retention = Option(identifier, "How long the provider keeps cached prompts, such as `24h`.")
    prompt_cache_options = Option(json_object, "More options of the provider's prompt cache.")
    context_management = Option[list[Any] | JsonObject](json_value, "How the provider shortens a long history.")
    moderation = Option[JsonObject](json_value, "Options of the provider's moderation.")
    access_programs = Option[Any](json_value, "Access programs of the provider that the request takes part in.")
    image = Option[Any](json_value, "Options of images that the model generates.")
    dialect = Option(dialect_name, f"The vendor, where it speaks a format in its own way: {', '.join(DIALECTS)}.")
    extra = _Extra(extra_keys, "Keys of single formats: flat ones that formats know (such as `stop` and `seed`), and "
                               '`{"gemini": {…}}`, which is sent to that format as it is.',
                   aliases=("stop", "stop_sequences", "seed", "top_k", "n", "logit_bias", "logprobs",
                            "safety_settings"),
                   instead='extra={"{alias}": …}')
    # fmt: on


_USER: Final = Option(identifier, "An id of the end user; newer APIs ask for `safety_identifier` instead.")
_USER.__set_name__(OptionAttributes, "user")  # though it is no attribute: that name is a method's

# option -> its row
OPTIONS: Final = {row.name: row for row in (*vars(OptionAttributes).values(), _USER) if isinstance(row, Option)}

# options that say where the provider keeps the conversation: they belong to its items, not to its configuration
SERVER_STATE: Final = ("previous_response_id", "conversation")


class ImportOptions(TypedDict, total=False):
    """Session options but for `model` and `stream`, which `import_request` names itself."""

    instructions: str | None
    previous_response_id: str | None
    conversation: str | Json | None
    temperature: float | None
    top_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    top_logprobs: int | None
    parallel_tool_calls: bool | None
    background: bool | None
    store: bool | None
    include: Sequence[str] | None
    tool_choice: str | Json | None
    metadata: Json | None
    text: Json | None
    reasoning: Json | None
    stream_options: Json | None
    truncation: str | None
    service_tier: str | None
    safety_identifier: str | None
    prompt: Json | None
    prompt_cache_key: str | None
    prompt_cache_retention: str | None
    prompt_cache_options: Json | None
    context_management: Sequence[Json] | Json | None
    moderation: Json | None
    access_programs: Any
    image: Any
    dialect: str | None
    extra: Json | None
    user: str | None


class SessionOptions(ImportOptions, total=False):
    """All session options, as keyword arguments; None takes one out."""

    model: str | None
    stream: bool | None


class NewOptions(SessionOptions, total=False):
    """What a new session or conversation is made of."""

    input: Input | None
    system: Content | None
    tools: Iterable[Tool | Json] | None


class UpdateOptions(SessionOptions, total=False):
    """What `update` of a stored conversation changes."""

    title: str | None
    labels: Mapping[str, str] | None
    user_id: str | None
    external_id: str | None


# names in other APIs of what is not an option here -> what to write
_ELSEWHERE: Final = {
    "messages": "input=[…], or import_request(payload, format) for a whole request",
    "contents": "input=[…], or import_request(payload, format) for a whole request",
    "functions": "tools=[…]",
} | {
    alias: (row.instead or f"{name}=…").replace("{alias}", alias)
    for name, row in OPTIONS.items()
    for alias in row.aliases
}


def unknown_option(name: object, known: Iterable[str]) -> InvalidOption:
    """The error for a name that is not an option; it says what to write instead, or which names look like it."""
    names = list(known)
    similar = difflib.get_close_matches(str(name), names, n=3)
    if name in _ELSEWHERE and "model" in names:
        hint = f"Write {_ELSEWHERE[str(name)]}."
    elif similar:
        hint = f"Did you mean {' or '.join(similar)}?"
    else:
        hint = f"Options: {', '.join(names)}."
    return InvalidOption(f"There is no option {shown(name)}.", hint=hint)


def settings_with(settings: Json, options: Json, besides: Iterable[str] = ()) -> JsonObject:
    """Settings with these options on top, as they are stored; an option of None is taken out.

    `besides` are names that the caller also takes: a misspelt one may be meant.
    """
    merged = dict(settings)
    for name, value in options.items():
        if name not in OPTIONS:
            raise unknown_option(name, [*OPTIONS, *besides])
        merged[name] = OPTIONS[name].coerce(value)
    return {name: value for name, value in merged.items() if value is not None}


def json_output_text(
    present: Json | None, schema: Json, *, name: str = "response", strict: bool | None = None,
    description: str | None = None,
) -> JsonObject:  # fmt: skip
    """The `text` option that asks for JSON of this schema; the other keys of `present` stay."""
    form: JsonObject = {"type": "json_schema", "name": string("name", name), "schema": json_object("schema", schema)}
    if strict is not None:
        form["strict"] = boolean("strict", strict)
    if description is not None:
        form["description"] = string("description", description)
    return {**(present or {}), "format": form}


def thinking(
    enabled: bool | None = None, *, effort: str | None = None, budget_tokens: int | None = None
) -> JsonObject | None:
    """The `reasoning` option for an effort or a budget; None (unset) for ``False``."""
    options = {"effort": effort, "budget_tokens": budget_tokens}
    names = [name for name, value in options.items() if value is not None]
    if enabled is False and not names:
        return None
    if enabled not in (None, True) or len(names) != 1:
        hint = "Pass one of effort=, budget_tokens= and False."
        raise InvalidOption("think() takes an effort, a number of tokens, or False.", hint=hint)
    if effort is not None and effort not in EFFORTS:
        raise mismatch(InvalidOption, f"one of {', '.join(EFFORTS)}", effort, "effort")
    if effort is None and not (type(budget_tokens) is int and budget_tokens > 0):
        raise mismatch(InvalidOption, "a number of tokens", budget_tokens, "budget_tokens")
    return {names[0]: options[names[0]]}
