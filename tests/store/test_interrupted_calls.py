"""Calls that are interrupted in the middle of a statement."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from tests.factories import texts_of
from threadkeep import Store, schema


def test_a_database_in_memory_outlives_an_interrupted_call() -> None:
    """It is gone when its only connection is closed."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    schema.upgrade(engine)
    driver: sqlite3.Connection = engine.raw_connection().driver_connection  # type: ignore[assignment]

    def interrupt(_: bytes) -> str:
        raise KeyboardInterrupt

    with Store(engine) as store:
        conversation = store.create_conversation(model="m", input="Hi")
        driver.text_factory = interrupt
        with pytest.raises(KeyboardInterrupt):
            store.get_conversation(conversation.id).user("never")
        driver.text_factory = str
        assert texts_of(store.get_conversation(conversation.id).transcript()) == ["Hi"]
    engine.dispose()
