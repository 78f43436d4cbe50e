"""States: small named JSON values beside a conversation, compared and swapped, also in the transaction of an append."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.factories import a_call, a_message, a_stream, an_answer, an_error
from tests.store.watching import Tables, engine_of
from threadkeep import (
    HeadConflict,
    IdempotencyConflict,
    InvalidOption,
    LeaseLost,
    NotFound,
    ProviderError,
    StateConflict,
    StateWrite,
    Store,
    TooLarge,
)
from threadkeep.store.work.states import MAX_STATE_BYTES, MAX_STATES

pytestmark = pytest.mark.one_face

FORMAT = "open_responses"
RUN = {"step": 1, "waiting": ["call_1"], "budget": None}


def a_turn(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def streamed(conversation: Any, states: Any, key: str | None = None) -> Any:
    with conversation.stream_response(FORMAT, states=states, idempotency_key=key) as recorder:
        for event in a_stream("Hello"):
            recorder.feed(event)
    return recorder.response


# method -> a call of it that writes these states, under a key
APPENDS: dict[str, Callable[[Any, Any, str | None], Any]] = {
    "user": lambda c, states, key: c.user("Hi", states=states, idempotency_key=key),
    "assistant": lambda c, states, key: c.assistant("Hi", states=states, idempotency_key=key),
    "system": lambda c, states, key: c.system("Hi", states=states, idempotency_key=key),
    "developer": lambda c, states, key: c.developer("Hi", states=states, idempotency_key=key),
    "add_item": lambda c, states, key: c.add_item(a_message("Hi"), states=states, idempotency_key=key),
    "add_items": lambda c, states, key: c.add_items([a_message("a")] * 2, states=states, idempotency_key=key),
    "add_input": lambda c, states, key: c.add_input(
        [a_turn("Hi")], "chat_completion", states=states, idempotency_key=key
    ),
    "sync_request": lambda c, states, key: c.sync_request(
        {"messages": [a_turn("first"), a_turn("more")]}, "chat_completion", states=states, idempotency_key=key
    ),
    "compact": lambda c, states, key: c.compact(summary="So far", states=states, idempotency_key=key),
    "add_response": lambda c, states, key: c.add_response(
        an_answer("Hello"), FORMAT, states=states, idempotency_key=key
    ),
    "stream_response": streamed,
}
over_appends = pytest.mark.parametrize("method", APPENDS)


@pytest.fixture
def begun(store: Any) -> Any:
    """A conversation of one turn."""
    return store.create_conversation(model="m", input="first")


# One state


def test_a_state_is_read_in_any_process(conversation: Any, elsewhere: Any) -> None:
    before = datetime.now(UTC)
    written = conversation.set_state("run", RUN)
    assert (written.name, written.value, written.version) == ("run", RUN, 1)
    assert before <= written.updated_at <= datetime.now(UTC)
    other = elsewhere.get_conversation(conversation.id)
    assert other.state("run") == other.fork().state("run") == conversation.state("run") == written
    assert other.state("no such state") is None


def test_states_are_listed_by_name(conversation: Any) -> None:
    assert conversation.states() == []
    for name in ("b", "a", "c"):
        conversation.set_state(name, name)
    conversation.delete_state("c")
    assert [(state.name, state.value) for state in conversation.states()] == [("a", "a"), ("b", "b")]


def test_every_write_counts_the_version_up(conversation: Any) -> None:
    values: list[Any] = [1, 1, None, {"a": []}]
    versions = [conversation.set_state("run", value).version for value in values]
    assert versions == [1, 2, 3, 4]
    assert conversation.state("run").value == {"a": []}


def test_a_state_is_compared_and_swapped(conversation: Any, elsewhere: Any) -> None:
    other = elsewhere.get_conversation(conversation.id)
    first = conversation.set_state("run", 1, expected_version=0)
    second = other.set_state("run", 2, expected_version=first.version)
    for expected in (0, first.version):
        with pytest.raises(StateConflict, match="has version 2") as caught:
            conversation.set_state("run", 3, expected_version=expected)
        assert (caught.value.name, caught.value.expected, caught.value.version) == ("run", expected, second.version)
    with pytest.raises(StateConflict, match="does not exist"):
        conversation.set_state("other", 3, expected_version=1)
    assert [state.value for state in conversation.states()] == [2]


def test_null_is_a_value(conversation: Any) -> None:
    conversation.set_state("run", None)
    assert conversation.state("run").value is None
    with pytest.raises(StateConflict):
        conversation.set_state("run", 1, expected_version=0)


def test_a_deleted_state_is_gone_and_its_versions_go_on(conversation: Any, tables: Tables) -> None:
    """Whoever read it before cannot take another one of that name for it."""
    stale = conversation.set_state("run", "first run")
    assert conversation.delete_state("run") is True
    assert conversation.delete_state("run") is False
    assert conversation.state("run") is None
    assert [row["value"] for row in tables.rows("conversation_states")] == [None]
    fresh = conversation.set_state("run", "second run", expected_version=0)
    assert fresh.version > stale.version
    with pytest.raises(StateConflict):
        conversation.set_state("run", "first run goes on", expected_version=stale.version)
    with pytest.raises(StateConflict):
        conversation.delete_state("run", expected_version=stale.version)
    assert conversation.delete_state("run", expected_version=fresh.version)


def test_a_write_is_neither_an_activity_nor_another_revision(store: Any, begun: Any, tables: Tables) -> None:
    [before] = tables.rows("conversations")
    begun.set_state("run", RUN)
    begun.delete_state("run")
    assert tables.rows("conversations") == [before]


def test_a_key_writes_once(conversation: Any, tables: Tables) -> None:
    first = conversation.set_state("run", RUN, idempotency_key="k")
    conversation.set_state("run", 2)
    assert conversation.set_state("run", RUN, expected_version=0, idempotency_key="k") == first
    assert conversation.state("run").value == 2
    with pytest.raises(IdempotencyConflict):
        conversation.set_state("run", 3, idempotency_key="k")
    assert conversation.delete_state("run", idempotency_key="d") is True
    conversation.set_state("run", 4)
    assert conversation.delete_state("run", idempotency_key="d") is True
    assert conversation.state("run").value == 4


def test_of_many_writers_one_wins_each_version(stores: Any, tenant: str, conversation: Any) -> None:
    opened = [stores.get("sync", name).for_tenant(tenant) for name in ("first", "elsewhere")]
    handles = [one.get_conversation(conversation.id) for one in opened for _ in range(2)]

    def count_up(handle: Any) -> int:
        won = 0
        while won < 5:
            state = handle.state("count")
            try:
                handle.set_state(
                    "count", 1 + (state.value if state else 0), expected_version=state.version if state else 0
                )
                won += 1
            except StateConflict:
                continue
        return won

    with ThreadPoolExecutor(len(handles)) as pool:
        assert sum(pool.map(count_up, handles)) == 20
    state = conversation.state("count")
    assert (state.value, state.version) == (20, 20)


# In the transaction of an append


@over_appends
def test_an_append_writes_states(begun: Any, elsewhere: Any, method: str) -> None:
    begun.set_state("run", 0)
    APPENDS[method](begun, {"run": RUN, "new": StateWrite([], expected_version=0)}, None)
    states = elsewhere.get_conversation(begun.id).states()
    assert [(state.name, state.value, state.version) for state in states] == [("new", [], 1), ("run", RUN, 2)]


def test_the_output_of_a_call_writes_states(conversation: Any, elsewhere: Any) -> None:
    conversation.add_item(a_call("c"))
    conversation.add_function_call_output(call_id="c", output="x", states={"run": RUN})
    assert [state.value for state in elsewhere.get_conversation(conversation.id).states()] == [RUN]


@over_appends
def test_a_state_that_has_changed_refuses_the_append(begun: Any, tables: Tables, method: str) -> None:
    begun.set_state("run", 0)
    written = tables.written()
    with pytest.raises(StateConflict) as caught:
        APPENDS[method](begun, {"other": 1, "run": StateWrite(1, expected_version=7)}, "k")
    assert (caught.value.name, caught.value.version) == ("run", 1)
    assert written() == ({"usage_records": 1, "appends": 1} if method == "add_response" else {})
    APPENDS[method](begun, {"run": StateWrite(1, expected_version=1)}, "k")
    assert begun.state("run").value == 1


@pytest.mark.parametrize("key", [None, "k"])
def test_a_response_that_a_state_refuses_is_in_the_ledger_once(begun: Any, tables: Tables, key: str | None) -> None:
    """Its tokens were used, as with HeadConflict; who tries again with the key adds no second row."""

    def add(version: int, text: str = "Hello") -> Any:
        states = {"new": version, "run": StateWrite(version, expected_version=version)}
        return begun.add_response(an_answer(text), FORMAT, states=states, idempotency_key=key)

    begun.set_state("run", 0)
    before = tables.rows("conversations", "id")
    for version in (7, 8) if key else (7,):
        with pytest.raises(StateConflict):
            add(version)
    [attempt] = tables.rows("usage_records")
    assert (attempt["response"], attempt["total_tokens"] is None) == (None, False)
    assert tables.rows("conversations", "id") == before
    assert (begun.head, begun.states()[0].name, begun.responses().items) == (0, "run", [])
    if key:
        with pytest.raises(IdempotencyConflict):
            add(1, "something else")
    stored = add(1)
    attempts = tables.rows("usage_records", "id")
    assert [row["response"] for row in attempts] == ([0] if key else [None, 0])
    begun.set_state("run", "changed since")
    if key:
        assert add(1).stored == stored.stored
        assert begun.state("run").value == "changed since"
        with pytest.raises(IdempotencyConflict):
            add(2)
    with pytest.raises(StateConflict):
        begun.add_turn(
            "x", an_answer(), FORMAT, states={"run": StateWrite(1, 1)}, on_conflict="branch", expected_head=0
        )
    assert len(tables.rows("usage_records")) == len(attempts) + 1
    assert tables.counts()["branches"] == 0


@over_appends
def test_a_replay_does_not_write_states_again(begun: Any, method: str) -> None:
    for _ in range(2):
        APPENDS[method](begun, {"run": StateWrite(RUN, expected_version=0)}, "k")
    assert begun.state("run").version == 1
    with pytest.raises(IdempotencyConflict):
        APPENDS[method](begun, {"run": "something else"}, "k")


def test_an_append_to_another_branch_writes_them(begun: Any) -> None:
    begun.user("more")
    found = begun.user("edited", expected_head=0, on_conflict="branch", states={"run": RUN})
    assert (found.branch, begun.state("run").value) == (1, RUN)


def test_an_append_that_is_refused_writes_none(begun: Any) -> None:
    refused: list[Callable[[], Any]] = [
        lambda: begun.user("x", expected_head=7, states={"run": RUN}),
        lambda: begun.add_response(an_answer("x"), FORMAT, expected_head=7, states={"run": RUN}),
        lambda: begun.add_response(an_error(), FORMAT, states={"run": RUN}),
    ]
    for call in refused:
        with pytest.raises((HeadConflict, ProviderError)):
            call()
    assert begun.states() == []


# Streams


def test_a_recorder_sets_what_is_written_with_its_response(begun: Any) -> None:
    with begun.stream_response(FORMAT, states={"run": "started", "only": "here"}) as recorder:
        for event in a_stream("Hello"):
            recorder.feed(event)
        recorder.set_states({"run": len(recorder.partial.output)})
        assert begun.states() == []
    assert [(state.name, state.value) for state in begun.states()] == [("run", 1)]


def test_a_stream_that_ends_too_late_keeps_its_response(begun: Any, elsewhere: Any) -> None:
    """What was paid for is stored; the states are not, and whoever recorded it knows."""
    recorder = begun.stream_response(FORMAT, states={"other": 1, "run": StateWrite(1, expected_version=0)})
    recorder.__enter__()
    for event in a_stream("Hello"):
        recorder.feed(event)
    elsewhere.get_conversation(begun.id).set_state("run", "taken")
    with pytest.raises(StateConflict):
        recorder.__exit__(None, None, None)
    assert (recorder.response.status, recorder.response.text) == ("completed", "Hello")
    assert [(state.name, state.value) for state in begun.states()] == [("run", "taken")]
    assert [item.item.role for item in begun.transcript()] == ["user", "assistant"]


@pytest.mark.parametrize("ending", ["error", "cancelled", "failed", "recovered"])
def test_a_stream_that_does_not_end_well_writes_none(begun: Any, elsewhere: Any, ending: str) -> None:
    recorder = begun.stream_response(FORMAT, states={"run": RUN})
    recorder.__enter__()
    recorder.feed(a_stream("Hello")[0])
    match ending:
        case "error":
            recorder.__exit__(ValueError, ValueError("broken"), None)
        case "cancelled":
            recorder.cancel()
        case "failed":
            recorder.feed({"type": "error", "message": "overloaded"})
            recorder.__exit__(None, None, None)
        case "recovered":
            elsewhere.get_conversation(begun.id).user("stop", on_conflict="append")
            with pytest.raises(LeaseLost):
                recorder.__exit__(None, None, None)
    assert begun.states() == []
    assert begun.responses().items[0].status != "in_progress"


# Limits and scope


@pytest.mark.parametrize("value", [object(), {1: 2}, float, b"x", {"a": {1, 2}}])
def test_what_is_not_json_is_refused(conversation: Any, tables: Tables, value: Any) -> None:
    with pytest.raises(InvalidOption, match="is not JSON"):
        conversation.set_state("run", value)
    with pytest.raises(InvalidOption, match="is not JSON"):
        conversation.user("x", states={"run": value})
    assert tables.counts()["conversation_states"] == tables.counts()["items"] == 0


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused(conversation: Any, tables: Tables, number: float) -> None:
    """JSON has none: other readers of the state could not parse it."""
    value, problem = {"grid": [[0.5], [1, number]]}, r"is not JSON\. grid\[1\]\[1\] must be a finite number"
    with pytest.raises(InvalidOption, match=problem):
        conversation.set_state("s", value)
    for state in (value, StateWrite(value)):
        with pytest.raises(InvalidOption, match=problem):
            conversation.user("Hi", states={"s": state})
    assert tables.counts()["conversation_states"] == tables.counts()["items"] == 0


@pytest.mark.parametrize(
    "arguments", [{"name": ""}, {"name": "x" * 256}, {"name": 1}, {"expected_version": -1}, {"expected_version": "1"}]
)
def test_odd_names_and_versions_are_refused(conversation: Any, arguments: Any) -> None:
    with pytest.raises(InvalidOption):
        conversation.set_state(**{"name": "run", "value": 1, **arguments})
    with pytest.raises(InvalidOption):
        conversation.user("x", states=["run"])
    assert conversation.transcript() == []


def test_a_state_has_a_largest_size(conversation: Any) -> None:
    conversation.set_state("run", "x" * (MAX_STATE_BYTES - 2))
    for call in (conversation.set_state, lambda name, value: conversation.user("x", states={name: value})):
        with pytest.raises(TooLarge, match="at most 1,048,576"):
            call("other", "x" * (MAX_STATE_BYTES - 1))
    assert [state.name for state in conversation.states()] == ["run"]
    assert conversation.transcript() == []


def test_a_conversation_has_a_largest_number_of_states(conversation: Any, tables: Tables) -> None:
    conversation.user("x", states={f"s{number}": number for number in range(MAX_STATES)})
    with pytest.raises(TooLarge, match="at most 100"):
        conversation.set_state("one more", 1)
    with pytest.raises(TooLarge, match="at most 100"):
        conversation.user("y", states={"one more": 1})
    assert conversation.set_state("s7", "changed").version == 2
    conversation.delete_state("s7")
    conversation.set_state("one more", 1)
    assert len(conversation.states()) == MAX_STATES


def test_states_come_in_pages(conversation: Any) -> None:
    conversation.user("x", states=dict.fromkeys("dbac"))
    first = conversation.states(limit=3)
    assert [state.name for state in first] == ["a", "b", "c"]
    assert [state.name for state in conversation.states(after=first[-1].name, limit=3)] == ["d"]
    assert conversation.states(after="d") == []
    for wrong in ({"limit": 0}, {"after": ""}, {"after": 1}):
        with pytest.raises(InvalidOption):
            conversation.states(**wrong)


def test_not_every_deleted_state_is_remembered(conversation: Any, tables: Tables) -> None:
    names = [f"s{number}" for number in range(MAX_STATES)]
    conversation.user("x", states=dict.fromkeys(names))
    for name in names:
        conversation.delete_state(name)
    for name in ("s0", "s1", "more 0", "more 1", "more 2"):
        conversation.set_state(name, 1)
        conversation.delete_state(name)
    left = {row["name"] for row in tables.rows("conversation_states")}
    assert len(left) == MAX_STATES
    assert {"s0", "s1", "more 2"} <= left
    assert left.isdisjoint({"s2", "s3", "s4"})


def test_states_of_others_are_not_found(store: Any) -> None:
    conversation = store.create_conversation(model="m", user_id="ann")
    conversation.set_state("run", RUN)
    mine = store.for_user("ann").get_conversation(conversation.id)
    assert mine.state("run").value == RUN
    conversation.update(user_id="bob")
    for call in (
        lambda: mine.state("run"),
        mine.states,
        lambda: mine.set_state("run", 1),
        lambda: mine.delete_state("run"),
    ):
        with pytest.raises(NotFound):
            call()
    assert conversation.state("run").value == RUN


def test_states_of_a_deleted_conversation_are_gone(store: Any, conversation: Any, tables: Tables) -> None:
    conversation.set_state("run", RUN)
    store.delete_conversation(conversation.id)
    for call in (lambda: conversation.state("run"), conversation.states, lambda: conversation.set_state("run", 1)):
        with pytest.raises(NotFound):
            call()
    assert tables.counts()["conversation_states"] == 0


def test_no_request_contains_a_state(begun: Any) -> None:
    begun.user("Hi", states={"canary": "canary"})
    assert b"canary" not in begun.request_body(FORMAT)


def test_a_provider_error_is_still_told(begun: Any) -> None:
    with pytest.raises(ProviderError):
        begun.add_response(an_error(), FORMAT, states={"run": StateWrite(1, expected_version=9)})
    assert begun.states() == []


def test_states_are_written_within_the_callers_transaction(tmp_path: Any) -> None:
    with Store(f"sqlite:///{tmp_path / 'chat.db'}") as store:
        conversation = store.create_conversation(model="m")
        with engine_of(store).connect() as connection:
            inside = store.within(connection).get_conversation(conversation.id)
            inside.set_state("run", 1)
            with pytest.raises(StateConflict):
                inside.user("x", states={"run": StateWrite(2, expected_version=0)})
            assert (inside.state("run").version, inside.transcript()) == (1, [])  # type: ignore[union-attr]
            connection.rollback()
        assert conversation.states() == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(min_size=1, max_size=20), value=json_values)
def test_any_json_comes_back_as_it_was(conversation: Any, elsewhere: Any, name: str, value: Any) -> None:
    written = conversation.set_state(name, value)
    read = elsewhere.get_conversation(conversation.id).state(name)
    assert read == written
    assert read.value == value
    conversation.delete_state(name)
