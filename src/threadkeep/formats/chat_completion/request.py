"""Writing and reading requests of Chat Completions.

* Instructions are the first message, of role system; the full history follows.
* Tool choice and parallel calls are sent only with tools; stream options only with a stream.
* A dialect changes what its vendor has otherwise, see `vendors`.
* `messages` is the last key.

Reading:

* A leading system message of nothing but text is the instructions, if more follows.
* Each other message is a turn. An assistant message is reasoning, then what it says, then its calls; keys without an
  item are a block of keys.
* A message whose keys are not of the types that the API has is a block as a whole, and so are messages of the old role
  function, which name no call.
* Keys that are not options, or whose value no option can say, are `extra.chat_completion`.
* `max_tokens`, `functions` with `function_call`, and Mistral's choice `any` are older or other names of options; the
  request keeps them.

Source: OpenAI's API reference, "Chat Completions", create; recorded requests to other servers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain import formats, items
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse
from threadkeep.formats.canonical.entries import Snapshot
from threadkeep.formats.chat_completion import fields, turns, vendors
from threadkeep.formats.chat_completion import parts as spellings
from threadkeep.formats.chat_completion.calls import is_call, read_call
from threadkeep.formats.chat_completion.fields import EXTRAS, FIELDS, LIMIT, NAME, STREAM_OPTIONS, with_schema_name
from threadkeep.formats.chat_completion.parts import LIST, read_content
from threadkeep.formats.chat_completion.tools import read_choice, read_tools, spell_body, tool_keys
from threadkeep.formats.shared import pairing, provider_errors, reports, views
from threadkeep.formats.shared.dialects import CHAT, STANDARD, Dialect, dialect_of
from threadkeep.formats.shared.fields import Field, FieldGroup, read_fields, render_fields
from threadkeep.formats.shared.parsing import SENT_REQUEST, items_of_turns, parser, request_object, session_of, turns_in
from threadkeep.formats.shared.parts import block
from threadkeep.formats.shared.prefixes import resumed
from threadkeep.formats.shared.rendering import Rendering, begin, no_model, nothing_to_send

if TYPE_CHECKING:
    from threadkeep.domain.session import Session


@resumed(NAME, "messages")
def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    """Render a session as the body of a Chat Completions request."""
    rendering = begin(session, options, NAME, reports.Context())
    context, snapshot = rendering.context, rendering.snapshot
    settings = snapshot.settings
    has_dialect = options.dialect is not None or "dialect" in settings
    dialect = dialect_of(CHAT, snapshot, options) if has_dialect else STANDARD
    body = rendering.fitted(_body(rendering, dialect))
    if body.get("model") is None:
        raise no_model()
    messages = _instructions(rendering, dialect)
    writer = turns.ChatWriter(
        messages, rendering, pairing.paired(rendering.entries, pairing.left_alone(snapshot, NAME)), dialect
    )
    writer.write(rendering.entries)
    is_cut = rendering.view.head < 0 and options.upto is not None  # instructions alone are not what a cut leaves
    if len(messages) == (is_cut and settings.get("instructions") is not None):
        raise nothing_to_send("message")
    texts = (text for message in messages for text in _texts(message))
    if "response_format" in body and rendering.leaves_out_json_mode(body["response_format"], texts, "messages"):
        del body["response_format"]
    fixed = writer.imported if not has_dialect else 0
    messages, stable = vendors.in_order(messages, rendering.rules, context, stable=writer.stable(), fixed=fixed)
    vendors.fit_calls(messages, rendering.rules, context, fixed=writer.imported)
    if dialect is not STANDARD:
        vendors.vendor_messages(messages, dialect, settings, context)
    body["messages"] = messages
    if options.cache is not None:
        body = vendors.with_marks(body, dialect, views.repeated_turns(rendering.view, options, stable))
    return rendering.finish(body, stable, _sent_options(settings, dialect))


def _instructions(rendering: Rendering, dialect: Dialect) -> list[JsonObject]:
    """The message that the instructions are; none when there are none."""
    instructions = rendering.snapshot.settings.get("instructions")
    if instructions is None:
        return []
    is_list = dialect.text == "parts" or (rendering.spelling or {}).get("instructions") == LIST
    return [{"role": "system", "content": [{"type": "text", "text": instructions}] if is_list else instructions}]


def _texts(message: JsonObject) -> list[str]:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _body(rendering: Rendering, dialect: Dialect) -> JsonObject:
    """The keys that the options and tools set."""
    settings, context, spelling = rendering.snapshot.settings, rendering.context, rendering.spelling
    rows = FIELDS if dialect is STANDARD else vendors.rows_of(dialect, settings.get("model"))
    body = render_fields(rows, settings, context)
    body |= _stream_options(settings, context)
    if rendering.snapshot.tools or settings.keys() & {"tool_choice", "parallel_tool_calls"}:
        body |= tool_keys(rendering.snapshot.tools, settings, context, dialect)
    if spelling:
        spell_body(body, spelling)
    extra = settings.get("extra") or {}
    body |= {key: extra[key] for key in EXTRAS if key in extra}
    if dialect is not STANDARD:
        body = vendors.vendor_body(body, dialect, context)
    if "response_format" in body and spelling is None:
        body["response_format"] = with_schema_name(body["response_format"], context)
    native = extra.get(NAME)
    body |= {key: value for key, value in native.items() if key != "messages"} if isinstance(native, dict) else {}
    return body


def _stream_options(settings: JsonObject, context: reports.Context) -> JsonObject:
    options = settings.get("stream_options")
    if not isinstance(options, dict) or settings.get("stream") is not True:
        return {}
    for key in sorted(options.keys() - STREAM_OPTIONS):
        context.loss("option", f"stream_options.{key}", f"Chat Completions has no stream option {key}.")
    sent = _sent_options(settings, STANDARD)
    return {"stream_options": sent} if sent else {}


def _sent_options(settings: JsonObject, dialect: Dialect) -> JsonObject:
    """The stream options that the API has, and the vendor takes."""
    options = settings.get("stream_options")
    if not isinstance(options, dict) or "stream_options" in dialect.lacks:
        return {}
    return {key: options[key] for key in STREAM_OPTIONS if options.get(key) is not None}


# keys of requests that have a meaning in the API, so that null is the same as none
_API_KEYS: Final = frozenset(
    {
        *fields.EXTRAS,
        *(row.target for row in FIELDS if isinstance(row, Field)),
        *(target for row in FIELDS if isinstance(row, FieldGroup) for target in row.targets),
        "max_tokens", "tools", "tool_choice", "parallel_tool_calls", "stream_options", "functions", "function_call",
    }
)  # fmt: skip
# the same of messages
_NULLABLE: Final = fields.MESSAGE_KEYS | {"name", "tool_call_id"}
_COMMON: Final = frozenset({"role", "content"})  # keys that are the same in all messages


@parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a Chat Completions request; `model` and `stream` say what the payload does not."""
    body = request_object(payload, NAME, "messages")
    messages = _messages(body.get("messages"))
    settings, native, spelling = _settings({key: value for key, value in body.items() if key != "messages"})
    tools: list[JsonObject] = []
    if "tools" in native or "functions" in native:
        tools = read_tools(native, spelling)
        settings |= read_choice(native, tools, spelling)
    _read_stream_options(settings, native)
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in native:
            settings.setdefault(name, value)
    instructions, word = _read_instructions(messages)
    if instructions is not None:
        settings["instructions"] = instructions
        messages = messages[1:]
    turns = list(map(_items_of, messages))
    spelling |= {**({"instructions": word} if word else {}), **_usual_content(turns)}
    if not _is_ordered(messages):
        spelling["order"] = spellings.KEPT
    return session_of(NAME, turns, settings=settings, tools=tools, native=native, spelling=spelling)


@parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[formats.OpenCall] = ()) -> list[list[items.Item]]:
    """The items of messages, one turn each."""
    return items_of_turns(map(_items_of, _messages(turns_in(turns, NAME))))


def _messages(value: Any) -> list[JsonObject]:
    if not isinstance(value, list):
        raise CannotParse(f"The messages are {provider_errors.shortened(value)}, not a list.", hint=SENT_REQUEST)
    for index, message in enumerate(value):
        if not isinstance(message, dict):
            problem = f"messages[{index}] is {provider_errors.shortened(message)}, not a message."
            raise CannotParse(problem, hint="Pass an object with a role, and text or a list of parts as content.")
    return value


def _settings(body: JsonObject) -> tuple[JsonObject, JsonObject, JsonObject]:
    """The options that a request sets, the keys that say something else, and the spelling of the options."""
    keys = dict(body)
    is_old = keys.get("max_tokens") is not None and keys.get(LIMIT) is None
    if is_old:
        keys[LIMIT] = keys.pop("max_tokens")
    settings, native = read_fields(FIELDS, keys)
    native |= {key: None for key, value in body.items() if value is None and key not in _API_KEYS}
    if is_old and LIMIT in native:
        native["max_tokens"] = native.pop(LIMIT)
        is_old = False
    return settings, native, {"max_output_tokens": spellings.MAX_TOKENS} if is_old else {}


