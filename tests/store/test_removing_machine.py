"""Generated lives of a conversation, against lists: after every step, what fresh handles see is what the lists say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.conftest import is_set
from tests.factories import texts_of
from threadkeep import CannotRender, NotFound, Store
from threadkeep.store.work.refs import Lineage, LineagePart

STEPS = 40 if is_set("THREADKEEP_LONG") else 12
EXAMPLES = 300 if is_set("THREADKEEP_LONG") else 8
PICK = st.integers(0, 30)

# A branch: position and text of each item
Items = list[tuple[int, str]]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('removing')}/chat.db"


@pytest.fixture(scope="module")
def pair(url: str) -> Iterator[tuple[Any, Any]]:
    """The store that changes the conversation, and another one that looks at it."""
    with Store(url) as store, Store(url) as other:
        yield store, other


class Branches(RuleBasedStateMachine):
    """Branches as lists; `stores` is set by the test."""

    stores: tuple[Any, Any]

    def __init__(self) -> None:
        super().__init__()
        self.root = self.stores[0].create_conversation(model="m")
        self.lists: dict[int, Items] = {0: []}
        self.handles: dict[int, Any] = {0: self.root}
        self.readers: dict[int, Any] = {}
        self.hidden = 0

    def choose(self, pick: int) -> tuple[int, Any, Items]:
        """A branch, on the handle that was kept or on a new one."""
        number = sorted(self.lists)[pick % len(self.lists)]
        if pick % 3 == 0:
            self.handles[number] = self.stores[pick % 2].get_conversation(self.root.id, branch=number)
        return number, self.handles[number], self.lists[number]

    @rule(pick=PICK, count=st.integers(1, 3))
    def append(self, pick: int, count: int) -> None:
        _, handle, items = self.choose(pick)
        stored = handle.add_items([{"role": "user", "content": f"t{pick} {index}"} for index in range(count)])
        items += [(item.position, item.item.text) for item in stored]

    @rule(pick=PICK, at=PICK)
    def fork(self, pick: int, at: int) -> None:
        _, handle, items = self.choose(pick)
        cut = at % (len(items) + 1)
        made = handle.fork(at=items[cut - 1][0] if cut else -1)
        self.lists[made.branch], self.handles[made.branch] = items[:cut], made

    @rule(pick=PICK)
    def pop(self, pick: int) -> None:
        _, handle, items = self.choose(pick)
        popped = handle.pop()
        assert (None if popped is None else (popped.position, popped.item.text)) == (items.pop() if items else None)

    @rule(pick=PICK, at=PICK, purge=st.booleans())
    def remove(self, pick: int, at: int, purge: bool) -> None:
        number, handle, items = self.choose(pick)
        if not items:
            return
        position = items.pop(at % len(items))[0]
        handle.remove_item(position, purge=purge)
        self.hidden += not purge and all(position not in dict(other) for other in self.lists.values())
        with pytest.raises(NotFound):
            self.root.on_branch(number).get_item(position)

    @rule(pick=PICK, purge=st.booleans())
    def clear(self, pick: int, purge: bool) -> None:
        _, handle, items = self.choose(pick)
        gone = {position for position, _ in items}
        items.clear()
        handle.clear(purge=purge)
        self.hidden += 0 if purge else len(gone - {position for some in self.lists.values() for position, _ in some})

    @rule(pick=PICK, at=PICK)
    def redact(self, pick: int, at: int) -> None:
        _, handle, items = self.choose(pick)
        if items:
            position = items[at % len(items)][0]
            handle.redact_item(position)
            for some in self.lists.values():
                some[:] = [(p, "[redacted]" if p == position else text) for p, text in some]

    @rule(pick=PICK)
    def sync(self, pick: int) -> None:
        _, handle, items = self.choose(pick)
        texts = [text for _, text in items]
        messages = [{"role": "user", "content": text} for text in [*texts, f"new {len(self.lists)} {pick}"]]
        result = handle.sync_request({"model": "m", "messages": messages}, "chat_completion")
        assert [item.item.text for item in result.items] == [messages[-1]["content"]]
        self.lists[result.branch] += [(item.position, item.item.text) for item in result.items]

    @rule(pick=PICK)
    def change(self, pick: int) -> None:
        self.choose(pick)[1].update(title=f"T{pick}")

    @invariant()
    def everybody_sees_the_same(self) -> None:
        for number, items in self.lists.items():
            fresh = self.stores[1].get_conversation(self.root.id, branch=number)
            reader = self.readers.setdefault(number, fresh)
            for handle in (fresh, reader, self.handles[number]):
                assert [(item.position, item.item.text) for item in handle.transcript()] == items
                assert rendered(handle) == [text for _, text in items]
            assert fresh.head == (items[-1][0] if items else -1)
            assert texts_of(fresh.items(order="desc", limit=3)) == [text for _, text in items[:-4:-1]]
            assert [item.text for item in fresh.session().items] == [text for _, text in items]

    @invariant()
    def no_row_is_left_or_lost(self) -> None:
        positions = {position for items in self.lists.values() for position, _ in items}
        stored = self.stores[1].handle.transactions.read(lambda connection: count_rows(connection, self.root))
        assert stored == len(positions) + self.hidden


def count_rows(connection: Any, conversation: Any) -> int:
    statement = "SELECT count(*) FROM threadkeep_items WHERE conversation_id = ?"
    found: int = connection.exec_driver_sql(statement, (conversation.handle.ref.key,)).scalar()
    return found


def rendered(handle: Any) -> list[str]:
    try:
        payload = handle.request_payload("open_responses")
    except CannotRender:
        return []
    return [part["text"] for item in payload["input"] for part in item["content"]]


@pytest.mark.timeout(3_600 if is_set("THREADKEEP_LONG") else 240)
def test_a_conversation_is_what_its_lists_say(pair: tuple[Any, Any]) -> None:
    machine = type("Machine", (Branches,), {"stores": pair})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
    )


def test_lineages_merge_what_was_removed_side_by_side() -> None:
    lineage = Lineage((), 9)
    for position in (3, 5, 4, 8):
        lineage = Lineage(lineage.without(0, position - 1, position, 2), 9)
    assert lineage.parts == (LineagePart(0, 2), LineagePart(-1, 5, 2), LineagePart(0, 7), LineagePart(-1, 8, 2))
    assert lineage.ranges(0, -1, 9) == [(0, -1, 2), (0, 5, 7), (0, 8, 9)]
    assert lineage.spans(0, -1, 9) == [(0, -1, 9, 4)]
    assert [position for position in range(10) if lineage.keeps()(position)] == [0, 1, 2, 6, 7, 9]
    assert Lineage(lineage.without(0, 2, 9, 4), 2).parts == (LineagePart(0, 2), LineagePart(-1, 9, 4))


def test_many_scattered_removals_take_few_statements() -> None:
    removed = range(1, 9_999, 5)
    lineage = Lineage(
        tuple(chain.from_iterable((LineagePart(0, at - 1), LineagePart(-1, at, 0)) for at in removed)), 9_999
    )
    last = removed[-1]
    assert Lineage(lineage.parts[:-2], 9_999).without(0, last - 1, last, 0) == lineage.parts
    assert len(lineage.ranges(0, -1, 9_999)) == 2_001
    assert len(lineage.spans(0, -1, 9_999)) == 2
