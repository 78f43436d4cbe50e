"""Large values: stored and returned exactly, or refused before anything is sent to the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.databases import Database
from tests.factories import a_message, a_picture, an_answer, an_output, noise
from tests.store.watching import Tables
from threadkeep import Store, TooLarge
from threadkeep.blobs import FolderBlobs

pytestmark = pytest.mark.one_face


def big_outputs() -> dict[str, str]:
    return {"ascii": "x" * 20_000_000, "quotes": '"' * 9_000_000, "emoji": "👩" * 4_500_000}


@pytest.mark.parametrize("kind", ["ascii", "quotes", "emoji"])
def test_a_large_output_is_stored_or_refused(
    database: Database, conversation: Any, elsewhere: Any, tables: Tables, kind: str
) -> None:
    """MariaDB takes packets of 16 MB as it is delivered; what does not fit is refused before it is sent."""
    output = big_outputs()[kind]
    written = tables.written()
    if database.kind == "mariadb":
        calls: list[Callable[[], Any]] = [
            lambda: conversation.add_item(an_output("c", output), known=False),
            lambda: conversation.add_response(an_answer(output), "open_responses"),
        ]
        for call in calls:
            with pytest.raises(TooLarge, match="max_allowed_packet"):
                call()
        assert written() == {}
        conversation.user("The connection is as good as before")
    else:
        conversation.add_item(an_output("c", output), known=False)
        assert elsewhere.get_conversation(conversation.id).get_item(0).item.output == output


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
@pytest.mark.parametrize("place", ["error", "option", "tool", "creation", "usage"])
def test_large_values_are_refused_everywhere(store: Any, conversation: Any, tables: Tables, place: str) -> None:
    big = "x" * 17_000_000
    calls: dict[str, Callable[[], Any]] = {
        "error": lambda: conversation.record_attempt("open_responses", error=big),
        "option": lambda: conversation.update(instructions=big),
        "tool": lambda: conversation.register_tool("t", description=big),
        "creation": lambda: store.create_conversation(instructions=big),
        "usage": lambda: conversation.add_response(an_answer(usage={"input_tokens": 1, "x": big}), "open_responses"),
    }
    written = tables.written()
    with pytest.raises(TooLarge):
        calls[place]()
    assert written() == {}
    assert conversation.user("Hi").position == 0


def test_large_media_is_stored_or_refused(
    database: Database, conversation: Any, elsewhere: Any, tables: Tables
) -> None:
    """Bytes take twice their size on the wire to MariaDB."""
    small, large = (a_picture(noise(size)) for size in (8_000_000, 9_000_000))
    conversation.user([small])
    written = tables.written()
    if database.kind == "mariadb":
        with pytest.raises(TooLarge, match="the media of an item"):
            conversation.user([large])
        assert written() == {}
    else:
        conversation.user([large])
    assert (
        elsewhere.get_conversation(conversation.id).get_item(0).item.content[0].to_dict()["url"] == small["image_url"]
    )


def test_media_in_a_blob_store_may_be_larger_than_a_packet(database: Database, tenant: str, tmp_path: Path) -> None:
    large = a_picture(noise(20_000_000))
    with Store(database.url, tenants=True, blobs=FolderBlobs(tmp_path)) as store:
        conversation = store.for_tenant(tenant).create_conversation(model="m")
        conversation.user([large])
        found: Any = store.for_tenant(tenant).get_conversation(conversation.id)
        assert found.get_item(0).item.content[0].to_dict()["url"] == large["image_url"]


def test_odd_ids_beside_a_large_output(conversation: Any, elsewhere: Any) -> None:
    conversation.add_item({**an_output("\ud800\x00", "x" * 300_000), "id": "\udfff"}, known=False)
    item = elsewhere.get_conversation(conversation.id).get_item(0).item
    assert (item.call_id, item.id, len(item.output)) == ("\ud800\x00", "\udfff", 300_000)


def test_many_large_items_are_more_than_a_packet(conversation: Any, elsewhere: Any) -> None:
    """The limit is about one row, not about what is appended at once."""
    conversation.add_items([a_message("x" * 3_000_000) for _ in range(8)])
    assert len(elsewhere.get_conversation(conversation.id).request_body("open_responses")) > 24_000_000
