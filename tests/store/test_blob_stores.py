"""Media outside of the database: put before their rows, removed after them, never missing."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, Engine, update
from sqlalchemy.exc import DBAPIError

from tests.databases import Database
from tests.factories import a_picture, an_output, noise
from tests.store.blob_stores import KINDS, Watched, a_blob_store, names_in, s3_server
from tests.store.faces import blocking_store
from tests.store.test_uploads import let_expire
from tests.store.watching import Tables
from threadkeep import DamagedRow, HeadConflict, InvalidOption, NotFound, Session, Store
from threadkeep.blobs import FolderBlobs, S3Blobs
from threadkeep.db import models as schema

BIG = noise(20_000)
PICTURE = a_picture(BIG)
MESSAGE = {"role": "user", "content": [PICTURE]}
DAY = timedelta(days=2)


@pytest.fixture(scope="module")
def address() -> Iterator[Callable[[], str]]:
    """The address of the S3 server, which is started when it is first asked for."""
    with ExitStack() as stack:
        started: list[str] = []

        def get() -> str:
            if not started:
                started.append(stack.enter_context(s3_server()))
            return started[0]

        yield get


@pytest.fixture(params=KINDS)
def blobs(request: pytest.FixtureRequest, tmp_path: Path, address: Callable[[], str]) -> Watched:
    return Watched(a_blob_store(request.param, tmp_path, address))


@pytest.fixture
def folder(tmp_path: Path) -> Watched:
    return Watched(FolderBlobs(tmp_path))


@pytest.fixture
def opened(database: Database, face: str, tenant: str) -> Iterator[Callable[[Any], Any]]:
    """Opens the store of the test's tenant with a blob store."""
    with asyncio.Runner() as runner, ExitStack() as stack:

        def get(blobs: Any) -> Any:
            options = {"tenants": True, "blobs": blobs}
            made = Store(database.url, **options) if face == "sync" else blocking_store(database.url, runner, **options)
            stack.callback(made.close)
            return made.for_tenant(tenant)

        yield get


@pytest.fixture
def rival(database: Database, tenant: str, folder: Watched) -> Iterator[Any]:
    """Another process, so to say, with the same blob store."""
    with Store(database.url, tenants=True, blobs=folder.blobs) as store:
        yield store.for_tenant(tenant)


