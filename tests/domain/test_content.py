from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.domain.jsonvalues import JSON, OBJECTS, TEXT, same
from threadkeep.domain.content import (
    PARTS,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    OutputText,
    Part,
    ProviderPart,
    UnknownPart,
    content_from,
    part_from,
)
from threadkeep.domain.items import item_from
from threadkeep.domain.media import data_url
from threadkeep.errors import InvalidItem

PDF = data_url(b"%PDF", "application/pdf")

# public dict, object with the wire names of Open Responses
FORMS = [
    ({"type": "input_text", "text": ""}, None),
    ({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, None),
    ({"type": "reasoning_text", "text": "a"}, None),
    ({"type": "summary_text", "text": "a"}, None),
    ({"type": "refusal", "refusal": "no"}, None),
    ({"type": "output_text", "text": "a", "annotations": [{"x": 1}], "logprobs": [{}]}, None),
    ({"type": "input_image", "url": "https://x/a.png", "detail": "high"}, {"image_url": "https://x/a.png"}),
    ({"type": "input_image", "url": "  ", "file_id": "f"}, {"image_url": "  "}),
    ({"type": "input_image", "file_id": "f", "media_type": "image/png"}, None),
    ({"type": "input_image", "data": "text under this key is an extra"}, None),
    ({"type": "input_video", "url": "https://x/a.mp4"}, {"video_url": "https://x/a.mp4"}),
    ({"type": "input_file", "url": "https://x/a.pdf", "filename": "a"}, {"file_url": "https://x/a.pdf"}),
    ({"type": "input_file", "url": PDF}, {"file_data": PDF}),
    ({"type": "input_file", "url": "data:text/plain,a"}, {"file_url": "data:text/plain,a"}),
    ({"type": "input_file", "file_data": "bare base64"}, None),
    ({"type": "input_file", "file_url": PDF}, None),
    ({"type": "input_file", "file_url": "https://x/a.pdf", "file_data": PDF}, None),
    ({"type": "provider_item", "format": "messages", "payload": {"type": "container", "none": None}}, None),
    ({"type": "provider_item", "format": "gemini", "payload": []}, None),
    ({"type": "computer_screenshot", "image_url": None, "list": []}, None),
    ({"type": "input_text", "text": "a", "origin": "messages", "native": {"messages": {"k": None}}}, None),
]


@pytest.mark.parametrize(("public", "wire"), FORMS)
def test_both_forms_of_a_part_are_read_and_written(public: dict[str, Any], wire: dict[str, Any] | None) -> None:
    """Media has one key `url` for users; inside it has the names of Open Responses."""
    renamed = public if wire is None else {key: value for key, value in public.items() if key != "url"} | wire
    assert part_from(public).to_dict() == public
    assert part_from(public).to_object() == renamed
    assert part_from(renamed).to_dict() == public
    assert part_from(part_from(public).to_object()) == part_from(public)


@given(st.sampled_from(sorted(PARTS)) | TEXT.filter(bool), OBJECTS)
def test_no_key_of_a_part_is_lost(kind: str, extras: dict[str, Any]) -> None:
    """Unknown types, unknown keys, odd keys and null under unknown keys are kept."""
    known = {"text": "a", "refusal": "b", "format": "messages", "payload": {}, "type": kind}
    data = {**{key: value for key, value in extras.items() if key not in NOT_EXTRAS}, **known}
    part = part_from(data)
    assert same(part.to_object(), data)
    assert same(part.to_dict(), data)


NOT_EXTRAS = {"extra", "origin", "native", "annotations", "logprobs", "url", "image_url", "data", "detail"}


@pytest.mark.parametrize(
    ("value", "role", "kind"),
    [
        ("hello", None, "input_text"),
        ("hello", "user", "input_text"),
        ("hello", "developer", "input_text"),
        ("hello", "assistant", "output_text"),
        ({"text": "hello"}, "user", "input_text"),
        ({"text": "hello", "type": None}, "assistant", "output_text"),
        ({"type": "input_text", "text": "hello"}, "assistant", "input_text"),
        (InputText(text="hello"), "assistant", "input_text"),
    ],
)
def test_text_takes_its_type_from_the_role(value: Any, role: str | None, kind: str) -> None:
    """Assistants write `output_text`, everybody else `input_text`; a stated type is kept."""
    assert [part.to_dict() for part in content_from(value, role)] == [{"type": kind, "text": "hello"}]


def test_a_list_of_content_may_be_mixed() -> None:
    parts = content_from(["a", {"type": "refusal", "refusal": "b"}, OutputText(text="c")], "user")
    assert [part.type for part in parts] == ["input_text", "refusal", "output_text"]


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (None, "content"),
        (7, "content"),
        ([None], "content[0]"),
        (["a", ["b"]], "content[1]"),
        ({}, "content"),
        ({"type": ""}, "content"),
        ({"type": 7}, "content"),
        ([{"refusal": "no type"}], "content[0]"),
        ([{"type": "input_text"}], "content[0].text"),
        ([{"type": "input_text", "text": 7}], "content[0].text"),
        ([{"type": "output_text", "text": "a", "annotations": 7}], "content[0].annotations"),
        ([{"type": "input_image", "url": {"url": "x"}}], "content[0].url"),
        ([{"type": "input_image", "url": "x", "image_url": "y"}], "content[0].url"),
        ([{"type": "input_file", "url": PDF, "file_data": "y"}], "content[0].url"),
        ([{"type": "provider_item", "format": "messages"}], "content[0].payload"),
        ([{"type": "input_text", "text": "a", "when": {1, 2}}], "content[0].when"),
        ([{"type": "input_text", "text": "a", "map": {1: 2}}], "content[0].map"),
        ([{"type": "input_text", "text": "a", 7: 8}], "content[0]"),
    ],
)
def test_a_wrong_shape_is_refused_with_its_place(value: Any, place: str) -> None:
    with pytest.raises(InvalidItem) as caught:
        content_from(value)
    assert str(caught.value).startswith(place + " ")


