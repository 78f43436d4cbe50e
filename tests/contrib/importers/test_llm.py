"""Databases of llm, written by itself where it is installed, and else by the tables that its migrations make."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from threadkeep import Conversation, Message, Store
from threadkeep.contrib.importers import import_from

PNG = b"\x89PNG\r\n\x1a\n"
OLD = {
    "conversations": "id, name, model",
    "responses": "id, model, prompt, system, prompt_json, options_json, response, response_json, conversation_id, "
    "duration_ms, datetime_utc, input_tokens, output_tokens, token_details, resolved_model, reasoning",
    "attachments": "id, type, path, url, content",
    "prompt_attachments": 'response_id, attachment_id, "order"',
    "fragments": "id, hash, content",
    "prompt_fragments": 'response_id, fragment_id, "order"',
    "system_fragments": 'response_id, fragment_id, "order"',
    "tool_calls": "id, response_id, tool_id, name, arguments, tool_call_id",
    "tool_results": "id, response_id, tool_id, name, output, tool_call_id",
}
NEW = {
    "threads": "id, name, tip_message_hash, forked_from, datetime_utc",
    "turns": "id, thread_id, parent_message_hash, tip_message_hash, model, resolved_model, options_json, input_tokens, "
    "output_tokens, token_details, duration_ms, datetime_utc",
    "messages": "hash, parent_hash, role, provider_metadata",
    "parts": "id, message_hash, position, type, tool_name, text, payload",
}
AT = "2025-03-01T09:30:00"


def written(path: Path, tables: dict[str, str], rows: dict[str, list[dict[str, Any]]]) -> Path:
    with sqlite3.connect(path) as connection:
        for name, columns in tables.items():
            connection.execute(f'CREATE TABLE "{name}" ({columns})')
        for name, some in rows.items():
            for row in some:
                names, marks = ", ".join(f'"{key}"' for key in row), ", ".join("?" * len(row))
                connection.execute(f'INSERT INTO "{name}" ({names}) VALUES ({marks})', [*row.values()])
    connection.close()
    return path


def found(store: Store, id_: str) -> Conversation:
    conversation = store.find_conversation(external_id=f"llm:{id_}")
    assert conversation is not None
    return conversation


def said(conversation: Conversation) -> list[str]:
    return [one.item.text if isinstance(one.item, Message) else one.item.type for one in conversation.transcript()]


# Before 0.36

RESPONSES: list[dict[str, Any]] = [
    {"id": "r1", "conversation_id": "c1", "model": "gpt-5.4", "resolved_model": "gpt-5.4-2026", "system": "Be brief.",
     "prompt": "Is it raining?", "response": "", "datetime_utc": AT, "duration_ms": 700, "input_tokens": 30,
     "output_tokens": 5, "token_details": '{"completion_tokens_details": {"reasoning_tokens": 3}}'},
    {"id": "r2", "conversation_id": "c1", "model": "gpt-5.4", "system": "Be brief.", "prompt": "", "response": "Yes.",
     "reasoning": "The tool says so.", "datetime_utc": AT, "input_tokens": 40, "output_tokens": 2,
     "token_details": '{"prompt_tokens_details": {"cached_tokens": 30}}'},
    {"id": "r3", "conversation_id": "c1", "model": "gpt-5.4", "system": "Be long.", "prompt": "What is it?",
     "response": "A picture.", "datetime_utc": AT},
]  # fmt: skip
TABLES: dict[str, list[dict[str, Any]]] = {
    "conversations": [{"id": "c1", "name": "Rain", "model": "gpt-5.4"}, {"id": "c2", "name": "Empty", "model": "m"}],
    "responses": RESPONSES,
    "tool_calls": [{"id": 1, "response_id": "r1", "name": "weather", "arguments": "{}", "tool_call_id": "t1"}],
    "tool_results": [{"id": 1, "response_id": "r2", "name": "weather", "output": "rain", "tool_call_id": "t1"}],
    "fragments": [{"id": 1, "hash": "h", "content": "About this:"}],
    "prompt_fragments": [{"response_id": "r3", "fragment_id": 1, "order": 0}],
    "attachments": [
        {"id": "a1", "type": "image/png", "content": PNG},
        {"id": "a2", "type": "image/png", "path": "gone.png"},
    ],
    "prompt_attachments": [
        {"response_id": "r3", "attachment_id": "a1", "order": 0},
        {"response_id": "r3", "attachment_id": "a2", "order": 1},
    ],
}
SAID = [
    "Is it raining?", "function_call", "function_call_output", "reasoning", "Yes.", "Be long.",
    "About this:\nWhat is it?", "A picture.",
]  # fmt: skip


def test_conversations_of_older_releases(target: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "logs.db", OLD, TABLES)
    first, second = import_from(target, path), import_from(target, path)
    conversation = found(target, "c1")
    assert said(conversation) == SAID
    assert (conversation.title, conversation.model, conversation.instructions) == ("Rain", "gpt-5.4", "Be brief.")
    assert (first.items.stored, first.responses.stored, first.attempts) == (8, 3, 2)
    assert (second.items.unchanged, second.attempts) == (8, 0)
    assert [one.why for one in first.skipped] == [
        "an attachment is a file on the computer of the user, and not in the database"
    ]
    picture = conversation.get_item(6).to_object()["content"][1]
    assert picture["type"] == "input_image"
    [row] = target.usage(by="day")
    assert (str(row.day), row.input_tokens, row.cached_tokens, row.reasoning_tokens) == ("2025-03-01", 70, 30, 3)
    assert row.latency_ms == 700
    assert not target.check().findings


def test_a_table_that_an_old_release_lacks(tmp_path: Path) -> None:
    tables = {name: OLD[name] for name in ("conversations",)} | {
        "responses": "id, model, prompt, system, response, conversation_id, datetime_utc"
    }
    response = {"id": "r1", "conversation_id": "c1", "prompt": "Hello", "response": "Hi", "datetime_utc": AT}
    rows: dict[str, list[dict[str, Any]]] = {
        "conversations": [{"id": "c1", "name": None, "model": "m"}],
        "responses": [response],
    }
    with Store("sqlite://") as store:
        import_from(store, written(tmp_path / "logs.db", tables, rows))
        assert said(found(store, "c1")) == ["Hello", "Hi"]


# Since 0.36


def tree() -> dict[str, list[dict[str, Any]]]:
    """A thread with a question and two answers, of which it shows the second; and a fork."""
    messages = [("q", None, "user"), ("a1", "q", "assistant"), ("a2", "q", "assistant"), ("q2", "a1", "user")]
    texts = [("q", "Hello"), ("a1", "Hi."), ("a2", "Good day."), ("q2", "And?")]
    refers = {"text_ref": [{"literal": "Of "}, {"fragment": 1}, 7]}
    parts = [
        {"id": number, "message_hash": hash_, "position": 0, "type": "text", "text": text}
        for number, (hash_, text) in enumerate(texts)
    ]
    turn = {"model": "m", "datetime_utc": AT, "input_tokens": 5, "output_tokens": 1, "duration_ms": 10}
    return {
        "threads": [
            {"id": "t1", "name": "Greeting", "tip_message_hash": "a2", "datetime_utc": AT},
            {"id": "t2", "name": "Fork", "tip_message_hash": "q2", "forked_from": "t1", "datetime_utc": AT},
        ],
        "turns": [
            {"id": "u1", "thread_id": "t1", "parent_message_hash": "q", "tip_message_hash": "a1", **turn},
            {"id": "u2", "thread_id": "t1", "parent_message_hash": "q", "tip_message_hash": "a2", **turn},
            {"id": "u3", "thread_id": "t2", "parent_message_hash": "q2", "tip_message_hash": None, **turn},
        ],
        "messages": [{"hash": hash_, "parent_hash": parent, "role": role} for hash_, parent, role in messages],
        "parts": [
            *parts,
            {"id": 10, "message_hash": "q2", "position": 1, "type": "text", "payload": json.dumps(refers)},
            {"id": 11, "message_hash": "q2", "position": 2, "type": "hologram", "payload": "{"},
        ],
        "fragments": [{"id": 1, "hash": "h", "content": "that"}],
    }


def test_threads_are_conversations(target: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "logs.db", OLD | NEW, tree())
    first, second = import_from(target, path), import_from(target, path)
    thread, fork = found(target, "t1"), found(target, "t2")
    assert [said(thread.on_branch(number)) for number in (0, 1)] == [["Hello", "Hi."], ["Hello", "Good day."]]
    assert (thread.branch, thread.title, fork.properties) == (1, "Greeting", {"forked_from": "t1"})
    assert said(fork) == ["Hello", "Hi.", "And?Of that"]
    assert first.reasons == {
        "a part of the type 'hologram' is not imported": 1,
        "a call of a model without an answer": 1,
    }
    assert (first.items.stored, first.attempts, second.items.unchanged, second.attempts) == (6, 2, 6, 0)
    assert not target.check().findings


def test_a_conversation_that_was_continued_is_read_once(tmp_path: Path) -> None:
    rows = tree() | {"conversations": [{"id": "t1", "name": "Old", "model": "m"}]}
    rows["responses"] = [
        {"id": "r1", "conversation_id": "t1", "prompt": "Hello", "response": "Hi.", "datetime_utc": AT}
    ]
    with Store("sqlite://") as store:
        report = import_from(store, written(tmp_path / "logs.db", OLD | NEW, rows))
        assert found(store, "t1").title == "Greeting"
        assert any("a newer release" in why for why in report.reasons)


def test_what_llm_writes_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llm", reason="llm is not installed; make test-peers has it")
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    import llm  # noqa: PLC0415
    import sqlite_utils  # noqa: PLC0415
    from llm.migrations import migrate  # noqa: PLC0415

    class Echo(llm.Model):
        model_id = "echo"
        supports_tools = True
        attachment_types = {"image/png"}  # noqa: RUF012 - as models of llm say it

        def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Any:  # noqa: ARG002 - llm's names
            response.set_usage(input=10, output=5, details={"completion_tokens_details": {"reasoning_tokens": 2}})
            if prompt.tools and not prompt.tool_results:
                response.add_tool_call(llm.ToolCall(name="weather", arguments={"city": "Lyon"}, tool_call_id="c1"))
            yield f"echo {len(prompt.prompt or '')}"

    def weather(city: str) -> str:
        """What the weather is."""
        return f"rain in {city}"

    database = sqlite_utils.Database(tmp_path / "logs.db")
    migrate(database)
    conversation = Echo().conversation()
    picture = llm.Attachment(type="image/png", content=PNG)
    for prompt, options in (("Hello", {"system": "Be brief."}), ("And?", {"attachments": [picture]})):
        response = conversation.prompt(prompt, **options)
        response.text()
        response.log_to_db(database)
    chain = Echo().conversation().chain("Is it raining?", tools=[weather])
    chain.text()
    chain.log_to_db(database)
    database.close()
    with Store("sqlite://") as store:
        report = import_from(store, tmp_path / "logs.db")
        asked, greeted = store.list_conversations()
        assert said(greeted) == ["Be brief.", "Hello", "echo 5", "And?", "echo 4"]
        assert said(asked)[1:] == ["echo 14", "function_call", "function_call_output", "echo 0"]
        assert greeted.get_item(3).to_object()["content"][1]["type"] == "input_image"
        assert (report.skipped, report.attempts) == ([], 4)
        [row] = store.usage(by="model")
        assert (row.model, row.input_tokens, row.reasoning_tokens) == ("echo", 40, 8)
