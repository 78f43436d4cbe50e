"""Compactions that providers made: what they cover is sent nowhere, and what they repeat is sent once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.factories import a_message, a_stream, an_answer
from threadkeep import CannotRender, InvalidItem, Turns
from threadkeep.formats import FormatName

pytestmark = pytest.mark.one_face

Json = dict[str, Any]
OPENAI: FormatName = "open_responses"
CLAUDE: FormatName = "messages"
PYDANTIC: FormatName = "pydantic_ai"
OTHERS: Sequence[FormatName] = ("chat_completion", "gemini", "converse")
SEALED: Json = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}
BLOCK: Json = {"type": "compaction", "content": "Ada has a code.", "encrypted_content": "sealed", "signature": "signed"}


def a_window(*texts: str, id: str = "resp_w") -> Json:
    """What the compaction endpoint answers: the user's messages, and one item."""
    output = [{**a_message(text), "id": f"msg_{n}", "status": "completed"} for n, text in enumerate(texts)]
    usage = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}
    return {"id": id, "object": "response.compaction", "created_at": 1, "output": [*output, SEALED], "usage": usage}


def a_claude_answer(*blocks: Json, reason: str = "end_turn") -> Json:
    usage = {"input_tokens": 9, "output_tokens": 1}
    content = list(blocks)
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": content,
        "stop_reason": reason, "usage": usage,
    }  # fmt: skip


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def talked(conversation: Any, model: str = "gpt-5.4") -> Any:
    """A conversation of four items, whose next answer comes from a model."""
    conversation.update(model=model)
    conversation.user("My name is Ada.")
    conversation.add_response(an_answer("Hello, Ada."), OPENAI)
    conversation.user("Remember the code 4711.")
    conversation.add_response(an_answer("I do.", id="resp_2"), OPENAI)
    return conversation


def shown(conversation: Any, format_name: FormatName, **view: Any) -> list[str]:
    """What a request shows: texts, and types of what is no text."""
    payload = conversation.request_payload(format_name, **view)
    turns = payload.get("input") or payload.get("contents") or payload["messages"]
    return [piece for turn in turns for piece in _pieces(turn)]


def _pieces(turn: Json) -> list[str]:
    if turn.get("type") not in (None, "message"):
        return [turn["type"]]
    parts: Any = turn.get("content", turn.get("parts"))
    if isinstance(parts, str):
        return [parts]
    said = []
    for part in parts:
        kind = part.get("type", part.get("part_kind"))
        content = part.get("text", part.get("content"))
        said.append(kind if kind == "compaction" else str(content))
    return said


# OpenAI's compaction endpoint


def test_the_output_of_the_endpoint_is_the_new_history(conversation: Any) -> None:
    talked(conversation)
    conversation.add_response(a_window("My name is Ada.", "Remember the code 4711."), OPENAI)
    conversation.user("What is the code?")
    rendered = conversation.render(OPENAI, strict=True)
    assert shown(conversation, OPENAI) == [
        "My name is Ada.", "Remember the code 4711.", "compaction", "What is the code?",
    ]  # fmt: skip
    assert rendered.payload["input"][2] == SEALED
    assert rendered.repairs == []
    assert conversation.next_step() == "model"


@pytest.mark.parametrize("other", [*OTHERS, CLAUDE])
def test_other_formats_show_the_history_once(conversation: Any, other: FormatName) -> None:
    talked(conversation)
    before = shown(conversation, other)
    conversation.add_response(a_window("My name is Ada.", "Remember the code 4711."), OPENAI)
    conversation.user("What is the code?")
    now = [piece for piece in shown(conversation, other) if piece != "..."]
    assert now == [*(piece for piece in before if piece != "..."), "What is the code?"]


def test_a_window_that_was_undone_is_not_sent(conversation: Any) -> None:
    before = shown(talked(conversation), OPENAI)
    conversation.add_response(a_window("My name is Ada.", "Remember the code 4711."), OPENAI)
    conversation.undo_compaction()
    assert shown(conversation, OPENAI) == before
    assert len(conversation.transcript()) == 8, "nothing is deleted"


def test_the_next_window_stands_for_the_last(conversation: Any) -> None:
    talked(conversation)
    conversation.add_response(a_window("My name is Ada."), OPENAI)
    conversation.user("And I am 36.")
    conversation.add_response(an_answer("Noted.", id="resp_3"), OPENAI)
    conversation.add_response(a_window("My name is Ada.", "And I am 36.", id="resp_v"), OPENAI)
    assert shown(conversation, OPENAI) == ["My name is Ada.", "And I am 36.", "compaction"]
    conversation.undo_compaction()
    assert shown(conversation, OPENAI) == ["My name is Ada.", "compaction", "And I am 36.", "Noted."]


