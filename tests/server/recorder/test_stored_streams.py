"""Streams that are stored from a spool: whole or not at all, whenever the process is killed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import Engine, event

from tests.databases import Database
from tests.server.recorder.conftest import recorder, said
from tests.server.recorder.provider import JSON, Reply, stream
from tests.server.recorder.test_full_disks import die, run_alone
from tests.server.scripts import script
from tests.waiting import wait_until
from threadkeep import AsyncStore, Store
from threadkeep.server.recorder.spool import Spool
from threadkeep.server.recorder.worker import RecordingThread

TEXTS = ["One, ", "two."]
MESSAGES = (
    "/v1/messages",
    {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "stream": True},
)
GEMINI = "/v1beta/models/m:streamGenerateContent", {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
AS_LIST = Reply(200, JSON, [json.dumps(script("gemini", TEXTS)).encode()])


def spool_one(
    database: Database, directory: Path, call: tuple[str, dict[str, Any]], reply: Reply, **headers: str
) -> str:
    """Leave a call in the spool, whose answer its client has; the name of its tenant."""
    path, body = call
    with ExitStack() as stack:
        recorded = stack.enter_context(recorder(database, spool=directory, stop_seconds=0))
        with recorded.gone_database():
            recorded.provider.says(reply)
            assert httpx2.post(recorded.url + path, json=body, headers=headers, timeout=20).status_code == 200
            wait_until(lambda: recorded.application.state.health()["spooled"] == 1)
            stack.close()
    return recorded.tenant


async def store_what_waits(url: str, directory: Path, *results: str) -> RecordingThread:
    """Store what another process has left, until it is counted as one of these."""
    recording = RecordingThread(AsyncStore(url, tenants=True), spool=Spool(directory))
    recording.start()
    await asyncio.to_thread(wait_until, lambda: any(recording.health()[name] for name in results), recording.health)
    await recording.stop()
    return recording


def store_until_killed(url: str, directory: Path, enough: int) -> None:
    """Store what waits in process after process; each is killed one COMMIT later, until one is not."""
    for commits in count():
        if not (child := os.fork()):
            done = count()
            event.listen(Engine, "commit", lambda _: die() if next(done) == commits else None)  # noqa: B023 - forked
            asyncio.run(store_what_waits(url, directory, "recorded"))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert commits >= enough


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "reply"), [(MESSAGES, stream("messages", TEXTS)), (GEMINI, AS_LIST)], ids=["events", "list"]
)
def test_a_stream_is_stored_whole_through_kills(
    database: Database, tmp_path: Path, call: tuple[str, dict[str, Any]], reply: Reply
) -> None:
    """Before each COMMIT, a process is killed; the next goes on, and need not wait for a lease to end."""
    tenant = spool_one(database, tmp_path, call, reply)
    run_alone(store_until_killed, database.url, tmp_path, 2)
    with Store(database.url, tenants=True) as store:
        [conversation] = store.for_tenant(tenant).list_conversations()
        assert said(conversation) == ["user: Hi", "assistant: One, two."]
        assert [one.status for one in conversation.responses()] == ["completed"]
        assert conversation.usage().attempts == 1


def begin(url: str, tenant: str, key: str, *, is_killed: bool) -> None:
    """Begin to store a stream as it passes, and end it as incomplete, or be killed."""
    with Store(url, tenants=True) as store:
        conversation = store.for_tenant(tenant).create_conversation(model="m", external_id="talk")
        with conversation.stream_response("messages", idempotency_key=key, lease=3) as begun:
            begun.feed(script("messages", TEXTS)[0])
            if is_killed:
                os._exit(0)


def begin_and_die(url: str, tenant: str, key: str) -> None:
    begin(url, tenant, key, is_killed=True)


@pytest.mark.parametrize("is_killed", [pytest.param(True, marks=pytest.mark.slow), False], ids=["killed", "stopped"])
def test_what_was_begun_as_it_passed_is_told_from_the_whole(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_killed: bool
) -> None:
    """Once the lease of a killed process is over, the answer is stored whole; where its key is used, it is not.

    That is not counted as recorded, since only a part of it is there.
    """
    talk = {"x-threadkeep-conversation": "talk"}
    tenant = spool_one(database, tmp_path, MESSAGES, stream("messages", TEXTS), **talk)
    [file] = tmp_path.glob("*/*.spool")
    found = re.search(rb'"id":"([0-9a-f]{32})"', file.read_bytes())
    assert found is not None
    begun = database.url, tenant, f"recorded:{found[1].decode()}"
    if is_killed:
        run_alone(begin_and_die, *begun)
    else:
        begin(*begun, is_killed=False)
    with caplog.at_level(logging.WARNING):
        recording = asyncio.run(store_what_waits(database.url, tmp_path, "recorded", "failed"))
    counts = recording.health()["recorded"], recording.health()["failed"]
    assert counts == ((1, 0) if is_killed else (0, 1))
    assert ("a part of its answer had been stored before" in caplog.text) is not is_killed
    with Store(database.url, tenants=True) as store:
        [conversation] = store.for_tenant(tenant).list_conversations()
        statuses = [one.status for one in conversation.responses()]
    assert statuses == (["incomplete", "completed"] if is_killed else ["incomplete"])
    assert not list(tmp_path.glob("*/*.spool"))
