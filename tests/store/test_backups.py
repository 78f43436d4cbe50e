"""Backups of SQLite files in use, and copies of whole databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.databases import Database
from tests.store.test_exports import bodies, full
from threadkeep import Conflict, InvalidOption, NotFound, Store, ThreadkeepError
from threadkeep.blobs import FolderBlobs
from threadkeep.store.work.tenants import list_tenants


def test_backup_is_for_sqlite(database: Database, store: Any, tmp_path: Path) -> None:
    conversation, file = full(store), tmp_path / "backup.db"
    if database.kind != "sqlite":
        with pytest.raises(InvalidOption, match="Only SQLite"):
            store.backup(file)
        assert not file.exists()
        return
    seen: list[int] = []

    def note(_what: str, count: int) -> None:
        assert not file.exists()  # what is killed now is no backup
        seen.append(count)

    assert store.backup(file, progress=note) == file.stat().st_size
    assert [one.name for one in tmp_path.iterdir()] == ["backup.db"]
    assert seen == sorted(seen)
    with Store(f"sqlite:///{file}", tenants=True) as opened:
        name = next(name for name in tenants_of(opened) if has(opened.for_tenant(name), conversation.id))
        assert bodies(opened.for_tenant(name).get_conversation(conversation.id)) == bodies(conversation)
    before = file.read_bytes()
    for wrong in (file, tmp_path, tmp_path / "none" / "x.db", "", "a\x00b", None, 1, b"x"):
        with pytest.raises(InvalidOption):
            store.backup(wrong)
    assert file.read_bytes() == before


def test_a_backup_replaces_no_link_that_leads_nowhere(tmp_path: Path) -> None:
    """It may lead to a disk that is not there just now."""
    file = tmp_path / "backup.db"
    file.symlink_to(tmp_path / "disk" / "backup.db")
    with Store(f"sqlite:///{tmp_path / 'chat.db'}") as store:
        store.create_conversation(model="m")
        with pytest.raises(InvalidOption, match="it exists already"):
            store.backup(file)
    assert file.is_symlink()


def tenants_of(store: Store) -> list[str]:
    return list_tenants(store.handle.transactions)


def has(store: Any, id: str) -> bool:
    try:
        store.get_conversation(id)
    except NotFound:
        return False
    return True


def test_a_backup_is_of_one_moment_while_others_write(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'a.db'}") as store, Store(f"sqlite:///{tmp_path / 'a.db'}") as writer:
        conversation = store.create_conversation(model="m", input="x" * 5_000_000)
        elsewhere = writer.get_conversation(conversation.id)

        def write(what: str, count: int) -> None:
            elsewhere.user(f"meanwhile {what} {count}")

        store.backup(tmp_path / "b.db", progress=write)
        assert len(conversation.transcript()) > 1
    with Store(f"sqlite:///{tmp_path / 'b.db'}") as opened:
        assert len(opened.get_conversation(conversation.id).transcript()) == 1


def test_a_backup_by_the_store_of_a_user_is_refused(tmp_path: Path) -> None:
    """It would have the data of all others."""
    file = tmp_path / "copy.db"
    with Store(f"sqlite:///{tmp_path / 'chat.db'}") as store:
        store.create_conversation(model="m", input="a secret", user_id="ann")
        with pytest.raises(InvalidOption, match=r"all users.*'bob' only"):
            store.for_user("bob").backup(file)
    assert not file.exists()


def test_a_backup_within_a_transaction_is_refused(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'a.db'}") as store:
        store.create_conversation()
        engine: Any = store.handle.transactions.engine  # type: ignore[union-attr]
        with engine.connect() as host, pytest.raises(InvalidOption, match="within a transaction"):
            store.within(host).backup(tmp_path / "b.db")


@pytest.mark.parametrize("wrong", [None, 1, "sqlite:///x.db", object()])
def test_only_stores_are_copied_to(store: Any, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="other must be"):
        store.copy_to(wrong)


def test_all_tenants(tmp_path: Path) -> None:
    with (
        Store(f"sqlite:///{tmp_path / 'a.db'}", tenants=True) as source,
        Store(f"sqlite:///{tmp_path / 'b.db'}", tenants=True) as target,
    ):
        for name in ("one", "two"):
            full(source.create_tenant(name))
        target.create_tenant("two")
        report = source.copy_to(target)
        assert (report.conversations, report.compared, report.is_equal) == (2, 2, True)
        assert report.figures["input_tokens"] == 20
        assert len(target.for_tenant("one").list_conversations().items) == 1
        with pytest.raises(InvalidOption, match="tenants"):
            source.copy_to(target.for_tenant("one"))


def objects(folder: Path) -> int:
    return sum(1 for path in folder.rglob("*") if path.is_file())


def test_media_of_blob_stores_are_copied_by_content(tmp_path: Path) -> None:
    """From a folder into a database, and from there into another folder; what was put for nothing is removed."""
    for name in ("one", "two"):
        tmp_path.joinpath(name).mkdir()
    one, two = FolderBlobs(tmp_path / "one"), FolderBlobs(tmp_path / "two")
    with (
        Store(f"sqlite:///{tmp_path / 'a.db'}", blobs=one) as first,
        Store(f"sqlite:///{tmp_path / 'b.db'}") as second,
        Store(f"sqlite:///{tmp_path / 'c.db'}", blobs=two) as third,
    ):
        conversation = full(first)
        assert (objects(tmp_path / "one"), first.copy_to(second).is_equal) == (1, True)
        assert bodies(second.get_conversation(conversation.id)) == bodies(conversation)
        lines = list(second.export())
        assert lines[1:] == list(first.export())[1:]
        third.create_conversation(external_id="x")
        with pytest.raises(Conflict):
            third.import_export(lines)
        assert objects(tmp_path / "two") == 0
        third.delete_conversation(third.find_conversation(external_id="x").id)  # type: ignore[union-attr]
        assert third.import_export(lines).conversations == 1
        assert (objects(tmp_path / "two"), third.import_export(lines).skipped) == (1, 1)
        assert objects(tmp_path / "two") == 1
        assert bodies(third.get_conversation(conversation.id)) == bodies(conversation)
        third.reindex()
        assert third.check().findings == []
        for path in (tmp_path / "two").rglob("*"):
            if path.is_file():
                path.unlink()
        assert [(one.code, one.table, one.repair) for one in third.check().findings] == [("media", "blobs", None)]
        with pytest.raises(ThreadkeepError, match="blob"):
            list(third.export())
