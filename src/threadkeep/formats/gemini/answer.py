"""The items of a content of the model: thoughts, texts, calls, and blocks that only this format knows.

* Neighbouring thoughts are one reasoning item, neighbouring texts one message.
* What is no thought, text or call is a block: a part of the open message, else an item of its own.
* Thought signatures stay with their part, also on an empty one.
* A call without an id gets one that is derived from the body; `native` says that it came without.

Source: Google's Gemini API reference, "Part"; "Thought signatures".
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, canonical, dumps
from threadkeep.formats.gemini.calls import own_call
from threadkeep.formats.gemini.content import own_part, own_thought
from threadkeep.formats.gemini.fields import NAME
from threadkeep.formats.gemini.spelling import difference, levelled, noted
from threadkeep.formats.native import block
from threadkeep.formats.reports import Context

MADE: Final = "gemini_call_"
_SEED: Final = 8


class Ids:
    """Ids for the calls of one response: their own, else ``gemini_call_<seed>_<number>``."""

    def __init__(self, seed: str) -> None:
        self._seed, self._count = seed, 0

    def take(self, own: Any) -> str:
        """The id of the next call."""
        number, self._count = self._count, self._count + 1
        return own if isinstance(own, str) and own else f"{MADE}{self._seed}_{number}"


def seed_of(value: Any) -> str:
    """Hexadecimal digits that stand for a JSON value."""
    return hashlib.sha256(canonical(value)).hexdigest()[:_SEED]


def items_of(parts: Sequence[Any], ids: Ids) -> list[JsonObject]:
    """The items of a content of the model."""
    reader = Reader(ids)
    for part in parts:
        reader.read(part)
    return reader.items


class Reader:
    """Reads part by part; the last item is open for parts of its kind."""

    def __init__(self, ids: Ids) -> None:
        self.items: list[JsonObject] = []
        self._ids = ids

    def read(self, part: Any) -> None:
        """Take in the next part."""
        names: set[str] = set()
        known = levelled(part, names) if isinstance(part, dict) else {}
        if is_call(known):
            self.items.append(call_item(known, names, self._ids))
        elif is_thought(known):
            self._open("reasoning").append(thought_in(known, names))
        elif is_text(known):
            self._open("message").append(text_in(known, names, "output_text"))
        elif self.items and self.items[-1]["type"] == "message":
            self.items[-1]["content"].append(block(part, NAME))
        else:
            self.items.append({**block(part, NAME), "origin": NAME})

    def _open(self, kind: str) -> list[JsonObject]:
        """The parts of the open item of a type; a new one's where the last item is of another."""
        if not self.items or self.items[-1]["type"] != kind:
            role = {"role": "assistant"} if kind == "message" else {}
            self.items.append({"type": kind, **role, "content": [], "origin": NAME})
        found: list[JsonObject] = self.items[-1]["content"]
        return found


def is_call(part: JsonObject) -> bool:
    """Whether a part is a call that can be kept as one."""
    call = part.get("functionCall")
    if not isinstance(call, dict):
        return False
    is_named = isinstance(call.get("name"), str | None) and isinstance(call.get("id"), str | None)
    return is_named and isinstance(call.get("args"), dict | None) and _is_signed(part)


def is_text(part: JsonObject) -> bool:
    """Whether a part is a text."""
    return isinstance(part.get("text"), str) and _is_signed(part)


def is_thought(part: JsonObject) -> bool:
    """Whether a part is a thought; one may have no text, and only a signature."""
    is_bare = part.keys() <= {"thought", "thoughtSignature"} and _is_signed(part)
    return part.get("thought") is True and (is_bare or is_text(part))


def _is_signed(part: JsonObject) -> bool:
    return isinstance(part.get("thoughtSignature"), str | None)


def call_item(part: JsonObject, names: set[str], ids: Ids) -> JsonObject:
    """A call."""
    call = part["functionCall"]
    found: JsonObject = {
        "type": "function_call",
        "call_id": ids.take(call.get("id")),
        "name": call.get("name") or "",
        "arguments": dumps(call.get("args") or {}).decode(),
        "origin": NAME,
        **_signature(part),
        **noted(names),
    }
    return with_native(found, part, own_call(found, Context()))


def text_in(part: JsonObject, names: set[str], kind: str) -> JsonObject:
    """A text."""
    found = {"type": kind, "text": part["text"], **_signature(part), **noted(names)}
    return with_native(found, part, own_part({"type": kind, "text": part["text"], **_signature(part)}))


def thought_in(part: JsonObject, names: set[str]) -> JsonObject:
    """A thought, as a block of a reasoning item."""
    made = {"type": "thinking", "thinking": part.get("text") or ""}
    if part.get("thoughtSignature") is not None:
        made["signature"] = part["thoughtSignature"]
    return with_native({**made, **noted(names)}, part, own_thought(made))


def with_native(piece: JsonObject, part: JsonObject, made: JsonObject) -> JsonObject:
    """A piece with a note of what its part says that it does not; `made` is what it says."""
    strange = difference(part, made)
    return {**piece, "native": {NAME: strange}} if strange else piece


def _signature(part: JsonObject) -> JsonObject:
    found = part.get("thoughtSignature")
    return {} if found is None else {"thought_signature": found}
