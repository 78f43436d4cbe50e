"""Responses of models behind the server: any format upstream, OpenAI's client in front."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI
from openai.types.responses import ResponseCompletedEvent

from tests.server.scripts import FORMATS, Scripted
from tests.waiting import wait_until
from threadkeep import InvalidOption
from threadkeep.http import Upstream, UpstreamError, http_upstream, named_upstream

TOOL: Any = {
    "type": "function", "name": "look", "description": "Look out of the window.", "strict": False,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}  # fmt: skip


def in_front_of(served: Any, *upstreams: Scripted, user: str = "ann") -> OpenAI:
    """A client of a server whose models are named after the formats of its upstreams."""
    client: OpenAI = served.client(user, upstreams={one.format: one.upstream for one in upstreams})
    return client


def texts_of(client: OpenAI, conversation: str) -> list[str]:
    items: Any = client.conversations.items.list(conversation, order="asc")
    return [part.text for item in items if item.type == "message" for part in item.content]


def test_a_model_of_any_format_answers(served: Any, scripted: Scripted) -> None:
    client = in_front_of(served, scripted)
    scripted.will_say("Let me ", "see.", calls=True)
    found = client.responses.create(model=scripted.format, input="Weather?", instructions="Be brief.", tools=[TOOL])
    assert (found.status, found.output_text) == ("completed", "Let me see.")
    assert found.usage is not None
    assert (found.usage.input_tokens, found.usage.output_tokens) == (11, 7)
    call: Any = found.output[-1]
    assert (call.type, call.name, call.call_id) == ("function_call", "look", "call_1")
    assert found.instructions == "Be brief."
    later = client.responses.retrieve(found.id)
    assert (later.id, later.output, later.usage) == (found.id, found.output, found.usage)
    assert found.conversation is not None
    assert texts_of(client, found.conversation.id) == ["Weather?", "Let me see."]
    [row] = served.call(served.store.usage, by=("provider",))
    assert (row.provider, row.attempts, row.total_tokens) == (scripted.upstream.name, 1, 18)


def test_a_stored_answer_tells_what_was_asked_for(served: Any, scripted: Scripted) -> None:
    """Also after the options of the conversation have changed."""
    client = in_front_of(served, scripted)
    scripted.will_say("Sunny.")
    asked: Any = {
        "max_output_tokens": 50, "metadata": {"order": "7"}, "temperature": 0.5,
        "parallel_tool_calls": False, "tool_choice": "required", "tools": [TOOL],
    }  # fmt: skip
    made = client.responses.create(model=scripted.format, input="Weather?", **asked)
    scripted.will_say("Rainy.")
    again: Any = {"instructions": "Rhyme.", "temperature": 0.9, "metadata": {}}
    client.responses.create(model=scripted.format, input="And now?", previous_response_id=made.id, **again)
    later, told = client.responses.retrieve(made.id).to_dict(), made.to_dict()
    assert {key: later[key] for key in asked} == {key: told[key] for key in asked} == asked


@pytest.mark.parametrize("background", [False, True])
def test_a_stored_answer_tells_what_it_went_on_with(served: Any, scripted: Scripted, *, background: bool) -> None:
    """And whether it was asked for in the background: no provider is told either, nor repeats it."""
    client = in_front_of(served, scripted)
    made: list[Any] = []
    for _ in range(2):
        scripted.will_say("Sunny.")
        before = made[-1].id if made else None
        asked: Any = {"model": scripted.format, "background": background, "previous_response_id": before}
        made.append(client.responses.create(input="Weather?", **asked))
        wait_until(lambda: client.responses.retrieve(made[-1].id).status == "completed")
        found = client.responses.retrieve(made[-1].id)
        assert (found.previous_response_id, found.background) == (before, background)
        events: list[Any] = [*client.responses.retrieve(made[-1].id, stream=True)]
        assert events[-1].response == found
    assert not {"background", "previous_response_id"} & {*scripted.payloads[0], *scripted.payloads[1]}
    conversation = served.call(served.store.get_conversation, made[0].conversation.id)
    stored = [*served.call(conversation.responses)]
    assert [one.view for one in stored] == [{"format": scripted.format, "provider": f"scripted-{scripted.format}"}] * 2
    served.call(conversation.render, scripted.format, upto=stored[1].input_to)


def test_a_response_that_was_stored_otherwise_went_on_with_none(served: Any, client: OpenAI) -> None:
    """Unless its provider says so."""
    conversation = served.call(served.store.for_user("ann").create_conversation, input="Weather?")
    body = {"object": "response", "status": "completed", "output": []}
    known = {"id": "resp_2", **body, "background": True, "previous_response_id": "resp_1"}
    for given in ({"id": "resp_1", **body}, known):
        served.call(conversation.add_response, given, "open_responses")
    found = [client.responses.retrieve(id_) for id_ in ("resp_1", "resp_2")]
    assert [(one.previous_response_id, one.background) for one in found] == [(None, False), ("resp_1", True)]


def test_a_stored_answer_tells_nothing_that_the_application_set(served: Any, one: Scripted) -> None:
    client = in_front_of(served, one)
    one.will_say("Sunny.")
    made = client.responses.create(model=one.format, input="Weather?")
    assert made.conversation is not None
    conversation = served.call(served.store.get_conversation, made.conversation.id)
    tool = {"type": "mcp", "server_label": "s", "server_url": "https://s.test", "authorization": "SECRET"}
    served.call(conversation.update, instructions="SECRET")
    served.call(conversation.register_tools, [tool, TOOL])
    served.call(
        conversation.add_response,
        {"id": "r9", "object": "response", "status": "completed", "output": []},
        "open_responses",
    )
    found = client.responses.retrieve("r9")
    assert "SECRET" not in found.model_dump_json()
    assert [one.type for one in found.tools] == ["function"]


def test_a_stream_of_any_format_is_one_of_openai(served: Any, scripted: Scripted) -> None:
    client = in_front_of(served, scripted)
    scripted.will_say("Let ", "me ", "see.", calls=True)
    events: Any = list(client.responses.create(model=scripted.format, input="Weather?", tools=[TOOL], stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert isinstance(events[-1], ResponseCompletedEvent)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas == ["Let ", "me ", "see."]
    arguments = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    assert arguments.replace(" ", "") == '{"city":"Paris"}'
    response = events[-1].response
    assert {event.response.id for event in events if hasattr(event, "response")} == {response.id}
    added = [event.item.id for event in events if event.type == "response.output_item.added"]
    assert added == [item.id for item in response.output]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [(item.id, item.type) for item in done] == [(item.id, item.type) for item in response.output]
    balance = [event.type.rpartition(".")[2] for event in events if event.type.startswith("response.output_item")]
    assert balance == ["added", "done"] * len(response.output)
    assert client.responses.retrieve(response.id).output == response.output


def test_a_conversation_switches_upstreams_between_turns(served: Any) -> None:
    upstreams = [Scripted(name) for name in FORMATS]
    client = in_front_of(served, *upstreams)
    conversation = client.conversations.create(items=[{"role": "user", "content": "My name is Ann."}]).id
    for number, upstream in enumerate(upstreams):
        upstream.will_say(f"Answer {number}.")
        client.responses.create(model=upstream.format, input=f"Question {number}?", conversation=conversation)
        sent = str(upstream.payloads[0])
        assert all(text in sent for text in ["My name is Ann.", *(f"Answer {one}." for one in range(number))])
    assert len(texts_of(client, conversation)) == 1 + 2 * len(upstreams)


def test_a_loop_with_tools(served: Any, scripted: Scripted) -> None:
    client = in_front_of(served, scripted)
    scripted.will_say("Let me see.", calls=True)
    first = client.responses.create(model=scripted.format, input="Weather?", tools=[TOOL])
    scripted.will_say("It is sunny.")
    output: Any = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    second = client.responses.create(model=scripted.format, input=[output], previous_response_id=first.id, tools=[TOOL])
    assert second.output_text == "It is sunny."
    assert second.previous_response_id == first.id
    assert "sunny" in str(scripted.payloads[1])
    assert "Weather?" in str(scripted.payloads[1])


def test_instructions_are_not_carried_over(served: Any, one: Scripted) -> None:
    client = in_front_of(served, one)
    one.will_say("Yes.")
    first = client.responses.create(
        model=one.format, input="One?", instructions="Be brief.", temperature=0.5, tools=[TOOL]
    )
    one.will_say("No.")
    client.responses.create(model=one.format, input="Two?", previous_response_id=first.id)
    assert "Be brief." in str(one.payloads[0])
    assert "Be brief." not in str(one.payloads[1])
    assert not one.payloads[1].keys() & {"temperature", "tools"}


def test_going_on_after_an_earlier_response_makes_a_branch(served: Any, one: Scripted) -> None:
    client = in_front_of(served, one)
    said: dict[str, Any] = {}
    for name, previous in (("first", None), ("second", "first"), ("other", "first")):
        one.will_say(f"After {name}.")
        asked = said[previous].id if previous else None
        said[name] = client.responses.create(model=one.format, input=f"{name}?", previous_response_id=asked)
    sent = [part["text"] for message in one.payloads[2]["messages"] for part in message["content"]]
    assert sent == ["first?", "After first.", "other?"]
    assert texts_of(client, said["second"].conversation.id) == ["first?", "After first.", "second?", "After second."]
    assert client.responses.retrieve(said["other"].id).output == said["other"].output
    asked_for: Any = client.responses.input_items.list(said["other"].id, order="asc")
    assert [item.content[0].text for item in asked_for] == ["first?", "After first.", "other?"]


@pytest.mark.parametrize("content", ["Two?", [{"role": "user", "content": "Two?"}]], ids=["text", "items"])
def test_a_repeated_request_after_an_earlier_response_makes_no_branch(served: Any, one: Scripted, content: Any) -> None:
    client = in_front_of(served, one)
    for text in ("One.", "Two.", "Other."):
        one.will_say(text)
    first: Any = client.responses.create(model=one.format, input="One?")
    for key, branches in (("a", 1), ("b", 2)):
        asked: Any = {
            "model": one.format, "input": content, "previous_response_id": first.id,
            "extra_headers": {"Idempotency-Key": key},
        }  # fmt: skip
        found = [client.responses.create(**asked).id for _ in range(2)]
        assert found[0] == found[1]
        conversation = served.call(served.store.get_conversation, first.conversation.id)
        assert [one.number for one in served.call(conversation.branches)] == list(range(branches))
    assert len(one.payloads) == 3


def test_a_repeated_request_asks_nobody_again(served: Any, scripted: Scripted) -> None:
    client = in_front_of(served, scripted)
    scripted.will_say("Once.")
    once = {"Idempotency-Key": "one"}
    first: Any = client.responses.create(model=scripted.format, input="How often?", extra_headers=once)
    again = client.responses.create(model=scripted.format, input="How often?", extra_headers=once)
    events: Any = list(
        client.responses.create(model=scripted.format, input="How often?", stream=True, extra_headers=once)
    )
    assert (again.id, again.output) == (first.id, first.output)
    assert events[-1].response.id == first.id
    assert len(scripted.payloads) == 1
    assert len(texts_of(client, first.conversation.id)) == 2


def test_an_answer_in_the_background(served: Any, one: Scripted) -> None:
    one.will_say("Later.")
    http = served.http(upstreams={one.format: one.upstream})
    client = served.client(upstreams={one.format: one.upstream})
    begun = http.post("/responses", json={"model": one.format, "input": "When?", "background": True}).json()
    assert (begun["status"], begun["output"], begun["background"]) == ("queued", [], True)
    events = list(client.responses.retrieve(begun["id"], stream=True))
    assert events[-1].response.output_text == "Later."
    one.will_say("And later.")
    body = {"model": one.format, "input": "When?", "background": True, "stream": True}
    assert "And later." in http.post("/responses", json=body).text


@pytest.mark.parametrize(
    ("status", "expected"), [(400, 400), (429, 429), (500, 500), (401, 502), (302, 502), (600, 502), (999, 502)]
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_what_an_upstream_refuses(served: Any, one: Scripted, status: int, expected: int, *, is_stream: bool) -> None:
    body = {"error": {"message": "Not like this."}}
    one.scripts = [[UpstreamError(status, body, "It refused.")]]
    client = in_front_of(served, one)
    with pytest.raises(openai.APIStatusError) as refusal:
        client.responses.create(model=one.format, input="Hello", stream=is_stream)
    assert refusal.value.status_code == expected
    assert ("Not like this." in str(refusal.value)) == (status != 401)  # which is about the server's key


def test_a_stream_that_cannot_be_read_is_the_providers_fault(served: Any, scripted: Scripted) -> None:
    http = served.http(upstreams={"*": scripted.upstream})
    for first in (["what is no object"], "{not JSON"):
        scripted.scripts = [[first]]
        answer = http.post("/responses", json={"model": "any", "input": "Hello"})
        assert answer.status_code == 502, answer.text
        assert answer.json()["error"]["code"] == "upstream_error"
    assert http.get("/conversations").json()["data"] == []


def test_include_reaches_the_upstreams_that_know_it_and_is_named_for_others(served: Any, scripted: Scripted) -> None:
    scripted.will_say("Yes.")
    http = served.http(upstreams={"*": scripted.upstream})
    body = {"model": "any", "input": "Hello", "include": ["web_search_call.action.sources"]}
    answer = http.post("/responses", json=body)
    is_known = scripted.format == "open_responses"
    assert scripted.payloads[-1].get("include") == (body["include"] if is_known else None)
    assert answer.headers.get("x-threadkeep-losses") == (None if is_known else "option=include")


# what a request can ask for that not every API can be told
ASKED = {"max_tool_calls": 3, "truncation": "auto", "background_options": {"a": 1}, "of_tomorrow": True}


@pytest.mark.parametrize("name", ASKED)
def test_what_is_asked_for_is_told_or_named_and_refused_if_strict(served: Any, scripted: Scripted, name: str) -> None:
    scripted.will_say("Yes.")
    http = served.http(upstreams={"*": scripted.upstream})
    body = {"model": "any", "input": "Hello", name: ASKED[name]}
    answer = http.post("/responses", json=body)
    named = [one.partition("=")[2] for one in answer.headers.get("x-threadkeep-losses", "").split(", ")]
    if scripted.format == "open_responses":
        assert (scripted.payloads[-1][name], named) == (ASKED[name], [""])
        return
    assert (name in scripted.payloads[-1], named) == (False, [name])
    refusal = http.post("/responses", json=body, headers={"x-threadkeep-strict": "true"})
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, name)


@pytest.mark.parametrize("value", [True, False])
def test_options_of_streams_are_heeded_told_or_named(served: Any, scripted: Scripted, *, value: bool) -> None:
    """A stream of this server has usage, and no padding, without being asked."""
    for _ in range(3):
        scripted.will_say("Yes.")
    http = served.http(upstreams={"*": scripted.upstream})
    options = {"include_usage": True, "include_obfuscation": value}
    body = {"model": "any", "input": "Hello", "stream": True, "stream_options": options}
    answer = http.post("/responses", json=body)
    is_told = scripted.format == "open_responses"
    assert scripted.payloads[-1].get("stream_options") == (options if is_told else None)
    name = None if is_told or not value else "stream_options.include_obfuscation"
    assert answer.headers.get("x-threadkeep-losses") == (name and f"option={name}")
    refusal = http.post("/responses", json=body, headers={"x-threadkeep-strict": "true"})
    assert refusal.status_code == (400 if name else 200)
    assert name is None or refusal.json()["error"]["param"] == name
    assert "x-threadkeep-losses" not in http.post("/responses", json={**body, "stream": False}).headers


def test_a_key_in_what_an_upstream_says_is_not_told(served: Any, one: Scripted) -> None:
    said = "You sent Authorization: Bearer secret-of-the-server, which sk-proj-0123456789abcdef is not."
    one.scripts = [[UpstreamError(400, {"error": {"message": said}}, "It refused.")]]
    with pytest.raises(openai.BadRequestError) as refusal:
        in_front_of(served, one).responses.create(model=one.format, input="Hello")
    assert "It refused. You sent Authorization: ***" in str(refusal.value)
    assert "secret-of-the-server" not in str(refusal.value)
    assert "0123456789abcdef" not in str(refusal.value)


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "one"}], ids=["without a key", "with a key"])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_retry_after_a_refusal_stores_its_input_once(
    served: Any, one: Scripted, headers: dict[str, str], *, is_new: bool
) -> None:
    """OpenAI's clients repeat requests that were answered with 429, without telling that they do."""
    one.scripts = [[UpstreamError(429, None, "Not now.")]]
    one.will_say("Now.")
    client = in_front_of(served, one)
    place: Any = (
        {} if is_new else {"conversation": client.conversations.create(items=[{"role": "user", "content": "Hi"}]).id}
    )
    asked: dict[str, Any] = {"model": one.format, "input": "When?", "extra_headers": headers, **place}
    with pytest.raises(openai.RateLimitError):
        client.responses.create(**asked)
    found = client.responses.create(**asked)
    assert found.output_text == "Now."
    assert texts_of(client, found.conversation.id) == [*([] if is_new else ["Hi"]), "When?", "Now."]
    assert len(served.http().get("/conversations").json()["data"]) == 1
    [row] = served.call(served.store.usage, by=("provider",))
    assert row.attempts == 2


