"""Whatever the order in which slow and fast transactions begin and end: who applies the feed has what the store has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine, make_url
from sqlalchemy.pool import NullPool

from tests.conftest import is_set
from tests.databases import DRIVERS, Database
from threadkeep import Change, NotFound

EXAMPLES = 300 if is_set("THREADKEEP_LONG") else 10
HOSTS, CONVERSATIONS = 3, 3

# What happens: a transaction of a host writes, commits or rolls back; somebody writes alone; a consumer looks
STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, HOSTS - 1), st.integers(0, CONVERSATIONS - 1)),
    st.tuples(st.sampled_from(["commit", "rollback"]), st.integers(0, HOSTS - 1), st.just(0)),
    st.tuples(st.sampled_from(["user", "update", "delete"]), st.just(0), st.integers(0, CONVERSATIONS - 1)),
    st.tuples(st.just("consume"), st.integers(0, 1), st.integers(1, 4)),
)

pytestmark = [pytest.mark.parametrize("face", ["sync"], indirect=True), pytest.mark.timeout(600)]


class Mirror:
    """A consumer that copies every conversation of which the feed tells it something."""

    def __init__(self, store: Any, cursor: str) -> None:
        self._store, self.cursor = store, cursor
        self.texts: dict[str, list[tuple[int, str | None]]] = {}
        self.told: dict[str, list[Change]] = defaultdict(list)

    def consume(self, limit: int) -> bool:
        page = self._store.changes(self.cursor, limit=limit)
        for change in page:
            self.told[change.conversation_id].append(change)
            try:
                self.texts[change.conversation_id] = state_of(self._store, change.conversation_id)
            except NotFound:
                self.texts.pop(change.conversation_id, None)
        self.cursor = page.cursor
        return bool(page.changes)


def state_of(store: Any, public_id: str) -> list[tuple[int, str | None]]:
    conversation = store.get_conversation(public_id)
    return [(-1, conversation.title), *((item.position, item.item.text) for item in conversation.transcript())]


@contextmanager
def hosts_of(database: Database) -> Iterator[list[Connection]]:
    url = make_url(database.url)
    engine = create_engine(url.set(drivername=DRIVERS[url.drivername]), poolclass=NullPool)
    hosts = [engine.connect() for _ in range(HOSTS)]
    try:
        yield hosts
    finally:
        for host in hosts:
            host.rollback()
            host.close()


class Interleaving:
    """Transactions of hosts, writers beside them, and two consumers."""

    def __init__(self, database: Database, store: Any, hosts: list[Connection]) -> None:
        self.store, self.hosts = store, hosts
        self._is_sqlite = database.kind == "sqlite"  # which has one writer at a time
        start = store.changes("now").cursor
        self.mirrors = [Mirror(store, start), Mirror(store, start)]
        self.ids = [store.create_conversation(model="m", title="0").id for _ in range(CONVERSATIONS)]
        self._locked: dict[int, set[int]] = defaultdict(set)  # by host

    def run(self, number: int, step: str, one: int, other: int) -> None:
        """One step; none that would wait for another transaction, which goes on in this thread only."""
        if step == "consume":
            self.mirrors[one].consume(other)
        elif step in {"commit", "rollback"}:
            getattr(self.hosts[one], step)()
            self._locked[one].clear()
        elif step == "write" and not self._would_wait(other, one):
            self._locked[one].add(other)  # also by what finds it deleted since the transaction began, on MariaDB
            with suppress(NotFound):
                self.store.within(self.hosts[one]).get_conversation(self.ids[other]).user(f"host {number}")
        elif step in WRITES and not self._would_wait(other):
            with suppress(NotFound):
                WRITES[step](self.store, self.ids[other], number)

    def _would_wait(self, conversation: int, host: int | None = None) -> bool:
        others = [locked for number, locked in self._locked.items() if number != host]
        return any((self._is_sqlite and locked) or conversation in locked for locked in others)

    def check(self) -> None:
        """Everybody has everything."""
        for host in self.hosts:
            host.commit()
        stored = {found.id: state_of(self.store, found.id) for found in self.store.list_conversations(status=None)}
        for mirror in self.mirrors:
            while mirror.consume(2):
                pass
            for public_id in self.ids:
                assert mirror.texts.get(public_id) == stored.get(public_id)
                check_order(mirror.told[public_id])


def check_order(told: list[Change]) -> None:
    """A conversation is made first, deleted last, and its items are told in their order, each once."""
    assert len({change.id for change in told}) == len(told)
    positions = [change.from_position for change in told if change.from_position is not None]
    assert positions == sorted(positions)
    assert [change.kind for change in told][1:-1].count("deleted") == 0
    assert told[0].kind == "appended"


WRITES: dict[str, Callable[[Any, str, int], Any]] = {
    "user": lambda store, public_id, number: store.get_conversation(public_id).user(f"alone {number}"),
    "update": lambda store, public_id, number: store.get_conversation(public_id).update(title=str(number)),
    "delete": lambda store, public_id, _: store.delete_conversation(public_id),
}


def test_a_mirror_of_the_feed_equals_the_store(database: Database, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadkeep.db.feeds._SETTLED", 0.0)

    @settings(max_examples=EXAMPLES)
    @given(st.lists(STEPS, min_size=5, max_size=40))
    def run_all(steps: list[tuple[str, int, int]]) -> None:
        with hosts_of(database) as hosts:
            run = Interleaving(database, store, hosts)
            for number, step in enumerate(steps):
                run.run(number, *step)
            run.check()

    run_all()
