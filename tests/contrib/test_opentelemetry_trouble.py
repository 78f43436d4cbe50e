"""The completion hook in trouble: calls go on, and what is not stored is counted, and logged without what was said."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.util.genai.handler import TelemetryHandler
from opentelemetry.util.genai.types import InputMessage, OutputMessage, TextPart, ToolCallRequestPart
from sqlalchemy import text

from tests.contrib.telling import SECRET, ask
from tests.databases import Database
from tests.server.recorder.conftest import said
from tests.waiting import wait_until
from threadkeep import Store
from threadkeep.contrib.opentelemetry import ThreadkeepCompletionHook

NOTHING = {"stored": 0, "duplicate": 0, "failed": 0, "dropped": 0, "unknown": 0}


@contextmanager
def hooked(url: str, **options: Any) -> Iterator[ThreadkeepCompletionHook]:
    hook = ThreadkeepCompletionHook(url, **options)
    try:
        yield hook
    finally:
        hook.close()


def test_a_database_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    with hooked("postgresql://me:password1@127.0.0.1:1/none", stop_seconds=5) as hook:
        begun = time.monotonic()
        ask(hook)
        assert time.monotonic() - begun < 5
        wait_until(lambda: hook.counts() == {**NOTHING, "failed": 1}, lambda: str(hook.counts()))
    assert "DatabaseUnavailable" in caplog.text
    assert SECRET not in caplog.text
    assert "password1" not in caplog.text


@pytest.mark.parametrize("empty_database", ["postgresql", "mariadb"], indirect=True)
def test_a_database_that_is_not_set_up(caplog: pytest.LogCaptureFixture, empty_database: Database) -> None:
    with hooked(empty_database.url) as hook:
        ask(hook)
        assert hook.flush(30)
        assert hook.counts() == {**NOTHING, "failed": 1}
    assert "db upgrade" in caplog.text


def test_a_database_that_fails_and_comes_back(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    tenant, rename = uuid4().hex, "ALTER TABLE {} RENAME TO {}"
    names = "threadkeep_conversations", "threadkeep_gone"
    with Store(database.url, tenants=True) as store, hooked(database.url, tenant=tenant) as hook:
        scoped, engine = store.create_tenant(tenant), database.engine()
        with engine.begin() as connection:
            connection.execute(text(rename.format(*names)))
        try:
            ask(hook)
            assert hook.flush(30)
        finally:
            with engine.begin() as connection:
                connection.execute(text(rename.format(*reversed(names))))
        ask(hook, "Again?")
        assert hook.flush(30)
        assert hook.counts() == {**NOTHING, "failed": 1, "stored": 1}
        [conversation] = scoped.list_conversations()
        assert said(conversation) == ["user: Again?", "assistant: Yes."]
    assert "a call is not stored" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_more_calls_than_may_wait(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    with database.engine().connect() as connection, hooked(database.url, max_calls=2) as hook:
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        for number in range(6):
            ask(hook, f"{SECRET} {number}")
        wait_until(lambda: hook.counts()["dropped"] >= 3, lambda: str(hook.counts()))
        connection.rollback()
        assert hook.flush(30)
        counts = hook.counts()
    assert counts["stored"] + counts["dropped"] == 6
    assert counts["stored"] <= 3
    assert "too many of them wait" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_more_text_than_may_wait(database: Database) -> None:
    with hooked(database.url, max_bytes=1_000) as hook:
        ask(hook, "x" * 2_000)
        ask(hook)
        assert hook.flush(30)
        assert hook.counts() == {**NOTHING, "dropped": 1, "stored": 1}


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_what_has_no_json_form_is_not_stored_and_does_not_end_the_call(database: Database) -> None:
    with hooked(database.url) as hook:
        endless: dict[str, Any] = {}
        endless["self"] = endless
        ask(hook, city=endless)
        ask(hook, city=object)  # whatever tools return has a text
        assert hook.flush(30)
        assert hook.counts() == {**NOTHING, "failed": 1, "stored": 1}


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_what_the_application_changes_later_is_stored_as_it_was(database: Database) -> None:
    tenant, arguments = uuid4().hex, {"city": "Paris"}
    with Store(database.url, tenants=True) as store, hooked(database.url, tenant=tenant) as hook:
        ask(hook, **arguments)  # before the tenant exists, so that it fails …
        scoped = store.create_tenant(tenant)
        handler = TelemetryHandler(tracer_provider=TracerProvider(), completion_hook=hook)
        with handler.inference("openai", request_model="gpt-5.4") as call:
            call.output_messages = [OutputMessage("assistant", [ToolCallRequestPart(arguments, "look", "c")], "stop")]
            call.input_messages = [InputMessage("user", [TextPart("Where?")])]
        arguments.clear()
        assert hook.flush(30)
        conversation = next(iter(scoped.list_conversations()))
        assert 'look({"city":"Paris"})' in said(conversation)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_calls_after_the_end_are_dropped(database: Database) -> None:
    with hooked(database.url) as hook:
        hook.close()
        ask(hook)
        assert hook.counts() == {**NOTHING, "dropped": 1}


PROGRAM = """
import multiprocessing
import sys

from tests.contrib.telling import ask
from threadkeep.contrib.opentelemetry import ThreadkeepCompletionHook

hook = ThreadkeepCompletionHook(sys.argv[1], tenant=sys.argv[2], stop_seconds=60)
if sys.argv[3] == "fork":
    ask(hook, "before")
    assert hook.flush(30)
    for number in range(20):
        ask(hook, f"parent {number}")
    children = [multiprocessing.get_context("fork").Process(target=ask, args=(hook, f"child {n}")) for n in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
ask(hook, "last")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("how", "count"), [("plain", 1), ("fork", 25)])
def test_a_process_ends_when_all_is_stored_and_so_do_its_children(database: Database, how: str, count: int) -> None:
    """Neither waits for the hook; what waits when children are forked is stored once, by their parent."""
    tenant = uuid4().hex
    with Store(database.url, tenants=True) as store:
        scoped = store.create_tenant(tenant)
        command = [sys.executable, "-c", PROGRAM, database.url, tenant, how]
        ended = subprocess.run(
            command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stderr
        assert "not stored" not in ended.stderr
        questions = [said(conversation)[0] for conversation in scoped.list_conversations(limit=100)]
        assert len(questions) == len(set(questions)) == count


def test_a_process_does_not_wait_for_a_database_that_hangs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The limit of time holds; what is left is counted."""
    caplog.set_level(logging.WARNING)
    url = f"sqlite:///{tmp_path}/calls.db"
    with Store(url):
        pass
    database = Database("sqlite", url)
    with database.engine().connect() as connection:
        hook = ThreadkeepCompletionHook(url, stop_seconds=0.2)
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        ask(hook)
        hook.close()
        assert hook.counts()["dropped"] == 1
        assert "the process ends" in caplog.text
        connection.rollback()
