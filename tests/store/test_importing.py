"""Requests of providers become conversations, and provider-shaped turns are appended to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.factories import a_call, an_answer, texts_of
from tests.store.watching import Tables
from threadkeep import CannotParse, HeadConflict, InvalidOption, NotFound, ResponseInProgress, UnknownFormat

pytestmark = pytest.mark.one_face

# What the same request looks like: (format, payload, what the payload does not say)
REQUESTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "open_responses": (
        {"model": "m", "instructions": "Be brief.", "input": [{"type": "message", "role": "user", "content": "Hi"}]},
        {},
    ),
    "chat_completion": (
        {"model": "m", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}, {},
    ),
    "messages": (
        {"model": "m", "max_tokens": 100, "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]}, {},
    ),
    "gemini": (
        {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        },
        {"model": "m", "stream": True},
    ),
    "interactions": (
        {
            "model": "m", "system_instruction": "Be brief.",
            "input": [{"type": "user_input", "content": [{"type": "text", "text": "Hi"}]}],
        },
        {},
    ),
    "converse": (
        {"system": [{"text": "Be brief."}], "messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
        {"model": "m"},
    ),
    "pydantic_ai": (
        {
            "model": "m", "instructions": "Be brief.",
            "message_history": [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Hi"}]}],
        },
        {},
    ),
}  # fmt: skip
# Two parallel calls with their outputs, as they stand in a request
CALLS: dict[str, tuple[list[Any], list[Any]]] = {
    "open_responses": (
        [
            {"type": "function_call", "call_id": "c1", "name": "one", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "two", "arguments": "{}"},
        ],
        [
            {"type": "function_call_output", "call_id": "c2", "output": "second"},
            {"type": "function_call_output", "call_id": "c1", "output": "first"},
        ],
    ),
    "chat_completion": (
        [
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "one", "arguments": "{}"}},
                    {"id": "c2", "type": "function", "function": {"name": "two", "arguments": "{}"}},
                ],
            }
        ],
        [
            {"role": "tool", "tool_call_id": "c2", "content": "second"},
            {"role": "tool", "tool_call_id": "c1", "content": "first"},
        ],
    ),
    "messages": (
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "c1", "name": "one", "input": {}},
                    {"type": "tool_use", "id": "c2", "name": "two", "input": {}},
                ],
            }
        ],
        [
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c2", "content": "second"},
                    {"type": "tool_result", "tool_use_id": "c1", "content": "first"},
                ],
            }
        ],
    ),
    "gemini": (
        [
            {
                "role": "model",
                "parts": [{"functionCall": {"name": "one", "args": {}}}, {"functionCall": {"name": "two", "args": {}}}],
            }
        ],
        [
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "two", "response": {"result": "second"}}},
                    {"functionResponse": {"name": "one", "response": {"result": "first"}}},
                ],
            }
        ],
    ),
    "interactions": (
        [
            {"type": "function_call", "id": "c1", "name": "one", "arguments": {}},
            {"type": "function_call", "id": "c2", "name": "two", "arguments": {}},
        ],
        [
            {"type": "function_result", "call_id": "c2", "result": "second"},
            {"type": "function_result", "call_id": "c1", "result": "first"},
        ],
    ),
    "converse": (
        [
            {
                "role": "assistant",
                "content": [
                    {"toolUse": {"toolUseId": "c1", "name": "one", "input": {}}},
                    {"toolUse": {"toolUseId": "c2", "name": "two", "input": {}}},
                ],
            }
        ],
        [
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "c2", "content": [{"text": "second"}]}},
                    {"toolResult": {"toolUseId": "c1", "content": [{"text": "first"}]}},
                ],
            }
        ],
    ),
    "pydantic_ai": (
        [
            {
                "kind": "response",
                "parts": [
                    {"part_kind": "tool-call", "tool_name": "one", "args": "{}", "tool_call_id": "c1"},
                    {"part_kind": "tool-call", "tool_name": "two", "args": {}, "tool_call_id": "c2"},
                ],
            }
        ],
        [
            {
                "kind": "request",
                "parts": [
                    {"part_kind": "tool-return", "tool_name": "two", "content": "second", "tool_call_id": "c2"},
                    {"part_kind": "tool-return", "tool_name": "one", "content": "first", "tool_call_id": "c1"},
                ],
            }
        ],
    ),
}
LISTS = {
    "open_responses": "input", "gemini": "contents", "interactions": "input", "pydantic_ai": "message_history",
}  # fmt: skip


def imported(store: Any, wire: str, **options: Any) -> Any:
    payload, others = REQUESTS[wire]
    return store.import_request(payload, wire, **others, **options)


@pytest.mark.parametrize("wire", REQUESTS)  # chats have no instructions: tests/formats/test_ui_messages.py has them
def test_a_request_becomes_a_conversation(store: Any, elsewhere: Any, wire: str) -> None:
    """It can be resumed in any process, and gives its request back."""
    payload, others = REQUESTS[wire]
    made = imported(store, wire, user_id="ann", title="T", labels={"a": "b"}, external_id="x")
    found = elsewhere.get_conversation(made.id)
    assert (found.model, found.instructions, texts_of(found.transcript())) == ("m", "Be brief.", ["Hi"])
    assert (found.user_id, found.title, found.labels, found.external_id) == ("ann", "T", {"a": "b"}, "x")
    assert found.stream == others.get("stream")
    rendered = found.render(wire)
    assert {name: value for name, value in rendered.payload.items() if name != "modelId"} == payload
    assert (rendered.losses, rendered.repairs) == ([], [])


@pytest.mark.parametrize("wire", REQUESTS)  # chats have no instructions: tests/formats/test_ui_messages.py has them
def test_a_request_may_be_text(store: Any, wire: str) -> None:
    payload, others = REQUESTS[wire]
    for text in (json.dumps(payload), json.dumps(payload).encode()):
        assert texts_of(store.import_request(text, wire, **others).transcript()) == ["Hi"]


def test_options_are_set_over_those_of_the_request(store: Any) -> None:
    found = imported(store, "chat_completion", temperature=0.5, instructions="Be long.")
    assert (found.temperature, found.instructions) == (0.5, "Be long.")
    with pytest.raises(InvalidOption, match="nonsense"):
        imported(store, "chat_completion", nonsense=1)


@pytest.mark.parametrize("payload", ["no JSON", "[]", [], None, 1, {"messages": "Hi"}, {"messages": [1]}])
def test_what_is_no_request_is_refused(store: Any, payload: Any, tables: Tables) -> None:
    written = tables.written()
    with pytest.raises(CannotParse):
        store.import_request(payload, "chat_completion")
    assert written() == {}


def test_objects_of_sdks_are_read_wherever_they_stand(store: Any) -> None:
    """A client puts the content of the SDK's answer into its next request."""

    class Block:
        def model_dump(self, **_: Any) -> Any:
            return {"type": "text", "text": "Hello"}

    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [Block()]}]
    found = store.import_request({"model": "m", "max_tokens": 9, "messages": messages}, "messages")
    assert texts_of(found.transcript()) == ["Hi", "Hello"]
    found.add_input([{"role": "assistant", "content": (Block(),)}], "messages")
    assert texts_of(found.transcript())[-1] == "Hello"