@pytest.mark.parametrize("content", ["When?", [{"role": "user", "content": "When?"}]], ids=["text", "items"])
def test_a_retry_goes_on_where_its_input_is_whichever_branch_is_active(
    served: Any, one: Scripted, content: Any
) -> None:
    one.scripts = [[UpstreamError(429, None, "Not now.")]]
    one.will_say("Now.")
    client = in_front_of(served, one)
    conversation = served.call(served.store.for_user("ann").create_conversation, input="Hi")
    asked: dict[str, Any] = {
        "model": one.format, "input": content, "conversation": conversation.id,
        "extra_headers": {"Idempotency-Key": "one"},
    }  # fmt: skip
    with pytest.raises(openai.RateLimitError):
        client.responses.create(**asked)
    served.call(conversation.edit, 0, "Hello")
    found = client.responses.create(**asked)
    assert client.responses.create(**asked).id == found.id
    sent = [part["text"] for message in one.payloads[-1]["messages"] for part in message["content"]]
    assert (sent, len(one.payloads)) == (["Hi", "When?"], 2)
    assert texts_of(client, conversation.id) == ["Hello"]


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "one"}], ids=["without a key", "with a key"])
@pytest.mark.parametrize("content", ["When?", None], ids=["input", "no input"])
def test_nothing_of_the_settings_of_a_refused_request_is_kept(
    served: Any, one: Scripted, headers: dict[str, str], content: str | None
) -> None:
    conversation = served.call(
        served.store.for_user("ann").create_conversation, model="good", instructions="Be brief.", input="Hi",
        tools=[{**TOOL, "name": "listen"}],
    )  # fmt: skip
    before = served.call(conversation.clone_config)
    one.scripts = [[UpstreamError(404, None, "No such model.")]]
    one.will_say("Yes.")
    client = in_front_of(served, one)
    asked: Any = {
        "model": one.format, "input": content, "conversation": conversation.id, "extra_headers": headers,
        "instructions": "Be rude.", "temperature": 0.5, "tools": [TOOL],
    }  # fmt: skip
    with pytest.raises(openai.NotFoundError):
        client.responses.create(**asked)
    found = served.call(conversation.clone_config)
    assert (found.settings, found.tools) == (before.settings, before.tools)
    client.responses.create(**asked)
    assert "Be rude." in str(one.payloads[-1])
    assert served.call(conversation.clone_config).settings == {
        "model": one.format, "instructions": "Be rude.", "temperature": 0.5,
    }  # fmt: skip


