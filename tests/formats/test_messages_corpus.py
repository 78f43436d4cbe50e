"""Recorded traffic of the Messages API: requests come back, answers lose nothing, conversations go on as recorded."""

from __future__ import annotations

import gzip
import json
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from anthropic.types.beta import BetaMessageParam
from pydantic import TypeAdapter

from tests.formats.spelling_messages import usual
from tests.formats.test_corpus import CORPUS, strings
from tests.formats.test_sdk_types import forced
from tests.formats.validity_messages import MESSAGES
from threadkeep.domain.rendering import RenderOptions
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.formats import get_format
from threadkeep.formats.canonical.snapshots import snapshot_of

WIRE = get_format("messages")
MESSAGE: TypeAdapter[Any] = TypeAdapter(BetaMessageParam)
# constants of the wire that follow from the type of the item they became
SPOKEN_FOR = {"", "assistant", "text"}
# where the client did not send back what the service had said: it left citations out
REWRITTEN = {"pydantic-ai/models/test_anthropic/test_anthropic_web_search_tool#1"}
TYPED = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014", "''\"\"--")  # the recorder wrote others, see its notes


@cache
def recorded() -> dict[str, Any]:

    path = CORPUS / "messages.jsonl.gz"
    if not path.exists():
        pytest.skip(f"there is no recorded traffic in {CORPUS}; set THREADKEEP_CORPUS")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return {one["id"]: one for one in map(json.loads, lines)}


@cache
def chains() -> list[Any]:
    path = CORPUS / "chains.jsonl"
    if not path.exists():
        pytest.skip(f"there is no recorded traffic in {CORPUS}; set THREADKEEP_CORPUS")
    with path.open(encoding="utf-8") as lines:
        return [one for one in map(json.loads, lines) if one["format"] == "messages"]


def body_of(one: dict[str, Any]) -> dict[str, Any]:
    """The recorded body, or the one that the recorded stream makes."""
    if one["events"] is None:
        found: dict[str, Any] = one["response"]
        return found
    assembler = WIRE.assembler()
    for event in one["events"]:
        assembler.feed(event)
    assert assembler.response == WIRE.parse_response(assembler.body)
    assert assembler.response.completed, one["id"]
    return assembler.body


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


def test_every_request_comes_back() -> None:
    for name, one in recorded().items():
        rendered = WIRE.render(WIRE.parse_request(one["request"]))
        assert usual(rendered.payload) == usual(one["request"]), name
        assert (rendered.losses, rendered.repairs) == ([], []), name


def test_nothing_of_an_answer_is_lost() -> None:
    for name, one in recorded().items():
        body = body_of(one)
        kept = set(all_strings(WIRE.parse_response(body)))
        assert {text for text in strings(body) if text not in kept} <= SPOKEN_FOR, name


def test_usage_adds_up() -> None:
    for name, one in recorded().items():
        body = body_of(one)
        usage = WIRE.parse_response(body).usage
        assert usage is not None
        found, raw = usage.normalized, body["usage"]
        cached = (raw.get("cache_read_input_tokens") or 0) + (raw.get("cache_creation_input_tokens") or 0)
        assert found.input_tokens == raw["input_tokens"] + cached, name
        assert found.total_tokens == raw["input_tokens"] + cached + raw["output_tokens"], name
        assert (found.reasoning_tokens or 0) <= raw["output_tokens"], name


def level(thing: Any) -> Any:
    """A value as chains are compared: without nulls, marks and callers, and with typographic characters levelled."""
    if isinstance(thing, str):
        return unicodedata.normalize("NFKC", thing.translate(TYPED))
    if isinstance(thing, dict):
        kept = {key: value for key, value in thing.items() if value is not None}
        return {key: level(value) for key, value in kept.items() if key not in ("cache_control", "caller")}
    return [level(value) for value in thing] if isinstance(thing, list) else thing


def test_conversations_go_on_as_recorded() -> None:
    """The answer and the new turns, appended to the request before, give the next recorded request."""
    rows, different = recorded(), set()
    for chain in chains():
        for name, after in zip(chain["ids"], chain["ids"][1:], strict=False):
            if chain_is_cut(rows, name, after):
                continue
            session, later = answered(rows[name]), rows[after]["request"]["messages"]
            _, *turns = later[len(rows[name]["request"]["messages"]) :]
            for turn in WIRE.parse_turns([one for one in turns if one["role"] != "assistant"]):
                session.add_items(turn, turn=session.new_turn())
            sent = WIRE.render(session).payload
            if level(usual(sent)["messages"]) != level(usual(rows[after]["request"])["messages"]):
                different.add(after)
    assert different <= REWRITTEN


def chain_is_cut(rows: dict[str, Any], name: str, after: str) -> bool:
    """Whether a client put assistant turns of its own behind the answer."""
    news = rows[after]["request"]["messages"][len(rows[name]["request"]["messages"]) :]
    return [one["role"] for one in news].count("assistant") != 1


def test_every_cut_of_every_conversation_is_valid() -> None:
    for name, one in recorded().items():
        snapshot = snapshot_of(answered(one))
        for upto in range(len(snapshot.entries)):
            payload = WIRE.render(snapshot, RenderOptions(upto=upto)).payload
            assert [broken for rule in MESSAGES for broken in rule(payload)] == [], (name, upto)
            forced(MESSAGE.validate_python(payload["messages"][-1]))


def test_the_stable_part_of_a_request_is_in_the_next() -> None:
    rows = recorded()
    for name, one in rows.items():
        session = WIRE.parse_request(one["request"])
        before = WIRE.render(session)
        session.add_response(WIRE.parse_response(body_of(one)))
        after = WIRE.render(session).payload["messages"]
        assert after[: before.stable] == before.payload["messages"][: before.stable], name
        assert before.stable >= len(before.payload["messages"]) - 2, name
