"""Whatever is done with it, the conversation store answers as Pydantic AI's own store in memory does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from sqlalchemy import event

from tests.conftest import is_set
from tests.contrib.pydantic_messages import a_message
from tests.databases import Database
from tests.store.watching import engine_of
from threadkeep import AsyncStore, Store
from threadkeep.contrib.pydantic_ai import ThreadkeepConversationStore

OPERATIONS = 20_000 if is_set("THREADKEEP_LONG") else 150
pytestmark = [pytest.mark.usefixtures("runner"), pytest.mark.timeout(7200 if is_set("THREADKEEP_LONG") else 300)]
NAMES = ["load"] * 3 + ["save"] * 8 + ["branch"] * 3 + ["fork", "fork", "listed", "delete"]
DONE = {"load": 0.5, "save": 0.3, "branch": 0.2, "fork": 0.02, "listed": 0.5, "delete": 0.5}  # least shares that work


class Operation:
    """Something to be done with a store, with everything chosen by chance."""

    def __init__(self, random: Random, scopes: dict[str, str | None]) -> None:
        self.writer = random.randrange(2)
        self.id, self.other = random.sample(list(scopes), 2)
        self.scope = random.choice(["ann", "ben"]) if random.random() < 0.1 else scopes[self.id]
        self.limit = random.choice([None, None, None, 0, 1, 3, -1])
        self.is_whole, self.is_stale = random.random() < 0.5, random.random() < 0.1
        self.is_rewritten = random.random() < 0.2
        self.part = random.random()  # of a history, that is kept
        self.added = [a_message(random) for _ in range(random.randrange(3))]
        self.name = random.choice(NAMES)


class Driver:
    """A store, and what somebody who uses it has in hand; entries are numbered, because their ids are random.

    Attributes:
        done: how often an operation was asked for, and how often it worked.
    """

    def __init__(self, store: ConversationStore, numbers: dict[str, int]) -> None:
        self.store, self.numbers = store, numbers
        self.loaded: dict[str, Conversation] = {}
        self.done: Counter[tuple[str, bool]] = Counter()

    async def do(self, operation: Operation) -> Any:
        """What comes of it, without ids; the class of the error, if there is one."""
        try:
            found = await getattr(self, operation.name)(operation)
        except (UserError, LookupError) as error:
            if isinstance(error, ConversationConflict):
                self.loaded.pop(operation.id, None)  # to be loaded again
            found = type(error)
        self.done[operation.name, not isinstance(found, type)] += 1
        return found

    def number(self, entry_id: str | None) -> int | None:
        return None if entry_id is None else self.numbers.setdefault(entry_id, len(self.numbers))

    def entries(self, found: Any) -> Any:
        return [(self.number(one.id), self.number(one.parent_id), one.message) for one in found or ()]

    def start(self, one: Operation, history: Sequence[ConversationEntry]) -> dict[str, Any]:
        """How many messages a branch or fork keeps, or the entry that it begins at."""
        if one.is_whole or not history:
            return {"at": int(one.part * (len(history) + 1)) + one.is_stale}
        known = list(self.numbers) if one.is_stale else [entry.id for entry in history]
        return {"from_entry": known[int(one.part * len(known))]}

    async def load(self, one: Operation) -> Any:
        loaded = await self.store.load(one.id, limit=one.limit, scope=one.scope)
        if loaded is None:
            self.loaded.pop(one.id, None)
            return None
        self.loaded[one.id] = loaded
        found = await self.store.load_entries(one.id, limit=one.limit, scope=one.scope)
        return loaded.messages, loaded.usage, self.entries(found)

    async def save(self, one: Operation) -> Any:
        if one.id not in self.loaded:
            self.loaded[one.id] = await self.store.load(one.id) or Conversation(conversation_id=one.id)
        conversation = self.loaded[one.id]
        if one.is_rewritten:
            del conversation.messages[int(one.part * len(conversation.messages)) :]
        conversation.messages += deepcopy(one.added)
        if one.is_whole:
            conversation.new_message_index = None
        conversation.usage.requests += 1
        return self.entries(await self.store.save(conversation, scope=one.scope))

    async def branch(self, one: Operation) -> Any:
        current, history = await self.store.load(one.id), await self.store.load_entries(one.id) or []
        revision = None if current is None or one.is_stale else current.revision
        start = self.start(one, history)
        made = await self.store.branch(one.id, expected_revision=revision, scope=one.scope, **start)
        self.loaded[one.id] = made
        return made.messages

    async def fork(self, one: Operation) -> Any:
        start = self.start(one, await self.store.load_entries(one.id) or [])
        made = await self.store.fork(
            one.id, new_conversation_id=one.other, source_scope=one.scope, scope=one.scope, **start
        )
        self.loaded[one.other] = made
        return made.messages

    async def listed(self, one: Operation) -> Any:
        records = await self.store.list_conversations(scope=one.scope, limit=one.limit)
        return [
            [record.conversation_id, record.scope, record.forked_from, record.usage]
            + [self.number(entry_id) for entry_id in (record.head_id, *record.branches)]
            for record in records
        ]

    async def delete(self, one: Operation) -> Any:
        await self.store.delete(one.id, scope=one.scope)
        found: list[Any] = []
        for entry_id in list(self.numbers)[-5:]:
            try:
                found.append((await self.store.read_entry(entry_id)).message)
            except LookupError:
                found.append(None)
        return found


def conversation_ids() -> dict[str, str | None]:
    """The ids of six conversations, and their scopes."""
    return {uuid4().hex: scope for scope in (None, None, None, "ann", "ann", "ben")}


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(3))
async def test_it_answers_as_the_store_in_memory_does(store: Store | AsyncStore, seed: int) -> None:
    """Two writers take turns, so that what one has in hand is stale where the other has saved since."""
    random, ids = Random(seed), conversation_ids()
    ours, theirs = two_writers(ThreadkeepConversationStore(store)), two_writers(InMemoryConversationStore())
    for number in range(OPERATIONS // 3):
        operation = Operation(random, ids)
        found = await ours[operation.writer].do(operation)
        assert found == await theirs[operation.writer].do(operation), (number, operation.name)
    done = sum((driver.done for driver in ours), Counter[tuple[str, bool]]())
    if OPERATIONS > 1_000:  # so that there is something of everything
        assert {name for name, least in DONE.items() if done[name, True] < least * done[name, False]} == set(), done


def two_writers(store: ConversationStore) -> list[Driver]:
    """Two that use a store."""
    numbers: dict[str, int] = {}
    return [Driver(store, numbers), Driver(store, numbers)]


class Written(ThreadkeepConversationStore):
    """A store that notes what was written, as soon as it is.

    Attributes:
        entries: all of them, by their ids.
        records: what followed each revision of a conversation; None: it was deleted.
        begun: the revisions with which conversations were created.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        super().__init__(store)
        self.entries: dict[str, ConversationEntry] = {}
        self.records: dict[str, ConversationRecord | None] = {}
        self.begun: dict[str, list[ConversationRecord]] = {}

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        record, added = deepcopy(record), deepcopy(list(new_entries))
        await super().write_record(record, new_entries=new_entries, expected_revision=expected_revision)
        self.entries |= {entry.id: entry for entry in added}
        if expected_revision is None:
            self.begun.setdefault(record.conversation_id, []).append(record)
        else:
            self._follow(expected_revision, record)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        await super().delete_record(conversation_id, expected_revision=expected_revision)
        self._follow(expected_revision, None)

    def _follow(self, revision: str, record: ConversationRecord | None) -> None:
        assert revision not in self.records, "two writers went on from the same revision"
        self.records[revision] = record

    def lives(self, id: str) -> list[list[ConversationRecord]]:
        """What each conversation that had an id went through, in order."""
        found = []
        for record in self.begun.get(id, ()):
            life = [record]
            while (after := self.records.get(life[-1].revision)) is not None:
                life.append(after)
            found.append(life)
        return found

    def history(self, head_id: str | None) -> list[Any]:
        """The messages up to an entry."""
        messages: list[Any] = []
        while head_id is not None:
            entry = self.entries[head_id]
            messages.insert(0, entry.message)
            head_id = entry.parent_id
        return messages


