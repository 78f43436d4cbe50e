"""Properties of what explicit caches can hold: exactly the beginning of requests, whatever the conversation."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.conversations import CONVERSATIONS, Conversation
from tests.formats.factories import answer, assistant, call, output, snapshot, user
from tests.formats.validity_gemini import refused
from threadkeep.domain.context_caches import ContextCache
from threadkeep.domain.rendering import RenderOptions
from threadkeep.errors import CannotRender, InvalidOption
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.formats.canonical.entries import Snapshot
from threadkeep.formats.gemini.request import CACHED

FORMAT = get_format("gemini")
MODELS = st.sampled_from(["gemini-2.5-flash", "gemini-3-flash-preview"])
NOW = {"now": "12:00"}
LAYER = {"role": "user", "parts": [{"text": '{"now":"12:00"}'}]}


def turns_of(snapshot: Snapshot) -> dict[int, bytes]:
    """The beginnings that a cache can hold: how many contents, and their hash."""
    found = FORMAT.prefixes(snapshot)
    return {} if found is None else {prefix.turns: prefix.hash for prefix in found.found}


@given(conversation=CONVERSATIONS, model=MODELS)
def test_a_cache_and_the_rest_are_the_whole_request(conversation: Conversation, model: str) -> None:
    conversation.settings["model"] = model
    snapshot = conversation.snapshot()
    with contextlib.suppress(CannotRender):
        whole = FORMAT.render(snapshot).payload
        prefixes = FORMAT.prefixes(snapshot)
        for prefix in prefixes.found if prefixes is not None else ():
            body = prefixes.body(prefix, 60.5) if prefixes is not None else {}
            cache = ContextCache("cachedContents/1", prefix.upto)
            rest = FORMAT.render(snapshot, RenderOptions(context_cache=cache)).payload
            assert body["contents"] + rest["contents"] == whole["contents"]
            assert (body["model"], body["ttl"]) == (f"models/{model}", "60.5s")
            left: dict[str, Any] = {key: value for key, value in whole.items() if key not in CACHED}
            assert rest == {**left, "cachedContent": "cachedContents/1", "contents": rest["contents"]}
            assert {key: body.get(key) for key in CACHED} == {key: whole.get(key) for key in CACHED}
            layered = FORMAT.render(snapshot, RenderOptions(context_cache=cache, dynamic_context=NOW)).payload
            assert layered["contents"] == [LAYER, *rest["contents"]]


@given(conversation=CONVERSATIONS, model=MODELS)
def test_what_is_left_of_a_request_is_valid(conversation: Conversation, model: str) -> None:
    conversation.settings["model"] = model
    snapshot = conversation.snapshot()
    with contextlib.suppress(CannotRender):
        prefixes = FORMAT.prefixes(snapshot)
        if prefixes is not None and prefixes.goal is not None:
            cache = ContextCache("cachedContents/1", prefixes.goal.upto)
            rest = FORMAT.render(snapshot, RenderOptions(context_cache=cache)).payload
            begins_with_model = ["gemini.first-user"] if rest["contents"][0]["role"] == "model" else []
            assert refused(rest, model) == begins_with_model
            if begins_with_model:
                roles = [content["role"] for content in FORMAT.render(snapshot).payload["contents"]]
                assert all(one.turns not in range(len(roles)) or roles[one.turns] == "model" for one in prefixes.found)


@given(conversation=CONVERSATIONS, model=MODELS)
def test_a_beginning_stays_one_while_the_conversation_grows(conversation: Conversation, model: str) -> None:
    """… under the same hash, as long as the system text is the same."""
    conversation.settings["model"] = model
    ends: list[tuple[Any, dict[int, bytes]]] = []
    for end in conversation.ends:
        with contextlib.suppress(CannotRender):
            snapshot = conversation.snapshot(end)
            ends.append((FORMAT.render(snapshot).payload.get("systemInstruction"), turns_of(snapshot)))
    for (system, before), (later, after) in pairwise(ends):
        if system == later:
            assert before.items() <= after.items()
        else:
            assert not set(before.values()) & set(after.values())


def test_calls_and_their_responses_stay_together() -> None:
    items = (
        user("Go"),
        answer(call("a"), origin="gemini", seen=0),
        output("a"),
        answer(call("b"), origin="gemini"),
        output("b"),
    )
    assert list(turns_of(snapshot(*items, model="gemini-2.5-flash"))) == [1, 3]
    assert list(turns_of(snapshot(*items, user("So?"), model="gemini-2.5-flash"))) == [1, 3]


@pytest.mark.parametrize(
    "change", [{"model": "gemini-2.5-pro"}, {"instructions": "B"}, {"extra": {"gemini": {"toolConfig": {"x": 1}}}}]
)
def test_everything_that_is_held_is_in_the_hash(change: dict[str, Any]) -> None:
    items = (user("a"), assistant("b"), user("c"))
    settings: dict[str, Any] = {"model": "gemini-2.5-flash", "instructions": "A"}
    one, other = (turns_of(snapshot(*items, **found)) for found in (settings, {**settings, **change}))
    assert one.keys() == other.keys() == {1, 2}
    assert not set(one.values()) & set(other.values())
    assert turns_of(snapshot(*items, **settings, temperature=1, max_output_tokens=5)) == one
    assert turns_of(snapshot(user("A"), *items[1:], **settings)) != one


def test_a_path_of_a_model_is_kept() -> None:
    path = "projects/p/locations/l/publishers/google/models/gemini-2.5-flash"
    found = FORMAT.prefixes(snapshot(user("a"), assistant("b"), user("c"), model=path))
    assert found is not None
    assert found.body(found.found[0], 3600.0)["model"] == path


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"gemini"}))
def test_other_formats_have_no_such_caches(name: FormatName) -> None:
    assert get_format(name).prefixes(snapshot(user("a"), assistant("b"), user("c"), model="m")) is None


def test_what_names_a_cache_is_recorded() -> None:
    options = RenderOptions(context_cache=ContextCache("cachedContents/1", 3), account="a", cache="auto")
    view = options.view("gemini")
    named = {"cache": "auto", "account": "a", "context_cache": ["cachedContents/1", 3]}
    assert view == {"format": "gemini", **named}
    assert RenderOptions.recorded(view).context_cache == ContextCache("cachedContents/1", 3)


def test_a_cache_leaves_something_to_say() -> None:
    cache = ContextCache("cachedContents/1", 9)
    with pytest.raises(CannotRender, match="nothing to send"):
        FORMAT.render(snapshot(user("a"), model="gemini-2.5-flash"), RenderOptions(context_cache=cache))


@pytest.mark.parametrize("options", [{"account": 1}, {"account": None}, {"context_cache": "cachedContents/1"}])
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        RenderOptions(**options)
