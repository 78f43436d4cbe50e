"""Removing conversations, and what only they have used, costs what that is, not what everybody has.

What is done with a whole conversation costs what it has, not that times that.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text, update

from tests.databases import Database
from tests.factories import a_message, an_answer
from tests.store.watching import Tables, sqlite_steps
from threadkeep import Session
from threadkeep.db.tables import conversations

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
    keys = [conversation._handle.ref.key for conversation in made]
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
