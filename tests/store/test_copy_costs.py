"""What a copy costs grows with what is copied: what a conversation takes does not depend on how many others there are.

Nor does it on PostgreSQL that has no statistics, as after a large import without autovacuum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, select, text

from tests.databases import Database
from tests.factories import a_picture, an_answer, noise
from tests.store.conftest import Stores
from tests.store.plans import indexes_of, recorded
from tests.store.watching import sqlite_steps, statements_of
from threadkeep.db import backends, models
from threadkeep.store.moving import contents, exporting

FEW, MANY = 20, 80  # conversations
PAGE = 5  # of them, and of rows of the ledger
TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
PICTURE = a_picture(noise(9_000))
# Rows that were read, by table, and with which settings: of so few rows, PostgreSQL would read all
POSTGRESQL = "SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables"
MARIADB = "SELECT 'rows', sum(variable_value) FROM information_schema.session_status WHERE variable_name LIKE :name"

pytestmark = pytest.mark.parametrize("face", ["sync"], indirect=True)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "PAGE", PAGE)


def grow(store: Any, count: int) -> None:
    """Add conversations that have options, a tool and a picture in common."""
    for number in range(count):
        conversation = store.create_conversation(model="m", tools=[TOOL], labels={"topic": "x"}, user_id=f"u{number}")
        conversation.user(["Look", PICTURE])
        conversation.add_response(an_answer("Hello", id=f"r{number}"), "open_responses")


def looked_at(connection: Connection, call: Callable[[], object]) -> dict[str, int]:
    """How much the database looks at for a call: instructions of SQLite; rows of MariaDB, and of each table."""
    if connection.dialect.name == "sqlite":
        with sqlite_steps(connection, 10) as steps:
            call()
        return {"steps": len(steps)}
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL enable_seqscan = off"))
    before = rows_read(connection)
    call()
    return {name: count - before.get(name, 0) for name, count in rows_read(connection).items()}


def rows_read(connection: Connection) -> dict[str, int]:
    if connection.dialect.name == "postgresql":
        return {name: int(count) for name, count in connection.execute(text(POSTGRESQL)).all()}
    return {name: int(count) for name, count in connection.execute(text(MARIADB), {"name": "Handler_read%"}).all()}


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("again", [False, True], ids=["new", "again"])
def test_a_copy_looks_at_nothing_of_others(
    database: Database, stores: Stores, store: Any, tenant: str, face: str, again: bool
) -> None:
    """Neither in the source nor in the target, which are two tenants here; nor when there is nothing to copy."""
    found = []
    for number, count in enumerate((FEW, MANY - FEW)):
        grow(store, count)
        target = stores.get(face).create_tenant(f"{tenant} {number}")
        with database.engine().connect() as connection:
            connection.begin()
            source, other = store.within(connection), target.within(connection)
            if again:
                source.copy_to(other)
            found.append(looked_at(connection, lambda: source.copy_to(other)))  # noqa: B023
            connection.rollback()
    few, many = found
    most = {name: 1.25 * MANY / FEW * max(few.get(name, 0), FEW) for name in many}
    assert {name: (few.get(name), many[name]) for name in many if many[name] > most[name]} == {}


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_postgresql_takes_the_keys_of_rows(
    stores: Stores, store: Any, tenant: str, face: str, watching: Engine
) -> None:
    """… for each statement, also without statistics: other indexes would be read for all that the tenant has."""
    grow(store, 2 * PAGE)
    other = stores.get(face).create_tenant(f"{tenant} 2")
    with recorded(store) as seen:
        for _ in range(2):
            store.copy_to(other)
    used = {name for statement in seen for name in indexes_of(watching, statement)}
    assert "threadkeep_conversation_labels_pkey" in used
    assert {name for name in used if not name.endswith(("_pkey", "_public_id_key", "_name_key"))} == set()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_rows_are_found_by_their_keys_between_others(database: Database, store: Any) -> None:
    """The first and the last row of a tenant's ledger: none of those between them is looked at."""
    grow(store, MANY)
    row, number = models.usage_records.c, store.handle.scope.tenant
    with database.engine().connect() as connection:
        of_tenant = select(row.id).where(row.tenant_id == number)
        keys = connection.execute(of_tenant.order_by(row.id)).scalars().all()
        statement = backends.backend_of(connection).by_keys(of_tenant, row.id, [keys[0], keys[-1]])
        read = looked_at(connection, lambda: connection.execute(statement).all())
    assert (len(keys), read["threadkeep_usage_records"]) == (MANY, 2)


@pytest.mark.usefixtures("small_pages")
def test_the_ledger_of_a_conversation_is_found_between_others(database: Database, store: Any) -> None:
    """An export of some conversations looks at no calls of others."""
    one = store.create_conversation(model="m", input="Hi")
    for number in range(PAGE + 2):
        one.add_response(an_answer("Hello", id=f"own{number}"), "open_responses")
    found, read = [], []
    for count in (FEW, MANY):
        grow(store, count)
        with database.engine().connect() as connection:
            connection.begin()
            if connection.dialect.name == "postgresql":
                connection.execute(text("ANALYZE threadkeep_usage_records"))
            handle = store.within(connection).handle
            pages = exporting.ExportSource(handle.transactions, handle.scope).attempts([one.handle.ref.key])
            read.append(looked_at(connection, lambda: found.append([[row["id"] for row in page] for page in pages])))  # noqa: B023
            connection.rollback()
    assert found[0] == found[1] == sorted(found[0])
    assert [len(page) for page in found[0]] == [PAGE, 2]
    few, many = read
    assert {name: (few[name], many[name]) for name in many if many[name] > few[name] + 3} == {}


def bodies_of(store: Any) -> int:
    """How many raw bodies an export has."""
    return sum('"table":"response_bodies"' in line for line in store.export())


def test_responses_take_no_statements_of_their_own(store: Any) -> None:
    """A page of raw bodies is read at once."""
    conversation = store.create_conversation(model="m", input="Hi")
    counts = []
    for size in (5, 50):
        while len(conversation.transcript()) <= size:
            conversation.add_response(an_answer("Hello"), "open_responses")
        with statements_of(store) as seen:
            assert bodies_of(store) == size
        counts.append(len(seen))
    assert counts[0] == counts[1] <= 12


def test_large_bodies_are_read_a_few_at_once(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as fit in so many bytes, so that they fit in memory, too; at least one."""
    read: list[int] = []
    fitting = contents._fitting

    def watched(*given: Any, **named: Any) -> int:
        read.append(fitting(*given, **named))
        return read[-1]

    monkeypatch.setattr(contents, "_fitting", watched)
    monkeypatch.setattr(contents, "BODY_BYTES", 10_000)
    conversation = store.create_conversation(model="m", input="Hi")
    for size in (3_000, 3_000, 3_000, 12_000, 3_000, 8_000):
        conversation.add_response(an_answer(noise(size).hex()), "open_responses")
    assert bodies_of(store) == 6
    *some, last = read
    assert (min(some), max(some), last) == (1, 2, contents.BATCH)
