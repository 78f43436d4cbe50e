"""The request of the Gemini API.

* The model stands in the address of the request, not in its body.
* System text leads: instructions first, then system and developer messages, wherever they stand.
* Keys of `extra.gemini` are laid over the rest, objects key by key.
* Beside a cached content the service takes no system text and no tools: the cache holds them. Contents that it holds
  are left out; no turn of the others is counted as stable, because the next request may name a longer cache.
* What came from this API keeps its spelling.
* `contents` is the last key.

Source: Google's Gemini API reference, "generateContent".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.formats.gemini import fields
from threadkeep.formats.gemini.fields import MODEL, NAME, Family
from threadkeep.formats.gemini.schemas import json_schema
from threadkeep.formats.gemini.spelling import HEAD, respelled
from threadkeep.formats.gemini.tools import DECLARATIONS, tool_config, wire_tools
from threadkeep.formats.gemini.turns import Content, Writer
from threadkeep.formats.shared.fields import merged, place, render_fields, value_at, with_value
from threadkeep.formats.shared.pairing import left_alone, paired
from threadkeep.formats.shared.rendering import Rendering, begin, needs_last_turn, no_model, nothing_to_send
from threadkeep.formats.shared.reports import Context

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

# keys that a cached content holds in place of the request
CACHED: Final = ("systemInstruction", "tools", "toolConfig")


@dataclass(slots=True)
class RequestParts:
    """A request of which everything is written, but not put together."""

    model: Any  # None for an imported request that did not say
    head: JsonObject  # the request without its contents, in this API's own spelling
    writer: Writer
    rendering: Rendering

    def contents(self) -> list[Any]:
        """The contents as they are sent."""
        oddity = (self.rendering.spelling or {}).get("contents", {})
        return [_content(content, oddity.get(str(content.places[0]))) for content in self.writer.contents]


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
    _report_last_turn(parts)
    is_object = len(contents) == 1 and "contents" in spelling.get("objects", ())
    body["contents"] = contents[0] if is_object else contents
    return parts.rendering.finish(body, stable)


def _report_last_turn(parts: RequestParts) -> None:
    """Report a last turn of the model, unless it stood in the very request that is sent again."""
    last, rendering = parts.writer.contents[-1], parts.rendering
    if last.role == MODEL and max(last.places, default=-1) >= rendering.imported:
        needs_last_turn(rendering.rules, rendering.context, is_as_came=False)


def write_request(session: Session | Snapshot, options: RenderOptions) -> RequestParts:
    """A request before it is put together; one without a model is refused."""
    rendering = begin(session, options, NAME, Context(rule=fields.NAMES, takes_signatures=True))
    snapshot = rendering.snapshot
    model = snapshot.settings.get("model")
    if model is None and snapshot.imported is None:
        raise no_model()
    family = fields.family_of(model)
    body = _settings(snapshot, family, rendering.context)
    writer = Writer(rendering, paired(rendering.entries, left_alone(snapshot, NAME)), family)
    writer.write(rendering.entries)
    return RequestParts(model, _head(body, _system_parts(writer, rendering), rendering), writer, rendering)


def _system_parts(writer: Writer, rendering: Rendering) -> list[Any]:
    """The system text; none where it is the user's, because the model takes no other."""
    instructions = rendering.snapshot.settings.get("instructions")
    parts = [*([] if instructions is None else [{"text": instructions}]), *writer.system]
    if not parts or not writer.contents or not rendering.is_system_of_user():
        return parts
    first = writer.contents[0]
    first.parts[:0], first.places[:0] = parts, [first.places[0]] * len(parts)
    return []


def _settings(snapshot: Snapshot, family: Family, context: Context) -> JsonObject:
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
    if "came" in noted and json_schema(came) != schema:
        return body
    return with_value(with_value(body, path, None), noted.get("path", path), came)
