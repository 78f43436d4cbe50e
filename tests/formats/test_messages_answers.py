"""Answers of the Messages API, whole and streamed, beyond the vectors."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.formats.messages_factories import FORMAT, REDACTED, SIGNED
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, ProviderError, StreamChunk
from threadkeep.formats import get_format

WIRE = get_format(FORMAT)
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
TEXT = {"type": "text", "text": "Well."}
CITED = {
    "type": "text",
    "text": "Odd.",
    "citations": [{"type": "char_location", "cited_text": "odd", "document_index": 0}],
}
USE = {"type": "tool_use", "id": "a", "name": "lookup", "input": {"q": "Größe"}, "caller": {"type": "direct"}}
ANSWERED = {"type": "function_call_output", "call_id": "a", "output": "1"}
COMPACTION = {"type": "compaction", "content": "All so far."}
CONTENT = [SIGNED, SEARCH, FOUND, {"type": "text", "text": "Well. "}, CITED, REDACTED, USE]


def body(*content: Any, **keys: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": list(content) or [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 5},
        **keys,
    }


def echoed(response: Response) -> list[Any]:
    """The assistant messages that a request sends of a response."""
    session = Session(model="claude-sonnet-4-5", input="Go")
    session.add_response(response)
    return [one for one in WIRE.render(session).payload["messages"] if one["role"] == "assistant"]


# Whole bodies


@pytest.mark.parametrize(
    ("content", "is_last", "sent"),
    [
        ([SEARCH, FOUND, TEXT], False, [SEARCH, FOUND, TEXT]),
        ([TEXT, SEARCH], False, [TEXT]),
        ([TEXT, SEARCH], True, [TEXT, SEARCH]),
        ([TEXT, SEARCH, USE], False, [TEXT, SEARCH, USE]),
        ([TEXT, {**SEARCH, "input": '{"que'}], True, [TEXT]),
        ([SEARCH], False, None),
    ],
)
def test_a_search_that_found_nothing_yet_is_sent_while_the_answer_may_go_on(
    content: list[Any], is_last: bool, sent: list[Any] | None
) -> None:
    """The service refuses a use of its own tools without a result, as an answer that broke off has it."""
    session = Session(model="claude-sonnet-4-5", input="Go")
    session.add_response(WIRE.parse_response(body(*content)))
    if not is_last:
        session.add_item(ANSWERED if USE in content else {"type": "message", "role": "user", "content": "On"})
    rendered = session.render(FORMAT)
    shown = [one["content"] for one in rendered.payload["messages"] if one["role"] == "assistant"]
    assert shown == ([] if sent is None else [sent])
    assert [loss.code for loss in rendered.losses] == ([] if sent == content else ["provider_item"])


def test_blocks_become_items_in_their_order_and_go_back_as_they_came() -> None:
    response = WIRE.parse_response(body(*CONTENT, stop_reason="tool_use"))
    types = [item.type for item in response.output]
    assert types == ["reasoning", "provider_item", "provider_item", "message", "reasoning", "function_call"]
    assert response.tool_calls[0].arguments == '{"q":"Größe"}'
    assert echoed(response) == [{"role": "assistant", "content": CONTENT}]


def test_a_block_stands_in_the_open_message() -> None:
    response = WIRE.parse_response(body({"type": "text", "text": "a"}, SEARCH, FOUND, {"type": "text", "text": "b"}))
    assert [part.type for part in response.messages[0].content] == [
        "output_text", "provider_item", "provider_item", "output_text",
    ]  # fmt: skip
    assert response.text == "ab"


@pytest.mark.parametrize(
    ("keys", "status", "details", "error"),
    [
        ({"stop_reason": "end_turn"}, "completed", None, None),
        ({"stop_reason": "pause_turn"}, "incomplete", {"reason": "pause_turn"}, None),
        ({"stop_reason": "compaction"}, "incomplete", {"reason": "compaction"}, None),
        ({"stop_reason": "max_tokens"}, "incomplete", {"reason": "max_output_tokens"}, None),
        (
            {"stop_reason": "model_context_window_exceeded"},
            "incomplete",
            {"reason": "model_context_window_exceeded"},
            None,
        ),
        (
            {"stop_reason": "refusal", "stop_details": {"type": "refusal", "category": "bio", "explanation": "No."}},
            "failed",
            {
                "stop_details": {"type": "refusal", "category": "bio", "explanation": "No."},
                "reason": "content_filter",
            },
            {"type": "refusal", "code": "bio", "message": "No."},
        ),
        ({"stop_reason": "unheard_of"}, "completed", None, None),
        ({"stop_reason": None}, "completed", None, None),
    ],
)
def test_the_stop_reason_says_how_it_ended(keys: dict[str, Any], status: str, details: Any, error: Any) -> None:
    response = WIRE.parse_response(body(**keys))
    assert (response.status, response.incomplete_details, response.error) == (status, details, error)
    assert response.finish_reason == keys["stop_reason"]


def test_what_else_the_body_says_is_provider_data() -> None:
    response = WIRE.parse_response(
        body(container={"id": "c"}, context_management={"applied_edits": []}, stop_sequence=None)
    )
    assert response.provider_data == {"container": {"id": "c"}, "context_management": {"applied_edits": []}}


def test_usage_counts_all_input() -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 4},
        "iterations": [{"type": "message"}],
    }
    found = WIRE.parse_response(body(usage=usage)).usage
    assert found is not None
    assert found.raw == usage
    assert found.total_tokens == 137
    assert found.normalized.to_dict() == {
        "input_tokens": 130,
        "cached_tokens": 100,
        "cache_write_tokens": 20,
        "output_tokens": 7,
        "reasoning_tokens": 4,
        "total_tokens": 137,
    }


def test_unknown_figures_are_null() -> None:
    found = WIRE.parse_response(body(usage={"output_tokens": 7})).usage
    assert found is not None
    assert found.normalized.to_dict() == {"output_tokens": 7}


def test_lenient_bodies_are_read() -> None:
    assert WIRE.parse_response({"content": None}).output == []
    assert WIRE.parse_response({"content": "Hi"}).text == "Hi"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, ProviderError),
        ({"choices": []}, CannotParse),
        ({}, CannotParse),
        ([], CannotParse),
        ({"type": "message_start", "message": {}}, StreamChunk),
    ],
)
def test_what_is_no_answer_is_refused(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        WIRE.parse_response(given)


# Streams


def pieces(value: str) -> Iterator[str]:
    for start in range(0, len(value), 3):
        yield value[start : start + 3]


DELTAS = {"text": "text_delta", "thinking": "thinking_delta"}


def block_events(index: int, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of one block, as the service sends them."""
    growing = {key: block[key] for key in DELTAS if isinstance(block.get(key), str)}
    empty = dict.fromkeys([*growing, *(["signature"] if "signature" in block else [])], "")
    given = block.get("input") if block["type"] in ("tool_use", "server_tool_use") else None
    start = {key: value for key, value in block.items() if key != "citations"} | empty
    yield {
        "type": "content_block_start",
        "index": index,
        "content_block": start | ({} if given is None else {"input": {}}),
    }
    deltas = [{"type": DELTAS[key], key: piece} for key, value in growing.items() for piece in pieces(value)]
    deltas += [{"type": "citations_delta", "citation": one} for one in block.get("citations", [])]
    deltas += [{"type": "signature_delta", "signature": block["signature"]}] if "signature" in block else []
    deltas += [
        {"type": "input_json_delta", "partial_json": one} for one in (pieces(json.dumps(given)) if given else ())
    ]
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def events(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A body as the stream that the service would have sent."""
    usage = given["usage"]
    start = {**given, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    for index, block in enumerate(given["content"]):
        yield from block_events(index, block)
    yield {"type": "message_delta", "delta": {"stop_reason": given["stop_reason"]}, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


def fed(*given: dict[str, Any]) -> Any:
    assembler = WIRE.assembler()
    for event in given:
        before = copy.deepcopy(event)
        assembler.feed(event)
        assert event == before
    return assembler


def test_a_stream_gives_what_the_whole_body_would() -> None:
    whole = body(*CONTENT, stop_reason="tool_use")
    assembler = fed(*events(whole))
    assert assembler.body == whole
    assert assembler.response == WIRE.parse_response(whole)


def test_a_partial_answer_is_in_progress_and_one_that_broke_off_incomplete() -> None:
    found = list(events(body(*CONTENT)))
    for end in range(1, len(found) - 2):
        assembler = fed(*found[:end])
        assert assembler.partial.status == "in_progress"
        assert (assembler.response.status, assembler.response.finish_reason) == ("incomplete", None)
        assert assembler.response.incomplete_details == {"reason": "stream_ended"}
    assert fed(*found[:-1]).response.status == "completed"


def test_thinking_that_a_stream_broke_off_in_is_not_sent_back() -> None:
    assembler = fed(*list(events(body(SIGNED)))[:4])
    assert assembler.response.output[0].status == "incomplete"
    assert echoed(assembler.response) == []


def test_a_call_that_a_stream_broke_off_in_keeps_the_text_of_its_arguments() -> None:
    found = [event for event in events(body(USE)) if event["type"] != "content_block_stop"]
    response = fed(*found[:4]).response
    assert response.tool_calls[0].arguments == '{"q'
    assert echoed(response)[0]["content"][0]["input"] == {}


def test_an_error_event_ends_the_answer() -> None:
    error = {"type": "overloaded_error", "message": "Overloaded"}
    response = fed(*list(events(body()))[:4], {"type": "error", "error": error}).response
    assert (response.status, response.error, response.text) == ("failed", error, "Hi")


def test_later_events_tell_more_of_the_message() -> None:
    changes = {
        "type": "message_delta",
        "delta": {"stop_reason": "compaction", "stop_sequence": None, "container": {"id": "c"}},
        "usage": {"input_tokens": 90, "output_tokens": 50, "cache_read_input_tokens": None, "iterations": []},
        "context_management": {"applied_edits": []},
    }
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction", "content": None}}
    delta = {"type": "compaction_delta", "content": "All so far.", "encrypted_content": "e"}
    sent = fed(next(events(body())), start, {"type": "content_block_delta", "index": 0, "delta": delta}, changes).body
    assert sent["content"] == [{**COMPACTION, "encrypted_content": "e"}]
    assert sent["usage"] == {"input_tokens": 90, "output_tokens": 50, "iterations": []}
    assert (sent["stop_reason"], sent["container"]) == ("compaction", {"id": "c"})
    assert sent["context_management"] == {"applied_edits": []}


def test_odd_events_are_withstood() -> None:
    for event in ({"type": "content_block_delta"}, {"type": "unheard_of"}, {}, {"type": "message_delta", "usage": {}}):
        assert fed(event).response.output == []
    with pytest.raises(CannotParse):
        WIRE.assembler().feed("[]")


def test_citations_go_back_without_the_key_that_requests_refuse() -> None:
    """The answer is "Extra inputs are not permitted", even where it is null, see langchain-ai/langchain#32592."""
    place = {"type": "char_location", "cited_text": "odd", "document_index": 0, "start_char_index": 0}
    cited = {"type": "text", "text": "Odd.", "citations": [{**place, "file_id": None}, {**place, "file_id": "file_1"}]}
    response = WIRE.parse_response({**body(), "content": [cited]})
    assert [part["file_id"] for part in response.output[0].to_object()["content"][0]["annotations"]] == [None, "file_1"]
    assert echoed(response)[0]["content"] == [{**cited, "citations": [place, place]}]
