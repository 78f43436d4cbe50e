"""Session options: a table with one row per option.

A row of `OptionAttributes`, such as ``temperature = Option(number, "…")``, contains everything threadkeep knows about
an option: its name, how values are checked, the type of the attribute (the type that the check returns), its
documentation, and its names in other APIs. `OPTIONS` is the same table by name.

Type checkers cannot compute keyword types from a table, so `SessionOptions` repeats the names, with the types that
arguments may have; a test compares the two and prints the missing line.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Final, Generic, Self, TypedDict, TypeVar, overload

from threadkeep import public as tk
from threadkeep.domain import formats, items
from threadkeep.domain.jsontext import JsonObject, check_finite, copy_or_raise, mismatch
from threadkeep.errors import InvalidItem, InvalidOption, did_you_mean, shown

T = TypeVar("T")
Json = Mapping[str, Any]

# vendors with their own version of a format; the differences are in `threadkeep.formats.shared.dialects`
DIALECTS: Final = (
    "compatible", "deepseek", "minimax", "mistral", "moonshot", "openai", "openrouter", "xiaomi", "zai",
)  # fmt: skip
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SIMILARITY: Final = 0.75  # a key of `extra` this similar to the name of a format counts as misspelled
_NUMBER: Final = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}

# Checks of values. They take the name of an option, for messages, and return the value as it is stored. Text is
# converted to numbers; there are no other conversions.


def string(name: str, value: object) -> str:
    """Text."""
    if isinstance(value, str):
        return value
    raise mismatch(InvalidOption, "text", value, name)


def identifier(name: str, value: object) -> str:
    """Text, or a number; ids are often numbers elsewhere."""
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
    """A whole number; fractions are truncated."""
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
    """Flat keys, and objects with keys for one format under its name, which must not be misspelled."""
    result = json_object(name, value)
    for key, inner in result.items():
        if not isinstance(inner, dict) or key in formats.format_names():
            continue
        similar = difflib.get_close_matches(
            key.lower().replace("-", "_"), formats.format_names(), n=1, cutoff=_SIMILARITY
        )
        if similar:
            problem = f"has an object under {shown(key)}, which is not the name of a format."
            raise InvalidOption(problem, argument=name, hint=did_you_mean(similar).strip())
    return result or None


class Option(Generic[T]):
    """A session option and its attribute: reading it returns the value or None, assigning it checks the value.

    Classes with such attributes have `settings`, the options that are set, and store assigned values in
    `_assign_option`. `aliases` are the option's names in other APIs, for error messages; `instead` is what to write
    here if ``name=…`` is not enough, with ``{alias}`` for the alias.
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
        """Return the value as it is stored: numbers as numbers, structures copied; None for an unset option."""
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
    """The option `extra`: reading it returns a copy, which is empty if nothing is set."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> JsonObject: ...
    def __get__(self, instance: Any, owner: type) -> Self | JsonObject:
        return self if instance is None else dict(instance.settings.get(self.name) or {})


class OptionAttributes:
    """Session options as attributes; each is None if it is not set.

    One option, `user`, is not an attribute, because `user` is a method of sessions and conversations: read
    ``settings["user"]``.
    """

    __slots__ = ()

    # fmt: off
    model = Option(string, "The model, as named by its provider.", aliases=("model_id",))
    instructions = Option(string, "Instructions to the model, before everything else.",
                          aliases=("system_prompt", "system_instruction"))
    previous_response_id = Option(identifier, "The response to continue from, if the provider stores the conversation.")
    conversation = Option[str | JsonObject](json_value, "The conversation stored by the provider: an id or an object.")
    temperature = Option(number, "How random the response is; 0 is the least random.")
    top_p = Option(number, "Nucleus sampling: the probability mass that tokens are sampled from, 0 to 1.")
    presence_penalty = Option(number, "How strongly to avoid tokens that have already occurred.")
    frequency_penalty = Option(number, "How strongly to avoid tokens that occur often.")
    max_output_tokens = Option(integer, "The maximum number of output tokens, including reasoning.",
                               aliases=("max_completion_tokens",))
    max_tool_calls = Option(integer, "The maximum number of calls to built-in tools per response.")
    top_logprobs = Option(integer, "How many alternatives to return for each token, with their log probabilities.")
    parallel_tool_calls = Option(boolean, "Whether the model may call several tools in one response.")
    stream = Option(boolean, "Whether the provider streams the response.")
    background = Option(boolean, "Whether to run the request in the background and fetch the response later.")
    store = Option(boolean, "Whether the provider stores the response.")
    include = Option(json_list, "Additional data to return, such as `reasoning.encrypted_content`.")
    tool_choice = Option[str | JsonObject](json_value, "`auto`, `none`, `required`, or an object naming a tool.")
    metadata = Option(json_object, "Keys and text values that the provider stores with the response. "
                                   "For data that only your application needs, use labels or properties.")
    text = Option(json_object, "The form of the response: `format` (see `json_output`) and `verbosity`.",
                  aliases=("response_format",), instead="json_output(schema)")
    reasoning = Option(json_object, "How much the model reasons: `effort` or `budget_tokens` (see `think`), `summary`.",
                       aliases=("reasoning_effort", "thinking"), instead='reasoning={"effort": …}, or think(…)')
    stream_options = Option(json_object, "Options for streaming, such as `include_usage`.")
    truncation = Option(identifier, "What to do with input that is too long: `auto` or `disabled`.")
    service_tier = Option(identifier, "The provider's service tier, such as `flex` or `priority`.")
    safety_identifier = Option(identifier, "A stable id of the end user, for the provider's abuse detection.")
    prompt = Option(json_object, "A prompt template stored by the provider: `id`, `version`, `variables`.")
    prompt_cache_key = Option(identifier, "A key shared by requests that begin alike, for prompt caches.")
    prompt_cache_retention = Option(identifier, "How long the provider keeps cached prompts, such as `24h`.")
    prompt_cache_options = Option(json_object, "Other options for the provider's prompt cache.")
    context_management = Option[list[Any] | JsonObject](json_value, "How the provider shortens a long history.")
    moderation = Option[JsonObject](json_value, "Options for the provider's moderation.")
    access_programs = Option[Any](json_value, "The provider's access programs that the request takes part in.")
    image = Option[Any](json_value, "Options for images generated by the model.")
    dialect = Option(dialect_name, f"The vendor, if it uses its own version of a format: {', '.join(DIALECTS)}.")
    provider = Option(identifier, "The provider that requests go to, by its name in the usage ledger; never sent. What "
                                  "only another provider can read is left out of them.")
    extra = _Extra(extra_keys, "Options of single formats: known ones (such as `stop` and `seed`) as flat keys, and "
                               '`{"gemini": {…}}`, which is included in requests in that format unchanged.',
                   aliases=("stop", "stop_sequences", "seed", "top_k", "n", "logit_bias", "logprobs",
                            "safety_settings"),
                   instead='extra={"{alias}": …}')
    # fmt: on

    def _assign_option(self, name: str, value: object) -> None:  # noqa: ARG002 - called by `Option`
        """Refuse to assign an option, where that would store nothing: InvalidOption."""
        hint = f"Call update({name}=...)."
        raise InvalidOption("cannot be assigned, which would store nothing.", argument=name, hint=hint)


_USER: Final = Option(identifier, "An id of the end user; newer APIs use `safety_identifier` instead.")
_USER.__set_name__(OptionAttributes, "user")  # though it is not an attribute: there is a method with that name

# option -> its row
OPTIONS: Final = {row.name: row for row in (*vars(OptionAttributes).values(), _USER) if isinstance(row, Option)}

# options that say where the provider stores the conversation: they belong to its items, not to its configuration
SERVER_STATE: Final = ("previous_response_id", "conversation")


class ImportOptions(TypedDict, total=False):
    """Session options without `model` and `stream`, which `import_request` has as its own arguments."""

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
    provider: str | None
    extra: Json | None
    user: str | None


class SessionOptions(ImportOptions, total=False):
    """All session options, as keyword arguments; None removes an option."""

    model: str | None
    stream: bool | None


class NewOptions(SessionOptions, total=False):
    """The arguments of a new session or conversation."""

    input: items.Input | None
    known: bool
    system: tk.Content | None
    tools: Iterable[tk.Tool | Json] | None


class UpdateOptions(SessionOptions, total=False):
    """What `update` can change in a stored conversation."""

    title: str | None
    labels: Mapping[str, str] | None
    properties: Mapping[str, str] | None
    user_id: str | None
    external_id: str | None


# names in other APIs that are not options here -> what to write instead
_ELSEWHERE: Final = {
    **dict.fromkeys(("messages", "contents"), "input=[…], or import_request(payload, format) for a whole request"),
    "functions": "tools=[…]",
    **{
        alias: (row.instead or f"{name}=…").replace("{alias}", alias)
        for name, row in OPTIONS.items()
        for alias in row.aliases
    },
}


# what a new conversation is made of, and `update` does not change -> the method that does
_METHODS: Final = {
    "tools": "register_tools(…), or remove_tool(name)",
    "input": "user(…), or add_items([…])",
    "messages": "add_input(messages, format)",
    "system": "system(…)",
}


def unknown_option(name: object, known: Iterable[str]) -> InvalidOption:
    """Return the error for an unknown option; it says what to write instead, or which names are similar."""
    names = list(known)
    similar = difflib.get_close_matches(str(name), names, n=3)
    if "user" in similar and "user_id" in names:  # the owner is meant more often than the option
        similar = list(dict.fromkeys(("user_id", *similar)))
    if name in _METHODS and "title" in names and "created_at" not in names:
        hint = f"Call {_METHODS[str(name)]}."
    elif name in _ELSEWHERE and "model" in names:
        hint = f"Write {_ELSEWHERE[str(name)]}."
    elif similar:
        hint = did_you_mean(similar).strip()
    else:
        hint = f"Options: {', '.join(names)}."
    return InvalidOption("is not an option.", argument=name if isinstance(name, str) else shown(name), hint=hint)


# options that are words -> those that providers know; others may be a provider's
_WORDS: Final = {"tool_choice": ("auto", "none", "required", "any", "validated"), "truncation": ("auto", "disabled")}


def _check_written(name: str, value: object) -> None:
    """Refuse what an application would not set on purpose; requests that are imported may have it."""
    if name == "model" and isinstance(value, str) and not value.strip():
        hint = "Pass the name of a model, or None for no model."
        raise InvalidOption(f"must be text that is not blank, not {shown(value)}.", argument=name, hint=hint)
    if name in _WORDS and isinstance(value, str) and value not in _WORDS[name]:
        similar = difflib.get_close_matches(value.lower(), _WORDS[name], n=1, cutoff=_SIMILARITY)
        if similar:
            hint = did_you_mean(similar).strip()
            raise InvalidOption(f"is the unknown word {shown(value)}.", argument=name, hint=hint)
    if isinstance(value, dict | list):
        refuse_infinite(value, name)


def refuse_infinite(value: object, path: str) -> None:
    """Raise InvalidOption for a number in a value that is not finite, which JSON does not have."""
    try:
        check_finite(value, path)
    except InvalidItem as error:
        raise InvalidOption(error.message, argument=error.argument) from None


def settings_with(
    settings: Json, options: Json, besides: Iterable[str] = (), *, is_imported: bool = False
) -> JsonObject:
    """Return settings with these options on top, as they are stored; options that are None are removed.

    `besides` are other names the caller accepts, one of which may be misspelled. `is_imported`: the options are those
    of a stored session or a provider's request, in which they may be odd.
    """
    merged = dict(settings)
    for name, value in options.items():
        if name not in OPTIONS:
            raise unknown_option(name, [*OPTIONS, *besides])
        merged[name] = coerced = OPTIONS[name].coerce(value)
        if not is_imported:
            _check_written(name, coerced)
    return {name: value for name, value in merged.items() if value is not None}


def json_output_text(
    present: Json | None, schema: Json, *, name: str = "response", strict: bool | None = None,
    description: str | None = None,
) -> JsonObject:  # fmt: skip
    """Return the `text` option that asks for JSON matching this schema; other keys of `present` are kept."""
    form: JsonObject = {"type": "json_schema", "name": string("name", name), "schema": json_object("schema", schema)}
    if strict is not None:
        form["strict"] = boolean("strict", strict)
    if description is not None:
        form["description"] = string("description", description)
    return {**(present or {}), "format": form}


def thinking(
    enabled: bool | None = None, *, effort: str | None = None, budget_tokens: int | None = None
) -> JsonObject | None:
    """Return the `reasoning` option for an effort or a budget; None (unset) for ``False``."""
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
