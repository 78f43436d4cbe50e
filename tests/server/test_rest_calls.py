"""Calls of tools by the REST API: a client in any language runs an agent's loop, and people decide about its calls."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.factories import noise
from tests.server.scripts import Scripted
from tests.server.test_rest import Rest, post, refusal
from threadkeep import Conversation
from threadkeep.http import Owner, UpstreamError
from threadkeep.server import pages
from threadkeep.store.reading import calls as reading

LOOK = {
    "type": "function", "name": "look", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}  # fmt: skip


@pytest.fixture
def model() -> Scripted:
    """A model that calls `look`, and then says something."""
    made = Scripted("chat_completion")
    made.will_say("Let me see.", calls=True)
    made.will_say("It rains.")
    return made


@pytest.fixture
def api(served: Any, model: Scripted) -> httpx2.Client:
    return Rest(served, upstreams={"*": model.upstream}).of("ann")


@pytest.fixture
def chat(api: httpx2.Client) -> str:
    """The path of a conversation in which a call waits."""
    path = f"/conversations/{post(api, '/conversations', model='m', tools=[LOOK])['id']}"
    post(api, f"{path}/messages", content="Weather?")
    return path


def calls(api: httpx2.Client, chat: str, **params: Any) -> tuple[list[Any], str]:
    found = api.get(f"{chat}/tool_calls", params=params).json()
    return found["data"], found["next_step"]


def output(text: Any = "Rain.", call_id: str = "call_1", **more: Any) -> dict[str, Any]:
    return {"tool_outputs": [{"call_id": call_id, "output": text, **more}]}


def types(api: httpx2.Client, chat: str, **params: Any) -> list[str]:
    found = api.get(f"{chat}/messages", params={"order": "asc", **params}).json()["data"]
    return [one["item"]["type"] for one in found]


def test_an_agents_loop(api: httpx2.Client, chat: str, model: Scripted) -> None:
    [call], step = calls(api, chat)
    assert step == "tools"
    assert (call["type"], call["call_id"], call["name"], call["arguments"], call["approval"]) == (
        "function_call", "call_1", "look", {"city": "Paris"}, None,
    )  # fmt: skip
    turn = post(api, f"{chat}/tool_outputs", **output())
    assert turn["message"] is None
    assert [one["item"]["output"] for one in turn["tool_outputs"]] == ["Rain."]
    assert turn["response"]["output"][0]["content"][0]["text"] == "It rains."
    assert calls(api, chat) == ([], "user")
    assert types(api, chat) == ["message", "message", "function_call", "function_call_output", "message"]
    assert [one["function"]["name"] for one in model.payloads[1]["tools"]] == ["look"]
    assert model.payloads[1]["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}


def with_calls(served: Any, arguments: list[str]) -> str:
    """The path of a conversation in which calls with these arguments wait."""
    conversation = served.call(served.store.for_user("ann").create_conversation, model="m", input="Weather?")
    items = [
        {"type": "function_call", "call_id": f"call_{number}", "name": "look", "arguments": text}
        for number, text in enumerate(arguments)
    ]
    served.call(conversation.add_items, items)
    return f"/conversations/{conversation.id}"


def walk(api: httpx2.Client, chat: str, **params: Any) -> Iterator[dict[str, Any]]:
    """The pages of the calls that wait."""
    has_more = True
    while has_more:
        page = api.get(f"{chat}/tool_calls", params=params).json()
        has_more, params["after"] = page["has_more"], page["last_id"]
        assert page["first_id"] == page["data"][0]["id"]
        yield page


def test_calls_that_wait_come_in_pages(api: httpx2.Client, served: Any) -> None:
    chat = with_calls(served, ["{}"] * 7)
    api.post(f"{chat}/tool_calls/call_5/approve")
    pages = list(walk(api, chat, limit=3))
    assert [[call["call_id"] for call in page["data"]] for page in pages] == [
        ["call_0", "call_1", "call_2"], ["call_3", "call_4", "call_5"], ["call_6"],
    ]  # fmt: skip
    assert [page["next_step"] for page in pages] == ["tools"] * 3
    assert pages[1]["data"][2]["approval"]["decision"] == "approved"
    [whole] = walk(api, chat)
    assert whole["data"] == [call for page in pages for call in page["data"]]
    post(api, f"{chat}/tool_outputs", **output(call_id="call_2"), answer=False)
    after = whole["data"][2]["id"]  # which waits no longer
    rest = api.get(f"{chat}/tool_calls", params={"after": after}).json()
    assert [call["call_id"] for call in rest["data"]] == ["call_3", "call_4", "call_5", "call_6"]
    assert refusal(api.get(f"{chat}/tool_calls", params={"after": "fc_unknown"}))[0] == 404
    assert refusal(api.get(f"{chat}/tool_calls", params={"limit": 101})) == (400, "invalid_value", "limit")


LETTERS = "abcdefghijkl"


@pytest.fixture
def large(served: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a conversation in which large calls wait: two in a page, and one of them at once."""
    monkeypatch.setattr(pages, "MAX_BYTES", 50_000)
    monkeypatch.setattr(reading, "MAX_AT_ONCE", 30_000)
    return with_calls(served, [json.dumps({"text": letter * 20_000}) for letter in LETTERS])