def meanwhile(call: Callable[[], object]) -> None:
    """Run something in a thread of its own, and wait for it."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(call).result()


def shown(item: Any) -> Any:
    return item.item.content[0].to_dict()["url"]


@pytest.mark.parametrize("blobs", [*KINDS], indirect=True)
@pytest.mark.one_face
class TestEveryKind:
    def test_media_are_objects_and_rows_name_them(
        self, opened: Any, elsewhere: Any, blobs: Watched, tables: Tables
    ) -> None:
        store = opened(blobs)
        conversation = store.create_conversation(model="m")
        conversation.user([PICTURE, "and", PICTURE])
        [row] = tables.rows("blobs")
        assert (row["content"], row["media_type"], row["size"]) == (None, "image/png", len(BIG))
        assert names_in(blobs.blobs) == [row["location"]]
        assert blobs.blobs.get(row["location"]) == BIG
        found = opened(blobs).get_conversation(conversation.id)
        assert shown(found.get_item(0)) == PICTURE["image_url"]
        assert PICTURE["image_url"].encode() in found.request_body("chat_completion")
        assert found.session().items[0].content[0].data == BIG
        assert store.media(row["hash"].hex()).content == BIG
        with pytest.raises(InvalidOption, match="blobs="):
            elsewhere.get_conversation(conversation.id).get_item(0)
        reference = f"threadkeep-media:{row['hash'].hex()}"
        assert shown(elsewhere.get_conversation(conversation.id).get_item(0, media="reference")) == reference

    def test_uploads_are_objects_until_they_expire(
        self, opened: Any, blobs: Watched, tables: Tables, watching: Engine
    ) -> None:
        store = opened(blobs)
        for user in ("ann", "bob"):
            uploaded = store.for_user(user).upload_media(BIG, "image/png")
        conversation = store.create_conversation(model="m")
        conversation.user([PICTURE])
        [row] = tables.rows("blobs")
        assert names_in(blobs.blobs) == [row["location"]], "the same bytes are one object"
        assert store.for_user("bob").media(uploaded.reference).content == BIG
        store.delete_conversation(conversation.id)
        assert names_in(blobs.blobs) == [row["location"]]
        let_expire(watching, uploaded.hash)
        store.purge_deleted()
        assert not names_in(blobs.blobs)
        assert not tables.rows("blobs")

    def test_an_upload_that_fails_leaves_no_object(self, opened: Any, blobs: Watched, tables: Tables) -> None:
        store, blobs.fails = opened(blobs), {"put"}
        with pytest.raises(ConnectionError):
            store.upload_media(BIG)
        assert not names_in(blobs.blobs)
        assert not tables.rows("uploads")

    def test_deleting_removes_the_objects_nothing_else_uses(self, opened: Any, blobs: Watched, tables: Tables) -> None:
        store = opened(blobs)
        one, two = (store.create_conversation(model="m", input=[{"role": "user", "content": [PICTURE]}]) for _ in "12")
        one.user([a_picture(noise(9_000))])
        assert len(names_in(blobs.blobs)) == 2
        store.delete_conversation(one.id)
        assert len(names_in(blobs.blobs)) == tables.counts()["blobs"] == 1
        assert shown(opened(blobs).get_conversation(two.id).get_item(0)) == PICTURE["image_url"]
        store.delete_conversation(two.id)
        assert (names_in(blobs.blobs), tables.counts()["blobs"]) == ([], 0)

    def test_erasing_a_user_removes_objects(self, opened: Any, blobs: Watched) -> None:
        store = opened(blobs)
        for user in ("ann", "bob"):
            store.create_conversation(model="m", user_id=user).user([a_picture(noise(9_000, seed=ord(user[0])))])
        assert len(names_in(blobs.blobs)) == 2
        store.erase_user("ann")
        [kept] = names_in(blobs.blobs)
        assert blobs.blobs.get(kept) == noise(9_000, seed=ord("b"))

    def test_retention_and_the_end_of_a_tenant_remove_objects(
        self, opened: Any, stores: Any, tenant: str, blobs: Watched, database: Database
    ) -> None:
        store = opened(blobs)
        store.create_conversation(model="m").user([PICTURE])
        store.retain(content=0)
        assert names_in(blobs.blobs) == []
        store.create_conversation(model="m").user([PICTURE])
        blobs.blobs.put(f"{store.handle.scope.tenant}/00/{'0' * 64}-{'0' * 16}", b"left by a killed writer", None)
        with pytest.raises(InvalidOption, match="blobs="):
            stores.get("sync").delete_tenant(tenant)
        with Store(database.url, tenants=True, blobs=blobs) as owner:
            owner.delete_tenant(tenant)
        assert names_in(blobs.blobs) == []

    def test_a_tenant_stays_while_its_objects_cannot_be_removed(
        self, opened: Any, tenant: str, blobs: Watched, database: Database
    ) -> None:
        opened(blobs).create_conversation(model="m").user([PICTURE])
        with Store(database.url, tenants=True, blobs=blobs) as owner:
            blobs.fails = {"delete"}
            with pytest.raises(ConnectionError):
                owner.delete_tenant(tenant)
            blobs.fails = set()
            owner.delete_tenant(tenant)
            with pytest.raises(NotFound):
                owner.for_tenant(tenant)
        assert names_in(blobs.blobs) == []

    def test_what_no_row_names_is_removed_after_a_day(self, opened: Any, blobs: Watched) -> None:
        store = opened(blobs)
        store.create_conversation(model="m").user([PICTURE])
        [kept] = names_in(blobs.blobs)
        orphan = f"{kept[:-16]}{'0' * 16}"
        others = [f"{store.handle.scope.tenant + 1}/{orphan.partition('/')[2]}", f"{store.handle.scope.tenant}/readme"]
        for name in (orphan, *others):
            blobs.blobs.put(name, BIG, None)
        store.purge_deleted()
        assert orphan in names_in(blobs.blobs), "its writer may be about to write the row"
        names = blobs.blobs.names
        blobs.blobs.names = lambda prefix, before: names(prefix, before + DAY)  # type: ignore[method-assign]
        store.purge_deleted()
        assert names_in(blobs.blobs) == sorted([kept, *others]), "neither what is used nor what is not the store's own"


def test_all_that_writes_items_puts_media(opened: Any, folder: Watched, tables: Tables) -> None:
    store = opened(folder)
    seeds = iter(range(100))

    def picture() -> dict[str, Any]:
        return a_picture(noise(9_000, seed=next(seeds)))

    def message() -> dict[str, Any]:
        return {"role": "user", "content": [picture()]}

    def answer(id: str) -> dict[str, Any]:
        image = picture()["image_url"].partition(",")[2]
        call = {"type": "image_generation_call", "id": f"ig_{id}", "status": "completed", "result": image}
        return {"id": id, "status": "completed", "output": [call], "usage": {}}

    conversation = store.create_conversation(model="m", input=[message()])
    conversation.add_items([message(), an_output("c", [picture()])], known=False)
    conversation.add_response(answer("resp_1"), "open_responses")
    with conversation.stream_response("open_responses") as recorder:
        recorder.feed({"type": "response.completed", "response": answer("resp_2")})
    conversation.add_input([message()], "open_responses")
    request = {"model": "m", "input": [message()]}
    store.import_request(request, "open_responses").sync_request(
        {"model": "m", "input": [*request["input"], message()]}, "open_responses"
    )
    store.save_many([Session(model="m", input=[message()])] * 2)
    copy = store.copy_conversation(conversation.id)
    rows = tables.rows("blobs")
    assert len(rows) == len(names_in(folder)) == next(seeds)
    assert all(row["location"] and row["content"] is None for row in rows)
    for one in (conversation, copy):
        assert len(opened(folder).get_conversation(one.id).transcript()) == 6


def test_content_is_put_once(opened: Any, folder: Watched) -> None:
    store = opened(folder)
    for _ in range(3):
        store.create_conversation(model="m").user([PICTURE])
    assert folder.calls == ["put"]


def test_media_in_rows_and_in_objects_live_together(opened: Any, store: Any, folder: Watched, tables: Tables) -> None:
    inside = store.create_conversation(model="m")
    inside.user([PICTURE])
    outside = opened(folder).get_conversation(inside.id)
    outside.user([PICTURE, a_picture(noise(9_000))])
    assert [row["location"] is None for row in tables.rows("blobs", "size")] == [False, True]
    found = opened(folder).get_conversation(inside.id).transcript()
    assert [shown(item) for item in found] == [PICTURE["image_url"]] * 2
    assert inside.user([a_picture(noise(9_000))]).position == 2, "the row that is there is as good as its own"


def test_an_object_that_is_missing_or_changed_concerns_its_item_only(
    opened: Any, folder: Watched, tables: Tables, tmp_path: Path
) -> None:
    conversation = opened(folder).create_conversation(model="m")
    conversation.user([PICTURE])
    conversation.user("Hi")
    [row] = tables.rows("blobs")
    path = tmp_path / row["location"]
    for damage in (lambda: path.write_bytes(b"?"), path.unlink):
        damage()
        found = opened(folder).get_conversation(conversation.id)
        with pytest.raises(DamagedRow, match=row["hash"].hex()):
            found.get_item(0)
        with pytest.raises(DamagedRow):
            found.request_body("open_responses")
        assert found.get_item(1).item.content[0].text == "Hi"
        assert len(found.transcript(media="reference")) == 2


def test_removing_and_redacting_items_removes_objects(opened: Any, folder: Watched, tables: Tables) -> None:
    conversation = opened(folder).create_conversation(model="m")
    for seed in range(5):
        conversation.user([a_picture(noise(9_000, seed=seed))])
    assert shown(conversation.pop()) == a_picture(noise(9_000, seed=4))["image_url"]
    conversation.remove_item(0, purge=True)
    assert len(names_in(folder)) == tables.counts()["blobs"] == 3
    folder.calls.clear()
    folder.fails = {"get"}
    conversation.redact_item(1)
    assert folder.calls == ["delete"], "what is removed is not read"
    folder.fails = {"delete"}
    conversation.redact_item(2)
    assert len(names_in(folder)) == tables.counts()["blobs"] == 2
    folder.fails = set()
    conversation.clear()
    opened(folder).purge_deleted()
    assert (names_in(folder), tables.counts()["blobs"]) == ([], 0)


def test_media_of_an_item_that_no_branch_has_are_not_found(opened: Any, folder: Watched, tables: Tables) -> None:
    store = opened(folder)
    conversation = store.create_conversation(model="m")
    conversation.user([PICTURE])
    name = tables.rows("blobs")[0]["hash"].hex()
    fork = conversation.fork()
    conversation.remove_item(0)
    assert store.media(name).content == BIG
    fork.remove_item(0)
    with pytest.raises(NotFound):
        store.media(name)


def test_media_are_moved_by_content(rival: Any, folder: Watched, tables: Tables, tmp_path: Path) -> None:
    conversation = rival.create_conversation(model="m")
    conversation.user([PICTURE])
    assert names_in(folder)
    lines = list(rival.export())
    with Store(f"sqlite:///{tmp_path / 'a.db'}") as one, Store(f"sqlite:///{tmp_path / 'b.db'}") as two:
        one.import_export(lines)
        assert rival.copy_to(two).is_equal
        for store in (one, two):
            assert shown(store.get_conversation(conversation.id).get_item(0)) == PICTURE["image_url"]


# Failing and racing


def test_a_write_that_fails_leaves_no_object(opened: Any, folder: Watched, tables: Tables) -> None:
    conversation = opened(folder).create_conversation(model="m")
    conversation.user("Hi")
    with pytest.raises(HeadConflict):
        conversation.user([PICTURE], expected_head=-1)
    taken = opened(folder).create_conversation(external_id="x")
    with pytest.raises(InvalidOption):
        opened(folder).create_conversation(external_id=taken.external_id, input=[MESSAGE])
    assert (names_in(folder), tables.counts()["blobs"]) == ([], 0)
    folder.fails = {"put"}
    with pytest.raises(ConnectionError):
        conversation.user([PICTURE])
    assert (names_in(folder), tables.counts()["items"]) == ([], 1)


def test_a_repeated_write_leaves_the_object_of_the_first(opened: Any, folder: Watched, tables: Tables) -> None:
    conversation = opened(folder).create_conversation(model="m")
    for _ in range(2):
        conversation.user([PICTURE], idempotency_key="key")
    [row] = tables.rows("blobs")
    assert names_in(folder) == [row["location"]]


def test_a_writer_that_loses_the_race_removes_its_own_object(
    opened: Any, rival: Any, folder: Watched, tables: Tables
) -> None:
    """Another one stores the same media between the look at the database and the transaction."""
    conversation = opened(folder).create_conversation(model="m")
    other = rival.create_conversation(model="m")

    def be_faster() -> None:
        folder.on_put = lambda: None
        meanwhile(lambda: other.user([PICTURE]))

    folder.on_put = be_faster
    conversation.user([PICTURE])
    [row] = tables.rows("blobs")
    assert names_in(folder) == [row["location"]]
    assert shown(opened(folder).get_conversation(conversation.id).get_item(0)) == PICTURE["image_url"]


def test_a_collector_never_removes_what_is_stored_meanwhile(
    opened: Any, rival: Any, folder: Watched, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same media are stored again between the end of their row and the end of their object."""
    store = opened(folder)
    first = store.create_conversation(model="m")
    first.user([PICTURE])
    second = rival.create_conversation(model="m")
    delete = folder.blobs.delete

    def stored_before(name: str) -> None:
        monkeypatch.setattr(folder.blobs, "delete", delete)
        meanwhile(lambda: second.user([PICTURE]))
        delete(name)

    monkeypatch.setattr(folder.blobs, "delete", stored_before)
    store.delete_conversation(first.id)
    [row] = tables.rows("blobs")
    assert names_in(folder) == [row["location"]]
    assert shown(opened(folder).get_conversation(second.id).get_item(0)) == PICTURE["image_url"]


