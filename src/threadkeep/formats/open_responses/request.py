"""The request of Open Responses.

* An item whose row has nothing but its payload is sent as stored, byte for byte, without being parsed.
* Server state: only what the provider does not have is sent; calls and outputs are judged on the whole history.
* Outputs stay where they are; an unanswered call gets its placeholder behind the calls of its turn.
* A reasoning item needs the item it led to; no item id and no call id comes twice.
* A dialect changes what its vendor has otherwise, see `formats.shared.dialects`.
* `input` is the last key, and absent when the provider has everything already.
* JSON mode needs the word JSON in the input, where the instructions do not count.

Source: OpenAI's API reference, "Responses"; the Open Responses specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.errors import CannotRender
from threadkeep.formats.canonical.keys import NAME
from threadkeep.formats.canonical.snapshots import ServerState, Snapshot, initial_state
from threadkeep.formats.open_responses import fields
from threadkeep.formats.open_responses.turns import input_of, joined_input
from threadkeep.formats.open_responses.vendors import HostInput
from threadkeep.formats.shared.dialects import RESPONSES, Dialect, dialect_of
from threadkeep.formats.shared.fields import EFFORT, effort_of, render_fields, value_at, with_value
from threadkeep.formats.shared.makers import giver_of, reads_own
from threadkeep.formats.shared.rendering import Rendering, begin, no_model, nothing_to_send
from threadkeep.formats.shared.reports import Context

if TYPE_CHECKING:
    from threadkeep.domain.session import Session


def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    """Render a session as the body of a Responses request."""
    rendering = begin(session, options, NAME, Context())
    snapshot, entries = rendering.snapshot, rendering.entries
    state = None if options.server_state == "none" else _known_state(rendering)
    dialect = dialect_of(RESPONSES, snapshot, options)
    head, has_prompt = _head(rendering, state, dialect)
    pieces, stable = _input(rendering, state, dialect)
    if not has_prompt:
        if not pieces and (state is None or (not entries and options.upto is not None)):
            raise nothing_to_send("item")
        if state is None and _lacks_json_word(rendering, pieces):
            head = _without_json_mode(head, rendering)
    body = _with_input(head, pieces, _spelled_input(rendering))
    return rendering.finish(body, 0 if state is not None else stable)


def _known_state(rendering: Rendering) -> ServerState | None:
    """What the provider holds; nothing where another one has answered last: it is sent everything."""
    snapshot = rendering.snapshot
    state = snapshot.state or initial_state(snapshot.settings)
    if state is None:
        return None
    last = next((entry for entry in reversed(snapshot.entries) if entry.position <= state.boundary), None)
    if last is None or last.maker is None or reads_own(rendering.target, last, NAME):
        return state
    name = "conversation" if state.previous_response_id is None else "previous_response_id"
    detail = f"{name} was left out, and everything is sent: {giver_of(last)} keeps it."
    rendering.context.repair("option", name, detail)
    return None


def _input(rendering: Rendering, state: ServerState | None, dialect: Dialect) -> tuple[list[bytes], int]:
    """The elements of `input` in pieces, and how many of them no later append changes."""
    snapshot, view = rendering.snapshot, rendering.view
    if state is None and not view.has_layer and dialect.results == "parts":
        memo = snapshot.memo if view.is_whole else None
        return joined_input(view.entries, rendering.context, memo, snapshot, dialect)
    elements, stable = input_of(view.entries, state, rendering.context, snapshot, dialect)
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


def _lacks_json_word(rendering: Rendering, pieces: Sequence[bytes]) -> bool:
    """Whether a request for JSON mode, which came from another format or was cut, does not say JSON in its input."""
    text = rendering.snapshot.settings.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    is_checked = rendering.snapshot.imported is not None or rendering.rules.json_word
    if not is_checked or not isinstance(form, dict) or form.get("type") != "json_object":
        return False
    is_as_it_came = rendering.spelling is not None and len(rendering.entries) >= rendering.imported
    return not is_as_it_came and not any(b"json" in piece.lower() for piece in pieces)


def _without_json_mode(head: bytes, rendering: Rendering) -> bytes:
    if rendering.snapshot.imported is None:
        rendering.context.loss("refused", "text.format", "JSON mode is refused without the word JSON in the input.")
        return head
    rendering.context.repair("option", "text.format", "JSON mode was left out: it needs the word JSON in the input.")
    body = loads(head)
    text = {key: value for key, value in body.pop("text").items() if key != "format"}
    return dumps(body | ({"text": text} if text else {}))


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


def _spelled_input(rendering: Rendering) -> bytes | None:
    """The `input` of a request that is not a list of items, as JSON; None where it is one, as for nearly all."""
    entries, word = rendering.entries, (rendering.spelling or {}).get("input")
    if word == "empty" and not entries:
        return b"[]"
    if word == "text" and len(entries) == 1 and entries[0].origin == NAME:
        match entries[0].item():
            case {"role": "user", "content": [{"type": "input_text", "text": str(text)}]}:
                return dumps(text)
    return None


def _with_input(head: bytes, pieces: Sequence[bytes], spelled: bytes | None) -> bytes:
    """The body with `input` as its last key, where there is one; `spelled` is an input that is not a list of items."""
    if spelled is None and not pieces:
        return head
    value = (b"[", *pieces, b"]") if spelled is None else (spelled,)
    return b"".join((head[:-1], b'"input":' if head == b"{}" else b',"input":', *value, b"}"))
