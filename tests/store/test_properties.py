"""Generated conversations, through the store: what was sent stays sent, and a reloaded conversation is the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.jsonvalues import OBJECTS, TEXT, same
from tests.factories import a_call, a_message, an_output
from threadkeep import CannotRender, Session, Store

TURN_LISTS = {"open_responses": "input", "chat_completion": "messages"}

# Few ids, so that calls are answered, answered twice, left open, asked again, and answered without having been asked.
IDS = st.sampled_from(["c1", "c2", "c 3", "c3", "c" * 70])
NAMES = st.sampled_from(["look_up", "look up", "look.up", "n" * 80, "é"])
ARGUMENTS = st.sampled_from(["{}", '{"city": "Rome"}', "{not json", "", "[1]"])
TEXTS = st.one_of(st.sampled_from(["Hi", "", " ", "\n"]), TEXT)
SAID = st.one_of(st.just("Hi"), TEXT.map(lambda text: f"{text}."))
ROLES = st.sampled_from(["user", "user", "user", "assistant", "system", "developer"])

CALLS = st.builds(a_call, IDS, NAMES, ARGUMENTS)
OUTPUTS = st.builds(an_output, IDS, TEXTS)
MESSAGES = st.builds(a_message, SAID, ROLES)
REASONING = st.builds(
    lambda text, sealed: {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}], **sealed},
    TEXTS,
    st.sampled_from([{}, {"id": "rs_1"}, {"id": "rs_1", "encrypted_content": "xyz"}]),
)
UNKNOWN = st.builds(lambda value: {"type": "web_search_call", "id": "ws_1", "x": value}, OBJECTS)
ITEMS = st.one_of(MESSAGES, MESSAGES, CALLS, OUTPUTS, OUTPUTS, REASONING, UNKNOWN)

ANSWERED = st.lists(st.one_of(CALLS, CALLS, REASONING, st.builds(a_message, TEXTS, st.just("assistant"))), max_size=4)


def completion(items: list[dict[str, Any]]) -> dict[str, Any]:
    """A body of Chat Completions with the texts and calls of these items."""
    calls = [
        {"id": item["call_id"], "type": "function", "function": {"name": item["name"], "arguments": item["arguments"]}}
        for item in items if item["type"] == "function_call"
    ]  # fmt: skip
    texts = [item["content"][0]["text"] for item in items if item["type"] == "message"]
    message = {"role": "assistant", "content": "".join(texts) or None} | ({"tool_calls": calls} if calls else {})
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }


def response(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": "completed", "output": items}


BODIES = {"open_responses": response, "chat_completion": completion}

# What an application does: append items, or an answer to a request that was rendered some steps before.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("items"), st.lists(ITEMS, min_size=1, max_size=3)),
        st.tuples(st.sampled_from([*BODIES]), ANSWERED, st.integers(0, 2)),
    ),
    max_size=8,
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('properties')}/chat.db"


@pytest.fixture(scope="module")
def kept(url: str) -> Iterator[Store]:
    with Store(url) as store:
        yield store


@pytest.fixture(scope="module")
def reader(kept: Store, url: str) -> Iterator[Store]:
    """Another store: what it shows was read from the database."""
    with Store(url) as store:
        yield store


def render(handle: Any, wire: str) -> Any:
    try:
        return handle.render(wire)
    except CannotRender:
        return None


def apply(conversation: Any, step: tuple[Any, ...], rendered: list[Any]) -> None:
    if step[0] == "items":
        conversation.add_items(step[1], known=False)
        return
    wire, items, age = step
    shown = [one for one in rendered[: len(rendered) - age] if one is not None and one.view["format"] == wire]
    conversation.add_response(BODIES[wire](items), wire, rendered=shown[-1] if shown else None)


def play(conversation: Any, steps: list[Any], look: Callable[[Any, str], None]) -> None:
    """Do the steps, and look at every request before and between them."""
    rendered: list[Any] = []
    for step in [*steps, None]:
        for wire in TURN_LISTS:
            found = render(conversation, wire)
            rendered.append(found)
            look(found, wire)
        if step is not None:
            apply(conversation, step, rendered)


@given(STEPS)
def test_the_stable_part_of_a_request_stays(kept: Store, steps: list[Any]) -> None:
    """What no later append changes is the prefix that a provider's cache can hold."""
    stable: dict[str, list[Any]] = {wire: [] for wire in TURN_LISTS}

    def look(rendered: Any, wire: str) -> None:
        if rendered is None:
            return
        turns = json.loads(rendered.body)[TURN_LISTS[wire]]
        before = stable[wire]
        assert 0 <= rendered.stable <= len(turns)
        assert same(turns[: len(before)], before)
        stable[wire] = turns[: max(rendered.stable, len(before))]

    play(kept.create_conversation(model="m", instructions="Be brief"), steps, look)


