"""Clients and providers that send a byte at a time: the deadlines end them, and nothing else waits for them."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from tests.databases import Database
from tests.server.hostile.providers import ASKED, TEXT, Script, delta, sse
from tests.server.hostile.test_clients import COUNT, Place, head, placed
from tests.waiting import wait_until
from threadkeep.domain.ids import response_id

PAUSE = 0.02  # between two bytes
SECONDS = 1.0  # for which a request may last …
HEAD_SECONDS = 2.0  # … and its head
PATIENCE = 0.25  # that others have …
LATE = 4.0  # … and how much later than its deadline a request may be over, on a busy machine

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_database, pytest.mark.share(3)]


def check_others(place: Place) -> None:
    """Check that the server answers others as if nothing were; the machine may have other work once or twice."""
    waits = []
    for _ in range(3):
        begun = time.monotonic()
        assert httpx2.get(f"{place.url}/healthz", timeout=20).status_code == 200
        waits.append(time.monotonic() - begun)
    assert min(waits) < PATIENCE
    assert httpx2.post(f"{place.url}/v1/conversations", json={}, timeout=20).status_code == 200


def sent_slowly(clients: list[socket.socket], byte: bytes) -> Iterator[None]:
    """A byte of each client at a time, as long as the server takes them."""
    for client in clients:
        client.setblocking(False)
    while clients:
        for client in [*clients]:
            try:
                client.send(byte)
                client.recv(1, socket.MSG_PEEK)
                clients.remove(client)  # it was answered, or its connection is closed
            except BlockingIOError:
                continue
            except OSError:
                clients.remove(client)
        yield
        time.sleep(PAUSE)


@pytest.mark.parametrize("face", ["openai", "rest", "recorder"])
def test_a_body_that_comes_byte_by_byte_has_as_long_as_any_request(database: Database, face: str) -> None:
    with placed(database, seconds=SECONDS) as place, ExitStack() as stack:
        clients = [stack.enter_context(place.client()) for _ in range(COUNT)]
        for client in clients:
            client.sendall(head(face, "content-length: 100000"))
        begun = time.monotonic()
        for number, _ in enumerate(sent_slowly([*clients], b" ")):
            if number % 25 == 0:
                check_others(place)
        assert SECONDS * 0.9 < time.monotonic() - begun < SECONDS + LATE
        for client in clients:
            client.setblocking(True)
            assert client.recv(12) == b"HTTP/1.1 504"
        wait_until(lambda: not place.in_flight())
        assert place.store.usage(by="status") == []


def test_a_head_that_comes_byte_by_byte_has_as_long_as_any_head(database: Database) -> None:
    with placed(database) as place, ExitStack() as stack:
        clients = [stack.enter_context(place.client()) for _ in range(COUNT)]
        for client in clients:
            client.sendall(head("openai")[:-2] + b"x: ")
        begun = time.monotonic()
        for number, _ in enumerate(sent_slowly(clients, b"x")):
            if number % 25 == 0:
                check_others(place)
        assert HEAD_SECONDS * 0.9 < time.monotonic() - begun < HEAD_SECONDS + LATE


def bytes_of(*pieces: bytes) -> Iterator[bytes]:
    """What never ends, byte by byte, after what is sent at once."""
    yield pieces[0]
    yield from (bytes([byte]) for piece in itertools.cycle(pieces[1:]) for byte in piece)


BEGUN = sse(delta(TEXT))
JSON = "content-type: application/json"
# what a provider sends at once, and then without an end
SLOW: dict[str, tuple[bytes, bytes, dict[str, Any]]] = {
    "an event": (BEGUN, b"data: x", {}),
    "events": (BEGUN, sse(delta("!")), {}),
    "comments": (BEGUN, b": here\n\n", {}),
    "nothing": (b"", b": here\n\n", {}),
    "an error": (b"", b" ", {"status": "500 Oh", "headers": (JSON,)}),
}


def slow(kind: str) -> Script:
    first, rest, options = SLOW[kind]
    return Script(bytes_of(first, rest), pause=PAUSE, **options)


def statuses(place: Place) -> list[str | None]:
    """Of what is stored, once the provider is left."""
    wait_until(lambda: place.provider.tasks and all(task.done() for task in place.provider.tasks))
    return [one.status for talk in place.store.list_conversations() for one in talk.responses()]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", SLOW)
def test_an_answer_that_comes_byte_by_byte_has_as_long_as_any_request(
    database: Database, kind: str, *, stream: bool
) -> None:
    has_begun = SLOW[kind][0] != b""
    with placed(database, slow(kind), SECONDS) as place:
        begun = time.monotonic()
        body = {"model": "m", "input": "Hi", "stream": stream}
        with httpx2.stream("POST", f"{place.url}/v1/responses", json=body, timeout=20) as response:
            check_others(place)
            text = response.read().decode()
        assert SECONDS * 0.9 < time.monotonic() - begun < SECONDS + LATE
        assert (response.status_code, '"code":"timeout"' in text) == (200 if stream and has_begun else 504, True)
        assert statuses(place) == [("incomplete" if stream else "cancelled")] * has_begun


@pytest.mark.parametrize("kind", SLOW)
def test_an_answer_that_passes_byte_by_byte_has_as_long_as_any_request(database: Database, kind: str) -> None:
    with placed(database, slow(kind), SECONDS) as place:
        begun, body = time.monotonic(), {"model": "m", "stream": True, **ASKED["chat_completion"]}
        with httpx2.stream("POST", f"{place.url}/record/v1/chat/completions", json=body, timeout=20) as response:
            check_others(place)
            with pytest.raises(httpx2.RemoteProtocolError):  # the end must not look like one
                response.read()
        assert SECONDS * 0.9 < time.monotonic() - begun < SECONDS + LATE
        stored = ["incomplete"] * (kind != "an error")
        wait_until(lambda: statuses(place) == stored and len(place.store.usage(by="status")) == 1)


# what is asked of which face, where a provider is waited for that long
ASKING: dict[str, tuple[str, dict[str, Any]]] = {
    "background": ("openai", {"background": True}),
    "background over rest": ("rest", {"background": True}),
    "left over rest": ("rest", {"stream": True}),
    "attended": ("openai", {}),
}


@pytest.mark.parametrize(
    ("asking", "kind"), [(asking, kind) for asking in ASKING for kind in SLOW if "left" not in asking or SLOW[kind][0]]
)
def test_an_answer_has_so_long_in_total_whether_its_client_waits_or_not(
    database: Database, kind: str, asking: str
) -> None:
    has_begun, (face, how) = SLOW[kind][0] != b"", ASKING[asking]
    with placed(database, slow(kind), max_answer_seconds=SECONDS) as place:
        url, body = f"{place.url}/v1/responses", {"model": "m", "input": "Hi", **how}
        if face == "rest":
            talk = place.store.create_conversation(model="m")
            url, body = f"{place.url}/api/conversations/{talk.id}/messages", {"content": "Hi", **how}
        begun = time.monotonic()
        with httpx2.stream("POST", url, json=body, timeout=20) as response:
            if "left" not in asking:
                response.read()
        assert response.is_success == (has_begun or "background" in how)
        expected = ["incomplete" if has_begun else "failed"] if response.is_success else []
        wait_until(lambda: statuses(place) == expected, lambda: statuses(place))
        assert SECONDS * 0.9 < time.monotonic() - begun < SECONDS + LATE
        [row] = place.store.usage(by="status")
        assert (row.attempts, row.status) == (1, (*expected, "failed")[0])


def test_over_rest_an_answer_that_comes_byte_by_byte_goes_on_until_it_is_cancelled(database: Database) -> None:
    with placed(database, slow("events"), 3 * SECONDS) as place:  # cancelling takes some, too
        id_ = place.store.create_conversation(model="m").id
        url = f"{place.url}/api/conversations/{id_}/messages"
        answer = httpx2.post(url, json={"content": "Hi"}, timeout=20)
        assert answer.status_code == 504
        check_others(place)
        response = f"{place.url}/api/responses/{response_id(id_, 0)}"
        assert httpx2.get(response, timeout=20).json()["status"] == "in_progress"
        httpx2.post(f"{response}/cancel", timeout=20).raise_for_status()
        wait_until(lambda: statuses(place) == ["cancelled"])
