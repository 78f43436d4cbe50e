"""How many statements take all items of a conversation: so many for a page of rows, at 10 and at 100,000 items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.store.filled import SIZES, database, filled
from tests.store.watching import statements_of

__all__ = ["database", "filled"]  # fixtures
pytestmark = pytest.mark.sampled

PAGE = 10_000  # items
# Name -> what reads a conversation, and how many statements it takes for a page of items: most read 200 rows at once
CALLS: dict[str, tuple[Callable[[Any, str], Any], int]] = {
    "an export": (lambda store, public_id: sum(1 for _ in store.export(conversation_ids=[public_id])), 50),
    "a check": (lambda store, _: store.check(), 160),
}


@pytest.mark.slow
@pytest.mark.parametrize("face", ["sync"])
@pytest.mark.parametrize("name", CALLS)
def test_it_takes_pages(stores: Any, face: str, filled: Any, name: str) -> None:
    call, statements = CALLS[name]
    counts = []
    for size in SIZES:
        tenant, public_id = filled[size]
        store = stores.get(face).for_tenant(tenant)
        with statements_of(store) as seen:
            call(store, public_id)
        counts.append(len(seen))
    assert counts[1] - counts[0] <= statements * max(SIZES) / PAGE
