"""Histories that clients have compacted: they go on in the conversation, which keeps what was compacted.

A client sends a compaction in place of what it stands for, often with what the user had said before it, as Codex does.
Others ask the model for a summary, which is then a message at the beginning of their history, as in Claude Code. Behind
it may come the end of what is stored, as in pi, which the compaction then does not cover.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from threadkeep.domain.items import item_from_object
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.searching import is_added
from threadkeep.domain.session import Session
from threadkeep.errors import InvalidOption, ResponseInProgress
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.shared.pairing import between_turns
from threadkeep.formats.shared.views import KEEPS_USERS
from threadkeep.store.history_sync.alignment import utterances_of
from threadkeep.store.history_sync.client_history import SUMMARY_TAGS, ClientHistory, items_from
from threadkeep.store.writing import variants
from threadkeep.store.writing.appending import NewItems
from threadkeep.store.writing.importing import new_items

if TYPE_CHECKING:
    from threadkeep.store.conversation import Conversation

_CONTENT: Final = ("encrypted_content", "summary")  # keys of a compaction by which it is known again
_SUMMARY: Final = re.compile(rf"<({'|'.join(SUMMARY_TAGS)})>(.*)</\1>", re.DOTALL)  # where a model marks it
_TRIES: Final = 10  # how many stored items are tried as the first one that a client has kept
_LEAST: Final = 40  # characters of a summary, so that it is hardly by chance that a text has it


class CompactedHistory:
    """The history of a request, of which a compaction stands for the beginning."""

    def __init__(self, session: Session, place: int, summary: str | None = None) -> None:
        item = session.items[place].to_object() if summary is None else {"type": "compaction", "summary": summary}
        self._item: JsonObject = item
        self._session = items_from(session, place)
        self._users = _said_by_users(item.to_object() for item in session.items[:place])
        self.following = ClientHistory(items_from(session, place + 1))

    @classmethod
    def of(cls, session: Session) -> CompactedHistory | None:
        """Return it with the last compaction of a request; None if it has none."""
        places = [index for index, item in enumerate(session.items) if item.type == "compaction"]
        return cls(session, places[-1]) if places else None

    @classmethod
    def known(cls, session: Session, entries: Sequence[ItemEntry]) -> CompactedHistory | None:
        """Return it with a stored summary; None if a request has none as a message."""
        stored = {entry.item().get("summary") for entry in entries if entry.type == "compaction"} - {None}
        texts = [_text_of(item.to_object()) for item in session.items] if stored else []
        return next((cls(session, at, text) for at, text in enumerate(texts) if text in stored), None)

    @classmethod
    def summarized(cls, session: Session, entries: Sequence[ItemEntry]) -> CompactedHistory | None:
        """Return it with a first message that has the summary which the last answer is; None if it has not."""
        answer = entries[-1].item() if entries and entries[-1].seen is not None else {}
        place = message_with(session, answer)
        said = [_text_of(item.to_object()) for item in session.items[: 0 if place is None else place + 1]]
        leads = all(item.to_object().get("role") in ("system", "developer") for item in session.items[:place])
        return cls(session, place, said[-1]) if place is not None and leads and said[-1] != _text_of(answer) else None

    @classmethod
    def marked(cls, session: Session) -> CompactedHistory | None:
        """Return it with a first message of the user that has a summary between marks; None if it has none."""
        messages = [item.to_object() for item in session.items]
        place = next((at for at, one in enumerate(messages) if one.get("role") == "user"), len(messages))
        text = _text_of(messages[place]) if place < len(messages) else ""
        leads = all(one.get("role") in ("system", "developer") for one in messages[:place])
        found = _SUMMARY.search(text) if leads else None
        return cls(session, place, text) if found is not None and len(found[2].strip()) >= _LEAST else None

    def quotes(self, answer: JsonObject) -> bool:
        """Return whether its first message has the summary that is an answer."""
        return answer.get("role") == "assistant" and message_with(self._session, answer) == 0

    def arranged(self, entries: Sequence[ItemEntry]) -> tuple[list[ItemEntry], int] | None:
        """Return the stored items with what its compaction does not cover behind it, and how many come up to it.

        None if it is not there.
        """
        for index in range(len(entries) - 1, -1, -1):
            item = entries[index].item() if entries[index].type == "compaction" else {}
            if item and _content(item) == _content(self._item):
                upto = item["upto"] if isinstance(item.get("upto"), int) else entries[index].position
                before = [entry for entry in entries[:index] if entry.position <= upto]
                kept = [entry for entry in entries[:index] if entry.position > upto]
                return [*before, entries[index], *kept, *entries[index + 1 :]], len(before) + 1
        return None

    def kept(self, entries: Sequence[ItemEntry], cut_off: Collection[int]) -> NewItems | None:
        """Return the compaction of what is stored before the items which it has behind it, and what follows them.

        None if it does not have all that is stored from somewhere on, with an answer.
        """
        tries = 0
        for index, entry in enumerate(entries):
            if not self.following.begins_with(entry.item()):
                continue
            delta, tries = self.following.compare(entries[index:], cut_off, may_begin_later=False), tries + 1
            if delta.is_all and any(one.seen is not None for one in entries[index:]):
                compaction = {**self._item, "upto": entries[index - 1].position if index else -1}
                first = new_items([item_from_object(compaction)], [None], [_maker_of(entries)])
                turns = (None if at is None else at + 1 for at in delta.new.turns)
                return NewItems([*first.items, *delta.new.items], [*first.records, *delta.new.records], [None, *turns])
            if tries == _TRIES:
                break
        return None

    def continuation(self, entries: Sequence[ItemEntry]) -> NewItems | None:
        """Return the compaction of all that is stored, and what follows it; None if it stands for something else.

        What the client repeats of its user must be stored, at least something of it.
        """
        covered = between_turns(entries)
        stored = _said_by_users(entry.item() for entry in entries if entry.role == "user") if self._users else set()
        if covered is None or (self._users and not self._users & stored):
            return None
        compaction = {**self._item, "upto": covered}
        if compaction.get("summary") is None or self._users:
            compaction[KEEPS_USERS] = True
        items = [item_from_object(compaction), *self._session.items[1:]]
        return new_items(items, self._session.turns, [_maker_of(entries), *self._session.makers[1:]])


def message_with(session: Session, answer: JsonObject) -> int | None:
    """Return where the first message is that has the summary in an answer; None for none, and for short answers."""
    said = _text_of(answer)
    marked = _SUMMARY.search(said)
    summary = (marked[2] if marked else said).strip()
    if len(summary) < _LEAST:
        return None
    return next((at for at, item in enumerate(session.items) if summary in _text_of(item.to_object())), None)


def compact_beside(conversation: Conversation, session: Session, answer: JsonObject) -> None:
    """Compact a conversation if a history has the summary that is an answer to a side call."""
    place = message_with(session, answer)
    if place is None:
        return
    text = _text_of(session.items[place].to_object())
    stored = [item.item.to_object() for item in conversation.transcript()]
    if all(item["type"] != "compaction" or item.get("summary") != text for item in stored):
        keeps_users = bool(_said_by_users(item.to_object() for item in session.items[:place]) & _said_by_users(stored))
        with suppress(InvalidOption, ResponseInProgress):  # there is nothing to compact, or another call is answered
            variants.compact(conversation.handle, None, text, None, {}, keeps_users=keeps_users)


def _maker_of(entries: Sequence[ItemEntry]) -> str | None:
    """Who answered last."""
    return next((entry.maker for entry in reversed(entries) if entry.maker is not None), None)


def _text_of(item: JsonObject) -> str:
    """The text of a message, of a user's what programs have not added; empty for other items."""
    parts = item.get("content") if item.get("type") == "message" else None
    if not isinstance(parts, list):
        return str(parts or "")
    texts = [str(part.get("text") or "") for part in parts]
    return "".join([text for text in texts if item.get("role") != "user" or not is_added(text)] or texts)


def _content(item: JsonObject) -> list[object]:
    return [item.get(key) for key in _CONTENT]


def _said_by_users(items: Iterable[JsonObject]) -> set[object]:
    return {said.key for said in utterances_of(list(items)) if said.speaker == "user"}
