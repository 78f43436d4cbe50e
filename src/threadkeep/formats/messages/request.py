"""Writing and reading requests of the Messages API.

* Instructions lead the system text; system items follow them there, wherever they stand.
* What a request that came from the wire said in keys of its own goes back as it came.
* `messages` is the last key.

Reading:

* System text is the instructions; system messages inside the history stay where they are.
* Each message is a turn. Keys of a message besides role and content go back with it.
* Keys that are not options, or whose value no option gives back, are `extra.messages`.

Source: Anthropic's API reference, "Messages", create.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain import formats, items
from threadkeep.domain.jsontext import JsonObject, body_object
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, CannotRender
from threadkeep.formats.canonical.entries import ItemEntry, Snapshot
from threadkeep.formats.messages import joining, parts
from threadkeep.formats.messages import turns as cache_marks
from threadkeep.formats.messages.fields import EXTRAS, FIELDS, NAME, NAMES, fit
from threadkeep.formats.messages.tools import read_choice, tool_choice, tool_from_wire, wire_tools
from threadkeep.formats.messages.turns import LIST, TEXT, MessagesTurn, MessagesWriter
from threadkeep.formats.shared import claude, fields, pairing, parsing, provider_rules, views
from threadkeep.formats.shared.prefixes import resumed
from threadkeep.formats.shared.provider_errors import shortened
from threadkeep.formats.shared.rendering import Rendering, begin, no_model, report_filler
from threadkeep.formats.shared.reports import Context

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

# option -> the key that it becomes; where `extra.messages` has the key, the option is not looked at
KEYS: Final = {
    **{row.option: row.target for row in FIELDS if isinstance(row, fields.Field) and "." not in row.target},
    "tool_choice": "tool_choice",
    "parallel_tool_calls": "tool_choice",
}


@resumed(NAME, "messages")
def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    """Render a session as the body of a Messages request."""
    rendering = begin(session, options, NAME, Context(rule=NAMES))
    snapshot, context, entries = rendering.snapshot, rendering.context, rendering.entries
    body = rendering.fitted(head(snapshot.settings, snapshot.tools, rendering.spelling or {}, context))
    if body.get("model") is None:
        raise no_model()
    is_as_it_came = bool(entries) and entries[-1].position == rendering.imported - 1
    turns, hoisted = _turns(rendering, is_continued=_is_continued(body, options.server_state, context))
    if not is_as_it_came:
        turns = joining.with_clean_end(turns, context)
    stable = joining.stable_count(turns)
    thinks = claude.thinking_type(body) == "enabled"
    turns = joining.with_last_turn(turns, rendering.rules, context, thinks=thinks)
    if thinks and joining.lacks_thought(turns):
        context.repair("option", "reasoning", "Thinking was left out: the last tool call came without its thinking.")
        del body["thinking"]
    if "system" not in body and (system := joining.wire_system(rendering, hoisted)) is not None:
        body["system"] = system
    body["messages"] = list(map(joining.message_of, turns))
    if not is_as_it_came:
        body = cache_marks.with_fewer_marks(cache_marks.with_even_citations(body, context), context)
    if options.cache is not None:
        body = cache_marks.with_own_marks(body, context, views.repeated_turns(rendering.view, options, stable))
    return rendering.finish(body, stable)


def head(settings: JsonObject, tools: Sequence[JsonObject], spelling: JsonObject, context: Context) -> JsonObject:
    """The request without system text and messages."""
    extra = settings.get("extra") or {}
    own = extra.get(NAME)
    native = own if isinstance(own, dict) else {}
    settings = {name: value for name, value in settings.items() if KEYS.get(name) not in native}
    body = fields.render_fields(FIELDS, settings, context)
    body |= {key: extra[key] for key in EXTRAS if extra.get(key) is not None}
    wire = wire_tools(tools, context) if tools else []
    if wire or "tools" in spelling.get("empty", ()):
        body["tools"] = wire
    if (choice := tool_choice(settings, wire, context)) is not None:
        body["tool_choice"] = choice
    fitting = context.apart()
    fit(body, settings, fitting, has_limit="max_tokens" not in spelling.get("absent", ()))
    context.losses += [loss for loss in fitting.losses if _key_of(loss.path) not in native]
    context.repairs += [repair for repair in fitting.repairs if _key_of(repair.path) not in native]
    return body | {key: value for key, value in native.items() if key != "messages"}


def _key_of(path: str) -> str:
    """The key of the request that a setting becomes, by its path; what is sent verbatim in its place is not fitted."""
    option = path.partition(".")[0]
    return "thinking" if option == "reasoning" else KEYS.get(option, option)


def _is_continued(body: JsonObject, server_state: str, context: Context) -> bool:
    """Whether the service holds the history up to the newest answer, in a thread that the request goes on with."""
    thread = body.get("thread")
    if not isinstance(thread, dict) or thread.get("type") != "continue":
        return False
    if server_state == "none":
        del body["thread"]
        context.repair("option", f"extra.{NAME}.thread", "The thread was left out: the whole history is sent.")
        return False
    return True


def _with_news_last(entries: Sequence[ItemEntry]) -> Sequence[ItemEntry]:
    """The entries with what came in while the newest answer was made behind it: the service does not hold that."""
    answer = next((entry for entry in reversed(entries) if entry.seen is not None), None)
    if answer is None or answer.seen is None:
        return entries
    seen = answer.seen
    new = [entry for entry in entries if entry.position > seen and entry.turn != answer.turn]
    return [*(entry for entry in entries if entry.position <= seen or entry.turn == answer.turn), *new]


def _turns(rendering: Rendering, *, is_continued: bool) -> tuple[list[MessagesTurn], list[JsonObject]]:
    """The messages that are sent, and the system text that leads them."""
    snapshot, context = rendering.snapshot, rendering.context
    entries = _with_news_last(rendering.entries) if is_continued else rendering.entries
    takes_system = claude.follows(snapshot.settings.get("model"), "inner system")
    writer = MessagesWriter(
        rendering, pairing.paired(entries, pairing.left_alone(snapshot, NAME)), takes_system=takes_system
    )
    writer.write(entries)
    turns = joining.joined(joining.without_open_uses(writer.turns, context), context)
    turns, inner = joining.placed(joining.filled(turns, context), context)
    if not turns:
        report_filler(entries, context, provider_rules.FILLER)
        turns = [joining.ellipsis()]
    turns = joining.since_answer(turns) if is_continued else turns
    return joining.with_leader(turns, context), [*writer.hoisted, *inner]


_APART: Final = frozenset({"messages", "system", "tools", "tool_choice"})


@parsing.parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a Messages request; `model` and `stream` say what the payload does not."""
    body = parsing.request_object(payload, NAME, "messages")
    turns = _read_turns(body.get("messages"))
    settings, tools, native, spelling = _read({key: value for key, value in body.items() if value is not None})
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in body:
            settings[name] = value
    spelling |= _usual_content(turns)
    return parsing.session_of(NAME, turns, settings=settings, tools=tools, native=native, spelling=spelling)


