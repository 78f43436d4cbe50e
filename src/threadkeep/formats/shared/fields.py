"""The engine behind the field tables, and definitions of tools for formats that send each of them by itself.

Every session option has exactly one row in the table of every format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from threadkeep.domain.jsontext import JsonObject, dumps, place, value_at
from threadkeep.domain.options import OPTIONS
from threadkeep.domain.tool_names import is_valid_name, qualified_name
from threadkeep.errors import CannotRender, InvalidOption
from threadkeep.formats.shared import parts
from threadkeep.formats.shared.reports import Context

T = TypeVar("T")
How = Callable[[Any, Context], Any]
EFFORT: Final = "reasoning.effort"  # the path of its reports
DEFAULTS: Final[tuple[Any, ...]] = (False, "", [], {})  # values that ask for nothing

# service tiers that only other APIs than OpenAI's have, and that no server of its formats takes
TIERS_ELSEWHERE: Final = frozenset({"standard", "standard_only", "unspecified", "reserved", "deferred"})

CACHE_OPTIONS: Final = ("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options")
# options that only the Responses API has -> why the owner of another format leaves them out
_ONLY_IN_RESPONSES: Final = {
    "background": "has no background mode",
    "prompt": "has no stored prompts",
    "context_management": "does not manage the context",
    "access_programs": "has no access programs",
    "image": "has no image settings",
    "include": "always returns everything",
    "max_tool_calls": "has no limit on tool calls",
    "truncation": "never shortens the input",
}
_SCHEMA_NAME: Final = "text.format.name"
_METADATA_PAIRS, _METADATA_KEY, _METADATA_VALUE = 16, 64, 512
_METADATA_RULE: Final = "the format takes 16 pairs of texts, keys to 64 and values to 512 characters"


class Field(NamedTuple):
    """An option that the format has: its key, what becomes of its value (None leaves it out), and the way back."""

    option: str
    target: str  # a key of the request; dots lead into objects
    how: How | None = None
    back: Callable[[Any], Any] | None = None


class FieldGroup(NamedTuple):
    """An option that becomes several keys (dots as in a `Field`), which without `back` are not read as that option."""

    option: str
    targets: tuple[str, ...]
    how: Callable[[Any, Context], JsonObject]
    back: Callable[[JsonObject], Any] | None = None


class NoField(NamedTuple):
    """An option that the format does not have, and why; a value other than `DEFAULTS` and `silent` is a loss."""

    option: str
    reason: str
    silent: tuple[Any, ...] = ()


def no_fields(reason: str, *options: str) -> tuple[NoField, ...]:
    """The rows of options that a format does not have for one reason."""
    return tuple(NoField(option, reason) for option in options)


def only_in_responses(owner: str, **others: str) -> tuple[NoField, ...]:
    """The rows of options that only the Responses API has; `others` are reasons other than the usual ones."""
    reasons = {option: f"{owner} {reason}" for option, reason in _ONLY_IN_RESPONSES.items()} | others
    return tuple(
        NoField(option, reason, ("disabled",) if option == "truncation" else ()) for option, reason in reasons.items()
    )


class SpecialField(NamedTuple):
    """An option that is not a plain field; `what` describes how it is sent."""

    option: str
    what: str


Row = Field | FieldGroup | NoField | SpecialField


def render_fields(rows: Iterable[Row], settings: JsonObject, context: Context) -> JsonObject:
    """The request's keys for the options that are set; what the format does not have is reported."""
    body: JsonObject = {}
    for row in rows:
        value = settings.get(row.option)
        if value is None or isinstance(row, SpecialField):
            continue
        if isinstance(row, Field):
            if (sent := value if row.how is None else row.how(value, context)) is not None:
                place(body, row.target, sent)
        elif isinstance(row, FieldGroup):
            for target, sent in row.how(value, context).items():
                place(body, target, sent)
        elif value not in DEFAULTS and value not in row.silent:
            context.loss("option", row.option, f"{row.option} was left out: {row.reason}.")
    return body


