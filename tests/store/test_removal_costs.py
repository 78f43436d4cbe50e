"""Removing conversations, and what only they have used, costs what that is, not what everybody has.

What is done with a whole conversation costs what it has, not that times that.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, insert, text, update

from tests.databases import Database
from tests.factories import a_message, a_picture, an_answer, noise
from tests.store.watching import Tables, sqlite_steps
from threadkeep import Session
from threadkeep.db.models import blobs, conversations, item_blobs
from threadkeep.store.removing.purging import purge_batch

pytestmark = pytest.mark.parametrize("face", ["sync"], indirect=True)

OLD = 12  # conversations with options of their own, which are removed
FEW, MANY = 20, 200  # conversations and responses of others, which all have the same options


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}}


def others(store: Any, count: int) -> None:
    """As many conversations, and one with as many responses."""
    store.save_many([Session(model="m", tools=[tool("shared")], input=[a_message("Hi")]) for _ in range(count)])
    conversation = store.create_conversation(model="m", tools=[tool("shared")], input="Hi")
    for _ in range(count):
        conversation.add_response(an_answer("Hi"), "open_responses")


def grow_old(store: Any, connection: Connection, number: int) -> None:
    """Make conversations that nobody has used for a year, each with options and tools of its own."""
    made = [
        store.create_conversation(model=f"m {number} {one}", tools=[tool(f"t_{number}_{one}")], input="Hi")
        for one in range(OLD)
    ]
    for conversation in made:
        conversation.add_response(an_answer("Hi"), "open_responses")
    keys = [conversation.handle.ref.key for conversation in made]
    long_ago = datetime.now(UTC) - timedelta(days=365)
    connection.execute(update(conversations).where(conversations.c.id.in_(keys)).values(last_activity_at=long_ago))


def looked_at(connection: Connection, call: Callable[[], object], table: str) -> int:
    """How much the database looks at for a call: instructions of SQLite, rows of a table of PostgreSQL."""
    if connection.dialect.name == "sqlite":
        with sqlite_steps(connection) as steps:
            call()
        return len(steps)
    connection.execute(text("SET LOCAL enable_seqscan = off"))  # which is better than an index for so few rows
    call()
    read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = :name"
    return int(connection.execute(text(read), {"name": f"threadkeep_{table}"}).scalar_one())


@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
def test_removing_options_looks_at_nothing_of_others(database: Database, store: Any, tables: Tables) -> None:
    counts = []
    for number, count in enumerate((FEW, MANY)):
        others(store, count)
        before = tables.counts()
        with database.engine().begin() as connection:
            grow_old(store.within(connection), connection, number)
        assert tables.counts()["configs"] == before["configs"] + OLD
        with database.engine().begin() as connection:
            within = store.within(connection)
            counts.append(looked_at(connection, lambda: within.retain(content=30), "responses"))  # noqa: B023
        left = tables.counts()
        names = ("configs", "tool_sets", "tool_definitions", "conversations", "responses")
        assert {name: left[name] for name in names} == {name: before[name] for name in names}
    few, many = counts
    assert many <= 1.5 * few


def test_options_are_removed_in_order_beside_those_in_use(store: Any, tables: Tables) -> None:
    """Some are used by a conversation, some only by a response from before the options were changed."""
    kept = [store.create_conversation(model=f"kept {number}", input="Hi") for number in range(5)]
    for conversation in kept[:3]:
        conversation.add_response(an_answer("Hi"), "open_responses")
        conversation.update(model="another")
    used = {row["hash"] for row in tables.rows("configs")}
    assert len(used) == 6
    for number in range(5):
        store.create_conversation(model=f"gone {number}", user_id="u", input="Hi")
    store.erase_user("u")
    assert {row["hash"] for row in tables.rows("configs")} == used


def multiply_media(connection: Connection, tables: Tables, count: int) -> None:
    """Add as many media like the first one, of the same item."""
    blob, link = tables.rows("blobs")[0], tables.rows("item_blobs")[0]
    hashes = [sha256(f"{count} {number}".encode()).digest() for number in range(count)]
    connection.execute(insert(blobs), [{**blob, "hash": hash_} for hash_ in hashes])
    links = [{**link, "hash": hash_, "ordinal": count + number} for number, hash_ in enumerate(hashes)]
    connection.execute(insert(item_blobs), links)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
def test_deleting_a_conversation_looks_at_no_media_of_others(database: Database, store: Any, tables: Tables) -> None:
    store.create_conversation(model="m").user([a_picture(noise(20_000))])
    counts = []
    for count in (FEW, MANY):
        with database.engine().begin() as connection:
            multiply_media(connection, tables, count)
        before = tables.counts()
        conversation = store.create_conversation(model="m")
        for number in range(3):
            conversation.user([a_picture(noise(20_000 + count + number))])
        with database.engine().begin() as connection:
            within = store.within(connection)
            delete = lambda: within.delete_conversation(conversation.id)  # noqa: B023, E731
            counts.append(looked_at(connection, delete, "item_blobs"))
        assert tables.counts()["blobs"] == before["blobs"]
    few, many = counts
    assert many <= 1.5 * few


def test_media_of_a_conversation_go_with_the_rows_that_have_them(
    store: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same transaction, so that nothing is left when the process dies behind it."""
    conversation, other = store.create_conversation(model="m"), store.create_conversation(model="m")
    shared, kept = a_picture(noise(20_000)), a_picture(noise(25_000))
    for number in range(4):
        conversation.user([a_picture(noise(30_000 + number)), shared, shared, kept])
    other.user([kept])
    seen: list[int] = []

    def watched(*arguments: Any, **named: Any) -> bool:
        stored = {row["hash"] for row in tables.rows("blobs")}
        assert stored == {row["hash"] for row in tables.rows("item_blobs")}
        seen.append(len(stored))
        return purge_batch(*arguments, **named)

    monkeypatch.setattr("threadkeep.store.work.pacing.FIRST", 1)
    monkeypatch.setattr("threadkeep.store.removing.purging.purge_batch", watched)
    store.delete_conversation(conversation.id)
    assert len(set(seen)) >= 3
    assert (tables.counts()["item_blobs"], tables.counts()["blobs"]) == (1, 1)


# What looks at all items and all responses of a conversation
WHOLE: dict[str, Callable[[Any, Any], object]] = {
    "check": lambda store, _: store.check(),
    "clear": lambda _, conversation: conversation.clear(),
    "delete": lambda store, conversation: store.delete_conversation(conversation.id),
}


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
@pytest.mark.parametrize("name", WHOLE)
def test_what_belongs_together_is_not_looked_for_among_all_pairs(store: Any, watching: Engine, name: str) -> None:
    """MariaDB tells how many rows it reads, and looks for ranges in all rows of a conversation."""
    counted = text("SELECT sum(variable_value) FROM information_schema.session_status WHERE variable_name LIKE :name")

    def rows_read(connection: Connection) -> int:
        return int(connection.execute(counted, {"name": "Handler_read%"}).scalar_one())

    reads = []
    conversation = store.create_conversation(model="m", input="Hi")
    for responses in (50, 150):
        for _ in range(responses):
            conversation.add_response(an_answer("Hello"), "open_responses")
        with watching.connect() as connection:
            within = store.within(connection)
            opened = within.get_conversation(conversation.id)
            before = rows_read(connection)
            WHOLE[name](within, opened)
            reads.append(rows_read(connection) - before)
            connection.rollback()
    few, many = reads
    assert many <= 8 * few  # of four times as many rows; all pairs would be sixteen times as many
