"""Recorded conversations of each format, rendered for the others: valid, and nothing is lost without a report."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.conftest import MATRIX
from tests.corpus import recorded, response_of, session_of, strings
from tests.formats.judges import faults
from tests.wires import SPOKEN
from threadkeep.domain.items import Item
from threadkeep.domain.jsontext import loads
from threadkeep.domain.rendering import RenderOptions
from threadkeep.domain.session import Session
from threadkeep.errors import CannotRender, ProviderError
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.formats.shared.dialects import RESPONSES

Json = dict[str, Any]
pytestmark = [pytest.mark.sampled, pytest.mark.share(3)]

OWN_IDS = RESPONSES["openai"].ids
STEP = 16 if MATRIX == "quick" else 1  # positions, of which one is tried
PAIRS = [(source, target) for source in SPOKEN for target in NAMES if source != target]


@cache
def conversations(name: FormatName) -> list[tuple[str, Session]]:
    """Each recorded request with its answer, and a question after it, under the model of the request."""
    found = []
    for one in recorded(name).values():
        session = session_of(one)
        with contextlib.suppress(ProviderError):
            session.add_response(response_of(one))
        session.user("And what now?")
        found.append((one["id"], session))
    return found


def said(item: Item) -> list[str]:
    """What people can read of an item."""
    thing = item.to_object()
    if thing["type"] == "message":
        return [part["text"] for part in thing["content"] if part.get("text") and part["type"] != "provider_item"]
    if thing["type"].endswith("_output"):
        output = thing.get("output")
        parts = output if isinstance(output, list) else []
        texts = [part["text"] for part in parts if isinstance(part, dict) and part.get("text")]
        return [output] if isinstance(output, str) else texts
    if is_summary(item):
        return [str(thing["summary"])]
    return [thing["name"]] if thing["type"] == "function_call" else []


def is_summary(item: Item) -> bool:
    """Whether an item is the readable summary of what is before it, which a provider made."""
    return item.type == "compaction" and bool(item.to_object().get("summary"))


def is_said_by_somebody(item: Item) -> bool:
    """Whether an item is content of the user or the assistant; an output alone has no call to answer."""
    thing = item.to_object()
    return thing["type"] == "function_call" or (thing.get("role") in {"user", "assistant"} and bool(said(item)))


def unsaid(session: Session, target: str, payload: Json, reported: set[int | None]) -> list[str]:
    """Texts that are neither in the payload nor reported."""
    everything = list(strings(payload))
    known = {*everything, *(text for one in everything for text in inner_texts(one))}
    whole = "\n".join(known)
    missing = []
    first = max((position for position, item in enumerate(session.items) if is_summary(item)), default=0)
    for position, item in enumerate(session.items[first:], first):  # a summary stands for what is before it
        for text in said(item):
            is_there = not text.strip() or text in known or text in whole or same_json(text, payload)
            if not is_there and position not in reported:
                missing.append(f"{item.type} at {position}: {text[:80]!r}")
    return missing


def inner_texts(text: str) -> Iterator[str]:
    """The texts in a JSON text."""
    if text[:1] in "{[":
        try:
            yield from strings(json.loads(text))
        except ValueError:
            return


def same_json(text: str, payload: Any) -> bool:
    """Whether a text is JSON of a value that the payload holds."""
    try:
        value = loads(text)
    except ValueError:
        return False
    return isinstance(value, dict | list) and holds(payload, value)


def holds(thing: Any, value: Any) -> bool:
    if thing == value:
        return True
    inner = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list) else ()
    return any(holds(one, value) for one in inner)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_recorded_conversations_go_to_other_providers(source: FormatName, target: FormatName) -> None:
    wire = get_format(target)
    wrong: dict[str, list[str]] = {}
    some = slice(NAMES.index(target) % 4, None, 4) if MATRIX == "quick" else slice(None)
    for name, session in conversations(source)[some]:
        rendered = wire.render(session)
        reported = {one.position for one in rendered.losses} | {one.position for one in rendered.repairs}
        broken = faults(rendered.payload, target) + unsaid(session, target, rendered.payload, reported)
        if broken:
            wrong[name] = broken
    assert wrong == {}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_any_cut_of_a_recorded_conversation_is_valid(source: FormatName, target: FormatName) -> None:
    wire = get_format(target)
    wrong: dict[tuple[str, int], list[str]] = {}
    for number, (name, session) in enumerate(conversations(source)):
        for position in range(number % STEP, len(session.items), STEP):
            try:
                payload = wire.render(session, RenderOptions(upto=position)).payload
            except CannotRender:
                assert not any(map(is_said_by_somebody, session.items[: position + 1])), (name, position)
                continue
            if broken := faults(payload, target, session.model):
                wrong[name, position] = broken
    assert wrong == {}


def test_recorded_answers_of_any_vendor_go_to_openai() -> None:
    """The Responses API takes no ids of others, Chat Completions no keys that only others have."""
    wrong: dict[str, list[str]] = {}
    for format_name in ("open_responses", "chat_completion"):
        for name, session in conversations(format_name):
            payload = get_format(format_name).render(session, RenderOptions(dialect="openai")).payload
            items = payload.get("input", ())
            broken = [
                item["id"]
                for item in items
                if "id" in item and not item["id"].startswith(OWN_IDS.get(item.get("type"), ""))
            ]
            for message in payload.get("messages", ()):
                unknown = message.keys() - {
                    "role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "annotations",
                    "function_call",
                }  # fmt: skip
                broken += sorted(unknown)
            if broken:
                wrong[name] = broken
    assert wrong == {}


@pytest.mark.parametrize("target", [name for name in NAMES if name != "messages"])
def test_keys_that_only_the_format_of_an_import_has_are_reported(target: FormatName) -> None:
    request = {"model": "m", "max_tokens": 5, "container": "c1", "messages": [{"role": "user", "content": "Hi"}]}
    session = get_format("messages").parse_request(request)
    assert "container" not in str(session.request_payload(target))
    assert ("native", "extra.messages.container") in {(one.code, one.path) for one in session.render(target).losses}
    assert session.render("messages").losses == []
