"""Rules of rendering for Gemini that no reference case shows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats.factories import answer, assistant, call, codes, output, reasoning, render, snapshot, user
from threadkeep.domain.content import PARTS
from threadkeep.domain.rendering import Rendered, RenderOptions
from threadkeep.errors import ItemRefused, LossError
from threadkeep.formats import get_format
from threadkeep.formats.gemini import parts
from threadkeep.formats.gemini.calls import NO_SIGNATURE

Json = dict[str, Any]
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aW1n"}
INLINE = {"inlineData": {"mimeType": "image/png", "data": "aW1n"}}
NAMELESS = {"native": {"gemini": {"functionCall": {"id": None}}}}


def rendered(*items: Any, **settings: Any) -> Rendered:
    return render("gemini", *items, **{"model": "gemini-2.5-flash", **settings})


def contents_of(*items: Any, **settings: Any) -> list[Json]:
    found: list[Json] = rendered(*items, **settings).payload["contents"]
    return found


def parts_of(*items: Any, **settings: Any) -> list[Json]:
    """The parts of all contents."""
    return [part for found in contents_of(*items, **settings) for part in found["parts"]]


def shape(found: list[Json]) -> list[tuple[str, list[str]]]:
    """Roles and the first keys of parts."""
    return [(one["role"], [next(iter(part)) for part in one["parts"]]) for one in found]


# Tables


def test_every_part_has_a_mapper() -> None:
    for mappers in parts.PARTS.values():
        assert PARTS.keys() <= mappers.keys()


# Turns


def test_the_first_turn_is_the_users() -> None:
    found = rendered(assistant("Hi"), user("Hello"))
    assert found.payload["contents"][0] == {"role": "user", "parts": [{"text": "..."}]}
    assert codes(found) == ([], ["leading_assistant"])
    with pytest.raises(LossError):
        render("gemini", assistant("Hi"), options=RenderOptions(strict=True))


def test_contents_of_the_user_that_came_apart_stay_apart_and_all_others_join() -> None:
    came = [(user(text, origin="gemini"), None, object()) for text in ("a", "b")]
    found = contents_of([came[0]], [came[1]], user("c"), assistant("d"), assistant("e"))
    assert [[part["text"] for part in one["parts"]] for one in found] == [["a"], ["b", "c"], ["d", "e"]]


def test_outputs_stand_directly_behind_their_calls_under_their_names() -> None:
    found = rendered(
        user("Go"), call("a", "one"), call("b", "two"), user("Wait"), output("b", "2"), output("a", "1"), user("Well?")
    )
    assert shape(found.payload["contents"]) == [
        ("user", ["text"]),
        ("model", ["functionCall", "functionCall"]),
        ("user", ["functionResponse", "functionResponse", "text", "text"]),
    ]
    names = [part["functionResponse"]["name"] for part in found.payload["contents"][2]["parts"][:2]]
    assert names == ["two", "one"]
    assert codes(found) == ([], ["moved_output", "moved_output"])


def test_calls_of_one_answer_do_not_join_those_of_another() -> None:
    first, second = (answer(call(name), origin="gemini", seen=seen) for name, seen in (("a", 0), ("b", 1)))
    found = contents_of(user("Go"), first, second, output("b"))
    assert [role for role, _ in shape(found)] == ["user", "model", "user", "model", "user"]


def test_calls_without_ids_are_answered_in_their_own_order() -> None:
    """The service pairs them by name and order."""
    made = [{**call(f"gemini_call_r_{number}"), **NAMELESS} for number in (0, 1)]
    parts = parts_of(
        user("Go"),
        answer(*made, origin="gemini"),
        output("gemini_call_r_1", "second"),
        output("gemini_call_r_0", "1st"),
    )
    assert [part["functionResponse"]["response"]["result"] for part in parts[3:]] == ["1st", "second"]
    assert all("id" not in value for part in parts for value in part.values() if isinstance(value, dict))


def test_a_call_without_an_id_takes_the_one_that_its_output_came_with() -> None:
    made = {**call("gemini_call_r_0"), **NAMELESS}
    came = output("gemini_call_r_0", origin="gemini", native={"gemini": {"functionResponse": {"id": "client_1"}}})
    parts = parts_of(user("Go"), answer(made, origin="gemini"), came)
    assert [parts[1]["functionCall"]["id"], parts[2]["functionResponse"]["id"]] == ["client_1", "client_1"]


def test_an_id_that_comes_twice_at_once_becomes_a_hash() -> None:
    found = rendered(user("Go"), call("a"), call("a"), output("a", "1"), output("a", "2"))
    calls = [part["functionCall"]["id"] for part in found.payload["contents"][1]["parts"]]
    answers = [part["functionResponse"]["id"] for part in found.payload["contents"][2]["parts"]]
    assert len(set(calls)) == 2
    assert sorted(calls) == sorted(answers)
    assert "duplicate_call_id" in codes(found)[1]


def test_an_output_that_came_after_its_placeholder_is_told_as_text() -> None:
    found = rendered(user("Go"), call("a"), answer(assistant("Hm."), origin="gemini", seen=1), output("a", "late"))
    assert found.payload["contents"][2]["parts"][0]["functionResponse"]["response"] == {"result": "Tool result missing"}
    assert [part["text"] for part in found.payload["contents"][-1]["parts"]][-1] == "late"
    assert codes(found)[1] == ["missing_output", "late_output"]


def test_outputs_of_calls_that_other_formats_alone_know_are_left_out() -> None:
    payload = {"id": "z", "type": "custom", "custom": {"name": "sql", "input": "x"}}
    foreign = {"type": "provider_item", "format": "chat_completion", "payload": payload}
    found = rendered(
        user("Go"), foreign, {"type": "custom_tool_call_output", "call_id": "z", "output": "1"}, output("z")
    )
    assert shape(found.payload["contents"]) == [("user", ["text"])]
    assert codes(found)[0][0] == "provider_item"


def test_custom_calls_are_calls_with_their_input() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select 1"}
    answered = {"type": "custom_tool_call_output", "call_id": "c", "output": "1"}
    parts = parts_of(user("Go"), custom, answered)
    assert parts[1] == {"functionCall": {"name": "sql", "args": {"input": "select 1"}, "id": "c"}}
    assert parts[2] == {"functionResponse": {"name": "sql", "response": {"result": "1"}, "id": "c"}}


@pytest.mark.parametrize(
    ("arguments", "repair"),
    [
        ("[1]", ["malformed_arguments"]),
        ("{", ["malformed_arguments"]),
        ('{"n": NaN}', ["malformed_arguments"]),
        ('{"n":' + "[" * 300 + "]" * 300 + "}", ["malformed_arguments"]),
        ("", ["malformed_arguments"]),
        (" ", ["malformed_arguments"]),
    ],
)
def test_arguments_that_are_no_object_become_an_empty_one(arguments: str, repair: list[str]) -> None:
    found = rendered(user("Go"), call("a", arguments=arguments), output("a"))
    assert found.payload["contents"][1]["parts"][0]["functionCall"]["args"] == {}
    assert codes(found)[1] == repair


@pytest.mark.parametrize("arguments", ["", " ", "[1]"])
def test_arguments_that_are_no_object_are_refused_where_the_request_must_be_exact(arguments: str) -> None:
    with pytest.raises(ItemRefused):
        rendered(user("Go"), call("a", arguments=arguments), output("a"), options=RenderOptions(strict=True))


def test_large_numbers_are_sent_as_they_are_and_lone_surrogates_are_not() -> None:
    found = rendered(user("Go"), call("a", arguments='{"n":123456789012345678901,"s":"\\ud800"}'), output("a"))
    assert b"123456789012345678901" in found.body
    assert found.payload["contents"][1]["parts"][0]["functionCall"]["args"]["s"] == "\ufffd"
    assert codes(found) == ([], ["invalid_text"])


def test_the_stable_part_ends_before_calls_that_wait_and_before_the_last_content() -> None:
    assert rendered(user("a")).stable == 0
    assert rendered(user("a"), assistant("b")).stable == 1
    assert rendered(user("a"), call("x"), output("x"), assistant("c")).stable == 3
    assert rendered(user("a"), answer(call("x"), call("y"), origin="gemini"), output("x"), user("b")).stable == 1


# Outputs


@pytest.mark.parametrize(
    ("text", "status", "response"),
    [
        ("done", None, {"result": "done"}),
        ('{"a": 1}', None, {"a": 1}),
        ("[1]", None, {"result": "[1]"}),
        (None, None, {"result": ""}),
        ("no", "failed", {"error": "no"}),
        ('{"a": 1}', "failed", {"error": {"a": 1}}),
        ('{"error": 1}', "failed", {"error": 1}),
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], None, {"result": "a\nb"}),
    ],
)
def test_an_output_is_an_object(text: Any, status: str | None, response: Json) -> None:
    keys = {"status": status} if status else {}
    assert parts_of(user("Go"), call(), output(text=text, **keys))[2]["functionResponse"]["response"] == response


def test_media_of_an_output_stand_in_the_response_or_beside_it() -> None:
    """Models before Gemini 3 take no media inside."""
    items = [user("Go"), call(thought_signature="c2ln"), output(text=[{"type": "input_text", "text": "a"}, IMAGE])]
    assert parts_of(*items, model="gemini-3-pro")[2]["functionResponse"]["parts"] == [INLINE]
    *_, response, image = parts_of(*items, model="gemini-2.5-pro")
    assert "parts" not in response["functionResponse"]
    assert image == INLINE


# Signatures and thoughts


@pytest.mark.parametrize("model", ["gemini-3-flash-preview", "models/gemini-3.5-pro", "gemini-flash-latest"])
def test_the_first_call_of_each_step_gets_a_signature_where_the_model_wants_one(model: str) -> None:
    found = rendered(user("Go"), call("a"), call("b"), output("a"), output("b"), call("c"), output("c"), model=model)
    signatures = [part.get("thoughtSignature") for one in found.payload["contents"] for part in one["parts"]]
    assert [signature for signature in signatures if signature] == [NO_SIGNATURE, NO_SIGNATURE]
    assert codes(found)[1] == ["thought_signature", "thought_signature"]
    assert codes(rendered(user("Go"), call("a"), output("a"), model="gemini-2.5-pro"))[1] == []


def test_signatures_of_other_services_are_not_sent() -> None:
    signed = {"thought_signature": "c2ln"}
    text = {"type": "output_text", "text": "Hi", **signed}
    thought = reasoning(parts=[{"type": "thinking", "thinking": "hm", "signature": "x"}])
    found = rendered(user("Go"), answer(thought, call(**signed), origin="messages"), output())
    assert "thoughtSignature" not in found.body.decode()
    assert codes(found)[0] == ["reasoning"]
    assert parts_of(user("Go"), assistant(text))[1] == {"text": "Hi", "thoughtSignature": "c2ln"}


def test_a_call_that_the_service_made_behind_chat_completions_keeps_its_signature() -> None:
    shown = {"chat_completion": {"extra_content": {"google": {"thought_signature": "c2ln"}}}}
    parts = parts_of(user("Go"), answer(call(native=shown), origin="chat_completion"), output())
    assert parts[1]["thoughtSignature"] == "c2ln"


# Media


@pytest.mark.parametrize(
    ("part", "media_type"),
    [
        ({"image_url": "https://x.example/a.png?v=2"}, "image/png"),
        ({"image_url": "https://x.example/a.pdf"}, "image/jpeg"),
        ({"type": "input_video", "video_url": "gs://b/a", "media_type": "video/webm"}, "video/webm"),
        ({"type": "input_video", "file_id": "files/1"}, "video/mp4"),
        ({"type": "input_file", "file_id": "files/1", "filename": "a.csv"}, "text/csv"),
        ({"type": "input_file", "file_url": "https://x.example/A.PDF#2"}, "application/pdf"),
    ],
)
def test_media_types_are_found_out(part: Json, media_type: str) -> None:
    source = next(part[key] for key in ("image_url", "video_url", "file_url", "file_id") if key in part)
    sent = {"fileData": {"mimeType": media_type, "fileUri": source}}
    assert parts_of(user({"type": "input_image", **part})) == [sent]


@pytest.mark.parametrize(
    ("part", "media_type"),
    [
        ({"type": "input_video", "video_url": "data:video/webm;base64,aW1n"}, "video/webm"),
        ({"type": "input_file", "file_url": "data:text/plain,hi"}, "text/plain"),
        ({"type": "input_image", "image_url": "data:application/octet-stream;base64,aW1n"}, "image/jpeg"),
        ({"type": "input_file", "file_data": "data:audio/wav;base64,aW1n", "media_type": "audio/x"}, "audio/x"),
    ],
)
def test_data_urls_are_inline(part: Json, media_type: str) -> None:
    assert parts_of(user(part))[0]["inlineData"]["mimeType"] == media_type


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ({"type": "input_image"}, "image_source"),
        ({"type": "input_image", "image_url": "data:image/png;base64,###"}, "data_url"),
        ({"type": "input_file", "file_url": "https://x.example/plan"}, "media"),
        ({"type": "input_file", "filename": "a.pdf"}, "file_source"),
        ({"type": "input_video"}, "media"),
    ],
)
def test_media_that_cannot_be_sent_become_a_note(part: Json, code: str) -> None:
    found = rendered(user(part))
    assert "not included" in found.payload["contents"][0]["parts"][0]["text"]
    assert codes(found)[0] == [code]


def test_an_own_block_is_sent_where_it_stands_and_one_of_another_format_is_not() -> None:
    code = {"executableCode": {"code": "1", "language": "PYTHON"}, "thoughtSignature": "c2ln"}
    item = {"type": "provider_item", "format": "gemini", "payload": code}
    foreign = {"type": "provider_item", "format": "messages", "payload": {"type": "x"}}
    found = rendered(user("Go"), item, assistant("1", item), foreign)
    assert found.payload["contents"][1]["parts"] == [code, {"text": "1"}, code]
    assert codes(found) == (["provider_item"], ["last_turn"])


def test_views_of_a_snapshot_are_recorded() -> None:
    found = get_format("gemini").render(snapshot(user("a"), user("b")), RenderOptions(upto=0))
    assert (found.view, found.head) == ({"format": "gemini", "upto": 0}, 0)


def test_blocks_of_any_form_stand_in_outputs() -> None:
    odd = {"type": "provider_item", "format": "gemini", "payload": 5}
    parts = parts_of(user("Go"), call("a"), output("a", [odd]), model="gemini-3-pro")
    assert parts[2]["functionResponse"]["parts"] == [5]
