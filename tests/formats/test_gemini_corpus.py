"""Recorded traffic of Gemini: requests go back as they came, nothing of an answer is lost, conversations go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import pytest

from tests.corpus import NO_SIGNATURE, chains, plain, recorded, response_of, session_of, strings, words
from tests.formats.spelling_gemini import leveled
from tests.formats.validity_gemini import refused
from threadkeep.domain.formats import OpenCall
from threadkeep.domain.response import Response
from threadkeep.errors import CannotRender
from threadkeep.formats import NAMES, FormatName, get_format

NAME: Final = "gemini"
FORMAT = get_format(NAME)
# constants of the wire that follow from the type of the item they became
SPOKEN_FOR = {"model"}
# streams whose last chunk counts no candidates, though an earlier one did: what was counted stays
FALLING = {
    "pydantic-ai/models/google/test_structured_output/test_native_output_with_builtin_tools_stream#0",
    "pydantic-ai/models/test_google/test_google_model_iter_stream#2",
}
Json = dict[str, Any]


def test_requests_keep_their_spelling() -> None:
    """To the letter, but for neighbouring contents of the model, which become one."""
    differ = [name for name, one in recorded(NAME).items() if session_of(one).request_payload(NAME) != one["request"]]
    joined = [name for name in differ if roles(recorded(NAME)[name]["request"]) == ["user", "model", "model"]]
    assert differ == joined


def roles(request: Json) -> list[str]:
    return [content["role"] for content in request["contents"][:3]]


@pytest.mark.share(3)
@pytest.mark.parametrize("other", [name for name in NAMES if name != NAME])
def test_requests_of_other_formats_become_valid_ones(other: FormatName) -> None:
    for name, one in recorded(other).items():
        session = get_format(other).parse_request(one["request"], model="any")
        for model in ("gemini-2.5-flash", "gemini-3-flash-preview"):
            session.update(model=model)
            try:
                payload = session.request_payload(NAME)
            except CannotRender:
                assert all(getattr(item, "role", None) not in ("user", "assistant") for item in session.items), name
            else:
                assert refused(payload, model) == [], name


def kept_of(response: Response) -> set[str | None]:
    """All texts that a response holds."""
    usage = response.usage.raw if response.usage else {}
    items = [item.to_object() for item in response.output]
    fields = {response.finish_reason, response.id, response.model, ""}
    return {*words(items), *words(response.provider_data), *strings(usage), *fields}


def test_nothing_of_an_answer_is_lost() -> None:
    for name, one in recorded(NAME).items():
        if one["response"] is not None:
            kept = kept_of(response_of(one))
            assert {text for text in strings(one["response"]) if text not in kept} <= SPOKEN_FOR, name


def test_nothing_of_a_stream_is_lost() -> None:
    for name, one in recorded(NAME).items():
        if one["events"] is not None:
            response = response_of(one)
            kept = kept_of(response)
            said = "".join(text for text in kept if text)
            events = [{key: value for key, value in event.items() if key != "usageMetadata"} for event in one["events"]]
            assert {text for text in strings(events) if text not in kept and text not in said} <= SPOKEN_FOR, name
            assert (response.status, response.finish_reason) == ("completed", "STOP"), name


def test_input_and_output_are_the_total() -> None:
    for name, one in recorded(NAME).items():
        usage = response_of(one).usage
        assert usage is not None, name
        figures = usage.normalized
        if name in FALLING:
            continue
        assert figures.total_tokens == usage.total_tokens, name
        if usage.total_tokens is not None:
            assert (figures.input_tokens or 0) + (figures.output_tokens or 0) == usage.total_tokens, name
            assert (figures.cached_tokens or 0) <= (figures.input_tokens or 0), name
            assert (figures.reasoning_tokens or 0) <= (figures.output_tokens or 0), name


def test_a_streamed_answer_is_what_the_body_says() -> None:
    """Every recorded body, its first text cut into letters, gives the response of the body."""
    for name, one in recorded(NAME).items():
        body = one["response"]
        if body is None or not body.get("candidates"):
            continue
        (candidate,) = body["candidates"]
        parts = candidate["content"]["parts"]
        pieces = [{**part, "text": letter} for part in parts[:1] if part.keys() == {"text"} for letter in part["text"]]
        assembler = FORMAT.assembler()
        for part in pieces or parts[:1]:
            assembler.feed({"candidates": [{"content": {"parts": [part], "role": "model"}}]})
        last = {"parts": [{"text": ""}, *parts[1:]], "role": "model"}
        assembler.feed({**body, "candidates": [{**candidate, "content": last}]})
        assert assembler.response == FORMAT.parse_response(body), name


def test_conversations_go_on_as_they_were_recorded() -> None:
    """Answers and new turns give the next recorded request, but for what the client changed in its echo."""
    for interactions, _ in chains(NAME):
        session = session_of(interactions[0])
        for before, after in pairwise(interactions):
            response = session.add_response(response_of(before))
            new = after["request"]["contents"][len(before["request"]["contents"]) + 1 :]
            for items in FORMAT.parse_turns(new, [OpenCall(call.call_id, call.name) for call in response.tool_calls]):
                session.add_items(items, turn=session.new_turn())
            sent, wanted = session.request_payload(NAME), after["request"]
            assert list(echoed(sent)) == list(echoed(wanted)), after["id"]


def echoed(request: Json) -> Iterator[Any]:
    """What a client sends back of a conversation: texts, calls and responses, media, and signatures that count.

    Clients drop thoughts and ids, repeat the signature of the first call on the others, and fill in what a tool gave.
    """
    for content in leveled(request)["contents"]:
        text = ""
        signatures: list[str] = []
        for part in content["parts"]:
            if part.get("thought") and "text" in part:
                continue
            text += part.get("text", "")
            if part.get("thoughtSignature", NO_SIGNATURE) not in (*signatures, NO_SIGNATURE):
                signatures.append(part["thoughtSignature"])
            yield from (simple(part[key]) for key in ("functionCall", "functionResponse", "inlineData") if key in part)
            yield from (part[key].get("id") for key in ("toolCall", "toolResponse", "executableCode") if key in part)
        yield (content["role"], plain(text), signatures)


def simple(value: Json) -> str:
    """A call, response or picture as text, without its id and without typographic characters."""
    kept = {key: inner for key, inner in value.items() if key != "id"}
    return plain(json.dumps(kept, sort_keys=True, ensure_ascii=False))


def test_ids_go_back_where_the_client_sends_them() -> None:
    """A client that makes ids of its own names calls and responses alike."""
    for name, one in recorded(NAME).items():
        payload = leveled(session_of(one).request_payload(NAME))
        parts = [part for content in payload["contents"] for part in content["parts"]]
        calls = [part["functionCall"].get("id") for part in parts if "functionCall" in part]
        answers = [part["functionResponse"].get("id") for part in parts if "functionResponse" in part]
        assert calls == answers, name
