"""Answers of Converse: items, endings, usage, ids, errors; and the same as a stream."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.formats.validity_converse import refused
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, ProviderError, StreamChunk
from threadkeep.formats import get_format

Json = dict[str, Any]
FORMAT = get_format("converse")
CITATION = {"title": "t", "location": {"web": {"url": "https://news.test"}}}
CALL = {"toolUse": {"toolUseId": "t", "name": "f", "input": {"n": 1}}}


def body(*blocks: Any, **keys: Any) -> Json:
    return {"output": {"message": {"role": "assistant", "content": list(blocks)}}, "stopReason": "end_turn", **keys}


def parsed(*blocks: Any, **keys: Any) -> Response:
    return FORMAT.parse_response(body(*blocks, **keys))


def said_again(response: Response) -> list[Json]:
    """The blocks of an answer as the next request sends them."""
    session = Session(model="m", input="hi", tools=[{"name": "f"}])
    session.add_response(response)
    session.user("on")
    payload = session.request_payload("converse")
    assert refused(payload) == []
    blocks: list[Json] = payload["messages"][1]["content"]
    return blocks


# Items


def test_cited_text_is_text_with_annotations_and_goes_back_as_it_came() -> None:
    place = {"location": {"documentChar": {"documentIndex": 0, "start": 1, "end": 2}}}
    cited = {"citationsContent": {"content": [{"text": "five "}, {"text": "days"}], "citations": [CITATION, place]}}
    response = parsed({"text": "See: "}, cited)
    assert response.text == "See: five days"
    (message,) = response.messages
    assert message.content[1].to_dict()["annotations"] == [
        {"type": "url_citation", "url": "https://news.test", "title": "t", "start_index": 0, "end_index": 9},
        {"type": "citation", "citation": place},
    ]
    assert said_again(response) == [{"text": "See: "}, cited]


def test_an_answer_goes_back_as_it_came() -> None:
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
    block = {"guardContent": {"text": {"text": "g"}}}
    blocks = [thought, {"text": "a"}, block, CALL]
    assert said_again(parsed(*blocks)) == blocks


def test_the_kind_of_a_call_is_not_sent_back() -> None:
    typed = {"toolUse": {**CALL["toolUse"], "type": "tool_use"}}
    assert said_again(parsed(typed)) == [CALL]


def test_blocks_of_another_shape_are_kept() -> None:
    blocks = ["odd", {"text": 7}, {"a": 1, "b": 2}, {"reasoningContent": {"new": 1}}, {"citationsContent": {}}]
    response = parsed({"text": "x"}, *blocks)
    kept = [part.to_dict()["payload"] for part in response.messages[0].content[1:]]
    assert kept == blocks


@pytest.mark.parametrize("content", [None, {}, {"content": None}])
def test_a_message_without_content_has_no_items(content: Any) -> None:
    assert FORMAT.parse_response({"output": {"message": content}, "stopReason": "end_turn"}).output == []


def test_broken_input_is_kept_as_text_and_mended_when_it_is_sent() -> None:
    response = parsed({"toolUse": {"toolUseId": "t", "name": "f", "input": '{"n": '}}, stopReason="malformed_tool_use")
    assert response.tool_calls[0].arguments == '{"n": '
    assert said_again(response) == [{"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}]


# Endings


@pytest.mark.parametrize(
    ("word", "status", "reason"),
    [
        ("end_turn", "completed", None),
        ("tool_use", "completed", None),
        ("stop_sequence", "completed", None),
        ("max_tokens", "incomplete", "max_output_tokens"),
        ("model_context_window_exceeded", "incomplete", "model_context_window_exceeded"),
        ("guardrail_intervened", "failed", "content_filter"),
        ("content_filtered", "failed", "content_filter"),
        ("malformed_model_output", "failed", None),
        ("malformed_tool_use", "failed", None),
    ],
)
def test_the_stop_reason_says_status_and_why(word: str, status: str, reason: str | None) -> None:
    response = parsed({"text": "x"}, stopReason=word)
    assert (response.status, response.finish_reason) == (status, word)
    assert response.incomplete_details == ({"reason": reason} if reason else None)


@pytest.mark.parametrize(
    ("word", "ending"),
    [("new", "ended with the unknown word 'new'"), (["x"], "ended with the unknown word"), ("", None), (None, None)],
)
def test_an_unknown_word_means_completed_and_is_logged(
    word: Any, ending: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """None may be missing because the answer was cancelled, which is known elsewhere."""
    with caplog.at_level(logging.WARNING, logger="threadkeep"):
        assert parsed({"text": "x"}, stopReason=word).status == "completed"
    logged = f"The converse response {ending}" in caplog.text and "it is stored as completed" in caplog.text
    assert logged if ending else not caplog.text


# Ids and what stands beside


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"X-Amzn-RequestId": " r1 "}, "r1"),
        ({"x-amzn-requestid": ["r1", "r2"]}, "r1"),
        ({"x-amzn-requestid": []}, None),
        ({"x-amzn-requestid": ""}, None),
        ({"other": "r1"}, None),
        (None, None),
    ],
)
def test_the_id_stands_in_the_headers(headers: Any, expected: str | None) -> None:
    assert FORMAT.parse_response(body({"text": "x"}), headers).id == expected


def test_the_id_stands_where_boto3_puts_it() -> None:
    assert parsed({"text": "x"}, ResponseMetadata={"RequestId": "r1"}).id == "r1"
    assert parsed({"text": "x"}, ResponseMetadata={"HTTPHeaders": {"x-amzn-requestid": "r2"}}).id == "r2"


def test_what_stands_beside_is_provider_data() -> None:
    trace = {"promptRouter": {"invokedModelId": "arn:model"}}
    found = body({"text": "x"}, trace=trace, new=1, gone=None)
    found["output"]["message"]["more"] = 2
    response = FORMAT.parse_response(found)
    assert response.model == "arn:model"
    assert response.provider_data == {"trace": trace, "new": 1, "message": {"more": 2}}


# Usage


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"inputTokens": 5, "outputTokens": 2, "totalTokens": 7}, (5, None, None, 2, 7)),
        ({"inputTokens": 3, "outputTokens": 227, "totalTokens": 1942, "cacheReadInputTokens": 0,
          "cacheWriteInputTokens": 1712}, (1715, 0, 1712, 227, 1942)),
        ({"inputTokens": 3, "outputTokens": 121, "totalTokens": 2072, "cacheReadInputTokenCount": 1712,
          "cacheWriteInputTokenCount": 236}, (1951, 1712, 236, 121, 2072)),
        ({"inputTokens": 100, "outputTokens": 5, "cacheReadInputTokens": 80}, (180, 80, None, 5, 185)),
        ({"inputTokens": 100, "outputTokens": 5, "totalTokens": 105, "cacheReadInputTokens": 80},
         (100, 80, None, 5, 105)),
        ({"outputTokens": 5, "cacheReadInputTokens": 80}, (None, 80, None, 5, None)),
    ],
)  # fmt: skip
def test_everything_counts_once(usage: Json, expected: tuple[int | None, ...]) -> None:
    found = parsed({"text": "x"}, usage=usage).usage
    assert found is not None
    one = found.normalized
    figures = (one.input_tokens, one.cached_tokens, one.cache_write_tokens, one.output_tokens, one.total_tokens)
    assert figures == expected
    assert found.raw == usage


# Errors


@pytest.mark.parametrize(
    ("given", "message", "kind", "code"),
    [
        ({"message": "Slow down", "__type": "ThrottlingException"}, "Slow down", "ThrottlingException", None),
        ({"Message": "No"}, "No", None, None),
        ({"__type": "Odd"}, None, "Odd", None),
        ({"Output": {"__type": "E", "message": "m"}, "Version": "1.0"}, "m", "E", None),
        ({"Error": {"Code": "ValidationException", "Message": "m"}, "ResponseMetadata": {}}, "m", None,
         "ValidationException"),
        ({"error": {"message": "m", "type": "t"}}, "m", "t", None),
        (b"<html>\xe9", "<html>é", None, None),
    ],
)  # fmt: skip
def test_errors_are_told(given: Any, message: str | None, kind: str | None, code: str | None) -> None:
    with pytest.raises(ProviderError) as raised:
        FORMAT.parse_response(given)
    assert (raised.value.message, raised.value.type, raised.value.code) == (message, kind, code)


@pytest.mark.parametrize(
    "given", [{}, {"stopReason": "end_turn"}, {"output": 1}, {"choices": []}, body(stopReason=None)]
)
def test_a_body_that_says_nothing_is_refused(given: Any) -> None:
    with pytest.raises(CannotParse):
        FORMAT.parse_response(given)


def test_an_event_names_the_assembler() -> None:
    with pytest.raises(StreamChunk, match="assembler"):
        FORMAT.parse_response({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "x"}}})


# Streams


def delta(index: int, **piece: Any) -> Json:
    return {"contentBlockDelta": {"contentBlockIndex": index, "delta": piece, "p": "abc"}}


def start(index: int, **block: Any) -> Json:
    return {"contentBlockStart": {"contentBlockIndex": index, "start": block, "p": "abc"}}


def assembled(*events: Any, headers: Any = None) -> Any:
    assembler = FORMAT.assembler(headers)
    for event in events:
        assembler.feed(event)
    return assembler


STOP = {"messageStop": {"stopReason": "end_turn", "p": "a"}}
USAGE = {"metadata": {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}, "p": "a"}}


def test_a_stream_gives_what_the_body_would() -> None:
    hidden = {"reasoningContent": {"redactedContent": b"secret"}}
    assembler = assembled(
        {"messageStart": {"role": "assistant", "p": "ab"}}, delta(0, reasoningContent={"text": "h"}),
        delta(0, reasoningContent={"text": "m"}), delta(0, reasoningContent={"signature": "c2ln"}), delta(1, **hidden),
        delta(1, reasoningContent={"redactedContent": "IQ=="}), delta(2, text="a"), delta(2, text="b"),
        start(3, toolUse={"toolUseId": "t", "name": "f"}), delta(3, toolUse={"input": '{"n"'}),
        delta(3, toolUse={"input": ":1}"}), start(4, toolUse={"toolUseId": "u", "name": "f"}), delta(5, text="cited"),
        delta(5, citation=CITATION), start(6, toolResult={"toolUseId": "s", "type": "x"}),
        delta(6, toolResult=[{"text": "a"}]), delta(6, toolResult=[{"text": "b"}, {"json": {}}]),
        start(7, image={"format": "png"}), delta(7, image={"source": {"bytes": b"img"}}),
        {"contentBlockStop": {"contentBlockIndex": 7, "p": "a"}}, STOP, USAGE, headers={"x-amzn-requestid": "r1"},
    )  # fmt: skip
    whole = body(
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "c2VjcmV0IQ=="}},
        {"text": "ab"},
        CALL,
        {"toolUse": {"toolUseId": "u", "name": "f", "input": {}}},
        {"citationsContent": {"content": [{"text": "cited"}], "citations": [CITATION]}},
        {"toolResult": {"toolUseId": "s", "type": "x", "content": [{"text": "ab"}, {"json": {}}]}},
        {"image": {"format": "png", "source": {"bytes": "aW1n"}}},
        usage={"inputTokens": 1, "outputTokens": 2, "totalTokens": 3},
    )
    assert assembler.body == whole
    assert assembler.response == FORMAT.parse_response(whole, {"x-amzn-requestid": "r1"})


def test_a_stream_that_breaks_off_is_incomplete(caplog: pytest.LogCaptureFixture) -> None:
    assembler = assembled(delta(0, text="ab"), start(1, toolUse={"toolUseId": "t", "name": "f"}))
    assembler.feed(delta(1, toolUse={"input": '{"n": '}))
    assert assembler.partial.status == "in_progress"
    response = assembler.response
    assert (response.status, response.finish_reason) == ("incomplete", None)
    assert response.incomplete_details == {"reason": "stream_ended"}
    assert response.text == "ab"
    assert response.tool_calls[0].arguments == '{"n": '
    assert caplog.text == ""


@pytest.mark.parametrize(
    "name",
    [
        "internalServerException",
        "modelStreamErrorException",
        "validationException",
        "throttlingException",
        "serviceUnavailableException",
        "somethingNewException",
    ],
)
def test_an_exception_ends_a_stream_as_failed(name: str) -> None:
    response = assembled(delta(0, text="ab"), {name: {"message": "m"}}).response
    assert response.status == "failed"
    assert response.error == {"type": name, "message": "m"}
    assert response.text == "ab"


def test_a_stream_without_events_is_incomplete() -> None:
    response = assembled().response
    assert (response.status, response.output, response.format) == ("incomplete", [], "converse")


def test_odd_events_are_passed_over() -> None:
    odd = [{"new": {}}, {"messageStart": "x"}, delta(0, new="x"), delta(0, toolResult="x"), {"contentBlockDelta": {}}]
    assert assembled(*odd, delta(1, text="a"), STOP).response.text == "a"
    with pytest.raises(CannotParse):
        assembled([])
