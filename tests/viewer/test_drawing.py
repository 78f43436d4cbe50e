"""Pages and files are made apart from the calls of the store, and of nobody more than others can wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from threading import Event
from typing import Any

import httpx2

from tests.server.callers import http_scope
from tests.viewer.conftest import Pages
from tests.viewer.samples import with_tools
from threadkeep.server.owners import Owner
from threadkeep.viewer import pages as drawing


@asynccontextmanager
async def busy(application: Any) -> AsyncIterator[Event]:
    """While somebody's pages and file are being made, until the event is set."""
    done, made = Event(), application.state.viewer.drawing
    work = [made.page(Owner(user_id=f"other {number}"), done.wait) for number in range(20)]
    tasks = [asyncio.ensure_future(one) for one in (*work, made.file(done.wait))]
    await asyncio.sleep(0)
    try:
        yield done
    finally:
        done.set()
        await asyncio.gather(*tasks)


def client(application: Any, user: str) -> httpx2.AsyncClient:
    transport, headers = httpx2.ASGITransport(app=application), {"Authorization": f"Bearer {user}"}
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)


def test_what_takes_long_keeps_no_call_of_the_store_waiting(pages: Pages) -> None:
    with_tools(pages.store)

    async def look() -> list[int]:
        application = pages.application()
        async with busy(application), client(application, "all") as http:
            answers = [await http.get(path) for path in ("/", "/usage", "/search?q=train") for _ in range(5)]
        return [answer.status_code for answer in answers]

    assert set(pages.runner.run(look())) == {200}


def test_a_file_is_made_for_each_owner_alone(pages: Pages) -> None:
    """More are refused, and the first one is there in the end."""
    users = [f"user {number}" for number in range(drawing.MAX_FILES + 1)]
    made = {user: pages.store.for_user(user).create_conversation(input="Hi").id for user in users}

    async def download() -> list[tuple[int, str | None]]:
        application = pages.application()

        async def file_of(user: str) -> httpx2.Response:
            async with client(application, user) as http:
                return await http.get(f"/c/{made[user]}/export/html")

        async with busy(application) as done:
            waiting = [asyncio.ensure_future(file_of(user)) for user in users[:-1]]
            for _ in range(2_000):
                if len(application.state.viewer.drawing._files) == len(waiting):
                    break
                await asyncio.sleep(0.005)
            refused = [await file_of(user) for user in (users[0], users[-1])]
            done.set()
            answers = [*refused, *await asyncio.gather(*waiting), await file_of(users[-1])]
        return [(answer.status_code, answer.headers.get("retry-after")) for answer in answers]

    assert pages.runner.run(download()) == [(429, "5"), (503, "5"), *[(200, None)] * len(users)]


def test_a_file_for_a_client_that_has_left_is_made_of_nothing(pages: Pages) -> None:
    made = pages.store.create_conversation(input="A *long* text.")
    path = f"/c/{made.id}/export/html"

    async def leave() -> bytes:
        application, body = pages.application(), bytearray()
        messages: Iterator[dict[str, Any]] = iter(
            [{"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}]
        )
        has_left = asyncio.Event()

        async def receive() -> Any:
            message = next(messages)
            if message["type"] == "http.disconnect":
                has_left.set()
            return message

        async def send(message: Any) -> None:
            body.extend(message.get("body", b""))

        scope = http_scope(path, headers={"authorization": "Bearer all"})
        async with busy(application) as done:
            task = asyncio.ensure_future(application(scope, receive, send))
            await has_left.wait()
            done.set()
            await task
        return bytes(body)

    document = pages.runner.run(leave())
    assert b"<!doctype html>" in document
    assert b"long" not in document.partition(b'<article class="item')[2]


def test_the_pages_of_one_owner_are_made_one_after_another() -> None:
    """Who asks for many waits for these; somebody else's page is made beside the first of them."""

    async def make() -> list[bool]:
        made, ben_was_here = drawing.Drawing(), Event()
        of_ann = [made.page(Owner(user_id="ann"), ben_was_here.wait, 20) for _ in range(5)]
        of_ben = made.page(Owner(user_id="ben"), ben_was_here.set)
        found, _ = await asyncio.gather(asyncio.gather(*of_ann), of_ben)
        return found

    assert asyncio.run(make()) == [True] * 5
