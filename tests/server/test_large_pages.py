"""Large items: what is made of them is made in a thread, on each route that shows them, and others go on meanwhile."""

from __future__ import annotations

import base64
import threading
from typing import Any

import httpx2
import pytest

from tests.server.conftest import MAKERS, Bridge, Served
from threadkeep import StoredItem
from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.store.media import cutting, rows

LARGE, SMALL = 600_000, 40
COUNT = 3


class Threads:
    """Counts the calls of a function by whether they are made in the thread of the event loop."""

    def __init__(self) -> None:
        self.in_loop = self.aside = 0

    def counted(self, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                self.in_loop += 1
            else:
                self.aside += 1
            return function(*args, **options)

        return call


def texts(size: int) -> list[JsonObject]:
    return [{"type": "message", "role": "user", "content": "a" * size}] * COUNT


def pictures(size: int) -> list[JsonObject]:
    contents = [bytes([index]) * size for index in range(COUNT)]
    urls = ["data:image/png;base64," + base64.b64encode(content).decode() for content in contents]
    return [{"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": url}]} for url in urls]


ROUTES = {
    "a page of items": ("openai", "items?limit=100", COUNT),
    "one item": ("openai", "items/{item}", 1),
    "a page of messages": ("rest", "messages?limit=100", COUNT),
    "one message": ("rest", "messages/{item}", 1),
}


@pytest.mark.parametrize("size", [LARGE, SMALL])
@pytest.mark.parametrize("route", ROUTES)
def test_large_items_are_shown_aside(served: Served, route: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, (face, path, count) = Threads(), ROUTES[route]
    made = served.call(served.store.for_user("ann").create_conversation, model="m")
    items = served.call(made.add_items, texts(size))
    for owner, name in ((StoredItem, "canonical"), (ItemEntry, "item")):
        monkeypatch.setattr(owner, name, threads.counted(getattr(owner, name)))
    page = get(served, face, f"/conversations/{made.id}/{path.format(item=items[0].id)}")
    shown = page.get("data", [page])
    assert [message_text(one) for one in shown] == ["a" * size] * count
    assert threads.in_loop + threads.aside >= 2 * count
    if size == LARGE:
        assert threads.in_loop == 0


def test_large_media_are_put_into_their_items_aside(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads()
    made = served.call(served.store.for_user("ann").create_conversation, model="m")
    items = served.call(made.add_items, pictures(LARGE))
    given = [item.to_object()["content"][0]["image_url"] for item in items]
    monkeypatch.setattr(rows, "splice_media", threads.counted(cutting.splice_media))
    page = get(served, "openai", f"/conversations/{made.id}/items?limit=100&order=asc")
    assert [item["content"][0]["image_url"] for item in page["data"]] == given
    assert (threads.in_loop, threads.aside) == (0, 1)


def get(served: Served, face: str, path: str) -> Any:
    application = MAKERS[face](served._store, auth=served.authenticate, prefix="")
    transport, headers = Bridge(served.runner, application), {"Authorization": "Bearer ann"}
    with httpx2.Client(transport=transport, base_url="http://localhost", headers=headers) as http:
        return http.get(path).raise_for_status().json()


def message_text(shown: Any) -> str:
    text: str = shown.get("item", shown)["content"][0]["text"]
    return text
