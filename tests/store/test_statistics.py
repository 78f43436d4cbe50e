"""How much is stored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import a_message, a_picture, an_answer, noise
from tests.store.watching import Tables
from threadkeep import InvalidOption

pytestmark = pytest.mark.one_face


def test_everything_is_counted_and_measured(store: Any, tables: Tables) -> None:
    small = store.create_conversation(model="m", user_id="ann", title="Small", input="Hi there")
    large = store.create_conversation(model="m", user_id="ben")
    large.add_items([a_message("\u00e9" * 1_000), a_message("x")])
    large.user([a_picture(noise(9_000))])
    large.add_response(an_answer("Hello"), "open_responses")
    large.fork(at=0).user("Other")
    store.create_conversation(input="Old").archive()
    gone = store.create_conversation(input="Gone")
    gone.record_attempt("open_responses")
    store.delete_conversation(gone.id)
    found = store.statistics(largest=2)
    rows = tables.rows("items", "conversation_id", "position")
    size: dict[int | None, int] = {}
    for row in rows:
        count = sum(len((row[name] or "").encode()) for name in ("payload", "rest", "given"))
        for key in (None, row["conversation_id"]):
            size[key] = size.get(key, 0) + count
    bodies = tables.rows("response_bodies", "number")
    assert (found.active, found.archived, found.branches, found.items) == (2, 1, 1, 7)
    assert (found.item_bytes, found.responses, found.attempts) == (size[None], 1, 2)
    assert (found.body_bytes, found.media, found.media_bytes) == (len(bodies[0]["body"]), 1, 9_000)
    assert [(one.id, one.user_id, one.title, one.items) for one in found.largest] == [
        (large.id, "ben", None, 5),
        (small.id, "ann", "Small", 1),
    ]
    assert [one.item_bytes for one in found.largest] == [size[large.handle.ref.key], size[small.handle.ref.key]]


def test_a_store_of_one_user_counts_its_own(store: Any) -> None:
    for user in ("ann", "ben", "ben"):
        store.create_conversation(user_id=user, input="Hi").record_attempt("open_responses")
    mine = store.for_user("ann").statistics()
    assert (mine.active, mine.items, mine.attempts, mine.media, len(mine.largest)) == (1, 1, 1, None, 1)
    assert store.statistics().active == 3


def test_an_empty_store(store: Any) -> None:
    found = store.statistics()
    assert (found.active, found.items, found.item_bytes, found.media_bytes, list(found.largest)) == (0, 0, 0, 0, [])
    with pytest.raises(InvalidOption):
        store.statistics(largest=0)
