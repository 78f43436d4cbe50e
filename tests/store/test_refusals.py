"""What cannot be used is refused by an error of threadkeep that names it, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from tests.databases import Database
from threadkeep import AsyncStore, InvalidOption, ProviderError, Session, Store
from threadkeep.domain.options import OPTIONS

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)

REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "no session": (lambda store, _: store.save({}), "session must be a Session, not {}"),
    "a list with no session": (lambda store, _: store.save_many([Session(), 3]), "session must be a Session, not 3"),
    "no list": (lambda store, _: store.save_many(3), "sessions must be an iterable of Session, not 3"),
    "a column by number": (lambda store, _: store.usage(by=3), "by must be the name of a column"),
    "a list of numbers": (lambda store, _: store.usage(by=[3]), "by must be the name of a column"),
    "a zone without dates": (lambda store, _: store.usage(tz="Mars"), "tz is not the name of a time zone: 'Mars'"),
    "a zone that is no text": (lambda store, _: store.usage(tz=3), "tz is not the name of a time zone: 3"),
    "a model by number": (lambda store, _: store.create_conversation(model=3), "model must be text, not 3"),
    "a misspelt format": (
        lambda store, _: store.create_conversation(extra={"chat_completions": {"seed": 1}}),
        "Did you mean 'chat_completion'",
    ),
    "a list of headers": (
        lambda _, conversation: conversation.add_response({"output": []}, "open_responses", headers=["x"]),
        "headers must be a dict",
    ),
    "a position below none": (lambda _, conversation: conversation.render("open_responses", upto=-2), "not -2"),
    "another API's word for the history": (
        lambda store, _: store.create_conversation(model="m", messages=[]),
        r"messages is not an option. Write input=\[…\], or import_request",
    ),
    "another API's word for an option": (
        lambda _, conversation: conversation.update(stop=["x"]),
        r"Write extra=\{\"stop\": …\}",
    ),
    "a misspelt title": (lambda _, conversation: conversation.update(titel="x"), "Did you mean 'title'"),
    "a window that is a number": (lambda _, found: found.render("messages", window=3), r"Turns\(count\), not 3"),
    "a context that is no JSON": (
        lambda _, found: (found.user("Hi"), found.render("messages", dynamic_context={"now": date(2026, 1, 1)})),
        "dynamic_context cannot be sent: .*date",
    ),
    "a transaction of an engine": (
        lambda store, _: store.within(create_engine("sqlite://")),
        "whose transaction is used, not Engine\\(sqlite",
    ),
    "a position in words": (lambda _, conversation: conversation.render("open_responses", upto="end"), "not 'end'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_by_name(store: Any, conversation: Any, case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(InvalidOption, match=message):
        call(store, conversation)
    assert [found.id for found in store.list_conversations()] == [conversation.id]


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://chat.db", "three slashes"),
        (create_async_engine("postgresql+psycopg://localhost/chat"), "url is an AsyncEngine"),
    ],
    ids=["two slashes", "an async engine"],
)
def test_a_store_says_what_it_takes(url: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Store(url)


@pytest.mark.parametrize("name", ["title", "labels", "user_id", "external_id"])
def test_what_is_known_of_a_conversation_cannot_be_assigned(conversation: Any, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(getattr(conversation, "_wrapped", conversation), name, "x")


@pytest.mark.parametrize("name", sorted({*OPTIONS} - {"user"}))
def test_assigning_is_refused_because_it_would_store_nothing(conversation: Any, name: str) -> None:
    handle = getattr(conversation, "_wrapped", conversation)
    with pytest.raises(InvalidOption, match=rf"update\({name}="):
        setattr(handle, name, "x")


def test_options_are_read_as_attributes(store: Any) -> None:
    conversation = store.create_conversation(model="m", temperature=0.5, metadata={"a": "b"}, extra={"seed": 1})
    assert (conversation.model, conversation.temperature, conversation.top_p) == ("m", 0.5, None)
    assert conversation.extra == {"seed": 1}
    conversation.update(temperature=None, top_p=0.9)
    assert (conversation.temperature, conversation.top_p) == (None, 0.9)
    conversation.metadata["a"] = conversation.settings["metadata"]["a"] = "changed"
    assert conversation.metadata == {"a": "b"}
    with pytest.raises(AttributeError):
        _ = conversation.temprature


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("url", "message"),
    [
        (None, "it is a value of type NoneType. Examples"),
        ("postgresql://u:secret@h:abc/db", "its port is not a number"),
        ("postgres://u:secret@h/db", "Write postgresql:// instead"),
        ("postgresql+psycopg2://u:secret@h/db", "On postgresql, this store uses psycopg: write postgresql://"),
        ("postgresql+asyncpg://u:secret@h/db", "On postgresql, this store uses psycopg: write postgresql://"),
        ("sqlite+aiosqlite:///x.db", "On sqlite, this store uses Python's own sqlite3: write sqlite://"),
        ("mysql+mysqldb://u:secret@h/db", "On mysql, this store uses (pymysql|asyncmy): write mysql://"),
    ],
)
def test_a_url_that_cannot_be_used_is_told_without_its_password(
    database: Database, face: str, url: Any, message: str
) -> None:
    with pytest.raises(InvalidOption, match=message) as raised:
        (Store if face == "sync" else AsyncStore)(url)
    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_an_error_answer_is_counted_for_the_model_that_was_asked(store: Any) -> None:
    conversation = store.create_conversation(model="gpt-5.4", input="Hi")
    with pytest.raises(ProviderError):
        conversation.add_response({"error": {"message": "slow down"}}, "open_responses")
    with pytest.raises(ProviderError):
        conversation.add_response({"error": {"message": "slow down"}, "model": "another"}, "chat_completion")
    assert {row.model: row.attempts for row in store.usage(by="model")} == {"gpt-5.4": 1, "another": 1}