def test_media_that_are_collected_while_they_are_linked_are_stored_anyway(
    opened: Any, rival: Any, folder: Watched, tables: Tables
) -> None:
    """They were in the database when their writer looked, and gone when it wrote."""
    store = opened(folder)
    first = store.create_conversation(model="m")
    first.user([PICTURE])
    second = opened(folder).create_conversation(model="m")
    other = a_picture(noise(9_000))

    def collect() -> None:
        folder.on_put = lambda: None
        meanwhile(lambda: rival.delete_conversation(first.id))

    folder.on_put = collect
    second.user([PICTURE, other])
    assert [row["location"] is None for row in tables.rows("blobs", "size")] == [False, True]
    assert len(names_in(folder)) == 1
    assert shown(opened(folder).get_conversation(second.id).get_item(0)) == PICTURE["image_url"]


def test_an_interrupted_removal_is_finished_by_the_next_one(opened: Any, folder: Watched, tables: Tables) -> None:
    store = opened(folder)
    conversation = store.create_conversation(model="m", user_id="ann")
    conversation.user([PICTURE])
    folder.fails = {"delete"}
    with pytest.raises(ConnectionError):
        store.erase_user("ann")
    assert len(names_in(folder)) == tables.counts()["blobs"] == 1
    assert tables.counts()["items"] == 0
    folder.fails = set()
    store.erase_user("ann")
    assert (names_in(folder), tables.counts()["blobs"]) == ([], 0)


