"""What vendors and servers of Chat Completions take: their keys, and the order of messages.

A vendor that speaks the format in its own way (`formats.shared.dialects`) gets other keys:

* The token limit, the effort and some other keys have other names; what the vendor refuses is left out and reported.
* Every assistant message has a key for its reasoning, where the vendor requires that while the model reasons.
* A final assistant message is marked as one to be continued, where the vendor has a key for that.
* Call ids have the vendor's form: the id without what it does not take, else a hash.
* Messages have the keys alone that the vendor takes, and answers the parts: others may come from another vendor.

Messages stand in the order that servers take (`formats.shared.provider_rules`):

* System text leads in one message, where a server takes it there alone; what comes later is sent as the user's text.
* Neighbours of one role are joined, where user and assistant must alternate.
* Fillers stand where a server requires a turn that the conversation does not have: before a leading assistant message,
  between a tool message and the user's, and behind a last assistant message that is not continued.
* Messages without text are left out where they are refused.
* The messages of an imported request stay as they came.

Sources: see the tables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.tool_names import hashed
from threadkeep.formats.chat_completion.fields import FIELDS, LIMIT, reasoning_effort, reasoning_object
from threadkeep.formats.shared import cache_marks, rendering
from threadkeep.formats.shared.dialects import OFF, Dialect, ModelFamily, family_of
from threadkeep.formats.shared.fields import EFFORT, FieldGroup, Row, effort_of
from threadkeep.formats.shared.provider_rules import FILLER, ProviderRules
from threadkeep.formats.shared.reports import Context

_TEXT_KEYS: Final = frozenset({"type", "text", cache_marks.MARK})
_REFUSED: Final = re.compile("[^A-Za-z0-9]")


def rows_of(dialect: Dialect, model: object) -> Sequence[Row]:
    """The table of options for a model of the vendor."""
    family = family_of(dialect, model)
    if dialect.reasoning == "object":
        row = FieldGroup("reasoning", ("reasoning",), reasoning_object)
    elif family is not None:
        row = FieldGroup("reasoning", ("reasoning_effort", "thinking"), partial(_reasoning_in, family))
    elif (words := dialect.efforts) is not None:
        row = FieldGroup("reasoning", ("reasoning_effort",), partial(_effort_in, words))
    else:
        return FIELDS
    return [row if usual.option == "reasoning" else usual for usual in FIELDS]


def _effort_in(words: Mapping[str, str], value: Any, context: Context) -> JsonObject:
    """The effort in words that the vendor takes."""
    word = effort_of({"effort": reasoning_effort(value, context)}, words, context)
    return {} if word is None else {"reasoning_effort": word}


def _reasoning_in(family: ModelFamily, value: Any, context: Context) -> JsonObject:
    """The effort as models of a family take it."""
    effort = reasoning_effort(value, context)
    if not effort or not isinstance(effort, str):
        effort_of({"effort": effort}, {}, context)
        return {}
    is_off = effort in OFF
    if is_off and family.off is not None:
        return dict(family.off)
    if family.efforts is None:
        detail = f"The effort {effort!r} was sent as reasoning turned on: the model has no degrees of it."
        context.repair("range", EFFORT, detail)
        return dict(family.on)
    word = family.efforts.get("off" if is_off else effort, effort)
    if word != effort:
        detail = f"The effort {effort!r} was sent as {word!r}, the nearest there is."
        context.repair("range", EFFORT, detail)
    return {**family.on, "reasoning_effort": word}


def vendor_body(body: JsonObject, dialect: Dialect, context: Context) -> JsonObject:
    """The options and tools of a request under the vendor's names, without what it refuses."""
    family = family_of(dialect, body.get("model"))
    limit = dialect.limit or (None if family is None else family.limit)
    names = {**dialect.renamed, **({} if limit is None else {LIMIT: limit, "max_tokens": limit})}
    for key in sorted(dialect.lacks & body.keys()):
        context.loss("option", key, f"{key} was left out: the vendor does not take it.")
    renamed = {names.get(key, key): value for key, value in body.items() if key not in dialect.lacks}
    choice = renamed.get("tool_choice")
    if isinstance(choice, str) and choice in dialect.choices:
        renamed["tool_choice"] = dialect.choices[choice]
    return renamed


