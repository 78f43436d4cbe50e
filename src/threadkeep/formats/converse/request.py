"""The request of Converse.

* `modelId` stands in the path of the request and may be taken out of the body; a request that was read without goes
  out without.
* `system` begins with the instructions.
* A history of calls needs tools, see `tools`.
* `messages` is the last key.

Source: Amazon Bedrock's API reference, "Converse".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.wire import Entry, Rendered, RenderOptions, Snapshot
from threadkeep.errors import CannotRender
from threadkeep.formats.converse.content import Place
from threadkeep.formats.converse.fields import EXTRAS, FIELDS, NAME, schema_of
from threadkeep.formats.converse.marks import with_points
from threadkeep.formats.converse.messages import FILLER, Writer
from threadkeep.formats.converse.models import reasoning_fields
from threadkeep.formats.converse.tools import (
    declared,
    holds_tool_blocks,
    is_none,
    told_as_text,
    tool_choice,
    wire_tools,
)
from threadkeep.formats.entries import snapshot_of
from threadkeep.formats.fields import render_fields
from threadkeep.formats.names import Names
from threadkeep.formats.native import report_imported
from threadkeep.formats.rendered import PlainRendered, is_plain
from threadkeep.formats.views import repeated, shown

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

_APART = ("messages", "system", "toolConfig")  # keys that are not made of options alone


def render(session: Session | Snapshot, options: RenderOptions) -> Rendered:
    """Render a session as the body of a Converse request.

    Raises:
        CannotRender: there is no model, or nothing to send.
        LossError: `options.strict` is set and the request is not exact.
    """
    snapshot = snapshot_of(session)
    view = shown(snapshot, options, NAME)
    entries = view.entries
    place = Place(Names(tool.get("name") for tool in snapshot.tools), snapshot.tools)
    spelling = _spelling(snapshot)
    report_imported(snapshot, NAME, place)
    body = _body(snapshot.settings, spelling, place)
    if "modelId" not in body and spelling is None:
        raise CannotRender("The request has no model. Set it: conversation.update(model=...).")
    writer = Writer(snapshot, entries, place)
    messages, stable = writer.write(entries)
    if not any(message["role"] != "system" for message in messages):
        messages = [*messages, _least(entries, place)]
    messages = _with_tools(body, messages, writer, snapshot, place)
    native = _native(snapshot.settings)
    if system := _system(snapshot.settings, writer.system) or native.get("system"):
        body["system"] = system
    body["messages"] = messages
    if options.cache is not None:
        body = with_points(body, snapshot.settings.get("model"), repeated(view, options, stable))
    rendered = (PlainRendered if is_plain(snapshot, entries) else Rendered)(
        losses=place.losses,
        repairs=place.repairs,
        stable=stable,
        head=view.head,
        view=options.view(NAME),
        source=body,
    )
    return rendered.strictly(NAME) if options.strict else rendered


def _least(entries: Sequence[Entry], place: Place) -> JsonObject:
    """A user message that says nothing, where all that the user said were blanks."""
    if not any(entry.type == "message" and entry.role == "user" for entry in entries):
        raise CannotRender("There is nothing to send: no message is left. Add a user message first.")
    place.mend("blank_text", "", f"The user's message is empty and was sent as {FILLER!r}.")
    return {"role": "user", "content": [{"text": FILLER}]}


def _spelling(snapshot: Snapshot) -> JsonObject | None:
    """How the request spelled things that is sent again; None when it is a new one."""
    imported = snapshot.imported
    return imported.spelling if imported is not None and imported.format == NAME else None


def _native(settings: JsonObject) -> JsonObject:
    found = (settings.get("extra") or {}).get(NAME)
    return found if isinstance(found, dict) else {}


def _body(settings: JsonObject, spelling: JsonObject | None, place: Place) -> JsonObject:
    """The keys that the options set."""
    extra = settings.get("extra") or {}
    body = render_fields(FIELDS, settings, place)
    if stops := _stop_sequences(extra.get("stop_sequences")):
        body = _merged(body, {"inferenceConfig": {"stopSequences": stops}})
    if reasoning := reasoning_fields(settings, place):
        body["additionalModelRequestFields"] = reasoning
    body = _merged(body, {key: extra[flat] for flat, key in EXTRAS.items() if extra.get(flat) is not None})
    body = _merged(body, {key: value for key, value in _native(settings).items() if key not in _APART})
    if spelling is not None and "schema" in spelling:
        _spell_schema(body, spelling["schema"])
    return body


def _stop_sequences(value: Any) -> list[Any]:
    """Stop sequences; the service refuses empty ones."""
    found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [one for one in found if one != ""]


def _merged(one: JsonObject, other: JsonObject) -> JsonObject:
    """Both objects in one; where they differ, the second counts."""
    found = dict(one)
    for key, value in other.items():
        before = found.get(key)
        found[key] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found


def _spell_schema(body: JsonObject, text: str) -> None:
    """The schema as the request wrote it, when it still is that schema."""
    match body:
        case {"outputConfig": {"textFormat": {"structure": {"jsonSchema": {"schema": str(ours)} as holder}}}}:
            if ours != text and schema_of(ours) == schema_of(text):
                holder["schema"] = text


def _system(settings: JsonObject, hoisted: list[JsonObject]) -> list[JsonObject]:
    instructions = settings.get("instructions")
    return [{"text": instructions}, *hoisted] if instructions else hoisted


def _with_tools(
    body: JsonObject, messages: list[JsonObject], writer: Writer, snapshot: Snapshot, place: Place
) -> list[JsonObject]:
    """Put the tools into the body; returns the messages as they go with them."""
    tools = wire_tools(snapshot.tools, place)
    choice, has_history = snapshot.settings.get("tool_choice"), holds_tool_blocks(messages)
    native = _native(snapshot.settings).get("toolConfig")
    config: JsonObject = dict(native) if isinstance(native, dict) else {}
    if is_none(choice):
        if tools or has_history:
            place.mend("tool_choice", "tool_choice", "Converse has no choice 'none': the tools were left out.")
        if has_history:
            place.mend("tool_history", "", "Calls and their results were told as text: they need tools beside them.")
        return told_as_text(messages) if has_history else messages
    if tools:
        config["tools"] = tools
        if (chosen := tool_choice(choice, place)) is not None:
            config["toolChoice"] = chosen
    elif choice is not None:
        place.mend("option", "tool_choice", "tool_choice was left out: there are no tools.")
    if not tools and writer.names and not (_spelling(snapshot) or {}).get("untooled"):
        place.mend("tool_history", "tools", "Calls need tools beside them: those of the history were declared by name.")
        config["tools"] = declared(writer.names)
    if config or native is not None:
        body["toolConfig"] = config or native
    return messages
