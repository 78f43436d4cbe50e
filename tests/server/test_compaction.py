"""Compactions over every upstream: the model sums up what was said, and clients go on with that."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai._models import construct_type
from openai.types.responses import CompactedResponse

from tests.server.scripts import FORMATS, Scripted
from tests.server.test_creation import TOOL, in_front_of
from tests.server.test_not_stored import bill_of, conversations_in
from threadkeep.http import UpstreamError
from threadkeep.server.sealed import PREFIX

OTHERS = [name for name in FORMATS if name != "open_responses"]
SUMMARY = "They asked for the weather in Paris, and it rains."
HISTORY: list[Any] = [
    {"role": "user", "content": "Weather in Paris?"}, {"role": "assistant", "content": "It rains."},
]  # fmt: skip


def compact(client: openai.OpenAI, upstream: Scripted) -> Any:
    """What a client makes of the answer, without validation: OpenAI's type has no place for messages of users."""
    upstream.will_say(SUMMARY)
    return compacted(client, upstream.format, HISTORY)


def compacted(client: openai.OpenAI, model: str, given: Any) -> Any:
    answer = client.responses.with_raw_response.compact(model=model, input=given)
    return construct_type(type_=CompactedResponse, value=answer.http_response.json())


@pytest.fixture(params=OTHERS)
def scripted(request: pytest.FixtureRequest) -> Scripted:
    return Scripted(request.param)


@pytest.fixture
def one() -> Scripted:
    return Scripted("messages")


def test_what_users_said_stays(served: Any, scripted: Scripted) -> None:
    client = in_front_of(served, scripted)
    found = compact(client, scripted)
    message, compaction = found.output
    assert [part.text for part in message.content] == ["Weather in Paris?"]
    assert (compaction.type, compaction.encrypted_content.startswith(PREFIX)) == ("compaction", True)
    assert (found.object, found.usage.total_tokens) == ("response.compaction", 18)
    assert "summary" in str(scripted.payloads[-1])
    assert conversations_in(served) == []
    assert bill_of(served) == [(1, 18)]


@pytest.mark.parametrize("then", FORMATS)
def test_it_stands_for_what_was_before(served: Any, one: Scripted, then: str) -> None:
    """Over any upstream, whoever wrote it."""
    other = Scripted(then)
    client = served.client(upstreams={"messages": one.upstream, "then": other.upstream})
    [*_, compaction] = compact(client, one).output
    other.will_say("Tomorrow, too.")
    history = [compaction.to_dict(), {"role": "user", "content": "And tomorrow?"}]
    assert client.responses.create(model="then", input=history, store=False).output_text == "Tomorrow, too."
    sent = str(other.payloads[-1])
    assert [text in sent for text in (SUMMARY, "And tomorrow?", "Weather in Paris?", PREFIX)] == [
        True,
        True,
        False,
        False,
    ]


CALL: Any = {"type": "function_call", "call_id": "call_2", "name": "look", "arguments": '{"city":"Oslo"}'}
ANSWERED: list[Any] = [
    {**CALL, "call_id": "call_1"}, {"type": "function_call_output", "call_id": "call_1", "output": "Snow."},
]  # fmt: skip


@pytest.mark.parametrize("way", ["endpoint", "trigger", "after a response"])
@pytest.mark.parametrize("then", FORMATS)
def test_a_call_that_waits_is_kept_for_its_output(served: Any, one: Scripted, then: str, way: str) -> None:
    other = Scripted(then)
    client = served.client(upstreams={"messages": one.upstream, "then": other.upstream})
    asked: Any = {"model": "messages", "input": [*HISTORY, *ANSWERED, CALL]}
    if way == "after a response":
        one.will_say("Let me see.", calls=True)
        made = client.responses.create(model="messages", input=HISTORY, tools=[TOOL])
        asked = {"model": "messages", "previous_response_id": made.id}
    one.will_say(SUMMARY)
    if way == "trigger":
        asked["input"].append({"type": "compaction_trigger"})
        output = client.responses.create(store=False, **asked).to_dict()["output"]
    else:
        output = client.responses.with_raw_response.compact(**asked).http_response.json()["output"]
    call_id = "call_1" if way == "after a response" else "call_2"
    other.will_say("It rains.")
    answered = {"type": "function_call_output", "call_id": call_id, "output": "Rain."}
    found = client.responses.with_raw_response.create(
        model="then", input=[*output, answered], tools=[TOOL], store=False
    )
    assert "x-threadkeep-losses" not in found.headers
    sent = str(other.payloads[-1])
    assert [sent.count(text) for text in (SUMMARY, "Rain.", "Snow.")] == [1, 1, 0]
    assert sent.index(SUMMARY) < sent.index("city", sent.index(SUMMARY)) < sent.index("Rain.")


