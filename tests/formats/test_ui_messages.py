"""UIMessages of the AI SDK: equal after store and render, served to providers, and valid whatever they are made of."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats import sdk_samples
from tests.formats import ui_samples as samples
from tests.formats.validity_ui_messages import refused
from threadkeep import CannotParse, Session, Store
from threadkeep.formats import NAMES, FormatName, get_format

Json = dict[str, Any]
NAME: FormatName = "ui_messages"
WIRE = get_format(NAME)
ASKED = samples.user(samples.TEXTS[1])
CHATS = {
    **samples.CHATS,
    **{f"part {number}": [ASKED, samples.assistant(part)] for number, part in enumerate(samples.ASSISTANT_PARTS)},
    "all parts": [ASKED, samples.assistant(*samples.ASSISTANT_PARTS), samples.user(*samples.ASSISTANT_PARTS, id="u2")],
    **{f"strange {number}": [ASKED, message] for number, message in enumerate(samples.STRANGE)},
}


def read(*messages: Json) -> Session:
    return WIRE.parse_request({"messages": list(messages)})


def test_chats_come_back_equal_from_a_session_and_from_a_store() -> None:
    with Store("sqlite://") as store:
        for name, messages in CHATS.items():
            body = {"id": "chat", "trigger": "submit-message", "messages": messages}
            stored = store.import_request(body, NAME)
            for rendered in (WIRE.parse_request(body).render(NAME), stored.render(NAME)):
                assert (rendered.payload, rendered.losses, rendered.repairs) == (body, [], []), name
            appended = store.create_conversation()
            appended.add_input(messages, NAME)
            assert appended.request_payload(NAME)["messages"] == messages, name


def test_an_answer_comes_back_as_the_message_that_it_was() -> None:
    with Store("sqlite://") as store:
        for name, messages in CHATS.items():
            answers = [message for message in messages if message["role"] == "assistant" and message["parts"]]
            for message in answers:
                talk = store.create_conversation(input="Hi")
                talk.add_response(message, NAME)
                assert talk.request_payload(NAME)["messages"][1:] == [message], name


def test_the_judge_refuses_what_the_sdk_refuses() -> None:
    """Messages without parts, an output that is not there, and what is strange; `make test-peers` asks the SDK."""
    for name, messages in CHATS.items():
        has_all = name != "empty" and "strange" not in name and name != "all parts"
        is_whole = all(part.get("state") != "output-available" or "output" in part for part in messages[-1]["parts"])
        is_right = (has_all and is_whole) or "sparkle" in str(messages)
        assert (refused({"messages": messages}) == []) == is_right, name


@pytest.mark.parametrize("other", [name for name in NAMES if name != NAME])
def test_chats_go_to_every_provider(other: FormatName) -> None:
    for messages in CHATS.values():
        if not any(part.get("type") == "text" for message in messages for part in message["parts"]):
            continue
        session = read(ASKED, *messages)
        session.update(model="gpt-5.4")
        assert session.request_payload(other)


def test_what_is_strange_is_kept_and_reported() -> None:
    for message in samples.STRANGE[:5]:
        session = read(ASKED, message)
        session.update(model="gpt-5.4")
        losses = session.render("open_responses").losses
        assert [loss.code for loss in losses] == ["provider_item"], message


# Signatures and ids, as the packages of the AI SDK write them
THOUGHT, CALLED = {"type": "reasoning", "text": "Hm."}, samples.WEATHER


def served(target: FormatName, model: str, *parts: Json) -> Any:
    session = read(ASKED, samples.assistant(samples.STEP, *parts))
    session.update(model=model)
    rendered = session.render(target)
    return rendered.payload[WIRE_TURNS[target]][1:]


WIRE_TURNS = {"open_responses": "input", "messages": "messages", "gemini": "contents", "converse": "messages"}


def test_responses_get_their_ids_and_encrypted_reasoning() -> None:
    sealed: Json = {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "gAAA"}}
    called = {**CALLED, "callProviderMetadata": {"openai": {"itemId": "fc_1"}}}
    said = {
        "type": "text",
        "text": "Rain.",
        "providerMetadata": {"openai": {"itemId": "msg_1", "phase": "final_answer"}},
    }
    parts = [{**THOUGHT, "text": text, "providerMetadata": sealed} for text in ("One.", "Two.")]
    reasoning, call, message, output = served("open_responses", "gpt-5.4", *parts, called, said)
    summary = [{"type": "summary_text", "text": text} for text in ("One.", "Two.")]
    assert reasoning == {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "gAAA"}
    assert (call["id"], call["call_id"], output["output"]) == ("fc_1", "c1", '{"degrees":4}')
    assert (message["id"], message["phase"]) == ("msg_1", "final_answer")


def test_claude_gets_what_it_signed() -> None:
    signed = {**THOUGHT, "providerMetadata": {"anthropic": {"signature": "c2ln"}}}
    redacted = {**THOUGHT, "text": "", "providerMetadata": {"anthropic": {"redactedData": "cmVk"}}}
    blocks = served("messages", "claude-sonnet-5", signed, redacted, CALLED)[0]["content"]
    assert blocks[0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    assert blocks[1] == {"type": "redacted_thinking", "data": "cmVk"}
    assert [block["type"] for block in blocks[2:]] == ["tool_use"]
    (block, *_) = served("converse", "us.anthropic.claude-sonnet-5", signed)[0]["content"]
    assert block == {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}}


def test_gemini_gets_its_signatures_in_their_parts() -> None:
    metadata = {"google": {"thoughtSignature": "c2ln"}}
    said = {"type": "text", "text": "Rain.", "providerMetadata": metadata}
    called = {**CALLED, "callProviderMetadata": metadata}
    parts = served("gemini", "gemini-3-pro-preview", {**THOUGHT, "providerMetadata": metadata}, called, said)[0][
        "parts"
    ]
    assert [part["thoughtSignature"] for part in parts] == ["c2ln", "c2ln", "c2ln"]
    assert [key for part in parts for key in ("thought", "functionCall", "text") if key in part] == [
        "thought", "text", "functionCall", "text",
    ]  # fmt: skip


def test_others_do_not_get_what_a_provider_signed() -> None:
    signed = {**THOUGHT, "providerMetadata": {"anthropic": {"signature": "c2ln"}}}
    session = read(ASKED, samples.assistant(signed, samples.TEXTS[0] | {"text": "Rain."}))
    session.update(model="gpt-5.4")
    rendered = session.render("open_responses")
    assert "c2ln" not in str(rendered.payload)
    assert [loss.code for loss in rendered.losses] == ["reasoning"]


# Conversations of other origin

SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
ANSWERS: dict[FormatName, tuple[Json, Json]] = {
    "messages": (
        {"type": "message", "role": "assistant", "model": "claude-sonnet-5", "stop_reason": "tool_use",
         "content": [SIGNED, {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Kiel"}}]},
        {"type": "reasoning", "text": "Hm.", "providerMetadata": {"anthropic": {"signature": "c2ln"}}},
    ),
    "open_responses": (
        {"object": "response", "status": "completed", "model": "gpt-5.4", "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather",
             "arguments": '{"city": "Kiel"}'},
        ]},
        {"type": "reasoning", "text": "",
         "providerMetadata": {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "gAAA"}}},
    ),
    "gemini": (
        {"candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": [
            {"text": "Hm.", "thought": True, "thoughtSignature": "c2ln"},
            {"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Kiel"}}, "thoughtSignature": "c2ln"},
        ]}}]},
        {"type": "reasoning", "text": "Hm.", "providerMetadata": {"google": {"thoughtSignature": "c2ln"}}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("origin", sorted(ANSWERS))
def test_answers_of_providers_are_one_message_with_a_step_for_each(origin: FormatName) -> None:
    body, thought = ANSWERS[origin]
    with Store("sqlite://") as store:
        talk = store.create_conversation(model="m", input="Weather?")
        talk.add_response(body, origin)
        asked, answer = talk.request_payload(NAME)["messages"]
        assert answer["parts"][2] | {"callProviderMetadata": None} == {
            "type": "tool-weather", "toolCallId": "c1", "state": "input-available", "input": {"city": "Kiel"},
            "callProviderMetadata": None,
        }  # fmt: skip
        talk.add_function_call_output(call_id="c1", output='{"degrees": 4}')
        said = {"role": "assistant", "content": "Cold."}
        talk.add_response({"choices": [{"message": said, "finish_reason": "stop"}]}, "chat_completion")
        messages = talk.request_payload(NAME)["messages"]
        assert messages[0] == asked
        assert messages[1]["id"] == answer["id"]
        kinds = ["step-start", "reasoning", "tool-weather", "step-start", "text"]
        assert [part["type"] for part in messages[1]["parts"]] == kinds
        assert messages[1]["parts"][1] | {"id": None} == {**thought, "state": "done", "id": None}
        assert messages[1]["parts"][2]["output"] == {"degrees": 4}
        assert refused({"messages": messages}) == []


def test_calls_that_were_cut_off_or_passed_over_are_errors() -> None:
    session = Session(model="m", input="Weather?")
    session.add_item({"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"})
    session.user("Never mind.")
    session.add_item(
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{", "status": "incomplete"}
    )
    rendered = session.render(NAME)
    first, last = (message["parts"][-1] for message in rendered.payload["messages"][1::2])
    assert (first["state"], first["errorText"]) == ("output-error", "Tool result missing")
    assert "was cut off and was not run" in last["errorText"]
    assert refused(rendered.payload) == []


def test_a_call_of_a_stored_message_takes_its_output_where_it_stands() -> None:
    waiting = {**CALLED, "state": "input-available"}
    del waiting["output"]
    with Store("sqlite://") as store:
        talk = store.import_request({"messages": [ASKED, samples.assistant(samples.STEP, waiting)]}, NAME)
        assert [call.call_id for call in talk.pending_calls()] == ["c1"]
        talk.add_function_call_output(call_id="c1", output='{"degrees": 4}')
        assert talk.request_payload(NAME)["messages"][1] == samples.assistant(samples.STEP, CALLED)


def test_what_is_no_uimessage_is_refused_with_what_to_do() -> None:
    older = {"id": "1", "role": "user", "content": "Hi"}
    for value, words in (
        ([older], "older than 5"), ([7], "not a UIMessage"), ({"messages": []}, "at least one"),
        ({"contents": []}, "no messages"), ([{"role": "user", "parts": "Hi"}], "no list of parts"),
    ):  # fmt: skip
        with pytest.raises(CannotParse, match=words):
            WIRE.parse_request(value)
    for body, words in (
        (ASKED, "not the assistant's"), ({"parts": [{"text": "Hi"}], "role": "model"}, "no UIMessage"),
        ({"choices": []}, "chat_completion"),
    ):  # fmt: skip
        with pytest.raises(CannotParse, match=words) as caught:
            WIRE.parse_response(body)
        assert caught.value.hint or words == "chat_completion"


def test_usage_is_read_from_the_metadata() -> None:
    usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15, "inputTokenDetails": {"cacheReadTokens": 4}}
    response = WIRE.parse_response(samples.assistant(samples.TEXTS[1], metadata={"totalUsage": usage}))
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (10, 5)
    assert response.usage.input_tokens_details == {"cached_tokens": 4}


# Every item that a model gives

# type of an item of OpenAI's answers -> the types of the parts that pages see of it
SHOWN: dict[str, list[str]] = {
    "message": ["text", "source-document"], "reasoning": ["reasoning", "text"],
    "function_call": ["tool-name_value"], "custom_tool_call": ["tool-name_value"],
    "web_search_call": ["tool-web_search"], "file_search_call": ["tool-file_search"],
    "code_interpreter_call": ["tool-code_interpreter"], "computer_call": ["tool-computer_use"],
    "local_shell_call": ["tool-local_shell"], "shell_call": ["tool-shell"], "apply_patch_call": ["tool-apply_patch"],
    "tool_search_call": ["tool-tool_search"], "program": ["tool-program"], "mcp_call": ["dynamic-tool"],
    "mcp_approval_request": ["dynamic-tool"],
    # without their calls, and what says nothing to people
    **{kind: [] for kind in (
        "function_call_output", "custom_tool_call_output", "computer_call_output", "local_shell_call_output",
        "shell_call_output", "apply_patch_call_output", "tool_search_output", "program_output", "mcp_approval_response",
        "mcp_list_tools", "additional_tools", "compaction", "image_generation_call",
    )},
}  # fmt: skip


def test_every_item_of_an_answer_is_shown_or_reported() -> None:
    shown = {}
    for element in sdk_samples.elements():
        if not element.is_answer:
            continue
        value = element.samples()[0].value
        session = Session(model="m", input="Hi")
        session.add_response(sdk_samples.body(element, element.hold(value)[1]), element.format_name)
        rendered = session.render(NAME)
        assert refused(rendered.payload) == []
        kinds = [part["type"] for message in rendered.payload["messages"][1:] for part in message["parts"]]
        kinds = [kind for kind in kinds if kind != "step-start"]
        assert kinds or rendered.losses or value == {"type": "model_output"}, element.name
        if element.source == "openai.responses.output":
            shown[value["type"]] = kinds
    assert shown == SHOWN


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("shell_call", {"output": [{"stdout": "1", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}),
        ("local_shell_call", {"output": "1"}),
        ("apply_patch_call", {"status": "completed", "output": "1"}),
        ("computer_call", {"output": {"type": "computer_screenshot", "image_url": samples.PNG}}),
    ],
)
def test_what_the_application_returns_is_in_the_part_of_its_call(kind: str, output: Json) -> None:
    with Store("sqlite://") as store:
        talk = store.create_conversation(model="m", input="Hi")
        call = {"type": kind, "id": "x_1", "call_id": "c1"}
        talk.add_response({"object": "response", "status": "completed", "output": [call]}, "open_responses")
        [_, before] = talk.request_payload(NAME)["messages"]
        assert [part.get("state") for part in before["parts"]] == [None, "input-available"]
        talk.add_items([{"type": f"{kind}_output", "call_id": "c1", **output}])
        [_, after] = talk.request_payload(NAME)["messages"]
        assert after["id"] == before["id"]
        assert after["parts"][1] == {**before["parts"][1], "state": "output-available", "output": output}
        talk.add_response({"object": "response", "status": "completed", "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}]},
            "open_responses")  # fmt: skip
        [_, after] = talk.request_payload(NAME)["messages"]
        assert [part["type"] for part in after["parts"]][2:] == ["step-start", "text"]
