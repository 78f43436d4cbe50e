"""Writing and reading the messages of a thread, as the input of a run.

Reading takes a list of messages, or a `RunAgentInput`: its ids, `state`, `context` and whatever else it says are kept.
`tools` are the functions that the client runs.

Source: AG-UI 1.0, `RunAgentInput`, `Message`, `Tool`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain import formats, items
from threadkeep.domain.jsontext import JsonObject, body_object, merged
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.errors import CannotParse
from threadkeep.formats.ag_ui import own
from threadkeep.formats.ag_ui.fields import FIELDS, HISTORY, NAME, TOOLS
from threadkeep.formats.ag_ui.turns import ThreadWriter
from threadkeep.formats.canonical.entries import Snapshot, snapshot_of
from threadkeep.formats.shared import fields as rows
from threadkeep.formats.shared import pairing, parsing, reports, views
from threadkeep.formats.shared.provider_errors import shortened
from threadkeep.formats.shared.rendering import ShownMessage, begin, nothing_to_send

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

_HINT: Final = "Pass messages of AG-UI: objects with id, role and content."
_KEYS: Final[rows.ToolKeys] = {
    "name": ("name", str),
    "description": ("description", str),
    "parameters": ("parameters", dict),
}


def _function(tool: JsonObject, context: reports.Context, path: str) -> JsonObject:
    wire = rows.named_tool(tool, NAME, _KEYS, context, path)
    if tool.get("strict") is not None:
        context.loss("option", f"{path}.strict", "The format cannot say whether arguments follow the schema strictly.")
    wire.setdefault("description", "")
    return wire


def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    """Render a session as the input of a run."""
    rendering = begin(session, options, NAME, reports.Context())
    snapshot, context = rendering.snapshot, rendering.context
    body = rows.render_fields(FIELDS, snapshot.settings, context)
    if tools := rows.tools_by_name(snapshot.tools, NAME, context, _function):
        body[TOOLS] = tools
    writer = ThreadWriter(rendering, pairing.paired(rendering.entries))
    writer.write(rendering.entries)
    if not writer.drafts:
        raise nothing_to_send("message")
    native = (snapshot.settings.get("extra") or {}).get(NAME)
    rest = native if isinstance(native, dict) else {}
    body = {**rest, **merged(body, {key: rest[key] for key in rest.keys() & body.keys()})}
    body[HISTORY] = [draft.message for draft in writer.drafts]
    return rendering.finish(body, writer.stable())


def placed_messages(session: Session | Snapshot) -> list[ShownMessage]:
    """Return the messages of a conversation as a client shows them."""
    rendering = begin(views.uncompacted(snapshot_of(session)), AS_IT_IS, NAME, reports.Context())
    writer = ThreadWriter(rendering, pairing.paired(rendering.entries), is_shown=True)
    writer.write(rendering.entries)
    return [ShownMessage(draft.message, draft.place) for draft in writer.drafts]


@parsing.parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read the messages of a thread, alone or in the input of a run; `model` and `stream` say what it does not."""
    body = parsing.history_object(payload, NAME, HISTORY)
    turns = _turns(body[HISTORY], HISTORY)
    settings, native = rows.read_fields(FIELDS, {key: body[key] for key in body if key not in (HISTORY, TOOLS)})
    tools = body.get(TOOLS)
    if not isinstance(tools, list | tuple) or not tools:
        native, tools = {**native, **({TOOLS: tools} if TOOLS in body else {})}, ()
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in body:
            settings[name] = value
    return parsing.session_of(NAME, turns, settings=settings, tools=_definitions(tools), native=native)


@parsing.parser(f"{NAME} tools")
def parse_tools(tools: Sequence[Any]) -> list[JsonObject]:
    """Read the functions that a client runs."""
    return [dict(tool) for tool in parsing.session_of(NAME, (), settings={}, tools=_definitions(tools)).tools]


def _definitions(tools: Sequence[Any]) -> list[JsonObject]:
    required = {"name": None, "description": None}
    return [rows.read_tool(body_object(tool), NAME, _KEYS, required) for tool in tools]


@parsing.parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[formats.OpenCall] = ()) -> list[list[items.Item]]:
    """The item objects of messages, in turns."""
    return parsing.items_of_turns(_turns(parsing.turns_in(turns, NAME), "turns"))


def _turns(messages: Any, path: str) -> list[list[JsonObject]]:
    if not isinstance(messages, list | tuple):
        raise CannotParse(f"The messages are {shortened(messages)}, not a list.", hint=_HINT)
    return own.turns_of([checked(message, path, index) for index, message in enumerate(messages)])


def checked(message: Any, path: str, index: int) -> JsonObject:
    """A message with a role, and no parts, which are of other formats; CannotParse for anything else."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str) or "parts" in message:
        raise CannotParse(f"{path}[{index}] is {shortened(message)}, not a message of AG-UI.", hint=_HINT)
    return message
