"""Small builders for the tests of formats, with good defaults."""

from __future__ import annotations

from typing import Any

from threadkeep.domain.rendering import Rendered, RenderOptions
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.canonical.entries import ItemEntry, ServerState, Snapshot, entry_of

Json = dict[str, Any]


def user(*parts: str | Json, role: str = "user", **keys: Any) -> Json:
    """A message of texts and parts."""
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": part} if isinstance(part, str) else part for part in parts]
    return {"type": "message", "role": role, "content": content, **keys}


def assistant(*parts: str | Json, **keys: Any) -> Json:
    """A message of the model."""
    return user(*parts, role="assistant", **keys)


def call(call_id: str = "c1", name: str = "lookup", arguments: str = "{}", **keys: Any) -> Json:
    """A function call."""
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **keys}


def output(call_id: str = "c1", text: Any = "done", **keys: Any) -> Json:
    """What a call returned."""
    return {"type": "function_call_output", "call_id": call_id, "output": text, **keys}


def reasoning(**keys: Any) -> Json:
    """A reasoning item that can be sent back."""
    return {"type": "reasoning", "encrypted_content": "gAAA", "summary": [], **keys}


def answer(*items: Json, origin: str = "open_responses", seen: int | None = None) -> list[tuple[Json, int | None, Any]]:
    """The items of a response, for `snapshot`; `seen` is the last position that its request showed."""
    return [({**item, "origin": origin}, seen, object()) for item in items]


def snapshot(
    *items: Any, tools: list[Json] | None = None, state: ServerState | None = None, **settings: Any
) -> Snapshot:
    """A conversation of items and answers."""
    entries: list[ItemEntry] = []
    turns: dict[int, int] = {}
    for number, thing in enumerate(items):
        found = [(thing, None, None)] if isinstance(thing, dict) else thing
        start = len(entries)
        for item, seen, turn in found:
            shown = None if turn is None else (start - 1 if seen is None else seen)
            group = None if turn is None else turns.setdefault(number, number)
            entries.append(entry_of(item, position=len(entries), turn=group, seen=shown))
    return Snapshot({"model": "gpt-5.4", **settings}, tools or [], entries, state)


def render(format_name: FormatName, *items: Any, options: RenderOptions | None = None, **settings: Any) -> Rendered:
    """A rendered conversation."""
    return get_format(format_name).render(snapshot(*items, **settings), options or RenderOptions())


def codes(rendered: Rendered) -> tuple[list[str], list[str]]:
    """The codes of losses and repairs."""
    return [loss.code for loss in rendered.losses], [repair.code for repair in rendered.repairs]