def test_bytes_are_read_as_they_are_sent(store: Any) -> None:
    """The SDK of Bedrock takes bytes where base64 is on the wire."""
    picture = {"image": {"format": "png", "source": {"bytes": b"picture"}}}
    request = {"messages": [{"role": "user", "content": [{"text": "What is this?"}, picture]}]}
    found = store.import_request(request, "converse", model="m")
    sent = found.request_payload("converse")["messages"][0]["content"][1]
    assert sent["image"]["source"]["bytes"] == "cGljdHVyZQ=="


def test_a_request_of_one_user_is_theirs(store: Any) -> None:
    mine = imported(store.for_user("ann"), "messages")
    assert mine.user_id == "ann"
    with pytest.raises(NotFound):
        store.for_user("ben").get_conversation(mine.id)
    with pytest.raises(InvalidOption):
        imported(store.for_user("ann"), "messages", user_id="ben")


@pytest.mark.parametrize("wire", REQUESTS)  # chats have no instructions: tests/formats/test_ui_messages.py has them
def test_input_is_appended_turn_by_turn(store: Any, wire: str, elsewhere: Any) -> None:
    """Items remember which wire turn they came in; ids and names are resolved against what is stored."""
    conversation = imported(store, wire)
    calls, outputs = CALLS[wire]
    made = conversation.add_input(calls, wire)
    assert [item.position for item in made] == [1, 2]
    made += conversation.add_input(outputs, wire)
    assert made == conversation.transcript()[1:]
    by_id = {item.item.call_id: item.item.name for item in made[:2]}
    assert [(by_id[item.item.call_id], item.item.output) for item in made[2:]] == [("two", "second"), ("one", "first")]
    assert [item.turn for item in made] == [1, 1, 3, 4 if wire == "chat_completion" else 3]
    rendered = elsewhere.get_conversation(conversation.id).render(wire)
    name = LISTS.get(wire, "messages")
    expected = [*REQUESTS[wire][0][name], *calls, *outputs]
    assert rendered.payload[name][-len(expected) :] == expected
    assert conversation.render(wire).body == rendered.body


