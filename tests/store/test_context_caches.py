"""Explicit context caches: who makes one, who uses it, and what requests leave out beside it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.genai import types

from tests.databases import Database
from tests.factories import SIGNATURE, a_gemini_answer, an_answer
from tests.formats.validity_gemini import refused
from tests.processes import forked, pipe
from tests.store.watching import Tables, statements_of
from tests.store.writers import plan_cache
from threadkeep import CachePlan, CannotRender, InvalidOption, NotFound

pytestmark = pytest.mark.one_face

MODEL = "gemini-2.5-flash"
HELD = ("systemInstruction", "tools", "toolConfig")
TOOL = {"name": "look_up", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}
LARGE, SMALL = 30_000, 100


def a_call_of_gemini(name: str = "look_up", prompt: int = SMALL) -> dict[str, Any]:
    call = {"functionCall": {"name": name, "args": {"word": "x"}}, "thoughtSignature": SIGNATURE}
    body = a_gemini_answer(prompt=prompt)
    body["candidates"][0]["content"]["parts"] = [call]
    return body


def said(conversation: Any, *questions: str, prompt: int | None = SMALL, cached: int | None = None) -> Any:
    """Turns of question and answer, the last answer with these figures."""
    for question in questions:
        conversation.user(question)
        conversation.add_response(a_gemini_answer(f"to {question}", prompt, cached), "gemini")
    return conversation


def talk(store: Any, **options: Any) -> Any:
    """Two turns and a question; the newest request had many tokens, and none of them cached."""
    about = {"model": MODEL, "instructions": "RULES", "tools": [TOOL], "tool_choice": "auto", **options}
    conversation = said(store.create_conversation(**about), "q1", "q2", prompt=LARGE)
    conversation.user("q3")
    return conversation


def made(conversation: Any, name: str = "cachedContents/1", **options: Any) -> Any:
    """The plan of a cache that was made and recorded."""
    plan = conversation.plan_context_cache("gemini", **options)
    assert plan.action in {"create", "replace"}
    conversation.record_context_cache(plan, name=name)
    return plan


def texts(payload: Any) -> list[str]:
    return [part["text"] for content in payload["contents"] for part in content["parts"]]


def past() -> datetime:
    return datetime.now(UTC) - timedelta(seconds=1)


# Planning


def test_the_body_holds_everything_but_the_last_turn(store: Any) -> None:
    conversation = talk(store)
    whole = conversation.request_payload("gemini")
    plan = conversation.plan_context_cache("gemini", ttl=300)
    assert (plan.action, plan.name, plan.delete) == ("create", None, [])
    assert plan.body == {
        "model": f"models/{MODEL}", "ttl": "300s", "contents": whole["contents"][:-1],
        **{key: whole[key] for key in HELD},
    }  # fmt: skip
    assert texts(plan.body) == ["q1", "to q1", "q2", "to q2"]


def test_what_is_left_begins_with_the_user(store: Any) -> None:
    """Also after an answer: the last turn is that of question and answer."""
    conversation = said(store.create_conversation(model=MODEL), "q1", "q2", "q3", prompt=LARGE)
    plan = made(conversation)
    assert texts(plan.body) == ["q1", "to q1", "q2", "to q2"]
    conversation.user("q4")
    payload = conversation.request_payload("gemini", cache="auto")
    assert texts(payload) == ["q3", "to q3", "q4"]
    assert refused(payload) == []


def test_where_the_user_spoke_only_once_a_turn_of_the_model_is_left(store: Any) -> None:
    """Calls are never parted from their responses."""
    conversation = store.create_conversation(model=MODEL, tools=[TOOL], input="q1")
    for _ in range(3):
        call = conversation.add_response(a_call_of_gemini(prompt=LARGE), "gemini").tool_calls[0]
        conversation.add_function_call_output(call_id=call.call_id, output="found")
    whole = conversation.request_payload("gemini")["contents"]
    plan = made(conversation)
    assert plan.body["contents"] == whole[:5]
    assert conversation.request_payload("gemini", cache="auto")["contents"] == whole[5:]


def test_a_single_turn_is_never_cached(store: Any) -> None:
    conversation = said(store.create_conversation(model=MODEL, instructions="RULES"), "q1", prompt=LARGE)
    conversation.compact(summary="They spoke.")
    conversation.user("q2")
    assert len(conversation.request_payload("gemini")["contents"]) == 1
    assert conversation.plan_context_cache("gemini").action == "none"


@pytest.mark.parametrize(
    ("prompt", "cached", "options", "action"),
    [
        (20_000, None, {}, "create"),
        (19_999, None, {}, "none"),
        (50_000, 30_001, {}, "none"),
        (50_000, 30_000, {}, "create"),
        (20_000, None, {"threshold": 20_001}, "none"),
        (20_000, None, {"dynamic_tokens": 1}, "none"),
        (0, None, {"threshold": 0}, "create"),
        (20_000, None, {"threshold": -1}, "none"),
        (None, None, {"threshold": 0}, "none"),
    ],
)
def test_a_cache_is_worth_it_by_the_tokens_outside(
    store: Any, tables: Tables, prompt: Any, cached: Any, options: Any, action: str
) -> None:
    """All tokens of the newest request but the cached ones and those of the dynamic context; -1 is never."""
    conversation = said(store.create_conversation(model=MODEL), "q1", "q2", prompt=prompt, cached=cached)
    written = tables.written()
    assert conversation.plan_context_cache("gemini", **options).action == action
    assert written() == ({"context_caches": 1} if action == "create" else {})


def test_only_answers_of_the_format_on_this_branch_count(store: Any) -> None:
    conversation = said(said(store.create_conversation(model=MODEL), "q1"), "q2", prompt=LARGE)
    conversation.user("q3")
    fork = conversation.fork(at=1)
    fork.user("other")
    assert fork.plan_context_cache("gemini", threshold=LARGE).action == "none"
    conversation.add_response(an_answer("of somebody else", usage={"input_tokens": 1}), "open_responses")
    assert conversation.plan_context_cache("gemini", threshold=LARGE).action == "create"


def test_nothing_is_planned_where_there_is_nothing_to_plan(store: Any, conversation: Any) -> None:
    assert conversation.plan_context_cache("gemini").action == "none"
    named = talk(store, extra={"cached_content": "cachedContents/own"})
    assert named.plan_context_cache("gemini") == CachePlan("none")
    assert named.request_payload("gemini", cache="auto")["cachedContent"] == "cachedContents/own"
    with pytest.raises(CannotRender):
        store.create_conversation(input="Hi").plan_context_cache("gemini")


@pytest.mark.parametrize(
    ("options", "format"),
    [
        ({}, "messages"),
        ({"threshold": -2}, "gemini"),
        ({"threshold": 1.5}, "gemini"),
        ({"threshold": True}, "gemini"),
        ({"ttl": 0}, "gemini"),
        ({"ttl": "1h"}, "gemini"),
        ({"ttl": float("inf")}, "gemini"),
        ({"lease": timedelta(0)}, "gemini"),
        ({"dynamic_tokens": -1}, "gemini"),
        ({"account": "a" * 256}, "gemini"),
        ({"account": None}, "gemini"),
        ({"upto": 1}, "gemini"),
        ({"mood": 1}, "gemini"),
    ],
)
def test_options_are_checked(store: Any, tables: Tables, options: Any, format: str) -> None:
    conversation = talk(store)
    written = tables.written()
    with pytest.raises(InvalidOption):
        conversation.plan_context_cache(format, **options)
    assert written() == {}


# Claims


def test_the_others_wait_for_who_creates(store: Any, elsewhere: Any) -> None:
    conversation, twin = talk(store), talk(store)
    plan = conversation.plan_context_cache("gemini")
    assert plan.action == "create"
    for other in (conversation, elsewhere.get_conversation(conversation.id), twin):
        waiting = other.plan_context_cache("gemini")
        assert (waiting.action, waiting.key, waiting.body) == ("wait", plan.key, None)
        assert other.request_payload("gemini", cache="auto") == other.request_payload("gemini")


def test_a_longer_one_waits_for_a_shorter_one(store: Any) -> None:
    """… of the same conversation, which has gone on meanwhile."""
    conversation = talk(store)
    conversation.plan_context_cache("gemini")
    conversation.add_response(a_gemini_answer("to q3", LARGE), "gemini")
    assert said(conversation, "q4", prompt=LARGE).plan_context_cache("gemini").action == "wait"


def test_a_failed_creation_releases_the_claim(store: Any, elsewhere: Any, tables: Tables) -> None:
    conversation = talk(store)
    written = tables.written()
    plan = conversation.plan_context_cache("gemini")
    for _ in range(2):
        assert conversation.record_context_cache(plan, name=None).action == "none"
        assert written() == {}
    assert elsewhere.get_conversation(conversation.id).plan_context_cache("gemini").action == "create"


def test_a_claim_lasts_as_long_as_its_lease(store: Any, elsewhere: Any) -> None:
    conversation = talk(store)
    first = conversation.plan_context_cache("gemini", lease=0.001)
    time.sleep(0.01)
    second = elsewhere.get_conversation(conversation.id).plan_context_cache("gemini")
    assert (first.action, second.action) == ("create", "create")
    conversation.record_context_cache(second, name="cachedContents/2")
    late = conversation.record_context_cache(first, name="cachedContents/1")
    assert (late.action, late.name, late.delete) == ("reuse", "cachedContents/2", ["cachedContents/1"])
    assert conversation.request_payload("gemini", cache="auto")["cachedContent"] == "cachedContents/2"


def test_who_comes_late_is_told_to_delete_what_it_made(store: Any) -> None:
    conversation = talk(store)
    first = conversation.plan_context_cache("gemini", lease=0.001)
    time.sleep(0.01)
    second = conversation.plan_context_cache("gemini")
    assert conversation.record_context_cache(first, name="cachedContents/1").delete == ["cachedContents/1"]
    assert conversation.record_context_cache(first, name=None).delete == []
    assert conversation.record_context_cache(second, name="cachedContents/2").action == "reuse"


def test_a_lease_that_is_over_still_counts_where_nobody_took_over(store: Any) -> None:
    conversation = talk(store)
    plan = conversation.plan_context_cache("gemini", lease=0.001)
    time.sleep(0.01)
    assert conversation.record_context_cache(plan, name="cachedContents/1").action == "reuse"
    assert conversation.plan_context_cache("gemini").name == "cachedContents/1"


def test_recording_again_gives_the_same(store: Any, tables: Tables) -> None:
    conversation = talk(store)
    plan = conversation.plan_context_cache("gemini")
    first = conversation.record_context_cache(plan, name="cachedContents/1")
    written = tables.written()
    assert conversation.record_context_cache(plan, name="cachedContents/1") == first
    assert conversation.record_context_cache(plan, name=None).action == "none"
    assert written() == {}
    assert conversation.plan_context_cache("gemini").name == "cachedContents/1"


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [True, False])
def test_one_of_several_processes_creates(database: Database, stores: Any, tenant: str, is_shared: bool) -> None:
    """… whether they plan for one conversation, or for several that begin alike; both faces."""
    store = stores.get("sync").for_tenant(tenant)
    for _ in range(3):
        first = talk(store, user_id="ann")
        others = [first] * 3 if is_shared else [talk(store) for _ in range(3)]
        racers = []
        for number, conversation in enumerate([first, *others]):
            receiver, sender = pipe()
            go, start = pipe()
            face = ("sync", "async")[number % 2]
            forked(plan_cache, database.url, tenant, face, conversation.id, go, sender)
            assert receiver.recv() == "ready"
            racers.append((start, receiver))
        for start, _ in racers:
            start.send("go")
        actions = [receiver.recv() for _, receiver in racers]
        assert sorted(actions) == ["create", "wait", "wait", "wait"]
        store.erase_user("ann")
        for conversation in others:
            if not is_shared:
                store.delete_conversation(conversation.id)


# Use


def test_requests_leave_out_exactly_what_the_cache_holds(store: Any, elsewhere: Any) -> None:
    conversation = talk(store, temperature=0.5)
    whole = conversation.request_payload("gemini")
    plan = made(conversation)
    for handle in (conversation, elsewhere.get_conversation(conversation.id)):
        rendered = handle.render("gemini", cache="auto", strict=True)
        rest = {key: value for key, value in whole.items() if key not in HELD}
        assert rendered.payload == {**rest, "cachedContent": "cachedContents/1", "contents": whole["contents"][-1:]}
        assert plan.body["contents"] + rendered.payload["contents"] == whole["contents"]
        assert (rendered.losses, rendered.repairs, rendered.stable) == ([], [], 0)
        assert next(reversed(rendered.payload)) == "contents"
        assert refused(rendered.payload) == []


def test_without_cache_auto_nothing_changes(store: Any) -> None:
    conversation = talk(store)
    before = conversation.request_body("gemini")
    made(conversation)
    assert conversation.request_body("gemini") == before
    with statements_of(store) as plain:
        conversation.render("gemini")
    with statements_of(store) as cached:
        conversation.render("gemini", cache="auto")
    assert (len(plain), len(cached)) == (1, 2)
    with statements_of(store) as others:
        conversation.render("messages", cache="auto")
    assert len(others) == 1


def test_a_conversation_goes_on_beside_its_cache(store: Any) -> None:
    conversation = talk(store)
    plan = made(conversation)
    for number in range(3, 6):
        rendered = conversation.render("gemini", cache="auto")
        whole = conversation.request_payload("gemini")["contents"]
        assert plan.body["contents"] + rendered.payload["contents"] == whole
        answer = a_gemini_answer(f"to q{number}", 31_000, LARGE)
        conversation.add_response(answer, "gemini", rendered=rendered)
        conversation.user(f"q{number + 1}")
        assert conversation.plan_context_cache("gemini").action == "reuse"


def test_an_earlier_request_is_replayed_with_its_cache(store: Any, elsewhere: Any) -> None:
    conversation = talk(store)
    made(conversation)
    rendered = conversation.render("gemini", cache="auto", dynamic_context={"now": "12:00"})
    assert rendered.view["context_cache"] == ["cachedContents/1", 3]
    conversation.add_response(a_gemini_answer(prompt=60_000, cached=LARGE), "gemini", rendered=rendered)
    conversation.user("q4")
    made(conversation, "cachedContents/2")
    for handle in (conversation, elsewhere.get_conversation(conversation.id)):
        assert handle.request_payload("gemini", cache="auto")["cachedContent"] == "cachedContents/2"
        assert handle.render("gemini", upto=4).body == rendered.body


@pytest.mark.parametrize(
    "change",
    [
        {"instructions": "OTHER RULES"},
        {"tool_choice": "required"},
        {"model": "gemini-2.5-pro"},
        {"extra": {"gemini": {"toolConfig": {"retrievalConfig": {"languageCode": "de"}}}}},
    ],
)
def test_another_static_layer_has_another_cache(store: Any, change: Any) -> None:
    conversation = talk(store)
    made(conversation)
    conversation.update(**change)
    assert "cachedContent" not in conversation.request_payload("gemini", cache="auto")
    plan = conversation.plan_context_cache("gemini")
    assert plan.action == "create"
    assert plan.delete == ([] if "model" in change else ["cachedContents/1"])
    conversation.update(temperature=1, instructions="RULES", tool_choice="auto", model=MODEL, extra=None)
    assert conversation.request_payload("gemini", cache="auto")["cachedContent"] == "cachedContents/1"


def test_other_tools_have_another_cache(store: Any) -> None:
    conversation = talk(store)
    made(conversation)
    conversation.register_tool("more")
    assert "cachedContent" not in conversation.request_payload("gemini", cache="auto")
    conversation.remove_tool("more")
    assert "cachedContent" in conversation.request_payload("gemini", cache="auto")


def test_a_cache_is_for_the_view_that_it_was_planned_for(store: Any) -> None:
    conversation = store.create_conversation(model=MODEL)
    conversation.user(["look", {"type": "input_image", "url": "data:image/png;base64,aW1n"}])
    conversation.add_response(a_gemini_answer(prompt=LARGE), "gemini")
    conversation.user("and?")
    made(conversation, vision=False)
    assert "cachedContent" not in conversation.request_payload("gemini", cache="auto")
    assert "cachedContent" in conversation.request_payload("gemini", cache="auto", vision=False)


def test_a_compaction_ends_the_use_of_a_cache(store: Any) -> None:
    conversation = talk(store)
    made(conversation)
    conversation.compact(upto=1, summary="They spoke.")
    assert "cachedContent" not in conversation.request_payload("gemini", cache="auto")
    conversation.undo_compaction()
    assert "cachedContent" in conversation.request_payload("gemini", cache="auto")


def test_an_expired_cache_is_none(store: Any, tables: Tables) -> None:
    conversation = talk(store)
    plan = conversation.plan_context_cache("gemini")
    conversation.record_context_cache(plan, name="cachedContents/1", expires_at=past())
    assert "cachedContent" not in conversation.request_payload("gemini", cache="auto")
    again = conversation.plan_context_cache("gemini")
    assert (again.action, again.key, again.delete) == ("create", plan.key, ["cachedContents/1"])
    assert conversation.plan_context_cache("gemini").delete == []
    conversation.record_context_cache(again, name="cachedContents/2")
    assert conversation.request_payload("gemini", cache="auto")["cachedContent"] == "cachedContents/2"
    assert len(tables.rows("context_caches")) == 1


def test_what_expired_is_listed_once_whatever_is_to_be_done(store: Any, tables: Tables) -> None:
    conversation = talk(store)
    plan = conversation.plan_context_cache("gemini")
    conversation.record_context_cache(plan, name="cachedContents/1", expires_at=past().isoformat())
    conversation.add_response(a_gemini_answer(prompt=SMALL), "gemini")
    found = [conversation.plan_context_cache("gemini") for _ in range(2)]
    assert [(one.action, one.delete) for one in found] == [("none", ["cachedContents/1"]), ("none", [])]
    assert tables.rows("context_caches") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2099-11-21T12:00:00Z", datetime(2099, 11, 21, 12, tzinfo=UTC)),
        ("2099-11-21T12:00:00.123456789Z", datetime(2099, 11, 21, 12, 0, 0, 123456, UTC)),
        ("2099-11-21T21:00:00+09:00", datetime(2099, 11, 21, 12, tzinfo=UTC)),
        ("2099-11-21T12:00:00", datetime(2099, 11, 21, 12, tzinfo=UTC)),
        (datetime(2099, 11, 21, 12, tzinfo=UTC), datetime(2099, 11, 21, 12, tzinfo=UTC)),
    ],
)
def test_the_provider_says_when_a_cache_ends(store: Any, text: Any, expected: datetime) -> None:
    conversation = talk(store)
    plan = conversation.plan_context_cache("gemini")
    assert conversation.record_context_cache(plan, name="cachedContents/1", expires_at=text).expires_at == expected
    assert conversation.plan_context_cache("gemini").expires_at == expected


def test_else_it_ends_with_the_time_that_was_asked_for(store: Any) -> None:
    conversation, before = talk(store), datetime.now(UTC)
    plan = conversation.plan_context_cache("gemini", ttl=timedelta(minutes=5))
    since = before.replace(microsecond=before.microsecond // 1_000 * 1_000)  # it is given in milliseconds
    assert since <= plan.expires_at - timedelta(minutes=5) <= datetime.now(UTC)
    assert conversation.record_context_cache(plan, name="cachedContents/1").expires_at == plan.expires_at


@pytest.mark.parametrize(
    "values",
    [
        {"name": ""},
        {"name": 1},
        {"name": "cachedContents/1", "expires_at": "soon"},
        {"name": "cachedContents/1", "expires_at": 5},
        {"name": "cachedContents/1", "expires_at": "0001-01-01T00:00:00+09:00"},
        {"plan": None, "name": "cachedContents/1"},
        {"plan": CachePlan("none"), "name": "cachedContents/1"},
        {"plan": CachePlan("create", "x", claim="y", expires_at=datetime.now(UTC)), "name": "cachedContents/1"},
    ],
)
def test_only_plans_and_names_are_recorded(store: Any, tables: Tables, values: dict[str, Any]) -> None:
    conversation = talk(store)
    plan = conversation.plan_context_cache("gemini")
    before = tables.rows("context_caches")
    with pytest.raises(InvalidOption):
        conversation.record_context_cache(**{"plan": plan, **values})
    assert tables.rows("context_caches") == before


# Growth


def test_a_cache_is_replaced_when_enough_stands_outside(store: Any) -> None:
    """The old one serves until the new one is recorded, and is to be deleted then."""
    conversation = talk(store)
    first = made(conversation)
    conversation.add_response(a_gemini_answer("to q3", 55_000, LARGE), "gemini")
    conversation.user("q4")
    plan = conversation.plan_context_cache("gemini")
    assert (plan.action, plan.name, plan.delete) == ("replace", "cachedContents/1", ["cachedContents/1"])
    assert plan.key != first.key
    assert texts(plan.body)[-1] == "to q3"
    assert conversation.request_payload("gemini", cache="auto")["cachedContent"] == "cachedContents/1"
    waiting = conversation.plan_context_cache("gemini")
    assert (waiting.action, waiting.name, waiting.delete) == ("wait", "cachedContents/1", [])
    done = conversation.record_context_cache(plan, name="cachedContents/2")
    assert (done.action, done.name, done.delete) == ("reuse", "cachedContents/2", ["cachedContents/1"])
    payload = conversation.request_payload("gemini", cache="auto")
    assert (payload["cachedContent"], texts(payload)) == ("cachedContents/2", ["q4"])


def test_the_old_cache_stays_when_the_new_one_fails(store: Any) -> None:
    conversation = talk(store)
    made(conversation)
    conversation.add_response(a_gemini_answer("to q3", 55_000, LARGE), "gemini")
    conversation.user("q4")
    conversation.record_context_cache(conversation.plan_context_cache("gemini"), name=None)
    assert conversation.request_payload("gemini", cache="auto")["cachedContent"] == "cachedContents/1"
    assert conversation.plan_context_cache("gemini").action == "replace"


def test_what_has_expired_is_to_be_deleted_also_when_the_new_one_fails(store: Any) -> None:
    conversation = talk(store)
    first = conversation.plan_context_cache("gemini")
    conversation.record_context_cache(first, name="cachedContents/1", expires_at=past())
    plan = conversation.plan_context_cache("gemini")
    assert conversation.record_context_cache(plan, name=None).delete == ["cachedContents/1"]


def test_figures_from_before_a_cache_do_not_make_the_next_one(store: Any) -> None:
    """The newest answer came before the cache was made: its request cannot have used it."""
    conversation = talk(store)
    made(conversation)
    conversation.add_items([{"type": "message", "role": "assistant", "content": "by hand"}])
    conversation.user("q4")
    assert conversation.plan_context_cache("gemini").action == "reuse"


def test_one_turn_that_is_large_makes_no_new_cache(store: Any) -> None:
    conversation = talk(store)
    made(conversation)
    conversation.add_response(a_call_of_gemini(prompt=90_000), "gemini")
    assert conversation.plan_context_cache("gemini").action == "reuse"


# Sharing


def test_conversations_that_begin_alike_share_a_cache(store: Any, elsewhere: Any) -> None:
    first, second = talk(store), talk(store, user_id="ann")
    made(first)
    for handle in (second, elsewhere.for_user("ann").get_conversation(second.id)):
        assert handle.plan_context_cache("gemini").name == "cachedContents/1"
        assert handle.request_payload("gemini", cache="auto")["cachedContent"] == "cachedContents/1"
    other = talk(store, instructions="RULES ")
    assert other.plan_context_cache("gemini").action == "create"


@pytest.mark.parametrize("at_once", [1, 1_000])
def test_the_longest_cache_that_fits_is_used(store: Any, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """However many beginnings are looked up at once."""
    monkeypatch.setattr("threadkeep.store.context_caches.AT_ONCE", at_once)
    conversation = talk(store)
    made(conversation)
    conversation.add_response(a_gemini_answer("to q3", 55_000, LARGE), "gemini")
    conversation.user("q4")
    copy = store.copy_conversation(conversation.id)
    fork = conversation.fork(at=3)
    fork.user("another q3")
    fork.plan_context_cache("gemini")  # it uses the short one from now on, so that this one stays
    plan = conversation.plan_context_cache("gemini")
    assert (plan.action, plan.delete) == ("create", [])
    conversation.record_context_cache(plan, name="cachedContents/2")
    used = [one.request_payload("gemini", cache="auto")["cachedContent"] for one in (conversation, copy, fork)]
    assert used == ["cachedContents/2", "cachedContents/2", "cachedContents/1"]


def test_accounts_have_caches_of_their_own(store: Any) -> None:
    conversation = talk(store)
    made(conversation, account="project-a")
    assert conversation.plan_context_cache("gemini", account="project-b").action == "create"
    assert "cachedContent" not in conversation.request_payload("gemini", cache="auto")
    rendered = conversation.render("gemini", cache="auto", account="project-a")
    assert rendered.payload["cachedContent"] == "cachedContents/1"
    assert rendered.view["account"] == "project-a"


def test_tenants_have_caches_of_their_own(store: Any, stores: Any, face: str, tenant: str) -> None:
    other = stores.get(face).create_tenant(f"other {tenant}")
    conversation, stranger = talk(store), talk(other)
    plan = made(conversation)
    assert "cachedContent" not in stranger.request_payload("gemini", cache="auto")
    theirs = stranger.plan_context_cache("gemini")
    assert (theirs.action, theirs.key) == ("create", plan.key)
    assert stranger.record_context_cache(plan, name="cachedContents/9").delete == ["cachedContents/9"]


def test_a_cache_goes_with_the_conversation_that_made_it(store: Any, tables: Tables) -> None:
    first, second = talk(store, user_id="ann"), talk(store)
    plan = made(first)
    store.erase_user("ann")
    assert tables.rows("context_caches") == []
    assert "cachedContent" not in second.request_payload("gemini", cache="auto")
    assert second.plan_context_cache("gemini").action == "create"
    with pytest.raises(NotFound):
        first.record_context_cache(plan, name="cachedContents/1")
    store.delete_conversation(second.id)
    assert tables.rows("context_caches") == []


# Layers


def test_the_layers_of_a_request(store: Any) -> None:
    """Static (cached), dynamic, buffered, trigger; and the dynamic layer right before the trigger where it is asked."""
    conversation = talk(store)
    made(conversation)
    conversation.add_response(a_gemini_answer("to q3"), "gemini")
    conversation.user("q4")
    front = conversation.request_payload("gemini", cache="auto", dynamic_context={"todo": ["x"]})
    assert texts(front) == ['{"todo":["x"]}', "q3", "to q3", "q4"]
    tail = conversation.request_payload(
        "gemini", cache="auto", dynamic_context={"todo": ["x"]}, dynamic_context_at="tail"
    )
    assert texts(tail) == ["q3", "to q3", '{"todo":["x"]}', "q4"]
    assert all(payload["cachedContent"] == "cachedContents/1" for payload in (front, tail))
    assert conversation.plan_context_cache("gemini", dynamic_context={"todo": []}).action == "reuse"


def test_a_tool_result_at_the_end_is_the_trigger(store: Any) -> None:
    conversation = talk(store)
    made(conversation)
    call = conversation.add_response(a_call_of_gemini(), "gemini").tool_calls[0]
    conversation.add_function_call_output(call_id=call.call_id, output="found")
    payload = conversation.request_payload("gemini", cache="auto", dynamic_context={"now": 1})
    kinds = [(content["role"], next(iter(content["parts"][0]))) for content in payload["contents"]]
    assert kinds == [("user", "text"), ("user", "text"), ("model", "functionCall"), ("user", "functionResponse")]
    assert payload["contents"][2]["parts"][0]["thoughtSignature"] == SIGNATURE


def test_a_conversation_that_the_model_began(store: Any) -> None:
    """The turn that is put first is in the cache, too."""
    conversation = store.create_conversation(model=MODEL)
    conversation.assistant("Welcome!")
    said(conversation, "q1", prompt=LARGE).user("q2")
    plan = made(conversation)
    assert texts(plan.body) == ["...", "Welcome!", "q1", "to q1"]
    payload = conversation.request_payload("gemini", cache="auto", dynamic_context={"now": 1})
    assert texts(payload) == ['{"now":1}', "q2"]


def test_an_imported_request_keeps_its_spelling(store: Any) -> None:
    asked = {
        "system_instruction": {"parts": {"text": "RULES"}},
        "generation_config": {"temperature": 1},
        "contents": [
            {"role": "user", "parts": [{"text": "q1"}]},
            {"role": "model", "parts": [{"text": "a1", "thought_signature": SIGNATURE}]},
            {"parts": [{"text": "q2"}]},
        ],
    }
    conversation = store.import_request(asked, "gemini", model=f"models/{MODEL}")
    conversation.add_response(a_gemini_answer("a2", LARGE), "gemini")
    conversation.user("q3")
    plan = made(conversation)
    assert plan.body["model"] == f"models/{MODEL}"
    assert plan.body["contents"][:3] == asked["contents"]
    assert plan.body["systemInstruction"]["parts"] == [{"text": "RULES"}]
    payload = conversation.request_payload("gemini", cache="auto")
    assert payload == {
        "generation_config": {"temperature": 1}, "cachedContent": "cachedContents/1",
        "contents": [{"role": "user", "parts": [{"text": "q3"}]}],
    }  # fmt: skip


def test_the_layered_example_in_the_types_of_the_sdk(store: Any) -> None:
    """What creates the cache, and what names it, are what google-genai's own types say."""
    conversation = talk(store)
    plan = conversation.plan_context_cache("gemini", ttl=900)
    body = dict(plan.body)
    assert body.pop("model") == f"models/{MODEL}"
    config = types.CreateCachedContentConfig.model_validate(body).model_dump()
    assert config["contents"][1]["parts"][0]["thought_signature"] == bytes.fromhex("fbfffe3e3f616263")
    assert config["tools"][0]["function_declarations"][0]["name"] == "look_up"
    assert (config["ttl"], config["system_instruction"]["parts"][0]["text"]) == ("900s", "RULES")
    cached = types.CachedContent(name="cachedContents/1", expire_time=datetime(2099, 1, 1, tzinfo=UTC))
    conversation.record_context_cache(plan, name=cached.name, expires_at=cached.expire_time)
    payload = conversation.request_payload("gemini", cache="auto", dynamic_context={"now": "12:00"})
    request = types.GenerateContentConfig.model_validate({"cachedContent": payload.pop("cachedContent")})
    contents = [types.Content.model_validate(content).model_dump() for content in payload.pop("contents")]
    assert (request.cached_content, payload) == ("cachedContents/1", {})
    assert [content["parts"][0]["text"] for content in contents] == ['{"now":"12:00"}', "q3"]
