"""Sessions of the Agents SDK, written by itself where it is installed, and else by the tables that it documents."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Engine, ForeignKeyConstraint, Integer, MetaData, Table, Text, create_engine, insert

from tests.databases import Database
from threadkeep import Conversation, FunctionCall, Message, Store
from threadkeep.contrib.importers import import_from

TABLES = {
    "agent_sessions": ("session_id",),
    "agent_messages": ("session_id", "message_data"),
    "message_structure": (
        "session_id", "message_id", "branch_id", "message_type", "sequence_number", "user_turn_number",
    ),
    "turn_usage": (
        "session_id", "branch_id", "user_turn_number", "requests", "input_tokens", "output_tokens", "total_tokens",
        "input_tokens_details", "output_tokens_details",
    ),
}  # fmt: skip
NUMBERS = {
    "message_id",
    "sequence_number",
    "user_turn_number",
    "requests",
    "input_tokens",
    "output_tokens",
    "total_tokens",
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": f"msg_{text}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}


CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}", "id": "fc_1"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "rain"}


def written(engine: Engine, rows: dict[str, list[dict[str, Any]]], *, refers: bool = False, **names: str) -> None:
    """Create the tables, under other names if given, and write rows; `refers`: with the foreign key of messages."""
    metadata, table = MetaData(), names.get("agent_messages", "agent_messages")
    for name, columns in TABLES.items():
        if name in rows:
            keys = [ForeignKeyConstraint(["message_id"], [f"{table}.id"])] if refers and "message_id" in columns else []
            Table(
                names.get(name, name), metadata, Column("id", Integer, primary_key=True),
                *(Column(one, Integer if one in NUMBERS else Text) for one in columns), *keys,
            )  # fmt: skip
    metadata.create_all(engine)
    with engine.begin() as connection:
        for name, some in rows.items():
            for row in some:
                connection.execute(insert(metadata.tables[names.get(name, name)]), row)
    engine.dispose()


def messages(session: str, *items: Any) -> list[dict[str, Any]]:
    return [{"session_id": session, "message_data": one if isinstance(one, str) else json.dumps(one)} for one in items]


def found(store: Store, id_: str) -> Conversation:
    conversation = store.find_conversation(external_id=f"agents-sdk:{id_}")
    assert conversation is not None
    return conversation


def said(conversation: Conversation) -> list[str]:
    return [one.item.text if isinstance(one.item, Message) else one.item.type for one in conversation.transcript()]


PLAIN = [user("Is it raining?"), CALL, OUTPUT, answer("Yes.")]


def test_a_session_is_a_conversation(empty_database: Database) -> None:
    """… whatever the kind of the database that it is read from, and however its tables are called."""
    rows = {"agent_sessions": [], "agent_messages": messages("s1", *PLAIN) + messages("s2", user("Hello!"))}
    written(empty_database.engine(), rows, agent_messages="history")
    with Store("sqlite://") as store:
        first, second = import_from(store, empty_database.url), import_from(store, empty_database.url)
        assert said(found(store, "history/s1")) == ["Is it raining?", "function_call", "function_call_output", "Yes."]
        assert (first.conversations.stored, first.items.stored, first.responses.stored) == (2, 5, 2)
        assert (second.conversations.unchanged, second.items.unchanged) == (2, 5)
        call = found(store, "history/s1").get_item(1).item
        assert isinstance(call, FunctionCall)
        assert (call.call_id, call.id) == ("c1", "fc_1")
        assert not store.check().findings


def branched() -> dict[str, list[dict[str, Any]]]:
    """Two turns, and the second one again on a branch, as `AdvancedSQLiteSession` notes them."""
    items = [user("one"), answer("1"), user("two"), answer("2"), user("other"), answer("3")]
    branches = {"main": [(1, 1), (2, 1), (3, 2), (4, 2)], "branch": [(1, 1), (2, 1), (5, 2), (6, 2)]}
    places = [
        {"session_id": "s1", "branch_id": branch, "message_id": id_, "sequence_number": number,
         "user_turn_number": turn, "message_type": "any"}
        for branch, some in branches.items()
        for number, (id_, turn) in enumerate(some, 1)
    ]  # fmt: skip
    used = [
        {"session_id": "s1", "branch_id": branch, "user_turn_number": turn, "requests": 1, "output_tokens": 1,
         "input_tokens": tokens, "total_tokens": tokens + 1, "input_tokens_details": '{"cached_tokens": 4}',
         "output_tokens_details": '{"reasoning_tokens": 1}'}
        for branch, turn, tokens in (("main", 1, 10), ("main", 2, 20), ("branch", 2, 40))
    ]  # fmt: skip
    return {"agent_messages": messages("s1", *items), "message_structure": places, "turn_usage": used}


def test_branches_and_usage(target: Store, tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    written(create_engine(f"sqlite:///{path}"), branched())
    first, second = import_from(target, path), import_from(target, path)
    conversation = found(target, "s1")
    assert [said(conversation.on_branch(number)) for number in (0, 1)] == [
        ["one", "1", "two", "2"],
        ["one", "1", "other", "3"],
    ]
    assert (first.items.stored, first.attempts, second.items.unchanged, second.attempts) == (6, 3, 6, 0)
    [row] = target.usage()
    assert (row.input_tokens, row.output_tokens, row.cached_tokens, row.reasoning_tokens) == (70, 3, 12, 3)


def test_sessions_of_several_tables_are_told_apart(target: Store, tmp_path: Path) -> None:
    """… though they have the same id, and their messages, too; places and usage are those of one table."""
    path = tmp_path / "sessions.db"
    written(create_engine(f"sqlite:///{path}"), {"agent_messages": messages("s1", user("elsewhere"), answer("Ah."))})
    written(create_engine(f"sqlite:///{path}"), branched(), refers=True, agent_messages="history")
    first, second = import_from(target, path), import_from(target, path)
    assert said(found(target, "s1")) == ["elsewhere", "Ah."]
    assert said(found(target, "history/s1").on_branch(0)) == ["one", "1", "two", "2"]
    assert (first.conversations.stored, first.items.stored, first.attempts, first.skipped) == (2, 8, 3, [])
    assert (second.conversations.unchanged, second.items.unchanged) == (2, 8)


def test_rows_of_another_database_are_not_those_of_the_same_number(target: Store, tmp_path: Path) -> None:
    for name, items in {"a.db": [user("Hello"), answer("Hi")], "b.db": [user("Bonjour"), answer("Hi")]}.items():
        written(create_engine(f"sqlite:///{tmp_path / name}"), {"agent_messages": messages("s1", *items)})
        assert import_from(target, tmp_path / name).items.stored == 2
    assert [said(found(target, "s1").on_branch(number)) for number in (0, 1)] == [["Hello", "Hi"], ["Bonjour", "Hi"]]
    assert import_from(target, [tmp_path / "a.db", tmp_path / "b.db"]).items.unchanged == 4


def test_ids_need_not_be_numbers(target: Store, tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE agent_messages (id TEXT, session_id TEXT, message_data TEXT)")
        rows = [("5f-a", "s1", "Hello"), ("5f-b", "s1", "again"), ("5f-b", "s1", "twice"), ("5f-c", None, "nowhere")]
        filled = [(id_, session, json.dumps(user(text))) for id_, session, text in rows]
        old.executemany("INSERT INTO agent_messages VALUES (?, ?, ?)", filled)
    old.close()
    report = import_from(target, path)
    assert said(found(target, "s1")) == ["Hello", "again"]
    assert report.reasons == {"its id is that of an earlier message": 1, "a message of no session": 1}
    assert import_from(target, path).items.unchanged == 2


def test_broken_entries_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    encrypted = {"__enc__": 1, "v": 1, "kid": "k", "payload": "x"}
    broken = ["no JSON", "[1]", encrypted, {"type": "message", "role": 7}]
    written(
        create_engine(f"sqlite:///{path}"), {"agent_messages": messages("s1", user("Hello"), *broken, answer("Hi"))}
    )
    with Store("sqlite://") as store:
        report = import_from(store, path)
        assert said(found(store, "s1")) == ["Hello", "Hi"]
        assert report.reasons["it is not an item"] == 2
        assert report.reasons["the item is encrypted"] == 1
        assert (len(report.skipped), report.items.stored, report.items.skipped) == (4, 2, 1)


def test_what_the_sdk_writes_itself(tmp_path: Path) -> None:
    agents = pytest.importorskip("agents", reason="openai-agents is not installed; make test-peers has it")
    from agents.extensions.memory import AdvancedSQLiteSession  # noqa: PLC0415
    from agents.testing import ScriptedModel, assistant_message, function_call  # noqa: PLC0415

    path = tmp_path / "sessions.db"

    @agents.function_tool
    def weather(city: str) -> str:
        """What the weather is."""
        return f"rain in {city}"

    def step(item: Any, tokens: int) -> dict[str, Any]:
        used = agents.Usage(requests=1, input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)
        return {"output": [item], "usage": used}

    model = ScriptedModel([
        step(function_call("weather", {"city": "Lyon"}, call_id="c1"), 10), step(assistant_message("Yes."), 20),
        step(assistant_message("Until noon."), 40), step(assistant_message("Until ten."), 80),
    ])  # fmt: skip

    async def run() -> None:
        agent = agents.Agent(name="any", model=model, tools=[weather])
        session = AdvancedSQLiteSession(session_id="s1", db_path=str(path), create_tables=True)
        for question in ("Is it raining?", "How long?"):
            await session.store_run_usage(await agents.Runner.run(agent, question, session=session))
        await session.create_branch_from_turn(2)
        await session.store_run_usage(await agents.Runner.run(agent, "For how long?", session=session))
        plain = agents.SQLiteSession("s2", str(path))
        await plain.add_items([{"role": "user", "content": "Hello!"}])
        session.close()
        plain.close()

    asyncio.run(run())
    with Store("sqlite://") as store:
        report = import_from(store, path)
        begun = ["Is it raining?", "function_call", "function_call_output", "Yes."]
        conversation = found(store, "s1")
        assert said(conversation.on_branch(0)) == [*begun, "How long?", "Until noon."]
        assert said(conversation.on_branch(1)) == [*begun, "For how long?", "Until ten."]
        assert said(found(store, "s2")) == ["Hello!"]
        assert (report.skipped, report.attempts) == ([], 3)
        assert store.usage()[0].input_tokens == 150
