"""Recorded traffic of Converse: requests go back as they came, nothing of an answer is lost, conversations go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tests.corpus import assembled, chains, plain, recorded, response_of, session_of, strings, words
from tests.formats.spelling_converse import joined
from tests.formats.validity_converse import refused
from threadkeep.formats import get_format

NAME: Final = "converse"
FORMAT = get_format(NAME)
# constants of the wire that follow from the type of the item they became
SPOKEN_FOR = {"assistant", "tool_use"}
# what the recorded requests break themselves: Claude takes an assistant message first
ACCEPTED = {"converse.first-user"}
Json = dict[str, Any]


def test_a_request_goes_back_with_the_model_of_its_path_or_without() -> None:
    for name, one in recorded(NAME).items():
        session = session_of(one)
        assert session.request_payload(NAME)["modelId"] == session.model, name
        assert "modelId" not in FORMAT.parse_request(one["request"]).request_payload(NAME), name


def test_nothing_of_an_answer_is_lost() -> None:
    for name, one in recorded(NAME).items():
        if one["response"] is None:
            continue
        response = response_of(one)
        usage = response.usage.raw if response.usage else {}
        items = [item.to_object() for item in response.output]
        kept = {*words(items), *words(response.provider_data), *strings(usage), response.finish_reason, ""}
        assert {text for text in strings(one["response"]) if text not in kept} <= SPOKEN_FOR, name


def test_input_and_output_are_the_total() -> None:
    for name, one in recorded(NAME).items():
        usage = response_of(one).usage
        assert usage is not None, name
        figures = usage.normalized
        assert figures.total_tokens == usage.total_tokens, name
        assert figures.input_tokens is not None, name
        assert figures.output_tokens is not None, name
        assert figures.input_tokens + figures.output_tokens == figures.total_tokens, name
        assert (figures.cached_tokens or 0) + (figures.cache_write_tokens or 0) <= figures.input_tokens, name


def test_streams_end_completed() -> None:
    for name, one in recorded(NAME).items():
        if one["events"] is not None:
            response = response_of(one)
            said = "".join(text for event in one["events"] if (text := delta_of(event).get("text")))
            assert response.finish_reason in ("end_turn", "tool_use", "max_tokens", "guardrail_intervened"), name
            assert (response.output_text or "") == said, name
            assert response.usage is not None, name


def delta_of(event: Json) -> Json:
    delta: Json = event.get("contentBlockDelta", {}).get("delta", {})
    return delta


def test_a_streamed_answer_is_what_the_body_says() -> None:
    """Every recorded body, cut into events, gives the response of the body."""
    for name, one in recorded(NAME).items():
        if one["response"] is not None:
            made = assembled(events_of(one["response"]), NAME)
            assert made.response == FORMAT.parse_response(one["response"]), name


def events_of(body: Json) -> Iterator[Json]:
    """The events in which the service streams a body."""
    message = body["output"]["message"]
    yield {"messageStart": {"role": message["role"], "p": "abc"}}
    for index, block in enumerate(message["content"]):
        for name, payload in block_events(block):
            yield {name: {"contentBlockIndex": index, **payload, "p": "abc"}}
        yield {"contentBlockStop": {"contentBlockIndex": index, "p": "abc"}}
    yield {"messageStop": {"stopReason": body["stopReason"], "p": "abcd"}}
    yield {"metadata": {key: value for key, value in body.items() if key not in ("output", "stopReason")}}


def block_events(block: Json) -> Iterator[tuple[str, Json]]:
    (kind,) = block
    match block:
        case {"text": text}:
            deltas = [{"text": text[:3]}, {"text": text[3:]}]
        case {"toolUse": {"input": given, **call}}:
            yield "contentBlockStart", {"start": {"toolUse": call}}
            text = json.dumps(given)
            deltas = [{"toolUse": {"input": text[:2]}}, {"toolUse": {"input": text[2:]}}]
        case {"reasoningContent": {"reasoningText": text}}:
            deltas = [{kind: {"text": text["text"]}}]
            deltas += [{kind: {"signature": text["signature"]}}] if "signature" in text else []
        case {"citationsContent": {"content": [{"text": text}], "citations": citations}}:
            deltas = [{"text": text}, *({"citation": one} for one in citations)]
        case _:
            deltas = [block]
    for delta in deltas:
        yield "contentBlockDelta", {"delta": delta}


# Chains: one request, its recorded answer, and what the client sent next


def level(thing: Any) -> Any:
    """A value as chains are compared: without cache marks, and without typographic characters."""
    if isinstance(thing, dict):
        return {key: level(value) for key, value in thing.items()}
    if isinstance(thing, list):
        return [level(one) for one in thing if not (isinstance(one, dict) and "cachePoint" in one)]
    return plain(thing) if isinstance(thing, str) else thing


def test_conversations_go_on_as_they_did() -> None:
    for interactions, links in chains(NAME):
        session = session_of(interactions[0])
        for before, following, link in zip(interactions, interactions[1:], links, strict=False):
            session.add_response(response_of(before))
            messages = following["request"]["messages"]
            new = messages[len(before["request"]["messages"]) + 1 :]
            for turn in FORMAT.parse_turns(new):
                session.add_items(turn, turn=session.new_turn())
            sent = session.request_payload(NAME)
            assert refused(sent) == [], following["id"]
            if link["echo"] == "full":
                assert level(joined(sent["messages"])) == level(joined(messages)), following["id"]