def test_what_came_in_while_the_provider_compacted_follows_the_window(conversation: Any) -> None:
    talked(conversation)
    sent = conversation.render(OPENAI)
    conversation.user("Are you there?")
    conversation.add_response(
        a_window("My name is Ada.", "Remember the code 4711."), OPENAI, rendered=sent, on_conflict="append"
    )
    assert shown(conversation, OPENAI) == [
        "My name is Ada.", "Remember the code 4711.", "compaction", "Are you there?",
    ]  # fmt: skip


@pytest.mark.parametrize("view", [{}, {"window": Turns(1)}])
def test_its_item_alone_leaves_what_the_user_said(conversation: Any, view: Json) -> None:
    """The item stands for everything but the user's messages."""
    talked(conversation)
    conversation.compact(item=SEALED)
    conversation.user("What is the code?")
    assert shown(conversation, OPENAI, **view) == [
        "My name is Ada.", "Remember the code 4711.", "compaction", "What is the code?",
    ]  # fmt: skip
    assert shown(conversation, "chat_completion")[:2] == ["My name is Ada.", "Hello, Ada."]


def test_a_summary_after_a_window_covers_all_of_it(conversation: Any) -> None:
    talked(conversation)
    conversation.add_response(a_window("My name is Ada."), OPENAI)
    conversation.user("Thanks.")
    conversation.add_response(an_answer("Bye.", id="resp_3"), OPENAI)
    conversation.compact(summary="Ada was here.")
    for format_name in (OPENAI, "chat_completion"):
        [summary] = shown(conversation, format_name)
        assert "Ada was here." in summary


# OpenAI's compaction in the course of an answer


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_item_in_an_answer_stands_for_everything_before_it(conversation: Any, is_streamed: bool) -> None:
    talked(conversation)
    conversation.user("What is the code?")
    if is_streamed:
        events = a_stream("4711.", id="resp_3")
        done = {"type": "response.output_item.done", "output_index": 0, "item": SEALED}
        place = next(n for n, event in enumerate(events) if event["type"] == "response.completed")
        events[place]["response"]["output"].insert(0, SEALED)
        for event in events[:place]:
            if "output_index" in event:
                event["output_index"] += 1
        with conversation.stream_response(OPENAI) as recorder:
            for event in [events[0], done, *events[1:]]:
                recorder.feed(event)
    else:
        answer = an_answer("4711.", id="resp_3")
        conversation.add_response({**answer, "output": [SEALED, *answer["output"]]}, OPENAI)
    conversation.user("Thanks.")
    assert shown(conversation, OPENAI) == ["compaction", "4711.", "Thanks."]
    assert shown(conversation, "chat_completion")[0] == "My name is Ada."
    assert shown(conversation, "chat_completion")[-2:] == ["4711.", "Thanks."]


# Anthropic's block


def test_a_signed_block_stands_for_the_messages_it_summarizes(conversation: Any) -> None:
    talked(conversation, model="claude")
    conversation.add_response(a_claude_answer(BLOCK, reason="compaction"), CLAUDE)
    conversation.user("What is the code?")
    rendered = conversation.render(CLAUDE, strict=True)
    assert rendered.payload["messages"] == [
        {"role": "assistant", "content": [BLOCK]},
        {"role": "user", "content": [text("What is the code?")]},
    ]
    assert rendered.repairs == []


@pytest.mark.parametrize("other", [*OTHERS, OPENAI])
def test_other_formats_get_its_text(conversation: Any, other: FormatName) -> None:
    talked(conversation, model="claude")
    conversation.add_response(a_claude_answer(BLOCK, reason="compaction"), CLAUDE)
    conversation.user("What is the code?")
    said = shown(conversation, other)
    assert "Ada has a code." in said[0]
    assert said[1:] == ["What is the code?"]
    assert conversation.render(other).losses == []


def test_a_model_that_did_not_sign_the_block_gets_its_text(conversation: Any) -> None:
    talked(conversation, model="gpt-5.4")
    conversation.add_response(a_claude_answer(BLOCK, reason="compaction"), CLAUDE)
    conversation.user("What is the code?")
    [message] = conversation.render(CLAUDE, strict=True).payload["messages"]
    assert "Ada has a code." in message["content"][0]["text"]


def test_a_block_in_an_answer_covers_what_its_request_showed(conversation: Any) -> None:
    talked(conversation, model="claude")
    conversation.user("What is the code?")
    conversation.add_response(a_claude_answer(BLOCK, text("4711.")), CLAUDE)
    conversation.user("Thanks.")
    assert conversation.request_payload(CLAUDE)["messages"] == [
        {"role": "assistant", "content": [BLOCK, text("4711.")]},
        {"role": "user", "content": [text("Thanks.")]},
    ]
    assert conversation.next_step() == "model"


def test_turns_that_were_not_summarized_follow_the_block(conversation: Any) -> None:
    """Compaction in the background, and compaction that keeps recent turns: the request says what was summarized."""
    talked(conversation, model="claude")
    sent = conversation.render(CLAUDE, upto=1)
    answer = a_claude_answer(BLOCK, reason="compaction")
    conversation.add_response(answer, CLAUDE, rendered=sent, on_conflict="append")
    assert shown(conversation, CLAUDE)[:3] == ["compaction", "Remember the code 4711.", "I do."]
    assert "My name is Ada." not in str(conversation.request_payload("gemini"))


