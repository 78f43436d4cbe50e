"""System text, tools and settings of Converse requests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats.factories import answer, call, codes, output, snapshot, user
from tests.formats.requests_converse import CLAUDE, FORMAT, LOOKUP, Json, outline, render
from threadkeep.domain.rendering import ImportInfo
from threadkeep.domain.session import Session
from threadkeep.errors import CannotRender
from threadkeep.formats.canonical.entries import Snapshot

# System text


def test_system_text_is_hoisted_behind_the_instructions() -> None:
    guard = {"guardContent": {"text": {"text": "guarded"}}}
    marked = {"type": "input_text", "text": "b", "cache_point": {"ttl": "1h"}}
    block = {"type": "provider_item", "format": "converse", "payload": guard}
    rendered = render(user("hi"), user("a", marked, role="developer"), user(block, "", role="system"), instructions="i")
    assert rendered.payload["system"] == [
        {"text": "i"},
        {"text": "a"},
        {"text": "b"},
        {"cachePoint": {"type": "default", "ttl": "1h"}},
        guard,
    ]
    assert outline(rendered) == ["user: 'hi'"]


# Tools


@pytest.mark.parametrize(
    ("tool", "spec"),
    [
        ({"description": ""}, {}),
        ({"description": "d", "strict": True}, {"description": "d", "strict": True}),
        ({"strict": False}, {}),
        ({"parameters": {"type": "object"}}, {"inputSchema": {"json": {"type": "object"}}}),
    ],
)
def test_a_function_has_what_the_service_takes(tool: Json, spec: Json) -> None:
    empty = {"inputSchema": {"json": {"type": "object", "properties": {}}}}
    rendered = render(user("hi"), tools=[{**LOOKUP, **tool}])
    assert rendered.payload["toolConfig"]["tools"] == [{"toolSpec": {"name": "lookup", **empty, **spec}}]


def test_the_schema_of_a_function_is_an_object_s() -> None:
    """The service refuses any other at `toolSpec.inputSchema.json.type`; one that came from it goes back as it came."""
    schema = {"properties": {"a": {"type": "string"}}}
    rendered = render(user("hi"), tools=[{**LOOKUP, "parameters": schema}])
    spec = rendered.payload["toolConfig"]["tools"][0]["toolSpec"]
    assert spec["inputSchema"] == {"json": {**schema, "type": "object"}}
    assert codes(rendered) == ([], ["schema"])
    own = {"tools": [{"toolSpec": {"name": "lookup", "inputSchema": {"json": schema}}}]}
    session = FORMAT.parse_request({"messages": [{"role": "user", "content": [{"text": "hi"}]}], "toolConfig": own})
    assert session.request_payload("converse")["toolConfig"] == own
    assert codes(session.render("converse")) == ([], [])


def test_names_are_cleaned_in_tools_calls_and_choice() -> None:
    tools = [{"type": "function", "name": "my.tool"}]
    choice = {"type": "function", "function": {"name": "my.tool"}}
    rendered = render(user("go"), call("a", "my.tool"), output("a"), model=CLAUDE, tools=tools, tool_choice=choice)
    assert rendered.payload["toolConfig"]["tools"][0]["toolSpec"]["name"] == "my_tool"
    assert rendered.payload["toolConfig"]["toolChoice"] == {"tool": {"name": "my_tool"}}
    assert rendered.payload["messages"][1]["content"][0]["toolUse"]["name"] == "my_tool"


def test_tools_of_other_formats_are_left_out() -> None:
    foreign = {"type": "provider_tool", "format": "messages", "payload": {"type": "bash"}}
    own = {"type": "provider_tool", "format": "converse", "payload": {"systemTool": {"name": "nova_grounding"}}}
    rendered = render(user("hi"), tools=[foreign, own, {"type": "web_search"}])
    assert rendered.payload["toolConfig"]["tools"] == [{"systemTool": {"name": "nova_grounding"}}]
    assert codes(rendered) == (["provider_item", "tool"], [])


@pytest.mark.parametrize(
    ("choice", "sent", "reports"),
    [
        ("auto", {"auto": {}}, ([], [])),
        ("required", {"any": {}}, ([], [])),
        ({"type": "function", "name": "other"}, None, ([], ["tool_choice"])),
        ("sometimes", None, (["tool_choice"], [])),
    ],
)
def test_a_choice_is_one_of_the_service(choice: Any, sent: Any, reports: Any) -> None:
    rendered = render(user("hi"), model=CLAUDE, tool_choice=choice)
    assert rendered.payload["toolConfig"].get("toolChoice") == sent
    assert codes(rendered) == reports


def test_a_choice_of_a_function_needs_its_name() -> None:
    with pytest.raises(CannotRender, match="without naming it"):
        render(user("hi"), tool_choice={"type": "function"})


def test_calls_of_the_history_are_declared_where_there_are_no_tools() -> None:
    rendered = render(user("go"), call("a"), output("a"), call("b", "find"), output("b"), tools=[], tool_choice="auto")
    assert [tool["toolSpec"]["name"] for tool in rendered.payload["toolConfig"]["tools"]] == ["lookup", "find"]
    assert codes(rendered) == ([], ["option", "tool_history"])


@pytest.mark.parametrize("choice", ["none", {"type": "none"}])
def test_without_a_choice_none_tools_are_left_out_and_calls_told(choice: Any) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,aW1n"}
    parts = [{"type": "input_text", "text": "x"}, {"type": "input_text", "text": ""}, image]
    said = [user("go"), call("a", arguments='{"n":1}'), output("a", parts), call("b"), output("b", {"k": 1})]
    rendered = render(*said, tool_choice=choice)
    assert "toolConfig" not in rendered.payload
    assert outline(rendered) == [
        "user: 'go'",
        "assistant: '[Called lookup with {\"n\":1}]'",
        "user: '[lookup returned]' 'x' image",
        "assistant: '[Called lookup with {}]'",
        "user: '[lookup returned]' '{\"k\":1}'",
    ]
    assert codes(rendered) == ([], ["blank_text", "tool_choice", "tool_history"])
    assert "toolConfig" not in render(user("hi"), tool_choice=choice).payload
    assert codes(render(user("hi"), tool_choice=choice, tools=[])) == ([], [])


# Settings


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({"temperature": 1.5, "top_p": 2}, {"inferenceConfig": {"temperature": 1, "topP": 1}}),
        ({"max_output_tokens": 0}, {"inferenceConfig": {"maxTokens": 1}}),
        ({"extra": {"stop_sequences": ["a", ""]}}, {"inferenceConfig": {"stopSequences": ["a"]}}),
        ({"extra": {"stop_sequences": "a"}}, {"inferenceConfig": {"stopSequences": ["a"]}}),
        ({"extra": {"stop_sequences": [""]}}, {}),
        ({"service_tier": "flex"}, {"serviceTier": {"type": "flex"}}),
        ({"service_tier": "standard"}, {"serviceTier": {"type": "default"}}),
        ({"service_tier": "auto"}, {}),
        ({"text": {"format": {"type": "text"}}}, {}),
        ({"metadata": {}}, {}),
        ({"metadata": {"a": True, "b": 4, "c": 1.5, "d": None, "e": "x"}},
         {"requestMetadata": {"a": "true", "b": "4", "c": "1.5", "d": "", "e": "x"}}),
        ({"extra": {"converse": {"guardrailConfig": {"trace": "enabled"}, "messages": []}}},
         {"guardrailConfig": {"trace": "enabled"}}),
        ({"temperature": 0.5, "extra": {"converse": {"inferenceConfig": {"stopSequences": ["z"]}}}},
         {"inferenceConfig": {"temperature": 0.5, "stopSequences": ["z"]}}),
        ({"extra": {"messages": {"thinking": 1}, "top_k": 3, "stop": ["x"]}}, {}),
        ({"stream": True, "parallel_tool_calls": True, "truncation": "disabled"}, {}),
    ],
)  # fmt: skip
def test_settings_become_keys_of_the_request(settings: Json, sent: Json) -> None:
    rendered = render(user("hi"), tools=[], **settings)
    kept = {key: value for key, value in rendered.payload.items() if key not in ("modelId", "messages")}
    assert kept == sent
    assert rendered.losses == []


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"service_tier": "ultrafast"}, "service_tier"),
        ({"metadata": {"a": ["x"]}}, "metadata.a"),
        ({"metadata": {"a": "ä"}}, "metadata.a"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata.16"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"parallel_tool_calls": False, "reasoning": {"effort": None}}, None),
        ({"top_logprobs": 2}, "top_logprobs"),
    ],
)
def test_what_the_format_has_not_is_reported(settings: Json, path: str | None) -> None:
    assert [loss.path for loss in render(user("hi"), **settings).losses] == ([path] if path else [])


def test_a_schema_is_asked_for_with_a_schema() -> None:
    with pytest.raises(CannotRender, match="without a schema"):
        render(user("hi"), text={"format": {"type": "json_schema", "name": "x"}})


@pytest.mark.parametrize(
    ("model", "wanted", "sent", "reports"),
    [
        (CLAUDE, {"effort": "high"}, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, ([], [])),
        (CLAUDE, {"budget_tokens": 2000}, {"thinking": {"type": "enabled", "budget_tokens": 2000}}, ([], [])),
        (CLAUDE, {"effort": "minimal"}, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
         ([], ["range"])),
        (CLAUDE, {"effort": "none", "budget_tokens": 2000}, {"thinking": {"type": "enabled", "budget_tokens": 2000}},
         (["option"], [])),
        ("anthropic.claude-3-7-sonnet", {"budget_tokens": 1024, "effort": "low"},
         {"thinking": {"type": "enabled", "budget_tokens": 1024}}, (["option"], [])),
        ("us.amazon.nova-2-lite-v1:0", {"effort": "low"},
         {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}, ([], [])),
        ("us.amazon.nova-2-lite-v1:0", {"effort": "max"},
         {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}, ([], ["range"])),
        ("openai.gpt-oss-120b-1:0", {"effort": "medium", "summary": "auto"}, {"reasoning_effort": "medium"}, ([], [])),
        ("qwen.qwen3-32b-v1:0", {"effort": "high"}, {"reasoning_config": "high"}, ([], [])),
        ("qwen.qwen3-32b-v1:0", {"effort": "none"}, None, (["option"], [])),
        ("amazon.nova-lite-v1:0", {"effort": "high", "budget_tokens": 5}, None, (["option", "option"], [])),
    ],
)  # fmt: skip
def test_each_model_is_asked_to_reason_in_its_way(model: str, wanted: Json, sent: Any, reports: Any) -> None:
    rendered = render(user("hi"), model=model, reasoning=wanted)
    assert rendered.payload.get("additionalModelRequestFields") == sent
    assert codes(rendered) == reports


@pytest.mark.parametrize(
    ("model", "settings", "sent", "reports"),
    [
        ("claude-sonnet-4-5-20250929-v1:0", {"temperature": 0.5, "top_p": 0.9}, ({"temperature": 0.5}, {}),
         (["option"], [])),
        ("claude-opus-4-7", {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 9}, ({"maxTokens": 9}, {}),
         (["option", "option"], [])),
        ("claude-sonnet-4-5", {"temperature": 0.5, "top_p": 0.5, "reasoning": {"budget_tokens": 2000}},
         ({}, {"type": "enabled", "budget_tokens": 2000}), (["option", "option"], [])),
        ("claude-sonnet-4-5", {"reasoning": {"budget_tokens": 9}}, ({}, {"type": "enabled", "budget_tokens": 1024}),
         ([], ["range"])),
        ("claude-sonnet-4-5", {"reasoning": {"budget_tokens": 0}}, ({}, {"type": "disabled"}), ([], [])),
        ("claude-opus-4-8", {"reasoning": {"budget_tokens": 2000}}, ({}, {"type": "adaptive"}), (["option"], [])),
        ("claude-opus-4-8", {"temperature": 0.5, "reasoning": {"effort": "high"}}, ({}, {"type": "adaptive"}),
         (["option"], [])),
    ],
)  # fmt: skip
def test_claude_gets_settings_that_it_takes_together(model: str, settings: Json, sent: Any, reports: Any) -> None:
    """Anthropic's models have the same rules here as in Messages."""
    rendered = render(user("hi"), model=f"us.anthropic.{model}", **settings)
    inference = rendered.payload.get("inferenceConfig", {})
    thinking = rendered.payload.get("additionalModelRequestFields", {}).get("thinking", {})
    assert (inference, thinking) == sent
    assert codes(rendered) == reports
    assert {} not in rendered.payload.values()


