"""Media that are uploaded before an item has them: whose they are, how long they stay, and what removes them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import Engine, update

from tests.factories import a_picture, noise
from tests.store.watching import Tables
from threadkeep import InvalidOption, NotFound
from threadkeep.db.models import uploads

BIG = noise(20_000)
HASH = sha256(BIG).hexdigest()
PNG = b"\x89PNG\r\n\x1a\n" + BIG


def let_expire(engine: Engine, hash: str = HASH) -> None:
    """Make uploads of a content a day older."""
    past = datetime.now(UTC) - timedelta(seconds=1)
    with engine.begin() as connection:
        connection.execute(update(uploads).where(uploads.c.hash == bytes.fromhex(hash)).values(expires_at=past))


def test_an_upload_is_found_by_its_user(store: Any, elsewhere: Any) -> None:
    uploaded = store.for_user("ann").upload_media(BIG, "image/webp")
    assert (uploaded.media_type, uploaded.size, uploaded.hash) == ("image/webp", len(BIG), HASH)
    assert uploaded.reference == f"threadkeep-media:{HASH}"
    assert timedelta(hours=23) < uploaded.expires_at - datetime.now(UTC) < timedelta(hours=25)
    for name in (uploaded.hash, uploaded.reference):
        media = elsewhere.for_user("ann").media(name)
        assert (media.content, media.media_type, media.size) == (BIG, "image/webp", len(BIG))


def test_nobody_else_finds_it(store: Any, stores: Any, face: str, tenant: str) -> None:
    store.for_user("ann").upload_media(BIG, "image/png")
    stores.get(face).create_tenant(f"{tenant} 2")
    stranger = stores.get(face).for_tenant(f"{tenant} 2")
    for other in (store.for_user("bob"), stranger, stranger.for_user("ann")):
        with pytest.raises(NotFound):
            other.media(HASH)
    assert store.media(HASH).content == BIG, "a store for all users finds it, like conversations"


def test_an_upload_does_not_tell_whether_others_have_the_same(store: Any) -> None:
    store.for_user("ann").upload_media(BIG, "image/png")
    found = store.for_user("bob").upload_media(BIG, "application/pdf")
    assert found.media_type == store.for_user("bob").media(HASH).media_type == "application/pdf"
    assert store.for_user("ann").media(HASH).media_type == "image/png"


def test_the_same_bytes_again_are_the_same_upload(store: Any, tables: Tables, watching: Engine) -> None:
    first = store.for_user("ann").upload_media(PNG)
    again = store.for_user("ann").upload_media(PNG, "image/x-png")
    assert (first.media_type, again.media_type, first.hash) == ("image/png", "image/x-png", again.hash)
    assert again.expires_at > first.expires_at
    let_expire(watching, first.hash)
    store.for_user("ann").upload_media(PNG)
    assert store.for_user("ann").media(first.hash).content == PNG
    assert len(tables.rows("uploads")) == len(tables.rows("blobs")) == 1


def test_what_is_uploaded_at_once_is_stored_once(stores: Any, tenant: str, tables: Tables) -> None:
    def upload(number: int) -> str:
        found: str = (
            stores.get("sync", str(number)).for_tenant(tenant).for_user(f"u{number % 2}").upload_media(BIG).hash
        )
        return found

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(upload, range(8))) == {HASH}
    assert (len(tables.rows("uploads")), len(tables.rows("blobs"))) == (2, 1)


def test_it_is_gone_when_it_has_expired(store: Any, tables: Tables, watching: Engine) -> None:
    store.for_user("ann").upload_media(BIG)
    other = store.for_user("ann").upload_media(PNG)
    let_expire(watching)
    with pytest.raises(NotFound):
        store.for_user("ann").media(HASH)
    store.purge_deleted()
    assert [row["hash"] for row in tables.rows("uploads")] == [bytes.fromhex(other.hash)]
    assert [bytes(row["hash"]) for row in tables.rows("blobs")] == [bytes.fromhex(other.hash)]


def test_it_stays_as_long_as_an_item_has_it(store: Any, tables: Tables, watching: Engine) -> None:
    store.for_user("ann").upload_media(BIG)
    conversation = store.create_conversation(model="m", user_id="ann")
    conversation.user([a_picture(BIG)])
    let_expire(watching)
    store.purge_deleted()
    assert store.for_user("ann").media(HASH).content == BIG
    assert tables.rows("uploads") == []
    store.delete_conversation(conversation.id)
    assert tables.rows("blobs") == []


def test_deleting_a_conversation_leaves_what_is_uploaded(store: Any) -> None:
    store.for_user("ann").upload_media(BIG)
    conversation = store.create_conversation(model="m", user_id="bob")
    conversation.user([a_picture(BIG)])
    store.delete_conversation(conversation.id)
    assert store.for_user("ann").media(HASH).content == BIG
    assert not store.check().findings


def test_erasing_a_user_removes_what_it_uploaded(store: Any, tables: Tables) -> None:
    store.for_user("ann").upload_media(BIG)
    store.for_user("ann").upload_media(PNG)
    store.for_user("bob").upload_media(PNG)
    store.erase_user("ann")
    assert [row["user_id"] for row in tables.rows("uploads")] == ["bob"]
    assert [bytes(row["hash"]) for row in tables.rows("blobs")] == [sha256(PNG).digest()]


def test_a_tenant_is_deleted_with_its_uploads(stores: Any, face: str, tenant: str, tables: Tables) -> None:
    stores.get(face).for_tenant(tenant).upload_media(BIG)
    stores.get(face).delete_tenant(tenant)
    assert tables.rows("uploads") == tables.rows("blobs") == []


def test_nothing_is_uploaded_for_a_tenant_that_is_gone(stores: Any, face: str, tenant: str, store: Any) -> None:
    stores.get(face, "elsewhere").delete_tenant(tenant)
    with pytest.raises(NotFound):
        store.upload_media(BIG)


@pytest.mark.parametrize("content", [b"", "text", None, 3])
def test_other_contents_are_refused(store: Any, content: Any) -> None:
    with pytest.raises(InvalidOption, match="content"):
        store.upload_media(content)


@pytest.mark.parametrize("media_type", ["", "image", "image/png\r\nx: y", 3, "a" * 200 + "/b"])
def test_other_types_are_refused(store: Any, media_type: Any) -> None:
    with pytest.raises(InvalidOption, match="media_type"):
        store.upload_media(BIG, media_type)
