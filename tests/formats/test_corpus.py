"""Recorded traffic of all providers: requests go back as they came, nothing of an answer is lost, tokens add up."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest

from tests.corpus import errors, level, recorded, response_of, session_of, strings
from tests.formats import validity, validity_converse, validity_gemini, validity_interactions, validity_messages
from tests.formats.sdk_trials import LEVELS
from tests.wires import SPOKEN
from threadkeep.domain.response import Response
from threadkeep.errors import CannotRender, ProviderError
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.canonical.entries import Snapshot, entry_of

Json = dict[str, Any]
FORMATS: Final[tuple[FormatName, ...]] = ("open_responses", "chat_completion")
HEARD = {"user", "assistant"}
REFUSED: Final[dict[str, Callable[[Json, str | None], list[str]]]] = {
    "open_responses": lambda payload, _: validity.refused(payload, "open_responses"),
    "chat_completion": lambda payload, _: validity.refused(payload, "chat_completion"),
    "messages": lambda payload, _: validity_messages.refused(payload),
    "gemini": validity_gemini.refused,
    "interactions": lambda payload, _: validity_interactions.refused(payload),
    "converse": lambda payload, _: validity_converse.refused(payload),
}
# constants of the wire that follow from the type of the item they became
SPOKEN_FOR = {"", "assistant", "function"}


def answers(format_name: FormatName) -> list[tuple[str, dict[str, Any], Response]]:
    """Recorded bodies and how they are read."""
    wire_format = get_format(format_name)
    bodies = [(name, one["response"]) for name, one in recorded(format_name).items()]
    return [(name, body, wire_format.parse_response(body)) for name, body in bodies if isinstance(body, dict)]


@pytest.mark.share(3)
@pytest.mark.parametrize("format_name", SPOKEN)
def test_requests_go_back_as_they_came(format_name: FormatName) -> None:
    wire, level = get_format(format_name), LEVELS[format_name]
    for name, one in recorded(format_name).items():
        before = copy.deepcopy(one["request"])
        for session in (session_of(one), wire.parse_request(one["request"])):
            rendered = session.render(format_name)
            assert level(dict(rendered.payload)) == level(one["request"]), name
            assert (rendered.losses, rendered.repairs) == ([], []), name
            assert json.loads(rendered.body) == rendered.payload, name
        assert one["request"] == before, name


@pytest.mark.share(3)
@pytest.mark.parametrize("format_name", SPOKEN)
def test_any_cut_of_a_conversation_is_as_valid_as_its_request(format_name: FormatName) -> None:
    level, refused = LEVELS[format_name], REFUSED[format_name]
    for name, one in recorded(format_name).items():
        session = session_of(one)
        if format_name != "open_responses":  # whose answers may have ids that their vendor alone takes
            with suppress(ProviderError):
                session.add_response(response_of(one))
        allowed = {fault.partition(":")[0] for fault in refused(level(one["request"]), session.model)}
        for position in range(len(session.items)):
            try:
                payload = session.request_payload(format_name, upto=position)
            except CannotRender:
                heard = [item for item in session.items[: position + 1] if getattr(item, "role", None) in HEARD]
                assert heard == [], (name, position)
            else:
                faults = refused(level(payload), session.model)
                assert {fault.partition(":")[0] for fault in faults} <= allowed, (name, position)


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
    for name, one in errors(*SPOKEN).items():
        with pytest.raises(ProviderError) as raised:
            get_format(one["format"]).parse_response(one["response"])
        assert raised.value.message, name
        assert raised.value.type or one["format"] != "gemini", name
        assert one["format"] != "converse" or raised.value.message == one["response"]["message"], name
