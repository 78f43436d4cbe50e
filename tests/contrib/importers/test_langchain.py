"""Tables of messages of LangChain, written by itself where it is installed, and else by its documented shapes."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import JSON, UUID, Column, DateTime, Engine, Integer, MetaData, Table, Text, create_engine, insert

from tests.databases import Database
from threadkeep import Conversation, FunctionCall, FunctionCallOutput, InvalidOption, Message, Reasoning, Store
from threadkeep.contrib.importers import SOURCES, Input, import_from
from threadkeep.contrib.importers.engine import get_source

PNG = "iVBORw0KGgo="
IMAGE = f"data:image/png;base64,{PNG}"


def found(store: Store, id_: str) -> Conversation:
    conversation = store.find_conversation(external_id=f"langchain:{id_}")
    assert conversation is not None
    return conversation


def said(conversation: Conversation) -> list[tuple[str, str]]:
    """What kind each item is, and what it says."""
    shown = []
    for one in conversation.transcript():
        match one.item:
            case Message() as message:
                shown.append((message.role, message.text))
            case FunctionCall() as call:
                shown.append(("call", f"{call.name}({call.arguments})"))
            case FunctionCallOutput() as output:
                shown.append(("output", str(output.output)))
            case Reasoning() as reasoning:
                shown.append(("reasoning", reasoning.to_dict()["content"][0]["text"]))
    return shown


def human(content: Any) -> dict[str, Any]:
    return {"type": "human", "data": {"content": content, "type": "human"}}


def ai(content: Any, **data: Any) -> dict[str, Any]:
    return {"type": "ai", "data": {"content": content, "additional_kwargs": {}, "response_metadata": {}, **data}}


ASKED = [
    {"type": "system", "data": {"content": "Be brief."}},
    human([{"type": "text", "text": "Is it raining here?"}, {"type": "image_url", "image_url": {"url": IMAGE}}]),
    ai(
        [{"type": "thinking", "thinking": "A picture of Lyon.", "signature": "s"}, {"type": "text", "text": "I look."}],
        tool_calls=[{"name": "weather", "args": {"city": "Lyon"}, "id": "c1", "type": "tool_call"}],
        usage_metadata={
            "input_tokens": 100, "output_tokens": 20, "total_tokens": 120,
            "input_token_details": {"cache_read": 60, "cache_creation": 10}, "output_token_details": {"reasoning": 5},
        },
        response_metadata={"model_name": "claude-sonnet-4-5", "model_provider": "anthropic", "stop_reason": "tool_use"},
        id="run-1",
    ),
    {"type": "tool", "data": {"content": "rain", "tool_call_id": "c1", "name": "weather"}},
    {
        **ai("Yes.", usage_metadata={"input_tokens": 130, "output_tokens": 2, "total_tokens": 132}),
        "type": "AIMessageChunk",
    },
]  # fmt: skip
SAID = [
    ("system", "Be brief."), ("user", "Is it raining here?"), ("reasoning", "A picture of Lyon."),
    ("assistant", "I look."), ("call", 'weather({"city":"Lyon"})'), ("output", "rain"), ("assistant", "Yes."),
]  # fmt: skip


def written(engine: Engine, messages: dict[str, list[Any]], name: str = "message_store", **types: Any) -> None:
    """Write these messages by their sessions, as `SQLChatMessageHistory` does."""
    table = Table(
        name, MetaData(), Column("id", Integer, primary_key=True),
        Column("session_id", types.get("session", Text)), Column("message", types.get("message", Text)),
        *([Column("created_at", DateTime(timezone=True))] if types else []),
    )  # fmt: skip
    table.create(engine)
    rows = [(session, one) for session, some in messages.items() for one in some]
    with engine.begin() as connection:
        for session, one in rows:
            shown = one if types or isinstance(one, str) else json.dumps(one)
            connection.execute(insert(table), {"session_id": session, "message": shown})
    engine.dispose()


def in_file(folder: Path, messages: dict[str, list[Any]]) -> Path:
    """The same in a file of SQLite."""
    path = folder / "chat.db"
    written(create_engine(f"sqlite:///{path}"), messages)
    return path


def test_a_session_is_a_conversation(empty_database: Database) -> None:
    """… whatever the kind of the database that it is read from."""
    written(empty_database.engine(), {"s1": ASKED, "s2": [human("Hello!")]})
    with Store("sqlite://") as store:
        first, second = import_from(store, empty_database.url), import_from(store, empty_database.url)
        assert said(found(store, "s1")) == SAID
        assert said(found(store, "s2")) == [("user", "Hello!")]
        assert (first.conversations.stored, first.items.stored, first.responses.stored) == (2, 8, 2)
        assert (second.conversations.unchanged, second.items.unchanged, second.attempts) == (2, 8, 0)
        assert found(store, "s1").model == "claude-sonnet-4-5"
        [used] = [row for row in store.usage(by=("model", "provider")) if row.model]
        assert (used.provider, used.input_tokens, used.cached_tokens, used.cache_write_tokens) == (
            "anthropic",
            100,
            60,
            10,
        )
        assert (used.output_tokens, used.reasoning_tokens) == (20, 5)
        assert store.usage()[0].total_tokens == 252
        assert not store.check().findings


@pytest.mark.parametrize("empty_database", ["postgresql"], indirect=True)
def test_the_table_of_langchain_postgres(empty_database: Database) -> None:
    """It has a name of its own, ids that are UUIDs, and JSON that the driver reads."""
    session = "0d9e3c6a-1f57-4f0b-8f0e-5d3a2b1c4e6f"
    written(empty_database.engine(), {session: ASKED}, "history", session=UUID(as_uuid=False), message=JSON)
    with Store("sqlite://") as store:
        import_from(store, empty_database.url)
        assert said(found(store, f"history/{session}")) == SAID


def test_a_session_that_grows_gets_what_is_new(target: Store, tmp_path: Path) -> None:
    for count in (2, 5):
        folder = tmp_path / str(count)
        folder.mkdir()
        import_from(target, in_file(folder, {"s1": ASKED[:count]}))
    assert said(found(target, "s1")) == SAID


def test_rows_of_another_database_are_not_those_of_the_same_number(target: Store, tmp_path: Path) -> None:
    for name in ("Ada", "Bob"):
        (tmp_path / name).mkdir()
        path = in_file(tmp_path / name, {"s1": [human(f"I am {name}."), ai("Hello!")]})
        assert import_from(target, path).items.stored == 2
        assert import_from(target, path).items.unchanged == 2
    texts = [[text for _, text in said(found(target, "s1").on_branch(number))] for number in (0, 1)]
    assert texts == [["I am Ada.", "Hello!"], ["I am Bob.", "Hello!"]]


def test_a_session_that_cannot_be_read_does_not_stop_others(target: Store, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {}
    for _ in range(300):
        arguments = {"deeper": arguments}
    deep = ai("", tool_calls=[{"name": "f", "args": arguments, "id": "c"}])
    report = import_from(target, in_file(tmp_path, {"s1": [human("First"), deep], "s2": [human("Second")]}))
    assert said(found(target, "s2")) == [("user", "Second")]
    assert [one.where for one in report.skipped] == [f"{tmp_path / 'chat.db'}, s1"]


# message -> items, and why something is missing
SHAPES: list[tuple[Any, list[tuple[str, str]], list[str]]] = [
    ({"type": "chat", "data": {"content": "Hello", "role": "critic"}}, [("critic", "Hello")], []),
    (human(""), [], []),
    (human(["Two", {"type": "text", "text": " texts"}]), [("user", "Two texts")], []),
    (human([{"type": "audio", "base64": "aa", "mime_type": "audio/wav"}]), [], ["audio"]),
    (ai([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}, "Ah."]),
     [("reasoning", "Hm."), ("assistant", "Ah.")], []),
    (ai("", additional_kwargs={"function_call": {"name": "f", "arguments": "{}"}}), [("call", "f({})")], []),
    (ai("", invalid_tool_calls=[{"name": "f", "args": "{", "id": "c"}]), [("call", "f({)")], []),
    (ai("Ah.", invalid_tool_calls=[{"name": "", "args": '{"query": "?"}'}]), [("assistant", "Ah.")], []),
    (ai([{"type": "reasoning", "reasoning": "Hm.", "text": "Hm."}]), [("reasoning", "Hm.")], []),
    (ai([{"type": "thinking", "thinking": [{"type": "text", "text": "H"}, {"type": "text", "text": "m."}]}, "Ah."]),
     [("reasoning", "Hm."), ("assistant", "Ah.")], []),
    (ai("Ah.", additional_kwargs={
        "reasoning": {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        "tool_outputs": [{"type": "web_search_call", "id": "ws_1"}],
     }), [("reasoning", "Hm."), ("assistant", "Ah.")], ["web_search_call"]),
    (ai([{"type": "reasoning", "reasoning": "Hm."}], additional_kwargs={"reasoning": {"type": "reasoning"}}),
     [("reasoning", "Hm.")], []),
    (ai([{"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "ls"}],
        tool_calls=[{"name": "f", "args": {"__arg1": "ls"}, "id": "c"}]),
     [("call", 'f({"__arg1":"ls"})')], []),
    (ai([1, "Ah."]), [("assistant", "Ah.")], ["None"]),
    (ai([{"type": "text", "text": "Hm.", "thought": True}, {"type": "functionCall", "functionCall": {"name": "f"}}],
        tool_calls=[{"name": "f", "args": {}, "id": "c"}]),
     [("reasoning", "Hm."), ("call", "f({})")], []),
    (ai([{"type": "tool_use", "id": "c", "name": "f", "input": {}}], tool_calls=[{"name": "f", "args": {}, "id": "c"}]),
     [("call", "f({})")], []),
    (ai([{"type": "server_block"}, {"type": "text", "text": "Ah."}]), [("assistant", "Ah.")], ["server_block"]),
    ({"type": "function", "data": {"content": "4", "name": "f"}}, [("output", "4")], []),
    ({"type": "remove", "data": {"content": "", "id": "1"}}, [], ["remove"]),
    ({"data": {}}, [], ["None"]),
    ("no JSON", [], ["not a message"]),
    ("[1, 2]", [], ["not a message"]),
]  # fmt: skip


@pytest.mark.parametrize(("message", "items", "reasons"), SHAPES, ids=[str(number) for number in range(len(SHAPES))])
def test_messages_of_any_shape(tmp_path: Path, message: Any, items: list[tuple[str, str]], reasons: list[str]) -> None:
    path = in_file(tmp_path, {"s1": [human("First"), message]})
    with Store("sqlite://") as store:
        report = import_from(store, path)
        assert said(found(store, "s1")) == [("user", "First"), *items]
        assert len(report.skipped) == len(reasons)
        assert all(reason in one.why for reason, one in zip(reasons, report.skipped, strict=True))


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "base64": PNG, "mime_type": "image/png"},
        {"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/png"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image_url", "image_url": IMAGE},
        {"type": "image", "url": IMAGE},
    ],
    ids=json.dumps,
)
def test_pictures_are_spelled_in_many_ways(tmp_path: Path, block: dict[str, Any]) -> None:
    path = in_file(tmp_path, {"s1": [human([block])]})
    with Store("sqlite://") as store:
        assert not import_from(store, path).skipped
        [part] = found(store, "s1").get_item(0).to_object()["content"]
        assert (part["type"], IMAGE in part.values()) == ("input_image", True)


def test_the_items_of_a_response_that_were_kept(tmp_path: Path) -> None:
    """… are what the model said; LangChain.js joins the texts of its messages when it streams."""
    thought = {"type": "reasoning", "id": "rs_1", "encrypted_content": "sealed"}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "book", "arguments": '{"seat": 12}'}
    messages = [
        {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "phase": phase,
         "content": [{"type": "output_text", "text": text}]}
        for number, (phase, text) in enumerate((("commentary", "I look. "), ("final_answer", "Free.")))
    ]  # fmt: skip
    kept = {"object": "response", "id": "resp_1", "output": [thought, messages[0], search, messages[1], call]}
    answer = ai(
        [{"type": "text", "text": "I look. Free.", "index": 0, "phase": "final_answer"}],
        tool_calls=[{"name": "book", "args": {"seat": 12}, "id": "c1", "type": "tool_call"}],
        response_metadata=kept,
    )
    output = {"type": "tool", "data": {"content": "Booked.", "tool_call_id": "c1"}}
    path = in_file(tmp_path, {"s1": [human("?"), answer, output]})
    with Store("sqlite://") as store:
        assert not import_from(store, path).skipped
        _, *items, made, answered = (one.item.to_object() for one in found(store, "s1").transcript())
        assert items == [thought, messages[0], search, messages[1]]
        assert (made["call_id"], made["name"], answered["call_id"]) == ("c1", "book", "c1")


@pytest.mark.parametrize(
    "data",
    [
        {"response_metadata": {"model": "gemini-3-pro", "usageMetadata": {"input_tokens": 5, "output_tokens": 7}}},
        {"additional_kwargs": {"model": "gemini-3-pro"}, "usage_metadata": {"input_tokens": 5, "output_tokens": 7}},
    ],
    ids=["@langchain/google", "@langchain/anthropic"],
)
def test_where_langchain_js_says_what_was_used(tmp_path: Path, data: dict[str, Any]) -> None:
    path = in_file(tmp_path, {"s1": [human("?"), ai("!", **data)]})
    with Store("sqlite://") as store:
        import_from(store, path)
        [row] = store.usage(by="model")
        assert (row.model, row.input_tokens, row.output_tokens) == ("gemini-3-pro", 5, 7)


def test_the_usage_of_older_releases(tmp_path: Path) -> None:
    used = {"token_usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}, "model_name": "gpt-4"}
    path = in_file(tmp_path, {"s1": [human("?"), ai("!", response_metadata=used)]})
    with Store("sqlite://") as store:
        import_from(store, path)
        [row] = store.usage(by="model")
        assert (row.model, row.input_tokens, row.output_tokens) == ("gpt-4", 5, 7)


def test_the_database_is_only_read(tmp_path: Path) -> None:
    path = in_file(tmp_path, {"s1": ASKED})
    before = path.read_bytes()
    with Store("sqlite://") as store:
        import_from(store, path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["chat.db"]


@pytest.mark.parametrize("source", [None, "langchain"])
@pytest.mark.parametrize(
    ("url", "problem"),
    [("sqlite:///nowhere.db", r"nowhere\.db cannot be read"), ("https://chat.example/a.json", "url is of 'https'")],
)
def test_a_database_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, url: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store("sqlite://") as store, pytest.raises(InvalidOption, match=problem):
        import_from(store, url, source)
    assert [name for name in SOURCES if get_source(name).recognizes(Input(url, None, url))] == []


def test_what_langchain_writes_itself(tmp_path: Path) -> None:
    pytest.importorskip("langchain_core", reason="LangChain is not installed; make test-peers has it")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from langchain_community.chat_message_histories import SQLChatMessageHistory  # noqa: PLC0415
        from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage  # noqa: PLC0415

        history = SQLChatMessageHistory("s1", connection=f"sqlite:///{tmp_path}/chat.db")
        history.add_messages([
            SystemMessage("Be brief."),
            HumanMessage([
                {"type": "text", "text": "Is it raining here?"},
                {"type": "image", "base64": PNG, "mime_type": "image/png"},
            ]),
            AIMessage(
                [{"type": "thinking", "thinking": "A picture of Lyon."}, {"type": "text", "text": "I look."}],
                tool_calls=[{"name": "weather", "args": {"city": "Lyon"}, "id": "c1"}],
                usage_metadata={"input_tokens": 100, "output_tokens": 20, "total_tokens": 120},
                response_metadata={"model_name": "claude-sonnet-4-5"},
            ),
            ToolMessage("rain", tool_call_id="c1"),
            AIMessage("Yes."),
        ])  # fmt: skip
        history.engine.dispose()
    with Store("sqlite://") as store:
        report = import_from(store, tmp_path / "chat.db")
        assert (said(found(store, "s1")), report.skipped, report.attempts) == (SAID, [], 1)
