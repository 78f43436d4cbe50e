"""A database with a short and a long conversation, made once and copied for each module that counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, insert, select, update

from tests.conftest import KINDS_HERE, MATRIX, provided, upgraded
from tests.databases import Database, Databases
from tests.factories import a_message
from threadkeep import Store
from threadkeep.db.models import conversations, items
from threadkeep.store.work.item_rows import encode_item
from threadkeep.store.work.refs import BranchRef

SIZES = (10, 10_000 if MATRIX == "quick" else 100_000)


def fill(connection: Connection, place: BranchRef, count: int) -> None:
    """Rows as the store writes them, past the store because that takes a minute; the database doubles them."""
    where = {"tenant_id": place.scope.tenant, "conversation_id": place.key, "branch": 0, "seen": None}
    row = encode_item(a_message("A line of a long conversation")).row(where, 0, None)
    facts = conversations.c
    connection.execute(
        update(conversations)
        .where(facts.tenant_id == place.scope.tenant, facts.id == place.key)
        .values(next_position=count, head_position=count - 1)
    )
    now = connection.execute(conversations.select().where(facts.id == place.key)).one().created_at
    connection.execute(insert(items), {**row, "position": 0, "created_at": now})
    names, written = {**row, "created_at": now}, 1
    while written < count:
        values = [items.c.position + written if name == "position" else items.c[name] for name in names]
        own = (items.c.tenant_id == place.scope.tenant) & (items.c.conversation_id == place.key)
        rows = select(*values).where(own, items.c.position < count - written)
        connection.execute(insert(items).from_select([*names], rows, include_defaults=False))
        written = min(2 * written, count)


def upgraded_and_filled(engine: Engine) -> None:
    """A tenant with a conversation of each size, whose external id is the size."""
    upgraded(engine)
    with Store(engine, tenants=True) as store:
        for size in SIZES:
            tenant = store.create_tenant(f"filled {size}")
            conversation = tenant.create_conversation(model="m", external_id=str(size))
            with engine.begin() as connection:
                fill(connection, conversation.handle.ref, size)


@pytest.fixture(scope="module", params=KINDS_HERE)
def database(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Database]:
    """A copy of the filled database, in place of an empty one."""
    yield from provided(databases, request.param, upgraded_and_filled)


@pytest.fixture(scope="module")
def filled(stores: Any) -> dict[int, tuple[str, str]]:
    """The conversation of each size: (tenant, id)."""
    names = {size: f"filled {size}" for size in SIZES}
    root = stores.get("sync")
    return {
        size: (name, root.for_tenant(name).find_conversation(external_id=str(size)).id) for size, name in names.items()
    }


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count
