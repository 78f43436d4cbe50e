"""The request of Converse.

* `modelId` stands in the path of the request and may be taken out of the body; a request that was read without goes
  out without.
* `system` begins with the instructions.
* A history of calls needs tools, see `tools`.
* `messages` is the last key.

Source: Amazon Bedrock's API reference, "Converse".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.formats.converse import claude
from threadkeep.formats.converse import tools as own_tools
from threadkeep.formats.converse.cache_points import with_points
from threadkeep.formats.converse.fields import EXTRAS, FIELDS, NAME, SCHEMA, reasoning_fields, schema_of
from threadkeep.formats.converse.parts import WriteContext
from threadkeep.formats.converse.turns import Writer
from threadkeep.formats.shared.fields import merged, render_fields, value_at, with_value
from threadkeep.formats.shared.provider_rules import FILLER
from threadkeep.formats.shared.rendering import Rendering, begin, no_model, report_filler
from threadkeep.formats.shared.reports import Context
from threadkeep.formats.shared.views import repeated_turns

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

_APART: Final = ("messages", "system", "toolConfig")  # keys that are not made of options alone


def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    """Render a session as the body of a Converse request."""
    context = WriteContext()
    rendering = begin(session, options, NAME, context)
    settings = rendering.snapshot.settings
    context.model = str(settings.get("model") or "")
    is_new = rendering.spelling is None  # an imported request goes back as it came
    body = _body(settings, rendering.spelling, context)
    if "modelId" not in body and is_new:
        raise no_model()
    thinks = value_at(body, "additionalModelRequestFields.thinking.type") == "enabled"
    writer = Writer(rendering, context, thinks=thinks)
    messages, stable = writer.write(rendering.entries)
    if not any(message["role"] != "system" for message in messages):
        report_filler(rendering.entries, context, FILLER)
        messages = [*messages, {"role": "user", "content": [{"text": FILLER}]}]
    if own_tools.is_none(settings.get("tool_choice")):
        messages = _without_tools(messages, rendering)
    elif (config := _tool_config(writer, rendering)) is not None:
        body["toolConfig"] = config
    body = rendering.fitted(body)
    messages = _with_system(body, messages, writer.system, rendering)
    if claude.holds(rendering.spelling):
        body = claude.agreed(body, writer.turns, context)
    body["messages"] = messages
    if options.cache is not None:
        body = with_points(body, settings.get("model"), repeated_turns(rendering.view, options, stable))
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
    """The keys that the options set; `spelling` is that of an imported request."""
    extra = settings.get("extra") or {}
    body = render_fields(FIELDS, settings, context)
    if stops := _stops(extra):
        body = merged(body, {"inferenceConfig": {"stopSequences": stops}})
    if reasoning := reasoning_fields(settings, context):
        body["additionalModelRequestFields"] = reasoning
    if spelling is None:
        body = claude.fitted(body, context)
    body = merged(body, {key: extra[flat] for flat, key in EXTRAS.items() if extra.get(flat) is not None})
    body = merged(body, {key: value for key, value in _native(settings).items() if key not in _APART})
    return body if spelling is None else _as_imported(body, spelling, context)


def _as_imported(body: JsonObject, spelling: JsonObject, context: Context) -> JsonObject:
    """The keys of an imported request, which keep to Claude's rules if they did, with its schema as it wrote that."""
    if claude.holds(spelling):
        body = claude.fitted(body, context)
    text, ours = spelling.get("schema"), value_at(body, SCHEMA)
    if text is not None and isinstance(ours, str) and schema_of(ours) == schema_of(text):
        return with_value(body, SCHEMA, text)
    return body


def _stops(extra: JsonObject) -> list[Any]:
    """The texts that end an answer; the service refuses empty ones."""
    stops = extra.get("stop_sequences")
    stops = [stops] if isinstance(stops, str) else stops if isinstance(stops, list) else []
    return [stop for stop in stops if stop != ""]


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


def _tool_config(writer: Writer, rendering: Rendering) -> Any:
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
