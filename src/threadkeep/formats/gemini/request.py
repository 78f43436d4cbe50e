"""Writing and reading requests of the Gemini API.

* The model stands in the address of the request, not in its body.
* System text leads: instructions first, then system and developer messages, wherever they stand.
* Keys of `extra.gemini` are laid over the rest, objects key by key.
* With a cached content the service takes no system text and no tools: the cache holds them. Contents that it holds
  are left out; no turn of the others is counted as stable, because the next request may name a longer cache.
* What came from this API keeps its spelling.
* `contents` is the last key.

Reading:

* Keys are read in camel and snake case, words in any case, one element without its list; the spelling is noted.
* The first text of `systemInstruction` is `instructions`, what follows a system message.
* Function declarations are tools, all other tools blocks of this format.
* Keys that are not options, or whose value no option can say, are `extra.gemini`.

Source: Google's Gemini API reference, "generateContent".

What of a request an explicit context cache can hold.

* A cache holds the system text, the tools, their configuration and the first contents, exactly as requests send them.
* The last turn is never in a cache: its thought signatures must be sent. Calls are not parted from their responses.
* A new cache ends where the user begins to speak, so that what is left of the request begins with the user; where the
  user has spoken only once (a long run of tools), with a turn of the model.
* A cache holds nothing that a later item may still change, and no dynamic context.
* The hash of a beginning covers all of it, and the model. The order of keys counts: the service sees it, too.

Source: Google's Gemini API reference, "Caching".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate, takewhile
from typing import Any, Final

from threadkeep.domain.context_caches import Prefix
from threadkeep.domain.formats import OpenCall
from threadkeep.domain.items import Item
from threadkeep.domain.jsontext import JsonObject, body_object, dumps, merged, place, value_at, with_value
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, CannotRender
from threadkeep.formats.canonical.entries import Snapshot
from threadkeep.formats.gemini import calls, fields, parts
from threadkeep.formats.gemini.fields import JSON_SCHEMA, MODEL, NAME, SCHEMA, USER, WORDS
from threadkeep.formats.gemini.spelling import HEAD, levelled, noted, read_part, respelled
from threadkeep.formats.gemini.tools import DECLARATIONS, choice_in, tool_config, tools_in, wire_tools
from threadkeep.formats.gemini.turns import Content, GeminiWriter, OpenCalls, oddities, parts_of, turns_of
from threadkeep.formats.shared import google, pairing, parsing, provider_errors, reports, views
from threadkeep.formats.shared.fields import read_fields, render_fields
from threadkeep.formats.shared.parts import block
from threadkeep.formats.shared.prefixes import resumed
from threadkeep.formats.shared.rendering import Rendering, begin, needs_last_turn, no_model, nothing_to_send

# keys that a cached content holds in place of the request
CACHED: Final = ("systemInstruction", "tools", "toolConfig")


@dataclass(slots=True)
class RequestParts:
    """A request of which everything is written, but not put together."""

    model: Any  # None for an imported request that did not say
    head: JsonObject  # the request without its contents, in this API's own spelling
    writer: GeminiWriter
    rendering: Rendering

    def contents(self) -> list[Any]:
        """The contents as they are sent."""
        oddity = (self.rendering.spelling or {}).get("contents", {})
        return [_content(content, oddity.get(str(content.places[0]))) for content in self.writer.contents]


@resumed(NAME, "contents")
def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    """Render a session as the body of a generateContent request."""
    parts = write_request(session, options)
    written, spelling = parts.writer.contents, parts.rendering.spelling or {}
    cache, body, contents = options.context_cache, parts.head, parts.contents()
    if cache is not None:
        body = {key: value for key, value in body.items() if key not in CACHED} | {"cachedContent": cache.name}
        contents = contents[sum(1 for _ in takewhile(lambda held: max(held.places) <= cache.upto, written)) :]
    if not contents:
        raise nothing_to_send("content")
    if spelling:
        body = respelled_head(body, spelling)
    stable = 0 if cache is not None else parts.writer.stable()
    # Report a last turn of the model, unless it stood in the very request that is sent again
    last, rendering = parts.writer.contents[-1], parts.rendering
    if last.role == MODEL and max(last.places, default=-1) >= rendering.imported:
        needs_last_turn(rendering.rules, rendering.context, is_as_came=False)
    is_object = len(contents) == 1 and "contents" in spelling.get("objects", ())
    body["contents"] = contents[0] if is_object else contents
    return parts.rendering.finish(body, stable)


def write_request(session: Session | Snapshot, options: RenderOptions) -> RequestParts:
    """A request before it is put together; one without a model is refused."""
    rendering = begin(session, options, NAME, reports.Context(rule=google.NAMES, takes_signatures=True))
    snapshot = rendering.snapshot
    model = snapshot.settings.get("model")
    if model is None and snapshot.imported is None:
        raise no_model()
    family = fields.family_of(model)
    body = _settings(snapshot, family, rendering.context)
    writer = GeminiWriter(rendering, pairing.paired(rendering.entries, pairing.left_alone(snapshot, NAME)), family)
    writer.write(calls.with_signatures(rendering.entries))
    return RequestParts(model, _head(body, _system_parts(writer, rendering), rendering), writer, rendering)


def _system_parts(writer: GeminiWriter, rendering: Rendering) -> list[Any]:
    """The system text; none where it is the user's, because the model takes no other."""
    instructions = rendering.snapshot.settings.get("instructions")
    parts = [*([] if instructions is None else [{"text": instructions}]), *writer.system]
    if not parts or not writer.contents or not rendering.is_system_of_user():
        return parts
    first = writer.contents[0]
    first.parts[:0], first.places[:0] = parts, [first.places[0]] * len(parts)
    return []