def test_a_store_without_blobs_leaves_the_objects_to_one_that_has_them(
    opened: Any, store: Any, folder: Watched, tables: Tables
) -> None:
    conversation = opened(folder).create_conversation(model="m", user_id="ann")
    conversation.user([PICTURE])
    with pytest.raises(InvalidOption, match="blobs="):
        store.erase_user("ann")
    store.delete_conversation(conversation.id)
    assert tables.counts()["blobs"] == 1
    with pytest.raises(NotFound):
        opened(folder).media(tables.rows("blobs")[0]["hash"].hex())
    opened(folder).purge_deleted()
    assert (names_in(folder), tables.counts()["blobs"]) == ([], 0)


def test_a_callers_transaction_puts_first_and_removes_nothing(
    database: Database, tenant: str, folder: Watched, tables: Tables, watching: Engine
) -> None:
    with Store(database.url, tenants=True, blobs=folder) as owner:
        store = owner.for_tenant(tenant)
        conversation = store.create_conversation(model="m")
        with watching.connect() as host:
            store.within(host).get_conversation(conversation.id).user([PICTURE])
            host.rollback()
        [orphan] = names_in(folder)
        assert tables.counts()["blobs"] == 0
        with watching.begin() as host:
            store.within(host).get_conversation(conversation.id).user([PICTURE])
        [row] = tables.rows("blobs")
        assert names_in(folder) == sorted([orphan, row["location"]])
        with watching.connect() as host:
            store.within(host).delete_conversation(conversation.id)
            host.rollback()
        assert shown(store.get_conversation(conversation.id).get_item(0)) == PICTURE["image_url"]
        with watching.begin() as host:
            store.within(host).delete_conversation(conversation.id)
        assert len(names_in(folder)) == 2
        store.purge_deleted()
        assert names_in(folder) == [orphan], "which goes after a day"


