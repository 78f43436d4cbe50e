"""Streams whose time is over: they end with an event that says so, and what came is stored."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.databases import Database
from tests.http.scripts import script
from tests.http.servers import running
from threadkeep import AsyncStore
from threadkeep.http import Owner, Upstream, app
from threadkeep.web.limits import Limits
from threadkeep.web.site import site


async def begins(_payload: Any, _model: str) -> AsyncGenerator[Any]:
    for event in script("chat_completion", ["Once "])[:2]:
        yield event
    await asyncio.Event().wait()


def test_a_stream_whose_time_is_over_ends_with_an_error(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    store = AsyncStore(database.url, tenants=True)
    tenant = asyncio.run(made(database))
    upstreams = {"*": Upstream("endless", "chat_completion", begins)}
    face = app(store, auth=lambda _: Owner(tenant=tenant), prefix="", upstreams=upstreams)
    with running(site({"/v1": face}, store=store, limits=Limits(max_seconds=3)), store) as url:
        body = {"model": "m", "input": "How often?", "stream": True}
        answer = httpx2.post(f"{url}/v1/responses", json=body, timeout=30)
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        assert (events[-1]["type"], events[-1]["code"]) == ("error", "timeout")
        assert events[-1]["sequence_number"] == events[-2]["sequence_number"] + 1
        found = httpx2.get(f"{url}/v1/responses/{events[0]['response']['id']}", timeout=30).json()
        assert (found["status"], found["output"][0]["content"][0]["text"]) == ("incomplete", "Once ")
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.WARNING] == []


async def made(database: Database) -> str:
    """A tenant of its own."""
    name = uuid4().hex
    async with AsyncStore(database.url, tenants=True) as store:
        await store.create_tenant(name)
    return name