def _settings(snapshot: Snapshot, family: fields.GeminiFamily, context: reports.Context) -> JsonObject:
    settings = snapshot.settings
    body = render_fields(fields.fields_of(family), settings, context)
    if settings.get("parallel_tool_calls") is False:
        context.loss("option", "parallel_tool_calls", "Gemini cannot be kept from calling tools in parallel.")
    if tools := wire_tools(snapshot.tools, context):
        body["tools"] = tools
    has_functions = any(isinstance(entry, dict) and DECLARATIONS in entry for entry in tools)
    if config := tool_config(settings.get("tool_choice"), context, has_functions=has_functions):
        body["toolConfig"] = config
    return body


def _head(body: JsonObject, system: list[Any], rendering: Rendering) -> JsonObject:
    """The request without its contents."""
    if system:
        body["systemInstruction"] = {"parts": system}
    extra = rendering.snapshot.settings.get("extra") or {}
    for key, target in fields.EXTRAS.items():
        if key in extra:
            place(body, target, extra[key])
    native = extra.get(NAME)
    if isinstance(native, dict):
        body = merged(body, {key: value for key, value in native.items() if key != "contents"})
    if body.get("cachedContent") is not None and rendering.spelling is None:
        for key in [key for key in CACHED if key in body]:
            del body[key]
            detail = f"{key} was left out: the service takes none with a cached content."
            rendering.context.loss("option", key, detail)
    return rendering.fitted(body)


def _content(content: Content, oddity: Any) -> Any:
    """A content as it is sent; `oddity` is how the imported request spelled it, where not as usual."""
    if content.whole is not None:
        return content.whole
    sent: JsonObject = {"role": content.role, "parts": content.parts}
    if not isinstance(oddity, dict):
        return sent
    if "role" in oddity:
        sent["role"] = oddity["role"]
    if "parts" in oddity and len(content.parts) == 1:
        sent["parts"] = content.parts[0]
    return {key: value for key, value in sent.items() if value is not None} | oddity.get("native", {})


def respelled_head(body: JsonObject, spelling: JsonObject) -> JsonObject:
    """A head in the spelling of the request that the conversation began with."""
    for path, word in spelling.get("words", {}).items():
        value = value_at(body, path)
        if isinstance(value, str) and path in fields.WORDS and value == fields.WORDS[path](word):
            body = with_value(body, path, word)
    schema, system = spelling.get("schema"), spelling.get("systemInstruction")
    if isinstance(schema, dict):
        body = _with_schema(body, schema)
    if isinstance(system, dict) and isinstance(body.get("systemInstruction"), dict):
        body = {**body, "systemInstruction": _respelled_system(body["systemInstruction"], system)}
    if "tools" in body:
        body = {**body, "tools": _respelled_tools(body["tools"], spelling)}
    return respelled(body, spelling.get("snake", ()), HEAD)


def _respelled_tools(tools: Any, spelling: JsonObject) -> Any:
    """The entries of tools, with the key of the functions as it was; of other tools all keys are kept as they came."""
    if DECLARATIONS in spelling.get("snake", ()) and isinstance(tools, list):
        tools = [respelled(tool, (DECLARATIONS,), ()) if isinstance(tool, dict) else tool for tool in tools]
    is_alone = isinstance(tools, list) and len(tools) == 1 and "tools" in spelling.get("objects", ())
    return tools[0] if is_alone else tools


def _respelled_system(system: JsonObject, spelling: JsonObject) -> JsonObject:
    parts: Any = system.get("parts")
    is_alone = isinstance(parts, list) and len(parts) == 1
    lone = {"parts": parts[0]} if is_alone and spelling.get("parts") == "object" else {}
    return {**system, **lone, **({"role": spelling["role"]} if "role" in spelling else {})}


