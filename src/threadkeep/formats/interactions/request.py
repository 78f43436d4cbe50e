"""Writing and reading requests of the Interactions API.

* Instructions and system messages, wherever they stand, are one `system_instruction`.
* Server state: only what the service does not have is sent; calls and outputs are judged on the whole history.
* Keys of `extra.interactions` are laid over the rest, objects key by key.
* `input` is the last key, and absent when the service has everything already.

Reading:

* The input is a text, one content or a list of contents, which are the user's message, or a list of steps.
* The steps of an answer are one turn; so are results that stand together; each input of the user is a turn of its own.
* Functions are tools, all other tools blocks of this format.
* Keys that are not options, or whose value no option can say, are `extra.interactions`.

Source: Google's Gemini API reference, "Interactions"; the types of google-genai.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from threadkeep.domain.formats import OpenCall
from threadkeep.domain.items import Item
from threadkeep.domain.jsontext import JsonObject, merged, place, value_at, with_value
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, CannotRender
from threadkeep.formats.canonical.entries import ServerState, Snapshot
from threadkeep.formats.interactions import fields, steps
from threadkeep.formats.interactions.fields import CHOICE, FIELDS, NAME, RESULT, STEPS
from threadkeep.formats.interactions.turns import StepWriter, is_plain_input
from threadkeep.formats.shared import google, pairing, parsing, provider_errors, reports
from threadkeep.formats.shared.fields import read_fields, render_fields
from threadkeep.formats.shared.prefixes import resumed
from threadkeep.formats.shared.rendering import Rendering, begin, known_state, news, no_model, nothing_to_send

PREVIOUS: Final = "previous_interaction_id"
_HISTORIES: Final = ("input", PREVIOUS, "continuation_token")  # keys of which a request needs one
_MISSING: Final = "missing_output"  # the repair that stands for calls that the service waits for
_TEXT, _CONTENT, _CONTENTS, _EMPTY = "text", "content", "contents", "empty"  # how the input was spelled


@resumed(NAME, "input")
def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    """Render a session as the body of a request for an interaction."""
    rendering = begin(session, options, NAME, reports.Context(rule=google.NAMES, takes_signatures=True))
    state = known_state(rendering)
    snapshot, entries, context = rendering.snapshot, rendering.entries, rendering.context
    writer = StepWriter(rendering, pairing.paired(entries, pairing.left_alone(snapshot, NAME)))
    writer.write(entries)
    body = _body(rendering, state, writer.system)
    shown = None if state is None else {None, *(entry.position for entry in news(entries, state))}
    if shown is not None:
        _report_only(shown, context)
    sent = writer.sent(shown)
    if not sent and "continuation_token" not in body and (state is None or not entries):
        raise nothing_to_send("step")
    word = (rendering.spelling or {}).get("input")
    if sent or word == _EMPTY:
        body["input"] = _spelled(sent, word) if len(rendering.entries) == 1 else sent
    return rendering.finish(body, 0 if state is not None else writer.stable())


def _report_only(shown: set[int | None], context: reports.Context) -> None:
    """Report nothing of what the service has already, but for the calls that it waits for."""
    context.losses = [loss for loss in context.losses if loss.position in shown]
    context.repairs = [one for one in context.repairs if one.position in shown or one.code == _MISSING]


def _body(rendering: Rendering, state: ServerState | None, system: Sequence[str]) -> JsonObject:
    """The request without its input."""
    snapshot, context = rendering.snapshot, rendering.context
    settings = snapshot.settings
    body = render_fields(FIELDS, settings, context)
    body.pop(PREVIOUS, None)
    if state is not None and state.previous_response_id is not None:
        body[PREVIOUS] = state.previous_response_id
    if system:
        body["system_instruction"] = "\n\n".join([*filter(None, [body.get("system_instruction")]), *system])
    if settings.get("parallel_tool_calls") is False:
        context.loss("option", "parallel_tool_calls", "Gemini cannot be kept from calling tools in parallel.")
    if tools := fields.wire_tools(snapshot.tools, context):
        body["tools"] = tools
    has_functions = any(isinstance(tool, dict) and tool.get("type") == "function" for tool in tools)
    choice = fields.tool_choice(settings.get("tool_choice"), context, has_functions=has_functions)
    if choice is not None:
        place(body, CHOICE, choice)
    body = _with_extra(body, settings.get("extra") or {})
    if body.get("agent") is not None and body.pop("model", None) is not None:
        context.loss("option", "model", "The model was left out: an agent has its own.")
    _check(body, is_imported=snapshot.imported is not None)
    return rendering.fitted(body)


def _with_extra(body: JsonObject, extra: JsonObject) -> JsonObject:
    for key, target in fields.EXTRAS.items():
        if key in extra:
            place(body, target, fields.extra_value(key, extra[key]))
    native = extra.get(NAME)
    if not isinstance(native, dict):
        return body
    return merged(body, {key: value for key, value in native.items() if key != "input"})


def _check(body: JsonObject, *, is_imported: bool) -> None:
    """Refuse settings that the service always refuses."""
    if body.get("model") is None and body.get("agent") is None and not is_imported:
        raise no_model()
    if body.get("background") is True and body.get("store") is False:
        raise CannotRender(
            "background=True needs stored interactions.", hint="Leave store unset, or set background to False."
        )


def _spelled(sent: list[Any], word: str | None) -> Any:
    """The input as the request that the conversation began with spelled it, while it is no more than that."""
    if len(sent) != 1 or not is_plain_input(sent[0]):
        return sent
    content = sent[0]["content"]
    match word, content:
        case "text", [{"type": "text", "text": text, **others}] if not others:
            return text
        case "content", [one]:
            return one
        case "contents", _:
            return content
    return sent


@parsing.parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a request for an interaction; `model` and `stream` say what the payload does not."""
    body = parsing.request_object(payload, NAME, "input")
    if all(body.get(key) is None for key in _HISTORIES):
        raise parsing.no_turns(body, NAME, "input")
    elements, word = _elements(body.get("input"))
    definitions = body.get("tools")
    tools = [fields.tool_in(tool) for tool in definitions] if isinstance(definitions, list) else []
    settings, native = read_fields(FIELDS, {key: value for key, value in body.items() if key not in ("input", "tools")})
    if definitions is not None and not (isinstance(definitions, list) and definitions):
        native["tools"] = definitions
    settings |= _choice(native, tools)
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in native:
            settings.setdefault(name, value)
    return parsing.session_of(
        NAME,
        _turns(elements),
        settings=settings,
        tools=tools,
        native=native,
        spelling={} if word is None else {"input": word},
    )


