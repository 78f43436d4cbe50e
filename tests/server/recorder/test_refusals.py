"""What is refused while it passes: bodies beyond the limit, and calls with keys that count no longer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.databases import Database
from tests.server.recorder.conftest import Recorded, recorder, said
from tests.server.recorder.provider import stream, whole
from tests.server.recorder.test_trouble import MESSAGES, PARTS, STREAM, post
from tests.waiting import wait_until
from threadkeep.http import Limits, Owner, RecordedUpstream
from threadkeep.server import permissions as following

LIMITS = Limits(max_body_bytes=1_000)


def chunks(size: int = 600) -> Iterator[bytes]:
    for _ in range(3):
        yield b"x" * size


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/files"])
def test_a_chunked_body_beyond_the_limit_is_refused(database: Database, path: str) -> None:
    with recorder(database, limits=LIMITS) as recorded:
        recorded.provider.says(*[whole("messages", "Fine.") for _ in range(2)])
        answer = httpx2.post(f"{recorded.url}{path}", content=chunks())
        assert (answer.status_code, answer.json()["error"]["message"]) == (413, "The body exceeds 1,000 bytes.")
        recorded.wait_until_idle()
        assert recorded.conversations() == []
        assert post(recorded, MESSAGES).status_code == 200


def test_a_body_beyond_what_is_read_at_once_is_refused(database: Database) -> None:
    with recorder(database, max_bodies_bytes=2_000_000) as recorded:  # of which an owner has three quarters
        recorded.provider.says(*[whole("messages", "Fine.") for _ in range(2)])
        answer = httpx2.post(f"{recorded.url}/v1/messages", content=chunks(600_000))
        assert (answer.status_code, answer.headers.get("retry-after")) == (429, "5")
        message = "Too many bytes of bodies are under way with this key."
        assert answer.json()["error"]["message"] == message
        recorded.wait_until_idle()
        assert recorded.conversations() == []
        assert post(recorded, MESSAGES).status_code == 200


def test_the_rest_of_a_body_beyond_the_limit_is_not_read(database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    nobody = RecordedUpstream("nobody", "messages", f"http://127.0.0.1:{port}")
    with recorder(database, upstreams=[nobody], limits=LIMITS) as recorded:
        assert httpx2.post(f"{recorded.url}/v1/messages", content=chunks()).status_code == 502


class Keys:
    """Who may call: the owners of keys."""

    def __init__(self) -> None:
        self.owners: dict[str, Owner] = {}

    def __call__(self, request: Any) -> Owner | None:
        return self.owners.get(request.headers.get("authorization", ""))


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    """Keys that are soon asked for again."""
    monkeypatch.setattr(following, "RECHECK_SECONDS", 0.1)
    return Keys()


def called_with(recorded: Recorded, where: str) -> tuple[str, dict[str, str]]:
    """The URL and headers of a call with a key."""
    if where == "path":
        return f"{recorded.url}/k/key-of-ann/v1/messages", {}
    return f"{recorded.url}/v1/messages", {"x-threadkeep-key": "key-of-ann"}


@pytest.mark.parametrize("where", ["header", "path"])
def test_a_stream_ends_with_its_key(database: Database, keys: Keys, where: str) -> None:
    with recorder(database, auth=keys) as recorded:
        keys.owners["Bearer key-of-ann"] = Owner(tenant=recorded.tenant)
        recorded.provider.says(stream("messages", PARTS, hold_after=4))
        url, headers = called_with(recorded, where)
        with httpx2.stream("POST", url, json=STREAM, headers=headers, timeout=15) as answer:
            came = answer.iter_text()
            text = next(came)
            while "two, " not in text:
                text += next(came)
            keys.owners.clear()
            with pytest.raises(httpx2.RemoteProtocolError):
                next(came)
        assert recorded.provider.was_left.wait(20)
        recorded.wait_for(1)
        [conversation] = recorded.conversations()
        assert said(conversation) == ["user: Hi", "assistant: One, two, "]
        assert [response.status for response in conversation.responses()] == ["incomplete"]
        assert httpx2.post(url, json=STREAM, headers=headers).status_code == 401


def test_a_call_without_an_answer_ends_with_its_key(database: Database, keys: Keys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = RecordedUpstream("silent", "messages", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with recorder(database, auth=keys, upstreams=[nobody]) as recorded, ThreadPoolExecutor(1) as others:
            keys.owners["Bearer key-of-ann"] = Owner(tenant=recorded.tenant)
            call = others.submit(post, recorded, headers={"x-threadkeep-key": "key-of-ann"}, timeout=15)
            silent.settimeout(20)
            provider, _ = silent.accept()
            with provider:
                wait_until(recorded.conversations, lambda: "the request is not stored")
                keys.owners.clear()
                answer = call.result(20)
            assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
            recorded.wait_for(1)
            [row] = recorded.store.usage(by="status")
            assert (row.status, row.attempts) == ("failed", 1)


def test_a_stream_goes_on_as_long_as_its_key_counts(database: Database, keys: Keys) -> None:
    with recorder(database, auth=keys) as recorded:
        keys.owners["Bearer key-of-ann"] = Owner(tenant=recorded.tenant)
        reply = stream("messages", PARTS, pause=0.1)
        recorded.provider.says(reply)
        answer = post(recorded, STREAM, headers={"x-threadkeep-key": "key-of-ann"})
        assert answer.content == b"".join(reply.chunks)