@parsing.parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[formats.OpenCall] = ()) -> list[list[items.Item]]:
    """The item objects of messages, one turn each."""
    return parsing.items_of_turns(_read_turns(parsing.turns_in(turns, NAME)))


@parsing.parser(f"{NAME} turns")
def message_objects(message: JsonObject) -> list[JsonObject]:
    """The item objects of a message that was read from JSON."""
    parsing.check_turns([message], NAME, "turns")
    return _items(message, "messages[0]")


def _read(body: JsonObject) -> tuple[JsonObject, list[JsonObject], JsonObject, JsonObject]:
    """Settings, tools, native keys and spelling, such that rendering them gives the very keys."""
    settings, native = fields.read_fields(FIELDS, {key: value for key, value in body.items() if key not in _APART})
    settings |= read_choice(body.get("tool_choice"))
    spelling: JsonObject = {} if "max_tokens" in body else {"absent": ["max_tokens"]}
    if (read := joining.read_system(body.get("system"))) is not None:
        settings["instructions"], spelling["system"] = read
    elif "system" in body:
        place = spelling if body["system"] == [] else native
        place["system"] = body["system"]
    tools = _tools(body.get("tools"))
    if body.get("tools") == []:
        spelling["empty"] = ["tools"]
    rendered = _rendered(settings, tools, native, spelling)
    if rendered is None:  # settings that contradict each other, which some servers take
        settings = {name: settings[name] for name in ("model", "instructions") if name in settings}
        rendered = _rendered(settings, tools, native, spelling) or {}
    native |= {k: value for k, value in body.items() if k not in ("messages", "system") and rendered.get(k) != value}
    return settings, tools, native, spelling


def _tools(tools: Any) -> list[JsonObject]:
    listed = tools if isinstance(tools, list) else []
    return [tool_from_wire(tool if isinstance(tool, str) else body_object(tool)) for tool in listed]


def _rendered(
    settings: JsonObject, tools: list[JsonObject], native: JsonObject, spelling: JsonObject
) -> JsonObject | None:
    """The request that the settings give; None where they contradict each other."""
    try:
        return head({**settings, "extra": {NAME: native}} if native else settings, tools, spelling, Context())
    except CannotRender:
        return None


def _read_turns(messages: Any) -> list[list[JsonObject]]:
    if not isinstance(messages, list):
        raise CannotParse(f"The messages are {shortened(messages)}, not a list.", hint=parsing.SENT_REQUEST)
    return [_items(body_object(message), f"messages[{index}]") for index, message in enumerate(messages)]


def _items(message: Any, path: str) -> list[JsonObject]:
    """The item objects of a message; keys of its own are on the first item that is a message."""
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str):
        raise CannotParse(f"{path} is {shortened(message)}, not a message.", hint="Pass an object with a role.")
    content = parsing.checked_content(message, path)
    if not isinstance(content, str | list | None):
        raise CannotParse(f"{path}.content is {shortened(content)}.", hint="Pass text, or a list of blocks.")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    items = parts.items_of([wire if isinstance(wire, str) else body_object(wire) for wire in blocks], role)
    if isinstance(content, str):
        items[0]["spelling"] = TEXT
    keys = {key: value for key, value in message.items() if key not in ("role", "content") and value is not None}
    if keys or not items:
        _tell(items, role, keys)
    return items


def _tell(items: list[JsonObject], role: str, keys: JsonObject) -> None:
    """Note what a message says besides its blocks, or that it came without any."""
    if all(item["type"] != "message" for item in items):
        items.insert(0, {"type": "message", "role": role, "content": [], "origin": NAME})
    if keys:
        next(item for item in items if item["type"] == "message")["native"] = {NAME: keys}


def _usual_content(turns: Sequence[Sequence[JsonObject]]) -> JsonObject:
    """How most messages of one text are spelled, noted once for the request; the others have a note of their own."""
    messages = [turn[0] for turn in turns if len(turn) == 1 and turn[0]["type"] == "message"]
    lone = [item for item in messages if len(item["content"]) == 1 and item["content"][0].keys() == {"type", "text"}]
    strings = [item for item in lone if item.get("spelling") == TEXT]
    if not strings or len(strings) * 2 < len(lone):
        return {}
    for item in lone:
        if item.pop("spelling", None) is None:
            item["spelling"] = LIST
    return {"content": TEXT}
