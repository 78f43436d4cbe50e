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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.context_caches import ContextCache
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
from threadkeep.formats.views import Shown, shown

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

# keys that a cached content holds in place of the request
CACHED: Final = ("systemInstruction", "tools", "toolConfig")


@dataclass(slots=True)
class Draft:
    """A request of which everything is written, but not put together.

    Attributes:
        model: its model; None for an imported request that did not say.
        head: the request without its contents, in this API's own spelling.
        spelling: how the request that the conversation began with was spelled.
        view: what of the conversation it shows.
    """

    model: Any
    head: JsonObject
    writer: Writer
    context: Context
    spelling: JsonObject
    view: Shown

    def contents(self) -> list[Any]:
        """The contents as they are sent."""
        return [_content(content, self.spelling) for content in self.writer.contents]


def render(session: Session | Snapshot, options: RenderOptions) -> Rendered:
    """Render a session as the body of a generateContent request.

    Raises:
        CannotRender: there is no model, or nothing to send.
        LossError: `options.strict` is set and the request is not exact.
    """
    draft = drafted(snapshot_of(session), options)
    cache, head, contents = options.context_cache, draft.head, draft.contents()
    if cache is not None:
        head = {key: value for key, value in head.items() if key not in CACHED} | {"cachedContent": cache.name}
        contents = contents[held_turns(draft.writer.contents, cache) :]
    if not contents:
        raise CannotRender("There is nothing to send: no content is left. Add a user message first.")
    body = respelled_head(head, draft.spelling) if draft.spelling else head
    is_object = len(contents) == 1 and "contents" in draft.spelling.get("objects", ())
    body["contents"] = contents[0] if is_object else contents
    rendered = Rendered(
        losses=draft.context.losses,
        repairs=draft.context.repairs,
        stable=0 if cache is not None else draft.writer.stable(),
        head=draft.view.head,
        view=options.view(NAME),
        source=body,
    )
    return rendered.strictly(NAME) if options.strict else rendered


def drafted(snapshot: Snapshot, options: RenderOptions) -> Draft:
    """A request before it is put together.

    Raises:
        CannotRender: there is no model.
    """
    imported = snapshot.imported
    model = snapshot.settings.get("model")
    if model is None and imported is None:
        raise CannotRender("The request has no model for its address. Set it: conversation.update(model=...).")
    view = shown(snapshot, options, NAME)
    context = Context(GeminiNames((tool.get("name") for tool in snapshot.tools), LONGEST), snapshot.tools)
    family = family_of(model)
    report_imported(snapshot, NAME, context)
    body = _settings(snapshot, family, context)
    writer = Writer(paired(view.entries, left_alone(snapshot, NAME)), imported, family, context)
    writer.write(view.entries)
    head = _head(body, writer.system, snapshot, context)
    spelling = imported.spelling if imported is not None and imported.format == NAME else {}
    return Draft(model, head, writer, context, spelling, view)


def held_turns(contents: Sequence[Content], cache: ContextCache) -> int:
    """How many of the contents a cache holds: those of which every item is in it."""
    found = 0
    while found < len(contents) and max(contents[found].places) <= cache.upto:
        found += 1
    return found


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
        for key in [key for key in CACHED if key in body]:
            del body[key]
            context.lose("option", key, f"{key} was left out: the service takes none beside a cached content.")
    return body


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
