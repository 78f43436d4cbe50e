# ruff: noqa: F401, F811 - fixtures
"""How many statements media take: the same at 10 and at 100,000 items, in rows and in a blob store."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.databases import Database
from tests.factories import a_picture, noise
from tests.store.blob_stores import Watched
from tests.store.filled import database, filled, size
from tests.store.test_statements import count, handle
from tests.store.watching import statements_of
from threadkeep import Store
from threadkeep.blobs import FolderBlobs

pytestmark = [pytest.mark.one_face, pytest.mark.sampled]

CONVERSATION, LINEAGE, ITEM, PIECES, MEDIA = 1, 1, 1, 1, 1
USER, BLOBS = 3, 2  # the rows of media, and where they belong
LOOK, PLACES = 1, 1  # for what is known before the transaction, and for whose object the row names
BIG = noise(20_000)


@pytest.fixture
def placed(database: Database, size: int, filled: Any, tmp_path: Path) -> Iterator[tuple[Any, Watched]]:
    """A conversation of that size, in a store with a blob store."""
    blobs = Watched(FolderBlobs(tmp_path))
    tenant, public_id = filled[size]
    with Store(database.url, tenants=True, blobs=blobs) as store:
        yield store.for_tenant(tenant).get_conversation(public_id), blobs


def test_an_item_in_reference_mode(handle: Any) -> None:
    position = handle.user([a_picture(BIG)]).position
    lineage = LINEAGE if handle.branch else 0
    expected = CONVERSATION + lineage + ITEM + PIECES
    assert count(handle, lambda: handle.get_item(position, media="reference")) == expected
    assert count(handle, lambda: handle.get_item(position)) == expected


def test_media(stores: Any, face: str, size: int, filled: Any, handle: Any) -> None:
    store = stores.get(face).for_tenant(filled[size][0])
    handle.user([a_picture(BIG)])
    name = sha256(BIG).hexdigest()
    assert count(store, lambda: store.media(name)) == MEDIA
    handle.update(user_id="ann")
    assert count(store, lambda: store.for_user("ann").media(name)) == MEDIA


def test_appending_media_to_a_blob_store(placed: tuple[Any, Watched], size: int, database: Database) -> None:
    conversation, blobs = placed
    extra = database.kind == "mariadb"
    seeds = iter(range(size, size + 9))
    conversation.user("Hi")
    new = count(conversation, lambda: conversation.user([a_picture(noise(20_000, seed=next(seeds)))]))
    assert new <= USER + BLOBS + LOOK + PLACES + extra
    assert blobs.calls == ["put"] * 2
    known = a_picture(noise(20_000, seed=size))
    assert count(conversation, lambda: conversation.user([known])) <= new
    assert count(conversation, lambda: conversation.user("Hi")) <= USER + extra, "text costs nothing more"
    assert blobs.calls == ["put"] * 2


def test_a_request_with_urls_reads_only_what_is_new(placed: tuple[Any, Watched]) -> None:
    conversation, blobs = placed
    conversation.user([a_picture(BIG)])
    view = {"media_url": "https://files.example/{hash}"}
    conversation.request_body("messages", **view)
    conversation.user([a_picture(noise(9_000))])
    with statements_of(conversation) as seen:
        conversation.request_body("messages", **view)
    assert len(seen) == CONVERSATION + PIECES
    assert "get" not in blobs.calls
