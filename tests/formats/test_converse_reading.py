"""Requests of Converse, read: what becomes of each block, and how it goes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse
from threadkeep.formats import get_format

Json = dict[str, Any]
FORMAT = get_format("converse")
HI = {"role": "user", "content": [{"text": "hi"}]}
SPEC = {"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}


def read(*messages: Json, **keys: Any) -> Session:
    """The session of a request, which goes back as it came."""
    payload = {**keys, "messages": list(messages) or [HI]}
    before = json.dumps(payload)
    session = FORMAT.parse_request(payload)
    rendered = session.render("converse", strict=True)
    assert rendered.payload == payload
    assert rendered.repairs == []
    assert json.dumps(payload) == before
    assert Session.from_dict(session.to_dict()).request_payload("converse") == payload
    return session


def items(session: Session) -> list[Json]:
    """The items without where they came from."""
    return [{key: value for key, value in item.to_dict().items() if key != "origin"} for item in session.items]


def said(*blocks: Json, role: str = "user") -> Json:
    return {"role": role, "content": list(blocks)}


def test_a_conversation_with_a_tool() -> None:
    use = {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"n": 1}}}
    result = {"toolResult": {"toolUseId": "t1", "content": [{"text": "one"}], "status": "success"}}
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
    hidden = {"reasoningContent": {"redactedContent": "ZW5j"}}
    answer = said(thought, hidden, {"text": "ok"}, use, role="assistant")
    session = read(HI, answer, said(result, {"text": "go"}), toolConfig={"tools": [SPEC]})
    assert items(session)[1:] == [
        {
            "type": "reasoning",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "ZW5j"},
            ],
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
        {"type": "function_call", "call_id": "t1", "name": "f", "arguments": '{"n":1}'},
        {"type": "function_call_output", "call_id": "t1", "output": "one", "status": "completed"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
    ]
    assert session.turns == [0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    "blocks",
    [
        [{"cachePoint": {"type": "default", "ttl": "1h"}}, {"text": "a"}],
        [{"text": "a"}, {"cachePoint": {"type": "default"}}, {"text": "\n"}, {"guardContent": {"image": {}}}],
        [{"guardContent": {"text": {"text": "q", "qualifiers": ["query"]}}}],
        [{"searchResult": {"source": "s", "title": "t", "content": [{"text": "x"}]}}, {"text": "a"}],
        [{"toolAddition": {"tool": {"name": "f"}}}, {"new": 1}, {"text": "two", "keys": 2}],
        [{"citationsContent": {"content": [{"text": "c"}]}}],
        [{"text": ""}],
        [],
    ],
)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_any_block_goes_back_as_it_came(role: str, blocks: list[Json]) -> None:
    read(HI, said(*blocks, role=role)) if role == "assistant" else read(said(*blocks))


def test_guarded_text_is_text_elsewhere() -> None:
    session = read(said({"guardContent": {"text": {"text": "q", "qualifiers": ["query"]}}}))
    session.update(model="m")
    assert session.request_payload("chat_completion")["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "q"}]}
    ]


def test_tools_of_the_provider_stay_blocks() -> None:
    use = {"toolUse": {"toolUseId": "s1", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}}
    result = {"toolResult": {"toolUseId": "s1", "content": [{"json": {}}], "type": "nova_grounding_result"}}
    session = read(HI, said(use, result, {"text": "a"}, role="assistant"), toolConfig={"tools": [SPEC]})
    assert [item.type for item in session.items] == ["message", "provider_item", "provider_item", "message"]


@pytest.mark.parametrize(
    ("result", "output"),
    [
        ({"content": [{"json": {"n": [1]}}], "status": "error"}, [{"type": "input_text", "text": '{"n":[1]}'}]),
        ({"content": []}, None),
        ({"content": [{"text": "a"}, {"text": "b"}], "type": "x", "status": "odd"}, None),
        ({"content": [{"searchResult": {"source": "s"}}]}, None),
        ({"content": [{"image": {"format": "png", "source": {"bytes": "aW1n"}}}]}, None),
    ],
)
def test_any_result_goes_back_as_it_came(result: Json, output: Any) -> None:
    use = said({"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}, role="assistant")
    session = read(HI, use, said({"toolResult": {"toolUseId": "t", **result}}), toolConfig={"tools": [SPEC]})
    found = items(session)[2]
    assert found["type"] == "function_call_output"
    if output is not None:
        parts = [{key: part[key] for key in ("type", "text")} for part in found["output"]]
        assert (parts, found["status"]) == (output, "failed")


@pytest.mark.parametrize("given", ["text", None, [1], 7])
def test_an_input_that_is_no_object_goes_back_as_it_came(given: Any) -> None:
    use = said({"toolUse": {"toolUseId": "t", "name": "f", "input": given, "type": "tool_use"}}, role="assistant")
    read(HI, use, said({"toolResult": {"toolUseId": "t", "content": []}}), toolConfig={"tools": [SPEC]})


def test_what_was_unpaired_stays_so_and_is_mended_behind_it() -> None:
    use = {"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}
    lonely = {"toolResult": {"toolUseId": "x", "content": [{"text": "1"}]}}
    session = read(HI, said(use, role="assistant"), said({"text": "a"}, lonely))
    session.add_item({"type": "function_call", "call_id": "u", "name": "f", "arguments": "{}"})
    session.user("b")
    contents = [message["content"] for message in session.request_payload("converse")["messages"]]
    assert contents[:3] == [[{"text": "hi"}], [use], [{"text": "a"}, lonely]]
    assert contents[4][0]["toolResult"]["toolUseId"] == "u"


def test_text_before_results_stays_where_it_was() -> None:
    use = said({"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}, role="assistant")
    result = {"toolResult": {"toolUseId": "t", "content": [{"text": "1"}]}}
    read(HI, use, said({"text": "a"}, result, {"cachePoint": {"type": "default"}}), toolConfig={"tools": [SPEC]})


def test_an_assistant_may_lead_where_it_led() -> None:
    session = read(said({"text": "hello"}, role="assistant"), HI)
    assert session.request_payload("converse", upto=0)["messages"] == [said({"text": "hello"}, role="assistant")]


def test_neighbours_of_one_role_are_joined() -> None:
    payload = {"messages": [HI, HI, said({"text": "a"}, role="assistant")]}
    sent = FORMAT.parse_request(payload).request_payload("converse")["messages"]
    assert sent == [said({"text": "hi"}, {"text": "hi"}), payload["messages"][2]]


# System text


def test_a_lone_system_text_is_the_instructions() -> None:
    session = read(system=[{"text": "be kind"}])
    assert session.instructions == "be kind"
    assert len(session.items) == 1


@pytest.mark.parametrize(
    "system",
    [
        [{"text": "a"}, {"text": "b"}],
        [{"text": "a"}, {"cachePoint": {"type": "default"}}],
        [{"cachePoint": {"type": "default"}}, {"text": "a"}],
        [{"guardContent": {"text": {"text": "g"}}}],
        [{"text": ""}],
    ],
)
def test_other_system_content_is_a_message_that_comes_first(system: list[Json]) -> None:
    session = read(system=system)
    assert session.instructions is None
    assert [item.to_dict()["role"] for item in session.items] == ["system", "user"]
    session.update(instructions="i")
    assert session.request_payload("converse")["system"] == [{"text": "i"}, *system]


@pytest.mark.parametrize("key", ["system", "inferenceConfig"])
def test_empty_settings_are_absent(key: str) -> None:
    empty: Any = {"system": [], "inferenceConfig": {}}[key]
    assert FORMAT.parse_request({"messages": [HI], key: empty}).request_payload("converse") == {"messages": [HI]}


def test_a_system_message_among_the_messages_stays_there() -> None:
    added = said({"text": "now in French"}, {"toolAddition": {"tool": {"name": "f"}}}, role="system")
    session = read(HI, said({"text": "a"}, role="assistant"), added, HI)
    session.system("hoisted")
    assert session.request_payload("converse")["system"] == [{"text": "hoisted"}]
    assert session.request_payload("converse")["messages"][2] == added


# Settings and tools


def test_settings_are_options() -> None:
    session = read(
        inferenceConfig={"maxTokens": 5, "temperature": 0.5, "topP": 0.25, "stopSequences": ["x"]},
        serviceTier={"type": "flex"},
        requestMetadata={"a": "b"},
        guardrailConfig={"guardrailIdentifier": "g"},
        modelId="m",
    )
    assert session.settings == {
        "model": "m",
        "max_output_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.25,
        "service_tier": "flex",
        "metadata": {"a": "b"},
        "extra": {
            "converse": {"inferenceConfig": {"stopSequences": ["x"]}, "guardrailConfig": {"guardrailIdentifier": "g"}}
        },
    }


@pytest.mark.parametrize(
    "keys",
    [
        {"serviceTier": {"type": "new"}},
        {"inferenceConfig": {"temperature": 2}},
        {"inferenceConfig": {"topP": "odd"}},
        {"requestMetadata": {}},
        {"outputConfig": {"effort": "high"}},
        {"outputConfig": {"textFormat": {"type": "new"}}},
        {"toolConfig": {"tools": []}},
        {"toolConfig": "odd"},
        {"toolConfig": {"tools": [SPEC], "toolChoice": {"any": {}}, "more": 1}},
        {"toolConfig": {"tools": [SPEC], "toolChoice": {"tool": {"name": "other"}}}},
        {"promptVariables": {"a": {"text": "b"}}, "performanceConfig": {"latency": "optimized"}},
    ],
)
def test_any_setting_goes_back_as_it_came(keys: Json) -> None:
    read(**keys)


@pytest.mark.parametrize(
    ("choice", "option"),
    [({"auto": {}}, "auto"), ({"any": {}}, "required"), ({"tool": {"name": "f"}}, {"type": "function", "name": "f"})],
)
def test_a_choice_is_an_option(choice: Json, option: Any) -> None:
    assert read(toolConfig={"tools": [SPEC], "toolChoice": choice}).tool_choice == option


@pytest.mark.parametrize(
    "tool",
    [
        {"toolSpec": {"name": "f", "description": "", "inputSchema": {"json": {}}, "strict": False}},
        {"toolSpec": {"name": "f"}},
        {"toolSpec": {"name": "f", "inputSchema": {"json": [1]}, "new": 1}, "more": 2},
        {"toolSpec": {"name": "no name", "inputSchema": {"json": {}}}},
        {"cachePoint": {"type": "default"}},
        {"systemTool": {"name": "nova_grounding"}},
        "odd",
    ],
)
def test_any_tool_goes_back_as_it_came(tool: Any) -> None:
    read(toolConfig={"tools": [SPEC, tool] if isinstance(tool, dict) and "cachePoint" in tool else [tool]})


@pytest.mark.parametrize("text", ['{"type": "object"}', '{"type":"object"}', "no json", "[1]"])
def test_a_schema_keeps_its_spelling(text: str) -> None:
    schema = {"schema": text, "name": "n"}
    form = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}
    session = read(outputConfig=form)
    wanted = json.loads(text) if text.startswith("{") else text
    assert session.text == {"format": {"type": "json_schema", "name": "n", "schema": wanted}}
    session.json_output({"type": "array"})
    sent = session.request_payload("converse")["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert sent["schema"] == '{"type":"array"}'


def test_the_model_and_the_stream_are_said_beside_the_body() -> None:
    session = FORMAT.parse_request(json.dumps({"messages": [HI]}), model="m", stream=True)
    assert (session.model, session.stream) == ("m", True)
    assert session.request_payload("converse") == {"modelId": "m", "messages": [HI]}
    assert session.imported is not None
    assert session.imported.to_dict() == {"format": "converse", "count": 1}


@pytest.mark.parametrize(
    "payload",
    [
        1,
        "no json",
        {},
        {"messages": "hi"},
        {"messages": ["hi"]},
        {"messages": [{"content": []}]},
        {"messages": [{"role": "user", "content": 7}]},
        {"messages": [HI], "system": "text"},
    ],
)
def test_what_is_no_request_is_refused(payload: Any) -> None:
    with pytest.raises(CannotParse):
        FORMAT.parse_request(payload)


def test_turns_are_read_alone() -> None:
    (turn,) = FORMAT.parse_turns({"role": "user", "content": "hi"})
    assert [item.to_dict()["content"] for item in turn] == [[{"type": "input_text", "text": "hi"}]]
    assert len(FORMAT.parse_turns(json.dumps([HI, HI]).encode())) == 2