def test_settings_that_another_request_has_set_meanwhile_stay(served: Any, one: Scripted) -> None:
    conversation = served.call(served.store.for_user("ann").create_conversation, model="good", instructions="Be brief.")

    async def refuse_later(_payload: Any, _model: str) -> Any:
        await conversation.update(instructions="Be kind.", top_p=0.5)
        await conversation.register_tools([{**TOOL, "name": "listen"}])
        raise UpstreamError(404, None, "No such model.")
        yield

    http = served.http(upstreams={"bad": Upstream("any", "chat_completion", refuse_later)})
    body = {"model": "bad", "input": "Hi", "conversation": conversation.id, "instructions": "Be rude.", "tools": [TOOL]}
    assert http.post("/responses", json=body).status_code == 404
    found = served.call(conversation.clone_config)
    assert found.settings == {"model": "good", "instructions": "Be kind.", "top_p": 0.5}
    assert [tool["name"] for tool in found.tools] == ["look", "listen"]


def test_an_upstream_that_breaks_off(served: Any, one: Scripted) -> None:
    one.will_say("Half an ", "answer")
    one.scripts[0][2:] = [UpstreamError(502, None, "It is gone.")]
    client = in_front_of(served, one)
    events: Any = list(client.responses.create(model=one.format, input="Hello", stream=True))
    assert events[-1].response.status in {"incomplete", "failed"}
    assert events[-1].response.output_text == "Half an "
    assert events[-1].response.output[-1].status == "incomplete"
    one.will_say("Again.")
    again = client.responses.create(model=one.format, input="And?", previous_response_id=events[-1].response.id)
    assert again.output_text == "Again."