def test_no_tool_is_forced_while_claude_thinks_with_a_budget() -> None:
    settings: Json = {"reasoning": {"budget_tokens": 2000}, "tool_choice": "required", "tools": [LOOKUP]}
    rendered = render(user("hi"), model="anthropic.claude-sonnet-4-5", **settings)
    assert rendered.payload["toolConfig"]["toolChoice"] == {"auto": {}}
    assert codes(rendered) == (["tool_choice"], [])
    adaptive = render(user("hi"), model=CLAUDE, **{**settings, "reasoning": {"effort": "low"}})
    assert adaptive.payload["toolConfig"]["toolChoice"] == {"any": {}}


def test_claude_thinks_without_a_budget_where_the_last_call_came_without_thinking() -> None:
    settings: Json = {"model": "anthropic.claude-sonnet-4-5", "reasoning": {"budget_tokens": 2000}, "tools": [LOOKUP]}
    rendered = render(user("hi"), answer(call("c1"), origin="chat_completion"), output("c1"), **settings)
    assert "additionalModelRequestFields" not in rendered.payload
    assert codes(rendered) == ([], ["option"])
    thought = {"type": "reasoning", "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]}
    rendered = render(user("hi"), answer(thought, call("c1"), origin="converse"), output("c1"), **settings)
    assert rendered.payload["additionalModelRequestFields"]["thinking"]["budget_tokens"] == 2000


def thinking_request(**keys: Any) -> Json:
    """A request of Converse in which Claude thinks."""
    thinking = {"type": "enabled", "budget_tokens": 2000}
    return {
        "modelId": "anthropic.claude-sonnet-4-5",
        "inferenceConfig": {"maxTokens": 4000},
        "additionalModelRequestFields": {"thinking": thinking},
        "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]},
        "messages": [{"role": "user", "content": [{"text": "hi"}]}],
        **keys,
    }


@pytest.mark.parametrize(
    ("changes", "sent", "reports"),
    [
        ({}, {}, ([], [])),
        ({"temperature": 0.5, "top_p": 0.5}, {}, (["option", "option"], [])),
        ({"model": "anthropic.claude-opus-4-8"},
         {"modelId": "anthropic.claude-opus-4-8", "additionalModelRequestFields": {"thinking": {"type": "adaptive"}}},
         (["option"], [])),
        ({"tool_choice": "required"},
         {"toolConfig": {**thinking_request()["toolConfig"], "toolChoice": {"auto": {}}}}, (["tool_choice"], [])),
        ({"model": "amazon.nova-pro-v1:0"}, {"modelId": "amazon.nova-pro-v1:0"}, ([], [])),
    ],
)  # fmt: skip
def test_an_imported_request_keeps_to_the_rules_when_it_changes(changes: Json, sent: Json, reports: Any) -> None:
    session = FORMAT.parse_request(thinking_request())
    session.update(**changes)
    rendered = session.render("converse")
    assert rendered.payload == {**thinking_request(), **sent}
    assert codes(rendered) == reports


def test_a_changed_request_leaves_room_for_the_answer() -> None:
    session = FORMAT.parse_request(thinking_request())
    session.update(max_output_tokens=2000)
    with pytest.raises(CannotRender, match="leaves nothing"):
        session.request_payload("converse")


def test_thinking_that_a_later_turn_lacks_ends_that_of_an_imported_request() -> None:
    session = FORMAT.parse_request(thinking_request())
    called = [{"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}]
    body = {"id": "r1", "object": "response", "status": "completed", "model": "m", "output": called}
    session.add_response(body, "open_responses")
    session.add_function_call_output("c1", "noon")
    rendered = session.render("converse")
    assert "additionalModelRequestFields" not in rendered.payload
    assert codes(rendered) == ([], ["option"])


@pytest.mark.parametrize(
    "keys",
    [
        {"inferenceConfig": {"temperature": 0.5, "topP": 0.9}},
        {"inferenceConfig": {"maxTokens": 1000}},
        {"inferenceConfig": {"maxTokens": "many"}},
        {"toolConfig": {"tools": [{"toolSpec": {"name": "f"}}], "toolChoice": {"any": {}}}},
        {"toolConfig": {"tools": [], "toolChoice": 7}},
        {"additionalModelRequestFields": {"thinking": {"type": "enabled"}}},
        {"additionalModelRequestFields": {"thinking": "much"}},
        {"additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": "much"}}},
    ],
)
def test_a_request_that_does_not_keep_to_the_rules_goes_back_as_it_came(keys: Json) -> None:
    session = FORMAT.parse_request(thinking_request(**keys))
    assert session.request_payload("converse") == thinking_request(**keys)
    session.update(model="anthropic.claude-opus-4-8")
    sent = thinking_request(**keys, modelId="anthropic.claude-opus-4-8")
    assert session.request_payload("converse") == sent


def test_what_the_user_sets_for_the_model_wins() -> None:
    fields = {"output_config": {"effort": "low"}, "top_k": 5}
    rendered = render(
        user("hi"), model=CLAUDE, reasoning={"effort": "high"}, extra={"additional_model_request_fields": fields}
    )
    assert rendered.payload["additionalModelRequestFields"] == {"thinking": {"type": "adaptive"}, **fields}


def test_a_thinking_budget_leaves_room_for_the_answer() -> None:
    with pytest.raises(CannotRender, match="leaves nothing"):
        render(user("hi"), model=CLAUDE, reasoning={"budget_tokens": 2000}, max_output_tokens=2000)


def test_a_request_without_a_model_is_refused_unless_it_came_without() -> None:
    with pytest.raises(CannotRender, match="no model"):
        Session(input="hi").request_payload("converse")
    came = Snapshot({}, [], snapshot(user("hi")).entries, imported=ImportInfo("converse", 1))
    assert "modelId" not in FORMAT.render(came).payload


def test_messages_are_the_last_key() -> None:
    rendered = render(user("hi"), instructions="i", temperature=0.5)
    assert list(rendered.payload) == ["modelId", "inferenceConfig", "toolConfig", "system", "messages"]
