"""Writing and reading requests of Open Responses.

* An item whose row has nothing but its payload is sent as stored, byte for byte, without being parsed.
* Server state: only what the provider does not have is sent; calls and outputs are judged on the whole history.
* Outputs stay where they are; an unanswered call gets its placeholder behind the calls of its turn.
* A reasoning item needs the item it led to; no item id and no call id comes twice.
* A dialect changes what its vendor has otherwise, see `formats.shared.dialects`.
* `input` is the last key, and absent when the provider has everything already.
* JSON mode needs the word JSON in the input, where the instructions do not count.

Reading:

* Items keep their keys and their spelling; what has not the form of its type goes back as a block, as it came.
* The items of a response (reasoning, messages and calls up to the next input item) are one turn; each input message is
  a turn of its own, and so are outputs that stand together.
* Keys that are not options, or whose value no option can say, are `extra.open_responses`.
* Server state is a setting; all input is new to the provider.

Sources: OpenAI's API reference, "Responses"; the Open Responses specification; OpenAI's API reference, "Responses",
create; the Open Responses specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain import formats, tool_names, tools
from threadkeep.domain.formats import OTHER_ROLES
from threadkeep.domain.items import Item, item_from_object, usual_object, with_given
from threadkeep.domain.jsontext import JsonObject, dumps, loads, value_at, with_value
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, CannotRender, InvalidOption
from threadkeep.formats.canonical.entries import ServerState, Snapshot
from threadkeep.formats.canonical.items import ITEM_KEYS, NAME, usual
from threadkeep.formats.open_responses import fields, response, turns
from threadkeep.formats.shared import parsing, parts, provider_errors, provider_rules, reports
from threadkeep.formats.shared.dialects import RESPONSES, Dialect, dialect_of
from threadkeep.formats.shared.fields import EFFORT, effort_of, read_fields, render_fields
from threadkeep.formats.shared.parts import MEDIA, TEXTS
from threadkeep.formats.shared.rendering import Rendering, begin, known_state, no_model, nothing_to_send
from threadkeep.formats.shared.reports import Context

if TYPE_CHECKING:
    from threadkeep.domain.session import Session


def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    """Render a session as the body of a Responses request."""
    rendering = begin(session, options, NAME, Context())
    snapshot, entries = rendering.snapshot, rendering.entries
    state = known_state(rendering)
    dialect = dialect_of(RESPONSES, snapshot, options)
    head, has_prompt = _head(rendering, state, dialect)
    pieces, stable = _input(rendering, state, dialect)
    if not has_prompt and not pieces and (state is None or (not entries and options.upto is not None)):
        raise nothing_to_send("item")
    form = value_at(snapshot.settings, "text.format") if state is None and not has_prompt else None
    if rendering.leaves_out_json_mode(form, (piece.decode() for piece in pieces), "input"):
        changed = loads(head)
        del changed["text"]["format"]
        if not changed["text"]:
            del changed["text"]
        head = dumps(changed)
    body = _with_input(head, pieces, rendering)
    stable = 0 if state is not None else stable
    return rendering.finish(body, stable, fields.stream_options({**snapshot.settings, "stream": True}))


def _input(rendering: Rendering, state: ServerState | None, dialect: Dialect) -> tuple[list[bytes], int]:
    """The elements of `input` in pieces, and how many of them no later append changes."""
    snapshot, view = rendering.snapshot, rendering.view
    if state is None and not view.has_layer and dialect.results == "parts":
        memo = snapshot.memo if view.is_whole else None
        return turns.joined_input(view.entries, rendering.context, memo, snapshot, dialect)
    elements, stable = turns.input_of(view.entries, state, rendering.context, snapshot, dialect)
    if dialect.results != "parts":
        as_json, has_system = (
            rendering.options.tool_results == "json",
            snapshot.settings.get("instructions") is not None,
        )
        host = HostInput(rendering.rules, rendering.context, as_json=as_json, has_system=has_system)
        elements, stable = host.take(elements, stable)
    return [b",".join(elements)] if elements else [], stable


def _head(rendering: Rendering, state: ServerState | None, dialect: Dialect) -> tuple[bytes, bool]:
    """The request without its input, as JSON, and whether it has a prompt; kept where it is exact."""
    snapshot, context = rendering.snapshot, rendering.context
    key = f"{NAME} {rendering.target.provider} {sorted(dialect.lacks)}"
    head: tuple[bytes, bool] | None = snapshot.shared.get(key) if state is None else None
    if head is None:
        body = rendering.fitted(_body(snapshot, state, dialect, context))
        head = dumps(body), "prompt" in body
        if state is None and not context.losses and not context.repairs:
            snapshot.shared[key] = head
    return head


def _body(snapshot: Snapshot, state: ServerState | None, dialect: Dialect, context: Context) -> JsonObject:
    settings = snapshot.settings
    body = render_fields(fields.FIELDS, settings, context)
    body = _with_effort(body, dialect, context)
    _set_state(body, state)
    for name in sorted(dialect.lacks & body.keys()):
        context.loss("option", name, f"{name} was left out: the vendor does not take it.")
        del body[name]
    if options := fields.stream_options(settings):
        body["stream_options"] = options
    if tools := fields.wire_tools(snapshot.tools, context):
        body["tools"] = tools
    if (choice := fields.tool_choice(settings.get("tool_choice"), context)) is not None:
        body["tool_choice"] = choice
    if "text" in body and not (snapshot.imported is not None and snapshot.imported.format == NAME):
        body["text"] = fields.with_schema_name(body["text"], context)
    native = (settings.get("extra") or {}).get(NAME)
    body |= {key: value for key, value in native.items() if key != "input"} if isinstance(native, dict) else {}
    _check(body)
    return body


def _with_effort(body: JsonObject, dialect: Dialect, context: Context) -> JsonObject:
    """The request with an effort that the vendor takes, where it does not take all."""
    if dialect.efforts is None or value_at(body, EFFORT) is None:
        return body
    body = with_value(body, EFFORT, effort_of(body["reasoning"], dialect.efforts, context))
    return body if body["reasoning"] else with_value(body, "reasoning", None)


def _set_state(body: JsonObject, state: ServerState | None) -> None:
    """Refer to what the provider holds; without state to nothing, whatever the options say."""
    if state is None:
        body.pop("previous_response_id", None)
        body.pop("conversation", None)
    elif state.previous_response_id is not None:
        body["previous_response_id"] = state.previous_response_id


def _check(body: JsonObject) -> None:
    """Settings that the service always refuses."""
    if body.get("model") is None and "prompt" not in body:
        raise no_model()
    if body.get("previous_response_id") is not None and body.get("conversation") is not None:
        raise CannotRender("previous_response_id and conversation exclude each other.", hint="Set one to None.")
    if body.get("background") is True and body.get("store") is False:
        raise CannotRender(
            "background=True needs stored responses.", hint="Leave store unset, or set background to False."
        )


def _with_input(head: bytes, pieces: Sequence[bytes], rendering: Rendering) -> bytes:
    """The body with `input` as its last key, where there is one; an imported request may have had an unusual one."""
    entries, word = rendering.entries, (rendering.spelling or {}).get("input")
    value: tuple[bytes, ...] = (b"[", *pieces, b"]") if pieces else ()
    if word == "empty" and not entries:
        value = (b"[]",)
    elif word == "text" and len(entries) == 1 and entries[0].origin == NAME:
        match entries[0].item():
            case {"role": "user", "content": [{"type": "input_text", "text": str(text)}]}:
                value = (dumps(text),)
    return b"".join((head[:-1], b'"input":' if head == b"{}" else b',"input":', *value, b"}")) if value else head


# keys of which a request needs one
_HISTORIES: Final = ("input", "prompt", "previous_response_id", "conversation")
_READ_APART: Final = ("input", "tools", "tool_choice", "stream_options")
# keys of items that hold texts
_TEXTS: Final = ("id", "status", "phase", "created_by", "call_id", "name", "namespace", "encrypted_content")


@parsing.parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a Responses request; `model` and `stream` say what the payload does not."""
    body = parsing.request_object(payload, NAME, "input")
    if all(body.get(key) is None for key in _HISTORIES):
        raise parsing.no_turns(body, NAME, "input")
    history = body.get("input")
    definitions = body.get("tools")
    tools = [_tool(tool) for tool in definitions] if isinstance(definitions, list) else []
    settings, native = _settings(body, tools)
    if definitions is not None and not isinstance(definitions, list):
        native["tools"] = definitions
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in native:
            settings.setdefault(name, value)
    return parsing.session_of(
        NAME,
        _turns(_elements(history)),
        settings=settings,
        tools=tools,
        native=native,
        spelling={"input": "text"} if isinstance(history, str) else {"input": "empty"} if history == [] else {},
    )


