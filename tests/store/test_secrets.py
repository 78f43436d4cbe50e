"""Messages of errors: no keys and passwords in the ledger, nothing that people wrote in errors of the database."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, make_url, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from tests.conftest import upgraded
from tests.databases import DRIVERS, Database
from tests.factories import MODEL, a_stream, an_error
from tests.store.faces import blocking_store
from tests.store.watching import Tables
from threadkeep import ProviderError, Store
from threadkeep.db.models import usage_records

KEY = "AIzaSyD-q7q7q7q7q7q7q7q7q7q7q7q7q7q7q7q7"
URL = f"https://example.org/v1/models/m:streamGenerateContent?alt=sse&key={KEY}"
WRITTEN = "only for your eyes"

ERRORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "exception": (
        ConnectionError(f"Cannot reach {URL} with {{'Authorization': 'Bearer {KEY}'}}"),
        {
            "type": "ConnectionError",
            "message": "Cannot reach https://example.org/v1/models/m:streamGenerateContent?alt=sse&key=*** "
            "with {'Authorization': '***'}",
        },
    ),
    "text": (f"no answer from {URL}", {"message": f"no answer from {URL.replace(KEY, '***')}"}),
    "object": ({"headers": {"x-api-key": KEY}, "tries": 2}, {"headers": {"x-api-key": "***"}, "tries": 2}),
}


def errors_in(tables: Tables) -> list[Any]:
    """The errors in the ledger."""
    found = tables._connection.execute(
        select(usage_records.c.error).where(usage_records.c.tenant_id == tables._tenant).order_by(usage_records.c.id)
    )
    return [error and json.loads(error) for (error,) in found]


@pytest.mark.parametrize("kind", ERRORS)
def test_an_attempt_is_recorded_without_keys(conversation: Any, tables: Tables, kind: str) -> None:
    error, kept = ERRORS[kind]
    conversation.record_attempt("gemini", error=error)
    assert errors_in(tables) == [kept]


def test_the_error_by_which_a_stream_was_left_is_kept_without_keys(conversation: Any, tables: Tables) -> None:
    error, kept = ERRORS["exception"]

    def answer() -> None:
        with conversation.stream_response("open_responses") as recorder:
            for event in a_stream("Rome is the capital.")[:-2]:
                recorder.feed(event)
            raise error

    with pytest.raises(ConnectionError) as caught:
        answer()
    assert caught.value is error
    assert errors_in(tables) == [kept]


def test_what_a_provider_says_is_kept_without_keys(conversation: Any, tables: Tables) -> None:
    with pytest.raises(ProviderError):
        conversation.add_response(an_error(f"Incorrect API key provided: {KEY}"), "chat_completion")
    [kept] = errors_in(tables)
    assert kept["message"] == "Incorrect API key provided: AIza***"


# Errors of the database

REFUSALS = {
    "sqlite": "CREATE TRIGGER no_items BEFORE INSERT ON threadkeep_items BEGIN SELECT RAISE(ABORT, 'no_items'); END",
    "postgresql": "ALTER TABLE threadkeep_items ADD CONSTRAINT no_items CHECK (position < -1)",
    "mariadb": "ALTER TABLE threadkeep_items ADD CONSTRAINT no_items CHECK (position < -1)",
}
ASYNC_DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+asyncmy"}


@pytest.fixture
def engine(empty_database: Database) -> Iterator[Engine]:
    """The application's engine, of a database that refuses items."""
    url = make_url(empty_database.url)
    made = create_engine(url.set(drivername=DRIVERS[url.drivername]))
    upgraded(made)
    with made.begin() as connection:
        connection.execute(text(REFUSALS[empty_database.kind]))
    yield made
    made.dispose()


Opening = Callable[[Database, Engine], Any]


@contextmanager
def a_store(database: Database, engine: Engine) -> Iterator[Any]:
    del engine
    with Store(database.url) as store:
        yield store


@contextmanager
def a_store_of_an_engine(database: Database, engine: Engine) -> Iterator[Any]:
    del database
    with Store(engine) as store:
        yield store


@contextmanager
def a_store_within(database: Database, engine: Engine) -> Iterator[Any]:
    with Store(database.url) as store, engine.connect() as connection:
        yield store.within(connection)


@contextmanager
def an_async_store(database: Database, engine: Engine) -> Iterator[Any]:
    del engine
    with asyncio.Runner() as runner, blocking_store(database.url, runner) as store:
        yield store


@contextmanager
def an_async_store_of_an_engine(database: Database, engine: Engine) -> Iterator[Any]:
    """On SQLite, whose statements run in threads, of a blocking one."""
    url = make_url(database.url)
    with asyncio.Runner() as runner:
        if url.drivername not in ASYNC_DRIVERS:
            with blocking_store(engine, runner) as store:
                yield store
            return
        own = create_async_engine(url.set(drivername=ASYNC_DRIVERS[url.drivername]))
        with blocking_store(own, runner) as store:
            yield store
        runner.run(own.dispose())


@pytest.mark.parametrize(
    "opened", [a_store, a_store_of_an_engine, a_store_within, an_async_store, an_async_store_of_an_engine]
)
def test_errors_of_the_database_do_not_say_what_was_written(
    empty_database: Database, engine: Engine, opened: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), opened(empty_database, engine) as store:
        conversation = store.create_conversation(model=MODEL)
        with pytest.raises(DBAPIError, match="no_items") as caught:
            conversation.user(WRITTEN)
    assert WRITTEN not in "".join(traceback.format_exception(caught.value))
    assert WRITTEN not in caplog.text
    with pytest.raises(DBAPIError, match="everything of the host"), engine.connect() as connection:
        connection.execute(text("SELECT :value FROM nothing"), {"value": "everything of the host"})


def test_a_log_of_statements_has_no_values(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="sqlalchemy.engine"), Store(f"sqlite:///{tmp_path / 'chat.db'}") as store:
        store.create_conversation(model=MODEL).user(WRITTEN)
    assert "INSERT INTO threadkeep_items" in caplog.text
    assert WRITTEN not in caplog.text
