"""Pages of large objects end early, in either API: a client that walks through them gets everything once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.server.conftest import Bridge
from threadkeep.http import rest_app
from threadkeep.server import pages
from threadkeep.store.reading import items

MOST = 10_000
SIZE = 3_000  # of an object, and what comes with it: three fit
SIZES = [*[SIZE] * 7, 2 * MOST, 10, 2 * MOST, *[SIZE] * 3]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are smaller than they are otherwise."""
    monkeypatch.setattr(pages, "MAX_BYTES", MOST)


@pytest.fixture
def faces(served: Any) -> Iterator[dict[str, httpx2.Client]]:
    """Clients of both APIs."""
    http = served.http()
    transport = Bridge(served.runner, rest_app(served._store, auth=served.authenticate))
    with httpx2.Client(transport=transport, base_url="http://localhost/api", headers=http.headers) as rest:
        yield {"openai": http, "rest": rest}


@pytest.fixture
def conversation(served: Any) -> Any:
    """One with items of these sizes, and a response after them."""
    made = served.call(served.store.for_user("ann").create_conversation, model="m")
    for number, size in enumerate(SIZES):
        served.call(made.user, f"{number} ".ljust(size, "x"))
    return made


def walked(api: httpx2.Client, path: str, **params: Any) -> list[list[Any]]:
    """The pages, from the first one to the last."""
    found: list[list[Any]] = []
    after: dict[str, str] = {}
    while True:
        answer = api.get(path, params={"limit": 100, **params, **after})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found.append(page["data"])
        assert len(page["data"]) == 1 or len(answer.content) < MOST + 500
        assert page["first_id"] == page["data"][0]["id"]
        if not page["has_more"]:
            return found
        after = {"after": page["last_id"]}


def numbers(found: list[list[Any]]) -> list[list[int]]:
    """Which items pages have."""
    items = [[one.get("item", one) for one in page] for page in found]
    return [[int(one["content"][0]["text"].split()[0]) for one in page] for page in items]


ASCENDING = [[0, 1, 2], [3, 4, 5], [6], [7], [8], [9], [10, 11, 12]]
DESCENDING = [[12, 11, 10], [9], [8], [7], [6, 5, 4], [3, 2, 1], [0]]


@pytest.mark.parametrize(("order", "expected"), [("asc", ASCENDING), ("desc", DESCENDING)])
@pytest.mark.parametrize(("face", "path"), [("openai", "items"), ("rest", "messages")])
def test_items_come_once_in_pages_of_so_many_bytes(
    faces: dict[str, httpx2.Client], conversation: Any, face: str, path: str, order: str, expected: list[list[int]]
) -> None:
    found = walked(faces[face], f"/conversations/{conversation.id}/{path}", order=order)
    assert numbers(found) == expected


def test_what_a_response_was_asked_comes_in_such_pages(
    served: Any, faces: dict[str, httpx2.Client], conversation: Any
) -> None:
    answer = {"id": "resp_1", "object": "response", "output": [], "model": "m", "status": "completed"}
    served.call(conversation.add_response, answer, "open_responses")
    assert numbers(walked(faces["openai"], "/responses/resp_1/input_items", order="asc")) == ASCENDING


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("face", ["openai", "rest"])
def test_conversations_come_once_in_such_pages(
    served: Any, faces: dict[str, httpx2.Client], face: str, order: str
) -> None:
    store = served.store.for_user("ann")
    of_size = [{str(number): "x" * 240 for number in range(size // 250)} for size in SIZES]
    made = [served.call(store.create_conversation, labels=labels).id for labels in of_size]
    found = walked(faces[face], "/conversations", order=order)
    assert [one["id"] for page in found for one in page] == (made if order == "asc" else made[::-1])
    expected = ASCENDING if order == "asc" else DESCENDING
    assert [len(page) for page in found] == [len(page) for page in expected]


def test_small_objects_fill_a_page(faces: dict[str, httpx2.Client], served: Any) -> None:
    conversation = served.call(served.store.for_user("ann").create_conversation)
    for number in range(25):
        served.call(conversation.user, str(number))
    path = f"/conversations/{conversation.id}/items"
    assert numbers(walked(faces["openai"], path, order="asc", limit=12)) == [
        [*range(12)], [*range(12, 24)], [24],
    ]  # fmt: skip


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items are read at once, from now on."""
    counts, read_window = list[int](), items.read_window

    def noting(*args: Any, **options: Any) -> Any:
        found = read_window(*args, **options)
        counts.append(len(found))
        return found

    monkeypatch.setattr(items, "read_window", noting)
    return counts


@pytest.mark.parametrize(("face", "path"), [("openai", "items"), ("rest", "messages")])
def test_large_items_are_read_singly(
    faces: dict[str, httpx2.Client], conversation: Any, read: list[int], face: str, path: str
) -> None:
    page = faces[face].get(f"/conversations/{conversation.id}/{path}?limit=100").json()
    assert (len(page["data"]), read) == (3, [3])


@pytest.mark.parametrize("large", [[], [0], [5, 16]], ids=str)
def test_small_items_are_read_in_few_steps(
    faces: dict[str, httpx2.Client], served: Any, read: list[int], large: list[int]
) -> None:
    conversation = served.call(served.store.for_user("ann").create_conversation)
    for number in range(20):
        served.call(conversation.user, f"{number} ".ljust(MOST // 10 if number in large else 0, "x"))
    page = faces["openai"].get(f"/conversations/{conversation.id}/items?limit=20&order=asc").json()
    assert (len(page["data"]), read) == (20, [20])
