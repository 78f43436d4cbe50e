"""A recorder over each kind of database, between clients and a scripted provider: three real servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from tests.databases import Database
from tests.server.recorder.provider import Provider, serving
from tests.server.servers import running
from tests.waiting import wait_until
from threadkeep import AsyncStore, Conversation, Store
from threadkeep.http import Owner, RecordedUpstream, recorder_app, site

FORMATS = ("chat_completion", "messages", "open_responses", "gemini", "interactions")


@dataclass
class Recorded:
    """A recorder at `url`, in front of a provider at `direct`, and what it has stored."""

    url: str
    direct: str
    provider: Provider
    store: Store
    application: Any
    tenant: str
    database: Database

    @contextmanager
    def gone_database(self) -> Iterator[None]:
        """As long as this lasts, every statement about conversations fails."""
        engine = self.database.engine()
        names = "threadkeep_conversations", "threadkeep_gone"
        rename = "ALTER TABLE {} RENAME TO {}"
        with engine.begin() as connection:
            connection.execute(text(rename.format(*names)))
        try:
            yield
        finally:
            with engine.begin() as connection:
                connection.execute(text(rename.format(*reversed(names))))

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.application.state.collector.counters.counts())

    def wait_for(self, calls: int = 1, **others: int) -> None:
        """Wait until so many calls are recorded, and so many have failed, are dropped or unreadable."""
        wanted = {"recorded": calls, "failed": 0, "dropped": 0, "unreadable": 0, **others}
        wait_until(lambda: self.counts == wanted, lambda: f"{self.counts} instead of {wanted}")

    def wait_until_idle(self) -> None:
        """Wait until nothing waits to be recorded."""
        wait_until(lambda: self.application.state.health()["waiting_bytes"] == 0, self.application.state.health)

    def conversations(self) -> list[Conversation]:
        return list(self.store.list_conversations(status=None, order_by="created", order="asc"))


def said(conversation: Conversation) -> list[str]:
    """Who said what, and which calls there were."""
    lines = []
    for stored in conversation.transcript():
        item = stored.item.to_object()
        match item["type"]:
            case "message":
                content = item["content"]
                text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
                lines.append(f"{item['role']}: {text}")
            case "function_call":
                lines.append(f"{item['name']}({item['arguments']})")
            case "function_call_output":
                lines.append(f"= {item['output'] if isinstance(item['output'], str) else item['output'][0]['text']}")
            case kind:
                lines.append(kind)
    return lines


@contextmanager
def recorder(database: Database, **options: Any) -> Iterator[Recorded]:
    """A recorder for a tenant of its own; with `limits`, those of a server around it; `parser`: its parser of HTTP."""
    tenant, provider = uuid4().hex, Provider()
    with Store(database.url, tenants=True) as store, serving(provider) as direct:
        scoped = store.create_tenant(tenant)
        options.setdefault("auth", lambda _: Owner(tenant=tenant))
        upstreams = options.pop("upstreams", None) or [RecordedUpstream("provider", "messages", direct)]
        limits, parser = options.pop("limits", None), options.pop("parser", "auto")
        application = recorder_app(AsyncStore(database.url, tenants=True), upstreams, **options)
        served = application if limits is None else site({"": application}, limits=limits)
        with running(served, parser=parser) as url:
            try:
                yield Recorded(url, direct, provider, scoped, application, tenant, database)
            finally:
                provider.release.set()  # whom nobody waits for any more


@pytest.fixture
def recorded(database: Database) -> Iterator[Recorded]:
    with recorder(database) as made:
        yield made
