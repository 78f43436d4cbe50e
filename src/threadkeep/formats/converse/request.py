"""Writing and reading requests of Converse, and sending them with boto3.

* `modelId` stands in the path of the request and may be taken out of the body; a request that was read without goes
  out without.
* `system` begins with the instructions.
* A history of calls needs tools, see `tools`.
* `messages` is the last key.

Arguments for boto3 are made so: ``client.converse(**rendered.arguments(client.converse))``.

A client of botocore makes its methods from the service model, and they take any keywords; which ones the operation has,
and which values are bytes, is in the model of the client that the method belongs to.

Reading:

* A lone system text is the instructions; other system content is a system message that comes first.
* A system message among the messages stays there.
* What has no option goes back as it came.

Source: Amazon Bedrock's API reference, "Converse", request.

Cache points on tools, system text and the growing end of a conversation.

* A cache point is a block of its own behind what it covers, among the blocks of a message and never inside a result.
* The last two messages end with one: the next request finds the last point of this one in its history.
* With a dynamic context at the tail, it is the last two messages before it: the next request has another one.
* There are four at most; those that are there are kept, count, and are not set twice.
* A point of an hour may not follow one of five minutes, so one that an hour's point follows lasts an hour, too.

Source: Amazon Bedrock's user guide, "Prompt caching for faster model inference"; API reference, "CachePointBlock".
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from threadkeep.domain import formats, items, tool_names
from threadkeep.domain.jsontext import JsonObject, bytes_as_text, dumps, merged, value_at, with_value
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, CannotRender
from threadkeep.formats.canonical.entries import Snapshot
from threadkeep.formats.converse import parts, tools, turns
from threadkeep.formats.converse import tools as own_tools
from threadkeep.formats.converse.fields import EXTRAS, FIELDS, NAME, ROLES, SCHEMA, reasoning_fields, schema_of
from threadkeep.formats.shared import fields, parsing, provider_rules, views
from threadkeep.formats.shared.prefixes import resumed
from threadkeep.formats.shared.provider_errors import shortened
from threadkeep.formats.shared.rendering import Rendering, begin, no_model, report_filler
from threadkeep.formats.shared.reports import Context
from threadkeep.formats.shared.sending import check_stream, name_of, not_sent, parameters_of, wrong_method

POINT: Final = "cachePoint"
MOST: Final = 4
_UNMARKED: Final = frozenset({POINT, "reasoningContent"})  # no point may stand behind these
_EVERYWHERE: Final = frozenset({"tools", "system", "messages"})
# model id (the first match counts) -> where it takes cache points; models of no row take them everywhere
CACHED: Final[tuple[tuple[re.Pattern[str], frozenset[str]], ...]] = (
    (re.compile(r"claude-(3-(haiku|sonnet|opus)|3-5-sonnet-20240620|v2|instant)"), frozenset()),
    (re.compile(r"nova-(canvas|reel|sonic)"), frozenset()),
    (re.compile(r"nova"), frozenset({"system", "messages"})),
    (re.compile(r"titan|llama|mistral|mixtral|cohere|ai21|deepseek|qwen|gpt-oss|writer|kimi|minimax"), frozenset()),
)

Path = tuple[str | int, ...]  # keys and indexes that lead to a list


def with_points(body: JsonObject, model: object, end: int | None) -> JsonObject:
    """A request with the cache points that the model takes; `end` is how many messages the next request repeats."""
    name = model.lower() if isinstance(model, str) else ""
    places = next((places for pattern, places in CACHED if pattern.search(name)), _EVERYWHERE)
    room = MOST - len([block for path in _paths(body) for block in _at(body, path) if _is_point(block)])
    ends = [(path, block) for path in _wanted(body, places, end) for block in _at(body, path)[-1:]]
    able = [path for path, block in ends if isinstance(block, dict) and _UNMARKED.isdisjoint(block)]
    for path in able[: max(room, 0)]:
        # A point at the end of a list, which those behind it may follow
        paths = _paths(body)
        behind = [block for later in paths[paths.index(path) + 1 :] for block in _at(body, later) if _is_point(block)]
        is_long = any(isinstance(block[POINT], dict) and block[POINT].get("ttl") == "1h" for block in behind)
        body = _extended(body, path, {POINT: {"type": "default", **({"ttl": "1h"} if is_long else {})}})
    return body


def _wanted(body: JsonObject, places: frozenset[str], end: int | None) -> list[Path]:
    """The lists that are to end with a point, the most useful first."""
    messages = [index for index, message in enumerate(body["messages"][:end]) if message["role"] in ROLES]
    ends: list[Path] = [("messages", index, "content") for index in messages[:-3:-1]]
    last, before = ends[:1], ends[1:]
    leading: list[Path] = [("system",)] * ("system" in places) + [("toolConfig", "tools")] * ("tools" in places)
    return [*last, *leading, *before] if "messages" in places else leading


def _paths(body: JsonObject) -> list[Path]:
    """All lists that hold points, in the order of the service."""
    inner: list[Path] = [("messages", index, "content") for index in range(len(body["messages"]))]
    return [("toolConfig", "tools"), ("system",), *inner]


def _at(body: Any, path: Path) -> list[Any]:
    for key in path:
        if isinstance(body, dict):
            body = body.get(key)
        else:
            body = body[key] if isinstance(body, list) and isinstance(key, int) else None
    return body if isinstance(body, list) else []


def _is_point(block: Any) -> bool:
    return isinstance(block, dict) and POINT in block


def _extended(thing: Any, path: Path, last: JsonObject) -> Any:
    """A thing with one more element in a list; what leads there is copied."""
    if not path:
        return [*thing, last]
    key, *rest = path
    copied: Any = dict(thing) if isinstance(thing, dict) else list(thing)
    copied[key] = _extended(thing[key], tuple(rest), last)
    return copied


_APART: Final = ("messages", "system", "toolConfig")  # keys that are not made of options alone


@resumed(NAME, "messages")
def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    """Render a session as the body of a Converse request."""
    context = parts.WriteContext()
    rendering = begin(session, options, NAME, context)
    settings = rendering.snapshot.settings
    context.model = str(settings.get("model") or "")
    is_new = rendering.spelling is None  # an imported request goes back as it came
    body = _body(settings, rendering.spelling, context)
    if "modelId" not in body and is_new:
        raise no_model()
    thinks = value_at(body, "additionalModelRequestFields.thinking.type") == "enabled"
    writer = turns.ConverseWriter(rendering, context, thinks=thinks)
    messages, stable = writer.write(rendering.entries)
    if not any(message["role"] != "system" for message in messages):
        report_filler(rendering.entries, context, provider_rules.FILLER)
        messages = [*messages, {"role": "user", "content": [{"text": provider_rules.FILLER}]}]
    if own_tools.is_none(settings.get("tool_choice")):
        messages = _without_tools(messages, rendering)
    elif (config := _tool_config(writer, rendering)) is not None:
        body["toolConfig"] = config
    body = rendering.fitted(body)
    messages = _with_system(body, messages, writer.system, rendering)
    if own_tools.holds(rendering.spelling):
        body = own_tools.agreed(body, writer.turns, context)
    body["messages"] = messages
    if options.cache is not None:
        body = with_points(body, settings.get("model"), views.repeated_turns(rendering.view, options, stable))
    return rendering.finish(body, stable)


def _instructions(settings: JsonObject, context: Context, *, is_new: bool) -> list[JsonObject]:
    """The block of the instructions; the service refuses blank ones."""
    instructions = settings.get("instructions")
    if instructions and (instructions.strip() or not is_new):
        return [{"text": instructions}]
    if instructions:
        context.repair("blank_text", "instructions", "Blank instructions were left out.")
    return []


def _with_system(
    body: JsonObject, messages: list[JsonObject], hoisted: list[JsonObject], rendering: Rendering
) -> list[JsonObject]:
    """Put the system text into the body; the messages begin with it where the model takes none."""
    settings = rendering.snapshot.settings
    said = _instructions(settings, rendering.context, is_new=rendering.spelling is None) + hoisted
    if said and rendering.is_system_of_user():
        first, *others = messages
        return [{**first, "content": [*(block for block in said if "text" in block), *first["content"]]}, *others]
    if system := said or _native(settings).get("system"):
        body["system"] = system
    return messages


def _native(settings: JsonObject) -> JsonObject:
    native = (settings.get("extra") or {}).get(NAME)
    return native if isinstance(native, dict) else {}


def _body(settings: JsonObject, spelling: JsonObject | None, context: Context) -> JsonObject:
    """The keys that the options set; `spelling` comes from an imported request."""
    extra = settings.get("extra") or {}
    body = fields.render_fields(FIELDS, settings, context)
    stops = extra.get("stop_sequences")
    stops = [stops] if isinstance(stops, str) else stops if isinstance(stops, list) else []
    if stops := [stop for stop in stops if stop != ""]:  # the service refuses empty ones
        body = merged(body, {"inferenceConfig": {"stopSequences": stops}})
    if reasoning := reasoning_fields(settings, context):
        body["additionalModelRequestFields"] = reasoning
    if spelling is None:
        body = own_tools.fitted(body, context)
    body = merged(body, {key: extra[flat] for flat, key in EXTRAS.items() if extra.get(flat) is not None})
    body = merged(body, {key: value for key, value in _native(settings).items() if key not in _APART})
    return body if spelling is None else _as_imported(body, spelling, context)


def _as_imported(body: JsonObject, spelling: JsonObject, context: Context) -> JsonObject:
    """The keys of an imported request, which keep to Claude's rules if they did, with its schema as it wrote that."""
    if own_tools.holds(spelling):
        body = own_tools.fitted(body, context)
    text, ours = spelling.get("schema"), value_at(body, SCHEMA)
    if text is not None and isinstance(ours, str) and schema_of(ours) == schema_of(text):
        return with_value(body, SCHEMA, text)
    return body


