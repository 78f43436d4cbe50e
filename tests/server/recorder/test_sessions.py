"""Which conversation a call belongs to."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.databases import Database
from tests.server.recorder.conftest import Recorded, recorder, said
from tests.server.recorder.provider import Reply, failure, stream, whole
from tests.waiting import wait_until

SESSION = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def ask(recorded: Recorded, *texts: str, headers: Any = None, **more: Any) -> None:
    """A call of Messages with a history: texts of the user and the assistant by turns; the provider says "Fine."."""
    recorded.provider.says(whole("messages", "Fine."))
    roles = ("user", "assistant")
    history = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    body = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": history, **more}
    assert httpx2.post(f"{recorded.url}/v1/messages", json=body, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Claude-Code-Session-Id": "{}"},
        {"session-id": "{}"},
        {"session_id": "{}"},
        {"X-Session-Id": "{}"},
        {"X-Session-Affinity": "{}"},
        {"Helicone-Session-Id": "{}"},
        {"x-threadkeep-conversation": "{}"},
    ],
    ids=str,
)
def test_headers_name_the_session(recorded: Recorded, headers: dict[str, str]) -> None:
    for session in (SESSION, OTHER):
        named = {name: value.format(session) for name, value in headers.items()}
        ask(recorded, "Hi", headers=named)
        ask(recorded, "Hi", "Fine.", "And now?", headers=named)
    recorded.wait_for(4)
    assert [said(one) for one in recorded.conversations()] == [
        ["user: Hi", "assistant: Fine.", "user: And now?", "assistant: Fine."]
    ] * 2


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"user_id": "user_1_account__session_{}"}},
        {"metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "{}"})}},
        {"prompt_cache_key": "{}"},
        {"conversation": "{}"},
        {"conversation": {"id": "{}"}},
        {"conversation_id": "{}"},
    ],
    ids=str,
)
def test_bodies_name_the_session(recorded: Recorded, body: dict[str, Any]) -> None:
    for session in (SESSION, OTHER):
        named = json.loads(json.dumps(body).replace("{}", session))
        ask(recorded, "Hi", **named)
        ask(recorded, "Hi", "Fine.", "And now?", **named)
    recorded.wait_for(4)
    assert [len(one.transcript()) for one in recorded.conversations()] == [4, 4]


def test_a_header_of_ours_counts_first(recorded: Recorded) -> None:
    conversation = recorded.store.create_conversation(external_id="mine")
    others = {"X-Claude-Code-Session-Id": SESSION}
    ask(recorded, "Hi", headers={"x-threadkeep-conversation": "mine", **others})
    ask(recorded, "Hi", "Fine.", "Go on", headers={"x-threadkeep-conversation": conversation.id, **others})
    recorded.wait_for(2)
    [found] = recorded.conversations()
    assert (found.id, len(found.transcript())) == (conversation.id, 4)


@pytest.mark.parametrize("whose", ["another user's", "deleted", "unknown"])
@pytest.mark.parametrize("spool", [False, True])
def test_an_id_that_is_not_there_for_its_user_does_not_count(
    database: Database, tmp_path: Path, whose: str, *, spool: bool
) -> None:
    """What was answered is on the bill, in the conversation to which the rest of the call belongs."""
    with recorder(database, spool=tmp_path if spool else None) as recorded:
        ben, ann = recorded.store.for_user("ben"), recorded.store.for_user("ann")
        named = (ben if whose == "another user's" else ann).create_conversation(input="Mine")
        if whose == "deleted":
            recorded.store.delete_conversation(named.id)
        id_ = f"conv_{'0' * 32}" if whose == "unknown" else named.id
        given = {"x-threadkeep-conversation": id_, "x-threadkeep-user": "ann"}
        for headers in (given, {**given, "X-Claude-Code-Session-Id": SESSION}):
            ask(recorded, "Hi", headers=headers)
            ask(recorded, "Hi", "Fine.", "And now?", headers=headers)
        recorded.wait_for(4)
        found = [one for one in ann.list_conversations() if one.id != named.id]
        assert [(one.external_id, len(one.transcript())) for one in found] == [(f"claude-code:{SESSION}", 4), (None, 4)]
        assert [row.attempts for row in ann.usage(by="user_id")] == [4]
        assert all(len(one.transcript()) == 1 for one in ben.list_conversations())


def test_an_answer_whose_conversation_was_deleted_meanwhile_is_on_the_bill(recorded: Recorded) -> None:
    named, reply = recorded.store.create_conversation(), whole("messages", "Fine.")
    reply.chunks = [reply.chunks[0][:20], reply.chunks[0][20:]]
    reply.hold_after = 1
    recorded.provider.says(reply)
    body = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    with httpx2.stream(
        "POST", f"{recorded.url}/v1/messages", json=body, headers={"x-threadkeep-conversation": named.id}
    ) as answer:
        wait_until(lambda: recorded.store.get_conversation(named.id).labels)  # the last that is stored of a request
        recorded.store.delete_conversation(named.id)
        recorded.provider.release.set()
        assert answer.read()
    recorded.wait_for(1)
    assert recorded.conversations() == []
    [row] = recorded.store.usage(by="status")
    assert (row.status, row.attempts, row.output_tokens) == ("completed", 1, 7)


def test_a_conversation_has_few_labels(recorded: Recorded) -> None:
    """However many headers give, in one call or in several; those that say where it comes from are among them."""
    for first in (0, 100):
        given = {f"x-threadkeep-label-{number}": "x" for number in range(first, first + 70)}
        ask(recorded, "Hi", headers={"X-Claude-Code-Session-Id": SESSION, "x-claude-code-agent-id": "a", **given})
    recorded.wait_for(2)
    [conversation] = recorded.conversations()
    assert len(conversation.labels) == 64
    assert {"recorded", "agent", "parent"} <= set(conversation.labels)


def test_the_first_of_equal_headers_counts(recorded: Recorded) -> None:
    ask(recorded, "Hi", headers=[("x-threadkeep-label-team", "red"), ("x-threadkeep-label-team", "blue")])
    recorded.wait_for()
    assert recorded.conversations()[0].labels["team"] == "red"


def test_a_shared_cache_key_is_no_session(recorded: Recorded) -> None:
    ask(recorded, "Hi", prompt_cache_key="support")
    ask(recorded, "Bye", prompt_cache_key="support")
    recorded.wait_for(2)
    assert len(recorded.conversations()) == 2


def test_histories_that_are_interleaved_are_told_apart(recorded: Recorded) -> None:
    first, second = ["Hi"], ["Hi"]
    ask(recorded, *first)
    recorded.provider.says(whole("messages", "Hello to you."))
    body = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    httpx2.post(f"{recorded.url}/v1/messages", json=body)
    first += ["Fine.", "One"]
    second += ["Hello to you.", "Two"]
    ask(recorded, *first)
    ask(recorded, *second)
    ask(recorded, *first, "Fine.", "Three")
    recorded.wait_for(5)
    ones, twos = recorded.conversations()
    assert said(ones)[2:] == ["user: One", "assistant: Fine.", "user: Three", "assistant: Fine."]
    assert said(twos)[1:] == ["assistant: Hello to you.", "user: Two", "assistant: Fine."]


def test_an_edited_history_is_a_branch_of_its_conversation(recorded: Recorded) -> None:
    ask(recorded, "Hi")
    ask(recorded, "Hi", "Fine.", "Go left")
    ask(recorded, "Hi", "Fine.", "Go right")
    recorded.wait_for(3)
    [conversation] = recorded.conversations()
    assert said(conversation)[2:] == ["user: Go right", "assistant: Fine."]
    assert said(conversation.on_branch(0))[2:] == ["user: Go left", "assistant: Fine."]


def test_histories_that_nothing_tells_apart_begin_a_conversation(recorded: Recorded) -> None:
    ask(recorded, "Hi")
    ask(recorded, "Hi")
    ask(recorded, "Hi", "Fine.", "Which one?")
    recorded.wait_for(3)
    assert [len(one.transcript()) for one in recorded.conversations()] == [2, 2, 4]


def test_a_tool_loop_is_one_conversation(recorded: Recorded) -> None:
    recorded.provider.says(whole("messages", "Let me see.", calls=True), whole("messages", "Sunny."))
    call = {"type": "tool_use", "id": "call_1", "name": "look", "input": {"city": "Paris"}}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "12 degrees"}
    history: list[Any] = [{"role": "user", "content": "Weather?"}]
    body = {"model": "claude-sonnet-5", "max_tokens": 9}
    httpx2.post(f"{recorded.url}/v1/messages", json={**body, "messages": history})
    history.append({"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, call]})
    history.append({"role": "user", "content": [result]})
    httpx2.post(f"{recorded.url}/v1/messages", json={**body, "messages": history})
    recorded.wait_for(2)
    [conversation] = recorded.conversations()
    assert said(conversation)[2:] == ['look({"city":"Paris"})', "= 12 degrees", "assistant: Sunny."]
    assert conversation.usage().attempts == 2


def test_equal_sessions_are_told_apart_by_the_ids_of_their_calls(recorded: Recorded) -> None:
    asked = {"role": "user", "content": "Weather?"}
    body = {"model": "claude-sonnet-5", "max_tokens": 9}
    loops = []
    for number in range(2):
        called = {"type": "tool_use", "id": f"call_of_{number}", "name": "look", "input": {}}
        head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude-sonnet-5"}
        usage = {"input_tokens": 11, "output_tokens": 7}
        answer = json.dumps({**head, "content": [called], "stop_reason": "tool_use", "usage": usage}).encode()
        recorded.provider.says(Reply(200, {"content-type": "application/json"}, [answer]))
        httpx2.post(f"{recorded.url}/v1/messages", json={**body, "messages": [asked]})
        result = {"type": "tool_result", "tool_use_id": called["id"], "content": "12 degrees"}
        loops.append([asked, {"role": "assistant", "content": [called]}, {"role": "user", "content": [result]}])
    for loop in reversed(loops):
        recorded.provider.says(whole("messages", "Mild."))
        httpx2.post(f"{recorded.url}/v1/messages", json={**body, "messages": loop})
    recorded.wait_for(4)
    found = recorded.conversations()
    assert [len(one.transcript()) for one in found] == [4, 4]
    ids = [[item.item.to_object().get("call_id") for item in one.transcript()][1] for one in found]
    assert ids == ["call_of_0", "call_of_1"]


@pytest.mark.parametrize("kind", [whole, stream])
def test_what_is_asked_while_the_same_is_being_answered_is_another_conversation(recorded: Recorded, kind: Any) -> None:
    """Whether the answer has begun or not: who asks again because of a failure does so once that is there."""
    said_slowly = "Slowly." if kind is whole else ["Slowly."]
    recorded.provider.says(replace(kind("messages", said_slowly), hold_after=0))
    body = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    with httpx2.stream("POST", f"{recorded.url}/v1/messages", json={**body, "stream": kind is stream}) as answer:
        wait_until(lambda: len(recorded.conversations()) == 1)
        ask(recorded, "Hi")
        recorded.wait_for(1)
        recorded.provider.release.set()
        answer.read()
    recorded.wait_for(2)
    assert sorted(map(said, recorded.conversations())) == [
        ["user: Hi", "assistant: Fine."], ["user: Hi", "assistant: Slowly."]
    ]  # fmt: skip


BROKEN = replace(stream("messages", ["Fi"]), chunks=stream("messages", ["Fi"]).chunks[:3], breaks=True)


@pytest.mark.parametrize("reply", [failure(529, "Not now."), BROKEN], ids=["error", "broken"])
def test_what_is_asked_again_after_it_failed_is_the_same_conversation(recorded: Recorded, reply: Reply) -> None:
    body = {"model": "claude-sonnet-5", "max_tokens": 9, "stream": True}
    roles = ["user", "assistant", "user", "assistant", "user"]  # it begins with examples
    messages = [{"role": role, "content": f"Example {number}"} for number, role in enumerate(roles)]
    for one in (reply, stream("messages", ["Fine."])):
        recorded.provider.says(one)
        with suppress(httpx2.HTTPError):
            httpx2.post(f"{recorded.url}/v1/messages", json={**body, "messages": messages})
    recorded.wait_for(2)
    [conversation] = recorded.conversations()
    assert said(conversation)[4:] == ["user: Example 4", "assistant: Fine."]
    assert conversation.usage().attempts == 2


@pytest.mark.parametrize(
    ("format_", "path", "key"),
    [
        ("open_responses", "/v1/responses", "previous_response_id"),
        ("interactions", "/v1beta/interactions", "previous_interaction_id"),
    ],
)
def test_previous_responses_lead_to_their_conversation(recorded: Recorded, format_: str, path: str, key: str) -> None:
    recorded.provider.says(whole(format_, "Fine."), whole(format_, "Good."))
    url = f"{recorded.url}{path}"
    previous = httpx2.post(url, json={"model": "m", "input": "Hi"}).json()["id"]
    httpx2.post(url, json={"model": "m", "input": "And now?", key: previous})
    recorded.wait_for(2)
    [conversation] = recorded.conversations()
    assert said(conversation) == ["user: Hi", "assistant: Fine.", "user: And now?", "assistant: Good."]


def test_agents_have_conversations_of_their_own(recorded: Recorded) -> None:
    session = {"X-Claude-Code-Session-Id": SESSION}
    ask(recorded, "Build it", headers={**session, "x-claude-code-request-class": "main"})
    ask(recorded, "Look around", headers={**session, "x-claude-code-agent-id": "a1"})
    nested = {**session, "x-claude-code-agent-id": "a2", "x-claude-code-parent-agent-id": "a1"}
    ask(recorded, "Look closer", headers=nested)
    ask(recorded, "Name this", headers={**session, "x-claude-code-request-class": "auxiliary"})
    recorded.wait_for(4)
    main, first, second = reversed(list(recorded.store.list_conversations()))
    assert (main.external_id, main.labels) == (f"claude-code:{SESSION}", {"recorded": "provider"})
    assert first.labels == {"recorded": "provider", "agent": "a1", "parent": main.external_id}
    assert second.labels == {"recorded": "provider", "agent": "a2", "parent": first.external_id}
    [aside] = recorded.store.list_conversations(status="archived")
    assert (said(aside)[0], aside.labels["request-class"]) == ("user: Name this", "auxiliary")


def test_labels_and_users_come_in_headers(recorded: Recorded) -> None:
    ask(recorded, "Hi", headers={"x-threadkeep-label-team": "red", "x-threadkeep-user": "zoë".encode()})
    recorded.wait_for(1)
    [conversation] = recorded.conversations()
    assert (conversation.labels["team"], conversation.user_id) == ("red", "zoë")
    [call] = recorded.provider.calls
    assert not [name for name, _ in call.headers if name.startswith("x-threadkeep")]


def test_an_application_finds_its_own_id_again(recorded: Recorded) -> None:
    """Also for its users; where another one has it already, it is one of the second user alone."""
    for number, user in enumerate(("ann", "ben", "ann", "ben"), 1):
        ask(recorded, f"I am {user}", headers={"x-threadkeep-conversation": "trip", "x-threadkeep-user": user})
        recorded.wait_for(number)  # calls of two users are stored in any order
    named = recorded.store.find_conversation(external_id="trip")
    assert named is not None
    assert named.user_id == "ann"
    for user in ("ann", "ben"):
        [conversation] = recorded.store.for_user(user).list_conversations()
        assert said(conversation)[0] == f"user: I am {user}"


def test_settings_are_those_of_the_latest_request(recorded: Recorded) -> None:
    tool = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}
    ask(recorded, "Hi", system="Be brief.", tools=[tool], temperature=0.5)
    ask(recorded, "Hi", "Fine.", "Go on", system="Be long.")
    recorded.wait_for(2)
    [conversation] = recorded.conversations()
    payload = conversation.request_payload("messages")
    assert (payload["system"], "tools" in payload, "temperature" in payload) == ("Be long.", False, False)


def test_calls_at_the_same_time_in_one_session_are_all_stored(recorded: Recorded) -> None:
    slow = stream("messages", ["Slowly."], hold_after=2)
    recorded.provider.says(slow)
    headers = {"X-Claude-Code-Session-Id": SESSION}
    body = {"model": "claude-sonnet-5", "max_tokens": 9, "stream": True}
    url = f"{recorded.url}/v1/messages"
    first = {**body, "messages": [{"role": "user", "content": "One"}]}
    with httpx2.stream("POST", url, json=first, headers=headers) as answer:
        chunks = answer.iter_raw()
        next(chunks)
        ask(recorded, "Two", headers=headers)
        recorded.wait_for(1)
        recorded.provider.release.set()
        list(chunks)
    recorded.wait_for(2)
    [conversation] = recorded.conversations()
    branches = [said(conversation.on_branch(branch.number)) for branch in conversation.branches()]
    assert sorted(branches) == [["user: One", "assistant: Slowly."], ["user: Two", "assistant: Fine."]]


def test_users_who_name_a_conversation_alike_at_the_same_time_meet_nowhere(recorded: Recorded) -> None:
    """Neither by an id of their own, nor by the id of a conversation that one of them has."""
    theirs = recorded.store.for_user("user 0").create_conversation().id
    recorded.provider.says(*[whole("messages", "Fine.") for _ in range(24)])

    def call(number: int) -> int:
        user, name = f"user {number % 3}", (theirs, "trip")[number % 2]
        headers = {"x-threadkeep-user": user, "x-threadkeep-conversation": name}
        message = {"role": "user", "content": f"I am {user}, {number}"}
        body = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": [message]}
        return httpx2.post(f"{recorded.url}/v1/messages", json=body, headers=headers, timeout=30).status_code

    with ThreadPoolExecutor(8) as others:
        assert list(others.map(call, range(24))) == [200] * 24
    recorded.wait_for(24)
    for user in ("user 0", "user 1", "user 2"):
        store = recorded.store.for_user(user)
        assert sum(row.attempts for row in store.usage(by="user_id")) == 8
        shown = [line for talk in store.list_conversations() for line in said(talk)]
        assert {line.partition(",")[0] for line in shown} == {f"user: I am {user}", "assistant: Fine."}


def _choices(format_: str, *texts: str) -> Reply:
    """An answer with several choices."""
    bodies = [json.loads(whole(format_, text).chunks[0]) for text in texts]
    key = {"chat_completion": "choices", "gemini": "candidates"}[format_]
    choices = [{**body[key][0], "index": number} for number, body in enumerate(bodies)]
    return Reply(200, {"content-type": "application/json"}, [json.dumps({**bodies[0], key: choices}).encode()])


def _say(recorded: Recorded, format_: str, *texts: str, count: int = 1) -> None:
    """A call with a history: texts of the user and the model by turns."""
    path = "/v1/chat/completions"
    body: dict[str, Any]
    if format_ == "gemini":
        path = "/v1beta/models/gemini-3-pro:generateContent"
        turns = [{"role": ("user", "model")[at % 2], "parts": [{"text": text}]} for at, text in enumerate(texts)]
        body = {"contents": turns, "generationConfig": {"candidateCount": count}}
    else:
        turns = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
        body = {"model": "gpt-5.4", "messages": turns, "n": count}
    assert httpx2.post(f"{recorded.url}{path}", json=body).status_code == 200


@pytest.mark.parametrize("format_", ["chat_completion", "gemini"])
def test_a_client_may_go_on_with_any_choice(recorded: Recorded, format_: str) -> None:
    """Each is a branch of one conversation, and so is an answer to which the client comes back."""
    recorded.provider.says(_choices(format_, "A rhyme.", "A joke."), *[whole(format_, "Fine.")] * 4)
    _say(recorded, format_, "Tell me", count=2)
    _say(recorded, format_, "Tell me", "A joke.", "Longer")
    _say(recorded, format_, "Tell me", "A joke.", "Longer", "Fine.", "Shorter")
    _say(recorded, format_, "Tell me", "A rhyme.", "Longer")
    _say(recorded, format_, "Tell me", "A poem.", "Longer")
    recorded.wait_for(5)
    conversation, other = recorded.conversations()
    assert [[line.partition(": ")[2] for line in said(conversation.on_branch(at))] for at in (0, 1)] == [
        ["Tell me", "A rhyme.", "Longer", "Fine."],
        ["Tell me", "A joke.", "Longer", "Fine.", "Shorter", "Fine."],
    ]
    assert [line.partition(": ")[2] for line in said(other)] == ["Tell me", "A poem.", "Longer", "Fine."]
