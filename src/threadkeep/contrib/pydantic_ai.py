"""Conversations of Pydantic AI in threadkeep: `ThreadkeepConversationStore`, and any conversation as message history.

Records are states of conversations, entries are their items. Needs the extra ``pydantic-ai``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from threadkeep.domain import jsontext, rendering
from threadkeep.domain.items import Item
from threadkeep.domain.stored import StoredItem
from threadkeep.errors import InvalidItem, InvalidOption, MissingExtra, NotFound, StateConflict
from threadkeep.formats import get_format
from threadkeep.formats.pydantic_ai.own import message_of
from threadkeep.store.aio import AsyncConversation, AsyncStore, async_face, uninterrupted
from threadkeep.store.conversation import Conversation
from threadkeep.store.store import Store
from threadkeep.store.work.states import states_called
from threadkeep.store.work.validation import MAX_PAGE

try:
    import pydantic_ai  # noqa: F401 - whether it is there
except ImportError as error:
    raise MissingExtra("pydantic-ai", "threadkeep.contrib.pydantic_ai") from error

from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse

__all__ = ["ThreadkeepConversationStore", "message_history"]

STATE: Final = "pydantic_ai.record"
LABEL: Final = "pydantic_ai.entry"  # of the first item of each entry
SIZE: Final = "pydantic_ai.items"  # how many items the entry has
FORMAT: Final = "pydantic_ai"
_HINT: Final = "Pydantic AI could not load it from its own JSON either; leave it out, or mend it."
_RECORDS: Final = TypeAdapter(ConversationRecord)


class ThreadkeepConversationStore(ConversationStore):
    """Keeps conversations of Pydantic AI in threadkeep: pass it to its adapters, or `load` and `save` with it.

    A conversation's id is the `external_id` there, and its scope the `user_id`. What was said is stored as items, which
    can be searched, and rendered for any provider; the usage of responses is in the ledger. A history that was left is
    a branch. A fork is a conversation of its own, with a copy of the history it shares. Deleting a conversation deletes
    its messages; forks keep theirs.

    Args:
        store: a `Store`, whose methods then run in worker threads, or an `AsyncStore`. In one that is limited to a
            user, only conversations of that user exist.

    Raises:
        InvalidOption: it is not a store.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self._store = async_face(store)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None if there is none."""
        found = await self._store.run_sync(_find, conversation_id)
        return None if found is None else found.record

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records of all conversations, or of a scope, the last saved ones first."""
        records = await self._store.run_sync(_records, scope)
        return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Write a record and its new entries in one transaction; it is not interrupted if the task is cancelled.

        Raises:
            ConversationConflict: the stored revision is another one, or the head of the history does not exist.
            InvalidItem, InvalidOption, TooLarge: the id, the scope or a message cannot be stored, or a message could
                not be read again. Nothing was written.
        """
        await uninterrupted(self._store.run_in_transaction(_write, record, list(new_entries), expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation, with all its messages.

        Raises:
            ConversationConflict: the stored revision is another one.
        """
        await uninterrupted(self._store.run_in_transaction(_delete, conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return the entry with an id.

        Raises:
            LookupError: there is none.
        """
        entries = await self.read_history(entry_id, limit=1)
        return entries[-1]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to one, or only the last `limit` of them.

        Raises:
            LookupError: there is no such entry.
        """
        if head_id is None or limit == 0:
            return []
        return await self._store.run_sync(_history, head_id, limit)

    async def conversation(self, conversation_id: str) -> AsyncConversation | None:
        """Return the conversation in threadkeep: its branches, items, requests and usage; None if there is none."""
        return await self._store.find_conversation(external_id=conversation_id)


def message_history(rendered: rendering.Rendered) -> list[ModelMessage]:
    """Return what a conversation of any origin rendered in the format `pydantic_ai` as messages, for an agent to go on.

    Raises:
        InvalidOption: it was rendered in another format.
    """
    messages = rendered.payload.get("message_history")
    if messages is None:
        hint = 'Pass conversation.render("pydantic_ai").'
        raise InvalidOption("is not rendered in the format pydantic_ai.", argument="rendered", hint=hint)
    return _read(messages)


# keys that details of validation errors need to be read; `errors(include_input=False)` leaves some out
_DETAILS: Final[jsontext.JsonObject] = {"type": "", "loc": [], "msg": "", "input": None}


def _read(messages: Iterable[jsontext.JsonObject]) -> list[ModelMessage]:
    """Messages from their JSON: also with details of errors that Pydantic AI writes and does not read."""
    messages = [
        {**one, "parts": list(map(_readable, one["parts"]))} if isinstance(one.get("parts"), list) else one
        for one in messages
    ]
    return ModelMessagesTypeAdapter.validate_python(messages)


def _readable(part: jsontext.JsonObject) -> jsontext.JsonObject:
    """A part with all keys of the details of validation errors, which parts hold that ask a model to try again."""
    content = part.get("content")
    if not str(part.get("part_kind")).startswith("retry-") or not isinstance(content, list):
        return part
    return {**part, "content": [{**_DETAILS, **one} if isinstance(one, dict) else one for one in content]}


def _written(entry: ConversationEntry) -> tuple[jsontext.JsonObject, Sequence[Item]]:
    """The JSON of an entry's message and its items; InvalidItem if it could not be read again."""
    try:
        # what its warnings are about is found out below
        (message,) = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json", warnings=False)
    except PydanticSerializationError as error:
        problem = f"cannot be written as JSON: {error}"
        raise InvalidItem(problem, argument="A message of the history", hint=_HINT) from error
    (items,) = get_format(FORMAT).parse_turns([message])
    try:
        _read([message_of([item.to_object() for item in items])])
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        problem = f"could not be read again: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InvalidItem(problem, argument="A message of the history", hint=_HINT) from error
    return message, items


class _Stored(NamedTuple):
    """A record, with its conversation and the version of its state."""

    conversation: Conversation
    record: ConversationRecord
    version: int


class _Place(NamedTuple):
    """Where an entry ends: a branch, and the position of its last item there; -1 before the first entry."""

    branch: int
    position: int


def _find(store: Store, conversation_id: str) -> _Stored | None:
    conversation = store.find_conversation(external_id=conversation_id)
    try:
        state = None if conversation is None else conversation.state(STATE)
    except NotFound:  # it was deleted meanwhile
        return None
    if conversation is None or state is None:
        return None
    return _Stored(conversation, _RECORDS.validate_python(state.value), state.version)


def _records(store: Store, scope: str | None) -> list[ConversationRecord]:
    records, after = [], None
    while True:
        page = store.list_conversations(user_id=scope, status=None, after=after, limit=MAX_PAGE)
        states = states_called([conversation.handle for conversation in page], STATE)
        found = [_RECORDS.validate_python(state.value) for state in states if state is not None]
        records += [record for record in found if scope is None or record.scope == scope]
        after = page.next
        if after is None:
            return records


# Writing


def _write(
    store: Store, record: ConversationRecord, new_entries: list[ConversationEntry], expected_revision: str | None
) -> None:
    stored = _find(store, record.conversation_id)
    if (None if stored is None else stored.record.revision) != expected_revision:
        raise ConversationConflict(record.conversation_id)
    conversation = _create(store, record, new_entries) if stored is None else stored.conversation
    entries, place = new_entries, _parent_place(store, conversation, record, new_entries)
    if place is None:  # a fork: the history is in another conversation
        parent_id = new_entries[0].parent_id if new_entries else record.head_id
        try:
            shared = _history(store, str(parent_id), None)
        except LookupError:
            raise ConversationConflict(record.conversation_id) from None
        entries, place = [*shared, *new_entries], _Place(conversation.branch, -1)
    branch = _on_place(conversation, place)
    for entry in entries:
        _append(branch, entry, is_new=entry in new_entries)
    if branch.branch != conversation.branch:
        branch.set_active_branch(branch.branch)
    value = _RECORDS.dump_python(record, mode="json")
    try:
        branch.set_state(STATE, value, expected_version=0 if stored is None else stored.version)
    except StateConflict as error:
        raise ConversationConflict(record.conversation_id) from error


def _create(store: Store, record: ConversationRecord, entries: Sequence[ConversationEntry]) -> Conversation:
    """A new conversation, with the instructions and the model of its first messages."""
    messages = [entry.message for entry in entries]
    options: dict[str, Any] = {"user_id": record.scope} if record.scope is not None else {}
    model = next((one.model_name for one in messages if isinstance(one, ModelResponse) and one.model_name), None)
    instructions = next((text for one in messages if (text := getattr(one, "instructions", None))), None)
    options |= {"model": model} if model else {}
    options |= {"instructions": instructions} if isinstance(instructions, str) else {}
    try:
        return store.create_conversation(external_id=record.conversation_id, **options)
    except InvalidOption as error:
        if (
            "external_id" in str(error) and error.argument is None
        ):  # another writer was faster, or it is not one of ours
            raise ConversationConflict(record.conversation_id) from error
        raise


def _parent_place(
    store: Store, conversation: Conversation, record: ConversationRecord, new_entries: Sequence[ConversationEntry]
) -> _Place | None:
    """Where the entry ends after which the new ones come; None if the conversation does not have it."""
    parent_id = new_entries[0].parent_id if new_entries else record.head_id
    if parent_id is None:
        return _Place(conversation.branch, -1)
    first = _first_item(store, parent_id, conversation.id)
    if first is None:
        return None
    rest = _rest_of_entry(conversation.on_branch(first.branch), first)
    return _Place(first.branch, max([first.position, *(item.position for item in rest)]))


def _on_place(conversation: Conversation, place: _Place) -> Conversation:
    """The conversation on a branch that ends at a place: a new one, if the one that it is on goes on."""
    branch = conversation if conversation.branch == place.branch else conversation.on_branch(place.branch)
    newest = branch.items(order="desc", limit=1)
    head = newest.items[0].position if newest.items else -1
    return branch if head == place.position else branch.fork(at=place.position)


def _append(conversation: Conversation, entry: ConversationEntry, *, is_new: bool) -> None:
    message, items = _written(entry)
    first, *rest = conversation.add_items(items, known=False)
    conversation.label_item(first.position, {LABEL: entry.id, SIZE: str(1 + len(rest))})
    if is_new and isinstance(entry.message, ModelResponse):
        response = entry.message
        conversation.record_attempt(
            FORMAT, status="completed", model=response.model_name, provider=response.provider_name or None,
            base_url=response.provider_url or None,
            usage=get_format(FORMAT).usage_of(message["usage"]), idempotency_key=f"pydantic_ai:{entry.id}",
        )  # fmt: skip


def _delete(store: Store, conversation_id: str, expected_revision: str) -> None:
    stored = _find(store, conversation_id)
    if stored is None or stored.record.revision != expected_revision:
        raise ConversationConflict(conversation_id)
    try:
        stored.conversation.delete_state(STATE, expected_version=stored.version)
    except StateConflict as error:
        raise ConversationConflict(conversation_id) from error
    store.delete_conversation(stored.conversation.id)


# Reading entries


def _entry_id(item: StoredItem) -> str | None:
    return (item.labels or {}).get(LABEL)


def _first_item(store: Store, entry_id: str, conversation_id: str | None = None) -> StoredItem | None:
    """The first item of an entry, with its labels: in a conversation, or in any."""
    after = None
    while True:
        page = store.list_items(labels={LABEL: entry_id}, after=after)
        for item in page:
            if conversation_id in {None, item.conversation_id}:
                return item
        after = page.next
        if after is None:
            return None


def _history(store: Store, head_id: str, limit: int | None) -> list[ConversationEntry]:
    first = _first_item(store, head_id)
    if first is None:
        raise LookupError(head_id)
    entries = _newest_entries(store.get_conversation(first.conversation_id, branch=first.branch), first, limit)
    if _first_item(store, head_id, first.conversation_id) is None:  # deleted meanwhile: what was read may be a part
        raise LookupError(head_id)
    messages = _read(message_of([item.to_object() for item in items]) for _, items in entries)
    parents = [None, *(entry_id for entry_id, _ in entries)]
    history = [
        ConversationEntry(id=entry_id, parent_id=parent, message=message)
        for (entry_id, _), parent, message in zip(entries, parents, messages, strict=False)
    ]
    return history if limit is None else history[-limit:]


def _newest_entries(
    conversation: Conversation, first: StoredItem, limit: int | None
) -> list[tuple[str, list[StoredItem]]]:
    """The entries up to the one that begins with an item, and their items; one more than `limit`, for its id."""
    entries: list[tuple[str, list[StoredItem]]] = []
    collected = _rest_of_entry(conversation, first)[::-1]
    before: int | None = first.position + 1
    while before is not None:
        page = conversation.items(before=before, order="desc", limit=100, annotations=True)
        for item in page:
            collected.append(item)
            if (entry_id := _entry_id(item)) is not None:
                entries.append((entry_id, collected[::-1][: _size(item)]))
                if limit is not None and len(entries) > limit:
                    return entries[::-1]
                collected = []
        before = page.items[-1].position if page.next is not None else None
    return entries[::-1]


def _size(first: StoredItem) -> int:
    return int((first.labels or {}).get(SIZE, "1"))


def _rest_of_entry(conversation: Conversation, first: StoredItem) -> list[StoredItem]:
    """The other items of the entry that begins with an item; those that were appended by other means are not."""
    rest: list[StoredItem] = []
    after: int | None = first.position
    while after is not None and len(rest) < _size(first) - 1:
        page = conversation.items(after=after, limit=min(_size(first), MAX_PAGE), annotations=True)
        for item in page:
            if _entry_id(item) is not None or len(rest) == _size(first) - 1:
                return rest
            rest.append(item)
        after = page.items[-1].position if page.next is not None else None
    return rest
