"""Dialects: what vendors do differently who speak Chat Completions or the Responses API."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.formats.factories import Json, answer, assistant, call, codes, output, render, user
from threadkeep import InvalidOption, Session, Store
from threadkeep.domain.options import DIALECTS
from threadkeep.domain.rendering import Rendered, RenderOptions
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.shared.dialects import CHAT, RESPONSES

TOOL: Json = {"type": "function", "name": "lookup", "parameters": {"type": "object", "properties": {}}}
PICTURE = {"type": "input_image", "image_url": "https://img.example.org/a.png"}


def payload(dialect: str | None, *items: Any, format_name: FormatName = "chat_completion", **settings: Any) -> Json:
    return render(format_name, *items, dialect=dialect, **settings).payload


def content_of(dialect: str | None, *items: Any, **settings: Any) -> list[Any]:
    return [message["content"] for message in payload(dialect, *items, **settings)["messages"]]


# Where they are set


@pytest.mark.parametrize("table", [CHAT, RESPONSES])
def test_every_dialect_has_its_row(table: dict[str, Any]) -> None:
    assert sorted(table) == sorted(DIALECTS)


def test_a_conversation_keeps_its_dialect_and_a_call_may_have_another() -> None:
    session = Session(model="m", input="Hi", dialect="compatible", max_output_tokens=9)
    assert "max_tokens" in session.request_payload("chat_completion")
    assert "max_completion_tokens" in session.request_payload("chat_completion", dialect="openai")
    assert Session.from_dict(session.to_dict()).dialect == "compatible"


def test_the_dialect_of_a_call_is_recorded_with_its_request() -> None:
    options = RenderOptions(dialect="zai")
    assert RenderOptions.recorded(options.view("chat_completion")) == options


@pytest.mark.parametrize("name", ["acme", "", 1, ["zai"]])
def test_a_dialect_that_there_is_not_is_refused_with_those_that_there_are(name: Any) -> None:
    for given in (lambda: Session(model="m", dialect=name), lambda: RenderOptions(dialect=name)):
        with pytest.raises(InvalidOption, match="compatible, deepseek"):
            given()


@pytest.mark.parametrize("format_name", ["messages", "gemini", "converse"])
def test_formats_of_one_vendor_have_none(format_name: FormatName) -> None:
    plain = render(format_name, user("Hi"))
    found = render(format_name, user("Hi"), dialect="mistral")
    assert (found.payload, codes(found)) == (plain.payload, codes(plain))


# Options


@pytest.mark.parametrize(
    ("dialect", "model", "key"),
    [
        (None, "gpt-5.4", "max_completion_tokens"),
        ("openai", "gpt-5.4", "max_completion_tokens"),
        ("openrouter", "openai/gpt-5.4", "max_completion_tokens"),
        ("compatible", "acme-chat", "max_tokens"),
        ("compatible", "mimo-v2-flash", "max_completion_tokens"),
        ("compatible", "minimax-m3", "max_completion_tokens"),
        ("compatible", "minimax-m3-pro", "max_tokens"),
        ("mistral", "mistral-large", "max_tokens"),
        ("deepseek", "deepseek-v4", "max_tokens"),
    ],
)
def test_the_token_limit_has_the_vendors_name(dialect: str | None, model: str, key: str) -> None:
    found = payload(dialect, user("Hi"), model=model, max_output_tokens=9)
    assert {name: found[name] for name in found if name.startswith("max")} == {key: 9}


EFFORTS = {
    # model, effort -> what is sent for it
    ("glm-4.6", "off"): {"thinking": {"type": "disabled"}},
    ("glm-5", "none"): {"thinking": {"type": "disabled"}},
    ("glm-5.2", "low"): {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
    ("glm-5.2", "xhigh"): {"thinking": {"type": "enabled"}, "reasoning_effort": "max"},
    ("glm-5.3", "off"): {"thinking": {"type": "enabled"}, "reasoning_effort": "low"},
    ("z-ai/glm-5.3", "max"): {"thinking": {"type": "enabled"}, "reasoning_effort": "max"},
    ("kimi-k3", "medium"): {"reasoning_effort": "low"},
    ("mimo-v2-pro", "high"): {"thinking": {"type": "enabled"}},
    ("mimo-v2-pro", "off"): {"thinking": {"type": "disabled"}},
    ("minimax-m3", "low"): {"thinking": {"type": "adaptive"}},
    ("minimax-m3", "off"): {"thinking": {"type": "disabled"}},
    ("deepseek-v4", "xhigh"): {"reasoning_effort": "max"},
    ("deepseek-v4", "high"): {"reasoning_effort": "high"},
    ("acme", "whatever"): {"reasoning_effort": "whatever"},
    ("myglm-5", "medium"): {"reasoning_effort": "medium"},
    ("acme", ""): {},
}


@pytest.mark.parametrize(("model", "effort"), EFFORTS)
def test_an_effort_is_said_as_the_models_family_has_it(model: str, effort: str) -> None:
    found = payload("compatible", user("Hi"), model=model, reasoning={"effort": effort})
    assert {key: found[key] for key in ("thinking", "reasoning_effort") if key in found} == EFFORTS[model, effort]


def test_another_word_for_an_effort_is_reported() -> None:
    found = render("chat_completion", user("Hi"), model="kimi-k3", dialect="moonshot", reasoning={"effort": "medium"})
    assert codes(found) == ([], ["range"])


def test_a_vendors_own_models_are_of_its_family_under_any_name() -> None:
    settings: Json = {"reasoning": {"effort": "off"}, "model": "newest"}
    assert payload("zai", user("Hi"), **settings)["thinking"] == {"type": "disabled"}
    assert payload("mistral", user("Hi"), **settings)["reasoning_effort"] == "none"


def test_openrouter_takes_effort_or_budget_in_one_object() -> None:
    assert payload("openrouter", user("Hi"), reasoning={"effort": "low"})["reasoning"] == {"effort": "low"}
    both = render("chat_completion", user("Hi"), dialect="openrouter", reasoning={"effort": "low", "budget_tokens": 9})
    assert both.payload["reasoning"] == {"max_tokens": 9}
    assert codes(both) == (["option"], [])


def test_mistral_has_other_names_and_fewer_keys() -> None:
    found = render(
        "chat_completion", user("Hi"), dialect="mistral", tools=[TOOL], tool_choice="required", store=True,
        extra={"seed": 3, "chat_completion": {"safe_prompt": True, "store": False}},
    )  # fmt: skip
    body = found.payload
    assert (body["tool_choice"], body["random_seed"], body["safe_prompt"]) == ("any", 3, True)
    assert body["store"] is False  # which the user asked for by this very name
    assert [loss.path for loss in found.losses] == ["store"]


# Content


def test_lone_texts_are_strings_for_vendors_that_take_no_parts() -> None:
    items = [user("a", role="developer"), user("b"), assistant("c"), user("d", "e"), user("f", PICTURE)]
    found = payload("zai", *items, instructions="Be brief.")["messages"]
    assert [message["role"] for message in found] == ["system", "system", "user", "assistant", "user", "user"]
    assert [message["content"] for message in found[:5]] == ["Be brief.", "a", "b", "c", "d\ne"]
    assert [part["type"] for part in found[5]["content"]] == ["text", "image_url"]


def test_texts_of_one_answer_are_one_string() -> None:
    said = answer(assistant("a"), assistant("b"), call(), origin="open_responses")
    found = payload("zai", user("Hi"), said, output())["messages"]
    assert [message["content"] for message in found if message["role"] == "assistant"][:1] == ["a"]


def test_an_imported_request_keeps_its_lists() -> None:
    content = [{"type": "text", "text": "Hi"}]
    request = {"model": "m", "messages": [{"role": "user", "content": content}]}
    session = get_format("chat_completion").parse_request(request)
    session.user("more")
    sent = session.request_payload("chat_completion", dialect="zai")["messages"]
    assert [message["content"] for message in sent] == [content, "more"]


def test_compatible_servers_get_texts_without_keys_and_none_that_is_empty() -> None:
    parts = [{"type": "text", "text": ""}, {"type": "text", "text": "x", "odd": 1, "cache_control": {"type": "e"}}]
    request = {"model": "m", "messages": [{"role": "user", "content": parts}]}
    session = get_format("chat_completion").parse_request(request)
    found = session.render("chat_completion", dialect="compatible")
    assert found.payload["messages"][0]["content"] == [{"type": "text", "text": "x", "cache_control": {"type": "e"}}]
    assert codes(found) == (["native"], ["blank_text"])
    assert session.request_payload("chat_completion") == request


LOOP = [user("go"), call("a"), call("b"), output("b", [{"type": "input_text", "text": "B"}, PICTURE])]


def results(dialect: str | None, **options: Any) -> list[Any]:
    found = render("chat_completion", *LOOP, dialect=dialect, options=RenderOptions(**options))
    return [(m["tool_call_id"], m["content"]) for m in found.payload["messages"] if m["role"] == "tool"]


def test_what_tools_returned_is_parts_or_a_text_and_json_text_where_that_is_asked_for() -> None:
    assert results(None) == [("b", [{"type": "text", "text": "B"}]), ("a", "Tool result missing")]
    assert results("zai") == [("b", "B"), ("a", "Tool result missing")]
    assert results("compatible") == [("b", "B"), ("a", "Tool result missing")]
    picture = '{"type":"image_url","image_url":{"url":"https://img.example.org/a.png"}}'
    as_json = f'[{{"type":"text","text":"B"}},{picture}]'
    missing = ("a", '{"error":"Tool result missing"}')
    assert results("compatible", tool_results="json") == [("b", as_json), missing]


def test_results_follow_the_order_of_the_calls() -> None:
    items = [user("go"), call("a"), call("b"), output("b", "B"), output("a", "A")]
    found = [m["content"] for m in payload("compatible", *items)["messages"] if m["role"] == "tool"]
    assert found == ["A", "B"]


def test_the_responses_api_of_others_gets_outputs_as_text() -> None:
    found = render("open_responses", *LOOP, dialect="compatible")
    *_, missing, text, moved = found.payload["input"]
    assert (missing["output"], text["output"]) == ("Tool result missing", "B")
    assert moved["content"] == [{"type": "input_text", "text": "Output of the call b:"}, PICTURE]
    assert codes(found) == ([], ["missing_output", "tool_media"])
    as_json = RenderOptions(tool_results="json")
    (*_, text) = render("open_responses", *LOOP, dialect="compatible", options=as_json).payload["input"]
    assert text["output"].startswith('[{"type":"input_text","text":"B"}')


def test_openai_takes_no_penalties_in_its_responses_api() -> None:
    settings: Json = {"format_name": "open_responses", "presence_penalty": 1.0}
    assert "presence_penalty" in payload(None, user("Hi"), **settings)
    assert "presence_penalty" not in payload("openai", user("Hi"), **settings)
    assert codes(render("open_responses", user("Hi"), presence_penalty=1.0, dialect="openai")) == (["option"], [])


# The assistant


def test_every_answer_has_its_reasoning_where_the_vendor_misses_it() -> None:
    thought = {"type": "reasoning", "content": [], "native": {"chat_completion": {"reasoning_content": "hm"}}}
    items = [user("a"), answer(thought, assistant("b"), origin="chat_completion"), user("c"), assistant("d"), user("e")]
    found = payload("deepseek", *items)["messages"]
    assert [message.get("reasoning_content") for message in found] == [None, "hm", None, "", None]
    off = payload("deepseek", *items[2:], reasoning={"effort": "none"})["messages"]
    assert not any("reasoning_content" in message for message in off)


@pytest.mark.parametrize(("dialect", "key"), [("mistral", "prefix"), ("deepseek", "prefix"), ("moonshot", "partial")])
def test_a_last_answer_is_one_to_go_on_with(dialect: str, key: str) -> None:
    found = payload(dialect, user("a"), assistant("b"), user("c"), assistant("d"))["messages"]
    assert [message.get(key) for message in found] == [None, None, None, True]


def test_mistral_gets_call_ids_of_nine_characters() -> None:
    ids = ["abcDEF123", "call_abc-1", "x" * 20, "abc-DEF-123"]
    calls = [part for call_id in ids for part in (call(call_id), output(call_id, call_id))]
    found = render("chat_completion", user("go"), *calls, dialect="mistral")
    sent = [call["id"] for message in found.payload["messages"] for call in message.get("tool_calls", [])]
    answered = [m["tool_call_id"] for m in found.payload["messages"] if m["role"] == "tool"]
    assert sent == answered
    assert sent[0] == "abcDEF123"
    assert all(re.fullmatch("[A-Za-z0-9]{9}", one) for one in sent)
    assert len({*sent}) == len(ids)
    assert codes(found)[1].count("call_id") == 3


# What another vendor gave

FOREIGN: Json = {
    "reasoning_content": "hm",
    "reasoning_details": [{"type": "reasoning.text", "text": "hm"}],
    "channel": "x",
}


def foreign(*content: Json, **keys: Any) -> Json:
    message = {"role": "assistant", "content": list(content) or None, **keys}
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def moved(body: Json, dialect: str | None, format_name: FormatName = "chat_completion") -> Rendered:
    session = Session(model="m", input="Hi")
    session.add_response(body, format_name)
    session.user("And now?")
    return session.render(format_name, dialect=dialect) if dialect else session.render(format_name)


@pytest.mark.parametrize("dialect", ["mistral", "openai"])
def test_keys_of_another_vendor_are_left_out_where_they_are_refused(dialect: str) -> None:
    body = foreign({"type": "text", "text": "Hello"}, **FOREIGN)
    assert FOREIGN.keys() <= moved(body, None).payload["messages"][1].keys()
    found = moved(body, dialect)
    said = found.payload["messages"][1]
    assert (said["role"], "Hello" in str(said["content"])) == ("assistant", True)
    assert said.keys() <= {"role", "content"}
    assert {loss.path for loss in found.losses if loss.code == "native"} == FOREIGN.keys()


def test_an_answer_of_which_nothing_is_left_is_no_message() -> None:
    found = moved(foreign(**FOREIGN), "mistral")
    assert [message["role"] for message in found.payload["messages"]] == ["user", "user"]


def test_thinking_of_mistral_goes_to_mistral_alone() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    body = foreign(thinking, {"type": "text", "text": "Hello"})
    assert "thinking" in str(moved(body, "mistral").payload["messages"][1])
    found = moved(body, "openai")
    assert found.payload["messages"][1]["content"] == [{"type": "text", "text": "Hello"}]
    assert codes(found)[0] == ["part"]


def test_mistral_takes_no_names_of_people() -> None:
    session = get_format("chat_completion").parse_request(
        {"model": "m", "messages": [{"role": "user", "content": "Hi", "name": "ann"}]}
    )
    assert session.request_payload("chat_completion", dialect="openai")["messages"][0]["name"] == "ann"
    assert "name" not in session.request_payload("chat_completion", dialect="mistral")["messages"][0]


def test_ids_of_another_vendor_do_not_go_to_openai() -> None:
    """OpenAI answers 400 to them: 'Expected an ID that begins with …'."""
    message = {"type": "message", "role": "assistant", "status": "completed", "content": []}
    output = [
        {"type": "reasoning", "id": "7-a", "summary": [], "encrypted_content": "x"},
        {**message, "id": "8-b", "content": [{"type": "output_text", "text": "Hello", "annotations": []}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {**message, "id": "msg_2", "content": [{"type": "output_text", "text": "again", "annotations": []}]},
    ]
    body = {"id": "r1", "object": "response", "status": "completed", "model": "m", "output": output}
    before = moved(body, None, "open_responses").payload["input"]
    assert [item.get("id") for item in before] == [None, "7-a", "8-b", "rs_1", "msg_2", None]
    found = moved(body, "openai", "open_responses")
    sent = found.payload["input"]
    assert [(item["type"], item.get("id")) for item in sent] == [
        ("message", None), ("message", None), ("reasoning", "rs_1"), ("message", "msg_2"), ("message", None),
    ]  # fmt: skip
    assert codes(found) == (["reasoning"], ["item_id"])
    assert sent[1]["content"][0]["text"] == "Hello"


def test_an_answer_that_repeats_its_ids_does_not_so_at_openai() -> None:
    """Some hosts give all items of an answer one id; OpenAI takes each once."""
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []}
    texts = [{**item, "content": [{"type": "output_text", "text": text, "annotations": []}]} for text in "ab"]
    body = {"id": "r1", "object": "response", "status": "completed", "model": "m", "output": texts}
    assert [one.get("id") for one in moved(body, None, "open_responses").payload["input"][1:3]] == ["msg_1", "msg_1"]
    found = moved(body, "openai", "open_responses")
    assert [one.get("id") for one in found.payload["input"][1:3]] == ["msg_1", None]
    assert codes(found) == ([], ["duplicate_id"])


def test_a_request_for_one_vendor_does_not_change_the_next_for_another() -> None:
    body = {
        "id": "r1", "object": "response", "status": "completed", "model": "m",
        "output": [{"type": "message", "id": "8-b", "role": "assistant", "content": [], "status": "completed"}],
    }  # fmt: skip
    with Store("sqlite:///:memory:") as store:
        conversation = store.create_conversation(model="m", input="Hi")
        conversation.add_response(body, "open_responses")
        for _ in range(2):
            for dialect, ids in (("openai", [None, None]), ("xiaomi", [None, "8-b"])):
                payload = conversation.request_payload("open_responses", dialect=dialect)
                assert [item.get("id") for item in payload["input"]] == ids


# Cache marks

SHORT = {"type": "ephemeral"}


def test_openrouter_takes_cache_marks_for_models_that_know_them() -> None:
    items = [user("a"), assistant("b"), user("c")]
    settings: Json = {"dialect": "openrouter", "instructions": "Be brief.", "tools": [TOOL]}
    options = RenderOptions(cache="auto")
    found = render("chat_completion", *items, options=options, model="anthropic/claude-sonnet-4.5", **settings).payload
    plain = render("chat_completion", *items, model="anthropic/claude-sonnet-4.5", **settings).payload
    assert found["tools"] == [{**plain["tools"][0], "cache_control": SHORT}]
    marked = [[part.get("cache_control") for part in message["content"]] for message in found["messages"]]
    assert marked == [[SHORT], [None], [None], [SHORT]]
    assert list(found)[-1] == "messages"
    other = render("chat_completion", *items, options=options, model="openai/gpt-5.4", **settings).payload
    assert "cache_control" not in str(other)


def test_compatible_servers_take_a_mark_on_the_last_tool() -> None:
    tools = [TOOL, {**TOOL, "name": "other"}]
    found = render("chat_completion", user("a"), dialect="compatible", tools=tools, options=RenderOptions(cache="auto"))
    assert [tool.get("cache_control") for tool in found.payload["tools"]] == [None, SHORT]
    assert found.payload["messages"] == [{"role": "user", "content": "a"}]


def test_marks_of_the_user_go_to_openrouter_and_nowhere_else() -> None:
    items = [user({"type": "input_text", "text": "a", "cache_control": SHORT})]
    settings: Json = {"tools": [{**TOOL, "cache_control": SHORT}], "model": "anthropic/claude"}
    assert str(payload("openrouter", *items, **settings)).count("cache_control") == 2
    assert "cache_control" not in str(payload(None, *items, **settings))
