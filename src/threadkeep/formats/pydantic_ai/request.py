"""Writing and reading the arguments of an agent's run that goes on with a conversation, as JSON.

* The messages are what `ModelMessagesTypeAdapter` validates; an agent takes what that returns.
* Tools are definitions alone: an agent has its own, or takes these as an `ExternalToolset`.

Reading takes a list of messages, or the arguments of an agent's run that has them:

* Each message is a turn. What it says besides its parts is with its first item.
* If the arguments have no instructions, the conversation takes them from the last request that has any.

Tools are `ToolDefinition`s of tools that run outside of the agent:

* A tool listed twice is defined by the later definition, at the place of the first.
* Tools that only this format has go back as they came.

Sources: Pydantic AI's API reference, `Agent.run`; Pydantic AI's API reference, `pydantic_ai.messages`; Pydantic AI's
API reference, `pydantic_ai.tools.ToolDefinition` and `pydantic_ai.toolsets.ExternalToolset`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain import formats, items
from threadkeep.domain.jsontext import JsonObject, body_object, merged, place
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse
from threadkeep.formats.canonical.entries import Snapshot
from threadkeep.formats.pydantic_ai import parts, turns
from threadkeep.formats.pydantic_ai.fields import EXTRAS, FIELDS, HISTORY, NAME, REQUEST, RESPONSE, SETTINGS, TOOLS
from threadkeep.formats.shared import fields, pairing, parsing, reports
from threadkeep.formats.shared.parts import block, native_keys, with_native_keys
from threadkeep.formats.shared.provider_errors import shortened
from threadkeep.formats.shared.rendering import Rendering, begin, nothing_to_send

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

# key here -> key of a function tool, and the type of its value
_KEYS: Final[dict[str, tuple[str, type]]] = {
    "name": ("name", str),
    "description": ("description", str),
    "parameters_json_schema": ("parameters", dict),
    "strict": ("strict", bool),
}


def wire_tools(tools: Sequence[JsonObject], context: reports.Context) -> list[Any]:
    """The tool definitions as the format has them."""
    return fields.tools_by_name(tools, NAME, context, _function)


def _function(tool: JsonObject, context: reports.Context, path: str) -> JsonObject:
    wire = fields.as_named(tool, _KEYS)
    if tool.get("origin") != NAME:
        wire["name"] = context.name(tool.get("name"), f"{path}.name")
    wire.setdefault("parameters_json_schema", {"type": "object", "properties": {}})
    return wire | native_keys(tool, NAME)


def tool_from_wire(tool: Any) -> JsonObject:
    """A definition of a request as a tool; one that would not come back stays a block."""
    is_regular = isinstance(tool, dict) and all(
        isinstance(tool.get(key), kind) or (tool.get(key) is None and key in ("description", "strict"))
        for key, (_, kind) in _KEYS.items()
    )
    if not is_regular:
        return {**block(tool, NAME), "type": "provider_tool"}
    ours = {name: tool[key] for key, (name, _) in _KEYS.items() if tool.get(key) is not None}
    strange = {key: value for key, value in tool.items() if key not in _KEYS and value is not None}
    return with_native_keys({"type": "function", **ours, "origin": NAME}, strange, NAME)


def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    """Render a session as the arguments of an agent's run."""
    rendering = begin(session, options, NAME, reports.Context())
    body = _arguments(rendering)
    alone = {entry.position for entry in rendering.entries if entry.origin == NAME}
    writer = turns.PydanticWriter(rendering, pairing.paired(rendering.entries, alone))
    writer.write(rendering.entries)
    if not writer.turns:
        raise nothing_to_send("message")
    body[HISTORY] = [turn.message() for turn in writer.turns]
    return rendering.finish(body, writer.stable())


def _arguments(rendering: Rendering) -> JsonObject:
    """Everything but the messages."""
    settings, context = rendering.snapshot.settings, rendering.context
    if settings.get("instructions") == (rendering.spelling or {}).get("instructions"):
        settings = {name: value for name, value in settings.items() if name != "instructions"}  # the messages have them
    body = fields.render_fields(FIELDS, settings, context)
    extra = settings.get("extra") or {}
    for key, name in EXTRAS.items():
        if (value := extra.get(key)) is not None:
            place(body, f"{SETTINGS}.{name}", [value] if name == "stop_sequences" and isinstance(value, str) else value)
    if tools := wire_tools(rendering.snapshot.tools, context):
        body[TOOLS] = tools
    native = extra.get(NAME)
    rest = {key: value for key, value in native.items() if key != HISTORY} if isinstance(native, dict) else {}
    return merged(body, rest)


_HINT: Final = "Pass ModelMessagesTypeAdapter.dump_python(messages, mode='json')."


@parsing.parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a message history, alone or among the arguments of a run; `model` and `stream` say what these do not."""
    body = parsing.history_object(payload, NAME, HISTORY)
    messages = body[HISTORY]
    turns = _turns(messages)
    settings, native = fields.read_fields(FIELDS, {key: body[key] for key in body if key not in (HISTORY, TOOLS)})
    tools = body.get(TOOLS) or ()
    if not isinstance(tools, list | tuple):
        raise CannotParse(f"The tools are {shortened(tools)}, not a list of definitions.", hint=parsing.SENT_REQUEST)
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in body:
            settings[name] = value
    spelling: JsonObject = {}
    instructions = None if "instructions" in body else _instructions(messages)
    if instructions is not None:
        settings["instructions"] = spelling["instructions"] = instructions
    definitions = [tool_from_wire(body_object(tool)) for tool in tools]
    return parsing.session_of(NAME, turns, settings=settings, tools=definitions, native=native, spelling=spelling)


@parsing.parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[formats.OpenCall] = ()) -> list[list[items.Item]]:
    """The item objects of messages, one turn each."""
    return parsing.items_of_turns(_turns(parsing.turns_in(turns, NAME)))


def _instructions(messages: Sequence[JsonObject]) -> str | None:
    """What the messages instruct the model to, which is what the last request says."""
    found = (message.get("instructions") for message in reversed(messages))
    return next((text for text in found if isinstance(text, str) and text), None)


def _turns(messages: Any) -> list[list[JsonObject]]:
    if not isinstance(messages, list):
        raise CannotParse(f"The messages are {shortened(messages)}, not a list.", hint=_HINT)
    return [parts.items_of(_checked(message, f"{HISTORY}[{index}]")) for index, message in enumerate(messages)]


def _checked(message: Any, path: str) -> JsonObject:
    kind = message.get("kind") if isinstance(message, dict) else None
    if kind not in (REQUEST, RESPONSE):
        raise CannotParse(f"{path} is {shortened(message)}, not a message of Pydantic AI.", hint=_HINT)
    parts = message.get("parts")
    if not isinstance(parts, list | None) or not all(isinstance(part, dict) for part in parts or ()):
        raise CannotParse(f"{path}.parts is {shortened(parts)}, not a list of parts.", hint=_HINT)
    return dict(message)