@given(STEPS)
def test_a_reloaded_conversation_renders_the_same(kept: Store, reader: Store, steps: list[Any]) -> None:
    """… bytes, losses, repairs and all; so does a detached session, where the request was not recorded."""
    conversation = kept.create_conversation(model="m")

    def look(rendered: Any, wire: str) -> None:
        again = render(reader.get_conversation(conversation.id), wire)
        assert (again is None) == (rendered is None)
        if rendered is not None:
            assert again.body == rendered.body
            assert (again.losses, again.repairs) == (rendered.losses, rendered.repairs)
            assert (again.stable, again.head, again.view) == (rendered.stable, rendered.head, rendered.view)

    play(conversation, steps, look)


@given(STEPS, st.data())
def test_upto_shows_what_was_shown(kept: Store, reader: Store, steps: list[Any], data: st.DataObject) -> None:
    """A request that was rendered before anything was appended can be rendered again, from the rows alone."""
    conversation = kept.create_conversation(model="m")
    seen: list[Any] = []
    play(conversation, steps, lambda rendered, _: seen.append(rendered))
    past = [rendered for rendered in seen if rendered is not None and rendered.head >= 0]
    if past:
        chosen = data.draw(st.sampled_from(past))
        again = reader.get_conversation(conversation.id).render(chosen.view["format"], upto=chosen.head)
        assert again.body == chosen.body


@given(st.lists(ITEMS, max_size=8), OBJECTS)
def test_a_session_comes_back(kept: Store, reader: Store, items: list[Any], metadata: dict[str, Any]) -> None:
    session = Session.from_dict({"model": "m", "metadata": metadata, "extra": {"open_responses": metadata}})
    session.add_items(items, known=False)
    found = reader.get_conversation(kept.save(session).id).session()
    assert same(found.to_dict(), session.to_dict())


@given(st.lists(st.lists(MESSAGES, min_size=1, max_size=2), min_size=1, max_size=5), st.data())
def test_branches_are_what_was_said_on_them(kept: Store, reader: Store, said: list[Any], data: st.DataObject) -> None:
    """Any tree of forks: every branch has its ancestors' items up to the fork, and its own."""
    root = kept.create_conversation(model="m")
    handles = [root]
    expected: dict[int, list[Any]] = {0: []}
    for items in said:
        parent = data.draw(st.sampled_from(handles))
        known = expected[parent.branch]
        cut = data.draw(st.integers(0, len(known)))
        fork = parent.fork(at=known[cut - 1][0] if cut else -1)
        handles.append(fork)
        expected[fork.branch] = known[:cut]
        for handle in (parent, fork):
            stored = handle.add_items(items)
            expected[handle.branch] = expected[handle.branch] + [(one.position, one.item.to_dict()) for one in stored]
    for branch, items in expected.items():
        transcript = reader.get_conversation(root.id, branch=branch).transcript()
        assert same([(one.position, one.item.to_dict()) for one in transcript], items)
