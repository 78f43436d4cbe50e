"""Reading Gemini requests and turns: what becomes canonical, what stays native, and who is answered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats.spelling_gemini import leveled
from threadkeep.domain.formats import OpenCall
from threadkeep.domain.rendering import RenderOptions
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse
from threadkeep.formats import get_format

Json = dict[str, Any]
FORMAT = get_format("gemini")
ANY = {"mode": "any"}
HELLO = {"role": "user", "parts": [{"text": "Hello"}]}


def read(*contents: Json, model: str | None = None, **head: Any) -> Session:
    return FORMAT.parse_request({"contents": list(contents), **head}, model=model)


def said(role: str, *parts: Any, **keys: Any) -> Json:
    return {"role": role, "parts": list(parts), **keys}


def made(name: str, **keys: Any) -> Json:
    return {"functionCall": {"name": name, "args": {}, **keys}}


def gave(name: str, result: Any = "x", **keys: Any) -> Json:
    return {"functionResponse": {"name": name, "response": {"result": result}, **keys}}


def objects(session: Session) -> list[Json]:
    return [item.to_object() for item in session.items]


def plain(thing: Any) -> Any:
    """Items without what says where they came from."""
    if isinstance(thing, dict):
        return {key: plain(value) for key, value in thing.items() if key not in ("origin", "native", "spelling")}
    return [plain(one) for one in thing] if isinstance(thing, list) else thing


# Items


def test_a_request_becomes_items_and_settings() -> None:
    session = read(
        said("user", {"text": "What is this?"}, {"inlineData": {"mimeType": "image/png", "data": "aW1n"}}),
        said("model", {"text": "hm", "thought": True}, {"text": "A dot."}, made("look", id="c1")),
        said("user", gave("look", id="c1"), {"text": "And now?"}),
        model="gemini-3-pro",
        systemInstruction={"parts": [{"text": "Be brief."}, {"text": "Be kind."}]},
        generationConfig={"temperature": 1, "maxOutputTokens": 9, "topK": 3},
        tools=[{"functionDeclarations": [{"name": "look"}]}, {"googleSearch": {}}],
        toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}},
    )
    assert plain(objects(session)) == [
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be kind."}]},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "image_url": "data:image/png;base64,aW1n"},
            ],
        },
        {"type": "reasoning", "content": [{"type": "thinking", "thinking": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A dot."}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "x"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
    ]
    assert session.turns == [0, 1, 2, 2, 2, 3, 3]
    assert session.settings == {
        "model": "gemini-3-pro",
        "instructions": "Be brief.",
        "temperature": 1.0,
        "max_output_tokens": 9,
        "tool_choice": {"type": "function", "name": "look"},
        "extra": {"gemini": {"generationConfig": {"topK": 3}}},
    }
    assert [tool["type"] for tool in session.tools] == ["function", "provider_tool"]


def test_what_comes_from_the_wire_goes_into_other_formats() -> None:
    session = read(
        said("user", {"text": "Go"}),
        said("model", {**made("f"), "thoughtSignature": "c2ln"}),
        said("user", gave("f")),
        tools=[{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT", "properties": {}}}]}],
        generationConfig={"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT"}},
        model="gemini-3-pro",
    )
    rendered = session.render("chat_completion")
    assert ([loss.code for loss in rendered.losses], rendered.repairs) == (["signature"], [])
    assert rendered.payload["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert rendered.payload["response_format"]["json_schema"] == {"name": "response", "schema": {"type": "object"}}
    assert "c2ln" not in rendered.body.decode()


@pytest.mark.parametrize(
    "part",
    [
        {"executableCode": {"code": "1", "language": "PYTHON"}, "thoughtSignature": "c2ln"},
        {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "x"}},
        {"thoughtSignature": "c2ln"},
        {"thought": True, "thoughtSignature": "c2ln"},
        {"text": "", "thoughtSignature": "_-8"},
        {"text": "x", "thought": False, "partMetadata": {"a": 1}},
        {"functionCall": {"name": "f", "partialArgs": [{"jsonPath": "$.a"}]}, "thought": True},
        {"functionCall": {"name": "f"}, "thought_signature": "c2ln"},
        {"functionCall": {"args": {}}},
        {"inlineData": {"mimeType": "image/png", "data": "aW1n"}},
        7,
    ],
)
def test_any_part_of_the_model_goes_back_as_it_came(part: Any) -> None:
    request = {"contents": [HELLO, said("model", part, {"text": "So."})]}
    assert FORMAT.parse_request(request).request_payload("gemini") == request


@pytest.mark.parametrize(
    "part",
    [
        {"inlineData": {"mimeType": "audio/wav", "data": "-_-_", "displayName": "a.wav"}},
        {"inline_data": {"mime_type": "video/mp4", "data": "aQ"}, "videoMetadata": {"fps": 1}},
        {"inlineData": {"mimeType": "text/plain; charset=utf-8", "data": "aQ=="}},
        {"inlineData": {"mimeType": "image/png", "data": "###"}},
        {"inlineData": {"data": "aQ=="}},
        {"fileData": {"file_uri": "gs://b/a.pdf", "mime_type": "application/pdf"}, "mediaResolution": {"level": "X"}},
        {"fileData": {"fileUri": "https://youtu.be/x"}},
        {"fileData": {"fileUri": "data:image/png;base64,aQ=="}},
        {"fileData": {"fileUri": "files/1", "mimeType": "image/png", "other": 1}},
        {"text": "x", "thought": True},
        {"text": 5},
        {},
    ],
)
def test_any_part_of_the_user_goes_back_as_it_came(part: Any) -> None:
    request = {"contents": [said("user", part, {"text": "So?"})]}
    assert FORMAT.parse_request(request).request_payload("gemini") == request


@pytest.mark.parametrize(
    "response",
    [{"result": "x"}, {"result": '{"a": 1}'}, {"result": None}, {"error": "no"}, {}, None, {"result": "x", "more": 1}],
)
@pytest.mark.parametrize(
    "parts", [None, [], [{"inline_data": {"mime_type": "image/png", "data": "-_-_"}}], [{"text": "x"}]]
)
def test_any_response_goes_back_as_it_came(response: Any, parts: Any) -> None:
    inner = {"name": "f", "response": response, "parts": parts, "scheduling": "SILENT"}
    sent = {"functionResponse": {key: value for key, value in inner.items() if value is not None}}
    request = {"contents": [HELLO, said("model", made("f")), said("user", sent)]}
    assert FORMAT.parse_request(request).request_payload("gemini") == request


@pytest.mark.parametrize(
    "contents",
    [
        [said("function", gave("f"))],
        [{"parts": [{"text": "no role"}]}],
        [{"role": "user", "parts": {"text": "alone"}}],
        [said("system", {"text": "not a place for it"})],
        [HELLO, {"role": "model"}],
        [HELLO, said("model", made("f")), said("user", {"text": "before"}, gave("f"))],
        [said("model", {"text": "first"}), HELLO],
        [said("user", gave("f", id="orphan")), said("model", {"text": "ok"})],
        [HELLO, said("model", made("f"), made("g")), said("user", gave("g"))],
        [said("user", {"text": "x"}, note="odd")],
    ],
)
def test_contents_of_any_shape_go_back_as_they_came(contents: list[Json]) -> None:
    rendered = FORMAT.parse_request({"contents": contents}).render("gemini")
    assert rendered.payload["contents"] == contents
    assert (rendered.losses, rendered.repairs) == ([], [])


@pytest.mark.parametrize(
    "head",
    [
        {"generation_config": {"max_output_tokens": 5, "thinking_config": {"include_thoughts": True}}},
        {"generationConfig": {}},
        {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}, "maxOutputTokens": "5"}},
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
        {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}}},
        {"generationConfig": {"responseMimeType": "application/json", "responseSchema": {"type": "STRING"}}},
        {"generationConfig": {"responseSchema": {"type": "STRING"}}},
        {"generationConfig": {"responseLogprobs": True}},
        {"system_instruction": {"parts": {"text": "x"}, "role": "system"}},
        {"systemInstruction": {"parts": [{"text": "x", "thought": True}]}},
        {"systemInstruction": {"parts": [{"text": ""}], "other": 1}},
        {"systemInstruction": {}},
        {"systemInstruction": "text"},
        {"tools": {"function_declarations": [{"name": "f"}]}},
        {"tools": [{"functionDeclarations": [{"name": "f", "description": ""}], "codeExecution": {}}]},
        {"tools": [{"functionDeclarations": [{"name": "f", "parameters_json_schema": {}, "behavior": "BLOCKING"}]}]},
        {"tools": [{"functionDeclarations": [{"name": "9 odd"}]}], "toolConfig": {"functionCallingConfig": ANY}},
        {"tools": []},
        {"tools": [{"functionDeclarations": "odd"}]},
        {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}, "retrievalConfig": {}}},
        {"tool_config": {"function_calling_config": {"mode": "VALIDATED", "allowed_function_names": ["f"]}}},
        {"serviceTier": "FLEX", "store": False},
        {"labels": {"a_b": "c"}, "modelArmorConfig": {"prompt_template_name": "x"}},
        {"cachedContent": "c/1", "tools": [{"googleSearch": {}}]},
        {"model": "models/gemini-3-pro"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("model", [None, "gemini-2.5-flash", "gemini-3-pro"])
def test_heads_of_any_spelling_go_back_as_they_came(head: Json, model: str | None) -> None:
    request = {**head, "contents": [HELLO]}
    rendered = FORMAT.parse_request(request, model=model).render("gemini")
    assert rendered.payload == request
    assert (rendered.losses, rendered.repairs) == ([], [])


def test_a_lone_content_may_stand_without_its_list() -> None:
    request = {"contents": HELLO}
    session = FORMAT.parse_request(request)
    assert session.request_payload("gemini") == request
    session.assistant("Hi")
    assert session.request_payload("gemini")["contents"][0] == HELLO


def test_what_is_changed_after_reading_is_sent_as_changed() -> None:
    config = {"thinkingConfig": {"thinkingLevel": "low"}, "responseMimeType": "application/json"}
    request = {
        "contents": [HELLO],
        "generation_config": {**config, "responseSchema": {"type": "STRING"}},
        "systemInstruction": {"parts": {"text": "x"}},
    }
    session = FORMAT.parse_request(request, model="gemini-3-pro")
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    session.update(reasoning={"effort": "high"}, text={"format": form}, instructions=None)
    assert session.request_payload("gemini")["generation_config"] == {
        "thinkingConfig": {"thinkingLevel": "HIGH"},
        "responseMimeType": "application/json",
        "responseSchema": {"type": "object"},
    }


# Calls and responses


def test_responses_without_ids_answer_calls_by_name_and_order() -> None:
    session = read(
        HELLO,
        said("model", made("f"), made("g"), made("f")),
        said("user", gave("g", "1"), gave("f", "2"), gave("f", "3")),
    )
    calls = {item["call_id"]: item["name"] for item in objects(session) if item["type"] == "function_call"}
    answers = [(calls[item["call_id"]], item["output"]) for item in objects(session) if "output" in item]
    assert answers == [("g", "1"), ("f", "2"), ("f", "3")]
    assert [name.rpartition("_")[2] for name in calls] == ["0", "1", "2"]


def test_calls_in_successive_contents_of_the_model_are_of_one_answer() -> None:
    """Chats of @google/genai 2.32.0 and google-genai 3.6.1 keep each chunk of a stream as a content, with a call each.

    Their tools' responses follow in one content, in the order of the calls, and without ids, as the calls have none.
    """
    calls = [said("model", made("f", args={"n": number})) for number in (1, 2)]
    session = read(HELLO, *calls, said("user", gave("f", "first"), gave("f", "second")), *calls)
    first, second, *outputs, third, fourth = objects(session)[1:]
    answered = [(output["call_id"], output["output"]) for output in outputs]
    assert answered == [(first["call_id"], "first"), (second["call_id"], "second")]
    assert len({call["call_id"] for call in (first, second, third, fourth)}) == 4

    history = [OpenCall(call["call_id"], "f") for call in (third, fourth)]
    (added,) = FORMAT.parse_turns([said("user", gave("f", "1"), gave("f", "2"))], history)
    assert [item.to_object()["call_id"] for item in added] == [third["call_id"], fourth["call_id"]]


def test_the_same_call_in_a_later_turn_has_another_id() -> None:
    turn = [said("model", made("f")), said("user", gave("f"))]
    ids = [item["call_id"] for item in objects(read(HELLO, *turn, *turn)) if item["type"] == "function_call"]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("response", "answered"),
    [
        (gave("f"), "gemini_call_r2_0"),
        (gave("g"), "gemini_call_r2_1"),
        (gave("h"), "toolu_1"),
        (gave("f", id="toolu_1"), "toolu_1"),
        (gave("f", id="pyd_ai_1"), "gemini_call_r2_0"),
    ],
)
def test_turns_that_are_added_answer_the_open_calls_of_the_history(response: Json, answered: str) -> None:
    """The newest turn with a call of that name counts; an id of the client alone says nothing."""
    calls = {"gemini_call_r1_0": "f", "toolu_1": "h", "gemini_call_r2_0": "f", "gemini_call_r2_1": "g"}
    history = [OpenCall(call_id, name) for call_id, name in calls.items()]
    ((item,),) = FORMAT.parse_turns(said("user", response), history)
    assert item.to_object()["call_id"] == answered


def test_an_answer_and_its_results_give_the_request_that_the_client_would_send() -> None:
    session = read(HELLO, model="gemini-3-pro")
    body = {
        "candidates": [{"content": said("model", {**made("f"), "thoughtSignature": "c2ln"}), "finishReason": "STOP"}],
        "responseId": "r1",
    }
    (call,) = session.add_response(body, "gemini").tool_calls
    assert call.call_id == "gemini_call_r1_0"
    for items in FORMAT.parse_turns([said("user", gave("f", id="mine"))], [OpenCall(call.call_id, "f")]):
        session.add_items(items, turn=session.new_turn())
    assert session.request_payload("gemini")["contents"][1:] == [
        said("model", {**made("f", id="mine"), "thoughtSignature": "c2ln"}),
        said("user", gave("f", id="mine")),
    ]


def test_what_the_application_answers_itself_carries_no_id_that_was_made() -> None:
    session = read(HELLO, model="gemini-2.5-flash")
    session.add_response({"candidates": [{"content": said("model", made("f"))}], "responseId": "r1"}, "gemini")
    session.add_function_call_output("gemini_call_r1_0", "x")
    assert session.request_payload("gemini")["contents"][1:] == [said("model", made("f")), said("user", gave("f"))]


def test_a_cut_leaves_no_call_unanswered() -> None:
    session = read(HELLO, said("model", made("f", id="c")), said("user", gave("f", id="c")))
    payload = FORMAT.render(session, RenderOptions(upto=1)).payload
    assert payload["contents"][2] == said("user", gave("f", "Tool result missing", id="c"))


# What is no request


@pytest.mark.parametrize("payload", [{}, {"contents": []}, {"contents": 5}, {"messages": []}, [], "x", None])
def test_what_has_no_contents_is_no_request(payload: Any) -> None:
    with pytest.raises(CannotParse):
        FORMAT.parse_request(payload)


@pytest.mark.parametrize("turns", [5, "x", [5], [{"role": "user"}], None])
def test_what_has_no_parts_is_no_turn(turns: Any) -> None:
    with pytest.raises(CannotParse):
        FORMAT.parse_turns(turns)


def test_requests_may_be_json_text() -> None:
    session = FORMAT.parse_request('{"contents": [{"parts": [{"text": "hi"}]}]}', stream=True)
    assert session.stream is True
    assert leveled(session.request_payload("gemini")) == leveled({"contents": [said("user", {"text": "hi"})]})
