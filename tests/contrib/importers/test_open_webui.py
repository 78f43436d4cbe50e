"""Chats of Open WebUI: its exports, and its database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import JSON, BigInteger, Boolean, Column, MetaData, Table, Text, insert

from tests.databases import Database
from threadkeep import Conversation, FunctionCall, FunctionCallOutput, Message, Reasoning, Store
from threadkeep.contrib.importers import import_from

AT = 1_740_821_400  # 2025-03-01 09:30
IMAGE = "data:image/png;base64,iVBORw0KGgo="
THOUGHT = (
    '<details type="reasoning" done="true" duration="3">\n<summary>Thought for 3 seconds</summary>\n'
    "&gt; I look\n&gt; it up.\n</details>\n"
)
CALLED = (
    '<details type="tool_calls" done="true" id="call_1" name="weather" '
    'arguments="&quot;{\\&quot;city\\&quot;: \\&quot;Lyon\\&quot;}&quot;" result="&quot;rain&quot;" files="">\n'
    "<summary>Tool Executed</summary>\n</details>\n"
)
OUTPUT = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "I look."}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "wind"}]},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
     "content": [{"type": "output_text", "text": "No."}]},
]  # fmt: skip
MESSAGES: dict[str, Any] = {
    "q": {"id": "q", "parentId": None, "childrenIds": ["a1", "a2"], "role": "user", "content": "Is it raining?",
          "timestamp": AT, "files": [
              {"type": "image", "url": IMAGE},
              {"type": "file", "name": "notes.txt", "file": {"data": {"content": "Lyon"}}},
          ]},
    "a1": {"id": "a1", "parentId": "q", "role": "assistant", "content": f"{THOUGHT}{CALLED}Yes.", "model": "llama",
           "timestamp": AT + 1, "done": True,
           "info": {"prompt_eval_count": 10, "eval_count": 3, "total_duration": 2_000_000_000}},
    "a2": {"id": "a2", "parentId": "q", "role": "assistant", "content": "not this", "output": OUTPUT,
           "model": "gpt-5.4", "timestamp": AT + 2,
           "usage": {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}},
    "q2": {"id": "q2", "parentId": "a1", "role": "user", "content": "Sure?", "timestamp": AT + 3},
}  # fmt: skip


def chat(id_: str = "c1", messages: dict[str, Any] = MESSAGES, current: str = "a2", **about: Any) -> dict[str, Any]:
    history = {"currentId": current, "messages": messages}
    return {
        "id": id_, "user_id": "u1", "title": "Rain", "chat": {"title": "Rain", "models": ["m"], "history": history},
        "created_at": AT, "updated_at": AT, "archived": False, "pinned": True, "meta": {"tags": ["weather"]},
        "folder_id": None, **about,
    }  # fmt: skip


def exported(folder: Path, *chats: Any) -> Path:
    path = folder / "chats.json"
    path.write_text(json.dumps(chats))
    return path


def found(store: Store, id_: str = "c1") -> Conversation:
    conversation = store.find_conversation(external_id=f"open-webui:{id_}")
    assert conversation is not None
    return conversation


def said(conversation: Conversation) -> list[str]:
    shown = []
    for one in conversation.transcript():
        match one.item:
            case Message() as message:
                shown.append(message.text)
            case FunctionCall() as call:
                shown.append(f"{call.name}({call.arguments})")
            case FunctionCallOutput():
                shown.append("output")
            case Reasoning() as reasoning:
                shown.append(f"({reasoning.to_dict()['content'][0]['text']})")
    return shown


QUESTION = "Is it raining?notes.txt\n\nLyon"
BRANCHES = [
    [QUESTION, "(I look\nit up.)", 'weather({"city": "Lyon"})', "output", "Yes.", "Sure?"],
    [QUESTION, "(I look.)", "weather({})", "output", "No."],
]


def branches(conversation: Conversation) -> list[list[str]]:
    return [said(conversation.on_branch(one.number)) for one in conversation.branches()]


def test_an_export_has_all_branches(target: Store, tmp_path: Path) -> None:
    path = exported(tmp_path, chat(), chat("c2", {"q": MESSAGES["q"]}, "q"))
    first, second = import_from(target, path), import_from(target, path)
    conversation = found(target)
    assert branches(conversation) == BRANCHES
    assert (conversation.branch, conversation.title, conversation.user_id) == (1, "Rain", "u1")
    assert conversation.properties == {"pinned": "True", "tags": "weather"}
    assert (first.conversations.stored, first.items.stored, first.attempts, first.skipped) == (2, 11, 2, [])
    assert (second.conversations.unchanged, second.items.unchanged, second.attempts) == (2, 11, 0)
    rows = {row.model: row for row in target.usage(by="model")}
    assert (rows["llama"].input_tokens, rows["llama"].output_tokens, rows["llama"].latency_ms) == (10, 3, 2000)
    assert rows["gpt-5.4"].total_tokens == 24
    assert not target.check().findings


def test_the_database(empty_database: Database) -> None:
    """Rows of messages go before what the chat has of them; what has no row is read from the chat."""
    metadata = MetaData()
    chats = Table(
        "chat", metadata, Column("id", Text), Column("user_id", Text),
        Column("title", Text), Column("chat", JSON), Column("created_at", BigInteger), Column("updated_at", BigInteger),
        Column("archived", Boolean), Column("pinned", Boolean), Column("meta", JSON), Column("folder_id", Text),
    )  # fmt: skip
    rows = Table(
        "chat_message", metadata, Column("id", Text), Column("chat_id", Text), Column("user_id", Text),
        Column("role", Text), Column("parent_id", Text), Column("content", Text), Column("output", JSON),
        Column("model_id", Text), Column("usage", JSON), Column("done", Boolean), Column("created_at", BigInteger),
    )  # fmt: skip
    engine = empty_database.engine()
    metadata.create_all(engine)
    stale = MESSAGES | {"a2": MESSAGES["a2"] | {"output": [], "content": "stale"}}
    with engine.begin() as connection:
        connection.execute(insert(chats), [chat(messages=stale), chat("c2", {"q": MESSAGES["q"]}, "q")])
        row = {"id": "c1-a2", "chat_id": "c1", "role": "assistant", "parent_id": "q", "content": "", "output": OUTPUT}
        connection.execute(insert(rows), row | {"model_id": "gpt-5.4", "created_at": AT + 2, "done": True})
    engine.dispose()
    with Store("sqlite://") as store:
        first, second = import_from(store, empty_database.url), import_from(store, empty_database.url)
        assert branches(found(store)) == BRANCHES
        assert (first.items.stored, second.items.unchanged, first.sources) == (11, 11, {"open-webui": 1})


def test_an_edited_message_is_a_branch(target: Store, tmp_path: Path) -> None:
    import_from(target, exported(tmp_path, chat()))
    edited = MESSAGES | {"q2": MESSAGES["q2"] | {"content": "Really?"}}
    report = import_from(target, exported(tmp_path, chat(messages=edited, current="q2")))
    assert (report.items.stored, said(found(target))[-1]) == (1, "Really?")


# message -> what it says, and why something is missing
SHAPES: list[tuple[Any, list[str], list[str]]] = [
    (7, [], ["not an object"]),
    ({"role": "robot", "content": "Hi"}, ["Hi"], ["role"]),
    ({"role": "user", "content": "Hi", "files": [{"type": "file", "url": "x"}, 7]}, ["Hi"], ["a file", "a file"]),
    ({"role": "assistant", "content": ""}, [], ["empty"]),
    ({"role": "assistant", "content": "", "error": {"content": "no credit"}}, [], ["error"]),
    ({"role": "assistant", "content": '<details type="reasoning">open'}, ['<details type="reasoning">open'], []),
    ({"role": "assistant", "content": 'A <details type="code_interpreter" done="true">\nprint(1)\n</details>'},
     ["A ", "print(1)"], []),
    ({"role": "assistant", "output": [{"type": "open_webui:code", "code": "1"}], "content": ""}, [], []),
]  # fmt: skip


@pytest.mark.parametrize(("message", "texts", "reasons"), SHAPES, ids=[str(number) for number in range(len(SHAPES))])
def test_messages_of_any_shape(tmp_path: Path, message: Any, texts: list[str], reasons: list[str]) -> None:
    messages = {"q": {"role": "user", "content": "First"}, "m": message}
    if isinstance(message, dict):
        message = messages["m"] = {"parentId": "q", **message}
    with Store("sqlite://") as store:
        report = import_from(store, exported(tmp_path, chat(messages=messages)))
        assert said(found(store)) == ["First", *texts]
        assert all(reason in one.why for reason, one in zip(reasons, report.skipped, strict=True))


def test_the_oldest_exports_have_a_list(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    with Store("sqlite://") as store:
        old = {"id": "c1", "title": "Old", "chat": {"messages": messages}}
        report = import_from(store, exported(tmp_path, old, {"title": "No id", "chat": {}}, 7))
        assert said(found(store)) == ["Hello", "Hi"]
        assert set(report.reasons) == {"it has no id", "it is not an object"}
