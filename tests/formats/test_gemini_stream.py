"""Gemini answers: endings, usage, and streams, which give what the body in one piece would."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep.domain.response import Response
from threadkeep.errors import CannotParse, ProviderError, StreamChunk
from threadkeep.formats import get_format
from threadkeep.formats.gemini.stream import place
from threadkeep.formats.shared.streams import GrowingTexts

Json = dict[str, Any]
FORMAT = get_format("gemini")


def chunk(*parts: Any, **keys: Any) -> Json:
    """A chunk of a stream, or a whole body."""
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **keys}], "responseId": "r1"}


def assembled(*events: Any) -> Response:
    assembler = FORMAT.assembler()
    for event in events:
        assembler.feed(event)
        assert assembler.partial.status == "in_progress"
    return assembler.response


def body_of(*events: Any) -> Json:
    assembler = FORMAT.assembler()
    for event in events:
        assembler.feed(event)
    return assembler.body


def parts_of(*events: Any) -> list[Any]:
    found: list[Any] = body_of(*events)["candidates"][0]["content"]["parts"]
    return found


# Endings


@pytest.mark.parametrize(
    ("candidate", "status", "details", "error"),
    [
        ({"finishReason": "STOP"}, "completed", None, None),
        ({"finishReason": 1}, "completed", None, None),
        ({"finishReason": "MAX_TOKENS"}, "incomplete", {"reason": "max_output_tokens"}, None),
        ({"finishReason": 2}, "incomplete", {"reason": "max_output_tokens"}, None),
        ({"finishReason": "CONTINUATION"}, "incomplete", {"reason": "continuation"}, None),
        (
            {"finishReason": "SAFETY", "finishMessage": "no"},
            "failed",
            {"reason": "content_filter"},
            {"code": "SAFETY", "message": "no"},
        ),
        ({"finishReason": 9}, "failed", None, {"code": "OTHER", "message": None}),
        (
            {"finishReason": "MALFORMED_FUNCTION_CALL"},
            "failed",
            None,
            {"code": "MALFORMED_FUNCTION_CALL", "message": None},
        ),
        ({"finishReason": "FINISH_REASON_UNSPECIFIED"}, None, None, None),
        ({}, None, None, None),
    ],
)
def test_the_ending_says_why(candidate: Json, status: str | None, details: Any, error: Any) -> None:
    response = FORMAT.parse_response({"candidates": [candidate]})
    assert (response.status, response.incomplete_details, response.error) == (status, details, error)


def test_a_blocked_prompt_is_a_failed_response() -> None:
    feedback = {"blockReason": "MODEL_ARMOR", "blockReasonMessage": "Blocked."}
    for response in (FORMAT.parse_response({"promptFeedback": feedback}), assembled({"promptFeedback": feedback})):
        assert (response.status, response.finish_reason) == ("failed", "MODEL_ARMOR")
        assert response.error == {"code": "MODEL_ARMOR", "message": "Blocked."}
        assert response.provider_data == {"prompt_feedback": feedback}


def test_an_unknown_ending_counts_as_completed(caplog: pytest.LogCaptureFixture) -> None:
    response = FORMAT.parse_response(chunk({"text": "x"}, finishReason="NOVEL"))
    assert (response.status, response.finish_reason) == ("completed", "NOVEL")
    assert "NOVEL" in caplog.text


@pytest.mark.parametrize("body", [{"modelVersion": "x"}, {"candidates": 5}, {"candidates": ["x"]}, {"choices": []}])
def test_what_has_no_candidates_is_no_response(body: Any) -> None:
    with pytest.raises(CannotParse):
        FORMAT.parse_response(body)


def test_errors_and_lists_of_chunks_are_told() -> None:
    with pytest.raises(ProviderError, match="Overloaded"):
        FORMAT.parse_response([{"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}}])
    with pytest.raises(StreamChunk, match="assembler"):
        FORMAT.parse_response([chunk({"text": "x"}), chunk({"text": "y"})])


def test_further_candidates_stay_in_the_raw_body() -> None:
    body = {"candidates": [{"content": {"parts": [{"text": "a"}]}}, {"content": {"parts": [{"text": "b"}]}}]}
    assert FORMAT.parse_response(body).output_text == "a"


def test_the_same_body_gives_the_same_ids() -> None:
    call = {"functionCall": {"name": "f", "args": {"a": 1}}}
    first, second = (FORMAT.parse_response({"candidates": [{"content": {"parts": [call]}}]}) for _ in range(2))
    assert first == second
    assert first.tool_calls[0].call_id.startswith("gemini_call_")


# Usage


@pytest.mark.parametrize(
    ("counts", "normalized"),
    [
        (
            {"prompt": 10, "candidates": 4, "thoughts": 6, "toolUsePrompt": 5, "total": 25},
            {"input_tokens": 15, "output_tokens": 10, "reasoning_tokens": 6, "total_tokens": 25},
        ),
        ({"prompt": 44, "total": 44}, {"input_tokens": 44, "output_tokens": 0, "total_tokens": 44}),
        (
            {"prompt": 10, "thoughts": 6, "total": 16},
            {"input_tokens": 10, "output_tokens": 6, "reasoning_tokens": 6, "total_tokens": 16},
        ),
        ({"prompt": 10, "candidates": 4}, {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14}),
        ({"prompt": 10, "candidates": 4, "total": 20}, {"input_tokens": 16, "output_tokens": 4, "total_tokens": 20}),
        ({"candidates": 4, "total": 6}, {"input_tokens": 2, "output_tokens": 4, "total_tokens": 6}),
        ({"prompt": 5}, {"input_tokens": 5}),
        (
            {"prompt": 9, "cachedContent": 6, "candidates": 1, "total": 10},
            {"input_tokens": 9, "cached_tokens": 6, "output_tokens": 1, "total_tokens": 10},
        ),
    ],
)
def test_normalized_figures_are_inclusive(counts: Json, normalized: Json) -> None:
    usage = {f"{name}TokenCount": count for name, count in counts.items()}
    response = FORMAT.parse_response({"candidates": [], "usageMetadata": usage})
    assert response.usage is not None
    assert response.usage.normalized.to_dict() == normalized
    assert response.usage.raw == usage


# Streams


def test_texts_of_one_kind_are_one_text() -> None:
    parts = parts_of(
        chunk({"text": "hm", "thought": True}),
        chunk({"text": ", so", "thought": True}),
        chunk({"text": "Hel"}),
        chunk({"text": "lo"}),
        chunk({"text": "", "thoughtSignature": "c2ln"}, finishReason="STOP"),
    )
    assert parts == [{"text": "hm, so", "thought": True}, {"text": "Hello"}, {"text": "", "thoughtSignature": "c2ln"}]


def test_signatures_and_other_keys_separate_texts() -> None:
    signed = {"text": "a", "thoughtSignature": "c2ln"}
    assert parts_of(chunk({"text": "x"}, signed), chunk({"text": "b"}), chunk({"text": "c", "partMetadata": {}})) == [
        {"text": "x"},
        signed,
        {"text": "b"},
        {"text": "c", "partMetadata": {}},
    ]


def test_empty_texts_say_nothing_unless_there_is_nothing_else() -> None:
    call = {"functionCall": {"name": "f", "args": {}}}
    assert parts_of(chunk({"text": ""}), chunk(call), chunk({"text": ""})) == [call]
    assert parts_of(chunk({"text": ""}), chunk({"text": ""})) == [{"text": ""}]


def test_counts_never_fall_and_grounding_is_gathered() -> None:
    body = body_of(
        {**chunk({"text": "a"}, groundingMetadata={"groundingChunks": [1], "q": ["x"]}), "usageMetadata": {"a": 1}},
        {**chunk({"text": "b"}, groundingMetadata={"groundingChunks": [1, 2]}), "usageMetadata": {"a": 0, "b": 2}},
        chunk(groundingMetadata={"groundingChunks": [3], "q": ["x"]}, finishReason="STOP", logprobsResult=None),
    )
    assert body["usageMetadata"] == {"a": 1, "b": 2}
    assert body["candidates"][0]["groundingMetadata"] == {"groundingChunks": [1, 2, 3], "q": ["x"]}


def test_log_probabilities_of_all_chunks_are_kept() -> None:
    piece = {"chosenCandidates": [{"token": "a"}]}
    body = body_of(chunk({"text": "a"}, logprobsResult=piece), chunk({"text": "a"}, logprobsResult=piece))
    assert len(body["candidates"][0]["logprobsResult"]["chosenCandidates"]) == 2


def test_candidates_are_told_apart_by_their_index() -> None:
    body = body_of(
        chunk({"text": "a"}, index=0), chunk({"text": "x"}, index=1, finishReason="STOP"), chunk({"text": "b"}, index=0)
    )
    assert [one["content"]["parts"][0]["text"] for one in body["candidates"]] == ["ab", "x"]
    assert assembled(chunk({"text": "a"}, index=0), chunk(index=1, finishReason="STOP")).status == "incomplete"


def test_a_stream_that_breaks_off_is_incomplete() -> None:
    response = assembled(chunk({"text": "Hel"}), chunk({"text": "lo"}))
    assert (response.status, response.incomplete_details, response.text) == (
        "incomplete",
        {"reason": "stream_ended"},
        "Hello",
    )
    assert assembled().status == "incomplete"


def test_a_stream_that_ends_in_an_error_is_failed() -> None:
    response = assembled(chunk({"text": "Hel"}), {"error": {"code": 503, "message": "Overloaded"}})
    assert (response.status, response.text) == ("failed", "Hel")
    assert response.error == {"code": 503, "message": "Overloaded"}


def test_arguments_in_pieces_are_put_together() -> None:
    def piece(path: str, **value: Any) -> Json:
        return {"jsonPath": path, **value}

    pieces = [
        [piece("$.city", stringValue="Ant", willContinue=True)],
        [piece("$.city", stringValue="werp")],
        [piece("$.days[0]['n']", numberValue=2), piece("$.ok", boolValue=False)],
        [piece("$.none", nullValue="NULL_VALUE")],
    ]
    parts = parts_of(
        chunk({"functionCall": {"name": "f", "id": "c1", "willContinue": True}, "thoughtSignature": "c2ln"}),
        *(chunk({"functionCall": {"partialArgs": some, "willContinue": True}}) for some in pieces),
        chunk({"functionCall": {}}),
        chunk({"functionCall": {"name": "g", "args": {}}}, finishReason="STOP"),
    )
    args = {"city": "Antwerp", "days": [{"n": 2}], "ok": False, "none": None}
    assert parts == [
        {"functionCall": {"name": "f", "id": "c1", "args": args}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "g", "args": {}}},
    ]


@pytest.mark.parametrize("path", [[], ["a"], ["5"], ["²"], ["9" * 5000], ["a", "0", "b"]])
def test_pieces_are_placed_whatever_stands_there(path: list[str]) -> None:
    for held in (None, "x", 5, [], {}, [1], {"a": 1}):
        call, texts = {"args": held}, GrowingTexts()
        place(call, path, {"stringValue": "y"}, texts)
        texts.settle_all()
        json.dumps(call)


TEXTS = st.sampled_from(["a", "bc", "", "ä木"])
PARTS = st.one_of(
    TEXTS.map(lambda text: {"text": text}),
    TEXTS.map(lambda text: {"text": text, "thought": True}),
    st.just({"functionCall": {"name": "f", "args": {"a": [1]}}}),
    st.just({"text": "", "thoughtSignature": "c2ln"}),
    st.just({"thoughtSignature": "c2ln"}),
    st.just({"executableCode": {"code": "1"}}),
)


@given(parts=st.lists(PARTS, min_size=1, max_size=6), data=st.data())
def test_however_an_answer_is_cut_it_gives_the_same_response(parts: list[Json], data: st.DataObject) -> None:
    """Texts may be cut anywhere; the whole is the body with neighbouring texts joined."""
    pieces: list[Json] = []
    for part in parts:
        place = data.draw(st.integers(0, len(part.get("text", ""))))
        is_plain = part.keys() <= {"text", "thought"}
        cut = [part["text"][:place], part["text"][place:]] if is_plain else []
        pieces += [{**part, "text": text} for text in cut] or [part]
    ending = {"finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3}
    streamed = [chunk(piece) for piece in pieces[:-1]] + [{**chunk(pieces[-1], **ending), "usageMetadata": usage}]
    whole = {**chunk(*joined(parts), **ending), "usageMetadata": usage}
    assert assembled(*streamed) == FORMAT.parse_response(whole)
    assert assembled(whole) == FORMAT.parse_response(whole)


def joined(parts: list[Json]) -> list[Json]:
    """Parts with neighbouring texts of one kind as one, without those that say nothing."""
    found: list[Json] = []
    for part in parts:
        last = found[-1] if found else {}
        if "text" in part and "text" in last and part.keys() == last.keys() <= {"text", "thought"}:
            found[-1] = {**last, "text": last["text"] + part["text"]}
        else:
            found.append(part)
    return [part for part in found if part.get("text") or not part.keys() <= {"text", "thought"}] or found[:1]