def vendor_keys(message: JsonObject, dialect: Dialect, context: Context) -> JsonObject:
    """A message without the keys that the vendor refuses, and an answer without the parts; else the message itself."""
    role = message.get("role")
    known = dialect.keys.get(role) if dialect.keys and isinstance(role, str) else None
    if known is None:
        return message
    for key in sorted(message.keys() - known):
        if message[key] not in (None, "", []):
            context.loss("native", key, f"{key} was left out: the vendor does not take it.")
    kept = {key: value for key, value in message.items() if key in known}
    if role == "assistant" and dialect.parts is not None and isinstance(content := kept.get("content"), list):
        kept["content"] = [part for part in content if _is_taken(part, dialect.parts, context)] or None
    return kept


def _is_taken(part: Any, types: Collection[str], context: Context) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind in types:
        return True
    context.loss("part", "content", f"A part of type {kind!r} was left out: the vendor does not take it.")
    return False


def vendor_messages(messages: list[JsonObject], dialect: Dialect, settings: JsonObject, context: Context) -> None:
    """Make messages what the vendor takes."""
    reasoning = settings.get("reasoning")
    is_off = isinstance(reasoning, dict) and reasoning.get("effort") in OFF
    for message in messages:
        if dialect.plain_texts and isinstance(message.get("content"), list):
            message["content"] = _plain(message["content"], context)
        if dialect.thoughts is not None and not is_off and message.get("role") == "assistant":
            message.setdefault(dialect.thoughts, "")
    if dialect.prefix is not None and messages and messages[-1].get("role") == "assistant":
        messages[-1].setdefault(dialect.prefix, True)
    if dialect.call_id is not None:
        _rename_calls(messages, dialect.call_id, context)


def _plain(content: list[Any], context: Context) -> list[Any]:
    """Content whose text parts hold only text; content without any text becomes three dots."""
    parts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            parts.append(part)
        elif part.get("text"):
            parts.append({key: value for key, value in part.items() if key in _TEXT_KEYS and value is not None})
            if len(parts[-1]) < len(part):
                context.loss("native", "content", "Keys of a text part were left out: the vendor takes only its text.")
        else:
            context.repair("blank_text", "content", "An empty text was left out.")
    return parts or [{"type": "text", "text": "..."}]


def _rename_calls(messages: Sequence[JsonObject], form: re.Pattern[str], context: Context) -> None:
    """Give calls ids of the vendor's form, and their outputs the same."""
    names: dict[str, str] = {}
    for holder, key in _ids_in(messages):
        original = holder[key]
        if original not in names:
            names[original] = _id_of(original, form, set(names.values()))
            if names[original] != original:
                detail = f"The call id {original!r} is sent as {names[original]!r}: the vendor requires that form."
                context.repair("call_id", "call_id", detail)
        holder[key] = names[original]


def fit_calls(messages: Sequence[JsonObject], rules: ProviderRules, context: Context, *, fixed: int) -> None:
    """Give calls, and their outputs, ids that are not too long, and report too many calls.

    The first `fixed` messages go back as they came.
    """
    longest, most = rules.longest_call_id, rules.calls
    if longest is None and most is None:
        return
    kept = {holder[key] for holder, key in _ids_in(messages[:fixed])}
    for holder, key in _ids_in(messages[fixed:]):
        original = holder[key]
        if longest is not None and len(original) > longest and original not in kept:
            holder[key] = f"call_{hashed(original)}"
            if key == "id":
                detail = f"The call id {original!r} became a hash: the provider takes {longest} characters."
                context.repair("call_id", "call_id", detail)
    for message in messages[fixed:]:
        calls = message.get("tool_calls")
        if most is not None and isinstance(calls, list) and len(calls) > most:
            detail = f"A message has {len(calls)} calls; the provider takes {most}."
            context.loss("refused", "tool_calls", detail)


def _ids_in(messages: Sequence[JsonObject]) -> Iterator[tuple[JsonObject, str]]:
    """Where ids of calls stand: the object and its key."""
    for message in messages:
        calls = message.get("tool_calls")
        places = [(call, "id") for call in (calls if isinstance(calls, list) else ()) if isinstance(call, dict)]
        for holder, key in [*places, (message, "tool_call_id")]:
            if isinstance(holder.get(key), str):
                yield holder, key


