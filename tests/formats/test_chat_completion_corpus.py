"""Recorded traffic of Chat Completions: requests go back as they came, streams assemble, conversations go on."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

from tests.corpus import assembled, links, plain, recorded, response_of, strings
from tests.formats.spelling_chat_completion import levelled
from threadkeep.domain.session import Session
from threadkeep.formats import get_format

Json = dict[str, Any]
NAME: Final = "chat_completion"
FORMAT = get_format(NAME)
# constants of the wire that follow from the type of the item they became
SPOKEN_FOR = ("assistant", "function")
REASONING = ("reasoning_content", "reasoning", "reasoning_details")


def test_nearly_all_requests_keep_their_spelling() -> None:
    """Only nulls, and lists that are the same as none, are not sent again."""
    requests = [one["request"] for one in recorded(NAME).values()]
    found = [request == FORMAT.render(FORMAT.parse_request(request)).payload for request in requests]
    assert sum(found) >= 0.97 * len(found)


# Streams


def streams() -> list[Json]:
    """Recorded streams."""
    return [one for one in recorded(NAME).values() if one["events"]]


def test_streams_assemble_and_lose_nothing() -> None:
    for one in streams():
        before = copy.deepcopy(one["events"])
        response = response_of(one)
        usage = response.usage.raw if response.usage else {}
        items = [item.to_object() for item in response.output]
        kept = "\n".join(strings([items, response.provider_data, usage, response.to_dict()]))
        deltas = [choice.get("delta") for event in one["events"] for choice in event.get("choices") or []]
        assert {text for text in strings(deltas) if text not in SPOKEN_FOR and text not in kept} == set(), one["id"]
        assert one["events"] == before, one["id"]


def test_streams_end_with_the_status_that_the_provider_told() -> None:
    for one in streams():
        made = assembled(one["events"], NAME)
        words = [
            choice["finish_reason"]
            for event in one["events"]
            for choice in event.get("choices") or []
            if choice.get("finish_reason")
        ]
        assert made.is_ended is bool(words), one["id"]
        has_error = any("error" in event for event in one["events"])
        wanted = "failed" if has_error else "incomplete" if words[-1] == "length" else "completed"
        assert made.response.status == wanted, one["id"]
        assert made.response.finish_reason == (words[-1] if words else None), one["id"]


def test_a_stream_says_what_the_same_body_says_in_one_piece() -> None:
    for one in streams():
        made = assembled(one["events"], NAME)
        if made.error is None:
            assert made.response == FORMAT.parse_response(made.body), one["id"]


# Chains: one request, its recorded answer, and what the client sent next


def answered(one: Json) -> Session:
    """The conversation of a request and its recorded answer."""
    session = FORMAT.parse_request(one["request"])
    session.add_response(response_of(one) if one["events"] else one["response"], NAME)
    return session


def level(text: str) -> str:
    """A text without typographic characters, which some recordings replace, and without space around it."""
    return plain(text).strip()


def outline(message: Json) -> Json:
    """What a message says: text, media, calls and what they answer, with signatures."""
    content = message.get("content") or []
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    calls = message.get("tool_calls") or []
    return {
        "role": message["role"],
        "text": level("".join(part["text"] for part in parts if part["type"] == "text")),
        "parts": [part for part in parts if part["type"] not in ("text", "thinking")],
        "calls": [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls],
        "signatures": [call.get("extra_content") for call in calls],
        "answers": message.get("tool_call_id"),
    }


def test_a_conversation_goes_on_as_its_client_went_on() -> None:
    for one, after, link in links(NAME):
        count = len(one["request"]["messages"])
        echo, *inputs = after["request"]["messages"][count:]
        if link.get("model_turns") or link["echo"] == "none":  # the client wrote turns of its own
            continue
        session = answered(one)
        for turn in FORMAT.parse_turns(inputs):
            session.add_items(turn, turn=session.new_turn())
        sent = session.render(NAME).payload["messages"]
        assert [outline(message) for message in sent[count + 1 :]] == [outline(m) for m in inputs], after["id"]
        if link["echo"] == "full":
            assert outline(sent[count]) == outline(echo), after["id"]
        assert levelled({"messages": sent[:count]}) == levelled({"messages": one["request"]["messages"]}), after["id"]


def test_reasoning_and_signatures_go_back() -> None:
    """What clients send back of them is in what is sent back here, though they may choose another key."""
    for one, after, link in links(NAME):
        count = len(one["request"]["messages"])
        if link["echo"] == "full":
            sent = answered(one).render(NAME).payload["messages"][count]
            kept = {level(text) for text in strings([sent.get(key) for key in REASONING])}
            echo = after["request"]["messages"][count]
            assert {level(text) for text in strings([echo.get(key) for key in REASONING])} <= kept | {""}, after["id"]
