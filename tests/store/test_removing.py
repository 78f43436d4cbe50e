# ruff: noqa: F401, F811 - fixtures
"""Removing items: the newest one, any one, or all of them. Other branches keep what they have."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.factories import a_call, a_message, a_picture, a_stream, an_answer, an_output, noise, texts_of
from tests.store.counting_texts import root, says, sent
from tests.store.watching import Tables
from threadkeep import HeadConflict, IdempotencyConflict, InvalidOption, Message, NotFound, ResponseInProgress, Session

pytestmark = pytest.mark.one_face

SERVER = {"previous_response_id": "resp_0"}


def seen_everywhere(handle: Any, *others: Any) -> str:
    """What a branch says, in every way to look at it, from every handle."""
    found = says(handle)
    for one in (handle, *others):
        items = list(one.items(limit=2))
        after = items[-1].position if items else None
        while after is not None and (page := one.items(after=after, limit=2)):
            items += page
            after = int(page.next) if page.next else None
        assert says(one) == " ".join(texts_of(items)) == found
        backwards = texts_of(one.items(order="desc"))
        assert " ".join(reversed(backwards)) == found
        assert " ".join(item.text for item in one.session().items) == found
        assert (sent(one) if found else "") == found
        assert one.head == (items[-1].position if items else -1)
    return found


# pop


def test_pop_removes_the_newest_item_and_returns_it(root: Any, elsewhere: Any, tables: Tables) -> None:
    other = elsewhere.get_conversation(root.id)
    assert (sent(root), sent(other)) == ("0 1 2 3", "0 1 2 3")
    popped = root.pop()
    assert (popped.position, popped.item.text, popped.replayed) == (3, "3", False)
    assert (root.head, tables.counts()["items"]) == (2, 3)
    assert seen_everywhere(root, other, elsewhere.get_conversation(root.id)) == "0 1 2"


def test_pop_empties_a_branch(root: Any) -> None:
    assert [root.pop().item.text for _ in range(4)] == ["3", "2", "1", "0"]
    assert (root.pop(), root.head, root.transcript()) == (None, -1, [])


def test_positions_are_never_used_again(root: Any, elsewhere: Any) -> None:
    root.pop()
    assert root.user("new").position == 4
    root.clear()
    assert root.user("newer").position == 5
    assert seen_everywhere(root, elsewhere.get_conversation(root.id)) == "newer"


def test_other_branches_keep_what_was_removed(root: Any, elsewhere: Any, tables: Tables) -> None:
    fork = root.fork(at=2)
    fork.user("a")
    assert fork.pop().item.text == "a"
    assert fork.pop().item.text == "2"
    assert (fork.head, says(root)) == (1, "0 1 2 3")
    fork.user("b")
    root.remove_item(1, purge=True)
    assert seen_everywhere(root, elsewhere.get_conversation(root.id)) == "0 2 3"
    assert seen_everywhere(fork, elsewhere.get_conversation(root.id, branch=1)) == "0 1 b"
    assert seen_everywhere(fork.fork()) == "0 1 b"
    assert seen_everywhere(root.fork()) == "0 2 3"
    assert seen_everywhere(root.fork(at=2)) == "0 2"
    assert seen_everywhere(root.fork(before=3)) == "0 2"
    assert seen_everywhere(root.fork(before=2)) == "0"
    assert tables.counts()["items"] == 5


def test_rows_go_when_no_branch_reads_them(root: Any, tables: Tables) -> None:
    fork = root.fork()
    root.clear()
    assert tables.counts()["items"] == 4
    assert fork.pop().item.text == "3"
    assert tables.counts()["items"] == 3
    fork.clear()
    assert tables.counts()["items"] == 0


def test_a_fork_needs_an_item_that_is_there(root: Any) -> None:
    root.remove_item(1)
    calls: list[Any] = [lambda: root.fork(at=1), lambda: root.fork(before=1), lambda: root.get_item(1)]
    for call in calls:
        with pytest.raises(NotFound):
            call()
    assert root.branches().items[0].head_position == 3


@pytest.mark.parametrize("on_conflict", ["raise", "append"])
def test_pop_where_the_branch_is_expected_to_end(root: Any, on_conflict: Any) -> None:
    if on_conflict == "raise":
        with pytest.raises(HeadConflict):
            root.pop(expected_head=2)
    else:
        assert root.pop(expected_head=2, on_conflict=on_conflict).position == 3
    with pytest.raises(InvalidOption, match="on_conflict"):
        root.pop(on_conflict="branch")


def test_an_expected_head_after_a_pop(root: Any) -> None:
    root.pop()
    with pytest.raises(HeadConflict):
        root.user("late", expected_head=3)
    assert root.user("new", expected_head=2).position == 4


def test_a_response_in_progress_comes_first(root: Any) -> None:
    calls: list[Any] = [root.pop, root.clear, lambda: root.remove_item(0), lambda: root.redact_item(0)]
    with root.stream_response("open_responses") as recorder:
        recorder.feed(a_stream("Hello")[0])
        for call in calls:
            with pytest.raises(ResponseInProgress):
                call()
    assert says(root).startswith("0 1 2 3")


def test_pop_can_end_a_response_in_progress(root: Any) -> None:
    recorder = root.stream_response("open_responses", lease=60)
    recorder.__enter__()
    for event in a_stream("Hello")[:-2]:
        recorder.feed(event)
    popped = root.pop(on_conflict="append")
    assert popped.position in {3, 4}


def test_of_many_callers_each_pops_another_item(stores: Any, tenant: str) -> None:
    store = stores.get("sync").for_tenant(tenant)
    conversation = store.create_conversation(model="m")
    conversation.add_items([a_message(str(number)) for number in range(24)])

    def take(_: int) -> list[str]:
        handle = store.get_conversation(conversation.id)
        return [handle.pop().item.text for _ in range(3)]

    with ThreadPoolExecutor(6) as pool:
        taken = [text for some in pool.map(take, range(6)) for text in some]
    assert sorted(map(int, taken)) == list(range(6, 24))
    assert conversation.head == -1 or says(conversation) == " ".join(map(str, range(6)))


# remove_item and clear


@pytest.mark.parametrize("purge", [False, True])
def test_remove_an_item(root: Any, elsewhere: Any, tables: Tables, purge: bool) -> None:
    other = elsewhere.get_conversation(root.id)
    sent(other)
    root.remove_item(1, purge=purge)
    assert seen_everywhere(root, other, elsewhere.get_conversation(root.id)) == "0 2 3"
    root.remove_item(3, purge=purge)
    root.remove_item(root.transcript()[0].id, purge=purge)
    assert seen_everywhere(root, other) == "2"
    assert tables.counts()["items"] == (1 if purge else 4)
    for gone in (0, 1, 3, 4, -1, 99):
        with pytest.raises((NotFound, InvalidOption)):
            root.remove_item(gone)


@pytest.mark.parametrize("purge", [False, True])
def test_clear(root: Any, elsewhere: Any, tables: Tables, purge: bool) -> None:
    root.pop()
    root.clear(purge=purge)
    root.clear(purge=purge)
    assert seen_everywhere(root, elsewhere.get_conversation(root.id)) == ""
    root.user("new")
    assert seen_everywhere(root, elsewhere.get_conversation(root.id)) == "new"
    assert tables.counts()["items"] == (1 if purge else 4)
    assert root.model == "m"


def test_an_item_of_another_branch_is_not_removed(root: Any) -> None:
    fork = root.fork(at=1)
    position = fork.user("new").position
    with pytest.raises(NotFound):
        root.remove_item(position)
    with pytest.raises(NotFound):
        fork.remove_item(3)
    with pytest.raises(InvalidOption, match="purge"):
        root.remove_item(0, purge="yes")
    with pytest.raises(InvalidOption, match="purge"):
        root.clear(purge=1)


def test_nobody_else_removes_anything(store: Any, root: Any) -> None:
    mine = store.create_conversation(model="m", input="mine", user_id="ann")
    lent = store.for_user("ann").get_conversation(mine.id)
    mine.update(user_id="bob")
    calls: list[Any] = [lent.pop, lent.clear, lambda: lent.remove_item(0), lambda: lent.redact_item(0)]
    for call in calls:
        with pytest.raises(NotFound):
            call()
    assert says(mine) == "mine"
    with pytest.raises(NotFound):
        root.remove_item(mine.transcript()[0].id)
    with pytest.raises(NotFound):
        root.redact_item(mine.transcript()[0].id)


def test_what_was_read_before_is_read_again_after_another_change(root: Any, elsewhere: Any) -> None:
    """A handle that changes the title does not take what it has read for current."""
    sent(root)
    elsewhere.get_conversation(root.id).pop()
    root.update(title="T")
    assert (sent(root), sent(elsewhere.get_conversation(root.id))) == ("0 1 2", "0 1 2")


def test_what_is_removed_is_not_found(store: Any, root: Any) -> None:
    for text in ("indexed lark", "hidden lark", "shared lark"):
        root.user(text)
    store.reindex()
    root.user("new lark")
    fork = root.fork(at=6)
    for position in (4, 5, 6, 7):
        root.remove_item(position, purge=position == 4)
    fork.remove_item(4, purge=True)
    fork.remove_item(5)
    found = [result.position for result in store.search("lark")]
    store.reindex(rebuild=True)
    assert [found, [result.position for result in store.search("lark")]] == [[6], [6]]


def test_media_go_with_their_item(store: Any, tables: Tables) -> None:
    conversation = store.create_conversation(model="m")
    conversation.user([a_picture(noise(20_000))])
    conversation.user([a_picture(noise(20_000)), a_picture(noise(20_000, 1))])
    assert conversation.pop().item.content[1].data == noise(20_000, 1)
    assert (tables.counts()["blobs"], tables.counts()["item_blobs"]) == (1, 1)
    conversation.clear()
    assert (tables.counts()["blobs"], tables.counts()["item_blobs"]) == (0, 0)


def test_a_raw_body_goes_with_the_last_item_of_its_response(store: Any) -> None:
    conversation = store.create_conversation(model="m", input="Hi")
    conversation.add_response(an_answer("One", calls=("c",)), "open_responses")
    conversation.pop()
    assert conversation.response_body(0)
    conversation.pop()
    with pytest.raises(NotFound):
        conversation.response_body(0)
    assert [row.number for row in conversation.responses()] == [0]
    assert conversation.usage().input_tokens == 10


def test_a_call_without_its_output_is_mended(store: Any) -> None:
    conversation = store.create_conversation(model="m", input="Look")
    conversation.add_items([a_call("c"), an_output("c")])
    conversation.pop()
    assert conversation.render("open_responses").repairs
    conversation.pop()
    assert not conversation.render("open_responses").repairs


def test_tool_usage_is_of_what_is_there(store: Any) -> None:
    conversation = store.create_conversation(model="m", input="Look")
    conversation.add_items([a_call("c"), an_output("c"), a_call("d")])
    conversation.remove_item(3)
    conversation.remove_item(2)
    assert [(row.calls, row.unanswered) for row in store.tool_usage()] == [(1, 1)]
    assert (store.statistics().items, len(conversation.transcript())) == (4, 2)


def test_removing_a_compaction_shows_what_it_covered(root: Any, store: Any) -> None:
    root.compact(summary="so far")
    root.user("4")
    assert "so far" in sent(root)
    root.remove_item(4)
    assert sent(root) == "0 1 2 3 4"
    root.compact(summary="again")
    root.undo_compaction()
    root.remove_item(root.head - 1)
    assert says(store.copy_conversation(root.id)) == "0 1 2 3 4"
    assert sent(store.copy_conversation(root.id)) == "0 1 2 3 4"


def test_whose_turn_it_is_after_a_removal(root: Any) -> None:
    root.add_response(an_answer("Hello", calls=("c",)), "open_responses")
    assert root.next_step() == "tools"
    root.pop()
    assert (root.next_step(), root.pending_calls()) == ("user", [])
    root.pop()
    assert root.next_step() == "model"
    root.clear()
    assert root.next_step() == "user"


def test_an_item_that_is_gone_has_no_id_and_no_labels(store: Any, root: Any) -> None:
    root.label_item(1, {"topic": "x"})
    root.label_item(2, {"topic": "x"})
    item_id = root.get_item(1).id
    root.remove_item(item_id)
    root.remove_item(2, purge=True)
    for find in (store.get_item, root.get_item, root.remove_item):
        with pytest.raises(NotFound):
            find(item_id)
    assert not list(store.list_items(labels={"topic": "x"}))


def test_a_window_counts_what_is_left(root: Any) -> None:
    root.remove_item(2)
    assert sent(root, upto=2) == "0 1"
    assert root.compact(summary="s", upto=2).item.to_dict()["upto"] == 1


# Where the provider keeps the history


def inputs(conversation: Any) -> tuple[Any, list[str]]:
    payload = conversation.request_payload("open_responses")
    texts = [part["text"] for item in payload.get("input", ()) for part in item["content"]]
    return payload.get("previous_response_id"), texts


@pytest.fixture
def held(store: Any) -> Any:
    """A conversation whose provider keeps the history: three questions, two answers."""
    conversation = store.create_conversation(model="m", input="q0", **SERVER)
    for number in (1, 2):
        conversation.add_response(an_answer(f"a{number}", id=f"resp_{number}"), "open_responses")
        conversation.user(f"q{number}")
    return conversation


def test_the_provider_is_not_asked_to_go_on_from_what_was_popped(held: Any, elsewhere: Any) -> None:
    assert inputs(held) == ("resp_2", ["q2"])
    held.pop()
    held.pop()
    assert inputs(held) == inputs(elsewhere.get_conversation(held.id)) == ("resp_1", ["q1"])
    held.add_response(an_answer("a3", id="resp_3"), "open_responses")
    held.user("q3")
    assert inputs(held) == ("resp_3", ["q3"])


def test_nor_from_what_knew_something_that_was_removed(held: Any, elsewhere: Any) -> None:
    fork = held.fork()
    held.remove_item(2)
    assert inputs(held) == inputs(elsewhere.get_conversation(held.id)) == ("resp_1", ["a2", "q2"])
    assert inputs(fork) == ("resp_2", ["q2"])
    held.add_response(an_answer("a3", id="resp_3"), "open_responses")
    assert inputs(held.fork())[0] == "resp_3"


# Clients and copies


def test_a_client_that_still_has_an_item_says_it_again(root: Any) -> None:
    history = {"model": "m", "messages": [{"role": "user", "content": text} for text in "0123"]}
    root.pop()
    assert root.sync_request(history, "chat_completion").appended == 1
    assert says(root) == "0 1 2 3"


def test_a_client_finds_its_branch_among_branches_with_gaps(root: Any) -> None:
    fork = root.fork(at=1)
    for text in ("a", "b", "c"):
        fork.user(text)
    fork.remove_item(fork.head - 1)
    root.remove_item(3)
    history = {"messages": [{"role": "user", "content": text} for text in ("0", "1", "a", "c", "d")]}
    result = root.sync_request({"model": "m", **history}, "chat_completion")
    assert (result.branch, result.appended, result.branched_at) == (1, 1, None)
    assert says(fork) == "0 1 a c d"


# Keys


def test_a_repeated_pop_removes_nothing_more(root: Any, elsewhere: Any) -> None:
    first = root.pop(idempotency_key="k")
    again = elsewhere.get_conversation(root.id).pop(idempotency_key="k")
    assert (again.position, again.id, again.replayed) == (first.position, first.id, True)
    assert isinstance(again.item, Message)
    assert again.item.text == "[removed]"
    assert says(root) == "0 1 2"
    root.clear(idempotency_key="c")
    assert root.pop(idempotency_key="empty") is root.pop(idempotency_key="empty") is None
    root.user("new")
    root.clear(idempotency_key="c")
    assert root.pop(idempotency_key="empty") is None
    assert says(root) == "new"
    with pytest.raises(IdempotencyConflict):
        root.clear(purge=False, idempotency_key="c")


def test_what_was_removed_is_not_stored_again_under_its_key(root: Any) -> None:
    first = root.user("once", idempotency_key="k")
    summary = root.compact(summary="s", idempotency_key="s")
    root.pop()
    root.pop()
    again = root.user("once", idempotency_key="k")
    assert (again.position, again.replayed) == (first.position, True)
    assert root.compact(summary="s", idempotency_key="s").position == summary.position
    assert says(root) == "0 1 2 3"


def test_within_a_transaction_of_the_caller(stores: Any, tenant: str, root: Any, watching: Engine) -> None:
    store = stores.get("sync").for_tenant(tenant)
    with watching.connect() as connection:
        handle = store.within(connection).get_conversation(root.id)
        assert says(handle) == "0 1 2 3"
        assert handle.pop().item.text == "3"
        handle.remove_item(0, purge=True)
        handle.redact_item(1)
        assert says(handle) == "[redacted] 2"
        connection.rollback()
    assert says(root) == "0 1 2 3"


def _reasoned(store: Any) -> Any:
    """A conversation with an answer of reasoning, a message, and a call."""
    conversation = store.create_conversation(model="gpt-5.4", input="Hi")
    said = [{"type": "output_text", "text": "Let me see.", "annotations": []}]
    output = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": said},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"},
    ]
    body = {"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5.4", "output": output}
    conversation.add_response(body, "open_responses")
    conversation.add_function_call_output(call_id="c1", output="Rain.")
    return conversation


@pytest.mark.parametrize("change", ["remove_item", "redact_item"])
def test_a_detached_session_knows_what_its_answers_lack(store: Any, change: str) -> None:
    conversation = _reasoned(store)
    getattr(conversation, change)(1)
    session = conversation.session()
    assert [item.to_dict().get("id") for item in session.items][-3:-1] == ["msg_1", "fc_1"]
    for one in (conversation, session, Session.from_dict(session.to_dict())):
        sent = one.render("open_responses").payload["input"]
        assert [item.get("id") for item in sent] == [None] * 4
    assert session.gaps == (frozenset({1}) if change == "remove_item" else frozenset())
    assert session.clear().gaps == frozenset()


def test_a_detached_session_has_no_gaps_where_nothing_was_removed(store: Any) -> None:
    session = _reasoned(store).session()
    assert session.gaps == frozenset()
    sent = session.render("open_responses").payload["input"]
    assert [item.get("id") for item in sent] == [None, "rs_1", "msg_1", "fc_1", None]


@pytest.mark.parametrize("gaps", [[1], [-1], ["0"], [True], "0", 7])
def test_gaps_of_a_session_are_indexes_of_its_items(gaps: Any) -> None:
    with pytest.raises(InvalidOption, match="gaps"):
        Session.from_dict({"input": "Hi", "gaps": gaps})