def _without_tools(messages: list[JsonObject], rendering: Rendering) -> list[JsonObject]:
    """The messages of a request whose tools may not be called: Converse cannot say so, and has no tools then."""
    context, has_history = rendering.context, own_tools.holds_tool_blocks(messages)
    tools = own_tools.wire_tools(rendering.snapshot.tools, context)
    if tools or has_history:
        context.repair("tool_choice", "tool_choice", "Converse has no choice 'none': the tools were left out.")
    if not has_history:
        return messages
    context.repair("tool_history", "", "Calls and their results were sent as text: they need tools in the request.")
    return own_tools.text_of_calls(messages)


def _tool_config(writer: turns.ConverseWriter, rendering: Rendering) -> Any:
    """The tools and the choice among them; calls of the history need tools."""
    settings, context = rendering.snapshot.settings, rendering.context
    tools = own_tools.wire_tools(rendering.snapshot.tools, context)
    native, choice = _native(settings).get("toolConfig"), settings.get("tool_choice")
    config: JsonObject = dict(native) if isinstance(native, dict) else {}
    if tools:
        config["tools"] = tools
        if (wire_choice := own_tools.tool_choice(choice, context)) is not None:
            config["toolChoice"] = wire_choice
    elif choice is not None:
        context.repair("option", "tool_choice", "tool_choice was left out: there are no tools.")
    if not tools and writer.names and not (rendering.spelling or {}).get("untooled"):
        context.repair("tool_history", "tools", "The functions of the history were declared by name: calls need tools.")
        config["tools"] = [{"toolSpec": {"name": name, **own_tools.tool_keys({}, context)}} for name in writer.names]
    return config or native