def fields(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__dataclass_fields__}


def test_input_joins_what_was_built_by_hand(conversation: Any) -> None:
    conversation.user("What is the weather?")
    conversation.add_response(an_answer(calls=("c1",)), "open_responses")
    response = {"functionResponse": {"name": "look_up", "response": {"result": "sunny"}}}
    [output] = conversation.add_input({"role": "user", "parts": [response]}, "gemini")
    assert (output.item.call_id, output.item.output) == ("c1", "sunny")
    assert conversation.render("chat_completion").payload["messages"][-1]["tool_call_id"] == "c1"


def test_calls_that_the_client_renamed_are_found(conversation: Any) -> None:
    """As many outputs that nobody called for as there are open calls: they are those of these calls, in order."""
    conversation.add_items([a_call("call_0", "one"), a_call("call_1", "two")])
    outputs = [{"type": "function_call_output", "call_id": f"resp_1:call_{n}", "output": str(n)} for n in range(2)]
    found = conversation.add_input(outputs, "open_responses")
    assert [item.item.call_id for item in found] == ["call_0", "call_1"]
    [late] = conversation.add_input(outputs[:1], "open_responses")
    assert late.item.call_id == "resp_1:call_0"


def test_input_is_appended_whole_or_not_at_all(conversation: Any, tables: Tables) -> None:
    written = tables.written()
    for turns in ("no JSON", 1, [1], [{"role": "user", "content": "Hi"}, "x"]):
        with pytest.raises(CannotParse):
            conversation.add_input(turns, "chat_completion")
    with pytest.raises(UnknownFormat):
        conversation.add_input([], "nonsense")
    assert written() == {}


def test_input_takes_what_other_appends_take(conversation: Any) -> None:
    turn = {"role": "user", "content": "Hi"}
    [first] = conversation.add_input(turn, "chat_completion", expected_head=-1)
    with pytest.raises(HeadConflict):
        conversation.add_input(turn, "chat_completion", expected_head=-1)
    [elsewhere] = conversation.add_input(turn, "chat_completion", expected_head=-1, on_conflict="branch")
    assert (first.branch, elsewhere.branch) == (0, 1)
    with conversation.stream_response("open_responses"), pytest.raises(ResponseInProgress):
        conversation.add_input(turn, "chat_completion")
    with pytest.raises(InvalidOption):
        conversation.add_input(turn, "chat_completion", nonsense=1)
    assert conversation.add_input([], "chat_completion") == []


@pytest.mark.parametrize(
    ("payload", "format"),
    [
        ({"contents": []}, "messages"),
        ({"input": "Hi"}, "chat_completion"),
        ({"contents": []}, "converse"),
        ({"messages": []}, "gemini"),
        ({"messages": []}, "open_responses"),
    ],
)
def test_a_request_of_another_format_is_suspected(store: Any, payload: dict[str, Any], format: str) -> None:
    key = next(iter(payload))
    with pytest.raises(CannotParse, match=rf"its keys are \['{key}'\]. Check the name of the format"):
        store.import_request(payload, format)
    assert store.list_conversations().items == []


@pytest.mark.parametrize("format", ["messages", "converse"])
def test_a_turn_of_gemini_is_not_stored_as_a_message_that_says_nothing(store: Any, format: str) -> None:
    turn = {"role": "user", "parts": [{"text": "Hi"}]}
    conversation = store.create_conversation(model="m")
    with pytest.raises(CannotParse, match=r"has parts and no content.*Check the name of the format"):
        conversation.add_input(turn, format)
    with pytest.raises(CannotParse, match=r"has parts and no content.*Check the name of the format"):
        store.import_request({"messages": [turn]}, format)
    assert conversation.transcript() == []
