"""How often tools were called, left without an answer, and failed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.factories import a_call, an_answer, an_output
from threadkeep import InvalidOption, ToolUsage

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


WRONG = [{"since": "x"}, {"tz": "Mars"}, {"limit": 0}, {"user_id": ""}, {"conversations": 0}, {"conversations": "all"}]


@pytest.mark.parametrize("question", WRONG, ids=str)
def test_other_questions_are_refused(store: Any, question: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        store.tool_usage(**question)
