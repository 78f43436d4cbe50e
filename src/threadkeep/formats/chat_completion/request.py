"""The request of Chat Completions.

* Instructions are the first message, of role system; the full history follows.
* Tool choice and parallel calls are sent only with tools; stream options only with a stream.
* A dialect changes what its vendor has otherwise, see `vendors`.
* `messages` is the last key.

Source: OpenAI's API reference, "Chat Completions", create.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.wire import Entry, Rendered, RenderOptions, Snapshot
from threadkeep.errors import CannotRender
from threadkeep.formats.chat_completion.fields import EXTRAS, NAME, STREAM_OPTIONS, with_schema_name
from threadkeep.formats.chat_completion.messages import Writer
from threadkeep.formats.chat_completion.spelling import request_spelling, spell_body
from threadkeep.formats.chat_completion.tools import tool_choice, wire_tools
from threadkeep.formats.chat_completion.vendors import rows_of, vendor_body, vendor_messages, with_marks
from threadkeep.formats.dialects import CHAT, Dialect, dialect_of
from threadkeep.formats.entries import snapshot_of
from threadkeep.formats.fields import render_fields
from threadkeep.formats.marks import MARK
from threadkeep.formats.names import Names
from threadkeep.formats.native import report_imported
from threadkeep.formats.rendered import PlainRendered, is_plain
from threadkeep.formats.reports import Context
from threadkeep.formats.turns import left_alone, paired
from threadkeep.formats.views import repeated, shown

if TYPE_CHECKING:
    from threadkeep.domain.session import Session


def render(session: Session | Snapshot, options: RenderOptions) -> Rendered:
    """Render a session as the body of a Chat Completions request.

    Raises:
        CannotRender: there is no model, or nothing to send.
        LossError: `options.strict` is set and the request is not exact.
    """
    snapshot = snapshot_of(session)
    view = shown(snapshot, options, NAME)
    entries = view.entries
    context = Context(Names([tool.get("name") for tool in snapshot.tools]), snapshot.tools)
    report_imported(snapshot, NAME, context)
    dialect = dialect_of(CHAT, snapshot, options)
    body = _body(snapshot, dialect, context)
    if body.get("model") is None:
        raise CannotRender("The request has no model. Set it: conversation.update(model=...).")
    writer = Writer(paired(entries, left_alone(snapshot, NAME)), context, snapshot, dialect)
    writer.write(entries)
    messages, stable = writer.messages, writer.stable()
    is_cut = view.head < 0 and options.upto is not None  # instructions alone are a request, but not what a cut leaves
    if len(messages) == (is_cut and snapshot.settings.get("instructions") is not None):
        raise CannotRender("There is nothing to send: no message is left. Add a user message first.")
    _check_json_mode(body, messages, snapshot, entries, context)
    vendor_messages(messages, dialect, snapshot.settings, context)
    body["messages"] = messages
    if options.cache is not None:
        body = with_marks(body, dialect, repeated(view, options, stable))
    rendered = (PlainRendered if is_plain(snapshot, entries) else Rendered)(
        losses=context.losses,
        repairs=context.repairs,
        stable=stable,
        head=view.head,
        view=options.view(NAME),
        source=body,
    )
    return rendered.strictly(NAME) if options.strict else rendered


def _check_json_mode(
    body: JsonObject, messages: list[JsonObject], snapshot: Snapshot, entries: Sequence[Entry], context: Context
) -> None:
    """JSON mode needs the word JSON in the messages; requests of other formats, and cut ones, may lack it."""
    imported, form = snapshot.imported, body.get("response_format")
    if imported is None or not isinstance(form, dict) or form.get("type") != "json_object":
        return
    is_as_it_came = imported.format == NAME and len(entries) >= imported.count
    if not is_as_it_came and not any("json" in text.lower() for message in messages for text in _texts(message)):
        del body["response_format"]
        context.mend("option", "text.format", "JSON mode was left out: it needs the word JSON in the messages.")


def _texts(message: JsonObject) -> list[str]:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _body(snapshot: Snapshot, dialect: Dialect, context: Context) -> JsonObject:
    settings = snapshot.settings
    body = render_fields(rows_of(dialect, settings.get("model")), settings, context)
    if options := _stream_options(settings, context):
        body["stream_options"] = options
    body |= _tool_keys(snapshot, context, (MARK,) if dialect.marks != "none" else ())
    if spelling := request_spelling(snapshot):
        body = spell_body(body, spelling)
    extra = settings.get("extra") or {}
    body = vendor_body(body | {key: extra[key] for key in EXTRAS if key in extra}, dialect, context)
    if "response_format" in body and not (snapshot.imported is not None and snapshot.imported.format == NAME):
        body["response_format"] = with_schema_name(body["response_format"], context)
    native = extra.get(NAME)
    body |= {key: value for key, value in native.items() if key != "messages"} if isinstance(native, dict) else {}
    return body


def _stream_options(settings: JsonObject, context: Context) -> JsonObject | None:
    options = settings.get("stream_options")
    if not isinstance(options, dict) or settings.get("stream") is not True:
        return None
    for key in options.keys() - STREAM_OPTIONS:
        context.lose("option", f"stream_options.{key}", f"Chat Completions has no stream option {key}.")
    return {key: options[key] for key in STREAM_OPTIONS if options.get(key) is not None}


def _tool_keys(snapshot: Snapshot, context: Context, carried: Sequence[str]) -> JsonObject:
    """Tools, and the two settings that the service takes only with them; `carried` are further keys of tools."""
    found: JsonObject = {}
    if tools := wire_tools(snapshot.tools, context, carried):
        found["tools"] = tools
    choice = tool_choice(snapshot.settings.get("tool_choice"), context, has_tools=bool(tools))
    if choice is not None:
        found["tool_choice"] = choice
    parallel = snapshot.settings.get("parallel_tool_calls")
    if parallel is not None and tools:
        found["parallel_tool_calls"] = parallel
    elif parallel is not None:
        context.mend("option", "parallel_tool_calls", "parallel_tool_calls was left out: there are no tools.")
    return found
