"""Items that an application writes itself, read and checked.

A misspelt type, an image without a source or a message without content would be stored, and no model would see it:
each is refused. What came from a provider (it has an `origin`) is taken as it is, because a provider may send more
than threadkeep knows; so is what is marked as new by its class (`UnknownItem`, `UnknownPart`, `ProviderItem`) or by
``known=False``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from threadkeep.domain import items
from threadkeep.domain.content import (
    Content,
    InputText,
    MediaPart,
    OutputText,
    ProviderPart,
    Text,
    TypedObject,
    refuse_unknown_parts,
    unknown_word,
)
from threadkeep.domain.formats import format_names
from threadkeep.domain.ids import PREFIXES
from threadkeep.domain.jsontext import UNSET, at, check_finite, loads, mismatch
from threadkeep.domain.media import REFERENCE
from threadkeep.errors import InvalidItem, shown

ITEM_TYPES: Final = frozenset({*items.ITEMS, *PREFIXES, "compaction_trigger", "compaction_undone"})
ROLES: Final = ("user", "assistant", "system", "developer", "tool", "unknown", "critic", "discriminator")
_STATUSES: Final = (
    "in_progress", "completed", "incomplete", "failed", "searching", "generating", "interpreting", "calling",
)  # fmt: skip
_SIMILARITY: Final = 0.75  # from which a word counts as a misspelt one
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # of two letters or more: C: is a drive
_SOURCES: Final = ("url", "file_id", "file_url", "file_data")
_NEW_ITEM: Final = "For a new type of a provider, pass UnknownItem(type=…, …), or known=False."
_NO_SOURCE: Final = "Pass its URL, or its bytes as data=… with a media_type=…."


def written_item(value: object, path: str = "item", *, known: bool = True) -> items.Item:
    """Return the item of `item_from`, if it can be used; `known` False takes it as a provider or library has it."""
    item = items.item_from(value, path)
    if known and item.origin is None:
        _check(item, value, path)
    return item


def written_items(values: object, path: str = "items") -> list[items.Item]:
    """Return the items of a list; see `written_item`."""
    return [written_item(value, f"{path}[{index}]") for index, value in enumerate(_listed(values, path))]


def given_item(value: object, path: str = "item", *, known: bool = True) -> items.Item:
    """Return the item of `written_item`, which remembers the dict that it was read from, without the author."""
    item = written_item(value, path, known=known)
    if not isinstance(value, Mapping):
        return item
    return items.with_given(item, {key: inner for key, inner in value.items() if key != "author_id"})


def given_items(values: object, path: str = "items", *, known: bool = True) -> list[items.Item]:
    """Return the items of a list; see `given_item`."""
    return [given_item(value, f"{path}[{index}]", known=known) for index, value in enumerate(_listed(values, path))]


def _listed(values: object, path: str) -> Iterable[object]:
    if isinstance(values, str | bytes | Mapping | TypedObject) or not isinstance(values, Iterable):
        raise mismatch(InvalidItem, "a list of items", values, path)
    return values


def message_of(role: str, content: Content, author_id: str | None = None) -> items.Message:
    """Return a message written by the application."""
    if content is None:
        raise InvalidItem("must not be None.", argument="content", hint="Pass text, a part, or a list of these.")
    message = items.Message(role, content) if author_id is None else items.Message(role, content, author_id=author_id)
    _check(message, {"content": content}, "")
    return message


def call_output(
    call_id: str | None,
    output: items.Output | None = UNSET,
    result: items.Output | None = UNSET,
    status: str | None = None,
) -> items.FunctionCallOutput:
    """Return the output of a call; `result` is an alias of `output`."""
    if (output is UNSET) is (result is UNSET):
        problem = "is missing" if output is UNSET else "and result must not be passed together"
        hint = "Pass output=, text or a list of parts."
        raise InvalidItem(f"{problem} in the output of the call {shown(call_id)}.", argument="output", hint=hint)
    given = result if output is UNSET else output
    item = items.FunctionCallOutput(call_id=call_id, output=given, status=status)
    _check(item, {"output": given}, "")
    return item


# Checks


def _check(item: items.Item, given: object, path: str) -> None:
    """Refuse an item that a provider could not use; `given` is what it was read from."""
    raw = given if isinstance(given, Mapping) else {}
    match item:
        case items.Message():
            _check_message(item, raw, path)
        case items.FunctionCall():
            _check_filled(item, ("call_id", "name"), path)
            _check_arguments(item.arguments, at(path, "arguments"))
        case items.FunctionCallOutput():
            _check_output(item, raw, path)
        case items.ItemReference():
            _check_filled(item, ("id",), path)
        case items.ProviderItem():
            _check_word(item.format, format_names(), at(path, "format"))
        case items.UnknownItem() if raw and item.type not in ITEM_TYPES:
            raise unknown_word(item.type, ITEM_TYPES, "type of item", at(path, "type"), _NEW_ITEM)
    status = getattr(item, "status", None)
    if isinstance(status, str):
        _check_word(status, _STATUSES, at(path, "status"))
    check_finite(item.to_object(), path)


def _check_message(message: items.Message, given: Mapping[str, Any], path: str) -> None:
    if message.role not in ROLES:
        raise unknown_word(message.role, ROLES, "role", at(path, "role"), f"Roles: {', '.join(ROLES[:4])}.")
    content_path = at(path, "content")
    if given and given.get("content") is None:
        raise InvalidItem("is missing in a message.", argument=content_path, hint="Pass text or a list of parts.")
    # Some providers take white space, for others it is left out
    is_empty = all(isinstance(part, InputText | OutputText | Text) and not part.text for part in message.content)
    if is_empty and not message.is_assistant:
        problem = f"is empty in a message with the role {message.role}, which providers refuse."
        raise InvalidItem(problem, argument=content_path, hint="Pass text or a list of parts.")
    _check_parts(message.content, given.get("content"), content_path)


def _check_output(output: items.FunctionCallOutput, given: Mapping[str, Any], path: str) -> None:
    if output.call_id is not None:  # some providers give calls no ids; outputs answer these in order
        _check_filled(output, ("call_id",), path)
    if given and "output" not in given:
        raise InvalidItem("is missing in the output of a call.", argument=at(path, "output"))
    if isinstance(output.output, list):
        _check_parts(output.output, given.get("output"), at(path, "output"))


def _check_parts(parts: Sequence[object], given: object, path: str) -> None:
    """Refuse parts that a provider could not use; `given` is what they were read from, None of typed items."""
    if given is not None:
        refuse_unknown_parts(parts, given, path)
    for index, part in enumerate(parts):
        place = f"{path}[{index}]"
        if isinstance(part, ProviderPart):
            _check_word(part.format, format_names(), at(place, "format"))
        elif isinstance(part, MediaPart) and part.origin is None:
            _check_media(part, place)


def _check_media(part: MediaPart, path: str) -> None:
    """Refuse media without a source, and sources that no provider can read."""
    known, extra = part.__dict__, part.extra
    sources = [key for key in _SOURCES if (known.get(key) or extra.get(key)) is not None]
    if len(sources) > 1:
        raise InvalidItem("has more than one source.", argument=path, hint=f"Pass one of {', '.join(sources)}.")
    if part.url is None:
        if not sources and part.native is None:
            raise InvalidItem(f"has no source: {part.type} needs a `url`.", argument=path, hint=_NO_SOURCE)
        return
    scheme = _SCHEME.match(part.url)
    if scheme is None or scheme[0] == "file:":
        problem = f"must be a URL such as https://… or data:…, not {shown(part.url)}."
        hint = "Of a local file, pass its bytes: data=Path(…).read_bytes(), media_type=…."
        raise InvalidItem(problem, argument=at(path, "url"), hint=hint)
    if part.url.startswith(REFERENCE):
        problem = f"is the reference of stored media, which no provider can read: {shown(part.url)}."
        hint = "Pass the bytes: data=store.media(reference).content, media_type=…."
        raise InvalidItem(problem, argument=at(path, "url"), hint=hint)
    try:
        _ = part.data
    except InvalidItem as error:
        raise InvalidItem("does not contain base64.", argument=at(path, "url"), hint=error.hint) from error


def _check_arguments(text: str, path: str) -> None:
    if "NaN" not in text and "Infinity" not in text:
        return
    try:
        value = loads(text)
    except ValueError:  # as models write them now and then
        return
    check_finite(value, path)


def _check_filled(item: items.Item, names: Iterable[str], path: str) -> None:
    for name in names:
        if not getattr(item, name):
            raise mismatch(InvalidItem, "a string that is not empty", getattr(item, name), at(path, name))


def _check_word(word: str, known: Collection[str], path: str) -> None:
    """Refuse a word that looks like a known one, and is none; others may be a provider's."""
    if word not in known and get_close_matches(word, known, n=1, cutoff=_SIMILARITY):
        raise unknown_word(word, known, "word", path)