def _id_of(original: str, form: re.Pattern[str], taken: set[str]) -> str:
    """The id itself, else what is left of it, else a hash; never one that is taken."""
    call_id = original if form.fullmatch(original) else _REFUSED.sub("", original)
    if form.fullmatch(call_id) and call_id not in taken:
        return call_id
    hashes = (hashed(original, number or None)[:9] for number in count())
    return next(call_id for call_id in hashes if call_id not in taken)


def with_marks(body: JsonObject, dialect: Dialect, end: int | None) -> JsonObject:
    """A request with cache marks, where the vendor takes them for the model: on tools, or on content, too."""
    model = body.get("model")
    if dialect.marks == "none" or not (isinstance(model, str) and dialect.marked_models.search(model)):
        return body
    if dialect.marks == "tools":
        return {**body, **cache_marks.mark_request({"tools": body["tools"]})} if "tools" in body else body
    first, *others = body["messages"]
    is_system = first.get("role") in ("system", "developer")
    system = {"system": first.get("content")} if is_system else {}
    end = end if end is None else max(end - is_system, 0)
    marked = cache_marks.mark_request({**body, **system, "messages": others if is_system else [first, *others]}, end)
    if is_system:
        marked["messages"] = [{**first, "content": marked.pop("system")}, *marked["messages"]]
    return marked


SYSTEM_ROLES: Final = frozenset({"system", "developer"})
SYSTEM_NOTE: Final = "System message:"  # before system text that is sent as the user's
_SEAM: Final = "\n\n"
_INSTEAD: Final = ("tool_calls", "function_call", "refusal", "audio")  # keys with which a message needs no text


class PlacedMessage(NamedTuple):
    """A message at its place."""

    message: JsonObject
    end: int  # how many of the written messages are in it and before it
    is_fixed: bool = False  # whether it goes back as it came

    @property
    def role(self) -> str | None:
        """The role of the message; None: it came with something else in its place."""
        role = self.message.get("role")
        return role if isinstance(role, str) else None


def in_order(
    messages: Sequence[JsonObject], rules: ProviderRules, context: Context, *, stable: int, fixed: int = 0
) -> tuple[list[JsonObject], int]:
    """The messages as the server takes them, and how many of them no later append changes.

    `stable` is that number of the messages as they were written; the first `fixed` of them go back as they came.
    """
    if rules.takes_any_order:
        return list(messages), stable
    placed = [PlacedMessage(message, index + 1, index < fixed) for index, message in enumerate(messages)]
    if rules.system != "anywhere" or not rules.takes_developer:
        placed = _with_system_text(placed, rules, context)
    if rules.blank != "taken" or rules.needs_content:
        placed = [one for given in placed if (one := _with_text(given, rules, context)) is not None]
    if rules.alternates:
        placed = _joined(placed)
    placed = _with_fillers(placed, rules, context)
    count = sum(one.end <= stable for one in placed)
    if 0 < count == len(placed) and _may_grow(placed[-1], rules):
        count -= 1
    if _needs_user(placed, rules, context):
        placed.append(PlacedMessage({"role": "user", "content": FILLER}, len(messages)))
    return [one.message for one in placed], count


def _may_grow(last: PlacedMessage, rules: ProviderRules) -> bool:
    """Whether what comes next may be joined to the last message."""
    return rules.alternates or (rules.system == "leading" and last.role == "system")


# System text


def _with_system_text(placed: Sequence[PlacedMessage], rules: ProviderRules, context: Context) -> list[PlacedMessage]:
    result: list[PlacedMessage] = []
    for one in placed:
        if one.role not in SYSTEM_ROLES or one.is_fixed:
            result.append(one)
        elif rules.system == "as user" or (rules.system == "leading" and any(_is_turn(other) for other in result)):
            what = f"The {one.role} message was sent as the user's: the server takes none there."
            context.repair("role", "role", what)
            note = _plus(SYSTEM_NOTE, one.message.get("content"))
            result.append(one._replace(message={**one.message, "role": "user", "content": note}))
        elif rules.system == "leading" and result and not result[-1].is_fixed:
            result[-1] = _join(result[-1], one)
        else:
            role = one.role if rules.takes_developer else "system"
            result.append(one._replace(message={**one.message, "role": role}))
    return result


def _is_turn(one: PlacedMessage) -> bool:
    return one.role not in SYSTEM_ROLES


# Texts


