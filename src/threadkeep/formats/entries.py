"""Items as rows: what is stored of an item, and the snapshot of a session that has no rows.

`items.payload` is the item as Open Responses sends it, whatever is rendered around it; `items.rest` is everything else
that is known of the item. The store writes what `entry_of` gives, and a session without a database renders through it,
too: there is one way from items to requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.jsontext import PLAIN, JsonObject, encode, encode_texts
from threadkeep.domain.overlay import overlay
from threadkeep.domain.wire import Entry, ServerState, Snapshot
from threadkeep.formats.open_responses.fields import ANSWER_KEYS, NAME, PART_KEYS, ROLES
from threadkeep.formats.open_responses.items import sized_call_id, wire_item
from threadkeep.formats.reports import Context

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

_MESSAGE_KEYS: Final = frozenset({"type", "role", "content"})
_OUTPUT_KEYS: Final = frozenset({"type", "call_id", "output"})
_TEXT_KEYS: Final = frozenset({"type", "text"})
_TEXTS: Final = frozenset(kind for kind, keys in PART_KEYS.items() if keys >= _TEXT_KEYS)
# the type of the texts of a role
_SAID: Final = {role: "output_text" if role == "assistant" else "input_text" for role in ROLES}
_OWN_KEYS: Final = ANSWER_KEYS["message"] | {"origin"}
_NONE: Final[frozenset[str]] = frozenset()


def entry_of(item: JsonObject, *, position: int, turn: int | None = None, seen: int | None = None) -> Entry:
    """The stored form of an item object.

    Raises:
        InvalidItem: the item holds something that JSON has no form for, or is nested too deeply.
    """
    if (found := _as_it_stands(item)) is not None:
        sent, has_texts_alone = found
        plain, codec = encode_texts(sent) if has_texts_alone else encode(sent)
        get = item.get
        return Entry(
            position, item["type"], get("role"), turn, seen, get("call_id"), get("origin"), payload=plain, codec=codec
        )
    full = {**item, "summary": item.get("summary") or []} if item["type"] == "reasoning" else item
    payload = wire_item(full, Context())
    over = overlay(full, payload) if _says_more(full, payload) else None
    text, codec = (None, PLAIN) if payload is None else encode(payload)
    rest, rest_codec = (None, PLAIN) if over is None else encode(over)
    role, origin = item.get("role"), item.get("origin")
    return Entry(
        position=position,
        type=item["type"],
        role=role if isinstance(role, str) else None,
        turn=turn,
        seen=seen,
        call_id=call_id_of(item),
        origin=origin if isinstance(origin, str) else None,
        payload=text,
        rest=rest,
        codec=codec | rest_codec,
    )


def _as_it_stands(item: JsonObject) -> tuple[JsonObject, bool] | None:
    """An item that needs no look at what it means, as it is sent, and whether it holds texts alone: most items do."""
    if item["type"] == "function_call_output":
        return (item, True) if item.keys() == _OUTPUT_KEYS and _is_plain_output(item) else None
    if item["type"] != "message":
        return None
    texts = _texts_in(item.get("content"))
    if texts is not None and item.keys() == _MESSAGE_KEYS and texts == _SAID.get(item["role"]):
        return item, True
    if not _is_as_it_came(item, texts):
        return None
    sent = {key: value for key, value in item.items() if key != "origin"}
    sent = {"id": sent["id"], **sent} if "id" in sent else sent
    return sent, texts is not None and all(isinstance(sent[key], str) for key in sent if key != "content")


def _texts_in(content: Any) -> str | None:
    """The type of the parts of a content that is texts alone, all of one type, and nothing beside."""
    found: str | None = None
    for part in content if isinstance(content, list) else ():
        kind = part["type"]
        if part.keys() != _TEXT_KEYS or (found is not None and kind != found):
            return None
        found = kind
    return found


def _is_plain_output(item: JsonObject) -> bool:
    """Whether an item with the keys of an output is the text that a called function returned."""
    call_id = item["call_id"]
    return isinstance(item["output"], str) and isinstance(call_id, str) and sized_call_id(call_id) == call_id


def _is_as_it_came(item: JsonObject, texts: str | None) -> bool:
    """Whether a message is one of this format that has nothing beyond the format's own keys: answers mostly are."""
    if item.get("origin") != NAME or not item.keys() <= _OWN_KEYS:
        return False
    content = item.get("content")
    return isinstance(item.get("role"), str) and (
        texts in _TEXTS
        if texts is not None
        else isinstance(content, list)
        and all(isinstance(part, dict) and part.keys() <= PART_KEYS.get(part["type"], _NONE) for part in content)
    )


def _says_more(full: JsonObject, payload: JsonObject | None) -> bool:
    """Whether an item says more than its payload and its origin, which has a column of its own."""
    told = {key: value for key, value in full.items() if key != "origin"}
    # A payload is made of the item's own values, so equal is the same.
    return told != payload and overlay(told, payload) is not None


def call_id_of(item: JsonObject) -> str | None:
    """The call id of a call or output; also of a call that only its own provider knows, so that it can be answered."""
    found = item.get("call_id")
    if item["type"] == "provider_item" and isinstance(item.get("payload"), dict):
        payload = item["payload"]
        is_call = (payload.get("type") == "custom" and "custom" in payload) or "function" in payload
        found = payload.get("id") if is_call else None
    return found if isinstance(found, str) else None


def snapshot_of(session: Session | Snapshot) -> Snapshot:
    """What a request of this session is rendered from; a snapshot is returned as it is."""
    if isinstance(session, Snapshot):
        return session
    settings = {name: value for name, value in session.settings.items() if value is not None}
    turns = session.turns
    entries = [
        entry_of(item.to_object(), position=position, turn=turns[position] if position < len(turns) else None)
        for position, item in enumerate(session.items)
    ]
    return Snapshot(
        settings=settings,
        tools=session.tools,
        entries=entries,
        state=initial_state(settings, session.response_boundary - 1),
        imported=session.imported,
    )


def initial_state(settings: JsonObject, boundary: int = -1) -> ServerState | None:
    """The server state that the settings name; None when they name none."""
    previous = settings.get("previous_response_id")
    if previous is None and settings.get("conversation") is None:
        return None
    return ServerState(previous_response_id=previous, boundary=boundary)