@pytest.mark.parametrize("stream", [False, True])
def test_a_trigger_asks_for_one(served: Any, scripted: Scripted, *, stream: bool) -> None:
    """As Codex does: the answer is the compaction alone."""
    client = in_front_of(served, scripted)
    scripted.will_say(SUMMARY)
    asked: Any = {
        "model": scripted.format, "input": [*HISTORY, {"type": "compaction_trigger"}], "tools": [TOOL], "store": False,
    }  # fmt: skip
    if stream:
        events: list[Any] = [*client.responses.create(stream=True, **asked)]
        found = events[-1].response
        assert [event.item.type for event in events if event.type == "response.output_item.done"] == ["compaction"]
        assert not any(event.type.endswith(".delta") for event in events)
    else:
        found = client.responses.create(**asked)
    assert ([item.type for item in found.output], found.status) == (["compaction"], "completed")
    assert "compaction_trigger" not in str(scripted.payloads[-1])


def test_openai_compacts_by_itself(served: Any) -> None:
    upstream = Scripted("open_responses")
    client = in_front_of(served, upstream)
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"}
    response = {"id": "resp_1", "object": "response", "model": "gpt-6", "status": "completed", "output": [item]}
    events = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    upstream.scripts.append(events)
    found = compacted(client, "open_responses", "Weather?")
    assert [one.type for one in found.output] == ["message", "compaction"]
    assert getattr(found.output[-1], "encrypted_content", None) == "gAAAA"
    assert upstream.payloads[-1]["input"][-1] == {"type": "compaction_trigger"}


def test_a_provider_that_fails_makes_none(served: Any, one: Scripted) -> None:
    client = in_front_of(served, one)
    one.scripts.append([UpstreamError(429, None, "Slow down.")])
    with pytest.raises(openai.RateLimitError, match="Slow down"):
        client.responses.compact(model="messages", input=HISTORY)
    assert bill_of(served, "status") == [("failed", 1, None)]


def test_hosts_of_open_responses_without_compaction_are_asked_for_a_summary(served: Any) -> None:
    upstream = Scripted("open_responses")
    client = in_front_of(served, upstream)
    for text in ("What is a trigger?", SUMMARY):
        upstream.will_say(text)
    found = compacted(client, "open_responses", HISTORY)
    assert [one.type for one in found.output] == ["message", "compaction"]
    assert [one["input"][-1]["type"] for one in upstream.payloads] == ["compaction_trigger", "message"]
    assert bill_of(served) == [(2, 36)]


def test_no_summary_is_a_fault_of_the_provider(served: Any, one: Scripted) -> None:
    client = in_front_of(served, one)
    one.will_say("")
    one.scripts[0][-2]["delta"]["stop_reason"] = "refusal"
    with pytest.raises(openai.InternalServerError, match="gave no compaction"):
        client.responses.compact(model="messages", input=HISTORY)


@pytest.mark.parametrize("given", [7, {"role": "user"}])
def test_input_is_a_text_or_a_list(served: Any, one: Scripted, given: Any) -> None:
    client = in_front_of(served, one)
    with pytest.raises(openai.BadRequestError, match="a text or a list"):
        client.responses.compact(model="messages", input=given)


def test_what_was_changed_is_refused(served: Any, one: Scripted) -> None:
    client = in_front_of(served, one)
    item: Any = {"type": "compaction", "encrypted_content": f"{PREFIX}bm8="}
    with pytest.raises(openai.BadRequestError, match="Send it back unchanged") as refused:
        client.responses.create(model="messages", input=[item], store=False)
    assert refused.value.param == "input[0].encrypted_content"
