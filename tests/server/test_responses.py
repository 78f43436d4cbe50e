"""Stored responses of every format, through OpenAI's client."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import openai
import pytest
from openai.types.responses import ResponseCompletedEvent

from tests.server.scripts import Scripted
from tests.server.test_rest import Rest
from threadkeep.domain.formats import format_names
from threadkeep.http import Upstream
from threadkeep.server.openai import responses

SECRET = "canary-5a1c"
TOOL = {"city": "Paris"}
MESSAGE = {"role": "assistant", "content": "Let me see."}
BODIES: dict[str, dict[str, Any]] = {
    "open_responses": {
        "id": "resp_677efb5139a8", "object": "response", "created_at": 1_700_000_000, "model": "gpt-5.4",
        "status": "completed", "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look it up."}]},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look",
             "arguments": '{"city":"Paris"}'},
        ],
        "usage": {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18},
    },
    "chat_completion": {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "gpt-5.4",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": "Let me see.", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"city":"Paris"}'}},
            ]}}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    },
    "messages": {
        "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "stop_reason": "tool_use",
        "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "call_1", "name": "look", "input": TOOL},
        ],
        "usage": {"input_tokens": 11, "output_tokens": 7},
    },
    "gemini": {
        "responseId": "abc", "modelVersion": "gemini-3-pro",
        "candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": [
            {"text": "Let me see."}, {"functionCall": {"id": "call_1", "name": "look", "args": TOOL}},
        ]}}],
        "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18},
    },
    "converse": {
        "output": {"message": {"role": "assistant", "content": [
            {"text": "Let me see."}, {"toolUse": {"toolUseId": "call_1", "name": "look", "input": TOOL}},
        ]}},
        "stopReason": "tool_use", "usage": {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18},
    },
    "pydantic_ai": {
        "kind": "response", "parts": [
            {"part_kind": "text", "content": "Let me see."},
            {"part_kind": "tool-call", "tool_name": "look", "args": TOOL, "tool_call_id": "call_1"},
        ],
        "usage": {"input_tokens": 11, "output_tokens": 7}, "model_name": "gpt-5.4", "finish_reason": "tool_call",
    },
    "interactions": {
        "id": "int_1", "object": "interaction", "model": "gemini-3-pro", "status": "requires_action",
        "steps": [
            {"type": "model_output", "content": [{"type": "text", "text": "Let me see."}]},
            {"type": "function_call", "id": "call_1", "name": "look", "arguments": TOOL},
        ],
        "usage": {"total_input_tokens": 11, "total_output_tokens": 7, "total_tokens": 18},
    },
    "ui_messages": {
        "id": "msg_1", "role": "assistant", "parts": [
            {"type": "text", "text": "Let me see.", "state": "done"},
            {"type": "tool-look", "toolCallId": "call_1", "state": "input-available", "input": TOOL},
        ],
        "metadata": {"totalUsage": {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}},
    },
    "ag_ui": {
        "runId": "run_1", "newMessages": [
            {"id": "msg_1", "role": "assistant", "content": "Let me see.", "toolCalls": [
                {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"city":"Paris"}'}},
            ]},
        ],
        "usage": [{"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}],
    },
}  # fmt: skip


def a_conversation(served: Any, user: str = "ann", **options: Any) -> Any:
    return served.call(served.store.for_user(user).create_conversation, model="m", input="Weather?", **options)


def stored(served: Any, format_: str, **options: Any) -> str:
    """The id of a response of a format, in a new conversation."""
    conversation = a_conversation(served, **options)
    served.call(conversation.add_response, BODIES[format_], format_)
    return str(served.call(conversation.get_response, 0).id)


def test_there_is_a_response_of_each_format() -> None:
    assert set(BODIES) == set(format_names())


@pytest.mark.parametrize("format_", BODIES)
def test_a_response_of_any_format_is_one_of_openai(client: Any, served: Any, format_: str) -> None:
    found = client.responses.retrieve(stored(served, format_))
    assert found.status == "completed"
    assert found.output_text == "Let me see."
    call = found.output[-1]
    assert (call.type, call.name, call.call_id) == ("function_call", "look", "call_1")
    assert (found.usage.input_tokens, found.usage.output_tokens, found.usage.total_tokens) == (11, 7, 18)
    assert found.conversation.id.startswith("conv_")


@pytest.mark.parametrize("format_", BODIES)
def test_the_events_of_a_stored_response_make_it_again(client: Any, served: Any, format_: str) -> None:
    id_ = stored(served, format_)
    events = list(client.responses.retrieve(id_, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert isinstance(events[-1], ResponseCompletedEvent)
    whole = client.responses.retrieve(id_)
    assert events[-1].response == whole
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Let me see."
    assert [event.item for event in events if event.type == "response.output_item.done"] == whole.output
    later = list(client.responses.retrieve(id_, stream=True, starting_after=3))
    assert later == events[4:]
    for start in ("x", "9" * 5000, "-" + "9" * 5000):
        query = {"stream": "true", "starting_after": start}
        with pytest.raises(openai.BadRequestError) as refusal:
            client.get(f"/responses/{id_}", cast_to=object, options={"params": query})
        assert refusal.value.param == "starting_after"


def test_a_stream_that_was_followed_live_ends_after_any_of_its_events(served: Any) -> None:
    """Live, the text comes in more pieces than there are stored: the whole response is in the last event."""
    model = Scripted("chat_completion")
    model.will_say(*"abcdefghijklmnop")
    client = served.client(upstreams={"m": model.upstream})
    live = list(client.responses.create(model="m", input="Weather?", stream=True))
    for event in live:
        rest = list(client.responses.retrieve(live[0].response.id, stream=True, starting_after=event.sequence_number))
        assert isinstance(rest[-1], ResponseCompletedEvent)
        assert rest[-1].response.output_text == "abcdefghijklmnop"
        numbers = [one.sequence_number for one in rest]
        assert numbers == list(range(event.sequence_number + 1, event.sequence_number + 1 + len(rest)))


def test_a_response_is_found_by_the_id_of_its_provider(client: Any, served: Any) -> None:
    id_ = stored(served, "messages")
    assert client.responses.retrieve("msg_01").id == id_
    own = stored(served, "open_responses")
    assert client.responses.retrieve(own).id == own
    assert client.responses.retrieve("resp_677efb5139a8").id == "resp_677efb5139a8"


def test_what_a_response_was_asked(client: Any, served: Any) -> None:
    conversation = a_conversation(served)
    for text in ("one", "two", "three"):
        served.call(conversation.user, text)
    served.call(conversation.add_response, BODIES["messages"], "messages")
    served.call(conversation.user, "later")
    id_ = served.call(conversation.get_response, 0).id
    for order, expected in (
        ("asc", ["Weather?", "one", "two", "three"]),
        ("desc", ["three", "two", "one", "Weather?"]),
    ):
        found = client.responses.input_items.list(id_, order=order, limit=3)
        assert [item.content[0].text for item in found] == expected


def test_a_failed_response_says_so(client: Any, served: Any) -> None:
    conversation = a_conversation(served)
    body = {**BODIES["open_responses"], "status": "failed", "error": {"code": "server_error", "message": "Sorry."}}
    served.call(conversation.add_response, body, "open_responses")
    found = client.responses.retrieve(served.call(conversation.get_response, 0).id)
    assert (found.status, found.error.message) == ("failed", "Sorry.")


def test_an_incomplete_response_says_why(client: Any, served: Any) -> None:
    conversation = a_conversation(served)
    body = {**BODIES["messages"], "stop_reason": "max_tokens"}
    served.call(conversation.add_response, body, "messages")
    found = client.responses.retrieve(served.call(conversation.get_response, 0).id)
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_a_response_in_progress_is_cancelled(client: Any, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever records it, when more of it comes; until then, who cancels it waits for only so long."""
    monkeypatch.setattr(responses, "CANCEL_SECONDS", 0.1)
    conversation = a_conversation(served)
    other = httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=served.application()),
        base_url="http://localhost/v1",
        headers={"Authorization": "Bearer ann"},
    )

    async def recorded() -> None:
        async with conversation.stream_response("chat_completion") as recorder:
            piece = {"id": "c", "choices": [{"index": 0, "delta": {"content": "Le"}}]}
            await recorder.feed(piece)
            id_ = (await conversation.get_response(0)).id
            assert (await other.get(f"/responses/{id_}")).json()["status"] == "in_progress"
            assert (await other.post(f"/responses/{id_}/cancel")).json()["status"] == "in_progress"
            async with asyncio.timeout(20):
                while not recorder.cancel_requested:
                    await recorder.feed(piece)
                    await asyncio.sleep(0.05)

    served.runner.run(recorded())
    found = client.responses.retrieve(served.call(conversation.get_response, 0).id)
    assert found.status == "cancelled"
    assert client.responses.cancel(found.id) == found