_STREAMED: Final = "ConverseStream"
_TURNS: Final = "messages"


def arguments(rendered: Rendered, method: Callable[..., Any], stream: bool | None) -> JsonObject:
    """The arguments with which a method of boto3 sends the request, with bytes where JSON has base64."""
    parameters_of(method)  # refuses what is no method
    name, bound = name_of(method), getattr(method, "func", method)  # of a functools.partial
    client = getattr(getattr(bound, "__self__", None), "meta", None)
    word = getattr(client, "method_to_api_mapping", {}).get(name_of(bound))
    operation = None if client is None or word is None else client.service_model.operation_model(word)
    if operation is None or _TURNS not in operation.input_shape.members:
        raise wrong_method(name, "is no method of a Bedrock client that takes messages", NAME)
    check_stream(stream, name, streams=operation.name == _STREAMED)
    payload, shape = rendered.payload, operation.input_shape
    if foreign := payload.keys() - shape.members.keys():
        raise not_sent(foreign, name)
    result: JsonObject = _in_bytes(payload, shape, "")
    return result


def _in_bytes(value: Any, shape: Any, path: str) -> Any:
    """A value with bytes where its shape has them; botocore refuses what the model does not know."""
    if shape is None or getattr(shape, "is_document_type", False):
        return value
    if isinstance(value, dict):
        members = getattr(shape, "members", None)
        inner = getattr(shape, "value", None)  # of a map
        return {
            key: _in_bytes(one, inner if members is None else members.get(key), f"{path}.{key}" if path else key)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_in_bytes(one, getattr(shape, "member", None), f"{path}.{index}") for index, one in enumerate(value)]
    return _decoded(value, path) if shape.type_name == "blob" and isinstance(value, str) else value


