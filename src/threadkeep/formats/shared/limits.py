"""What a provider may take of a setting: limits, which say what is sent where one is exceeded.

What providers refuse in the schemas of tools:

* A schema is an object's, without choices at its top: the properties of all of them stand side by side.
* What cannot be said otherwise is sent as it is, and reported: names of properties, lists without items, and what is
  open in strict functions.

Which settings vendors of Chat Completions other than OpenAI take; a part of the table of `setting_rules`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject, value_at, with_value
from threadkeep.formats.shared.provider_rules import contains, named

CHOICES: Final = ("anyOf", "oneOf", "allOf")
_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
Schema = JsonObject


def with_schemas(tools: Any, path: str, change: Callable[[Schema], Schema]) -> Any:
    """The tools with other schemas, which stand at a path of theirs."""
    if not isinstance(tools, list):
        return tools
    return [_with_schema(tool, path, change) for tool in tools]


def _with_schema(tool: Any, path: str, change: Callable[[Schema], Schema]) -> Any:
    schema = value_at(tool, path)
    return with_value(tool, path, change(schema)) if isinstance(schema, dict) else tool


def without_choices(schema: Schema, refused: frozenset[str]) -> Schema:
    """A schema without keywords that are refused at its top; the properties of its choices stand side by side."""
    if refused.isdisjoint(schema) and schema.get("type") == "object":
        return schema
    properties: JsonObject = {}
    for word in CHOICES:
        for choice in schema.get(word) or () if isinstance(schema.get(word), list) else ():
            inner = choice.get("properties") if isinstance(choice, dict) else None
            properties |= inner if isinstance(inner, dict) else {}
    own = schema.get("properties")
    properties |= own if isinstance(own, dict) else {}
    kept = {key: value for key, value in schema.items() if key not in refused}
    return {**kept, "type": "object", "properties": properties}


def has_odd_name(schema: Schema) -> bool:
    """Whether a property has a name that Anthropic refuses; only those at the top count."""
    names = schema.get("properties")
    return isinstance(names, dict) and any(not _PROPERTY.fullmatch(name) for name in names)


def is_no_object(schema: Schema) -> bool:
    """Whether a schema is of something else than an object."""
    return str(schema.get("type", "object")).lower() != "object"


def lacks_items(schema: Schema) -> bool:
    """Whether a list does not say what it is of."""
    return any(one.get("type") == "array" and not {"items", "prefixItems"} & one.keys() for one in _all(schema))


def is_open(schema: Schema) -> bool:
    """Whether an object takes other properties, or does not require all of its own."""
    return any(
        one.get("additionalProperties") is not False or _names(one.get("required")) != _names(one.get("properties"))
        for one in _all(schema)
        if one.get("type") == "object"
    )


def has_blank_choice(schema: Schema) -> bool:
    """Whether a text may be one of some, of which one is empty."""
    return any(isinstance(words := one.get("enum"), list) and "" in words for one in _all(schema))


def requires_unknown(schema: Schema) -> bool:
    """Whether an object requires a property that it does not have."""
    return any(
        not _names(one["required"]) <= _names(one["properties"])
        for one in _all(schema)
        if isinstance(one.get("required"), list) and isinstance(one.get("properties"), dict)
    )


def _names(value: Any) -> set[str]:
    """The names in a list or object, which clients may write otherwise."""
    return {name for name in value if isinstance(name, str)} if isinstance(value, list | dict) else set()


def _all(schema: Schema) -> list[Schema]:
    """A schema and those in it."""
    found, waiting = [], [schema]
    while waiting:
        one = waiting.pop()
        found.append(one)
        if "properties" in one and isinstance(one["properties"], dict):
            waiting += [inner for inner in one["properties"].values() if isinstance(inner, dict)]
        if "items" in one and isinstance(one["items"], dict):
            waiting.append(one["items"])
        for word in CHOICES:
            if word in one and isinstance(one[word], list):
                waiting += [inner for inner in one[word] if isinstance(inner, dict)]
    return found


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
    refused = frozenset({*CHOICES, *others})

    def judge(tools: Any) -> Outcome | None:
        flat = with_schemas(tools, path, lambda schema: without_choices(schema, refused))
        return None if flat == tools else (flat, "schemas are an object's, and have no choices at the top")

    return Limit(f"schemas of objects, without {', '.join([*CHOICES, *others])} at the top", judge)


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

_CHAT: Final = ("chat_completion",)
_PENALTIES: Final = ("presence_penalty", "frequency_penalty")
_EFFORT: Final = "reasoning.effort"
_DEEPSEEK, _MISTRAL, _GROQ = ("deepseek",), ("mistral",), ("groq",)
_DEEPSEEK_SOURCE: Final = "DeepSeek API reference: Create chat completion"
_GROQ_SOURCE: Final = "Groq docs: OpenAI compatibility"
_XAI_SOURCE: Final = "xAI docs: Reasoning; litellm issue 12635; smolagents 1766; lobehub 13332"
# choices of tools that models take while they think
_OPEN: Final = only("auto", "none", says="none but auto and none while the model thinks")
_grok_without_effort: Final = named(r"grok-(?:4(?!\.[3-9])(?!.*multi-agent)|3(?!-mini)|code-fast)")
_EFFORT_SOURCE: Final = "litellm 16265; grok2api 814; hermes-agent 23435 (measured); crush issue 386"


def _thinks(body: JsonObject) -> bool:
    """Whether a model that thinks by default does so in this request."""
    thinking: object = value_at(body, "thinking.type")
    return thinking != "disabled" and body.get("enable_thinking") is not False


VENDORS: Final = (
    SettingRow(
        "DeepSeek", _CHAT, "response_format", absent("no JSON schema"), "Vane issue 969; deep-research 22",
        when=lambda body: bool(value_at(body, "response_format.type") == "json_schema"), dialects=_DEEPSEEK,
    ),
    SettingRow("DeepSeek", _CHAT, "stop", first(16), "DeepSeek API reference: stop", dialects=_DEEPSEEK),
    SettingRow("DeepSeek", _CHAT, "tools", at_most(128), _DEEPSEEK_SOURCE, dialects=_DEEPSEEK),
    SettingRow("DeepSeek", _CHAT, "temperature", between(0, 2), _DEEPSEEK_SOURCE, dialects=_DEEPSEEK),
    SettingRow("DeepSeek", _CHAT, "top_p", between(0, 1), _DEEPSEEK_SOURCE, dialects=_DEEPSEEK),
    SettingRow("DeepSeek", _CHAT, "top_logprobs", between(0, 20), _DEEPSEEK_SOURCE, dialects=_DEEPSEEK),
    *(
        SettingRow("DeepSeek", _CHAT, path, between(-2, 2), _DEEPSEEK_SOURCE, dialects=_DEEPSEEK)
        for path in _PENALTIES
    ),
    SettingRow(
        "DeepSeek V4 and deepseek-reasoner", _CHAT, "tool_choice", _OPEN, "DeepSeek-V3 issue 1376; litellm 37470; "
        "eino issue 994", when=_thinks, dialects=_DEEPSEEK, models=named(r"deepseek-(?:reasoner|v[4-9])"),
    ),
    SettingRow(
        "Kimi K2 models that think", _CHAT, "tool_choice", _OPEN, "oh-my-pi issue 1077; inspect_ai 5152; llmgateway "
        "2090", when=_thinks, dialects=("moonshot",), models=named(r"kimi-k2(?:-thinking|[.-][1-9](?!\d))"),
    ),
    SettingRow(
        "Qwen while it is asked to think", _CHAT, "tool_choice", _OPEN, "eino issue 994; qwen-code issue 7659; "
        "oh-my-pi issue 886", models=contains(r"(?:^|/)qw(?:en|q)"),
        when=lambda body: body.get("enable_thinking") is True or body.get("reasoning_effort") not in (None, "none"),
        providers=("alibaba", "dashscope", "qwen"),
    ),
    SettingRow(
        "Z.ai", _CHAT, "tool_choice", only("auto", says="none but auto"), "AgentScope docs: GLM", dialects=("zai",)
    ),
    SettingRow("Mistral", _CHAT, "temperature", between(0, 1.5), "Mistral API reference: temperature",
               dialects=_MISTRAL),
    *(
        SettingRow("Mistral", _CHAT, path, between(-2, 2), f"Mistral API reference: {path}", dialects=_MISTRAL)
        for path in _PENALTIES
    ),
    SettingRow("Groq", _CHAT, "n", between(1, 1), _GROQ_SOURCE, providers=_GROQ),
    *(
        SettingRow("Groq", _CHAT, path, absent("refused"), _GROQ_SOURCE, providers=_GROQ)
        for path in ("logprobs", "top_logprobs", "logit_bias")
    ),
    SettingRow("Groq", _CHAT, "store", absent("refused"), "chatbot issue 21", providers=_GROQ),
    SettingRow("Groq", _CHAT, "tools", at_most(128), "gsd-2 issue 4376; ha-groq-cloud-api issue 25", providers=_GROQ),
    SettingRow(
        "Groq", _CHAT, "response_format", absent("not with tools"), "agno issue 1065; vercel/ai 16540",
        when=lambda body: bool(body.get("tools")), providers=_GROQ,
    ),
    *(
        SettingRow("Grok 4 and newer", _CHAT, path, absent("refused"), _XAI_SOURCE, models=named(r"grok-[4-9]"))
        for path in (*_PENALTIES, "stop")
    ),
    *(
        SettingRow(
            "Grok 3, 4 to 4.2 and Grok Code Fast", (name,), path, absent("refused"), _EFFORT_SOURCE, option=_EFFORT,
            models=_grok_without_effort,
        )
        for name, path in (("chat_completion", "reasoning_effort"), ("open_responses", _EFFORT))
    ),
)  # fmt: skip
