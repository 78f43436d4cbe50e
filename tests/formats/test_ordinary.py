"""The short way through an ordinary conversation gives what the passes give, from the start and going on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given

from tests.formats.conversations import CONVERSATIONS, Append, Conversation, grown
from tests.formats.factories import answer, assistant, call, output, reasoning, snapshot, user
from threadkeep.domain.rendering import Rendered
from threadkeep.errors import CannotRender
from threadkeep.formats import get_format
from threadkeep.formats.canonical.entries import Snapshot
from threadkeep.formats.open_responses import plan

# calls of two tools whose names are spelled alike
ALIKE = [user("a"), call("", name="my_tool"), output(""), call("a", name="my.tool")]


@contextmanager
def passes_only() -> Iterator[None]:
    """No short way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan.FastPath, "takes", lambda *_: False)
        yield


def rendered(shot: Snapshot) -> Rendered | None:
    try:
        return get_format("open_responses").render(shot)
    except CannotRender:
        return None


def facts(found: Rendered | None) -> Any:
    return found and (found.body, found.losses, found.repairs, found.stable, found.head)


@given(conversation=CONVERSATIONS)
def test_the_short_way_gives_what_the_passes_give(conversation: Conversation) -> None:
    for end in conversation.ends:
        found = facts(rendered(conversation.snapshot(end)))
        with passes_only():
            assert found == facts(rendered(conversation.snapshot(end)))


@given(conversation=CONVERSATIONS)
@example(conversation=grown({"model": "m"}, [], [Append([item]) for item in ALIKE]))
def test_a_render_that_goes_on_gives_what_a_new_one_gives(conversation: Conversation) -> None:
    shared: dict[str, Any] = {}
    memo: dict[str, Any] = {}
    for end in conversation.ends:
        shot = conversation.snapshot(end)
        assert facts(rendered(replace(shot, shared=shared, memo=memo))) == facts(rendered(shot))


@pytest.mark.parametrize(
    "items",
    [
        [user("a"), answer(assistant("b")), user("c")],
        [user("a"), answer(call()), output(), answer(assistant("b"))],
        [user("a"), answer(reasoning(id="rs_1", encrypted_content="x"), call()), output()],
    ],
    ids=["messages", "a tool loop", "reasoning"],
)
def test_ordinary_conversations_take_the_short_way(items: list[Any]) -> None:
    memo: dict[str, Any] = {}
    shot = snapshot(*items)
    rendered(replace(shot, memo=memo))
    assert memo["open_responses.input"].count == len(shot.entries)


def test_a_shorter_conversation_does_not_go_on_from_a_longer_one() -> None:
    memo: dict[str, Any] = {}
    rendered(replace(snapshot(user("a"), user("b")), memo=memo))
    assert facts(rendered(replace(snapshot(user("a")), memo=memo))) == facts(rendered(snapshot(user("a"))))
