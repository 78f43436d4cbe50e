"""What becomes of a request for a vendor that speaks Chat Completions in its own way, see `formats.shared.dialects`.

* The token limit, the effort and some other keys have other names; what the vendor refuses is left out and reported.
* Every assistant message has a key for its reasoning, where the vendor requires that while the model reasons.
* A final assistant message is marked as one to be continued, where the vendor has a key for that.
* Call ids have the vendor's form: the id without what it does not take, else a hash.
* Messages have the keys alone that the vendor takes, and answers the parts: others may come from another vendor.

Sources: see `formats.shared.dialects`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.tool_names import hashed
from threadkeep.formats.chat_completion.fields import FIELDS, LIMIT, reasoning_effort, reasoning_object
from threadkeep.formats.shared.cache_marks import MARK, mark_request
from threadkeep.formats.shared.dialects import OFF, Dialect, Family, family_of
from threadkeep.formats.shared.fields import EFFORT, FieldGroup, Row, effort_of
from threadkeep.formats.shared.provider_rules import ProviderRules
from threadkeep.formats.shared.reports import Context

_TEXT_KEYS: Final = frozenset({"type", "text", MARK})
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


def _reasoning_in(family: Family, value: Any, context: Context) -> JsonObject:
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
        return {**body, **mark_request({"tools": body["tools"]})} if "tools" in body else body
    first, *others = body["messages"]
    is_system = first.get("role") in ("system", "developer")
    system = {"system": first.get("content")} if is_system else {}
    end = end if end is None else max(end - is_system, 0)
    marked = mark_request({**body, **system, "messages": others if is_system else [first, *others]}, end)
    if is_system:
        marked["messages"] = [{**first, "content": marked.pop("system")}, *marked["messages"]]
    return marked
