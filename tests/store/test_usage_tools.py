"""How often tools were called, left without an answer, and failed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, update

from tests.factories import a_call, an_answer, an_output
from threadkeep import InvalidOption, ToolUsage
from threadkeep.db import models

pytestmark = pytest.mark.one_face


def answered(call_id: str, status: str | None = None) -> dict[str, Any]:
    return an_output(call_id) | ({} if status is None else {"status": status})


@pytest.fixture
def called(store: Any) -> Any:
    """Calls of every kind of fate."""
    conversation = store.create_conversation(model="m", user_id="ann", input="Hi")
    conversation.add_items(
        [
            a_call("one", "find"), a_call("two", "find"), answered("one"), answered("two", "failed"),
            a_call("three", "read"), a_call("one", "read"), answered("one", "error"),
            {"type": "custom_tool_call", "call_id": "four", "name": "shell", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "four", "output": "files"},
            a_call("five", "\u00e9"), answered("nobody's", "failed"),
        ],
        known=False,
    )  # fmt: skip
    return conversation


def figures(found: list[ToolUsage]) -> list[tuple[str | None, int, int, int]]:
    return [(one.name, one.calls, one.unanswered, one.failed) for one in found]


def test_calls_are_counted(store: Any, called: Any) -> None:
    assert figures(store.tool_usage()) == [
        ("find", 2, 0, 1),
        ("read", 2, 1, 1),
        ("shell", 1, 0, 0),
        ("\u00e9", 1, 1, 0),
    ]
    assert store.tool_usage(limit=1)[0].to_dict() == {"name": "find", "calls": 2, "unanswered": 0, "failed": 1}


def test_a_call_that_a_person_denied_has_not_failed(store: Any) -> None:
    conversation = store.create_conversation(model="m", input="Hi")
    conversation.add_items([a_call("one", "pay"), a_call("two", "pay")])
    conversation.deny("one", reason="Too much")
    conversation.add_item(answered("two", "incomplete"))
    assert figures(store.tool_usage()) == [("pay", 2, 0, 0)]


def test_an_output_belongs_to_the_nearest_call_of_its_id(store: Any) -> None:
    conversation = store.create_conversation(input="Hi")
    conversation.add_items([a_call("x", "first"), a_call("x", "second"), answered("x", "failed")])
    assert figures(store.tool_usage()) == [("first", 1, 1, 0), ("second", 1, 0, 1)]


def test_calls_of_a_response_with_the_same_id_are_answered_in_order(store: Any) -> None:
    conversation = store.create_conversation(input="Hi")
    for name in ("find", "read"):
        conversation.add_response(an_answer(output=[a_call("x", name)] * 2), "open_responses")
        conversation.add_items([answered("x", "failed"), answered("x")])
    asked = [a_call("x", name) for name in ("first", "second", "third")]
    conversation.add_response(an_answer(output=asked), "open_responses")
    conversation.add_items([answered("x"), answered("x", "failed")])
    assert figures(store.tool_usage()) == [
        ("find", 2, 0, 1),
        ("read", 2, 0, 1),
        ("first", 1, 0, 0),
        ("second", 1, 0, 1),
        ("third", 1, 1, 0),
    ]


def test_a_call_before_a_fork_is_answered_on_any_branch(store: Any) -> None:
    """The same call again on another branch takes no output away."""
    conversation = store.create_conversation(input="Hi")
    conversation.add_item(a_call("x", "find"))
    fork, other = conversation.fork(at=1), conversation.fork(at=0)
    other.add_item(a_call("x", "find"))
    fork.add_item(answered("x"))
    assert figures(store.tool_usage()) == [("find", 2, 0, 0)]


def test_ids_of_other_conversations_are_other_ids(store: Any) -> None:
    for items in ([a_call("x", "find")], [answered("x")]):
        store.create_conversation(input="Hi").add_items(items, known=False)
    assert figures(store.tool_usage()) == [("find", 1, 1, 0)]


def test_whose_calls_and_when(store: Any, stores: Any, face: str, called: Any) -> None:
    now, hour = datetime.now(UTC), timedelta(hours=1)
    today = now.date()
    assert len(store.tool_usage(user_id="ann")) == 4
    assert store.tool_usage(user_id="ben") == []
    assert len(store.for_user("ann").tool_usage()) == 4
    assert store.for_user("ben").tool_usage() == []
    assert len(store.tool_usage(since=now - hour, until=now + hour)) == 4
    assert store.tool_usage(since=now + hour) == []
    assert store.tool_usage(until=now - hour) == []
    assert len(store.tool_usage(since=today - timedelta(days=1), until=today + timedelta(days=2), tz="Asia/Tokyo")) == 4
    assert store.tool_usage(until=today - timedelta(days=2)) == []
    other = stores.get(face).create_tenant(f"other {called.id}")
    assert other.tool_usage() == []
    store.delete_conversation(called.id)
    assert store.tool_usage() == []


def test_latencies_of_tools_by_time(store: Any, watching: Engine) -> None:
    """An output that took a second is a second, whichever its call's day; a call without one has no latency."""
    conversation = store.create_conversation(model="m", input="Hi")
    waits = [("find", 1, 100), ("find", 1, 900), ("find", 1, None), ("find", 9, 5_000), ("read", 9, 0)]
    begins = datetime(2026, 3, 1, 23, 59, 59, 800_000, tzinfo=UTC)
    for number, (name, day, wait) in enumerate(waits):
        call = conversation.add_items([a_call(f"c{number}", name)])[0]
        at = begins + timedelta(days=day - 1)
        outputs = (
            [] if wait is None else conversation.add_items([answered(f"c{number}", "failed" if day == 9 else None)])
        )
        with watching.begin() as connection:
            for item, moment in ((call, at), *((one, at + timedelta(milliseconds=wait or 0)) for one in outputs)):
                place = models.items.c.tenant_id == store.handle.scope.tenant, models.items.c.position == item.position
                connection.execute(update(models.items).where(*place).values(created_at=moment))
    rows = store.tool_usage(by="day", percentiles=True)
    assert [(row.period, row.name, row.calls, row.unanswered, row.failed) for row in rows] == [
        (date(2026, 3, 1), "find", 3, 1, 0), (date(2026, 3, 9), "find", 1, 0, 1), (date(2026, 3, 9), "read", 1, 0, 1),
    ]  # fmt: skip
    found = [(row.p50_latency_ms, row.p95_latency_ms, row.p99_latency_ms) for row in rows]
    for values, wanted in zip(found, [(100, 900, 900), (5_000,) * 3, (0,) * 3], strict=True):
        assert values == pytest.approx(wanted, rel=0.01)
    assert [row.period for row in store.tool_usage(by="day", tz="Europe/Berlin")] == [
        date(2026, 3, 2), date(2026, 3, 10), date(2026, 3, 10),
    ]  # fmt: skip
    assert [row.period for row in store.tool_usage(by="week", since=date(2026, 3, 5), limit=1)] == [date(2026, 3, 9)]
    assert [row.calls for row in store.tool_usage(by="month", percentiles=True)] == [4, 1]
    [total, _] = store.tool_usage(percentiles=True)
    assert total.p95_latency_ms == pytest.approx(5_000, rel=0.01)


