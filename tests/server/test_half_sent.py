"""Requests of which only a part comes: their clients leave, stay and send no more, or are erased before the rest."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from tests.databases import Database
from tests.server.callers import Heard, http_scope
from tests.server.conftest import Bridge
from tests.server.scripts import Scripted
from threadkeep.db.base import columns_holding
from threadkeep.db.models import METADATA, tenants
from threadkeep.http import Limits, rest_app, site
from threadkeep.server import requests


class Sender(Heard):
    """Somebody who sends a part of a request, and then leaves or stays."""

    def __init__(
        self, *, leaves: bool = False, body: bytes | None = None, between: Any = None, key: str = "ann"
    ) -> None:
        """With a body, its first byte is sent, `between` is awaited, and then the rest is sent."""
        super().__init__()
        self._leaves, self._has_sent, self._key = leaves, False, key
        self._body, self._between = body, between

    async def send_to(self, application: Any, path: str, method: str = "POST", **headers: str) -> None:
        """Send it, and wait until the server is done with it."""
        length = "100" if self._body is None else str(len(self._body))
        given = {"authorization": f"Bearer {self._key}", "content-length": length, **headers}
        scope = http_scope(path, method, given)
        await asyncio.wait_for(application(scope, self._receive, self._send), 20)

    async def _receive(self) -> dict[str, Any]:
        if not self._has_sent:
            self._has_sent = True
            return {"type": "http.request", "body": b"{" if self._body is None else self._body[:1], "more_body": True}
        if self._body is not None:
            rest, self._body = self._body[1:], None
            await self._between()
            return {"type": "http.request", "body": rest, "more_body": False}
        if not self._leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.hear(message)


SAID: Any = {"role": "user", "content": "Weather?"}
PART: Any = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Weather?"}]}
RUN: Any = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {"model": "m"}}
# path -> the body of a request that stores something
STORING: dict[str, Any] = {
    "/v1/conversations": {"items": [SAID], "metadata": {"topic": "ann"}},
    "/v1/responses": {"model": "m", "input": "Weather?"},
    "/v1/chat/completions": {"model": "m", "messages": [SAID], "store": True},
    "/api/conversations": {"model": "m", "title": "Of ann"},
    "/api/chat": {"id": "c", "model": "m", "messages": [PART]},
    "/api/ag-ui": {**RUN, "messages": [{"id": "u1", **SAID}]},
    "/api/media": b"%PDF-1.4 of ann",
}


def faces(served: Any, upstreams: Any = None, **options: Any) -> Any:
    rest = rest_app(served._store, auth=served.authenticate, prefix="", upstreams=upstreams)
    return site({"/v1": served.application(prefix="", upstreams=upstreams), "/api": rest}, **options)


@pytest.mark.parametrize("path", ["/v1/conversations", "/api/conversations"])
def test_a_client_that_leaves_while_it_sends_is_no_error(
    served: Any, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    application = faces(served)
    served.runner.run(Sender(leaves=True).send_to(application, path))
    http = httpx2.Client(transport=Bridge(served.runner, application), base_url="http://localhost")
    assert f'http_requests_total{{method="POST",route="{path}",status="499"}} 1.0' in http.get("/metrics").text
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("path", ["/v1/conversations", "/api/conversations", "/api/media"])
def test_a_body_that_does_not_go_on_gives_its_place_back(
    served: Any, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.1)
    application = faces(served, limits=Limits(max_requests=1))
    sender = Sender(leaves=False)
    served.runner.run(sender.send_to(application, path))
    assert (sender.status, json.loads(sender.text)["error"]["code"]) == (408, "request_timeout")
    assert sender.headers["connection"] == "close"  # what may still come is not the next request
    http = httpx2.Client(
        transport=Bridge(served.runner, application), base_url="http://localhost", headers={"Authorization": "Bearer b"}
    )
    assert http.get("/v1/conversations").status_code == 200


def naming(served: Any, database: Database, user: str) -> list[str]:
    """The tables with rows of the tenant that name a user."""
    tenant = select(tenants.c.id).where(tenants.c.name == served.tenant).scalar_subquery()
    with database.engine().connect() as connection:
        return [
            table.name for table in METADATA.sorted_tables for column in columns_holding(table, "user")
            if connection.execute(select(column).where(table.c.tenant_id == tenant, column == user)).first()
        ]  # fmt: skip


@pytest.mark.parametrize("key", ["ann", "all"])
@pytest.mark.parametrize("path", STORING)
def test_what_comes_after_its_user_was_erased_is_not_stored(
    served: Any, database: Database, path: str, key: str
) -> None:
    """With a key of the user, and with one of all users that names this one. What comes later is stored again."""
    one = Scripted("chat_completion")
    application = faces(served, upstreams={"*": one.upstream})
    given = STORING[path]
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    headers = {"content-type": "application/pdf" if isinstance(given, bytes) else "application/json"}
    if key == "all":
        headers["x-threadkeep-user"] = "ann"

    def sent(between: Any) -> Sender:
        sender = Sender(body=body, between=between, key="" if key == "all" else key)
        served.runner.run(sender.send_to(application, path, **headers))
        return sender

    refused = sent(partial(served.store.erase_user, "ann", vacuum=False))
    assert (refused.status, "'ann' was erased" in refused.text) == (404, True), refused.text
    assert (naming(served, database, "ann"), one.payloads) == ([], [])
    one.will_say("Sunny.")
    again = sent(partial(asyncio.sleep, 0))
    assert again.status < 300, again.text
    assert naming(served, database, "ann") != []