def test_large_calls_end_a_page(api: httpx2.Client, large: str) -> None:
    pages = list(walk(api, large))
    assert [[call["arguments"]["text"][0] for call in page["data"]] for page in pages] == [
        ["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"], ["i", "j"], ["k", "l"],
    ]  # fmt: skip
    assert {page["next_step"] for page in pages} == {"tools"}
    post(api, f"{large}/tool_outputs", **output(call_id="call_11"), answer=False)
    assert [call["call_id"] for page in walk(api, large) for call in page["data"]][-1] == "call_10"


def test_large_calls_are_read_one_by_one(served: Any, large: str) -> None:
    def contents(face: Conversation) -> list[bool]:
        ref, lineage = face.handle.ref, face.handle.conversation.lineage
        ranges = lineage.ranges(ref.branch, -1, lineage.head)
        read = face.handle.transactions.read_any
        return [entry.payload is not None for entry in read(lambda one: reading._read_tail(one, ref, ranges, -1))]

    conversation = served.call(served.store.for_user("ann").get_conversation, large.rpartition("/")[2])
    assert served.call(conversation.run_sync, contents) == [True] + [False] * 11


def test_an_approval_is_answered_without_what_the_call_says(api: httpx2.Client, large: str) -> None:
    approved = api.post(f"{large}/tool_calls/call_7/approve")
    found = approved.json()
    assert (found["call_id"], found["name"], found["arguments"]) == ("call_7", "look", None)
    assert (found["approval"]["decision"], found["approval"]["decided_by"]) == ("approved", "ann")
    assert len(approved.content) < 1_000


