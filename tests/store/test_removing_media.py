"""Media and uploads that nothing has any more go, wherever they are, whoever removes them, at a cost of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, delete, insert, update

from tests.databases import Database
from tests.factories import a_picture, noise
from tests.store.blob_stores import Watched, names_in
from tests.store.test_removal_costs import looked_at
from tests.store.watching import Tables
from threadkeep import Store
from threadkeep.blobs import FolderBlobs
from threadkeep.db.models import conversations, item_blobs, uploads

pytestmark = pytest.mark.parametrize("face", ["sync"], indirect=True)

FEW, MANY = 20, 400  # uploads of others


@pytest.fixture
def folder(tmp_path: Path) -> Watched:
    return Watched(FolderBlobs(tmp_path))


@pytest.fixture
def outside(database: Database, tenant: str, folder: Watched) -> Iterator[Any]:
    """The store of the test's tenant, with media outside of the database."""
    with Store(database.url, tenants=True, blobs=folder) as store:
        yield store.for_tenant(tenant)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transaction changes a single row."""
    monkeypatch.setattr("threadkeep.store.work.pacing.FIRST", 1)
    monkeypatch.setattr("threadkeep.store.work.pacing.TARGET", 0)


@pytest.mark.usefixtures("slow")
def test_all_uploads_of_a_user_are_forgotten_in_a_callers_transaction(
    outside: Any, folder: Watched, tables: Tables, watching: Engine
) -> None:
    """Their objects have to wait for its end."""
    for number in range(3):
        outside.for_user("ann").upload_media(noise(9_000 + number))
    with watching.begin() as host:
        outside.within(host).erase_user("ann")
    assert not tables.rows("uploads")
    assert len(names_in(folder)) == 3
    outside.purge_deleted()
    assert (names_in(folder), tables.rows("blobs")) == ([], [])


@pytest.fixture
def unused(store: Any, outside: Any, watching: Engine) -> None:
    """Media in the database and outside of it, in any order of hashes, which have lost their items."""
    for number in range(4):
        for one, size in ((store, 9_000), (outside, 9_500)):
            one.create_conversation(model="m").user([a_picture(noise(size + number))])
    with watching.begin() as connection:
        connection.execute(delete(item_blobs).where(item_blobs.c.tenant_id == store.handle.scope.tenant))


@pytest.mark.usefixtures("slow", "unused")
def test_media_in_the_database_go_without_the_blob_store_of_others(store: Any, tables: Tables) -> None:
    store.purge_deleted()
    assert [row["content"] for row in tables.rows("blobs")] == [None] * 4


@pytest.mark.usefixtures("slow", "unused")
def test_media_in_the_database_go_while_the_blob_store_does_not_respond(
    outside: Any, folder: Watched, tables: Tables
) -> None:
    """It is not asked again, for each attempt may take long."""
    folder.fails = {"delete"}
    outside.purge_deleted()
    assert [row["content"] for row in tables.rows("blobs")] == [None] * 4
    assert folder.calls.count("delete") == 1
    folder.fails = set()
    outside.purge_deleted()
    assert (names_in(folder), tables.rows("blobs")) == ([], [])


@pytest.mark.usefixtures("slow")
def test_conversations_are_removed_while_the_blob_store_does_not_respond(
    outside: Any, folder: Watched, tables: Tables, watching: Engine
) -> None:
    """An erasure still says so at its end."""
    for number in range(3):
        outside.create_conversation(model="m", user_id="ann").user([a_picture(noise(9_000 + number))])
    with watching.begin() as connection:
        is_ours = conversations.c.tenant_id == outside.handle.scope.tenant
        connection.execute(update(conversations).where(is_ours).values(status="deleted"))
    folder.fails = {"delete"}
    assert outside.purge_deleted() == 3
    assert folder.calls.count("delete") == 1
    with pytest.raises(OSError, match="delete"):
        outside.erase_user("ann")
    folder.fails = set()
    outside.purge_deleted()
    assert (names_in(folder), tables.rows("blobs")) == ([], [])


REMOVALS: dict[str, Callable[[Any], object]] = {
    "a conversation": lambda store: store.delete_conversation(store.list_conversations().items[0].id),
    "a user": lambda store: store.erase_user("ann"),
}


@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("remove", REMOVALS)
def test_removing_media_looks_at_no_uploads_of_others(
    database: Database, store: Any, tables: Tables, remove: str
) -> None:
    counts = []
    store.upload_media(noise(9_000))
    for count in (FEW, MANY):
        upload, tomorrow = tables.rows("uploads")[0], datetime.now(UTC) + timedelta(days=1)
        copies = [
            {**upload, "user_id": sha256(f"{count} {number}".encode()).hexdigest(), "expires_at": tomorrow}
            for number in range(count)
        ]
        conversation = store.create_conversation(model="m", user_id="ann")
        for number in range(3):
            conversation.user([a_picture(noise(20_000 + count + number))])
        with database.engine().begin() as connection:
            connection.execute(insert(uploads), copies)
            call = partial(REMOVALS[remove], store.within(connection))
            counts.append(looked_at(connection, call, "uploads"))
    few, many = counts
    assert many <= 1.5 * few + 6  # a look at each upload of others would be 16 hundreds of instructions