def _with_schema(body: JsonObject, noted: JsonObject) -> JsonObject:
    """The schema of the answer under the key and in the words that it came in, while it is the same."""
    path = next((path for path in (fields.SCHEMA, fields.JSON_SCHEMA) if value_at(body, path) is not None), None)
    if path is None:
        return body
    schema = value_at(body, path)
    came = noted.get("came", schema)
    if "came" in noted and fields.json_schema(came) != schema:
        return body
    return with_value(with_value(body, path, None), noted.get("path", path), came)


_CHOICE: Final = "toolConfig.functionCallingConfig"
_READ_APART: Final = ("contents", "tools", "systemInstruction")


@parsing.parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a generateContent request; `model` and `stream`, which stand in its address, are given with it."""
    names: set[str] = set()
    body = levelled(parsing.request_object(payload, NAME, "contents"), names, HEAD)
    contents, objects = _contents(body)
    model = body["model"] if model is None and isinstance(body.get("model"), str) else model
    settings, native, spelling = _read_settings(body, fields.family_of(model))
    tools, strange, tool_objects = tools_in(body.get("tools"), names)
    settings |= _choice(native, tools)
    system, system_words = _system(body.get("systemInstruction"), settings, native)
    settings |= {key: value for key, value in (("model", model), ("stream", stream)) if value is not None}
    turns = system + turns_of(contents, OpenCalls())
    odd: JsonObject = {}  # the spelling of contents that are spelled unusually, by the position of their first item
    first = sum(map(len, system))
    for content, items in zip(contents, turns[len(system) :], strict=True):
        if items[0]["type"] != "provider_item" and (words := oddities(content)):
            odd[str(first)] = words
        first += len(items)
    spelling |= noted(names, objects=objects + tool_objects, contents=odd).get("spelling", {}) | system_words
    return parsing.session_of(NAME, turns, settings=settings, tools=tools, native=native | strange, spelling=spelling)


@parsing.parser(f"{NAME} turns")
def parse_turns(turns: Any, calls: Sequence[OpenCall] = ()) -> list[list[Item]]:
    """The item objects of contents, content by content; responses without an id go to the open calls of their name."""
    contents = parsing.turns_in(turns, NAME)
    for index, content in enumerate(contents):
        if not isinstance(content, dict) or "parts" not in content:
            what = f"contents[{index}] is {provider_errors.shortened(content)}, which has no parts."
            raise CannotParse(what, hint="Pass contents as they were sent.")
    return parsing.items_of_turns(turns_of(contents, OpenCalls(calls)))


def _contents(body: JsonObject) -> tuple[list[Any], list[str]]:
    """The contents as a list, and whether they were one."""
    contents = body_object(body.get("contents")) if not isinstance(body.get("contents"), str) else body["contents"]
    if isinstance(contents, dict):
        return [contents], ["contents"]
    contents = [content for content in contents if content is not None] if isinstance(contents, list) else contents
    if isinstance(contents, list) and contents:
        return contents, []
    if contents:
        raise CannotParse(
            f"contents is {provider_errors.shortened(contents)}, not a list of contents.", hint=parsing.SENT_REQUEST
        )
    raise parsing.no_turns(body, NAME, "contents")


def _read_settings(body: JsonObject, family: fields.GeminiFamily) -> tuple[JsonObject, JsonObject, JsonObject]:
    """The options that a request sets, the keys that say something else, and the spelling."""
    read = {key: value for key, value in body.items() if key not in _READ_APART}
    words = {path: word for path in WORDS if isinstance(word := value_at(read, path), str)}
    for path, word in words.items():
        read = with_value(read, path, WORDS[path](word))
    read, schema = _with_usual_schema(read)
    settings, native = read_fields(fields.fields_of(family), read)
    if value_at(native, SCHEMA) is not None or value_at(native, JSON_SCHEMA) is not None:
        schema = {}
        for path in (SCHEMA, JSON_SCHEMA):
            native = with_value(native, path, value_at(body, path))
    for path, word in words.items():
        if value_at(native, path) is not None:
            native = with_value(native, path, word)
    odd_words = {path: word for path, word in words.items() if word != WORDS[path](word)}
    spelling = {key: value for key, value in {"words": odd_words, "schema": schema}.items() if value}
    return settings, native, spelling


def _with_usual_schema(body: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The schema of the answer as JSON schema, where the option would put it, and a note of how it came."""
    for path in (SCHEMA, JSON_SCHEMA):
        came = value_at(body, path)
        if came is not None:
            read = fields.json_schema(came) if path == SCHEMA else came
            usual = SCHEMA if fields.is_schema(read) else JSON_SCHEMA
            note = ({"path": path} if usual != path else {}) | ({"came": came} if read != came else {})
            return with_value(with_value(body, path, None), usual, read), note
    return body, {}


