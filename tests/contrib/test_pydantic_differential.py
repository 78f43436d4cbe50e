"""Whatever is done with it, the conversation store answers as Pydantic AI's own store in memory does."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationStore, InMemoryConversationStore
from pydantic_ai.exceptions import UserError

from tests.conftest import is_set
from tests.contrib.pydantic_messages import a_message
from threadkeep import AsyncStore, Store
from threadkeep.contrib.pydantic_ai import ThreadkeepConversationStore

OPERATIONS = 20_000 if is_set("THREADKEEP_LONG") else 150
pytestmark = [pytest.mark.usefixtures("runner"), pytest.mark.timeout(7200 if is_set("THREADKEEP_LONG") else 300)]


class Operation:
    """Something to be done with a store, with everything chosen by chance."""

    def __init__(self, random: Random, ids: list[str]) -> None:
        self.writer = random.randrange(2)
        self.id, self.other = random.sample(ids, 2)
        self.scope, self.limit = random.choice([None, None, "ann", "ben"]), random.choice([None, None, 0, 1, 3, -1])
        self.is_whole, self.is_stale = random.random() < 0.5, random.random() < 0.1
        self.keep = random.randrange(8)
        self.added = [a_message(random) for _ in range(random.randrange(3))]
        names = ["load", "load", "save", "save", "save", "branch", "fork", "listed", "delete"]
        self.name = random.choice(names)


class Driver:
    """A store, and what somebody who uses it has in hand; entries are numbered, because their ids are random."""

    def __init__(self, store: ConversationStore, numbers: dict[str, int]) -> None:
        self.store, self.numbers = store, numbers
        self.loaded: dict[str, Conversation] = {}

    async def do(self, operation: Operation) -> Any:
        """What comes of it, without ids; the class of the error, if there is one."""
        try:
            return await getattr(self, operation.name)(operation)
        except (UserError, LookupError) as error:
            return type(error)

    def number(self, entry_id: str | None) -> int | None:
        return None if entry_id is None else self.numbers.setdefault(entry_id, len(self.numbers))

    def entries(self, found: Any) -> Any:
        return [(self.number(one.id), self.number(one.parent_id), one.message) for one in found or ()]

    def start(self, one: Operation) -> dict[str, Any]:
        """How many messages a branch or fork keeps, or the entry that it begins at."""
        ids = list(self.numbers) or ["nobody"]
        return {"at": one.keep} if one.is_whole else {"from_entry": ids[one.keep * 7 % len(ids)]}

    async def load(self, one: Operation) -> Any:
        loaded = await self.store.load(one.id, limit=one.limit, scope=one.scope)
        if loaded is None:
            return None
        self.loaded[one.id] = loaded
        found = await self.store.load_entries(one.id, limit=one.limit, scope=one.scope)
        return loaded.messages, loaded.usage, self.entries(found)

    async def save(self, one: Operation) -> Any:
        conversation = self.loaded.setdefault(one.id, Conversation(conversation_id=one.id))
        conversation.messages[one.keep :] = deepcopy(one.added)
        if one.is_whole:
            conversation.new_message_index = None
        conversation.usage.requests += 1
        return self.entries(await self.store.save(conversation, scope=one.scope))

    async def branch(self, one: Operation) -> Any:
        current = await self.store.load(one.id)
        revision = None if current is None or one.is_stale else current.revision
        made = await self.store.branch(one.id, expected_revision=revision, scope=one.scope, **self.start(one))
        self.loaded[one.id] = made
        return made.messages

    async def fork(self, one: Operation) -> Any:
        made = await self.store.fork(
            one.id, new_conversation_id=one.other, source_scope=one.scope, scope=one.scope, **self.start(one)
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


@pytest.mark.parametrize("seed", range(3))
async def test_it_answers_as_the_store_in_memory_does(store: Store | AsyncStore, seed: int) -> None:
    random, ids = Random(seed), [uuid4().hex for _ in range(6)]
    ours, theirs = two_writers(ThreadkeepConversationStore(store)), two_writers(InMemoryConversationStore())
    for number in range(OPERATIONS // 3):
        operation = Operation(random, ids)
        found = await ours[operation.writer].do(operation)
        assert found == await theirs[operation.writer].do(operation), (number, operation.name)


def two_writers(store: ConversationStore) -> list[Driver]:
    """Two that take turns, so that what one has in hand is stale where the other has saved since."""
    numbers: dict[str, int] = {}
    return [Driver(store, numbers), Driver(store, numbers)]
