"""Recorded answers of real providers: all are understood, nothing of them is lost, and their tokens add up."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.corpus import errors, level, recorded, strings
from threadkeep.domain.response import Response
from threadkeep.errors import ProviderError
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.canonical.entries import Snapshot, entry_of

FORMATS: Final[tuple[FormatName, ...]] = ("open_responses", "chat_completion")
# constants of the wire that follow from the type of the item they became
SPOKEN_FOR = {"", "assistant", "function"}


def answers(format_name: FormatName) -> list[tuple[str, dict[str, Any], Response]]:
    """Recorded bodies and how they are read."""
    wire_format = get_format(format_name)
    bodies = [(name, one["response"]) for name, one in recorded(format_name).items()]
    return [(name, body, wire_format.parse_response(body)) for name, body in bodies if isinstance(body, dict)]


@pytest.mark.parametrize("format_name", FORMATS)
def test_nothing_of_an_answer_is_lost(format_name: FormatName) -> None:
    for name, body, response in answers(format_name):
        usage = response.usage.raw if response.usage else {}
        items = [item.to_object() for item in response.output]
        kept = {*strings(response.to_dict()), *strings(items), *strings(usage), response.finish_reason}
        assert {text for text in strings(body) if text not in kept} <= SPOKEN_FOR, name


@pytest.mark.parametrize("format_name", FORMATS)
def test_input_and_output_are_the_total(format_name: FormatName) -> None:
    for name, _, response in answers(format_name):
        if response.usage is not None:
            usage = response.usage.normalized
            assert usage.input_tokens is not None, name
            assert usage.output_tokens is not None, name
            assert usage.input_tokens + usage.output_tokens == usage.total_tokens, name
            if format_name != "chat_completion":  # where xAI on Azure states more cached tokens than input
                assert (usage.cached_tokens or 0) <= usage.input_tokens, name
            assert (usage.reasoning_tokens or 0) <= usage.output_tokens, name


def test_items_go_back_to_open_responses_as_they_came() -> None:
    for name, body, response in answers("open_responses"):
        entries = [entry_of(item.to_object(), position=place) for place, item in enumerate(response.output)]
        assert level([json.loads(entry.payload or b"null") for entry in entries]) == level(body["output"]), name
        assert all(entry.rest is None for entry in entries), name


def test_messages_go_back_to_chat_completions_as_they_came() -> None:
    for name, body, response in answers("chat_completion"):
        message = (body["choices"] or [{}])[0].get("message")
        if not message or not response.output:
            continue
        entries = [entry_of(item.to_object(), position=place, turn=1) for place, item in enumerate(response.output)]
        snapshot = Snapshot({"model": "m"}, [], entries)
        sent, *tools = get_format("chat_completion").render(snapshot).payload["messages"]
        assert [tool["role"] for tool in tools] == ["tool"] * len(message.get("tool_calls") or [])
        assert spelled(sent) == spelled(message), name


def spelled(message: dict[str, Any]) -> dict[str, Any]:
    """A message in one spelling: content as parts, calls with their type, nothing that is empty."""
    found = {key: value for key, value in level(message).items() if value not in ("", []) and not is_hollow(value)}
    if isinstance(found.get("content"), str):
        found["content"] = [{"type": "text", "text": found["content"]}]
    calls = found.get("tool_calls") or []
    for call in calls:
        call.setdefault("type", "function")
        call.pop("index", None)
    if any(is_hollow(call.get("custom")) for call in calls):
        found["tool_calls"] = [{key: value for key, value in call.items() if key != "custom"} for call in calls]
    return found


def is_hollow(value: Any) -> bool:
    """Whether an object holds nothing but empty values."""
    return isinstance(value, dict) and not any(strings(value)) and not any(type(v) is int and v for v in value.values())


def test_errors_of_all_vendors_are_told() -> None:
    for name, one in errors(*FORMATS).items():
        with pytest.raises(ProviderError) as raised:
            get_format(one["format"]).parse_response(one["response"])
        assert raised.value.message, name
