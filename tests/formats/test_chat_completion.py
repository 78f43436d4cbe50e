"""Requests of Chat Completions, beyond the vectors."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.formats.factories import answer, assistant, call, codes, output, reasoning, render, snapshot, user
from threadkeep.domain.call_kinds import MISSING_OUTPUT
from threadkeep.domain.rendering import RenderOptions
from threadkeep.errors import CannotRender, ItemRefused, LossError
from threadkeep.formats import get_format

FORMAT: Final = "chat_completion"
Json = dict[str, Any]
TOOL: Json = {"type": "function", "name": "find"}


def sent(*items: Any, **settings: Any) -> list[Any]:
    messages: list[Any] = render(FORMAT, *items, **settings).payload["messages"]
    return messages


def shape(messages: list[Any]) -> list[str]:
    """Roles, with the ids of calls and answers."""
    found = []
    for message in messages:
        ids = (
            [message["tool_call_id"]] if message["role"] == "tool" else [c["id"] for c in message.get("tool_calls", [])]
        )
        found.append(" ".join([message["role"], *ids]))
    return found


def own(*items: dict[str, Any]) -> Any:
    return answer(*items, origin=FORMAT)


def test_instructions_lead_and_the_turn_list_is_the_last_key() -> None:
    rendered = render(FORMAT, user("House style.", role="system"), user("Hi"), instructions="Be brief.", seed=1)
    assert rendered.payload["messages"][0] == {"role": "system", "content": "Be brief."}
    assert list(rendered.payload)[-1] == "messages"
    assert rendered.stable == 3


def test_outputs_stand_directly_behind_their_calls() -> None:
    rendered = render(FORMAT, user("Go"), call(), assistant("Meanwhile …"), output())
    assert shape(rendered.payload["messages"]) == ["user", "assistant c1", "tool c1", "assistant"]
    assert codes(rendered) == ([], ["moved_output"])


def test_outputs_keep_their_own_order() -> None:
    assert shape(sent(call("c1"), call("c2"), output("c2"), user("?"), output("c1"))) == [
        "assistant c1 c2", "tool c2", "tool c1", "user",
    ]  # fmt: skip


def test_a_skipped_message_loses_no_call() -> None:
    rendered = render(FORMAT, call("c1"), user("?", role="critic"), call("c2"), output("c1"), output("c2"))
    assert shape(rendered.payload["messages"]) == ["assistant c1 c2", "tool c1", "tool c2"]
    assert codes(rendered) == (["role"], [])


def test_unanswered_calls_get_a_placeholder_and_are_not_stable() -> None:
    rendered = render(FORMAT, user("Go"), answer(assistant("Looking."), call()), user("And?"))
    assert shape(rendered.payload["messages"]) == ["user", "assistant c1", "tool c1", "user"]
    assert rendered.payload["messages"][2]["content"] == MISSING_OUTPUT
    assert codes(rendered) == ([], ["missing_output"])
    assert rendered.stable == 1


def test_an_output_after_its_placeholder_was_sent_is_told_at_its_own_place() -> None:
    rendered = render(FORMAT, user("Go"), answer(call()), user("And?"), answer(assistant("Well.")), output())
    assert shape(rendered.payload["messages"]) == ["user", "assistant c1", "tool c1", "user", "assistant", "user"]
    assert codes(rendered) == ([], ["missing_output", "late_output"])
    assert rendered.stable == 6


def test_calls_of_a_response_stay_on_its_own_message() -> None:
    rendered = render(FORMAT, answer(assistant("One.")), answer(call()), output())
    assert shape(rendered.payload["messages"]) == ["assistant", "assistant c1", "tool c1"]


def test_text_behind_the_calls_of_a_response_joins_their_message() -> None:
    messages = sent(answer(assistant("One."), call(), assistant("Two.")), output())
    assert shape(messages) == ["assistant c1", "tool c1"]
    assert [part["text"] for part in messages[0]["content"]] == ["One.", "Two."]


def test_calls_that_the_user_built_join_the_message_before_them() -> None:
    assert shape(sent(answer(assistant("One.")), call(), output())) == ["assistant c1", "tool c1"]


def test_a_last_assistant_message_is_not_stable() -> None:
    assert render(FORMAT, user("Go"), assistant("One.")).stable == 1
    assert render(FORMAT, user("Go"), assistant("One."), user("?")).stable == 3


def test_an_orphan_output_is_left_out() -> None:
    assert codes(render(FORMAT, user("Hi"), output())) == (["orphan_output"], [])


def test_a_call_id_may_come_again_in_a_later_turn_but_not_in_the_same() -> None:
    assert shape(sent(call(), output(), call(), output())) == ["assistant c1", "tool c1", "assistant c1", "tool c1"]
    rendered = render(FORMAT, call(), call(), output(text="1"), output(text="2"))
    ids = [one["id"] for one in rendered.payload["messages"][0]["tool_calls"]]
    assert len(set(ids)) == 2
    assert sorted(message["tool_call_id"] for message in rendered.payload["messages"][1:]) == sorted(ids)
    assert codes(rendered) == ([], ["duplicate_call_id"])


def test_reasoning_goes_back_under_the_keys_that_it_had() -> None:
    thought = {"type": "reasoning", "content": [], "native": {FORMAT: {"reasoning_content": "hm"}}}
    messages = sent(own(thought, assistant("Yes."), call()), output())
    assert messages[0]["reasoning_content"] == "hm"
    assert shape(messages) == ["assistant c1", "tool c1"]
    assert sent(own(thought))[0] == {"role": "assistant", "content": "", "reasoning_content": "hm"}


def test_other_reasoning_is_reported() -> None:
    assert codes(render(FORMAT, user("Hi"), answer(reasoning(), assistant("Yes.")))) == (["reasoning"], [])


def test_native_keys_of_messages_and_calls_go_back() -> None:
    rich = call(native={FORMAT: {"extra_content": {"google": 1}, "function": {"note": "n"}}})
    message = sent(own(assistant("Yes.", native={FORMAT: {"audio": {"id": "au_1", "data": "AAAA"}}}), rich), output())[
        0
    ]
    assert message["audio"] == {"id": "au_1"}
    assert message["tool_calls"][0]["extra_content"] == {"google": 1}
    assert message["tool_calls"][0]["function"]["note"] == "n"


def test_calls_of_other_kinds_and_keys_without_a_message_go_back() -> None:
    custom = {"id": "z", "type": "custom", "custom": {"name": "sql", "input": "x"}}
    block = {"type": "provider_item", "format": FORMAT}
    keys = {"role": "assistant", "function_call": {"name": "old", "arguments": "{}"}}
    messages = sent(own({**block, "payload": keys}, {**block, "payload": custom}), output("z"))
    assert messages[0] == {
        "role": "assistant", "content": None, "function_call": keys["function_call"], "tool_calls": [custom],
    }  # fmt: skip
    assert messages[1]["content"] == "done"


def test_a_refusal_goes_back_to_this_format_and_is_lost_otherwise() -> None:
    refusal = {"type": "refusal", "refusal": "I can't."}
    assert sent(own(assistant(refusal)))[0] == {"role": "assistant", "content": None, "refusal": "I can't."}
    assert sent(own(assistant("Well.", refusal)))[0]["content"][1] == refusal
    assert codes(render(FORMAT, user("Hi"), assistant(refusal))) == (["refusal"], [])


def test_annotations_go_back_to_this_format_and_are_lost_otherwise() -> None:
    text = {"type": "output_text", "text": "See.", "annotations": [{"type": "url_citation", "url_citation": {}}]}
    assert sent(own(assistant(text)))[0]["annotations"] == text["annotations"]
    assert codes(render(FORMAT, assistant(text))) == (["annotations"], [])


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            {"file_data": "data:application/pdf;base64,JVBERi0="},
            {"type": "file", "file": {"filename": "file.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
        ),
        ({"file_url": "data:text/plain,hi%20you"}, {"type": "text", "text": "hi you"}),
        (
            {"file_data": "data:image/png;base64,aW1n"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}},
        ),
        (
            {"file_data": "data:audio/mpeg;base64,aW1n"},
            {"type": "input_audio", "input_audio": {"data": "aW1n", "format": "mp3"}},
        ),
        (
            {"file_data": "data:application/pdf;base64,###"},
            {"type": "text", "text": "[file not included: application/pdf]"},
        ),
        ({"filename": "a.pdf"}, {"type": "text", "text": "[file not included: a.pdf]"}),
    ],
)
def test_files_are_sent_as_the_service_takes_them(part: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sent(user({"type": "input_file", **part}))[0]["content"] == [expected]


def test_what_has_no_place_is_left_out_and_reported() -> None:
    parts = [
        {"type": "input_file", "file_url": "https://docs.example.org/a.pdf"},
        {"type": "input_image", "file_id": "file_1"},
        {"type": "input_video", "video_url": "https://cdn.example.org/a.mp4"},
        {"type": "hologram"},
    ]
    rendered = render(FORMAT, user("See:", *parts))
    assert len(rendered.payload["messages"][0]["content"]) == 1
    assert codes(rendered) == (["media", "media", "media", "part"], [])
    with pytest.raises(LossError):
        render(FORMAT, user("See:", *parts), options=RenderOptions(strict=True))


def test_an_output_of_only_media_says_so() -> None:
    image = {"type": "input_image", "image_url": "https://img.example.org/a.png"}
    video = {"type": "input_video", "video_url": "https://img.example.org/a.mp4"}
    assert "cannot be shown" in sent(call(), output(text=[video]))[1]["content"]
    assert "next user message" in sent(call(), output(text=[image]))[1]["content"][0]["text"]
    assert sent(call(), output(text=[]))[1]["content"] == ""


def test_malformed_arguments_become_an_empty_object_unless_rendering_is_strict() -> None:
    rendered = render(FORMAT, own(call(arguments="{")), output())
    assert rendered.payload["messages"][0]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert codes(rendered) == ([], ["malformed_arguments"])
    with pytest.raises(ItemRefused):
        render(FORMAT, own(call(arguments="{")), output(), options=RenderOptions(strict=True))


GRAMMAR: Json = {"syntax": "lark", "definition": "start: WORD"}
SQL: Json = {"type": "custom", "name": "sql", "description": "d", "format": {"type": "grammar", **GRAMMAR}}
ASKED: list[Json] = [
    user("Hi"),
    {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "select 1"},
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"},
]


def test_custom_tools_are_offered_and_called() -> None:
    rendered = render(FORMAT, *ASKED, tools=[SQL], tool_choice={"type": "custom", "name": "sql"})
    custom = {"name": "sql", "description": "d", "format": {"type": "grammar", "grammar": GRAMMAR}}
    assert rendered.payload["tools"] == [{"type": "custom", "custom": custom}]
    assert rendered.payload["tool_choice"] == {"type": "custom", "custom": {"name": "sql"}}
    called = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    assert rendered.payload["messages"][1]["tool_calls"] == [called]
    assert codes(rendered) == ([], [])


@pytest.mark.parametrize("dialect", ["compatible", "deepseek", "mistral", "openrouter"])
def test_vendors_that_know_functions_alone_get_calls_of_custom_tools_as_such(dialect: str) -> None:
    rendered = render(FORMAT, *ASKED, tools=[SQL, TOOL], tool_choice={"type": "custom", "name": "sql"}, dialect=dialect)
    assert [tool["type"] for tool in rendered.payload["tools"]] == ["function"]
    called = rendered.payload["messages"][1]["tool_calls"][0]
    assert called["function"] == {"name": "sql", "arguments": '{"input":"select 1"}'}
    assert codes(rendered)[0] == ["tool", "tool_choice"]


@pytest.mark.parametrize(
    "custom",
    [
        {"name": "sql"},
        {"name": "sql", "description": "d", "format": {"type": "text"}},
        {"name": "sql", "format": {"type": "grammar", "grammar": GRAMMAR}},
    ],
)
def test_custom_tools_of_a_request_go_to_the_responses_api(custom: Json) -> None:
    tool = {"type": "custom", "custom": custom}
    choice = {"type": "custom", "custom": {"name": "sql"}}
    messages = [{"role": "user", "content": "Hi"}]
    payload = {"model": "gpt-5.4", "messages": messages, "tools": [tool], "tool_choice": choice}
    session = get_format(FORMAT).parse_request(payload)
    assert session.request_payload(FORMAT) == payload
    sent = session.render("open_responses")
    form = {"format": {"type": "grammar", **GRAMMAR}} if "grammar" in str(custom) else {}
    assert sent.payload["tools"] == [{"type": "custom", **custom, **form}]
    assert sent.payload["tool_choice"] == {"type": "custom", "name": "sql"}
    assert codes(sent) == ([], [])


@pytest.mark.parametrize(
    "custom",
    [{}, {"name": 1}, {"name": "my.sql"}, {"name": "sql", "strict": True}, {"name": "sql", "type": "x"},
     {"name": "sql", "format": {"type": "grammar", **GRAMMAR}}, {"name": "sql", "format": {"grammar": GRAMMAR}}],
)  # fmt: skip
def test_odd_custom_tools_go_back_as_they_came(custom: Any) -> None:
    tool = {"type": "custom", "custom": custom}
    payload = {"model": "gpt-5.4", "messages": [{"role": "user", "content": "Hi"}], "tools": [tool]}
    session = get_format(FORMAT).parse_request(payload)
    assert session.request_payload(FORMAT) == payload
    assert codes(session.render("open_responses"))[0] == ["provider_item"]


def test_choice_and_parallel_calls_need_tools() -> None:
    rendered = render(FORMAT, user("Hi"), tool_choice="none", parallel_tool_calls=False)
    assert rendered.payload.keys() == {"model", "messages"}
    assert codes(rendered) == ([], ["option", "option"])


def test_an_explicit_strict_false_is_sent() -> None:
    tools = [{"type": "function", "name": "a", "strict": False}, {"type": "function", "name": "b"}]
    functions = [tool["function"] for tool in render(FORMAT, user("Hi"), tools=tools).payload["tools"]]
    assert functions == [{"name": "a", "strict": False}, {"name": "b"}]


def test_settings_without_a_counterpart_are_reported() -> None:
    rendered = render(
        FORMAT, user("Hi"), truncation="auto", background=False, previous_response_id="resp_1",
        reasoning={"budget_tokens": 900}, tools=[{"type": "web_search"}],
    )  # fmt: skip
    assert rendered.payload.keys() == {"model", "messages"}
    assert codes(rendered) == (["option", "option", "option", "tool"], [])


def test_extra_keys_of_this_format_are_sent_verbatim() -> None:
    extra = {"seed": 7, "top_k": 5, FORMAT: {"provider": {"order": ["x"]}}, "messages": {"x": 1}}
    payload = render(FORMAT, user("Hi"), extra=extra).payload
    assert payload["seed"] == 7
    assert payload["provider"] == {"order": ["x"]}
    assert "top_k" not in payload


def test_a_cut_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(CannotRender, match="nothing to send"):
        render(FORMAT, user(), output())
    with pytest.raises(CannotRender, match="no model"):
        render(FORMAT, user("Hi"), model=None)


def test_a_block_of_another_format_is_lost_by_its_type() -> None:
    block = {"type": "provider_item", "format": "messages", "payload": {"type": "server_tool_use", "id": "s1"}}
    rendered = render(FORMAT, user("Hi"), block)
    assert [loss.detail for loss in rendered.losses] == ["A block of messages of type 'server_tool_use' was left out."]
    with pytest.raises(LossError, match=r"was left out\. Render with strict=False"):
        render(FORMAT, user("Hi"), block, options=RenderOptions(strict=True))


def test_instructions_alone_are_sent_unless_a_cut_left_nothing_else() -> None:
    for items in ((), (reasoning(summary=[]),)):
        assert render(FORMAT, *items, instructions="Be brief.").payload["messages"] == [
            {"role": "system", "content": "Be brief."}
        ]
    with pytest.raises(CannotRender, match="nothing to send"):
        get_format(FORMAT).render(snapshot(user("Hi"), instructions="Be brief."), RenderOptions(upto=-1))
    with pytest.raises(CannotRender, match="nothing to send"):
        render(FORMAT)
    assert len(render(FORMAT, user("Hi", role="system")).payload["messages"]) == 1


def test_the_body_is_the_json_of_the_payload_whatever_is_in_it() -> None:
    item = call(arguments='{"a": "\\ud800"}')
    rendered = get_format(FORMAT).render(snapshot(item, output(text="\ud800"), metadata={}))
    assert b"\\ud800" in rendered.body


def test_a_schema_without_a_name_gets_one_unless_the_request_came_without() -> None:
    form = {"type": "json_schema", "structure": {"jsonSchema": {"schema": '{"type":"object"}'}}}
    body = {"messages": [{"role": "user", "content": [{"text": "Hi"}]}], "outputConfig": {"textFormat": form}}
    rendered = get_format(FORMAT).render(get_format("converse").parse_request(body, model="m"))
    schema = {"schema": {"type": "object"}, "name": "response"}
    assert rendered.payload["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert codes(rendered) == ([], ["name"])


@pytest.mark.parametrize(
    ("given", "sent", "losses"),
    [
        ({"mode": "explicit", "ttl": "30m"}, {"mode": "explicit", "ttl": "30m"}, 0),
        ({"mode": "explicit", "ttl": "12h", "prewarm": True}, {"mode": "explicit"}, 2),
        ({"comparison_response_id": "resp_1"}, None, 1),
    ],
)
def test_wishes_for_the_cache_are_those_of_this_api(given: Any, sent: Any, losses: int) -> None:
    rendered = render(FORMAT, user("Hi"), prompt_cache_options=given)
    assert rendered.payload.get("prompt_cache_options") == sent
    assert codes(rendered) == (["option"] * losses, [])


def test_the_fastest_tier_is_one_of_responses_alone() -> None:
    rendered = render(FORMAT, user("Hi"), service_tier="ultrafast")
    assert "service_tier" not in rendered.payload
    assert codes(rendered) == (["option"], [])