def _read_stream_options(settings: JsonObject, native: JsonObject) -> None:
    options = native.get("stream_options")
    if not isinstance(options, dict) or not options or settings.get("stream") is not True:
        return
    if options.keys() <= {*fields.STREAM_OPTIONS} and None not in options.values():
        settings["stream_options"] = native.pop("stream_options")


def _read_instructions(messages: list[JsonObject]) -> tuple[str | None, str | None]:
    """The text of a leading system message, and a word for its spelling if it was not a string."""
    match {key: value for key, value in messages[0].items() if value is not None} if len(messages) > 1 else {}:
        case {"role": "system", "content": str(content), **others} if not others:
            return content, None
        case {"role": "system", "content": [{"type": "text", "text": str(text), **more}], **others} if (
            not more | others
        ):
            return text, spellings.LIST
    return None, None


def _usual_content(turns: list[list[JsonObject]]) -> JsonObject:
    """How most lone texts are spelled, said for the whole request and no longer for each item."""
    string, in_list = spellings.STRING, spellings.LIST
    items = [item for turn in turns for item in turn if item.get("spelling", {}).get("content") in (string, in_list)]
    counts = Counter(item["spelling"]["content"] for item in items)
    usual = string if items and counts[string] >= counts[in_list] else in_list
    for item in items:
        if item["spelling"]["content"] == usual:
            del item["spelling"]["content"]
            if not item["spelling"]:
                del item["spelling"]
    return {"content": string} if usual == string else {}


def _is_ordered(messages: list[JsonObject]) -> bool:
    """Whether every tool message stands in the row behind the calls that it answers."""
    called: set[str] = set()
    here: set[str] = set()
    for message in messages:
        call_id = message.get("tool_call_id")
        if message.get("role") == "tool" and isinstance(call_id, str):
            if call_id in called - here:
                return False
            continue
        called |= here
        calls = message.get("tool_calls")
        ids = [call.get("id") for call in (calls if isinstance(calls, list) else ()) if isinstance(call, dict)]
        here = {call_id for call_id in ids if isinstance(call_id, str)}
    return True


# Messages


def _items_of(message: JsonObject) -> list[JsonObject]:
    """The item objects of a message; they say how they were spelled where that is not the usual way."""
    role = message.get("role")
    return _READERS.get(role, _message)(message) if isinstance(role, str) else _whole(message)


def _whole(message: JsonObject) -> list[JsonObject]:
    """A message that goes back as it is."""
    return [{**block(message, NAME), "origin": NAME, "spelling": {"whole": True}}]


def _message(message: JsonObject) -> list[JsonObject]:
    """A message of the user, the system or the developer, or of a role that only one server has."""
    content = message.get("content")
    if (not content and content != "") or not _is_content(content):
        return _whole(message)
    parts, word = read_content(content)
    item = {"type": "message", "role": message["role"], "content": parts, "origin": NAME}
    return [_noted(item, _strange(message, _COMMON), {"content": word} if word else {})]


def _is_content(content: Any) -> bool:
    return isinstance(content, str | None) or (isinstance(content, list) and None not in content)


def _output(message: JsonObject) -> list[JsonObject]:
    """What a tool returned."""
    call_id, content, name = (message.get(key) for key in ("tool_call_id", "content", "name"))
    if not isinstance(call_id, str) or not _is_content(content):
        return _whole(message)
    output: Any = content if isinstance(content, str) else read_content(content)[0] or ""
    item = {"type": "function_call_output", "call_id": call_id, "output": output, "origin": NAME}
    known = {"tool_call_id", *_COMMON}
    if isinstance(name, str):
        known.add("name")
        item["name"] = name
    word = None if content else _word_for_nothing(message)
    return [_noted(item, _strange(message, known), {"content": word} if word not in (None, spellings.EMPTY) else {})]