def test_a_lost_commit_keeps_the_object(
    opened: Any, folder: Watched, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether the row was written that names it."""
    conversation = opened(folder).create_conversation(model="m")

    def lose(_: Any, connection: Connection) -> None:
        raise DBAPIError("COMMIT", {}, Exception("lost"), connection_invalidated=True)

    monkeypatch.setattr(Connection, "commit", lambda connection: lose(None, connection))
    with pytest.raises(DBAPIError):
        conversation.user([PICTURE])
    monkeypatch.undo()
    assert len(names_in(folder)) == 1
    assert tables.counts()["items"] == 0


def test_nobody_waits_while_a_repair_reads_what_is_right(opened: Any, folder: Watched, tables: Tables) -> None:
    """Only the medium that is mended is read again, in a transaction that keeps other writers out."""
    store = opened(folder)
    conversation = store.create_conversation(model="m")
    conversation.user([a_picture(noise(9_000, seed)) for seed in range(8)])
    hash_ = tables.rows("blobs")[3]["hash"]
    place = schema.blobs.c.tenant_id == tables._tenant, schema.blobs.c.hash == hash_
    tables._connection.execute(update(schema.blobs).where(*place).values(size=1))
    tables._connection.commit()
    folder.calls.clear()
    report = store.check(repair=True)
    assert [(finding.code, finding.is_repaired) for finding in report.findings] == [("media", True)]
    assert folder.calls == ["get"] * (8 + 2)


def test_an_interrupted_import_keeps_the_objects(
    opened: Any, folder: Watched, stores: Any, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its COMMIT may be on its way."""
    source = stores.get("sync", "elsewhere").create_tenant(f"{tenant} source")
    source.create_conversation(model="m", input=[MESSAGE])
    lines, target = list(source.export()), opened(folder)

    def interrupt(_: Connection) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            target.import_export(lines)
    [orphan] = names_in(folder)
    assert target.import_export(lines).conversations == 1
    [conversation] = target.list_conversations()
    assert shown(conversation.get_item(0)) == PICTURE["image_url"]
    assert len({*names_in(folder), orphan}) == 2, "one of them goes after a day"


def test_the_event_loop_waits_for_no_blob_store(database: Database, opened: Any, face: str, folder: Watched) -> None:
    conversation = opened(folder).create_conversation(model="m")
    conversation.user([PICTURE, a_picture(noise(9_000))])
    opened(folder).get_conversation(conversation.id).transcript()
    assert folder.calls == ["put", "put", "get", "get"]
    if face == "async":
        assert threading.get_ident() not in folder.threads


# Stores themselves


def test_names_lead_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    inner = tmp_path / "inner"
    inner.mkdir()
    for name in ("../secret", "/etc/hostname", "", "a/../../secret", "a\x00b"):
        with pytest.raises(KeyError):
            FolderBlobs(inner).get(name)


def test_what_is_no_blob_store_is_refused(tmp_path: Path) -> None:
    for wrong in (object(), FolderBlobs, str(tmp_path)):
        with pytest.raises(InvalidOption, match="blobs"):
            Store("sqlite://", blobs=wrong)  # type: ignore[arg-type]
    for path in (tmp_path / "missing", 3):
        with pytest.raises(InvalidOption):
            FolderBlobs(path)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption):
        S3Blobs("", client=object())


