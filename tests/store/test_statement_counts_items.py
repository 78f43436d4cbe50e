# ruff: noqa: F401, F811 - fixtures
"""How many statements it takes to find an item by its id: the same at 10 and at 100,000 items."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import a_message
from tests.store.filled import database, filled, size
from tests.store.test_statements import count, handle

pytestmark = [pytest.mark.one_face, pytest.mark.sampled]

CONVERSATION, LINEAGE, DERIVED, OWN, ITEM = 1, 1, 1, 1, 1


@pytest.fixture
def tenant_store(stores: Any, face: str, size: int, filled: Any) -> Any:
    return stores.get(face).for_tenant(filled[size][0])


def test_an_item_by_its_own_id(handle: Any) -> None:
    handle.add_item(a_message() | {"id": "msg_wanted"})
    lineage = LINEAGE if handle.branch else 0
    assert count(handle, lambda: handle.get_item("msg_wanted")) == CONVERSATION + lineage + OWN + ITEM


def test_an_item_by_its_derived_id(handle: Any) -> None:
    item_id = handle.get_item(5).id
    lineage = LINEAGE if handle.branch else 0
    assert count(handle, lambda: handle.get_item(item_id)) == CONVERSATION + lineage + DERIVED + OWN + ITEM


def test_a_page_behind_an_id(handle: Any) -> None:
    item_id = handle.get_item(5).id
    by_position = count(handle, lambda: handle.items(after=5, limit=2))
    assert count(handle, lambda: handle.items(after=item_id, limit=2)) == by_position + DERIVED + OWN


def test_an_item_of_any_conversation(tenant_store: Any, handle: Any) -> None:
    handle.add_item(a_message() | {"id": f"msg_{handle.branch}"})
    derived = handle.get_item(5).id
    assert count(tenant_store, lambda: tenant_store.get_item(derived)) == CONVERSATION + DERIVED + OWN + ITEM
    # on another branch than the active one it is looked for once more
    again = OWN if handle.branch else 0
    found = count(tenant_store, lambda: tenant_store.get_item(f"msg_{handle.branch}"))
    assert found == 1 + CONVERSATION + OWN + again + ITEM