def test_calls_of_some_conversations(store: Any) -> None:
    """Those that were active last; of a time in the past, those that were active first."""
    now, hour = datetime.now(UTC), timedelta(hours=1)
    made = {}
    for age, name in enumerate(["newest", "newer", "old", "oldest"]):
        made[name] = store.create_conversation(user_id="ann", input="Hi", created_at=now - age * hour)
        made[name].add_items([a_call("x", name)], created_at=now - age * hour)
    made["newer"].archive()

    def found(most: int, **question: Any) -> set[str | None]:
        return {tool.name for tool in store.tool_usage(conversations=most, **question)}

    assert found(4) == set(made)
    assert found(2) == {"newest", "newer"}
    assert found(1, user_id="ann") == {"newest"}
    assert found(1, user_id="ben") == set()
    assert found(2, until=now + hour) == {"newest", "newer"}
    assert found(2, until=now - hour / 2) == {"old", "oldest"}
    assert found(1, since=now - 2.5 * hour, until=now - hour / 2) == {"old"}
    assert store.for_user("ann").tool_usage(conversations=1)[0].name == "newest"


WRONG = [
    {"since": "x"},
    {"tz": "Mars"},
    {"limit": 0},
    {"user_id": ""},
    {"conversations": 0},
    {"conversations": "all"},
    {"by": "hour"},
]


@pytest.mark.parametrize("question", WRONG, ids=str)
def test_other_questions_are_refused(store: Any, question: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        store.tool_usage(**question)
