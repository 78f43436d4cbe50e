"""The request of the Messages API.

* Instructions lead the system text; system items follow them there, wherever they stand.
* What a request that came from the wire said in keys of its own goes back as it came.
* `messages` is the last key.

Source: Anthropic's API reference, "Messages", create.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.wire import Entry, Rendered, RenderOptions, Snapshot
from threadkeep.errors import CannotRender
from threadkeep.formats.entries import snapshot_of
from threadkeep.formats.fields import Field, render_fields
from threadkeep.formats.messages.fields import EXTRAS, FIELDS, LONGEST_NAME, NAME
from threadkeep.formats.messages.marks import with_even_citations, with_fewer_marks, with_own_marks
from threadkeep.formats.messages.models import follows
from threadkeep.formats.messages.passes import (
    ellipsis,
    filled,
    joined,
    lacks_thought,
    message_of,
    placed,
    stable_count,
    with_clean_end,
    with_leader,
)
from threadkeep.formats.messages.settings import fit, thinking_type
from threadkeep.formats.messages.system import wire_system
from threadkeep.formats.messages.tools import tool_choice, wire_tools
from threadkeep.formats.messages.turns import Ground, Turn, Writer
from threadkeep.formats.names import Names
from threadkeep.formats.native import report_imported
from threadkeep.formats.rendered import PlainRendered, is_plain
from threadkeep.formats.reports import Context
from threadkeep.formats.turns import left_alone, paired
from threadkeep.formats.views import repeated, shown

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

# option -> the key that it becomes; where `extra.messages` has the key, the option is not looked at
KEYS: Final = {
    **{row.option: row.target for row in FIELDS if isinstance(row, Field) and "." not in row.target},
    "tool_choice": "tool_choice",
    "parallel_tool_calls": "tool_choice",
}


def render(session: Session | Snapshot, options: RenderOptions) -> Rendered:
    """Render a session as the body of a Messages request.

    Raises:
        CannotRender: there is no model, nothing to send, or settings exclude each other.
        LossError: `options.strict` is set and the request is not exact.
    """
    snapshot = snapshot_of(session)
    view = shown(snapshot, options, NAME)
    entries = view.entries
    context = Context(Names((tool.get("name") for tool in snapshot.tools), LONGEST_NAME), snapshot.tools)
    report_imported(snapshot, NAME, context)
    body = head(snapshot, context)
    if body.get("model") is None:
        raise CannotRender("The request has no model. Set it: conversation.update(model=...).")
    is_as_it_came = bool(entries) and entries[-1].position == _imported(snapshot) - 1
    turns, hoisted = _turns(snapshot, entries, context)
    if not is_as_it_came:
        turns = with_clean_end(turns, context)
    if thinking_type(body) == "enabled" and lacks_thought(turns):
        context.mend("option", "reasoning", "Thinking was left out: the last tool call came without its thinking.")
        del body["thinking"]
    body = _with_system(body, wire_system(snapshot, hoisted, context))
    body["messages"] = [message_of(turn) for turn in turns]
    if not is_as_it_came:
        body = with_fewer_marks(with_even_citations(body, context), context)
    stable = stable_count(turns)
    if options.cache is not None:
        body = with_own_marks(body, context, repeated(view, options, stable))
    rendered = (PlainRendered if is_plain(snapshot, entries) else Rendered)(
        losses=context.losses,
        repairs=context.repairs,
        stable=stable,
        head=view.head,
        view=options.view(NAME),
        source=body,
    )
    return rendered.strictly(NAME) if options.strict else rendered


def head(snapshot: Snapshot, context: Context) -> JsonObject:
    """The request without system text and messages.

    Raises:
        CannotRender: settings exclude each other.
    """
    extra = snapshot.settings.get("extra") or {}
    given = extra.get(NAME)
    native = given if isinstance(given, dict) else {}
    settings = {name: value for name, value in snapshot.settings.items() if KEYS.get(name) not in native}
    body = render_fields(FIELDS, settings, context)
    body |= {key: extra[key] for key in EXTRAS if extra.get(key) is not None}
    tools = wire_tools(snapshot.tools, context)
    spelling = _spelling(snapshot)
    if tools or "tools" in spelling.get("empty", ()):
        body["tools"] = tools
    if (choice := tool_choice(settings, tools, context)) is not None:
        body["tool_choice"] = choice
    fit(body, settings, context, has_limit="max_tokens" not in spelling.get("absent", ()))
    return body | {key: value for key, value in native.items() if key != "messages"}


def _imported(snapshot: Snapshot) -> int:
    """How many items came with a request of this format that the conversation began as."""
    imported = snapshot.imported
    return imported.count if imported is not None and imported.format == NAME else 0


def _spelling(snapshot: Snapshot) -> JsonObject:
    imported = snapshot.imported
    return imported.spelling if imported is not None and imported.format == NAME else {}


def _turns(snapshot: Snapshot, entries: Sequence[Entry], context: Context) -> tuple[list[Turn], list[JsonObject]]:
    """The messages that are sent, and the system text that leads them."""
    takes_system = follows(snapshot.settings.get("model"), "inner system")
    ground = Ground(_imported(snapshot), _spelling(snapshot).get("content"), takes_system)
    writer = Writer(paired(entries, left_alone(snapshot, NAME)), context, ground)
    writer.write(entries)
    turns, inner = placed(filled(joined(writer.turns, context), context), context)
    if not turns:
        turns = _least(entries, context)
    return with_leader(turns, context), [*writer.hoisted, *inner]


def _least(entries: Sequence[Entry], context: Context) -> list[Turn]:
    """A user message that says nothing, where all that the user said were blanks."""
    if not any(entry.type == "message" and entry.role == "user" for entry in entries):
        raise CannotRender("There is nothing to send: no message is left. Add a user message first.")
    context.mend("blank_text", "", "The user's message is empty and was sent as '...'.")
    return [ellipsis()]


def _with_system(body: JsonObject, system: Any) -> JsonObject:
    return body if system is None or "system" in body else {**body, "system": system}
