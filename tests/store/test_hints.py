"""Errors say which argument is at fault, and what to write instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from tests.databases import Database
from tests.factories import a_stream
from threadkeep import (
    AsyncStore,
    CannotParse,
    FormatName,
    InvalidOption,
    NotFound,
    SchemaMissing,
    Store,
    ThreadkeepError,
    UnknownFormat,
    formats,
    schema,
)
from threadkeep.db.engines import command_url, engine_for

Call = Callable[[Any, Any], Any]
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "x" * 100_000}}]}
TURNS = 'Pass a list such as [{"role": "user", "content": "hello"}]; for plain text call user("hello").'
NO_TURN = "It needs at least one turn."
ONE_BY_ONE = "Feed the events one at a time."

# what is wrong -> a call, the argument at fault, and a part of the hint
WRONG: dict[str, tuple[Call, str | None, str]] = {
    "an option": (lambda store, _: store.create_conversation(modle="x"), "modle", "Did you mean 'model'?"),
    "a write's option": (lambda _, c: c.user("x", idempotency=1), "idempotency", "Did you mean 'idempotency_key'?"),
    "a view's option": (lambda _, c: c.render("messages", windw=3), "windw", "Did you mean 'window'?"),
    "tools to update": (lambda _, c: c.update(tools=[]), "tools", "Call register_tools(…)"),
    "input to update": (lambda _, c: c.update(input="x"), "input", "Call user(…)"),
    "a filter of usage": (lambda store, _: store.usage(user="u1"), "user", "Did you mean 'user_id'?"),
    "an order of usage": (lambda store, _: store.usage(order_by="cost_usd"), "order_by", "Did you mean 'cost_nano'?"),
    "an order that is no text": (lambda store, _: store.usage(order_by={"deep": [{}]}), "order_by", ""),
    "a status of usage": (lambda store, _: store.usage(status="faild"), "status", "Did you mean 'failed'?"),
    "a role": (lambda store, _: store.search("x", role="usr"), "role", "Did you mean 'user'?"),
    "a type": (lambda store, _: store.search("x", type="mesage"), "type", "Did you mean 'message'?"),
    "a format": (lambda _, c: c.render("chat_completions"), "format", "Did you mean 'chat_completion'?"),
    "OpenAI": (lambda _, c: c.render("openai"), "format", "Did you mean 'open_responses' or 'chat_completion'?"),
    "Anthropic": (lambda _, c: c.render("Anthropic"), "format", "Did you mean 'messages'?"),
    "Bedrock": (lambda _, c: c.render("bedrock"), "format", "Did you mean 'converse'?"),
    "Google": (lambda _, c: c.render("google"), "format", "Did you mean 'gemini' or 'interactions'?"),
    "swapped": (lambda _, c: c.add_response("messages", ANSWER), "format", "The format is the second argument."),
    "swapped text": (
        lambda _, c: c.add_response("messages", json.dumps(ANSWER)), "format", "The format is the second argument.",
    ),
    "another format": (
        lambda _, c: c.add_response(ANSWER, "messages"), None, "pass 'chat_completion' as the format.",
    ),
    "no response": (lambda _, c: c.add_response({"a": 1}, "converse"), None, "Pass the body as the provider sent it."),
    "a number as content": (lambda _, c: c.user(5), "content", "a dict with a `type`"),
    "a function": (lambda _, c: c.register_tool(print), "name", 'Write register_tool("print", …).'),
    "a label": (lambda _, c: c.update(labels={"a": "x" * 999}), "labels", "Use a shorter id"),
    "text as turns": (lambda _, c: c.add_input("hello", "messages"), None, TURNS),
    "a number as turns": (lambda _, c: c.add_input(5, "chat_completion"), None, TURNS),
    "no contents": (lambda store, _: store.import_request({"contents": []}, "gemini"), None, NO_TURN),
    "no messages": (lambda store, _: store.import_request({"messages": None}, "converse"), None, NO_TURN),
    "no input": (lambda store, _: store.import_request({"input": None}, "open_responses"), None, NO_TURN),
    "an unknown id": (
        lambda store, _: store.get_conversation("conv_" + "0" * 32), None,
        "Check the id, and that the store has the right database, tenant and user.",
    ),
    "no event": (lambda *_: formats.get_format("messages").assembler().feed(5), None, ONE_BY_ONE),
}  # fmt: skip


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("case", WRONG)
def test_an_error_says_which_argument_and_what_to_do(store: Any, case: str) -> None:
    call, argument, hint = WRONG[case]
    conversation = store.create_conversation(model="m")
    with pytest.raises(ThreadkeepError) as raised:
        call(store, conversation)
    assert (raised.value.argument, hint in (raised.value.hint or "")) == (argument, True)
    assert len(str(raised.value)) < 1_000


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("chat.db", "Did you mean 'sqlite:///chat.db'?"),
        ("sqlite:chat.db", "Did you mean 'sqlite:///chat.db'?"),
        ("sqlite://chat.db", "three slashes"),
        ("postgresql://u:secret@h:abc/db", "Examples: sqlite:///chat.db"),
        ("host=h password=secret", "Examples"),
        (":memory:", "Write sqlite:// for a database in memory."),
        (":secret@h", "Examples"),
        ("oracle://u:secret@h/db", "Examples"),
        (create_engine("postgresql+psycopg://h/db"), "AsyncEngine"),
        (7, "Examples"),
    ],
)
def test_a_url_that_cannot_be_used_is_told_with_what_to_write(url: Any, hint: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        AsyncStore(url)
    assert (raised.value.argument, hint in (raised.value.hint or "")) == ("url", True)
    assert "secret" not in str(raised.value)


def test_text_that_is_no_url_is_shown_whole() -> None:
    with pytest.raises(InvalidOption, match=r"url is not a database URL: 'sqlite:chat\.db'"):
        Store("sqlite:chat.db")
    with pytest.raises(InvalidOption, match=r"^url is not a database URL: ':memory:'\. Write sqlite:// for"):
        Store(":memory:")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_role_and_type_of_somebody_elses_own_are_searched(store: Any) -> None:
    conversation = store.create_conversation(model="m")
    conversation.add_item({"type": "message", "role": "users", "content": "trains"}, known=False)
    assert len(store.search("trains", role="users").items) == 1
    assert store.search("trains", role="critic").items == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_recorder_takes_server_sent_events(store: Any) -> None:
    events = list(map(json.dumps, a_stream("From York.")))
    texts = []
    for wrap in (lambda event: [event], lambda event: ["", ": ping", "event: x\n", f"data: {event}\n\n"]):
        conversation = store.create_conversation(model="m")
        with conversation.stream_response("open_responses") as recorder:
            for event in events:
                for line in wrap(event):
                    recorder.feed(line)
            recorder.feed(b"data: [DONE]")
        texts.append((recorder.response.status, recorder.response.text))
    assert texts == [("completed", "From York.")] * 2


@pytest.mark.parametrize("format_name", formats.NAMES)
def test_only_sessions_are_rendered(format_name: FormatName) -> None:
    with pytest.raises(InvalidOption, match="session must be a Session") as raised:
        formats.get_format(format_name).render({"model": "m"})  # type: ignore[arg-type]
    assert "Pass a Session; of a conversation" in (raised.value.hint or "")


def test_a_connection_to_another_database_is_told(tmp_path: Path) -> None:
    """On SQLite, if the connection looks at foreign keys."""
    other = create_engine(f"sqlite:///{tmp_path}/other.db")
    schema.upgrade(other)
    with Store(f"sqlite:///{tmp_path}/chat.db") as store:
        store.create_conversation(model="m")
        with other.connect() as connection:
            connection.connection.cursor().execute("PRAGMA foreign_keys=ON")
            with pytest.raises(NotFound, match="or the connection is to another database"):
                store.within(connection).create_conversation(model="m")
    other.dispose()


def test_a_missing_schema_is_told_with_the_url(empty_database: Database) -> None:
    engine = create_engine(empty_database.url) if empty_database.kind == "sqlite" else None
    if engine is not None:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE orders (number integer)")
        with pytest.raises(SchemaMissing, match="--url <your URL> db upgrade"):
            Store(engine).list_conversations()
        engine.dispose()
    with pytest.raises(SchemaMissing) as raised:
        Store(empty_database.url)
    assert f"`threadkeep --url {empty_database.url} db upgrade`" in str(raised.value)


def test_the_url_of_a_missing_schema_has_no_password() -> None:
    assert command_url(engine_for("mysql://me:secret@host/chat")) == "mysql://me:***@host/chat"
    assert command_url(engine_for("postgresql://host/chat?password=secret")) is None


def test_an_unknown_format_has_its_name() -> None:
    with pytest.raises(UnknownFormat) as raised:
        formats.get_format("x")  # type: ignore[arg-type]
    assert raised.value.name == "x"


def test_a_broken_event_of_text_is_refused() -> None:
    with pytest.raises(CannotParse, match="not JSON"):
        formats.get_format("messages").assembler().feed("data: {oops")
