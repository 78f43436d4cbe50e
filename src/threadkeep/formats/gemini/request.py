"""The request of the Gemini API.

* The model stands in the address of the request, not in its body.
* System text leads: instructions first, then system and developer messages, wherever they stand.
* Keys of `extra.gemini` are laid over the rest, objects key by key.
* Beside a cached content the service takes no system text and no tools: the cache holds them.
* What came from this API keeps its spelling.
* `contents` is the last key.

Source: Google's Gemini API reference, "generateContent".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.wire import Rendered, RenderOptions, Snapshot
from threadkeep.errors import CannotRender
from threadkeep.formats.entries import snapshot_of
from threadkeep.formats.fields import render_fields
from threadkeep.formats.gemini.contents import Writer
from threadkeep.formats.gemini.fields import EXTRAS, NAME, fields_of
from threadkeep.formats.gemini.heads import respelled_head
from threadkeep.formats.gemini.models import Family, family_of
from threadkeep.formats.gemini.names import LONGEST, GeminiNames
from threadkeep.formats.gemini.shapes import Content
from threadkeep.formats.gemini.tools import DECLARATIONS, tool_config, wire_tools
from threadkeep.formats.native import report_imported
from threadkeep.formats.reports import Context
from threadkeep.formats.turns import left_alone, paired
from threadkeep.formats.views import shown

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

# keys that a cached content holds in place of the request
_CACHED: Final = ("systemInstruction", "tools", "toolConfig")


def render(session: Session | Snapshot, options: RenderOptions) -> Rendered:
    """Render a session as the body of a generateContent request.

    Raises:
        CannotRender: there is no model, or nothing to send.
        LossError: `options.strict` is set and the request is not exact.
    """
    snapshot = snapshot_of(session)
    imported = snapshot.imported
    model = snapshot.settings.get("model")
    if model is None and imported is None:
        raise CannotRender("The request has no model for its address. Set it: conversation.update(model=...).")
    view = shown(snapshot, options, NAME)
    entries = view.entries
    context = Context(GeminiNames((tool.get("name") for tool in snapshot.tools), LONGEST), snapshot.tools)
    family = family_of(model)
    report_imported(snapshot, NAME, context)
    body = _settings(snapshot, family, context)
    writer = Writer(paired(entries, left_alone(snapshot, NAME)), imported, family, context)
    writer.write(entries)
    if not writer.contents:
        raise CannotRender("There is nothing to send: no content is left. Add a user message first.")
    body = _head(body, writer.system, snapshot, context)
    words = imported.spelling if imported is not None and imported.format == NAME else {}
    contents = [_content(content, words) for content in writer.contents]
    is_object = len(contents) == 1 and "contents" in words.get("objects", ())
    body["contents"] = contents[0] if is_object else contents
    rendered = Rendered(
        losses=context.losses,
        repairs=context.repairs,
        stable=writer.stable(),
        head=view.head,
        view=options.view(NAME),
        source=body,
    )
    return rendered.strictly(NAME) if options.strict else rendered


def _settings(snapshot: Snapshot, family: Family, context: Context) -> JsonObject:
    settings = snapshot.settings
    body = render_fields(fields_of(family), settings, context)
    if settings.get("parallel_tool_calls") is False:
        context.lose("option", "parallel_tool_calls", "Gemini cannot be kept from calling tools in parallel.")
    if tools := wire_tools(snapshot.tools, context):
        body["tools"] = tools
    has_functions = any(isinstance(entry, dict) and DECLARATIONS in entry for entry in tools)
    if config := tool_config(settings.get("tool_choice"), context, has_functions=has_functions):
        body["toolConfig"] = config
    return body


def _head(body: JsonObject, system: list[Any], snapshot: Snapshot, context: Context) -> JsonObject:
    """The request without its contents."""
    settings = snapshot.settings
    if settings.get("instructions") is not None:
        system = [{"text": settings["instructions"]}, *system]
    if system:
        body["systemInstruction"] = {"parts": system}
    extra = settings.get("extra") or {}
    for key in EXTRAS.keys() & extra.keys():
        _set(body, EXTRAS[key].split("."), extra[key])
    native = extra.get(NAME)
    if isinstance(native, dict):
        body = merged(body, {key: value for key, value in native.items() if key != "contents"})
    imported = snapshot.imported
    is_own = imported is not None and imported.format == NAME
    if body.get("cachedContent") is not None and not is_own:
        for key in [key for key in _CACHED if key in body]:
            del body[key]
            context.lose("option", key, f"{key} was left out: the service takes none beside a cached content.")
    return respelled_head(body, imported.spelling) if imported is not None and is_own else body


def _set(body: JsonObject, path: list[str], value: Any) -> None:
    *outer, last = path
    for key in outer:
        body = body.setdefault(key, {})
    body[last] = value


def merged(body: Any, over: Any) -> Any:
    """A value with another laid over it, objects key by key."""
    if not isinstance(body, dict) or not isinstance(over, dict):
        return over
    return {**body, **{key: merged(body[key], value) if key in body else value for key, value in over.items()}}


def _content(content: Content, words: JsonObject) -> Any:
    """A content as it is sent."""
    if content.whole is not None:
        return content.whole
    found: JsonObject = {"role": content.role, "parts": content.parts}
    odd = words.get("contents", {}).get(str(content.places[0]))
    if not isinstance(odd, dict):
        return found
    if "role" in odd:
        found["role"] = odd["role"]
    if "parts" in odd and len(content.parts) == 1:
        found["parts"] = content.parts[0]
    return {key: value for key, value in found.items() if value is not None} | odd.get("native", {})
