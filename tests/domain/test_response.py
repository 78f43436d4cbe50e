from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.domain.jsonvalues import JSON
from threadkeep.domain.content import OutputText, Refusal
from threadkeep.domain.items import FunctionCall, Message, UnknownItem
from threadkeep.domain.jsontext import body_object
from threadkeep.domain.response import Response
from threadkeep.domain.usage import NormalizedUsage, Usage
from threadkeep.errors import CannotParse, InvalidItem, InvalidOption, ParsedJsonError, UnknownFormat


def said(text: str, phase: str | None = None) -> Message:
    return Message("assistant", text, phase=phase)


def refused() -> Message:
    return Message("assistant", [Refusal(refusal="no")])


@pytest.mark.parametrize(
    ("output", "text", "all_text"),
    [
        ([], None, None),
        ([FunctionCall("f", "c1")], None, None),
        ([refused()], None, None),
        ([Message("assistant", [{"type": "input_text", "text": "a"}])], None, None),
        ([said("")], "", ""),
        ([Message("assistant", ["a", Refusal(refusal="no"), OutputText(text="b")])], "ab", "ab"),
        ([refused(), said("a"), said("b")], "a", "ab"),
        ([said("looking", "commentary"), said("found", "final_answer")], "found", "lookingfound"),
        ([said("found", "final_answer"), said("more")], "found", "foundmore"),
    ],
)
def test_the_text_is_that_of_the_final_answer_or_first_message(output: Any, text: Any, all_text: Any) -> None:
    """Refusals and other kinds of text do not count."""
    response = Response(output=output)
    assert (response.text, response.output_text) == (text, all_text)


def test_the_status_answers_as_booleans() -> None:
    for status in ("completed", "failed", "incomplete"):
        assert getattr(Response(status=status), status) is True
    unknown = Response(status="steered")
    assert (unknown.status, unknown.completed, unknown.failed, unknown.incomplete) == ("steered", False, False, False)
    assert Response().status is None


def test_tool_calls_are_the_function_calls() -> None:
    call = FunctionCall("f", "c1")
    response = Response(output=[said("a"), call, {"type": "web_search_call", "id": "ws"}])
    assert response.tool_calls == [call]
    assert response.has_tool_calls
    assert not Response.from_text("a").has_tool_calls
    assert isinstance(response.output[2], UnknownItem)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (" [1, 2] \n", [1, 2]),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('```\n{"a": 1}\n```\n', {"a": 1}),
        ('```JSON {"a": 1} ```', {"a": 1}),
        ('{"code": "```x```"}', {"code": "```x```"}),
        ("null", None),
        ("12345678901234567890123", 12345678901234567890123),
    ],
)
def test_json_is_parsed_with_or_without_a_fence(text: str, value: Any) -> None:
    assert Response.from_text(text).parsed_json(strict=True) == value


@pytest.mark.parametrize("response", [Response(), Response.from_text("no"), Response.from_text('```json\n{"a": \n```')])
def test_other_text_gives_none_or_raises(response: Response) -> None:
    assert response.parsed_json() is None
    with pytest.raises(ParsedJsonError) as caught:
        response.parsed_json(strict=True)
    assert caught.value.text == response.text


def test_a_response_of_text() -> None:
    response = Response.from_text("Larch.", model="m", usage={"input_tokens": 1})
    assert (response.status, response.text, response.model) == ("completed", "Larch.", "m")
    assert response.usage == Usage(input_tokens=1)
    assert response.output == [said("Larch.")]
    with pytest.raises(InvalidOption, match="colour"):
        Response.from_text("a", colour="red")


FULL: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "status": "incomplete",
    "finish_reason": "length",
    "model": "m",
    "created_at": 1,
    "incomplete_details": {"reason": "max_output_tokens"},
    "temperature": 0.0,
    "parallel_tool_calls": False,
    "instructions": [{"role": "system", "content": "list"}],
    "text": {"format": {"type": "text"}},
    "tools": [],
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}],
    "usage": {"input_tokens": 3, "output_tokens": 4},
    "extra": {"system_fingerprint": "fp"},
    "format": "open_responses",
}


def test_a_response_is_written_and_read() -> None:
    """None and nothing are left out, false and zero are kept; whether it was replayed is not part of it."""
    response = Response.from_dict(FULL)
    assert response.to_dict() == FULL
    assert Response.from_dict(response.to_dict()) == response
    assert response.provider_data == {"system_fingerprint": "fp"}
    assert Response.from_dict({"extra": {}, "output": None}).to_dict() == {}
    assert response.model_copy(update={"replayed": True}).to_dict() == FULL
    with pytest.raises(InvalidOption, match="shape"):
        Response.from_dict({"shape": 1})


def test_normalized_figures_survive_being_written() -> None:
    """They are a format's knowledge, and cannot be worked out from the figures alone."""
    usage = Usage(input_tokens=3, normalized=NormalizedUsage(input_tokens=10, cached_tokens=7))
    response = Response(usage=usage)
    assert response.to_dict()["usage"] == {"input_tokens": 3}
    read = Response.from_dict(response.to_dict()).usage
    assert read is not None
    assert read.normalized == usage.normalized


# fields that are the store's own word, or have a reader of their own
OURS = {"output", "usage", "provider_data", "replayed", "stored"}


@given(st.sampled_from(sorted(set(Response.model_fields) - OURS)), JSON)
def test_odd_values_of_providers_are_read_leniently(name: str, value: Any) -> None:
    """A value of another kind is null; it never makes a whole answer unreadable."""
    response = Response(**{name: value})
    assert Response.from_dict(response.to_dict()).to_dict().keys() == response.to_dict().keys()


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        ("id", 5, "5"),
        ("id", ["a"], None),
        ("created_at", 1741476542.9, 1741476542),
        ("created_at", "1741476542", 1741476542),
        ("created_at", float("nan"), None),
        ("top_p", "0.5", 0.5),
        ("top_p", True, None),
        ("store", "yes", None),
    ],
)
def test_values_are_brought_into_their_kind(field: str, value: Any, read: Any) -> None:
    assert getattr(Response(**{field: value}), field) == read


def test_the_output_is_a_list_of_items() -> None:
    for output in ("text", [None], 5):
        with pytest.raises((InvalidItem, InvalidOption)) as caught:
            Response(output=output)
        assert not isinstance(caught.value, ValidationError)


def test_a_repr_shows_what_is_set() -> None:
    assert repr(Response(status="failed", store=False)) == "Response(status='failed', store=False, replayed=False)"


def test_a_response_is_a_value() -> None:
    with pytest.raises(ValidationError):
        Response().status = "failed"  # type: ignore[misc]


def test_text_that_is_not_json_cannot_be_parsed() -> None:
    for body in (b"<html>", "", b"\xff"):
        with pytest.raises(CannotParse, match="not JSON"):
            body_object(body)
    assert body_object(None) is None
    with pytest.raises(UnknownFormat):
        Response.parse({}, "fax")  # type: ignore[arg-type]
