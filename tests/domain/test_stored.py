from __future__ import annotations

from threadkeep.domain.items import Message
from threadkeep.domain.stored import Page, StoredItem


def test_a_page_is_what_it_holds() -> None:
    page = Page([1, 2, 3], next="3")
    assert list(page) == [1, 2, 3]
    assert len(page) == 3
    assert page.next == "3"
    assert Page[int]([]).next is None


def test_a_stored_item_has_its_place() -> None:
    stored = StoredItem("item_1", 4, 0, None, Message("user", "a"))
    assert (stored.position, stored.branch, stored.turn, stored.replayed) == (4, 0, None, False)
    assert stored.item.to_dict()["content"] == [{"type": "input_text", "text": "a"}]


def test_an_object_stays_as_it_was_read() -> None:
    """Typed items leave out what says nothing."""
    given = {"type": "reasoning", "id": "rs_1", "summary": []}
    stored = StoredItem("rs_1", 0, 0, None, given)
    assert stored.item is stored.item
    assert stored.to_object() == given
    assert "item=Reasoning(" in repr(stored)
    assert stored == StoredItem("rs_1", 0, 0, None, stored.item)
