"""Writing and reading the messages of a chat, as the body in which `useChat` sends them.

Reading takes a list of messages, or a body that has one: its `id`, `trigger` and `messageId`, and whatever else the
application sends, are kept. `tools` are the functions that its page runs, as the AI SDK gives them to models. Parts of
an unknown type, and messages of an unknown role, are kept as they are and are no other format's. A message becomes
several turns where the model took several steps.

Source: the AI SDK, `UIMessage`, `DefaultChatTransport`, `LanguageModelV4FunctionTool`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain import formats, items
from threadkeep.domain.jsontext import JsonObject, body_object, merged
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.domain.running import Approval
from threadkeep.errors import CannotParse
from threadkeep.formats.canonical.entries import Snapshot, snapshot_of
from threadkeep.formats.shared import fields as rows
from threadkeep.formats.shared import pairing, parsing, reports, views
from threadkeep.formats.shared.provider_errors import shortened
from threadkeep.formats.shared.rendering import ShownMessage, begin, nothing_to_send
from threadkeep.formats.ui_messages import parts
from threadkeep.formats.ui_messages.fields import FIELDS, HISTORY, NAME, ROLES, TOOLS
from threadkeep.formats.ui_messages.turns import UiWriter

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

_HINT: Final = "Pass UIMessages of the AI SDK: objects with id, role and parts."

# key here -> key of a function tool, and the type of its value
_KEYS: Final[rows.ToolKeys] = {
    "name": ("name", str),
    "description": ("description", str),
    "inputSchema": ("parameters", dict),
    "strict": ("strict", bool),
}


def _function(tool: JsonObject, context: reports.Context, path: str) -> JsonObject:
    wire = {"type": "function", **rows.named_tool(tool, NAME, _KEYS, context, path)}
    wire.setdefault("inputSchema", {"type": "object", "properties": {}})
    return wire


def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    """Render a session as the body of a chat."""
    rendering = begin(session, options, NAME, reports.Context(takes_signatures=True))
    snapshot, context = rendering.snapshot, rendering.context
    body = rows.render_fields(FIELDS, snapshot.settings, context)
    if tools := rows.tools_by_name(snapshot.tools, NAME, context, _function):
        body[TOOLS] = tools
    writer = UiWriter(rendering, pairing.paired(rendering.entries))
    writer.write(rendering.entries)
    if not writer.messages:
        raise nothing_to_send("message")
    native = (snapshot.settings.get("extra") or {}).get(NAME)
    rest = {key: value for key, value in native.items() if key != HISTORY} if isinstance(native, dict) else {}
    body = merged(body, rest) | {HISTORY: [message.message() for message in writer.messages]}
    return rendering.finish(body, writer.stable())


def placed_messages(
    session: Session | Snapshot, decisions: Mapping[int, Approval] | None = None, asking: Collection[int] = ()
) -> list[ShownMessage]:
    """Return the messages of a conversation as a page shows them: without what only providers read of their answers.

    `decisions` are those about calls, by the positions of the calls: an approval shows before its call has run.
    `asking`: the positions of calls that run once they are approved.
    """
    rendering = begin(views.uncompacted(snapshot_of(session)), AS_IT_IS, NAME, reports.Context(takes_signatures=True))
    writer = UiWriter(rendering, pairing.paired(rendering.entries), has_metadata=False)
    writer.decisions, writer.asking = decisions or {}, asking
    writer.write(rendering.entries)
    return [ShownMessage(draft.message(), draft.place) for draft in writer.messages]


@parsing.parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read the messages of a chat, alone or in a body; `model` and `stream` say what the body does not."""
    body = parsing.history_object(payload, NAME, HISTORY)
    messages = body[HISTORY]
    turns = _turns(messages, HISTORY)
    settings, native = rows.read_fields(FIELDS, {key: body[key] for key in body if key not in (HISTORY, TOOLS)})
    tools = body.get(TOOLS) or ()
    if not isinstance(tools, list | tuple):
        native, tools = {**native, TOOLS: tools}, ()  # what else an application sends under that name
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in body:
            settings[name] = value
    return parsing.session_of(NAME, turns, settings=settings, tools=_definitions(tools), native=native)


@parsing.parser(f"{NAME} tools")
def parse_tools(tools: Sequence[Any]) -> list[JsonObject]:
    """Read the functions that a page runs."""
    return [dict(tool) for tool in parsing.session_of(NAME, (), settings={}, tools=_definitions(tools)).tools]


def _definitions(tools: Sequence[Any]) -> list[JsonObject]:
    required = {"type": "function", "name": None, "inputSchema": None}
    return [rows.read_tool(body_object(tool), NAME, _KEYS, required) for tool in tools]


@parsing.parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[formats.OpenCall] = ()) -> list[list[items.Item]]:
    """The item objects of messages: a turn for each message of the user, and for each step of the assistant's."""
    return parsing.items_of_turns(_turns(parsing.turns_in(turns, NAME), "turns"))


def _turns(messages: Any, path: str) -> list[list[JsonObject]]:
    if not isinstance(messages, list):
        raise CannotParse(f"The messages are {shortened(messages)}, not a list.", hint=_HINT)
    return [turn for index, message in enumerate(messages) for turn in parts.turns_of(checked(message, path, index))]


def checked(message: Any, path: str, index: int) -> JsonObject:
    """A message with a role and parts; CannotParse for anything else."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise CannotParse(f"{path}[{index}] is {shortened(message)}, not a UIMessage.", hint=_HINT)
    if not isinstance(message.get("parts"), list):
        was = "Its version is older than 5: convert it as the migration guide of the AI SDK says."
        hint = was if "content" in message and message["role"] in (*ROLES, "data") else _HINT
        raise CannotParse(f"{path}[{index}] has no list of parts: {shortened(message)}.", hint=hint)
    return message
