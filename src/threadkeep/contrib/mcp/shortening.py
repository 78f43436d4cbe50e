"""What is stored as JSON for a model: harmless to read, and never longer than its context can bear."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.printing import printable
from threadkeep.domain.reports import UsageRow
from threadkeep.domain.stored import ConversationMatch, ConversationSummary, StoredItem
from threadkeep.domain.transcripts import lines_of
from threadkeep.store.aio import AsyncConversation

NAME_LENGTH: Final = 200  # characters of a title, an id of the application, a label
ITEM_LENGTH: Final = 2_000  # characters of an item among others
PAGE_LENGTH: Final = 40_000  # characters of the items of one result
TEXT_LENGTH: Final = 20_000  # characters of an item that is read alone
# What an item tells of itself beside its text
_FACTS: Final = ("role", "name", "call_id", "status")


class Piece(NamedTuple):
    """A part of a text, and where the rest begins: None, if there is none."""

    text: str
    next: int | None


def piece_of(text: str, length: int, start: int = 0) -> Piece:
    """The part of a text that begins at a character, and has at most that many characters."""
    end = start + length
    return Piece(printable(text[start:end]), end if end < len(text) else None)


def name_of(text: str | None) -> str | None:
    """A title or id, cut where it is too long."""
    if text is None:
        return None
    piece = piece_of(text, NAME_LENGTH)
    return piece.text if piece.next is None else f"{piece.text}…"


def summary_view(summary: ConversationSummary) -> JsonObject:
    """What a list shows of a conversation."""
    return {
        **_conversation_facts(summary),
        "preview": None if summary.preview is None else printable(summary.preview),
        "item_count": summary.item_count,
        "branch_count": summary.branch_count,
    }


def conversation_view(conversation: AsyncConversation) -> JsonObject:
    """What is known of a conversation beside its items; `last_position` is -1 without any."""
    instructions = piece_of(conversation.instructions or "", ITEM_LENGTH)
    return {
        **_conversation_facts(conversation),
        "model": name_of(conversation.model),
        "instructions": instructions.text or None,
        "are_instructions_cut": instructions.next is not None,
        "branch": conversation.branch,
        "last_position": conversation.head,
    }


def _conversation_facts(one: ConversationSummary | AsyncConversation) -> JsonObject:
    return {
        "conversation_id": one.id,
        "title": name_of(one.title),
        "external_id": name_of(one.external_id),
        "user_id": name_of(one.user_id),
        "labels": {str(name_of(key)): name_of(value) for key, value in one.labels.items()},
        "status": one.status,
        "created_at": time_text(one.created_at),
        "last_activity_at": time_text(one.last_activity_at),
    }


def match_view(match: ConversationMatch) -> JsonObject:
    """A conversation that was found, with its best match; `position` is None if that is the title."""
    best = match.best
    return {
        "conversation_id": match.conversation_id,
        "title": name_of(match.title),
        "user_id": name_of(match.user_id),
        "hits": match.hits,
        "snippet": printable(best.snippet),
        "position": best.position,
        "branch": best.branch,
        "type": printable(best.type),
        "role": best.role,
        "created_at": time_text(best.created_at),
    }


def item_view(stored: StoredItem, length: int, start: int = 0) -> JsonObject:
    """An item with its text, or a part of it; `next_character` says where the rest begins, if it is cut."""
    item = stored.to_object()
    said = "\n".join(lines_of(item))  # texts in full, media by their kind and size
    piece = piece_of(said, length, start)
    view: JsonObject = {
        "item_id": printable(stored.id), "position": stored.position, "type": printable(str(item["type"])),
        **{name: name_of(str(item[name])) for name in _FACTS if item.get(name) is not None},
        "author_id": name_of(stored.author_id), "created_at": time_text(stored.created_at), "text": piece.text,
    }  # fmt: skip
    if piece.next is not None:
        view |= {"next_character": piece.next, "characters": len(said)}
    return view


def views_that_fit(items: Iterable[StoredItem], room: int = PAGE_LENGTH) -> list[JsonObject]:
    """The first of these items, as many as there is room for; at least one, if there is one."""
    views: list[JsonObject] = []
    for stored in items:
        view = item_view(stored, ITEM_LENGTH)
        room -= len(view["text"])
        if room < 0 and views:
            break
        views.append(view)
    return views


def usage_view(row: UsageRow) -> JsonObject:
    """A row of a report: what it is grouped by, and its sums; a figure that nobody reported is None."""
    return {name: _figure(value) for name, value in row.to_dict().items()}


def _figure(value: Any) -> Any:
    if isinstance(value, date):
        return time_text(value)
    return name_of(value) if isinstance(value, str) else value


def time_text(at: date | datetime | None) -> str | None:
    """A time as ISO 8601."""
    return None if at is None else at.isoformat()