def _decoded(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise CannotRender(f"{path} is not base64: {error}.", hint="boto3 takes bytes there.") from error


@parsing.parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a Converse request; the model usually stands in its path."""
    body = bytes_as_text(parsing.request_object(payload, NAME, "messages"))
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise CannotParse(f"messages is {shortened(messages)}, not a list.", hint=parsing.SENT_REQUEST)
    others = {key: value for key, value in body.items() if key not in _APART}
    spelling = _spelling(others, body, messages)
    if not own_tools.fits({**body, **({} if model is None else {"modelId": model})}):
        spelling[own_tools.UNFIT] = True
    kept = {key: value for key, value in others.items() if not (key == "inferenceConfig" and value == {})}
    if isinstance(text := value_at(kept, SCHEMA), str):
        kept = with_value(kept, SCHEMA, _plain_schema(text))
    settings, native = fields.read_fields(FIELDS, kept)
    settings |= {key: value for key, value in (("model", model), ("stream", stream)) if value is not None}
    system, turns = _system(body.get("system"), settings), _turns(messages)
    tools = _tools(body.get("toolConfig"), settings, native)
    return parsing.session_of(NAME, [*system, *turns], settings=settings, tools=tools, native=native, spelling=spelling)


@parsing.parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[formats.OpenCall] = ()) -> list[list[items.Item]]:
    """The item objects of each message."""
    return parsing.items_of_turns(_turns(turns))


def _turns(turns: Any) -> list[list[JsonObject]]:
    return [_items(bytes_as_text(turn)) for turn in parsing.turns_in(turns, NAME)]


def _items(message: Any) -> list[JsonObject]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str):
        raise CannotParse(f"A converse message is {shortened(message)}.", hint="Pass a dict with `role` and `content`.")
    content = parsing.checked_content(message, "A converse message")
    blocks = [{"text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list | None):
        raise CannotParse(f"The content of a converse message is {shortened(content)}, not a list of blocks.")
    if not (items := parts.BlockReader(role).read(blocks or ())):
        return [{"type": "message", "role": role, "content": [], "origin": NAME}]
    return [{**item, "spelling": {NAME: turns.IN_HISTORY}} for item in items] if role == "system" else items


def _system(system: Any, settings: JsonObject) -> list[list[JsonObject]]:
    """The system content: a lone text becomes the instructions."""
    match system:
        case None | []:
            return []
        case [{"text": str(text), **others}] if text and not others:
            settings["instructions"] = text
            return []
        case [*blocks]:
            return [parts.BlockReader("system").read(blocks)]
    raise CannotParse(f"system is {shortened(system)}, not a list of blocks.", hint=parsing.SENT_REQUEST)


def _spelling(others: JsonObject, body: JsonObject, messages: list[Any]) -> JsonObject:
    """How the request spells what could be spelled otherwise: the schema's text, and calls without tools."""
    spelling: JsonObject = {}
    text = value_at(others, SCHEMA)
    if isinstance(text, str) and isinstance(schema_of(text), dict) and _plain_schema(text) != text:
        spelling["schema"] = text
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    blocks = [wire for content in contents if isinstance(content, list) for wire in content if isinstance(wire, dict)]
    has_blocks = tools.holds_tool_blocks([{"content": blocks}])
    if has_blocks and not body.get("toolConfig"):
        spelling["untooled"] = True
    return spelling


def _plain_schema(text: str) -> str:
    """The text of a schema as it is written when it is new."""
    schema = schema_of(text)
    return schema if isinstance(schema, str) else dumps(schema).decode()


def _tools(config: Any, settings: JsonObject, native: JsonObject) -> list[JsonObject]:
    """The tool definitions; what else the configuration says goes into the settings or to the native keys."""
    if not isinstance(config, dict):
        if config is not None:
            native["toolConfig"] = config
        return []
    definitions = config.get("tools")
    tools = [_tool(tool) for tool in definitions] if isinstance(definitions, list) else []
    choice = _choice(config.get("toolChoice"), {tool.get("name") for tool in tools})
    if choice is not None:
        settings["tool_choice"] = choice
    known = {"tools" if tools else "", "toolChoice" if choice is not None else ""}
    left = {key: value for key, value in config.items() if key not in known and value is not None}
    if left:
        native["toolConfig"] = left
    return tools


def _choice(choice: Any, names: set[Any]) -> Any:
    for option, wire in tools.CHOICES.items():
        if choice == wire:
            return option
    match choice:
        case {"tool": {"name": str(name), **others}, **more} if not others and not more and name in names:
            return {"type": "function", "name": name}
    return None


def _tool(tool: Any) -> JsonObject:
    """A function; anything else is a tool of this format."""
    match tool:
        case {"toolSpec": {"name": str(name)} as spec, **others} if tool_names.is_valid_name(name):
            keys = (
                ("description", spec.get("description"), str),
                ("parameters", value_at(spec, "inputSchema.json"), dict),
                ("strict", spec.get("strict"), bool),
            )
            known = {key: value for key, value, kind in keys if isinstance(value, kind)}
            function: JsonObject = {"type": "function", "name": name, **known}
            plain = {"name": name, **tools.tool_keys(function, Context())}
            strange = {key: value for key, value in spec.items() if key not in plain or plain[key] != value}
            strange |= {key: None for key in plain if key not in spec}
            native: Any = {**others, **({"toolSpec": strange} if strange else {})}
            return {**function, **({"native": {NAME: native}} if native else {})}
    return {"type": "provider_tool", "format": NAME, "payload": tool}