def read_fields(rows: Iterable[Row], body: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The options that a request sets, and the keys that say something else; nulls are left out.

    A key is read as an option only if that option gives the very key back, and can be set; else it stays what it is.
    """
    settings: JsonObject = {}
    rest = {key: value for key, value in body.items() if value is not None}
    for row in rows:
        if isinstance(row, NoField | SpecialField):
            continue
        targets = row.targets if isinstance(row, FieldGroup) else (row.target,)
        keys = {target: value for target in targets if (value := value_at(rest, target)) is not None}
        if keys and (value := _option(row, keys)) is not None:
            settings[row.option] = value
            for target in keys:
                rest = _without(rest, target.split("."))
    return settings, rest


def _option(row: Field | FieldGroup, keys: JsonObject) -> Any:
    """The value of the option that renders as these keys, as it is kept; None when there is none."""
    scratch = Context()
    nested: JsonObject = {}
    for target, sent in keys.items():
        place(nested, target, sent)
    try:
        if isinstance(row, FieldGroup):
            option = None if row.back is None else row.back(keys)
        else:
            option = keys[row.target] if row.back is None else row.back(keys[row.target])
        value = None if option is None else OPTIONS[row.option].coerce(option)
        if value is None or render_fields((row,), {row.option: value}, scratch) != nested:
            return None
    except (InvalidOption, CannotRender):
        return None
    return None if scratch.losses or scratch.repairs else value


def _without(body: JsonObject, path: list[str]) -> JsonObject:
    """A body without a key; objects that become empty go, too."""
    key, *inner = path
    rest = dict(body)
    kept = _without(rest[key], inner) if inner else None
    if kept:
        rest[key] = kept
    else:
        del rest[key]
    return rest


# What options can become


def tier_of(tiers: Mapping[str, str | None]) -> How:
    """A mapper for the service tier, by the service's word for each; None: nothing is sent."""

    def tier(value: Any, context: Context) -> Any:
        if value not in tiers:
            context.loss("option", "service_tier", f"The format has no service tier {value!r}.")
        return tiers.get(value)

    return tier


def effort_of(option: JsonObject, words: Mapping[str, T], context: Context) -> T | None:
    """What the target has for an effort; the word for another effort is a repair, None a loss."""
    effort = option.get("effort")
    if effort is None or effort in DEFAULTS:
        return None
    if not isinstance(effort, str) or effort not in words:
        context.loss("option", EFFORT, f"The effort {effort!r} was left out: the target has none of that name.")
        return None
    word = words[effort]
    if word in words and word != effort:
        context.repair("range", EFFORT, f"The effort {effort!r} was sent as {word!r}, the nearest there is.")
    return word


def within(option: str, least: float, most: float) -> How:
    """A mapper for a number within the service's limits; one outside of them becomes the nearest."""

    def limited(value: Any, context: Context) -> Any:
        nearest = min(max(value, least), most)
        if nearest != value:
            context.repair("range", option, f"{option} {value} was sent as {nearest}, the nearest that is taken.")
        return nearest

    return limited


# Values that OpenAI's two formats have in common


def with_valid_name(schema: JsonObject, context: Context) -> JsonObject:
    """A JSON schema with its name cleaned, where the service would not take it."""
    name = schema.get("name")
    return schema if name is None or is_valid_name(name) else {**schema, "name": context.name(name, _SCHEMA_NAME)}


def with_some_name(schema: JsonObject, context: Context) -> JsonObject:
    """A JSON schema with a name, which the service needs and other services do not."""
    if schema.get("name") is not None:
        return schema
    context.repair("name", _SCHEMA_NAME, "The schema of the response format got a name: the service needs one.")
    return {**schema, "name": "response"}


def no_description(form: Any, context: Context) -> None:
    """Report the description of a JSON schema, where the format takes the schema alone."""
    if any(value_at(form, path) is not None for path in ("description", "json_schema.description")):
        detail = "The description of the schema was left out: the format takes the schema alone."
        context.loss("option", "text.format.description", detail)


def service_tier(value: Any, context: Context) -> Any:
    """The service tier, unless it is one of another API than OpenAI's."""
    if isinstance(value, str) and value in TIERS_ELSEWHERE:
        context.loss("option", "service_tier", f"The format has no service tier {value!r}.")
        return None
    return value


def metadata(value: Any, context: Context) -> Any:
    """Metadata within the limits of OpenAI: 16 pairs of texts, keys of 64 and values of 512 characters."""
    if not isinstance(value, dict):
        return value
    pairs: JsonObject = {}
    for key, inner in value.items():
        text = dumps(inner).decode() if isinstance(inner, int | float) else inner
        fits = isinstance(text, str) and len(key) <= _METADATA_KEY and len(text) <= _METADATA_VALUE
        if fits and len(pairs) < _METADATA_PAIRS:
            pairs[key] = text
        elif inner is not None:
            context.loss("metadata", f"metadata.{key}", f"metadata.{key} was left out: {_METADATA_RULE}.")
    return pairs


def other_keys(option: str, known: Iterable[str], value: JsonObject, context: Context, owner: str) -> None:
    """Report the keys of an option's object that the format does not have."""
    for key, inner in value.items():
        if key not in known and inner is not None and inner not in DEFAULTS:
            context.loss("option", f"{option}.{key}", f"{owner} has no {option}.{key}.")


NAMESPACE: Final = "namespace"  # type of a tool that holds others
# keys of a namespace that its tools take over, in their names and descriptions
_SPREAD: Final = frozenset({"type", "name", "description", "tools"})
FUNCTIONS: Final = frozenset({"function"})


def defined_tools(
    tools: Sequence[JsonObject], name: str, context: Context, define: parts.Mapper, kinds: Collection[str] = FUNCTIONS
) -> list[Any]:
    """The tools as the format of that name sends them: `define` makes `kinds` of them, its own go back as they came."""
    sent = [_tool(tool, name, context, path, define, kinds) for path, tool in placed_tools(tools, context)]
    return [tool for tool in sent if tool is not None]


def placed_tools(tools: Sequence[JsonObject], context: Context | None = None) -> Iterator[tuple[str, JsonObject]]:
    """The tools, and those in namespaces under their qualified names, each with its place; reported in a context."""
    for index, tool in enumerate(tools):
        path, inner = f"tools[{index}]", tool.get("tools")
        if tool.get("type") != NAMESPACE or not isinstance(inner, list) or not inner:
            yield path, tool
            continue
        if context is not None:
            name, others = tool.get("name"), sorted(tool.keys() - _SPREAD - parts.OURS)
            context.repair(
                "namespace", path, f"The tools of the namespace {name!r} were sent with its name before theirs."
            )
            if others:
                context.loss("tool", path, f"Keys of the namespace {name!r} were left out: {', '.join(others)}.")
        for number, one in enumerate(inner):
            yield f"{path}.tools[{number}]", _in_namespace(one, tool)


def _in_namespace(tool: Any, namespace: JsonObject) -> JsonObject:
    """A tool of a namespace as one that stands alone; what is no definition has no type that a format knows."""
    if not isinstance(tool, dict):
        return {"type": type(tool).__name__}
    named = {"name": qualified_name({**tool, "namespace": namespace.get("name")})} if "name" in tool else {}
    texts = [text for text in (namespace.get("description"), tool.get("description")) if isinstance(text, str) and text]
    return {**tool, **named, **({"description": "\n\n".join(texts)} if texts else {})}


def _tool(
    tool: JsonObject, name: str, context: Context, path: str, define: parts.Mapper, kinds: Collection[str]
) -> Any:
    kind = tool.get("type", "function")
    if kind == "provider_tool":
        return parts.own_block(tool, name, context, path)
    if not isinstance(kind, str) or kind not in kinds:
        context.loss("tool", path, f"The format has no tool of type {kind!r}.")
        return None
    parts.report_foreign(tool, name, context, path)
    report_options(tool, context, path)
    return define(tool, context, path)


def report_options(tool: JsonObject, context: Context, path: str) -> None:
    """Report what only the Responses API can say of a function or custom tool."""
    if tool.get("async") is True:
        context.loss("option", f"{path}.async", "The format has no asynchronous tools: calls wait for their outputs.")
    if tool.get("output_schema") is not None:
        context.loss("option", f"{path}.output_schema", "The format has no schema of what a tool returns.")


def tools_by_name(tools: Sequence[JsonObject], name: str, context: Context, define: parts.Mapper) -> list[Any]:
    """The same for a format that takes each name once: the later definition, at the place of the first."""
    sent: dict[Any, Any] = {}
    for index, tool in enumerate(defined_tools(tools, name, context, define)):
        own = tool.get("name") if isinstance(tool, dict) else None
        sent[own if isinstance(own, str) else index] = tool
    return list(sent.values())


def object_schema(parameters: Any, context: Context, path: str) -> JsonObject:
    """The schema of a function's arguments, for formats that take an object's alone."""
    if not isinstance(parameters, dict):
        return {"type": "object", "properties": {}}
    if parameters.get("type") == "object":
        return parameters
    context.repair("schema", f"{path}.parameters", "The schema was sent as an object's: arguments are objects.")
    return {**parameters, "type": "object"}


def as_named(tool: JsonObject, keys: Mapping[str, tuple[str, type]]) -> JsonObject:
    """What a function tool has, under the keys of a format: key there -> key of the tool, and the type of its value."""
    return {key: tool[ours] for key, (ours, _) in keys.items() if tool.get(ours) is not None}


ToolKeys = Mapping[str, tuple[str, type]]  # key of a format -> key of a function tool, and the type of its value


def named_tool(tool: JsonObject, name: str, keys: ToolKeys, context: Context, path: str) -> JsonObject:
    """A function tool under the keys of a format; one that came from there keeps its name, and all keys of its own."""
    wire = as_named(tool, keys)
    if tool.get("origin") != name:
        wire["name"] = context.name(tool.get("name"), f"{path}.name")
    return wire | parts.native_keys(tool, name)


def read_tool(given: Any, name: str, keys: ToolKeys, required: JsonObject) -> JsonObject:
    """A definition of a format as a tool; one that would not come back stays a block.

    Args:
        given: the definition.
        name: the name of the format.
        keys: those that a tool has, too.
        required: keys that a definition must have, with their values; None for any value.
    """
    is_regular = isinstance(given, dict) and all(
        key in given and value in (None, given[key]) for key, value in required.items()
    )
    if not is_regular or not all(isinstance(given.get(key), kind | None) for key, (_, kind) in keys.items()):
        return {**parts.block(given, name), "type": "provider_tool"}
    ours = {key: given[theirs] for theirs, (key, _) in keys.items() if given.get(theirs) is not None}
    said = {*keys, *(key for key, value in required.items() if value is not None)}
    strange = {key: value for key, value in given.items() if key not in said}
    return parts.with_native_keys({"type": "function", **ours, "origin": name}, strange, name)


def unsent_rows(why: str, sent: Mapping[str, Row]) -> tuple[Row, ...]:
    """The table of a format of applications, in which hardly any option is sent: `why` not, and those that are."""

    def no_effort(value: Any, context: Context) -> None:
        effort = value.get("effort") if isinstance(value, dict) else value
        if effort not in DEFAULTS:
            context.loss("option", EFFORT, f"The effort {effort!r} was left out: {why}.")

    vendor = "not sent: who asks the model knows its vendor"
    rows: dict[str, Row] = {
        "reasoning": Field("reasoning", "reasoning", no_effort, lambda _: None),
        "model": Field("model", "model"),
        **{option: SpecialField(option, vendor) for option in ("dialect", "provider")},
        **{
            option: NoField(option, "the items stored here are sent")
            for option in ("previous_response_id", "conversation")
        },
        **sent,
    }
    return tuple(rows.get(option, NoField(option, why)) for option in OPTIONS)
