"""Chat Completions over any upstream: OpenAI's own client asks, and reads the answers and their streams."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.server.scripts import Scripted, script
from tests.server.test_creation import in_front_of
from tests.server.test_not_stored import bill_of, conversations_in
from threadkeep.http import UpstreamError

TOOL: Any = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}},
}
HI: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}]


def chunks_of(client: openai.OpenAI, **asked: Any) -> list[ChatCompletionChunk]:
    return [*client.chat.completions.create(stream=True, **asked)]


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_of_any_format_answers(served: Any, scripted: Scripted, *, stream: bool) -> None:
    """In a loop with a tool; only the ledger knows of it."""
    client = in_front_of(served, scripted)
    messages = [*HI]
    for text, calls in (("Let me see.", True), ("It rains.", False)):
        scripted.will_say(*text.partition(" "), calls=calls)
        asked: Any = {"model": scripted.format, "messages": messages, "tools": [TOOL]}
        if stream:
            more: Any = {"stream_options": {"include_usage": True}}
            with client.chat.completions.stream(**asked, **more) as events:
                for _ in events:
                    pass
                found: Any = events.get_final_completion()
        else:
            found = ChatCompletion.model_validate(client.chat.completions.create(**asked).to_dict(), strict=True)
        choice = found.choices[0]
        assert (choice.message.content, choice.finish_reason) == (text, "tool_calls" if calls else "stop")
        assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (11, 7, 18)
        if calls:
            [call] = choice.message.tool_calls
            assert (call.id, call.function.name, call.function.arguments) == ("call_1", "look", '{"city":"Paris"}')
            answer = choice.message.to_dict() | {"tool_calls": [{"id": call.id, "type": "function"}]}
            answer["tool_calls"][0]["function"] = {"name": "look", "arguments": call.function.arguments}
            messages = [*HI, answer, {"role": "tool", "tool_call_id": call.id, "content": "Rain."}]
    sent = str(scripted.payloads[-1])
    assert [sent.count(word) for word in ("Be brief.", "Weather?", "Let me see.", "Rain.")] == [1, 1, 1, 1]
    assert conversations_in(served) == []
    assert bill_of(served, "provider", "user_id") == [(scripted.upstream.name, "ann", 2, 36)]


@pytest.mark.parametrize("store_false", ["ledger", "keep"])
def test_a_stored_chat_is_one_conversation(served: Any, one: Scripted, store_false: Any) -> None:
    """If the client asks for that, or the server keeps all; what is stored is found as a response."""
    client = served.client(upstreams={one.format: one.upstream}, store_false=store_false)
    store: Any = {"store": True} if store_false == "ledger" else {}
    messages = [*HI]
    for text in ("Sunny.", "Rainy."):
        one.will_say(text)
        found = client.chat.completions.create(model=one.format, messages=messages, **store)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "And now?"}]
    [conversation] = conversations_in(served)
    opened = served.call(served.store.for_user("ann").get_conversation, conversation.id)
    texts = [item.item.text for item in served.call(opened.items)]
    assert texts == ["Weather?", "Sunny.", "And now?", "Rainy."]
    assert opened.instructions == "Be brief."
    stored = client.responses.retrieve(found.id.replace("chatcmpl-", "resp_"))
    assert stored.output_text == "Rainy."
    with pytest.raises(openai.NotFoundError, match="with resp_ in place of chatcmpl-"):
        client.chat.completions.retrieve(found.id)


def test_usage_is_in_a_stream_that_asks_for_it(served: Any, one: Scripted) -> None:
    client = in_front_of(served, one)
    for more, count in (({}, 0), ({"stream_options": {"include_usage": True}}, 1)):
        one.will_say("Hi.")
        chunks = chunks_of(client, model=one.format, messages=HI, **more)
        assert sum(chunk.usage is not None for chunk in chunks) == count
        assert chunks[0].choices[0].delta.role == "assistant"
        assert all(chunk.choices[0].finish_reason is None for chunk in chunks[: -1 - count])


def test_thoughts_pictures_and_refusals_have_their_places(served: Any) -> None:
    thinking = Scripted("messages")
    events = script("messages", ["Sunny."])
    block = {"type": "thinking", "thinking": "", "signature": ""}
    delta = {"type": "thinking_delta", "thinking": "Look."}
    thought = [
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
    ]
    said = [{**event, "index": 1} if "index" in event else event for event in events[1:]]
    for _ in range(2):
        thinking.scripts.append([events[0], *thought, *said])
    client = in_front_of(served, thinking)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    asked: Any = {
        "model": "messages",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, picture]}],
    }
    message: Any = client.chat.completions.create(**asked).choices[0].message
    assert (message.content, message.reasoning_content) == ("Sunny.", "Look.")
    deltas: list[Any] = [chunk.choices[0].delta for chunk in chunks_of(client, **asked)]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "Look."
    assert thinking.payloads[0]["messages"][0]["content"][1]["source"]["media_type"] == "image/png"


FILTERED = {
    "chat_completion": ('"finish_reason": "stop"', '"finish_reason": "content_filter"'),
    "messages": ('"stop_reason": "end_turn"', '"stop_reason": "refusal"'),
    "gemini": ('"finishReason": "STOP"', '"finishReason": "SAFETY"'),
    "converse": ('"stopReason": "end_turn"', '"stopReason": "guardrail_intervened"'),
}


@pytest.mark.parametrize("format_", FILTERED)
def test_what_a_filter_stops_ends_as_at_openai(served: Any, format_: str) -> None:
    """And not with an error, after which clients would ask again."""
    one = Scripted(format_)
    client = in_front_of(served, one)
    events = json.loads(json.dumps(script(format_, ["I would"])).replace(*FILTERED[format_]))
    asked: Any = {"model": format_, "messages": HI}
    one.scripts.append(events)
    choice = client.chat.completions.create(**asked).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("I would", "content_filter")
    one.scripts.append(events)
    assert chunks_of(client, **asked)[-1].choices[0].finish_reason == "content_filter"
    one.scripts.append(events)
    *_, end = client.responses.create(model=format_, input="Hi", stream=True)
    assert end.type == "response.incomplete"
    for response in (end.response, client.responses.retrieve(end.response.id)):
        assert (response.status, response.output_text, response.error) == ("incomplete", "I would", None)
        assert response.to_dict()["incomplete_details"] == {"reason": "content_filter"}
    assert [row.status for row in served.call(served.store.usage, by=("status",))] == ["failed"]


def test_a_custom_tool_is_a_function_for_others(served: Any) -> None:
    """And its calls come back as they were asked for."""
    one = Scripted("messages")
    client = in_front_of(served, one)
    tools: Any = [{"type": "custom", "custom": {"name": "look", "description": "Look."}}]
    one.will_say("Hm.", calls=True)
    found = client.chat.completions.create(model="messages", messages=HI, tools=tools)
    calls: Any = found.choices[0].message.tool_calls
    [call] = calls
    assert (call.type, call.id) == ("custom", "call_1")
    call = {"id": "call_1", "type": "custom", "custom": {"name": "look", "input": "Paris"}}
    said: Any = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Rain."},
    ]
    one.will_say("It rains.")
    client.chat.completions.create(model="messages", messages=[*HI, *said], tools=tools)
    use = one.payloads[-1]["messages"][1]["content"][0]
    assert (use["name"], use["input"]) == ("look", {"input": "Paris"})


def test_what_is_not_sent_is_named(served: Any) -> None:
    one = Scripted("messages")
    one.will_say("Hi.")
    client = in_front_of(served, one)
    more: Any = {"seed": 1, "logit_bias": {"1": 1}}
    raw = client.chat.completions.with_raw_response.create(model="messages", messages=HI, **more)
    losses = raw.headers["x-threadkeep-losses"]
    assert [word in losses for word in ("seed", "logit_bias")] == [True, True]
    with pytest.raises(openai.BadRequestError, match="seed"):
        client.chat.completions.create(
            model="messages", messages=HI, seed=1, extra_headers={"x-threadkeep-strict": "true"}
        )


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"n": 2}, "n"), ({"messages": "Hi"}, "messages"), ({"stream": 1}, "stream"), ({"store": "yes"}, "store"),
        ({"model": "unknown"}, "model"), ({"messages": [1]}, None),
        ({"stream": True, "stream_options": []}, "stream_options"), ({"tools": [{}] * 600}, "tools"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_answered_is_refused(
    served: Any, one: Scripted, more: dict[str, Any], param: str | None
) -> None:
    client = in_front_of(served, one)
    with pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(**{"model": one.format, "messages": HI, **more})
    assert refused.value.status_code in (400, 404)
    assert param is None or refused.value.param == param
    assert one.payloads == []


def test_how_an_answer_ends(served: Any, one: Scripted) -> None:
    """At a limit; refused; broken off, before or after its client has seen something."""
    client = in_front_of(served, one)
    cut = script(one.format, ["At"])
    cut[-2]["choices"][0]["finish_reason"] = "length"
    one.scripts += [cut, [UpstreamError(429, None, "Slow down.")], [*script(one.format, ["At"])[:2]]]
    asked: Any = {"model": one.format, "messages": HI}
    assert client.chat.completions.create(**asked).choices[0].finish_reason == "length"
    with pytest.raises(openai.RateLimitError, match=r"Slow down\."):
        client.chat.completions.create(**asked)
    with pytest.raises(openai.InternalServerError, match="broke off"):
        client.chat.completions.create(**asked)
    one.scripts += [[*script(one.format, ["At"])[:2], UpstreamError(500, None, "Gone.")]]
    chunks = iter(client.chat.completions.create(stream=True, **asked))
    assert [next(chunks).choices[0].delta.content for _ in range(2)] == ["", "At"]
    with pytest.raises(openai.APIError, match="broke off"):
        next(chunks)
    assert bill_of(served, "status") == [("failed", 1, None), ("incomplete", 3, 18)]
