"""Requests of which only a part comes: their clients leave, or stay and send no more."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import httpx2
import pytest

from tests.server.conftest import Bridge
from threadkeep.http import Limits, rest_app, site
from threadkeep.server import requests


class Sender:
    """Somebody who sends a part of a request, and then leaves or stays."""

    def __init__(self, *, leaves: bool) -> None:
        self.status, self.headers, self.text = 0, dict[str, str](), ""
        self._leaves, self._has_sent = leaves, False

    async def send_to(self, application: Any, path: str) -> None:
        """Send it, and wait until the server is done with it."""
        scope = {
            "type": "http", "method": "POST", "path": path, "root_path": "", "query_string": b"", "scheme": "http",
            "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer ann"), (b"content-length", b"100")],
            "server": ("localhost", 80), "client": ("127.0.0.1", 1), "http_version": "1.1",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
        }  # fmt: skip
        await asyncio.wait_for(application(scope, self._receive, self._send), 20)

    async def _receive(self) -> dict[str, Any]:
        if not self._has_sent:
            self._has_sent = True
            return {"type": "http.request", "body": b"{", "more_body": True}
        if not self._leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        self.text += message.get("body", b"").decode()


def faces(served: Any, **options: Any) -> Any:
    rest = rest_app(served._store, auth=served.authenticate, prefix="")
    return site({"/v1": served.application(prefix=""), "/api": rest}, **options)


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