def test_large_calls_that_wait_for_nothing_are_left_out(
    api: httpx2.Client, served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_AT_ONCE", 1)
    conversation = served.call(served.store.for_user("ann").create_conversation, model="m", input="Weather?")
    call = {"type": "function_call", "name": "look", "arguments": "{}"}
    action = {"commands": ["ls"]}
    environment = {"type": "container_reference", "container_id": "c"}
    items = [
        {**call, "call_id": "call_1"},
        {**call, "call_id": "call_2", "status": "incomplete"},
        {"type": "shell_call", "call_id": "call_3", "action": action, "environment": environment},
        {**call, "call_id": "call_4"},
        {"type": "function_call_output", "call_id": "call_1", "output": "Rain."},
        {**call, "call_id": "call_5", "async": True},
    ]
    served.call(conversation.add_items, items)
    chat = f"/conversations/{conversation.id}"
    found, step = calls(api, chat)
    assert ([one["call_id"] for one in found], step) == (["call_4", "call_5"], "tools")
    post(api, f"{chat}/tool_outputs", **output(call_id="call_4"), answer=False)
    found, step = calls(api, chat)
    assert ([one["call_id"] for one in found], step) == (["call_5"], "model")


def test_outputs_are_stored_alone_and_the_model_goes_on_later(api: httpx2.Client, chat: str) -> None:
    turn = post(api, f"{chat}/tool_outputs", **output([{"type": "input_text", "text": "Rain."}]), answer=False)
    assert (turn["response"], len(turn["tool_outputs"])) == (None, 1)
    assert calls(api, chat) == ([], "model")
    turn = post(api, f"{chat}/tool_outputs", tool_outputs=[])
    assert (turn["tool_outputs"], turn["response"]["status"]) == ([], "completed")
    assert refusal(api.post(f"{chat}/tool_outputs", json={"tool_outputs": []})) == (409, "conflict", "tool_outputs")


@pytest.mark.parametrize("answer", [True, False])
def test_repeated_outputs_are_stored_and_answered_once(api: httpx2.Client, chat: str, *, answer: bool) -> None:
    key = {"Idempotency-Key": "k1"}
    first, second = (api.post(f"{chat}/tool_outputs", json={**output(), "answer": answer}, headers=key) for _ in "ab")
    assert (first.status_code, first.json()) == (201, second.json())
    assert types(api, chat).count("function_call_output") == 1
    other = api.post(f"{chat}/tool_outputs", json={**output("Snow."), "answer": answer}, headers=key)
    assert refusal(other)[:2] == (409, "idempotency_conflict")


def test_a_model_that_went_on_once_does_not_by_a_repeated_request(
    api: httpx2.Client, chat: str, model: Scripted
) -> None:
    post(api, f"{chat}/tool_outputs", **output(), answer=False)
    asked = [
        api.post(f"{chat}/tool_outputs", json={"tool_outputs": []}, headers={"Idempotency-Key": "k"}) for _ in "ab"
    ]
    assert [one.json()["response"]["id"] for one in asked] == [asked[0].json()["response"]["id"]] * 2
    assert len(model.payloads) == 2


@pytest.mark.parametrize(
    "given",
    [
        output(call_id="call_2"),
        output(type="custom_tool_call_output"),
        {"tool_outputs": [*output()["tool_outputs"], *output()["tool_outputs"]]},
    ],
)
@pytest.mark.parametrize("answer", [True, False])
def test_what_no_call_waits_for_is_refused(
    api: httpx2.Client, chat: str, given: dict[str, Any], *, answer: bool
) -> None:
    number = len(given["tool_outputs"]) - 1
    refused = api.post(f"{chat}/tool_outputs", json={**given, "answer": answer})
    assert refusal(refused) == (400, "invalid_value", f"tool_outputs.{number}.call_id")
    assert calls(api, chat)[1] == "tools"
    assert types(api, chat)[-1] == "function_call"


def test_an_asynchronous_call_gets_its_output_after_the_model_has_gone_on(
    api: httpx2.Client, served: Any, model: Scripted
) -> None:
    conversation = served.call(served.store.for_user("ann").create_conversation, model="m", input="Weather?")
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}", "async": True}
    body = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [call]}
    served.call(conversation.add_response, body, "open_responses")
    served.call(conversation.user, "Go on meanwhile.")
    rendered = served.call(conversation.render, "open_responses")
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So I do."}]}
    body = {"id": "resp_2", "object": "response", "status": "completed", "model": "m", "output": [said]}
    served.call(conversation.add_response, body, "open_responses", rendered=rendered)
    chat = f"/conversations/{conversation.id}"
    model.scripts.pop(0)
    assert calls(api, chat) == ([], "user")
    assert post(api, f"{chat}/tool_outputs", **output())["response"]["status"] == "completed"
    assert types(api, chat)[-2:] == ["function_call_output", "message"]
    again = api.post(f"{chat}/tool_outputs", json=output())
    assert refusal(again) == (400, "invalid_value", "tool_outputs.0.call_id")