def _choice(native: JsonObject, tools: Sequence[JsonObject]) -> JsonObject:
    """The tool choice that a request states, taken out of its keys; none that the option would not give back."""
    config = value_at(native, _CHOICE)
    choice = choice_in(config) if isinstance(config, dict) else None
    context = reports.Context(tools, google.NAMES)
    has_functions = any(tool["type"] == "function" for tool in tools)
    try:
        rendered = tool_config(choice, context, has_functions=has_functions)
    except CannotRender:
        return {}
    if rendered != {"functionCallingConfig": config} or context.repairs:
        return {}
    other = {key: value for key, value in native["toolConfig"].items() if key != "functionCallingConfig"}
    del native["toolConfig"]
    native |= {"toolConfig": other} if other else {}
    return {"tool_choice": choice}


def _system(system: Any, settings: JsonObject, native: JsonObject) -> tuple[list[list[JsonObject]], JsonObject]:
    """System text: the first text is put to `settings`, the rest is a turn; and its spelling."""
    if system is None:
        return [], {}
    parts = parts_of(system) if isinstance(system, dict) else []
    if not parts:
        native["systemInstruction"] = system
        return [], {}
    strange = {key: value for key, value in system.items() if key not in ("parts", "role") and value is not None}
    if strange:
        native["systemInstruction"] = strange
    words = {"role": system["role"]} if system.get("role") is not None else {}
    words |= {"parts": "object"} if isinstance(system["parts"], dict) else {}
    match parts[0]:
        case {"text": str(text), **others} if not others:
            settings["instructions"] = text
            parts = parts[1:]
    message = {"type": "message", "role": "system", "content": [_system_part(part) for part in parts], "origin": NAME}
    return [[message]] if parts else [], {"systemInstruction": words} if words else {}


def _system_part(part: Any) -> JsonObject:
    known, names = read_part(part)
    return parts.text_in(known, names, "input_text") if parts.is_text(known) else block(part, NAME)


_NAMED: Final = ("cachedContent", "cached_content")
_MODELS: Final = "models/"


@dataclass(slots=True)
class CacheablePrefixes:
    """The beginnings of a request; see `threadkeep.domain.context_caches.Prefixes`."""

    model: str
    head: JsonObject
    contents: Sequence[Any]
    found: Sequence[Prefix]
    goal: Prefix | None

    def body(self, prefix: Prefix, ttl: float) -> JsonObject:
        """The request that creates a cache of a beginning, for so many seconds."""
        model = self.model if "/" in self.model else f"{_MODELS}{self.model}"
        seconds = f"{ttl:.9f}".rstrip("0").rstrip(".")
        return {"model": model, **self.head, "contents": list(self.contents[: prefix.turns]), "ttl": f"{seconds}s"}


def prefixes(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> CacheablePrefixes | None:
    """What of a request a cache can hold; None where the request has no model, or names a cache already."""
    parts = write_request(session, replace(options, dynamic_context=None, context_cache=None))
    if not isinstance(parts.model, str) or any(parts.head.get(key) is not None for key in _NAMED):
        return None
    head: JsonObject = {key: parts.head[key] for key in CACHED if key in parts.head}
    model = parts.model.removeprefix(_MODELS)
    contents = parts.contents()
    found: list[Prefix] = []
    digest = sha256(dumps([model, head])).digest()
    cuts = _cuts(parts)
    for turns, content in enumerate(contents[: max(cuts, default=0)], start=1):
        digest = sha256(digest + dumps(content)).digest()
        if turns in cuts:
            found.append(Prefix(turns, cuts[turns], digest))
    best = [prefix for prefix in found if parts.writer.contents[prefix.turns].role == USER] or found
    return CacheablePrefixes(model, head, contents, found, best[-1] if best else None)


def _cuts(parts: RequestParts) -> dict[int, int]:
    """After how many contents a cache may end, and the position of the last item in each of these beginnings."""
    entries, contents = parts.rendering.entries, parts.writer.contents
    if not contents:
        return {}
    ends = list(accumulate((max(content.places) for content in contents), max))
    starts = list(accumulate((min(content.places) for content in reversed(contents)), min))[::-1]
    trigger = entries[views.trigger_start(entries)].position
    return {
        turns: ends[turns - 1]
        for turns in range(1, min(parts.writer.stable() + 1, len(contents)))
        if 0 <= ends[turns - 1] < min(starts[turns], trigger) and not contents[turns].has_responses()
    }
