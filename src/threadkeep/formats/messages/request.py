"""The request of the Messages API.

* Instructions lead the system text; system items follow them there, wherever they stand.
* What a request that came from the wire said in keys of its own goes back as it came.
* `messages` is the last key.

Source: Anthropic's API reference, "Messages", create.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.formats.messages import cache_marks, joining
from threadkeep.formats.messages.fields import EXTRAS, FIELDS, NAME, NAMES
from threadkeep.formats.messages.settings import fit
from threadkeep.formats.messages.tools import tool_choice, wire_tools
from threadkeep.formats.messages.turns import Turn, Writer
from threadkeep.formats.shared.claude import follows, thinking_type
from threadkeep.formats.shared.fields import Field, render_fields
from threadkeep.formats.shared.pairing import left_alone, paired
from threadkeep.formats.shared.provider_rules import FILLER
from threadkeep.formats.shared.rendering import Rendering, begin, no_model, report_filler
from threadkeep.formats.shared.reports import Context
from threadkeep.formats.shared.views import repeated_turns

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

# option -> the key that it becomes; where `extra.messages` has the key, the option is not looked at
KEYS: Final = {
    **{row.option: row.target for row in FIELDS if isinstance(row, Field) and "." not in row.target},
    "tool_choice": "tool_choice",
    "parallel_tool_calls": "tool_choice",
}


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
    thinks = thinking_type(body) == "enabled"
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
        body = cache_marks.with_own_marks(body, context, repeated_turns(rendering.view, options, stable))
    return rendering.finish(body, stable)


def head(settings: JsonObject, tools: Sequence[JsonObject], spelling: JsonObject, context: Context) -> JsonObject:
    """The request without system text and messages."""
    extra = settings.get("extra") or {}
    own = extra.get(NAME)
    native = own if isinstance(own, dict) else {}
    settings = {name: value for name, value in settings.items() if KEYS.get(name) not in native}
    body = render_fields(FIELDS, settings, context)
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


def _with_news_last(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The entries with what came in while the newest answer was made behind it: the service does not hold that."""
    answer = next((entry for entry in reversed(entries) if entry.seen is not None), None)
    if answer is None or answer.seen is None:
        return entries
    seen = answer.seen
    new = [entry for entry in entries if entry.position > seen and entry.turn != answer.turn]
    return [*(entry for entry in entries if entry.position <= seen or entry.turn == answer.turn), *new]


def _turns(rendering: Rendering, *, is_continued: bool) -> tuple[list[Turn], list[JsonObject]]:
    """The messages that are sent, and the system text that leads them."""
    snapshot, context = rendering.snapshot, rendering.context
    entries = _with_news_last(rendering.entries) if is_continued else rendering.entries
    takes_system = follows(snapshot.settings.get("model"), "inner system")
    writer = Writer(rendering, paired(entries, left_alone(snapshot, NAME)), takes_system=takes_system)
    writer.write(entries)
    turns = joining.joined(joining.without_open_uses(writer.turns, context), context)
    turns, inner = joining.placed(joining.filled(turns, context), context)
    if not turns:
        report_filler(entries, context, FILLER)
        turns = [joining.ellipsis()]
    turns = joining.since_answer(turns) if is_continued else turns
    return joining.with_leader(turns, context), [*writer.hoisted, *inner]
