"""The request of Chat Completions.

* Instructions are the first message, of role system; the full history follows.
* Tool choice and parallel calls are sent only with tools; stream options only with a stream.
* A dialect changes what its vendor has otherwise, see `vendors`.
* `messages` is the last key.

Source: OpenAI's API reference, "Chat Completions", create.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.formats.chat_completion.fields import EXTRAS, FIELDS, NAME, STREAM_OPTIONS, with_schema_name
from threadkeep.formats.chat_completion.order import in_order
from threadkeep.formats.chat_completion.spelling import LIST
from threadkeep.formats.chat_completion.tools import spell_body, tool_keys
from threadkeep.formats.chat_completion.turns import Writer
from threadkeep.formats.chat_completion.vendors import fit_calls, rows_of, vendor_body, vendor_messages, with_marks
from threadkeep.formats.shared.dialects import CHAT, STANDARD, Dialect, dialect_of
from threadkeep.formats.shared.fields import render_fields
from threadkeep.formats.shared.pairing import left_alone, paired
from threadkeep.formats.shared.rendering import Rendering, begin, no_model, nothing_to_send
from threadkeep.formats.shared.reports import Context
from threadkeep.formats.shared.views import repeated_turns

if TYPE_CHECKING:
    from threadkeep.domain.session import Session


def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    """Render a session as the body of a Chat Completions request."""
    rendering = begin(session, options, NAME, Context())
    context, snapshot = rendering.context, rendering.snapshot
    settings = snapshot.settings
    has_dialect = options.dialect is not None or "dialect" in settings
    dialect = dialect_of(CHAT, snapshot, options) if has_dialect else STANDARD
    body = rendering.fitted(_body(rendering, dialect))
    if body.get("model") is None:
        raise no_model()
    messages = _instructions(rendering, dialect)
    writer = Writer(messages, rendering, paired(rendering.entries, left_alone(snapshot, NAME)), dialect)
    writer.write(rendering.entries)
    is_cut = rendering.view.head < 0 and options.upto is not None  # instructions alone are not what a cut leaves
    if len(messages) == (is_cut and settings.get("instructions") is not None):
        raise nothing_to_send("message")
    if snapshot.imported is not None or rendering.rules.json_word:
        _check_json_mode(body, messages, rendering)
    fixed = writer.imported if not has_dialect else 0
    messages, stable = in_order(messages, rendering.rules, context, stable=writer.stable(), fixed=fixed)
    fit_calls(messages, rendering.rules, context, fixed=writer.imported)
    if dialect is not STANDARD:
        vendor_messages(messages, dialect, settings, context)
    body["messages"] = messages
    if options.cache is not None:
        body = with_marks(body, dialect, repeated_turns(rendering.view, options, stable))
    return rendering.finish(body, stable)


def _instructions(rendering: Rendering, dialect: Dialect) -> list[JsonObject]:
    """The message that the instructions are; none when there are none."""
    instructions = rendering.snapshot.settings.get("instructions")
    if instructions is None:
        return []
    is_list = dialect.text == "parts" or (rendering.spelling or {}).get("instructions") == LIST
    return [{"role": "system", "content": [{"type": "text", "text": instructions}] if is_list else instructions}]


def _check_json_mode(body: JsonObject, messages: list[JsonObject], rendering: Rendering) -> None:
    """JSON mode needs the word JSON in the messages; requests of other formats, and cut ones, may lack it."""
    form = body.get("response_format")
    if not isinstance(form, dict) or form.get("type") != "json_object":
        return
    is_as_it_came = rendering.spelling is not None and len(rendering.entries) >= rendering.imported
    if not is_as_it_came and not any("json" in text.lower() for message in messages for text in _texts(message)):
        if rendering.snapshot.imported is None:
            rendering.context.loss(
                "refused", "text.format", "JSON mode is refused without the word JSON in the messages."
            )
            return
        del body["response_format"]
        detail = "JSON mode was left out: it needs the word JSON in the messages."
        rendering.context.repair("option", "text.format", detail)


def _texts(message: JsonObject) -> list[str]:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _body(rendering: Rendering, dialect: Dialect) -> JsonObject:
    """The keys that the options and tools set."""
    settings, context, spelling = rendering.snapshot.settings, rendering.context, rendering.spelling
    rows = FIELDS if dialect is STANDARD else rows_of(dialect, settings.get("model"))
    body = render_fields(rows, settings, context)
    body |= _stream_options(settings, context)
    if rendering.snapshot.tools or settings.keys() & {"tool_choice", "parallel_tool_calls"}:
        body |= tool_keys(rendering.snapshot.tools, settings, context, dialect)
    if spelling:
        spell_body(body, spelling)
    extra = settings.get("extra") or {}
    body |= {key: extra[key] for key in EXTRAS if key in extra}
    if dialect is not STANDARD:
        body = vendor_body(body, dialect, context)
    if "response_format" in body and spelling is None:
        body["response_format"] = with_schema_name(body["response_format"], context)
    native = extra.get(NAME)
    body |= {key: value for key, value in native.items() if key != "messages"} if isinstance(native, dict) else {}
    return body


def _stream_options(settings: JsonObject, context: Context) -> JsonObject:
    options = settings.get("stream_options")
    if not isinstance(options, dict) or settings.get("stream") is not True:
        return {}
    for key in sorted(options.keys() - STREAM_OPTIONS):
        context.loss("option", f"stream_options.{key}", f"Chat Completions has no stream option {key}.")
    sent = {key: options[key] for key in STREAM_OPTIONS if options.get(key) is not None}
    return {"stream_options": sent} if sent else {}