def test_a_model_goes_on_only_with_all_outputs(api: httpx2.Client, served: Any, model: Scripted) -> None:
    conversation = served.call(served.store.for_user("ann").create_conversation, model="m", input="Weather?")
    for name in ("call_1", "call_2"):
        item = {"type": "function_call", "call_id": name, "name": "look", "arguments": "{}"}
        served.call(conversation.add_items, [item])
    chat = f"/conversations/{conversation.id}"
    refused = api.post(f"{chat}/tool_outputs", json=output())
    assert refusal(refused) == (409, "tool_calls_pending", "tool_outputs")
    assert [one["call_id"] for one in calls(api, chat)[0]] == ["call_1", "call_2"]
    model.scripts.pop(0)
    post(api, f"{chat}/tool_outputs", **output(), answer=False)
    assert post(api, f"{chat}/tool_outputs", **output(call_id="call_2"))["response"]["status"] == "completed"


@pytest.fixture
def asked(api: httpx2.Client, served: Any, model: Scripted) -> str:
    """The path of a conversation in which a call waits, and a server of MCP asks whether a tool may run."""
    conversation = served.call(served.store.for_user("ann").create_conversation, model="m", input="Weather?")
    served.call(
        conversation.add_items,
        [
            {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
            {
                "type": "mcp_approval_request", "id": "mcpr_1", "server_label": "maps", "name": "find",
                "arguments": "{}",
            },
        ],
    )  # fmt: skip
    model.scripts.pop(0)
    return f"/conversations/{conversation.id}"


def approval(**more: Any) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True, **more}


def test_a_question_of_mcp_is_answered_beside_outputs(api: httpx2.Client, asked: str) -> None:
    given = [approval(reason="It is free."), *output()["tool_outputs"]]
    turn = post(api, f"{asked}/tool_outputs", tool_outputs=given)
    answered = turn["tool_outputs"][0]["item"]
    assert (answered["type"], answered["approve"], answered["reason"]) == ("mcp_approval_response", True, "It is free.")
    assert turn["response"]["status"] == "completed"
    assert calls(api, asked) == ([], "user")


def test_a_question_of_mcp_is_answered_alone(api: httpx2.Client, asked: str) -> None:
    refused = api.post(f"{asked}/tool_outputs", json={"tool_outputs": [approval()]})
    assert refusal(refused) == (409, "tool_calls_pending", "tool_outputs")
    post(api, f"{asked}/tool_outputs", tool_outputs=[approval(approve=False)], answer=False)
    assert [one["call_id"] for one in calls(api, asked)[0]] == ["call_1"]


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (approval(approval_request_id="mcpr_2"), "approval_request_id"),
        (approval(approval_request_id="call_1"), "approval_request_id"),
        (approval(approve="yes"), "approve"),
        (approval(output="yes"), "output"),
        ({"call_id": "mcpr_1", "output": "yes"}, "call_id"),
        ({"output": "yes"}, "call_id"),
    ],
)
def test_other_answers_to_a_question_of_mcp_are_refused(
    api: httpx2.Client, asked: str, given: dict[str, Any], key: str
) -> None:
    refused = api.post(f"{asked}/tool_outputs", json={"tool_outputs": [given]})
    assert refusal(refused) == (400, "invalid_value", f"tool_outputs.0.{key}")
    assert len(calls(api, asked)[0]) == 2


def test_outputs_that_a_provider_refuses_are_not_stored(api: httpx2.Client, chat: str, model: Scripted) -> None:
    model.scripts[:] = [[UpstreamError(429, None, "Too many.")]]
    assert refusal(api.post(f"{chat}/tool_outputs", json=output()))[:2] == (429, "upstream_error")
    assert calls(api, chat)[1] == "tools"
    assert types(api, chat)[-1] == "function_call"


def test_an_answer_to_outputs_is_a_stream(api: httpx2.Client, chat: str) -> None:
    text = api.post(f"{chat}/tool_outputs", json={**output(), "stream": True}).text
    assert text.startswith("id: 0\nevent: created\n")
    assert '"tool_outputs":[{' in text
    assert text.count("event: done") == 1


def test_outputs_where_the_conversation_has_gone_on_are_refused(api: httpx2.Client, chat: str) -> None:
    refused = api.post(f"{chat}/tool_outputs", json=output(), headers={"If-Match": '"1"'})
    assert refusal(refused)[:2] == (409, "head_conflict")
    assert api.post(f"{chat}/tool_outputs", json=output(), headers={"If-Match": '"2"'}).status_code == 201


