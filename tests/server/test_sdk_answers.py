"""Answers of every type that the vendors' SDKs have, sent through the server and read by OpenAI's own types.

What web clients make of their streams is what they load later. The types are taken at their word (`sdk_strict`): no
unknown keys, no other types, nothing left out. A quick run takes the least value of each type, and a share of the
others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from zlib import crc32

import pytest

from tests.conftest import MATRIX
from tests.formats.sdk_samples import Element, body, elements
from tests.formats.sdk_streams import events_of, has_events
from tests.formats.sdk_strict import refused
from tests.server import test_chats, test_runs
from tests.server.scripts import Scripted
from tests.server.test_rest import Rest
from threadkeep.domain.jsontext import loads

pytestmark = [pytest.mark.sampled, pytest.mark.share(3), pytest.mark.one_database]

Json = dict[str, Any]

IS_WHOLE: Final = MATRIX != "quick"
SHARE: Final = 48  # of the samples beyond the least, a quick run has one in so many
SOURCES: Final = (
    "openai.responses.output", "openai.chat.response", "anthropic.messages.response", "anthropic.beta.response",
    "google.response", "google.interactions.response", "bedrock.response",
)  # fmt: skip
# keys that Open Responses requires of a response, and OpenAI's types do not have
OPEN: Final = frozenset({"frequency_penalty", "presence_penalty", "store"})
ANSWERED: Final = frozenset({"status", "created_by"})  # keys of an output of a custom tool that answers alone have
SUMMARY: Final = frozenset({"summary", "upto"})  # keys of a compaction that threadkeep made


def answers(source: str) -> Iterator[tuple[str, Element, Json]]:
    """The bodies with a value of each type, and what they are called."""
    for element in elements():
        if element.is_answer and element.source == source:
            turn = crc32(element.name.encode())
            for number, sample in enumerate(element.samples()):
                if number == 0 or IS_WHOLE or (number + turn) % SHARE == 0:
                    yield sample.label, element, body(element, element.hold(sample.value)[1])


def bare(value: Any) -> Any:
    """A value without the keys that are not in OpenAI's types."""
    if isinstance(value, list):
        return [bare(one) for one in value]
    if not isinstance(value, dict):
        return value
    others = OPEN if value.get("object") == "response" else SUMMARY if value.get("type") == "compaction" else ()
    return {key: bare(one) for key, one in value.items() if key not in others}


def wrong(value: Json, root: str) -> list[str]:
    return [f"{root}: {error}" for error in refused(bare(value), root)]


def errors_of(http: Any, scripted: Scripted, events: list[Json]) -> Iterator[str]:
    """What OpenAI's types refuse of an answer: its events, the response, and the items of its conversation."""
    scripted.scripts = [events]
    answer = http.post("/responses", json={"model": "any", "input": "Hi", "stream": True})
    assert answer.status_code == 200, answer.text
    sent = [loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]
    for event in sent:
        yield from wrong(event, "openai.responses.event")
    last = sent[-1]["response"]
    stored = http.get(f"/responses/{last['id']}").json()
    yield from wrong(stored, "openai.responses.response")
    if stored["output"] != last["output"]:
        yield "the stored output is another one"
    items = http.get(f"/conversations/{last['conversation']['id']}/items?limit=100").json()["data"]
    for one in items:
        item = one
        if item["type"] == "custom_tool_call_output":
            item = {key: value for key, value in item.items() if key not in ANSWERED}
        yield from wrong(item, "openai.conversations.item")
    if "provider_item" in answer.text.replace("provider_item_", "") or "provider_item" in str(items):
        yield "a provider_item is sent"


@pytest.mark.parametrize("source", SOURCES)
def test_every_answer_is_one_that_openais_client_reads(served: Any, source: str) -> None:
    found, tried = [], 0
    format_ = next(element.format_name for element in elements() if element.source == source)
    scripted = Scripted(format_)
    http = served.http(upstreams={"*": scripted.upstream})
    for label, element, answer in answers(source):
        if has_events(answer, element.format_name):
            tried += 1
            found += [(label, error) for error in errors_of(http, scripted, events_of(answer, element.format_name))]
    assert tried > 0
    assert found == []


@pytest.mark.parametrize("source", SOURCES)
def test_pages_and_agents_see_of_every_answer_what_they_load_later(served: Any, source: str) -> None:
    scripted = Scripted(next(element.format_name for element in elements() if element.source == source))
    client = Rest(served, upstreams={"m": scripted.upstream}).of("ann")
    found, tried = [], 0
    for label, element, answer in answers(source):
        if not has_events(answer, element.format_name):
            continue
        tried += 1
        faces = test_chats.Page(client, f"chat-{tried}"), test_runs.Agent(client, f"thread-{tried}")
        for face in faces:
            scripted.scripts = [events_of(answer, element.format_name)]
            face.say("Hi", *([1] if isinstance(face, test_chats.Page) else []))
            if face.load()["messages"] != face.messages:
                found.append((label, type(face).__name__, face.messages[1:], face.load()["messages"][1:]))
    assert tried > 0
    assert found == []