def test_what_a_provider_says_in_the_middle_is_told(served: Any, one: Scripted) -> None:
    one.will_say("Half an ", "answer")
    one.scripts[0][1:] = [{"error": {"message": "The model is overloaded.", "code": "overloaded"}}]
    client = in_front_of(served, one)
    failed = client.responses.create(model=one.format, input="Hello")
    for found in (failed, client.responses.retrieve(failed.id)):
        assert found.status == "failed"
        assert found.error is not None
        assert found.error.message == "The model is overloaded."


@pytest.mark.parametrize(("given", "told"), [("7", "7"), (None, None), ("\xe9", None), ("", None)])
def test_when_to_ask_again_is_told(served: Any, one: Scripted, given: str | None, told: str | None) -> None:
    one.scripts = [[UpstreamError(429, None, "Not now.", given)]]
    http = served.http(upstreams={one.format: one.upstream})
    answer = http.post("/responses", json={"model": one.format, "input": "Hello"})
    assert (answer.status_code, answer.headers.get("retry-after")) == (429, told)


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("broken", [{"id": "msg_1"}, {"content": 3}])
def test_items_that_are_refused_are_named_as_the_request_has_them(
    served: Any, one: Scripted, broken: dict[str, Any], *, is_new: bool
) -> None:
    http, first = served.http(upstreams={one.format: one.upstream}), {"role": "user", "content": "Hi", "id": "msg_1"}
    place = {} if is_new else {"conversation": http.post("/conversations", json={}).json()["id"]}
    body = {"model": one.format, "input": [first, {**first, "id": "msg_2", **broken}], **place}
    error = http.post("/responses", json=body).json()["error"]
    assert (error["param"], error["code"]) == (f"input[1].{next(iter(broken))}", "invalid_value")