def test_pictures_are_outputs_by_reference(served: Any, chat: str) -> None:
    model, content = Scripted("messages"), noise(20_000, seed=3)
    model.will_say("It rains.")
    api = Rest(served, upstreams={"*": model.upstream}).of("ann")
    uploaded = api.post("/media", content=content, headers={"content-type": "image/png"}).json()["id"]
    turn = post(api, f"{chat}/tool_outputs", **output([{"type": "input_image", "image_url": uploaded}]))
    assert turn["tool_outputs"][0]["item"]["output"][0]["image_url"] == uploaded
    assert base64.b64encode(content).decode() in str(model.payloads[0])
    unknown = output([{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": uploaded[:-1] + "x"}])
    refused = api.post(f"{chat}/tool_outputs", json=unknown)
    assert refusal(refused) == (400, "invalid_value", "tool_outputs.0.output.1.image_url")


def test_calls_are_approved_or_denied(api: httpx2.Client, chat: str) -> None:
    key = {"Idempotency-Key": "k"}
    for headers in ({}, key, key):
        approved = api.post(f"{chat}/tool_calls/call_1/approve", headers=headers)
        assert (approved.status_code == 200) == (headers == {})
    [call], step = calls(api, chat)
    assert (call["approval"]["decision"], step) == ("approved", "tools")


def test_denied_calls_have_the_reason_as_their_output(api: httpx2.Client, chat: str, model: Scripted) -> None:
    [call], _ = calls(api, chat)
    for _ in "ab":
        headers = {"Idempotency-Key": "k"}
        denied = api.post(f"{chat}/tool_calls/{call['id']}/deny", json={"reason": "Not now."}, headers=headers)
        assert (denied.status_code, denied.json()["item"]["output"]) == (200, "Not now.")
    again = api.post(f"{chat}/tool_calls/call_1/deny", json={})
    assert refusal(again)[:2] == (409, "conflict")
    assert calls(api, chat) == ([], "model")
    post(api, f"{chat}/tool_outputs", tool_outputs=[])
    assert model.payloads[1]["messages"][-1]["content"] == "Not now."
    assert refusal(api.post(f"{chat}/tool_calls/call_9/approve"))[0] == 404


def test_who_may_only_write_reads_no_calls(served: Any, chat: str) -> None:
    owner = Owner(user_id="ann", tenant=served.tenant, scopes=frozenset({"write"}))
    api = Rest(served, auth=lambda _: owner).of("ann")
    approved = api.post(f"{chat}/tool_calls/call_1/approve").json()
    assert (approved["call_id"], approved["name"], approved["arguments"]) == ("call_1", None, None)
    assert approved["approval"]["decided_by"] == "ann"


def test_tools_are_settings_of_a_conversation(api: httpx2.Client) -> None:
    """Of tools that are services, which may have keys in them, only models learn."""
    service = {"type": "mcp", "server_label": "x", "server_url": "https://x.example", "authorization": "secret"}
    made = post(api, "/conversations", model="m", tools=[LOOK, service])
    assert [one["name"] for one in made["tools"]] == ["look"]
    path = f"/conversations/{made['id']}"
    key = {"Idempotency-Key": "k"}
    other = {**LOOK, "name": "other"}
    changed = [api.patch(path, json={"tools": [other], "title": "T"}, headers=key).json() for _ in "ab"]
    assert [([one["name"] for one in it["tools"]], it["title"]) for it in changed] == [(["other"], "T")] * 2
    assert api.patch(path, json={"title": "U"}).json()["tools"] == changed[0]["tools"]
    assert api.patch(path, json={"tools": None}).json()["tools"] == []
    assert "secret" not in api.get(path).text
    refused = api.patch(path, json={"tools": [{"type": "function"}], "title": "V"})
    assert refusal(refused) == (400, "invalid_value", "tools[0].name")
    assert api.get(path).json()["title"] == "U"
    many = [{**LOOK, "name": f"f{number}"} for number in range(513)]
    assert refusal(api.patch(path, json={"tools": many}))[1] == "array_above_max_length"
