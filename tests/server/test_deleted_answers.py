"""Answers whose conversation is deleted while they come: the one bill has the tokens that the provider told."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from websockets.sync.client import connect

from tests.databases import Database
from tests.server.scripts import FORMATS, script
from tests.server.servers import running
from tests.waiting import wait_until
from threadkeep import AsyncStore, Store
from threadkeep.http import Owner, Upstream, app, rest_app

HEADERS = {"authorization": "Bearer key"}


class Deleting:
    """A provider before whose last event, which has its usage, the conversation is deleted."""

    def __init__(self, store: AsyncStore, tenant: str, format_: Any, *, is_erasing: bool) -> None:
        self.store, self.tenant, self.is_erasing = store, tenant, is_erasing
        self.upstream = Upstream("own", format_, self.ask)

    async def ask(self, _payload: Any, _model: str) -> AsyncGenerator[Any]:
        *events, last = script(self.upstream.format, ["One, ", "two."])
        for event in events:
            yield event
        store = await self.store.for_tenant(self.tenant)
        for conversation in await store.list_conversations(status=None):
            await (store.erase_user("ann") if self.is_erasing else store.delete_conversation(conversation.id))
        yield last


@contextmanager
def deleting(
    database: Database, make: Callable[..., Any], format_: Any, *, is_erasing: bool = False
) -> Iterator[tuple[str, Store]]:
    """The URL of a server whose provider is one that deletes, and what it stores."""
    tenant = uuid4().hex
    with Store(database.url, tenants=True) as store:
        scoped, served = store.create_tenant(tenant), AsyncStore(database.url, tenants=True)
        provider = Deleting(served, tenant, format_, is_erasing=is_erasing)
        application = make(served, auth=lambda _: Owner("ann", tenant), prefix="", upstreams={"*": provider.upstream})
        with running(application, served) as url:
            yield url, scoped


def post(path: str, **body: Any) -> Callable[[str, str], None]:
    """Ask in a conversation, and read what comes."""

    def ask(url: str, conversation: str) -> None:
        place = path.format(conversation=conversation)
        given = {"conversation": conversation} if place == "/responses" else {}
        answer = httpx2.post(url + place, json={"model": "m", **given, **body}, headers=HEADERS, timeout=30)
        assert answer.status_code in (200, 404), answer.text

    return ask


def talk(url: str, conversation: str) -> None:
    """Ask over a WebSocket, and read up to the end of the answer."""
    with connect(url.replace("http", "ws") + "/responses", additional_headers=HEADERS) as connection:
        body = {"type": "response.create", "model": "m", "input": "Hi", "conversation": conversation}
        connection.send(json.dumps(body))
        kinds = [""]
        while kinds[-1] not in ("response.completed", "error"):
            kinds.append(json.loads(connection.recv(30))["type"])
        assert kinds[-1] == "error"


FACES: dict[str, tuple[Callable[..., Any], Callable[[str, str], None]]] = {
    "plain": (app, post("/responses", input="Hi")),
    "stream": (app, post("/responses", input="Hi", stream=True)),
    "background": (app, post("/responses", input="Hi", background=True)),
    "background stream": (app, post("/responses", input="Hi", background=True, stream=True)),
    "websocket": (app, talk),
    "chat": (app, post("/chat/completions", messages=[{"role": "user", "content": "Hi"}], store=True)),
    "chat stream": (
        app,
        post("/chat/completions", messages=[{"role": "user", "content": "Hi"}], store=True, stream=True),
    ),
    "rest": (rest_app, post("/conversations/{conversation}/messages", content="Hi", model="m")),
}


def assert_whole_bill(store: Store) -> None:
    wait_until(lambda: [row.output_tokens for row in store.usage(by="status")] == [7], lambda: store.usage(by="status"))
    [row] = store.usage(by=("status", "provider"))
    assert (row.attempts, row.status, row.input_tokens, row.provider) == (1, "completed", 11, "own")
    assert store.purge_deleted() == 0
    assert list(store.list_conversations(status=None)) == []


@pytest.mark.parametrize("face", FACES)
def test_the_one_bill_has_what_the_provider_told(
    database: Database, face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadkeep.store.streaming.background.GATHER_SECONDS", 60)  # no batch says it is deleted
    make, ask = FACES[face]
    with deleting(database, make, "open_responses") as (url, store):
        conversation = store.create_conversation(user_id="ann")
        ask(url, conversation.id)
        assert_whole_bill(store)


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("is_erasing", [False, True], ids=["deleted", "erased"])
def test_so_it_is_in_every_format_and_for_users_who_are_erased(
    database: Database, format_: str, is_erasing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadkeep.store.streaming.background.GATHER_SECONDS", 60)
    with deleting(database, app, format_, is_erasing=is_erasing) as (url, store):
        conversation = store.create_conversation(user_id="ann")
        FACES["stream"][1](url, conversation.id)
        assert_whole_bill(store)
        [row] = store.usage(by="user_id")
        assert row.user_id == (None if is_erasing else "ann")