def test_losses_are_told_or_refused(served: Any, one: Scripted) -> None:
    client = in_front_of(served, one)
    one.will_say("Yes.")
    asked: dict[str, Any] = {"model": one.format, "input": "Hello", "truncation": "auto"}
    answer = client.responses.with_raw_response.create(**asked)
    assert "truncation" in answer.headers["x-threadkeep-losses"]
    with pytest.raises(openai.BadRequestError) as refusal:
        client.responses.create(**asked, extra_headers={"x-threadkeep-strict": "true"})
    assert refusal.value.param == "truncation"
    assert len(one.payloads) == 1


def test_the_header_of_losses_is_one_line(served: Any, one: Scripted) -> None:
    one.will_say("Yes.")
    asked = {"model": one.format, "input": "Hello", "text": {"odd\r\nset-cookie: b=1\x00\x7fü": 1}}
    answer = served.http(upstreams={one.format: one.upstream}).post("/responses", json=asked)
    assert answer.headers["x-threadkeep-losses"].endswith(r"=text.odd\x0d\x0aset-cookie: b=1\x00\x7f\xfc")


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"input": "Hi"}, 400, "model"),
        ({"model": "unknown", "input": "Hi"}, 404, "model"),
        ({"model": 7, "input": "Hi"}, 400, "model"),
        ({"model": None, "input": "Hi"}, 400, "model"),
        ({"model": "chat_completion", "input": 7}, 400, "input"),
        ({"model": "chat_completion", "input": [7]}, 400, "input[0]"),
        ({"model": "chat_completion", "input": "Hi", "store": "false"}, 400, "store"),
        ({"model": "chat_completion", "input": "Hi", "stream": "no"}, 400, "stream"),
        ({"model": "chat_completion", "input": "Hi", "background": 1}, 400, "background"),
        ({"model": "chat_completion", "input": "Hi", "temperature": "hot"}, 400, "temperature"),
        ({"model": "chat_completion", "input": "Hi", "instructions": 5}, 400, "instructions"),
        ({"model": "chat_completion", "input": "Hi", "metadata": 5}, 400, "metadata"),
        ({"model": "chat_completion", "input": "Hi", "reasoning": "high"}, 400, "reasoning"),
        ({"model": "chat_completion", "input": "Hi", "tools": 5}, 400, "tools"),
        ({"model": "chat_completion", "input": "Hi", "tools": ["look"]}, 400, "tools[0]"),
        ({"model": "chat_completion", "input": "Hi", "conversation": 7}, 400, "conversation"),
        ({"model": "chat_completion", "input": "Hi", "conversation": "conv_unknown"}, 404, None),
        ({"model": "chat_completion", "input": "Hi", "previous_response_id": "resp_1"}, 400, "previous_response_id"),
        (
            {"model": "chat_completion", "input": "Hi", "conversation": "a", "previous_response_id": "b"},
            400,
            "previous_response_id",
        ),
    ],
)
def test_bad_requests_ask_nobody(served: Any, one: Scripted, body: Any, status: int, param: str | None) -> None:
    http = served.http(upstreams={one.format: one.upstream})
    answer = http.post("/responses", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param
    assert one.payloads == []
    assert http.get("/conversations").json()["data"] == []


def test_nobody_goes_on_with_what_belongs_to_others(served: Any, one: Scripted) -> None:
    ann, ben = (in_front_of(served, one, user=user) for user in ("ann", "ben"))
    one.will_say("Yes.")
    mine: Any = ann.responses.create(model=one.format, input="Mine?")
    with pytest.raises(openai.NotFoundError):
        ben.responses.create(model=one.format, input="Yours?", conversation=mine.conversation.id)
    with pytest.raises(openai.BadRequestError) as refusal:
        ben.responses.create(model=one.format, input="Yours?", previous_response_id=mine.id)
    assert refusal.value.code == "previous_response_not_found"
    assert len(one.payloads) == 1


def test_models_find_their_upstreams(served: Any) -> None:
    plain, claude, rest = Scripted("chat_completion"), Scripted("messages"), Scripted("gemini")
    table = {
        "claude-best": plain.upstream,
        "claude-*": Upstream("other", "messages", claude.ask, model="claude-sonnet-5"),
        "*": rest.upstream,
    }
    client = served.client(upstreams=table)
    for model, upstream, asked in (
        ("claude-best", plain, "claude-best"), ("claude-x", claude, "claude-sonnet-5"), ("any", rest, "any"),
    ):  # fmt: skip
        upstream.will_say("Yes.")
        assert client.responses.create(model=model, input="Hello").model == model
        assert upstream.models == [asked]


def test_a_model_whose_name_is_no_unicode_is_nobodys(served: Any) -> None:
    """No provider can be asked for it; what was tried would stay in the ledger."""
    anybody = Scripted("gemini")
    http = served.http(upstreams={"*": anybody.upstream})
    body, headers = json.dumps({"model": "\ud800", "input": "Hello"}), {"content-type": "application/json"}
    answer = http.post("/responses", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert "the server has no upstream for it" in answer.json()["error"]["message"]
    assert anybody.models == []
    assert served.call(served.store.usage, by=("model",)) == []


def test_upstreams_are_named_in_one_text() -> None:
    found = named_upstream("anthropic=messages@https://api.anthropic.com/v1", {"ANTHROPIC_API_KEY": "secret"})
    assert (found.name, found.format) == ("anthropic", "messages")
    assert "secret" not in repr(found)
    for text in ("anthropic", "a=messages@ftp://x", "a=messages@", "=messages@https://x", "a=ui_messages@https://x"):
        with pytest.raises(InvalidOption, match=r"^upstream must be NAME=FORMAT@URL"):
            named_upstream(text, {})
    with pytest.raises(Exception, match="Known formats"):
        named_upstream("a=smoke@https://x", {})


def test_an_upstream_that_does_not_answer(served: Any) -> None:
    upstream = http_upstream("gone", "chat_completion", "http://127.0.0.1:9/v1")
    http: httpx2.Client = served.http(upstreams={"m": upstream})
    answer = http.post("/responses", json={"model": "m", "input": "Hello"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_error")


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("way", [{}, {"stream": True}, {"background": True, "stream": True}], ids=str)
def test_masked_parts_of_an_answer_come_when_they_are_asked_for(
    served: Any, way: dict[str, Any], *, is_asked: bool
) -> None:
    """Also in the events before the last one."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "opaque"}
    text = {"type": "output_text", "text": "Yes.", "annotations": []}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    whole = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [thought, said]}

    async def ask(_payload: Any, _model: str) -> AsyncGenerator[Any]:
        yield {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}
        for index, item in enumerate([thought, said]):
            yield {"type": "response.output_item.added", "output_index": index, "item": item}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": "response.completed", "response": whole}

    masked = ["reasoning.encrypted_content"]
    http = served.http(masked=masked, upstreams={"*": Upstream("own", "open_responses", ask)})
    answer = http.post("/responses", json={"model": "m", "input": "Hi", **way, "include": masked if is_asked else []})
    assert answer.status_code == 200
    assert ("opaque" in answer.text) == is_asked


@pytest.mark.parametrize(
    ("model", "given", "sent"),
    [
        ("claude-sonnet-5", None, 128_000), ("claude-sonnet-5", 500, 500), ("claude-haiku-4-5", None, 64_000),
        ("claude-opus-4-1", None, 32_000), ("glm-4.7", None, 4096),
    ],
)  # fmt: skip
def test_an_answer_may_be_as_long_as_its_model_gives(served: Any, model: str, given: int | None, sent: int) -> None:
    """Where its client says nothing: Messages takes no request without a limit."""
    one = Scripted("messages")
    client = served.client(upstreams={"*": one.upstream})
    one.will_say("Sunny.")
    found = client.responses.create(model=model, input="Weather?", max_output_tokens=given)
    assert (one.payloads[-1]["max_tokens"], found.max_output_tokens) == (sent, given)
    one.will_say("Always.")
    client.responses.create(model=model, input="Really?", previous_response_id=found.id)
    assert one.payloads[-1]["max_tokens"] == max(sent, 4096 if given is None else 128_000)
