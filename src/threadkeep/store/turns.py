"""A whole turn in one transaction: what is asked, and the provider's response to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from threadkeep.domain.formats import Format, get_format
from threadkeep.domain.items import FunctionCallOutput, Item, are_items, items_from, message_of
from threadkeep.domain.rendering import Rendered
from threadkeep.domain.running import StoredTurn
from threadkeep.domain.typed import TypedObject
from threadkeep.store.handle import Handle
from threadkeep.store.importing import new_items, open_calls, provider_json, resolve_calls
from threadkeep.store.item_rows import author_of, encode_item
from threadkeep.store.items import NewItems, TurnInput, read_appended
from threadkeep.store.ledger import CallInfo
from threadkeep.store.positions import AppendOptions
from threadkeep.store.responses import add_answer


def add_turn(
    handle: Handle,
    input: Any,
    body: Any,
    format: str,
    rendered: Rendered | None,
    options: AppendOptions,
    call: CallInfo,
) -> StoredTurn:
    """Append what was asked, and the response; see `Conversation.add_turn`."""
    ref, turn = handle.ref, _turn_input(handle, get_format(format), input)
    response, result = add_answer(handle, body, format, rendered, options, call, turn)
    asked = result.input
    if asked is None:
        return StoredTurn([], response)
    if asked.is_replayed:
        return StoredTurn(handle.transactions.read(lambda connection: read_appended(connection, ref, asked)), response)
    return StoredTurn(turn.items.stored(ref, asked), response)


def _turn_input(handle: Handle, wire: Format, given: Any) -> TurnInput:
    """The items of an input: text or content of a message, items, or turns in the provider's format."""
    elements = given if isinstance(given, list | tuple) else [given]
    if elements and all(map(_is_turn, elements)):
        return _provider_turns(handle, wire, given)
    items: Sequence[Item]
    if isinstance(given, list | tuple) and are_items(given):
        items = items_from(given, "input")
    elif isinstance(given, Item) or (isinstance(given, Mapping) and are_items([given])):
        items = items_from([given], "input")
    else:
        items = [message_of("user", given)]
    objects = [item.to_object() for item in items]
    pairs = zip(items, objects, strict=True)
    new = NewItems(items, [encode_item(value, author_id=author_of(item)) for item, value in pairs])
    return TurnInput(new, {"items": objects})


def _is_turn(value: object) -> bool:
    """Whether it looks like a message of a provider's API, or an object of its SDK."""
    if isinstance(value, Mapping):
        return "type" not in value and ("role" in value or "parts" in value)
    return not isinstance(value, TypedObject) and callable(getattr(value, "model_dump", None))


def _provider_turns(handle: Handle, wire: Format, given: Any) -> TurnInput:
    """Turns as items; outputs that do not name their call are those of the calls that are open now."""
    value = provider_json(given)
    parsed: Sequence[Sequence[Item]] = wire.parse_turns(value)
    if any(isinstance(item, FunctionCallOutput) for turn in parsed for item in turn):
        entries = handle.read_snapshot(is_current=True).entries
        calls = open_calls(entries)
        parsed = resolve_calls(wire.parse_turns(value, calls), entries, calls)
    items = [item for turn in parsed for item in turn]
    numbers = [number for number, turn in enumerate(parsed) for _ in turn]
    return TurnInput(new_items(items, numbers), {"turns": value})