def test_new_folders_are_durable_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row may name the file right after `put`, so that a crash must not take the folder that it is in."""
    synced: list[str] = []
    descriptors: dict[int, str] = {}
    opened = os.open

    def watched(path: Any, *rest: Any, **options: Any) -> int:
        descriptor = opened(path, *rest, **options)
        descriptors[descriptor] = str(path)
        return descriptor

    monkeypatch.setattr(os, "open", watched)
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(descriptors.pop(descriptor, "a file")))
    blobs = FolderBlobs(tmp_path)
    blobs.put("1/ab/first", b"x", None)
    assert synced == [str(tmp_path), str(tmp_path / "1"), "a file", str(tmp_path / "1" / "ab")]
    synced.clear()
    blobs.put("1/ab/second", b"x", None)
    assert synced == ["a file", str(tmp_path / "1" / "ab")]


def test_names_of_files_that_somebody_else_removes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = FolderBlobs(tmp_path)
    for name in ("1/a", "1/b"):
        blobs.put(name, b"x", None)
    is_file = Path.is_file

    def removed_then(path: Path, *rest: Any, **options: Any) -> bool:
        found = is_file(path, *rest, **options)
        if path.name == "a":
            blobs.delete("1/a")
        return found

    monkeypatch.setattr(Path, "is_file", removed_then)
    assert list(blobs.names("1/", datetime.now(UTC) + DAY)) == ["1/b"]


def test_half_a_file_is_not_there(tmp_path: Path) -> None:
    """A writer that was killed leaves a file that has no name of media, and goes with the orphans."""
    (tmp_path / f"a-{uuid4().hex}.part").write_bytes(b"half")
    assert list(FolderBlobs(tmp_path).names("", datetime.now(UTC) - DAY)) == []
    assert len(list(tmp_path.iterdir())) == 1
    assert list(FolderBlobs(tmp_path).names("", datetime.now(UTC) + DAY)) == []
    assert list(tmp_path.iterdir()) == []
