"""The server over each kind of database, called by OpenAI's own client, which validates every answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from openai import OpenAI

from tests.databases import Database
from tests.server.scripts import FORMATS, Scripted
from threadkeep import AsyncStore
from threadkeep.http import Owner, app, rest_app

MAKERS: dict[str, Callable[..., Any]] = {"openai": app, "responses": app, "rest": rest_app}


class Bridge(httpx2.BaseTransport):
    """Calls an ASGI application from blocking code."""

    def __init__(self, runner: asyncio.Runner, application: Any) -> None:
        self._runner = runner
        self._transport = httpx2.ASGITransport(app=application, raise_app_exceptions=False)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        async def answered() -> httpx2.Response:
            given = httpx2.Request(request.method, request.url, headers=request.headers, content=request.read())
            response = await self._transport.handle_async_request(given)
            content = await response.aread()
            return httpx2.Response(response.status_code, headers=response.headers, content=content)

        return self._runner.run(answered())


class Served:
    """A server for one test: its store, and clients for users of its tenant."""

    def __init__(self, store: AsyncStore, runner: asyncio.Runner, tenant: str) -> None:
        self._store, self.runner, self.tenant = store, runner, tenant
        self.store: AsyncStore = runner.run(store.for_tenant(tenant))

    def application(self, **options: Any) -> Any:
        return app(self._store, **{"auth": self.authenticate, **options})

    def authenticate(self, request: Any) -> Owner | None:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        return Owner(user_id=key or None, tenant=self.tenant) if key != "nobody" else None

    def http(self, user: str = "ann", **options: Any) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {user}"}
        transport = Bridge(self.runner, self.application(**options))
        return httpx2.Client(transport=transport, base_url="http://localhost/v1", headers=headers)

    def client(self, user: str = "ann", **options: Any) -> OpenAI:
        transport = Bridge(self.runner, self.application(**options))
        return OpenAI(
            base_url="http://localhost/v1",
            api_key=user,
            http_client=httpx2.Client(transport=transport),
            max_retries=0,
            _strict_response_validation=True,
        )

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """What a coroutine function of the store returns."""
        return self.runner.run(function(*args, **options))


@pytest.fixture(scope="module")
def opened(database: Database) -> Iterator[tuple[AsyncStore, asyncio.Runner]]:
    with asyncio.Runner() as runner:
        store = AsyncStore(database.url, tenants=True)
        yield store, runner
        runner.run(store.close())


@pytest.fixture
def served(opened: tuple[AsyncStore, asyncio.Runner]) -> Served:
    store, runner = opened
    name = uuid4().hex
    runner.run(store.create_tenant(name))
    return Served(store, runner, name)


@pytest.fixture
def client(served: Served) -> OpenAI:
    return served.client()


@pytest.fixture
def http(served: Served) -> httpx2.Client:
    return served.http()


@pytest.fixture(params=FORMATS)
def scripted(request: pytest.FixtureRequest) -> Scripted:
    """An upstream of each format."""
    return Scripted(request.param)


@pytest.fixture
def one() -> Scripted:
    """An upstream of the format that most hosts speak."""
    return Scripted("chat_completion")