@pytest.mark.parametrize("path", ["{}", "{}/input_items"])
def test_responses_of_others_do_not_exist(served: Any, path: str) -> None:
    id_ = stored(served, "messages", user="ben")
    for wanted in (id_, "msg_01", "resp_unknown", "conv_unknown"):
        with pytest.raises(openai.NotFoundError):
            served.client().get(f"/responses/{path.format(wanted)}", cast_to=object)


def test_a_response_is_deleted(client: Any, served: Any) -> None:
    """Clients cannot retrieve it or go on with it; the items of its conversation stay."""
    conversation = served.call(served.store.for_user("ann").create_conversation, model="m", input="Hi")
    served.call(conversation.add_response, BODIES["open_responses"], "open_responses")
    id_ = BODIES["open_responses"]["id"]
    client.responses.delete(id_)
    for gone in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            gone(id_)
    assert len(client.conversations.items.list(conversation.id).data) == 4
    http = served.http(upstreams={"*": Upstream("any", "chat_completion", lambda *_: None)})  # type: ignore[arg-type]
    refused = http.post("/responses", json={"model": "m", "input": "More", "previous_response_id": id_})
    assert refused.status_code == 400
    assert refused.json()["error"] == {
        "message": f"Previous response with id '{id_}' not found.", "type": "invalid_request_error",
        "param": "previous_response_id", "code": "previous_response_not_found",
    }  # fmt: skip


