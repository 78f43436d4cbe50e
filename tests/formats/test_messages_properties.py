"""Properties of the Messages API: requests come back and go on, and odd ones are read or refused."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.formats.conversations import APPENDS, Append, Conversation, grown
from tests.formats.messages_requests import BODIES, EVENTS, EXCHANGES, REQUESTS
from tests.formats.spelling_messages import usual
from tests.formats.turns import MODELS, rendered_turns
from tests.formats.validity_messages import refused
from threadkeep.domain.rendering import ImportInfo, RenderOptions
from threadkeep.errors import CannotRender, ThreadkeepError
from threadkeep.formats import get_format
from threadkeep.formats.canonical.entries import Snapshot, snapshot_of
from threadkeep.formats.shared.arguments import Mending

WIRE = get_format("messages")


@pytest.fixture(autouse=True)
def _without_warnings() -> Iterator[None]:
    """Words that no provider says are logged, each of them."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


# Conversations that began as a request


def begun(messages: list[Any], model: str, appends: list[Append]) -> Conversation:
    """A conversation that goes on from a request."""
    snapshot = snapshot_of(WIRE.parse_request({"model": model, "max_tokens": 9, "messages": messages}))
    made = Conversation(snapshot.settings, [], list(snapshot.entries), [len(snapshot.entries)])
    more = grown({}, [], appends)
    shift = len(snapshot.entries)
    for entry in more.entries:
        turn = None if entry.turn is None else entry.turn + 100
        seen = None if entry.seen is None else entry.seen + shift
        made.entries.append(entry._replace(position=entry.position + shift, turn=turn, seen=seen))
    made.ends += [end + shift for end in more.ends]
    return made


def imported(conversation: Conversation, count: int | None = None) -> Snapshot:
    snapshot = conversation.snapshot(count)
    return Snapshot(snapshot.settings, [], snapshot.entries, imported=ImportInfo("messages", conversation.ends[0]))


@given(messages=EXCHANGES, model=MODELS["messages"])
def test_a_request_comes_back_as_it_was(messages: list[Any], model: str) -> None:
    request = {"model": model, "max_tokens": 9, "messages": messages}
    assert refused(request) == []
    rendered = WIRE.render(WIRE.parse_request(request))
    assert rendered.payload == request
    assert (rendered.losses, rendered.repairs) == ([], [])


@given(messages=EXCHANGES, model=MODELS["messages"], appends=APPENDS, data=st.data())
def test_a_request_that_went_on_is_valid_and_keeps_its_beginning(
    messages: list[Any], model: str, appends: list[Append], data: st.DataObject
) -> None:
    conversation = begun(messages, model, appends)
    upto = data.draw(st.integers(0, conversation.entries[-1].position))
    assert refused(WIRE.render(imported(conversation), RenderOptions(upto=upto)).payload) == []
    renders = [rendered_turns(imported(conversation, end), "messages") for end in conversation.ends]
    for before, stable in renders:
        assert renders[-1][0][:stable] == before[:stable]


# Anything


def is_paired(request: dict[str, Any]) -> bool:
    """Whether all results stand where the service wants them; others are moved."""
    waiting: list[Any] = []
    for message in usual(request)["messages"]:
        blocks = [one if isinstance(one, dict) else {} for one in message["content"]]
        ids = [one.get("tool_use_id") for one in blocks if one.get("type") == "tool_result"]
        is_first = all(one.get("type") == "tool_result" for one in blocks[: len(ids)])
        if ids and (not is_first or message["role"] != "user" or not all(isinstance(one, str) for one in ids)):
            return False
        if not set(ids) <= set(waiting) or len(set(ids)) < len(ids):
            return False
        waiting = [one.get("id") for one in blocks if one.get("type") == "tool_use"]
        if not all(isinstance(one, str) for one in waiting):
            return False
    return True


@example(
    request={
        "model": "claude-sonnet-4-5",
        "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "text", "data": "\ud800"}}]}],
    },
    upto=0,
)
@given(request=REQUESTS, upto=st.integers(-1, 8))
def test_odd_requests_come_back_or_are_refused(request: dict[str, Any], upto: int) -> None:
    before = copy.deepcopy(request)
    try:
        session = WIRE.parse_request(request)
    except ThreadkeepError:
        return
    with contextlib.suppress(CannotRender):
        rendered = WIRE.render(session)
        assert isinstance(rendered.body, bytes)
        if is_paired(request):
            assert usual(rendered.payload) == usual(Mending().value(request))  # without what cannot be sent
    with contextlib.suppress(CannotRender):
        WIRE.render(session, RenderOptions(upto=upto))
    assert request == before


@given(body=BODIES)
def test_odd_bodies_are_read_or_refused(body: Any) -> None:
    before = copy.deepcopy(body)
    with contextlib.suppress(ThreadkeepError):
        assert WIRE.parse_response(body).to_dict()
    assert body == before


@given(events=st.lists(EVENTS, max_size=6))
def test_odd_events_are_taken_or_refused(events: list[Any]) -> None:
    before = copy.deepcopy(events)
    assembler = WIRE.assembler()
    for event in events:
        with contextlib.suppress(ThreadkeepError):
            assembler.feed(event)
    assert assembler.partial.status == "in_progress"
    assert assembler.response.is_final
    assert events == before
