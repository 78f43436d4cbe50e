"""Recorded traffic of the Messages API: requests come back, answers lose nothing, conversations go on as recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tests.corpus import assembled, links, plain, recorded, strings
from tests.formats.spelling_messages import usual
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.formats import get_format

NAME: Final = "messages"
WIRE = get_format(NAME)
# constants of the wire that follow from the type of the item they became
SPOKEN_FOR = {"", "assistant", "text"}
# where the client did not send back what the service had said: it left citations out
REWRITTEN = {"pydantic-ai/models/test_anthropic/test_anthropic_web_search_tool#1"}


def body_of(one: dict[str, Any]) -> dict[str, Any]:
    """The recorded body, or the one that the recorded stream makes."""
    if one["events"] is None:
        found: dict[str, Any] = one["response"]
        return found
    made = assembled(one["events"], NAME)
    assert made.response == WIRE.parse_response(made.body)
    assert made.response.completed or made.response.finish_reason == "pause_turn", one["id"]
    body: dict[str, Any] = made.body
    return body


def answered(one: dict[str, Any]) -> Session:
    """The recorded request with its answer."""
    session = WIRE.parse_request(one["request"])
    session.add_response(WIRE.parse_response(body_of(one)))
    return session


def all_strings(response: Response) -> Iterator[str]:
    items = [item.to_object() for item in response.output]
    yield from strings([response.to_dict(), items, response.usage.raw if response.usage else {}])
    yield from strings([json.loads(call.arguments) for call in response.tool_calls])
    yield from [response.finish_reason or ""]


def test_nothing_of_an_answer_is_lost() -> None:
    for name, one in recorded(NAME).items():
        body = body_of(one)
        kept = set(all_strings(WIRE.parse_response(body)))
        assert {text for text in strings(body) if text not in kept} <= SPOKEN_FOR, name


def input_of(usage: dict[str, Any]) -> int:
    cached = (usage.get("cache_read_input_tokens") or 0) + (usage.get("cache_creation_input_tokens") or 0)
    return int(usage["input_tokens"] + cached)


def test_usage_adds_up() -> None:
    """The totals of the API, and the iterations that these do not include: compactions and other models."""
    for name, one in recorded(NAME).items():
        body = body_of(one)
        usage = WIRE.parse_response(body).usage
        assert usage is not None
        found, raw = usage.normalized, body["usage"]
        billed = [raw, *(entry for entry in raw.get("iterations") or () if entry["type"] != "message")]
        output = sum(entry["output_tokens"] for entry in billed)
        assert (found.input_tokens, found.output_tokens) == (sum(map(input_of, billed)), output), name
        assert found.total_tokens == sum(map(input_of, billed)) + output, name
        assert (found.reasoning_tokens or 0) <= output, name


def level(thing: Any) -> Any:
    """A value as chains are compared: without nulls, marks and callers, and without typographic characters."""
    if isinstance(thing, str):
        return plain(thing)
    if isinstance(thing, dict):
        kept = {key: value for key, value in thing.items() if value is not None}
        return {key: level(value) for key, value in kept.items() if key not in ("cache_control", "caller")}
    return [level(value) for value in thing] if isinstance(thing, list) else thing


def test_conversations_go_on_as_recorded() -> None:
    """The answer and the new turns, appended to the request before, give the next recorded request."""
    different = set()
    for before, after, _ in links(NAME):
        news = after["request"]["messages"][len(before["request"]["messages"]) :]
        if [one["role"] for one in news].count("assistant") != 1:  # the client put turns of its own behind the answer
            continue
        session, turns = answered(before), news[1:]
        for turn in WIRE.parse_turns([one for one in turns if one["role"] != "assistant"]):
            session.add_items(turn, turn=session.new_turn())
        sent = WIRE.render(session).payload
        if level(usual(sent)["messages"]) != level(usual(after["request"])["messages"]):
            different.add(after["id"])
    assert different <= REWRITTEN


def test_the_stable_part_of_a_request_is_in_the_next() -> None:
    for name, one in recorded(NAME).items():
        session = WIRE.parse_request(one["request"])
        before = WIRE.render(session)
        session.add_response(WIRE.parse_response(body_of(one)))
        after = WIRE.render(session).payload["messages"]
        assert after[: before.stable] == before.payload["messages"][: before.stable], name
        assert before.stable >= len(before.payload["messages"]) - 2, name