def _with_text(one: PlacedMessage, rules: ProviderRules, context: Context) -> PlacedMessage | None:
    """A message without the texts that are refused; None where nothing is left of it."""
    if one.is_fixed or one.role == "tool":
        return one
    content = one.message.get("content")
    kept = _without_blanks(content, rules)
    if not kept and not any(one.message.get(key) for key in _INSTEAD):
        context.repair("blank_text", "content", f"A message of the {one.role} without text was left out.")
        rest = {key: value for key, value in one.message.items() if key not in ("role", "content")}
        if others := [key for key, value in rest.items() if value not in (None, "", [])]:
            context.loss("reasoning", "", f"Keys of a message without text were left out: {', '.join(others)}.")
        return None
    if kept == content:
        return one
    if content:  # next to calls, an empty one says the same as none, which Bedrock takes behind this format
        context.repair("blank_text", "content", "A blank text was left out.")
    return one._replace(message={**one.message, "content": kept})


def _without_blanks(content: Any, rules: ProviderRules) -> Any:
    """Content without texts that are refused; None where none is left."""
    texts = [part.get("text") for part in _as_parts(content) if isinstance(part, dict)]
    has_text = any(isinstance(text, str) and text.strip() for text in texts)

    def is_taken(text: Any) -> bool:
        is_blank = isinstance(text, str) and not (text if rules.blank != "some text" or has_text else text.strip())
        return not is_blank

    if not isinstance(content, list):
        return content if content and is_taken(content) else None
    return [part for part in content if not isinstance(part, dict) or is_taken(part.get("text"))] or None


# Neighbours


def _joined(placed: Sequence[PlacedMessage]) -> list[PlacedMessage]:
    result: list[PlacedMessage] = []
    for one in placed:
        if result and one.role in ("user", "assistant") and result[-1].role == one.role and not result[-1].is_fixed:
            result[-1] = _join(result[-1], one)
        else:
            result.append(one)
    return result


def _join(first: PlacedMessage, second: PlacedMessage) -> PlacedMessage:
    """Two messages of one role as one; where they have one key, its texts and lists are joined."""
    message = dict(first.message)
    for key, value in second.message.items():
        if key == "content":
            message[key] = _plus(message.get(key), value)
        elif isinstance(value, list) and isinstance(message.get(key), list):
            message[key] = [*message[key], *value]
        elif key not in ("role", "name") and isinstance(value, str) and isinstance(message.get(key), str):
            message[key] = _plus(message[key], value)
        else:
            message.setdefault(key, value)
    return PlacedMessage(message, second.end)


def _plus(first: Any, second: Any) -> Any:
    """Contents one behind the other: texts as one text, else as parts."""
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return first + _SEAM + second
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


# Fillers


def _with_fillers(placed: Sequence[PlacedMessage], rules: ProviderRules, context: Context) -> list[PlacedMessage]:
    result: list[PlacedMessage] = []
    for one in placed:
        before = next((other.role for other in reversed(result) if _is_turn(other)), None)
        if before is None and one.role == "assistant" and rules.starts_with_user and not one.is_fixed:
            context.repair("leading_assistant", "", "A user message was put first: the server begins with one.")
            result.append(PlacedMessage({"role": "user", "content": FILLER}, one.end - 1))
        elif before == "tool" and one.role == "user" and not rules.user_after_tool and not one.is_fixed:
            detail = "An assistant message was put between a tool's output and the user's message."
            context.repair("turn_order", "", detail)
            result.append(PlacedMessage({"role": "assistant", "content": FILLER}, one.end - 1))
        result.append(one)
    return result


def _needs_user(placed: Sequence[PlacedMessage], rules: ProviderRules, context: Context) -> bool:
    """Whether a filler of the user must be the last message."""
    last = placed[-1] if placed else None
    if last is None:
        context.repair("blank_text", "", f"All messages are blank: the user's {FILLER!r} was sent.")
        return True
    if last.role in ("user", "tool"):
        return False
    if last.role == "assistant":
        return rendering.needs_last_turn(rules, context, is_as_came=last.is_fixed)
    if last.is_fixed or any(map(_is_turn, placed)) or not (rules.starts_with_user or rules.last_turn == "filled"):
        return False
    context.repair("last_turn", "", "A user message was added: the server takes no system text alone.")
    return True
