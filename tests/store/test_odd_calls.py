"""Calls that look right and are not, and what is easily got wrong: each is refused by name, or does what was meant."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import httpx2 as httpx
import pytest

from tests.factories import a_message, an_answer
from threadkeep import CannotParse, InvalidItem, InvalidOption, NotFound, ToolNotFound, data_url, register_tool

pytestmark = pytest.mark.one_face


def a_cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def iter_events() -> Iterator[dict[str, Any]]:
    yield {}


LAST, FIRST = a_cursor("9999-12-31T23:59:59-23:00 1"), a_cursor("0001-01-01T00:00:00+23:00 1")
REFUSED: dict[str, tuple[type[Exception], str, Callable[[Any, Any], Any]]] = {
    "the last moment": (InvalidOption, "after is not the `next`", lambda s, _: s.list_conversations(after=LAST)),
    "the first moment": (InvalidOption, "after is not the `next`", lambda s, _: s.list_conversations(after=FIRST)),
    "a list as status": (InvalidOption, "status must be 'active'", lambda s, _: s.list_conversations(status=[])),
    "a list as status of a search": (InvalidOption, "status must be", lambda s, _: s.search("x", status=[])),
    "a list as order": (InvalidOption, "order must be 'asc' or 'desc', not", lambda _, c: c.items(order=[])),
    "a list of tools": (ToolNotFound, "no tool .* in the registry", lambda _, c: c.use_tools([])),
    "no registry": (InvalidOption, "registry must be a ToolRegistry", lambda _, c: c.use_tools(registry=3)),
    "a response of HTTP": (
        CannotParse, r"Response, which is not JSON. Pass its JSON, such as response.json\(\)",
        lambda _, c: c.add_response(httpx.Response(200, json=an_answer("Hi")), "open_responses"),
    ),
    "a raw stream": (
        CannotParse, r"generator, which is not JSON. .*stream_response\(\)",
        lambda _, c: c.add_response(iter_events(), "open_responses"),
    ),
    "both ends of a fork": (InvalidOption, "before cannot be given together", lambda _, c: c.fork(0, before=0)),
    "a fork before nothing": (NotFound, "no item at position -1", lambda _, c: c.fork(before=-1)),
    "a fork before what is not there": (NotFound, "no item at position 9", lambda _, c: c.fork(before=9)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(store: Any, name: str) -> None:
    kind, message, call = REFUSED[name]
    conversation = store.create_conversation(model="m", input="Hi")
    with pytest.raises(kind, match=message):
        call(store, conversation)
    assert len(conversation.transcript()) == 1


def test_positions_far_beyond_the_end_are_of_an_empty_page(conversation: Any) -> None:
    assert conversation.items(after=str(2**70)).items == []
    assert conversation.responses(after=str(2**70)).items == []
    assert conversation.branches(after=2**70).items == []


@pytest.mark.parametrize("media_type", ["png", "", "image/png, text/html", "image", None, 3])
def test_a_data_url_has_a_media_type(media_type: Any) -> None:
    with pytest.raises(InvalidOption, match="media_type must be a media type such as image/png"):
        data_url(b"x", media_type)


def test_a_document_whose_name_is_an_object(store: Any) -> None:
    document = {"document": {"format": "pdf", "name": {"x": 1}, "source": {"bytes": "AAAA"}}}
    payload = {"modelId": "m", "messages": [{"role": "user", "content": [document, document, {"text": "Hi"}]}]}
    imported = store.import_request(payload, "converse")
    assert imported.request_payload("converse")["messages"] == payload["messages"]


# Forks before an item


def test_a_fork_before_an_item_has_what_was_before_it(store: Any, elsewhere: Any) -> None:
    """Positions are counted over all branches, so the item before another one is not at the position before."""
    conversation = store.create_conversation(model="m", input="zero")
    branch = conversation.fork()
    branch.user("one")
    asked = conversation.user("two")
    branch.user("three")
    with pytest.raises(NotFound):
        conversation.fork(at=asked.position - 1)
    edited = conversation.fork(before=asked.position)
    edited.user("four")
    found = elsewhere.get_conversation(conversation.id)
    positions = {
        (number, before): [item.position for item in found.on_branch(number).fork(before=before).transcript()]
        for number, before in [(0, 0), (0, 2), (1, 1), (1, 3), (2, 4)]
    }
    assert positions == {(0, 0): [], (0, 2): [0], (1, 1): [0], (1, 3): [0, 1], (2, 4): [0]}
    assert [item.position for item in edited.transcript()] == [0, 4]


def test_a_fork_before_an_item_is_made_once(store: Any) -> None:
    conversation = store.create_conversation(model="m", input="zero")
    asked = conversation.user("one")
    first, again = (conversation.fork(before=asked.position, idempotency_key="edit") for _ in range(2))
    assert (first.branch, again.branch, again.replayed) == (1, 1, True)


# Requests that an answer answers


@pytest.mark.parametrize("way", ["add_response", "stream_response"])
def test_a_request_of_another_conversation_or_format_is_refused(store: Any, way: str) -> None:
    conversation, other = (store.create_conversation(model="m", input="Hi") for _ in range(2))
    arguments = ([an_answer("Ho")] if way == "add_response" else []) + ["open_responses"]
    wrong = {
        f"conversation {other.id}, not of {conversation.id}": other.render("open_responses"),
        "format messages, not of open_responses": conversation.render("messages"),
    }
    for told, rendered in wrong.items():
        with pytest.raises(InvalidOption, match=f"rendered is a request of the {told}"):
            getattr(conversation, way)(*arguments, rendered=rendered)
    assert len(conversation.transcript()) == 1
    assert store.usage()[0].attempts == 0


def test_a_request_of_another_branch_or_a_detached_copy_is_as_good(store: Any) -> None:
    conversation = store.create_conversation(model="m", input="Hi")
    rendered = conversation.render("open_responses")
    conversation.fork().add_response(an_answer("Ho"), "open_responses", rendered=rendered)
    rendered = conversation.session().render("open_responses")
    conversation.add_response(an_answer("Ho"), "open_responses", rendered=rendered)
    assert store.usage()[0].attempts == 2


# What was appended, and when


APPENDS: dict[str, Callable[[Any], Any]] = {
    "user": lambda c: [c.user("Hi")],
    "add_item": lambda c: [c.add_item(a_message())],
    "add_items": lambda c: c.add_items([a_message(), a_message()]),
    "add_input": lambda c: c.add_input([{"role": "user", "content": "Hi"}], "messages"),
    "compact": lambda c: [c.compact(summary="So far")],
    "sync_request": lambda c: (
        c.sync_request(
            {"model": "m", "input": [{"role": "user", "content": text} for text in ("zero", "one")]}, "open_responses"
        ).items
    ),
}


@pytest.mark.parametrize("name", APPENDS)
def test_what_was_appended_says_when(store: Any, elsewhere: Any, name: str) -> None:
    conversation = store.create_conversation(model="m", input=[a_message("zero")])
    items = APPENDS[name](conversation)
    found = elsewhere.get_conversation(conversation.id)
    assert items
    assert [item.created_at for item in items] == [found.get_item(item.position).created_at for item in items]
    assert None not in [item.created_at for item in items]


def test_a_tool_of_a_bad_schema_is_refused() -> None:
    with pytest.raises((InvalidOption, InvalidItem)):
        register_tool("t", parameters=3)  # type: ignore[call-overload]