@given(JSON | OBJECTS)
def test_any_json_is_content_or_an_invalid_item(value: Any) -> None:
    try:
        parts = content_from(value)
    except InvalidItem:
        return
    assert all(isinstance(part, Part) for part in parts)


@pytest.mark.parametrize(
    ("made", "arguments"), [(InputText, {}), (InputText, {"text": 5}), (InputImage, {"url": b"x"})]
)
def test_constructors_raise_our_errors(made: type[Part], arguments: dict[str, Any]) -> None:
    """Pydantic's own error is no part of the interface."""
    with pytest.raises(InvalidItem) as caught:
        made(**arguments)
    assert not isinstance(caught.value, ValidationError)


@pytest.mark.parametrize("make", [InputImage, InputFile, InputVideo])
def test_raw_bytes_become_a_data_url(make: Any) -> None:
    part = make(data=b"img", media_type="image/png")
    assert part.url == "data:image/png;base64,aW1n"
    assert part.data == b"img"
    assert part.extra == {"media_type": "image/png"}
    assert make(data=bytearray(b"img")).url == "data:application/octet-stream;base64,aW1n"
    assert make("https://example.org/a").data is None
    with pytest.raises(InvalidItem, match="both"):
        make(url="https://example.org", data=b"img")


def test_text_under_data_is_an_extra() -> None:
    """Base64 that somebody stored there is not encoded a second time."""
    part = part_from({"type": "input_image", "data": "aW1n", "file_id": "f"})
    assert part.extra == {"data": "aW1n"}
    assert part.to_object() == {"type": "input_image", "data": "aW1n", "file_id": "f"}


@pytest.mark.parametrize("kind", ["input_image", "input_file", "input_text"])
def test_a_nested_extra_object_is_flattened(kind: str) -> None:
    """What stands inline wins."""
    part = part_from({"type": kind, "text": "t", "extra": {"note": 1, "hint": 2, "type": "x"}, "note": 3})
    assert part.extra.items() >= {"note": 3, "hint": 2}.items()
    assert part.type == kind
    assert "extra" not in part.to_dict()


def test_provider_blocks_and_unknown_types_keep_a_nested_extra() -> None:
    block = {"type": "provider_item", "format": "messages", "payload": {"extra": {"a": 1}}, "extra": {"b": 2}}
    assert isinstance(part_from(block), ProviderPart)
    assert part_from(block).to_object() == block
    assert isinstance(part_from({"type": "hologram", "extra": {}}), UnknownPart)


def test_the_keys_of_the_api_are_fields() -> None:
    part = part_from({"type": "input_file", "file_id": "f", "detail": "low", "prompt_cache_breakpoint": {}, "x": 1})
    assert part.extra == {"x": 1}


def test_parts_are_values() -> None:
    """They cannot be changed, not even through the JSON they were made of or the dict they give."""
    given_dict: dict[str, Any] = {"type": "input_text", "text": "a", "cache_control": {"type": "ephemeral"}}
    part = part_from(given_dict)
    assert isinstance(part, InputText)
    given_dict["cache_control"]["type"] = "other"
    part.to_dict()["cache_control"]["type"] = "other"
    assert part == part_from({"type": "input_text", "text": "a", "cache_control": {"type": "ephemeral"}})
    with pytest.raises(ValidationError):
        part.text = "b"  # type: ignore[misc]


def test_depth_is_limited_at_the_door() -> None:
    value: Any = []
    value.append(value)
    with pytest.raises(InvalidItem, match=r"content\[0\].loop is nested deeper"):
        item_from({"role": "user", "content": [{"type": "input_text", "text": "a", "loop": value}]}, "").to_dict()


@pytest.mark.parametrize("kind", ["function_call", "function_call_output", "custom_tool_call_output"])
def test_a_turn_of_a_tool_is_no_content(kind: str) -> None:
    """No call would find its output there."""
    with pytest.raises(InvalidItem, match=r"content\[1\] is a .* add_item"):
        content_from(["Hello", {"type": kind, "call_id": "c", "output": "42"}])