def _noted(item: JsonObject, native: JsonObject, spelling: JsonObject) -> JsonObject:
    """An item with its native keys and its spelling, where it has any."""
    if native:
        item["native"] = {NAME: native}
    if spelling:
        item["spelling"] = spelling
    return item


def _strange(thing: JsonObject, known: Collection[str]) -> JsonObject:
    return {k: v for k, v in thing.items() if k not in known and not (v is None and k in _NULLABLE)}


def _assistant(message: JsonObject) -> list[JsonObject]:
    """An assistant message: its reasoning, what it says, and its calls."""
    calls = message.get("tool_calls") or []
    if not _is_regular(message) or not all(map(is_call, calls)):
        return _whole(message)
    items = spellings.reasoning_of(message)
    rest = _rest(message)
    empty = {key: value for key, value in rest.items() if spellings.is_blank_value(value)}
    native = {key: value for key, value in rest.items() if key not in empty}
    items += _answer(message, native, is_needed=not items and not calls)
    items += [read_call(call, is_sent=True) for call in calls]
    word = _content_word(message)
    if spelling := {**({"content": word} if word else {}), **({"keys": empty} if empty else {})}:
        items[-1]["spelling"] = {**spelling, **items[-1].get("spelling", {})}
    return items


def _is_regular(message: JsonObject) -> bool:
    """Whether the keys that become items are of the types that the API has."""
    annotations = message.get("annotations")
    return (
        _is_content(message.get("content"))
        and isinstance(message.get("refusal"), str | None)
        and isinstance(message.get("tool_calls"), list | None)
        and isinstance(annotations, list | None)
        and all(isinstance(annotation, dict) for annotation in annotations or ())
    )


def _answer(message: JsonObject, native: JsonObject, *, is_needed: bool) -> list[JsonObject]:
    """What an assistant message has besides reasoning and calls; `is_needed`: it is all that there is."""
    content, refusal = spellings.content_of(message), message.get("refusal")
    is_text = bool(content) or (content == "" and is_needed and not native and not refusal)
    parts, word = read_content(content, "assistant") if is_text else ([], None)
    if refusal:
        parts.append({"type": "refusal", "refusal": refusal, "spelling": spellings.KEY})
    _annotate(parts, native)
    spelling = {key: value for key, value in {"content": word, "audio": "audio" in native}.items() if value}
    if parts:
        item = {"type": "message", "role": "assistant", "content": parts, "origin": NAME}
        return [_noted(item, native, spelling)]
    if native or is_needed:
        return [_noted({**block({"role": "assistant", **native}, NAME), "origin": NAME}, {}, spelling)]
    return []


def _annotate(parts: list[JsonObject], native: JsonObject) -> None:
    """Put annotations onto the first text, if there is one."""
    texts = [part for part in parts if part["type"] == "output_text"]
    if texts and "annotations" in native:
        texts[0]["annotations"] = native.pop("annotations")


def _rest(message: JsonObject) -> JsonObject:
    """The keys of an assistant message that no item stands for, annotations among them."""
    rest = _strange(message, ("role", "content", "tool_calls"))
    if rest.get("refusal"):
        del rest["refusal"]
    if rest.get("annotations") == []:
        del rest["annotations"]
    return {k: v for k, v in rest.items() if k not in fields.REASONING_KEYS or (v is not None and not v)}


def _content_word(message: JsonObject) -> str | None:
    """How empty content is spelled, where it is not null next to calls or otherwise an empty text."""
    if message.get("content"):
        return None
    word = _word_for_nothing(message)
    has_calls = bool(message.get("tool_calls") or message.get("function_call"))
    is_usual = word == spellings.usual_nothing(message) or (has_calls and word == spellings.EMPTY_LIST)
    return None if is_usual else word


def _word_for_nothing(message: JsonObject) -> str:
    if "content" not in message:
        return spellings.ABSENT
    content = message["content"]
    return spellings.NULL if content is None else spellings.EMPTY_LIST if content == [] else spellings.EMPTY


# role -> what reads its messages
_READERS: Final[dict[str, Callable[[JsonObject], list[JsonObject]]]] = {
    "assistant": _assistant,
    "tool": _output,
    "function": _whole,
}