@parsing.parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[OpenCall] = ()) -> list[list[Item]]:
    """The item objects of steps, turn by turn."""
    return parsing.items_of_turns(_turns(_elements(parsing.turns_in(turns, NAME))[0]))


def _elements(value: Any) -> tuple[list[JsonObject], str | None]:
    """The input as steps, and how it was spelled, where it was no list of steps."""
    if value is None:
        return [], None
    if isinstance(value, str):
        return [_said([{"type": "text", "text": value}])], _TEXT
    if steps.kind_of(value) in steps.CONTENTS:
        return [_said([value])], _CONTENT
    if not isinstance(value, list):
        problem = f"The input is {provider_errors.shortened(value)}, neither text nor a list of steps or contents."
        raise CannotParse(problem, hint=parsing.SENT_REQUEST)
    kinds = [element.get("type") if isinstance(element, dict) else None for element in value]
    for index, kind in enumerate(kinds):
        if not isinstance(kind, str):
            problem = f"input[{index}] is {provider_errors.shortened(value[index])}, which is no step and no content."
            raise CannotParse(problem, hint="Pass the steps as they were sent.")
    if not value:
        return [], _EMPTY
    return ([_said(value)], _CONTENTS) if steps.CONTENTS.issuperset(kinds) else (value, None)


def _said(content: list[Any]) -> JsonObject:
    return {"type": STEPS["user"], "content": content}


def _turns(elements: Iterable[JsonObject]) -> list[list[JsonObject]]:
    """The items of each turn, see the module's docstring."""
    turns: list[list[JsonObject]] = []
    last: str | None = None
    for step in elements:
        kind = step.get("type")
        side = None if kind == STEPS["user"] else "tools" if kind == RESULT else "model"
        if side is None or side != last:
            turns.append([])
        turns[-1].append(steps.item_in(step))
        last = side
    return turns


def _choice(native: JsonObject, tools: Sequence[JsonObject]) -> JsonObject:
    """The tool choice that a request states, taken out of its keys; none that the option would not give back."""
    stated = value_at(native, CHOICE)
    choice = fields.choice_in(stated)
    context = reports.Context(tools, google.NAMES)
    has_functions = any(tool["type"] == "function" for tool in tools)
    try:
        if stated is None or fields.tool_choice(choice, context, has_functions=has_functions) != stated:
            return {}
    except CannotRender:
        return {}
    if context.repairs:
        return {}
    config = with_value(native, CHOICE, None)["generation_config"]
    del native["generation_config"]
    native |= {"generation_config": config} if config else {}
    return {"tool_choice": choice}
