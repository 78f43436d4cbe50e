"""What only its provider can read, as `encrypted_content` of reasoning items: clients send it back as it is.

OpenAI's clients know no signatures of other providers. A reasoning item that lacks an `encrypted_content` of its own
gets one with the item as it is stored; signed calls and messages are in one more reasoning item, after them.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.server import body_limits, problems

PREFIX: Final = "threadkeep.1."
_KEY: Final = "encrypted_content"
_SIGNED: Final = frozenset({"signature", "data", "thought_signature", "encrypted_index", _KEY})


def sealed(item: JsonObject, given: Mapping[str, Any], provider: str) -> JsonObject:
    """Return an item with what its provider signed, as it is stored, if it is a reasoning item."""
    if item.get("type") != "reasoning" or item.get(_KEY) is not None or not _is_signed(given):
        return item
    return {**item, _KEY: seal(provider, [{"summary": [], **given}])}  # which one in progress may lack


def sealed_rest(output: Sequence[JsonObject], given: Iterable[Mapping[str, Any]], provider: str) -> list[JsonObject]:
    """Return one more reasoning item, with the signed calls and messages of a whole output; none for none."""
    signed = [one for one in given if one.get("type") != "reasoning" and _is_signed(one)]
    if not signed:
        return []
    id_ = f"rs_{str(output[-1].get('id')).partition('_')[2]}_signed"
    return [{"id": id_, "type": "reasoning", "summary": [], _KEY: seal(provider, signed)}]


def unsealed(items: Any, provider: str) -> Any:
    """Return the items of a request with what their provider signed; for another one, without what it cannot read.

    Raises:
        Problem: an item was changed since it was given out, or they have too many values.
    """
    if not isinstance(items, list):
        return items
    given = {index: decoded(item[_KEY]) for index, item in enumerate(items) if _is_sealed(item)}
    body_limits.check_values(b",".join(given.values()))  # of which that of the body knows nothing
    found, places = list[Any](), dict[bytes, int]()  # what each says, and where it was said last
    for index, item in enumerate(items):
        if index not in given:
            places[_what(item)] = len(found)
            found.append(item)
            continue
        maker, known = opened(given[index], f"input[{index}].{_KEY}")
        if known[0]["type"] == "reasoning":
            found.append(_with_id(known[0] if maker == provider else item | {_KEY: None}, item))
        elif maker == provider:
            for signed in known:
                if (place := places.get(_what(signed))) is not None:
                    found[place] = _with_id(signed, found[place])
    return found


def _is_sealed(item: Any) -> bool:
    match item:
        case {"type": "reasoning", "encrypted_content": str(text)}:
            return text.startswith(PREFIX)
    return False


def _with_id(item: JsonObject, known: JsonObject) -> JsonObject:
    """An item with the id by which its client knows it, if there is one."""
    return {**item, "id": known["id"]} if "id" in known else item


def _what(item: Any) -> bytes:
    """What an item says, however its content is spelled; a call has an id."""
    if not isinstance(item, dict):
        return b""
    if item.get("call_id") is not None:
        return dumps([item.get("type"), item["call_id"]])
    content = item.get("content")
    texts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else [content]
    return dumps([item.get("type", "message"), item.get("role"), texts])


def _is_signed(value: Any) -> bool:
    """Whether a value holds, at any depth, what only its maker can read."""
    if isinstance(value, list):
        return any(map(_is_signed, value))
    if not isinstance(value, Mapping):
        return False
    return any((key in _SIGNED and inner) or _is_signed(inner) for key, inner in value.items())


def seal(provider: str, given: Sequence[Mapping[str, Any]]) -> str:
    """Return items as an `encrypted_content`, with the name of who reads them."""
    items = [dict(sorted(one.items())) for one in given]
    return PREFIX + urlsafe_b64encode(dumps({"provider": provider, "items": items})).decode()


def decoded(text: str) -> bytes:
    """Return the JSON text of what was sealed; nothing of what is no such text."""
    try:
        return urlsafe_b64decode(text[len(PREFIX) :].encode())
    except (ValueError, binascii.Error):
        return b""


def opened(text: bytes, param: str) -> tuple[str, list[JsonObject]]:
    """Return who reads what was sealed, and the items, of which there is at least one.

    Raises:
        Problem: it was changed since.
    """
    try:
        value = loads(text)
    except ValueError:
        value = None
    match value:
        case {"provider": str(provider), "items": [_, *_] as items} if all(map(_is_item, items)):
            return provider, items
    problem = f"{param} is not as this server gave it out. Send it back unchanged, or leave the item out."
    raise problems.Problem(400, problem, param=param, code="invalid_encrypted_content")


def _is_item(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)
