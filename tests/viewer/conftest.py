"""The viewer over each kind of database, called without a network in between."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from sqlalchemy import event

from tests.databases import Database
from tests.server.conftest import Bridge
from threadkeep import AsyncStore, Store
from threadkeep.viewer import Owner, app

MAX_STATEMENTS = 8


def text_of_tree(page: str) -> str:
    """The text of JSON that folds."""
    lines = re.findall(r'class="l">(.*?)</(?:div|summary)>', page)
    return html.unescape(re.sub("<[^>]*>", "", "\n".join(lines)))


class Pages:
    """A viewer for one test: a blocking store of its tenant, and what users see of it."""

    def __init__(self, shared: AsyncStore, store: Store, runner: asyncio.Runner, tenant: str) -> None:
        self.shared, self.store, self.runner, self.tenant = shared, store, runner, tenant

    def application(self, **options: Any) -> Any:
        return app(self.shared, **{"auth": self.authenticate, **options})

    def authenticate(self, request: Any) -> Owner | None:
        user = request.headers.get("authorization", "").removeprefix("Bearer ")
        return None if user in ("", "nobody") else Owner(user_id=None if user == "all" else user, tenant=self.tenant)

    def client(self, user: str = "all", **options: Any) -> httpx2.Client:
        transport = Bridge(self.runner, self.application(**options))
        headers = {"Authorization": f"Bearer {user}"} if user else {}
        return httpx2.Client(transport=transport, base_url="http://localhost", headers=headers)

    def get(self, path: str, user: str = "all", status: int = 200) -> str:
        response = self.client(user).get(path)
        assert response.status_code == status, response.text
        assert response.headers["content-security-policy"].startswith("default-src 'none'")
        return response.text

    def statements(self, path: str) -> int:
        """How many statements a page takes once what all conversations share is known."""
        self.get(path)
        counted: list[str] = []
        engine = self.shared.sync.handle.root.engine

        def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            counted.append(statement)

        event.listen(engine, "before_cursor_execute", count)
        try:
            self.get(path)
        finally:
            event.remove(engine, "before_cursor_execute", count)
        return len(counted)


@pytest.fixture(scope="module")
def shared(database: Database) -> Iterator[tuple[AsyncStore, Store, asyncio.Runner]]:
    with asyncio.Runner() as runner, Store(database.url, tenants=True) as store:
        opened = AsyncStore(database.url, tenants=True)
        yield opened, store, runner
        runner.run(opened.close())


@pytest.fixture
def pages(shared: tuple[AsyncStore, Store, asyncio.Runner]) -> Pages:
    opened, store, runner = shared
    name = uuid4().hex
    return Pages(opened, store.create_tenant(name), runner, name)