def test_a_block_that_failed_covers_nothing(conversation: Any) -> None:
    """The service takes it as if it were not there."""
    failed = {"type": "compaction", "content": None}
    talked(conversation, model="claude")
    conversation.add_response(a_claude_answer(failed, text("Well.")), CLAUDE)
    conversation.user("Thanks.")
    assert shown(conversation, CLAUDE)[0] == "My name is Ada."
    assert failed in conversation.request_payload(CLAUDE)["messages"][-2]["content"]


def test_a_block_is_streamed_as_the_same_item(conversation: Any) -> None:
    talked(conversation, model="claude")
    delta = {"type": "compaction_delta", "content": BLOCK["content"], "encrypted_content": "sealed"}
    start = {"type": "compaction", "content": None, "encrypted_content": None, "signature": "signed"}
    with conversation.stream_response(CLAUDE) as recorder:
        for event in (
            {"type": "message_start", "message": {**a_claude_answer(), "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "compaction"}, "usage": {"output_tokens": 3}},
            {"type": "message_stop"},
        ):
            recorder.feed(event)
    conversation.user("What is the code?")
    assert conversation.request_payload(CLAUDE)["messages"][0] == {"role": "assistant", "content": [BLOCK]}


def test_an_imported_request_with_a_block_stays_whole(store: Any) -> None:
    request = {
        "model": "claude", "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [BLOCK, text("Hello.")]},
            {"role": "user", "content": "And?"},
        ],
    }  # fmt: skip
    imported = store.import_request(request, CLAUDE)
    assert imported.request_payload(CLAUDE) == request
    said = shown(imported, "chat_completion")
    assert "Ada has a code." in said[0]
    assert said[1:] == ["Hello.", "And?"]


def test_a_block_can_be_given(conversation: Any) -> None:
    talked(conversation, model="claude")
    conversation.compact(item=BLOCK, upto=1)
    assert shown(conversation, CLAUDE)[:3] == ["compaction", "Remember the code 4711.", "I do."]
    assert "Ada has a code." in shown(conversation, OPENAI)[0]
    with pytest.raises(InvalidItem, match="without content"):
        conversation.compact(item={**BLOCK, "content": " "})


def test_a_window_of_turns_keeps_the_block(conversation: Any) -> None:
    talked(conversation, model="claude")
    conversation.add_response(a_claude_answer(BLOCK, reason="compaction"), CLAUDE)
    for number in range(3):
        conversation.user(f"question {number}")
        conversation.add_response(a_claude_answer(text(f"answer {number}")), CLAUDE)
    assert shown(conversation, CLAUDE, window=Turns(1))[:3] == ["compaction", "question 2", "answer 2"]


# Pydantic AI's part


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("other", [*OTHERS, OPENAI, CLAUDE])
def test_the_text_of_a_part_serves_other_formats(store: Any, kind: str, other: FormatName) -> None:
    part = {"part_kind": "compaction", "content": "Ada has a code."}
    part |= {"provider_name": "anthropic", "id": "c"} if kind == "response" else {}
    history = [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "My name is Ada."}]},
        {"kind": kind, "parts": [part]},
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "What is the code?"}]},
    ]
    imported = store.import_request({"message_history": history}, PYDANTIC)
    assert imported.request_payload(PYDANTIC)["message_history"] == history
    imported.update(model="any")
    said = shown(imported, other)
    assert "Ada has a code." in said[0]
    assert said[1:] == ["What is the code?"]
    assert imported.render(other).losses == []


# Anthropic's threads


def thread(conversation: Any, previous: str) -> None:
    conversation.update(extra={"messages": {"thread": {"type": "continue", "previous_message_id": previous}}})


def test_a_thread_gets_only_what_the_service_does_not_hold(conversation: Any) -> None:
    conversation.user("My name is Ada.")
    sent = conversation.render(CLAUDE)
    conversation.user("Are you there?")
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    conversation.add_response(a_claude_answer(text("Yes."), call), CLAUDE, rendered=sent, on_conflict="append")
    conversation.add_function_call_output(call_id="toolu_1", output="seen")
    thread(conversation, "msg_1")
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "seen"}
    assert conversation.request_payload(CLAUDE)["messages"] == [
        {"role": "user", "content": [result, text("Are you there?")]}
    ]
    whole = conversation.render(CLAUDE, server_state="none")
    assert len(whole.payload["messages"]) == 3
    assert "thread" not in whole.payload
    assert [repair.code for repair in whole.repairs if repair.path == "extra.messages.thread"] == ["option"]


def test_a_thread_needs_something_new(conversation: Any) -> None:
    conversation.user("Hi")
    conversation.add_response(a_claude_answer(text("Hello.")), CLAUDE)
    thread(conversation, "msg_1")
    with pytest.raises(CannotRender, match="newest answer"):
        conversation.render(CLAUDE)