def test_what_a_provider_repeats_of_the_application_is_not_told(client: Any, served: Any) -> None:
    """OpenAI's responses have the instructions and tools of their requests, and keys of services may be in these."""
    conversation = a_conversation(served)
    tool = {"type": "function", "name": "look", "parameters": {}, "strict": True}
    service = {"type": "mcp", "server_label": "s", "server_url": "https://s.test", "authorization": SECRET}
    asked = {"instructions": SECRET, "user": SECRET, "tools": [service, tool], "temperature": 0.5}
    served.call(conversation.add_response, {**BODIES["open_responses"], **asked}, "open_responses")
    found = client.responses.retrieve("resp_677efb5139a8")
    assert SECRET not in found.model_dump_json()
    assert ([one.name for one in found.tools], found.temperature) == (["look"], 0.5)


@pytest.mark.parametrize("face", ["openai", "rest"])
def test_the_last_item_of_an_answer_that_was_cut_off_is_incomplete_wherever_it_is_shown(
    served: Any, client: Any, face: str
) -> None:
    """As OpenAI has it; not those before it, the end of another answer, or what says itself how it is."""
    conversation = a_conversation(served)
    cut = {**BODIES["chat_completion"], "choices": [{"message": MESSAGE, "finish_reason": "length"}]}
    whole = {**cut, "choices": [{"message": MESSAGE, "finish_reason": "stop"}]}
    for body in (cut, whole, cut):
        served.call(conversation.add_response, body, "chat_completion")
        served.call(conversation.user, "Go on.")
    fork = served.call(conversation.fork)
    served.call(fork.set_active_branch, fork.branch)
    expected = ["completed", "incomplete", "completed", "completed", "completed", "incomplete", "completed"]
    if face == "rest":
        api = Rest(served).of("ann")
        path = f"/conversations/{conversation.id}/messages"
        data = api.get(path, params={"order": "asc"}).json()["data"]
        assert [one["item"]["status"] for one in data] == expected
        found = [api.get(f"{path}/{one['id']}").json()["item"] for one in data]
        assert found == [one["item"] for one in data]
        labelled = api.put(f"{path}/{data[1]['id']}/labels", json={"labels": {"a": "b"}}).json()
        assert labelled["item"]["status"] == "incomplete"
        return
    items = [*client.conversations.items.list(conversation.id, order="asc", limit=2)]
    assert [one.status for one in items] == expected
    assert [client.conversations.items.retrieve(one.id, conversation_id=conversation.id) for one in items] == items
    served.call(conversation.add_response, whole, "chat_completion")
    asked = client.responses.input_items.list(served.call(conversation.get_response, 3).id, order="asc")
    assert [one.status for one in asked] == expected
    answers = [client.responses.retrieve(served.call(conversation.get_response, at).id) for at in range(3)]
    assert [one.output[-1].status for one in answers] == ["incomplete", "completed", "incomplete"]