class Reader(Driver):
    """A driver that notes the messages it has read of each revision."""

    def __init__(self, store: ConversationStore) -> None:
        super().__init__(store, {})
        self.seen: dict[str, list[Any]] = {}

    async def load(self, one: Operation) -> Any:
        found, loaded = await super().load(one), self.loaded.get(one.id)
        if loaded is not None and loaded.revision is not None and one.limit is None:
            self.seen[loaded.revision] = list(loaded.messages)
        return found


async def test_two_writers_at_once_lose_nothing(store: Store | AsyncStore) -> None:
    """What is stored and what was read is what the same writes make of the store in memory, one after the other."""
    kept, ids = Written(store), conversation_ids()
    readers = [Reader(kept), Reader(kept)]

    async def work(reader: Reader, random: Random) -> None:
        for _ in range(OPERATIONS // 2):
            await reader.do(Operation(random, ids))

    await asyncio.gather(*(work(reader, Random(seed)) for seed, reader in enumerate(readers)))
    everything = list(kept.entries.values())
    records: dict[str, ConversationRecord] = {}
    for id_ in ids:
        lives, memory = kept.lives(id_), InMemoryConversationStore()
        records |= {record.revision: record for life in lives for record in life}
        for last in [life[-1] for life in lives if life[-1].revision not in kept.records]:  # one, unless it is deleted
            await memory.write_record(last, new_entries=everything, expected_revision=None)
        assert await kept.read_record(id_) == await memory.read_record(id_)
        assert await kept.load_entries(id_) == await memory.load_entries(id_)
    assert len(records) == sum(map(len, kept.begun.values())) + sum(map(bool, kept.records.values()))
    for reader in readers:
        assert reader.done["save", False] > 0, "they have not met"
        for revision, messages in reader.seen.items():
            assert messages == kept.history(records[revision].head_id)


@pytest.mark.parametrize("number", range(9))
async def test_a_history_is_whole_or_gone(database: Database, number: int) -> None:
    """The conversation is deleted by another writer before the statement with this number of those that read it."""
    talk = Conversation(messages=[a_message(Random(seed)) for seed in range(4)], conversation_id=uuid4().hex)
    with Store(database.url, tenants=True) as root, Store(database.url, tenants=True) as elsewhere:
        tenant = uuid4().hex
        store, other = root.create_tenant(tenant), elsewhere.for_tenant(tenant)
        conversations, engine = ThreadkeepConversationStore(store), engine_of(store)
        await conversations.save(talk)
        statements: list[str] = []

        def delete(_connection: Any, _cursor: Any, statement: str, *_others: Any) -> None:
            statements.append(statement)
            if len(statements) == number + 1:
                other.delete_conversation(next(iter(other.list_conversations())).id)

        event.listen(engine, "before_cursor_execute", delete)
        try:
            found = await conversations.load(talk.conversation_id)
        finally:
            event.remove(engine, "before_cursor_execute", delete)
    assert len(statements) > number
    assert found is None or found.messages == talk.messages
