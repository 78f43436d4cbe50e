"""Properties of the Messages API: valid whatever the conversation, pure, with a stable beginning, and without loss."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from anthropic.types.beta import BetaMessageParam, BetaToolUnionParam
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.formats.conversations import APPENDS, CONVERSATIONS, SETTINGS, TOOLS, Append, Conversation, grown
from tests.formats.messages_requests import BODIES, EVENTS, EXCHANGES, REQUESTS
from tests.formats.spelling_messages import usual
from tests.formats.test_sdk_types import forced
from tests.formats.validity_messages import MESSAGES
from threadkeep.domain.rendering import ImportInfo, RenderOptions
from threadkeep.errors import CannotRender, ThreadkeepError
from threadkeep.formats import get_format
from threadkeep.formats.canonical.snapshots import Snapshot, snapshot_of
from threadkeep.formats.shared.reports import LOSSES, REPAIRS

WIRE = get_format("messages")
MODELS = st.sampled_from(["gpt-5.4", "claude-opus-4-8", "claude-sonnet-4-5"])
MESSAGE: TypeAdapter[Any] = TypeAdapter(BetaMessageParam)
TOOL: TypeAdapter[Any] = TypeAdapter(BetaToolUnionParam)


@pytest.fixture(autouse=True)
def _without_warnings() -> Iterator[None]:
    """Words that no provider says are logged, each of them."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def check(payload: dict[str, Any]) -> None:
    """The service would take it, and its types fit."""
    assert [broken for rule in MESSAGES for broken in rule(payload)] == []
    for adapter, key in ((MESSAGE, "messages"), (TOOL, "tools")):
        for element in payload.get(key, []):
            forced(adapter.validate_python(element))


def rendered_turns(snapshot: Snapshot) -> tuple[list[Any], int]:
    """The messages and how many of them are stable; nothing where nothing can be sent."""
    try:
        rendered = WIRE.render(snapshot)
    except CannotRender:
        return [], 0
    return rendered.payload["messages"], rendered.stable


@given(conversation=CONVERSATIONS, model=MODELS, data=st.data())
def test_any_cut_of_any_conversation_is_valid(conversation: Conversation, model: str, data: st.DataObject) -> None:
    last = conversation.entries[-1].position if conversation.entries else 0
    upto = data.draw(st.one_of(st.none(), st.integers(0, last)))
    conversation.settings["model"] = model
    with contextlib.suppress(CannotRender):  # nothing is left to be sent: the one refusal
        rendered = WIRE.render(conversation.snapshot(), RenderOptions(upto=upto))
        check(rendered.payload)
        assert {loss.code for loss in rendered.losses} <= LOSSES.keys()
        assert {repair.code for repair in rendered.repairs} <= REPAIRS.keys()


@given(conversation=CONVERSATIONS, model=MODELS)
def test_the_stable_part_stays_while_the_conversation_grows(conversation: Conversation, model: str) -> None:
    conversation.settings["model"] = model
    renders = [rendered_turns(conversation.snapshot(end)) for end in conversation.ends]
    for (before, stable), (after, _) in pairwise(renders):
        assert 0 <= stable <= len(before)
        assert after[:stable] == before[:stable]
    for before, stable in renders:
        assert renders[-1][0][:stable] == before[:stable]


@given(settings=SETTINGS, tools=TOOLS, appends=APPENDS)
def test_rendering_changes_nothing_and_repeats_itself(
    settings: dict[str, Any], tools: list[dict[str, Any]], appends: list[Append]
) -> None:
    last = Append([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on"}]}])
    settings.pop("max_output_tokens", None)  # which may be too low for the thinking budget
    given_before = copy.deepcopy((settings, tools, appends))
    conversation = grown(settings, tools, [*appends, last])
    first, second = WIRE.render(conversation.snapshot()), WIRE.render(conversation.snapshot())
    assert first.body == second.body
    assert json.loads(first.body) == first.payload
    assert list(first.payload)[-1] == "messages"
    assert (settings, tools, appends) == given_before


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


@given(messages=EXCHANGES, model=MODELS)
def test_a_request_comes_back_as_it_was(messages: list[Any], model: str) -> None:
    request = {"model": model, "max_tokens": 9, "messages": messages}
    check(request)
    rendered = WIRE.render(WIRE.parse_request(request))
    assert rendered.payload == request
    assert (rendered.losses, rendered.repairs) == ([], [])


@given(messages=EXCHANGES, model=MODELS, appends=APPENDS, data=st.data())
def test_a_request_that_went_on_is_valid_and_keeps_its_beginning(
    messages: list[Any], model: str, appends: list[Append], data: st.DataObject
) -> None:
    conversation = begun(messages, model, appends)
    upto = data.draw(st.integers(0, conversation.entries[-1].position))
    check(WIRE.render(imported(conversation), RenderOptions(upto=upto)).payload)
    renders = [rendered_turns(imported(conversation, end)) for end in conversation.ends]
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
            assert usual(rendered.payload) == usual(request)
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