@parsing.parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[formats.OpenCall] = ()) -> list[list[Item]]:
    """The item objects of input items, turn by turn."""
    return parsing.items_of_turns(_turns(_elements(parsing.turns_in(turns, NAME))))


@parsing.parser(f"{NAME} turns")
def input_object(element: JsonObject) -> JsonObject:
    """The item object of an element of the input that was read from JSON."""
    if parts.OURS.isdisjoint(element) and (item := usual_object({**element, "origin": NAME})) is not None:
        is_spelled = item["type"] == "reasoning" and element.get("summary") is None
        if not is_spelled and item.get("role") not in OTHER_ROLES:
            return item
    parsing.check_turns([element], NAME, "turns")
    return _item(element, 0)


def _elements(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": value}]}]
    if isinstance(value, list):
        return value
    hint = parsing.SENT_REQUEST
    raise CannotParse(f"The input is {provider_errors.shortened(value)}, neither text nor a list of items.", hint=hint)


def _turns(elements: Iterable[Any]) -> list[list[Item]]:
    """The items of each turn, see the module's docstring."""
    turns: list[list[Item]] = []
    last = None
    for index, element in enumerate(elements):
        item = _item(element, index)
        # Where an item came from: the model, or outputs of tools; None for what stands alone
        role = item.get("role")
        if item["type"] == "provider_item" and isinstance(item["payload"], dict):
            role = item["payload"].get("role")
        if isinstance(role, str):
            side = "model" if role == "assistant" else None
        else:
            is_hosted = item.get("execution") == "server"  # searches for tools: their outputs come with the response
            side = "tools" if item["type"] in fields.INPUT_TYPES and not is_hosted else "model"
        if side is None or side != last:
            turns.append([])
        turns[-1].append(with_given(item_from_object(item), element))
        last = side
    return turns


def _item(element: Any, index: int) -> JsonObject:
    if not isinstance(element, dict):
        raise CannotParse(
            f"input[{index}] is {provider_errors.shortened(element)}, which is not an item.",
            hint="Pass the items as they were sent.",
        )
    item, words = usual(element)
    if not _is_whole(item):
        return {**parts.block(element, NAME), "origin": NAME}
    parsed = response.item_object(item)
    return {**parsed, "spelling": words} if words else parsed


def _is_whole(item: JsonObject) -> bool:
    """Whether an item of a known type has what its type stands for."""
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in ITEM_KEYS:
        return True
    if not all(isinstance(item.get(key), str | None) for key in _TEXTS):
        return False
    match item:
        case {"type": "message", "role": str(), "content": list(parts)} | {
            "type": "function_call_output",
            "output": list(parts),
        }:
            return all(isinstance(part, dict) for part in parts)
        case {"type": "function_call", "call_id": str(), "name": str(), "arguments": str()}:
            return isinstance(item.get("async"), bool | None)
        case {"type": "function_call_output", "output": str()} | {"type": "item_reference", "id": str()}:
            return True
        case {"type": "reasoning"}:
            return all(isinstance(item.get(key), list | None) for key in ("summary", "content"))
    return kind == "compaction"


def _settings(body: JsonObject, tools: Sequence[JsonObject]) -> tuple[JsonObject, JsonObject]:
    """The options that a request sets, and the keys that say something else."""
    settings, native = read_fields(fields.FIELDS, {key: value for key, value in body.items() if key not in _READ_APART})
    targets = {getattr(row, "target", row.option) for row in fields.FIELDS}
    native |= {key: None for key, value in body.items() if value is None and key not in targets | set(_READ_APART)}
    choice, options = body.get("tool_choice"), body.get("stream_options")
    if choice is not None:
        (settings if _is_said(choice, tools) else native)["tool_choice"] = choice
    if options is not None:
        is_said = options and fields.stream_options({**settings, "stream_options": options}) == options
        (settings if is_said else native)["stream_options"] = options
    return settings, native


def _is_said(choice: Any, tools: Sequence[JsonObject]) -> bool:
    """Whether the option gives this very tool choice back."""
    context = Context(tools)
    try:
        return bool(fields.tool_choice(choice, context) == choice)
    except CannotRender:
        return False


def _tool(tool: Any) -> JsonObject:
    """A tool definition, where it can be given back; else a block of this format."""
    if isinstance(tool, dict):
        is_function = tool.get("type") == "function"
        definition = parts.split_native(tool, fields.TOOL_KEYS, NAME) if is_function else tool
        if is_function and not tool_names.is_valid_name(tool.get("name")):
            definition = {**definition, "origin": NAME}  # some hosts take names that others refuse
        try:
            kept = tools.tool_from(definition).to_dict()
        except InvalidOption:
            kept = {}
        said = {key: value for key, value in tool.items() if value is not None} if is_function else tool
        if kept and fields.wire_tools([kept], Context()) == [said]:
            return kept
    return {"type": "provider_tool", "format": NAME, "payload": tool}


# ---------------------------------------------------------------------------------------------------------------------
# The input list for hosts of the Responses API that take less than OpenAI's, see `formats.shared.provider_rules`:
#
# * What a tool returned is one text; pictures and files go into a user message behind the outputs, or into the JSON
#   text of the parts where the application asks for that.
# * System text is the first item, after which, or next to instructions, the host takes none: it is sent as the user's.

_LIST: Final = b'"output":['  # how elements with more than a text look
_SYSTEM: Final = (b'"role":"system"', b'"role":"developer"')
_SYSTEM_ROLES: Final = ("system", "developer")
_OUTPUT: Final = b"_output"
SYSTEM_NOTE: Final = "System message:"  # before system text that is sent as the user's
MOVED: Final = "[The output is in the next user message.]"


@dataclass(slots=True)
class HostInput:
    """Elements of `input` as a host takes them, made of those for OpenAI one by one."""

    rules: provider_rules.ProviderRules
    context: reports.Context
    as_json: bool  # whether outputs of several parts are sent as JSON text
    has_system: bool  # whether the request has instructions
    elements: list[bytes] = field(default_factory=list)
    _media: list[JsonObject] = field(default_factory=list)  # of the outputs before the next element

    def take(self, elements: Sequence[bytes], stable: int) -> tuple[list[bytes], int]:
        """The elements, and how many of them no later append changes, of `stable` of the given ones."""
        count = 0
        for index, element in enumerate(elements):
            is_output = _LIST in element or (_OUTPUT in element and b'"call_id"' in element)
            if self._media and not is_output:
                self._send_media()
            self.elements.append(self._output(element) if _LIST in element else self._message(element))
            count = len(self.elements) if index < stable else count
        if self._media:
            self._send_media()
        return self.elements, count

    def _send_media(self) -> None:
        self.elements.append(dumps({"type": "message", "role": "user", "content": self._media}))
        self._media = []

    def _output(self, element: bytes) -> bytes:
        """What a tool returned, as one text."""
        item = loads(element)
        parts = item.get("output")
        if not isinstance(parts, list) or not str(item.get("type")).endswith("_output"):
            return element
        if self.as_json:
            return dumps({**item, "output": dumps(parts).decode()})
        texts = [part["text"] for part in parts if part.get("type") in TEXTS]
        media = [part for part in parts if part.get("type") in MEDIA]
        if media:
            self._media += [{"type": "input_text", "text": f"Output of the call {item.get('call_id')}:"}, *media]
            detail = "Images and files of the output were sent in a user message after it."
            self.context.repair("tool_media", "output", detail)
        if len(texts) + len(media) < len(parts):
            self.context.loss("part", "output", "Parts of the output were left out: the host takes text alone.")
        return dumps({**item, "output": "\n".join(texts) if texts or not media else MOVED})

    def _message(self, element: bytes) -> bytes:
        """An element with a role that the host takes there."""
        if self.rules.system == "anywhere" or not any(role in element for role in _SYSTEM):
            self.has_system = True
            return element
        item: JsonObject = loads(element)
        role = item.get("role")
        if role not in _SYSTEM_ROLES:
            self.has_system = True
        elif self.has_system:
            self.context.repair(
                "role", "role", f"The {role} message was sent as the user's: the host takes none there."
            )
            note: list[Any] = [{"type": "input_text", "text": SYSTEM_NOTE}]
            content = item.get("content")
            parts = content if isinstance(content, list) else [{"type": "input_text", "text": content}]
            return dumps({**item, "role": "user", "content": note + parts})
        else:
            self.has_system = True
            return dumps({**item, "role": "system"})
        return element
