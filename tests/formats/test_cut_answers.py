"""Answers that were cut off, and answers in which the model paused: what that means for items and the next step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.corpus import assembled
from threadkeep import Conflict, FunctionCall, InvalidToolArguments, Response, Session, Store, ToolRegistry
from threadkeep.formats import FormatName

Json = dict[str, Any]

# SDK helpers complete the JSON of a call that was cut off: 12 of 1250
WHOLE = {"to": "Ann", "amount": 12}
ARGUMENTS = json.dumps(WHOLE)
FUNCTION = {"name": "pay", "arguments": ARGUMENTS}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "t1", "name": "pay", "arguments": ARGUMENTS}


def body(format: str, reason: str | None, *, first: str | None = None, text: str | None = None) -> Json:
    """An answer with a call, after another one or before a text, that ended for a reason."""
    names = [name for name in (first, "t1") if name is not None]
    if format == "messages":
        blocks: list[Json] = [{"type": "tool_use", "id": name, "name": "pay", "input": WHOLE} for name in names]
        blocks += [] if text is None else [{"type": "text", "text": text}]
        return {"id": "m", "type": "message", "role": "assistant", "content": blocks, "stop_reason": reason}
    if format == "converse":
        blocks = [{"toolUse": {"toolUseId": name, "name": "pay", "input": WHOLE}} for name in names]
        blocks += [] if text is None else [{"text": text}]
        ending = {} if reason is None else {"stopReason": reason}
        return {"output": {"message": {"role": "assistant", "content": blocks}}, **ending}
    if format == "gemini":
        parts: list[Json] = [{"functionCall": {"name": "pay", "args": WHOLE, "id": name}} for name in names]
        parts += [] if text is None else [{"text": text, "thoughtSignature": "QUJD"}]
        return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": reason}]}
    if format == "pydantic_ai":
        calls = [{"part_kind": "tool-call", "tool_name": "pay", "args": WHOLE, "tool_call_id": name} for name in names]
        calls += [] if text is None else [{"part_kind": "text", "content": text}]
        return {"kind": "response", "parts": calls, "finish_reason": reason}
    if format == "open_responses":
        items: list[Json] = [{**CALL, "id": f"fc_{name}", "call_id": name} for name in names]
        items += [] if text is None else [{"type": "message", "role": "assistant", "content": text}]
        status = "completed" if reason == "completed" else "incomplete"
        details = None if reason == "completed" else {"reason": reason}
        return {"object": "response", "status": status, "incomplete_details": details, "output": items}
    message = {"role": "assistant", "tool_calls": [{"id": n, "type": "function", "function": FUNCTION} for n in names]}
    return {"choices": [{"index": 0, "finish_reason": reason, "message": message}]}


# format, why the answer ended -> whether its last call came whole
ENDS: list[tuple[FormatName, str | None, bool]] = [
    ("messages", "tool_use", True),
    ("messages", "max_tokens", False),
    ("messages", "model_context_window_exceeded", False),
    ("messages", "refusal", False),
    ("messages", "pause_turn", True),
    ("messages", None, False),
    ("converse", "tool_use", True),
    ("converse", "max_tokens", False),
    ("converse", "model_context_window_exceeded", False),
    ("converse", "malformed_tool_use", False),
    ("converse", None, False),
    ("gemini", "STOP", True),
    ("gemini", "MAX_TOKENS", False),
    ("gemini", "CONTINUATION", False),
    ("gemini", "MALFORMED_FUNCTION_CALL", False),
    ("gemini", None, False),
    ("chat_completion", "tool_calls", True),
    ("chat_completion", "stop", True),
    ("chat_completion", "length", False),
    ("chat_completion", "content_filter", False),
    ("chat_completion", None, False),
    ("chat_completion", "", False),
    ("open_responses", "completed", True),
    ("open_responses", "max_output_tokens", False),
    ("open_responses", "content_filter", False),
    ("open_responses", "steered", True),
    ("pydantic_ai", "tool_call", True),
    ("pydantic_ai", None, True),  # it tells no reason for most answers
    ("pydantic_ai", "length", False),
]
CUT = [(name, reason) for name, reason, is_whole in ENDS if not is_whole]
RENDERED: tuple[FormatName, ...] = ("open_responses", "chat_completion", "messages", "converse", "gemini")


@pytest.mark.share(3)
@pytest.mark.parametrize(("format_name", "reason", "is_whole"), ENDS)
def test_the_last_call_of_an_answer_that_was_cut_off_is_never_run(
    format_name: FormatName, reason: str | None, *, is_whole: bool
) -> None:
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="m", input="Pay Ann 1250.")
        response = talk.add_response(body(format_name, reason), format_name)
        assert [call.status for call in response.tool_calls] == [None if is_whole else "incomplete"]
        assert [call.call_id for call in talk.pending_calls()] == (["t1"] if is_whole else [])
        assert (talk.next_step() == "tools") is is_whole
        stored = talk.transcript()[-1].to_object()
        assert stored["arguments"].replace(" ", "") == ARGUMENTS.replace(" ", "")
        if not is_whole:
            with pytest.raises(Conflict, match="cut off"):
                talk.approve("t1")
            with pytest.raises(Conflict, match="cut off"):
                talk.deny("t1", reason="no")


@pytest.mark.share(3)
@pytest.mark.parametrize(("format_name", "reason"), CUT)
def test_calls_before_the_last_one_are_whole(format_name: FormatName, reason: str | None) -> None:
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="m", input="Pay both.")
        talk.add_response(body(format_name, reason, first="t0"), format_name)
        assert [call.call_id for call in talk.pending_calls()] == ["t0"]
        assert talk.next_step() == "tools"
        talk.add_function_call_output(call_id="t0", output="paid")
        assert (talk.pending_calls(), talk.next_step()) == ([], "model")


@pytest.mark.parametrize(("text", "is_whole"), [("Paid", True), (" ", False)])
@pytest.mark.parametrize("format_name", ["messages", "converse", "gemini", "pydantic_ai", "open_responses"])
def test_a_call_with_a_text_behind_it_is_whole(format_name: FormatName, text: str, *, is_whole: bool) -> None:
    reasons = {name: reason for name, reason in reversed(CUT) if reason is not None}
    response = Response.parse(body(format_name, reasons[format_name], text=text), format_name)
    assert [call.status for call in response.tool_calls] == [None if is_whole else "incomplete"]


@pytest.mark.parametrize("target", RENDERED)
@pytest.mark.parametrize(("format_name", "reason"), [("messages", "max_tokens"), ("chat_completion", "length")])
def test_requests_say_that_the_call_was_cut_off(format_name: FormatName, reason: str, target: FormatName) -> None:
    session = Session(model="m", input="Pay Ann 1250.")
    session.add_response(Response.parse(body(format_name, reason), format_name))
    session.user("And?")
    rendered = session.render(target)
    assert "was cut off and was not run" in json.dumps(rendered.payload)
    assert "Tool result missing" not in json.dumps(rendered.payload)
    assert "missing_output" in {repair.code for repair in rendered.repairs}


def test_pydantic_ai_is_told_that_the_call_was_cut_off() -> None:
    session = Session(model="m", input="Pay Ann 1250.")
    session.add_response(Response.parse(body("messages", "max_tokens"), "messages"))
    assert "was cut off and was not run" in json.dumps(session.render("pydantic_ai").payload)


def test_a_registry_does_not_run_a_call_that_was_cut_off() -> None:
    registry, paid = ToolRegistry(), []

    @registry.register
    def pay(to: str, amount: int) -> str:
        """Pay somebody."""
        paid.append((to, amount))
        return "paid"

    cut = Response.parse(body("messages", "max_tokens"), "messages").tool_calls[0]
    with pytest.raises(InvalidToolArguments, match="cut off"):
        registry.invoke(cut)
    assert paid == []
    assert registry.invoke(FunctionCall("pay", "t1", WHOLE)) == "paid"


# format -> events of an answer with a call, without an end; the event that ends it at a limit
STREAMS: dict[FormatName, tuple[list[Json], Json]] = {
    "messages": (
        [
            {"type": "message_start", "message": {**body("messages", None), "content": []}},
            {"type": "content_block_start", "index": 0,
             "content_block": {"type": "tool_use", "id": "t1", "name": "pay", "input": {}}},
            {"type": "content_block_delta", "index": 0,
             "delta": {"type": "input_json_delta", "partial_json": ARGUMENTS}},
            {"type": "content_block_stop", "index": 0},
        ],
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
    ),
    "converse": (
        [
            {"messageStart": {"role": "assistant"}},
            {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t1", "name": "pay"}}}},
            {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": ARGUMENTS}}}},
            {"contentBlockStop": {"contentBlockIndex": 0}},
        ],
        {"messageStop": {"stopReason": "max_tokens"}},
    ),
    "gemini": (
        [{"candidates": [{"content": {"role": "model", "parts": [
            {"functionCall": {"name": "pay", "id": "t1", "args": WHOLE}}]}}]}],
        {"candidates": [{"finishReason": "MAX_TOKENS"}]},
    ),
    "chat_completion": (
        [{"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "id": "t1", "type": "function", "function": FUNCTION}]}}]}],
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
    ),
    "open_responses": (
        [
            {"type": "response.created", "response": {"object": "response", "id": "r", "status": "in_progress"}},
            {"type": "response.output_item.added", "output_index": 0, "item": {**CALL, "status": "in_progress"}},
            {"type": "response.output_item.done", "output_index": 0, "item": {**CALL, "status": "completed"}},
        ],
        {"type": "response.incomplete", "response": {
            "object": "response", "id": "r", "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"}, "output": [{**CALL, "status": "completed"}]}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("is_ended", [True, False])
@pytest.mark.parametrize("format_name", STREAMS)
def test_a_streamed_call_is_not_run_if_its_answer_was_cut_off(format_name: FormatName, *, is_ended: bool) -> None:
    events, end = STREAMS[format_name]
    given = [*events, end] if is_ended else events
    found = assembled(given, format_name).response
    assert [call.status for call in found.tool_calls] == ["incomplete"]
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="m", input="Pay Ann 1250.")
        with talk.stream_response(format_name) as recorder:
            for event in given:
                recorder.feed(event)
        assert (talk.pending_calls(), talk.next_step()) == ([], "user")
        assert talk.transcript()[-1].to_object()["status"] == "incomplete"
        assert talk.transcript()[-1].canonical()["status"] == "incomplete"


# Items


def texts(format: FormatName) -> list[Json]:
    """The events of a text that breaks off."""
    if format == "open_responses":
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
        return [
            {"type": "response.created", "response": {"object": "response", "id": "r", "status": "in_progress"}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "On the"},
        ]
    if format == "messages":
        return [
            {"type": "message_start", "message": {**body("messages", None), "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "On the"}},
        ]
    if format == "converse":
        return [{"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "On the"}}}]
    if format == "gemini":
        return [{"candidates": [{"content": {"role": "model", "parts": [{"text": "On the"}]}}]}]
    return [{"id": "c", "choices": [{"index": 0, "delta": {"content": "On the"}}]}]


@pytest.mark.parametrize("is_cancelled", [True, False])
@pytest.mark.parametrize("format_name", STREAMS)
def test_the_last_item_of_an_answer_that_broke_off_is_incomplete(
    format_name: FormatName, *, is_cancelled: bool
) -> None:
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="m", input="Where?")
        with talk.stream_response(format_name) as recorder:
            for event in texts(format_name):
                recorder.feed(event)
            if is_cancelled:
                recorder.cancel()
        for found in (talk.transcript()[-1], store.get_conversation(talk.id).transcript()[-1]):
            statuses = [found.item.to_dict()["status"], found.canonical()["status"]]
            assert statuses == ["incomplete", "incomplete"]


@pytest.mark.parametrize("kind", ["image_generation_call", "apply_patch_call", "web_search_call", "mcp_call"])
def test_what_was_in_progress_gets_a_status_that_its_type_has(kind: str) -> None:
    item = {"type": kind, "id": "x_1", "status": "in_progress"}
    begun = {"type": "response.created", "response": {"object": "response", "id": "r", "status": "in_progress"}}
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="m", input="Draw")
        with talk.stream_response("open_responses") as recorder:
            recorder.feed(begun)
            recorder.feed({"type": "response.output_item.added", "output_index": 0, "item": item})
        status = {"image_generation_call": "failed", "apply_patch_call": "in_progress"}.get(kind, "incomplete")
        found = talk.transcript()[-1]
        assert [found.to_object()["status"], found.canonical()["status"]] == [status, status]


def test_an_item_is_given_back_as_it_came() -> None:
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="m", input="Where?")
        for status in ("completed", "incomplete", "completed"):
            item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "phase": None,
                    "content": [{"type": "output_text", "text": "On", "annotations": []}]}  # fmt: skip
            talk.add_response({"object": "response", "status": status, "output": [item]}, "open_responses")
            stored = store.get_conversation(talk.id).transcript()[-1]
            assert stored.given() == item
            assert stored.to_object()["status"] == status


# Pauses

TEXT = {"type": "text", "text": "I look."}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "news"}}
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "claude"}
STEERED = {"object": "response", "id": "r", "status": "incomplete", "incomplete_details": {"reason": "steered"}}
SAID = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Half.", "annotations": []}]}  # fmt: skip
PAUSES: list[tuple[FormatName, Json]] = [
    ("messages", {**MESSAGE, "content": [TEXT, SEARCH], "stop_reason": "pause_turn"}),
    ("messages", {**MESSAGE, "content": [TEXT], "stop_reason": "pause_turn"}),
    ("messages", {**MESSAGE, "content": [], "stop_reason": "pause_turn"}),
    ("messages", {**MESSAGE, "content": [{"type": "compaction", "content": "All."}], "stop_reason": "compaction"}),
    ("gemini", {"candidates": [{"content": {"role": "model", "parts": [{"text": "One,"}]},
                                "finishReason": "CONTINUATION", "continuationToken": "dG8="}]}),
    ("open_responses", {**STEERED, "output": [SAID]}),
    ("pydantic_ai", {"kind": "response", "parts": [{"part_kind": "text", "content": "I look."}], "state": "suspended"}),
]  # fmt: skip


@pytest.mark.parametrize(("format_name", "paused"), PAUSES)
def test_a_paused_answer_is_not_complete_and_it_is_the_models_turn(format_name: FormatName, paused: Json) -> None:
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="m", input="What is new?")
        response = talk.add_response(paused, format_name)
        assert response.status == "incomplete"
        assert talk.next_step() == "model"
        branch = talk.fork(at=talk.transcript()[-1].position)
        assert branch.next_step() == "model"
        talk.user("Never mind.")
        assert talk.next_step() == "model"
        talk.add_response({**MESSAGE, "content": [TEXT], "stop_reason": "end_turn"}, "messages")
        assert talk.next_step() == "user"


def test_a_paused_answer_goes_back_as_it_came_and_its_items_are_whole() -> None:
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="claude", input="What is new?")
        talk.add_response(PAUSES[0][1], "messages")
        assert talk.request_payload("messages")["messages"][-1] == {"role": "assistant", "content": [TEXT, SEARCH]}
        found = talk.transcript()[-1]
        assert found.to_object().get("status") is None
        assert found.canonical()["status"] == "completed"
        assert [part["text"] for part in found.canonical()["content"]] == ["I look."]


def test_a_conversation_that_was_compacted_after_an_answer_waits_for_the_user() -> None:
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="claude", input="What is new?")
        talk.add_response({**MESSAGE, "content": [TEXT], "stop_reason": "end_turn"}, "messages")
        talk.add_response(PAUSES[3][1], "messages")
        assert talk.next_step() == "user"
