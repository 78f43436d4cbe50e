"""A provider's answer: its items, the response, the raw body and the ledger row, in one transaction."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import openai.types.responses
import pytest

from tests.factories import MODEL, a_completion, an_answer, an_error, texts_of
from tests.store.watching import Tables
from threadkeep import InvalidOption, NotFound, ProviderError, Response


def test_an_answer_is_one_of_everything(conversation: Any, tables: Tables) -> None:
    conversation.user("Hi")
    written = tables.written()
    response = conversation.add_response(an_answer("Hello", calls=("a", "b")), "open_responses")
    assert (response.text, response.status, response.replayed) == ("Hello", "completed", False)
    assert [call.call_id for call in response.tool_calls] == ["a", "b"]
    assert written() == {"items": 3, "responses": 1, "response_bodies": 1, "usage_records": 1}
    [row] = conversation.responses()
    assert (row.number, row.branch, row.input_to, row.from_position, row.to_position) == (0, 0, 0, 1, 3)
    assert (row.model, row.provider_response_id, row.view) == (MODEL, "resp_1", None)


def test_what_the_request_showed_is_recorded(conversation: Any) -> None:
    conversation.user("one")
    conversation.user("two")
    rendered = conversation.render("open_responses", upto=0)
    conversation.user("three, meanwhile")
    conversation.add_response(an_answer("Hello"), "open_responses", rendered=rendered)
    [row] = conversation.responses()
    assert (row.input_to, row.view) == (0, {"format": "open_responses", "upto": 0})
    conversation.add_response(an_answer("Hello"), "open_responses")
    assert list(conversation.responses())[1].input_to == 3


@pytest.mark.parametrize("kind", ["dict", "text", "bytes", "SDK"])
def test_a_body_may_be_given_in_any_form(conversation: Any, kind: str) -> None:
    details = {
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, **details}
    body = an_answer("Hello", created_at=1, parallel_tool_calls=True, tool_choice="auto", tools=[], usage=usage)
    given: Any = {
        "dict": body,
        "text": json.dumps(body),
        "bytes": json.dumps(body).encode(),
        "SDK": openai.types.responses.Response.model_validate(body),
    }[kind]
    assert conversation.add_response(given, "open_responses").text == "Hello"
    assert json.loads(conversation.response_body(0)) == body
    if kind in {"text", "bytes"}:
        assert conversation.response_body(0) == json.dumps(body).encode()


def test_a_response_that_was_parsed_is_no_body(conversation: Any, tables: Tables) -> None:
    """What the provider sent cannot be known from it."""
    written = tables.written()
    for response in (Response.from_text("Hi"), Response.parse(an_answer("Hi"), "open_responses")):
        for name in ("open_responses", "chat_completion"):
            with pytest.raises(InvalidOption, match="parsed already"):
                conversation.add_response(response, name)
    assert written() == {}
    assert conversation.add_response(Response.from_text("Hi").to_dict(), "open_responses").text == "Hi"


def test_a_long_body_comes_back_byte_by_byte(conversation: Any, elsewhere: Any) -> None:
    text = json.dumps(an_answer("Hello " * 5_000), indent=3)
    conversation.add_response(text, "open_responses")
    assert elsewhere.get_conversation(conversation.id).response_body(0).decode() == text
    with pytest.raises(NotFound):
        conversation.response_body(1)


def test_an_answer_without_items(conversation: Any, tables: Tables) -> None:
    response = conversation.add_response(an_answer(status="incomplete"), "open_responses")
    assert (response.status, response.text, conversation.head) == ("incomplete", None, -1)
    [row] = conversation.responses()
    assert (row.from_position, row.to_position, row.status) == (0, -1, "incomplete")
    assert conversation.user("Hi").position == 0


def test_answers_of_several_providers(conversation: Any) -> None:
    conversation.user("Hi")
    conversation.add_response(an_answer("one"), "open_responses", provider="openai")
    conversation.user("and")
    conversation.add_response(a_completion("two"), "chat_completion", provider="groq")
    assert texts_of(conversation.transcript()) == ["Hi", "one", "and", "two"]
    assert [row.format for row in conversation.responses()] == ["open_responses", "chat_completion"]
    assert sorted(row.provider for row in conversation.usage(by=("provider",))) == ["groq", "openai"]


def test_responses_come_in_pages(conversation: Any) -> None:
    for number in range(5):
        conversation.add_response(an_answer(f"{number}"), "open_responses")
    seen, after = [], None
    for _ in range(9):
        page = conversation.responses(after=after, limit=2)
        seen += [row.number for row in page]
        after = page.next
        if after is None:
            break
    assert seen == [0, 1, 2, 3, 4]


def test_failed_attempts_are_counted(store: Any, conversation: Any, tables: Tables) -> None:
    conversation.record_attempt("open_responses", error=TimeoutError("no answer"), provider="openai", latency_ms=30_000)
    conversation.record_attempt("chat_completion", status="cancelled", model="other")
    with pytest.raises(ProviderError):
        conversation.add_response(an_error(), "open_responses")
    rows = tables.rows("usage_records", "id")
    assert [(row["status"], row["model"], row["latency_ms"]) for row in rows] == [
        ("failed", MODEL, 30_000),
        ("cancelled", "other", None),
        ("failed", MODEL, None),
    ]
    assert json.loads(rows[0]["error"]) == {"type": "TimeoutError", "message": "no answer"}
    assert conversation.usage().attempts == 3
    assert conversation.usage().input_tokens is None
    assert store.usage(by="status", order_by="attempts")[0].status == "failed"


def test_usage_is_summed(store: Any) -> None:
    for user in ("ann", "ben"):
        conversation = store.create_conversation(model="m", user_id=user)
        for tokens in (10, 20):
            usage = {"input_tokens": tokens, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 5}}
            conversation.add_response(an_answer("Hi", usage=usage), "open_responses")
    [total] = store.usage()
    assert (total.attempts, total.input_tokens, total.cached_tokens, total.output_tokens) == (4, 60, 10 * 2, 4)
    assert [(row.user_id, row.input_tokens) for row in store.usage(by=("user_id",))] == [("ann", 30), ("ben", 30)]
    assert [row.attempts for row in store.usage(by=("day", "model"), user_id="ann")] == [2]
    assert [row.conversation_id for row in store.usage(by=("conversation_id",), user_id="ben")] == [conversation.id]
    assert [row.input_tokens for row in conversation.usage(by=("response",))] == [10, 20]
    assert store.usage(by="model", user_id=["ann", "ben"])[0].attempts == 4
    assert store.usage(by="user_id", order_by="input_tokens", limit=1)[0].attempts == 2


def test_usage_of_a_time(store: Any, conversation: Any) -> None:
    conversation.record_attempt("open_responses")
    today, now = datetime.now(UTC).date(), datetime.now(UTC)
    day = timedelta(days=1)
    assert store.usage(since=today - day, until=today + day)[0].attempts == 1
    assert store.usage(until=today - day)[0].attempts == 0
    assert store.usage(since=now - day, until=now + day)[0].attempts == 1
    assert store.usage(since=now + day)[0].attempts == 0
    assert store.usage(since=today - day, tz="Asia/Tokyo")[0].attempts == 1


@pytest.mark.parametrize(
    "question",
    [
        {"by": ("colour",)},
        {"colour": "red"},
        {"order_by": "colour"},
        {"since": "yesterday"},
        {"since": datetime(2026, 1, 1)},  # noqa: DTZ001 - the point
        {"since": date(2026, 1, 1), "tz": "Mars/Olympus"},
        {"by": ["day", "day"]},
        {"limit": 0},
        {"limit": "x"},
        {"model": 7},
        {"day": "2026-01-01"},
        {"response": "x"},
        {"user_id": [b"x"]},
    ],
    ids=str,
)
def test_other_questions_are_refused(store: Any, question: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        store.usage(**question)


def test_the_ledger_outlives_its_conversation(store: Any, conversation: Any) -> None:
    conversation.add_response(an_answer("Hi"), "open_responses")
    store.delete_conversation(conversation.id)
    assert [(row.conversation_id, row.input_tokens) for row in store.usage(by=("conversation_id",))] == [(None, 10)]


def test_server_state_follows_the_answers(store: Any, elsewhere: Any) -> None:
    """What is sent is what follows the newest answer on this branch; "none" sends everything."""
    conversation = store.create_conversation(model="m", previous_response_id="resp_0", input="one")
    conversation.add_response(an_answer("1", id="resp_1"), "open_responses")
    conversation.user("two")
    fork = conversation.fork(at=1)
    conversation.add_response(an_answer("2", id="resp_2"), "open_responses")
    conversation.user("three")
    fork.user("other")
    for branch, previous, sent in ((0, "resp_2", ["three"]), (1, "resp_1", ["other"])):
        handle = elsewhere.get_conversation(conversation.id, branch=branch)
        payload = handle.request_payload("open_responses")
        assert payload["previous_response_id"] == previous
        assert [item["content"][0]["text"] for item in payload["input"]] == sent
        whole = handle.request_payload("open_responses", server_state="none")
        assert "previous_response_id" not in whole
        assert len(whole["input"]) == (5 if branch == 0 else 3)


def test_a_handle_remembers_what_was_stored_of_a_request(store: Any, conversation: Any) -> None:
    """A request of another branch cannot have shown items that come later here."""
    conversation.user("Look it up")
    longer = conversation.fork()
    for text in ("Two", "Three", "Four"):
        longer.user(text)
    rendered = longer.render("open_responses")
    conversation.add_item({"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"})
    conversation.render("open_responses")
    conversation.add_response(an_answer("Wait"), "open_responses", rendered=rendered)
    conversation.add_item({"type": "function_call", "call_id": "d", "name": "find", "arguments": "{}"})
    conversation.add_function_call_output(call_id="d", output="Found")
    fresh = store.get_conversation(conversation.id)
    assert conversation.request_body("open_responses") == fresh.request_body("open_responses")
