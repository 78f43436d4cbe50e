"""Reports by what conversations have: the values of a label, and whether they are archived."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.factories import a_call, an_answer, an_output
from tests.store.ledger import attempt_at
from threadkeep import InvalidOption

FIRST, SECOND = datetime(2026, 10, 31, 23, tzinfo=UTC), datetime(2026, 11, 1, 9, tzinfo=UTC)


def spent(store: Any, title: str, labels: dict[str, str], *times: datetime, tokens: int, user: str = "ann") -> Any:
    conversation = store.create_conversation(model="m", title=title, labels=labels, user_id=user)
    for at in times:
        attempt_at(conversation, at, figures={"input_tokens": tokens, "total_tokens": tokens}, model="m")
    return conversation


@pytest.fixture
def talks(store: Any) -> dict[str, Any]:
    return {
        "one": spent(store, "one", {"team": "sales", "tier": "b"}, FIRST, SECOND, tokens=1),
        "two": spent(store, "two", {"team": "sales", "tier": "a"}, SECOND, tokens=10, user="ben"),
        "three": spent(store, "three", {"team": "\u00e9"}, FIRST, tokens=100),
        "four": spent(store, "four", {}, SECOND, tokens=1_000),
    }


def sums(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(*row.keys.values(), row.attempts, row.total_tokens) for row in rows]


@pytest.mark.usefixtures("talks")
def test_by_the_values_of_a_label(store: Any) -> None:
    assert sums(store.usage(by="label:team")) == [("sales", 3, 12), ("\u00e9", 1, 100), (None, 1, 1_000)]
    assert sums(store.usage(by="label:other")) == [(None, 5, 1_112)]
    [first, *_] = store.usage(by=("label:team",))
    assert first.keys == {"label:team": "sales"}
    assert first.to_dict()["label:team"] == "sales"


@pytest.mark.usefixtures("talks")
def test_with_other_columns_in_any_order(store: Any) -> None:
    assert sums(store.usage(by=("month", "label:team", "label:tier"))) == [
        (FIRST.date().replace(day=1), "sales", "b", 1, 1),
        (FIRST.date().replace(day=1), "\u00e9", None, 1, 100),
        (SECOND.date(), "sales", "a", 1, 10),
        (SECOND.date(), "sales", "b", 1, 1),
        (SECOND.date(), None, None, 1, 1_000),
    ]
    by_hour = store.usage(by=("label:team", "hour", "user_id"), tz="Europe/Berlin", since=SECOND)
    assert [(row.keys["label:team"], row.hour.hour, row.user_id, row.attempts) for row in by_hour] == [
        ("sales", 10, "ann", 1), ("sales", 10, "ben", 1), (None, 10, "ann", 1),
    ]  # fmt: skip
    assert sums(store.usage(by="label:team", user_id="ben")) == [("sales", 1, 10)]
    assert sums(store.usage(by="label:team", labels={"tier": "a"})) == [("sales", 1, 10)]
    assert sums(store.usage(by="label:team", order_by="total_tokens", limit=1)) == [(None, 1, 1_000)]


def test_labels_and_states_as_they_are_now(store: Any, talks: dict[str, Any]) -> None:
    talks["one"].update(labels={"team": "support"})
    talks["two"].archive()
    store.delete_conversation(talks["three"].id)
    assert sums(store.usage(by="label:team")) == [("sales", 1, 10), ("support", 2, 2), (None, 2, 1_100)]
    by_state = store.usage(by="conversation_status")
    assert [(row.conversation_status, row.attempts) for row in by_state] == [
        ("active", 3), ("archived", 1), (None, 1),
    ]  # fmt: skip


@pytest.mark.usefixtures("talks")
def test_another_user_sees_only_what_is_his(store: Any) -> None:
    assert sums(store.for_user("ben").usage(by="label:team")) == [("sales", 1, 10)]


@pytest.mark.parametrize("by", ["label:", "label", "property:", "metadata", "labels:team", "label:" + "x" * 600])
def test_what_is_no_label(store: Any, by: str) -> None:
    with pytest.raises(InvalidOption):
        store.usage(by=by)


@pytest.mark.usefixtures("talks")
def test_by_titles_and_properties(store: Any, talks: dict[str, Any]) -> None:
    talks["one"].update(properties={"tier": "gold", "odd\u00e9\x00": "\ud800"})
    talks["two"].update(properties={"tier": "gold", "other": "x"})
    talks["three"].update(title=None)
    assert sums(store.usage(by="title")) == [("four", 1, 1_000), ("one", 2, 2), ("two", 1, 10), (None, 1, 100)]
    assert sums(store.usage(by="property:tier")) == [("gold", 3, 12), (None, 2, 1_100)]
    assert sums(store.usage(by=("property:tier", "day"), order_by="total_tokens", limit=2)) == [
        (None, SECOND.date(), 1, 1_000), (None, FIRST.date(), 1, 100),
    ]  # fmt: skip
    assert sums(store.usage(by="property:odd\u00e9\x00")) == [("\ud800", 2, 2), (None, 3, 1_110)]


@pytest.mark.parametrize(
    "by", ["title", "label:team", "property:tier", "conversation_id", "conversation_status", "metadata:plan"]
)
def test_a_user_sees_nothing_of_a_conversation_that_is_anothers_by_now(store: Any, by: str) -> None:
    """What ann has spent in it stays hers."""
    talk = spent(store, "ann's", {"team": "a"}, FIRST, tokens=1)
    spent(store, "other", {"team": "b"}, FIRST, tokens=10)
    talk.update(user_id="ben", title="ben's", labels={"team": "secret"}, properties={"tier": "gold"})
    ann = store.for_user("ann")
    assert sums(ann.usage(by=by))[-1] in [(None, 1, 1), (None, 2, 11)]  # with what else has none
    assert sums(ann.usage()) == [(2, 11)]
    assert sums(ann.usage(labels={"team": "secret"})) == [(0, None)]
    assert sums(ann.usage(conversation_id=None)) == [(1, 1)]


def test_by_what_is_said_of_responses(store: Any) -> None:
    """The attempts that have no response, and responses without an opinion, count under None."""
    talk = store.create_conversation(model="m", input="Hi", metadata={"variant": "a"})
    for number, (rating, variant) in enumerate([(5, "a"), (2, "b"), (None, "b")]):
        talk.update(metadata={"variant": variant})
        body = an_answer("Hello", id=f"r{number}", usage={"input_tokens": 1, "output_tokens": 0, "total_tokens": 1})
        body["output"].append(a_call(f"c{number}", "pay"))
        talk.add_response(body, "open_responses")
        [call] = talk.pending_calls()
        if rating is not None:
            talk.set_feedback(call.position - 1, rating=rating, user_id="ann")
            talk.set_feedback(call.position, rating=rating + 1, user_id="ben")
        if number == 0:
            talk.approve(call.position)
            talk.add_items([an_output("c0")])
        elif number == 1:
            talk.deny(call.position, reason="No.")
        talk.label_item(call.position, labels={"kind": f"k{number % 2}"})
    talk.record_attempt("open_responses", error="timeout", status="failed")
    assert sums(store.usage(by="feedback")) == [(2, 1, 1), (5, 1, 1), (None, 2, 1)]
    assert sums(store.usage(by="approval")) == [("approved", 1, 1), ("denied", 1, 1), (None, 2, 1)]
    assert sums(store.usage(by="item_label:kind")) == [("k0", 2, 2), ("k1", 1, 1), (None, 1, None)]
    assert sums(store.usage(by=("metadata:variant", "feedback", "response"))) == [
        ("a", 5, 0, 1, 1), ("b", 2, 1, 1, 1), ("b", None, 2, 1, 1), (None, None, None, 1, None),
    ]  # fmt: skip
    store.delete_conversation(talk.id)
    assert sums(store.usage(by=("feedback", "approval", "title", "metadata:variant"))) == [(None,) * 4 + (4, 3)]
