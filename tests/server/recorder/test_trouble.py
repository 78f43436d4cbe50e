"""What goes wrong: the client's call goes through, what can be stored is, and the rest is counted."""

from __future__ import annotations

import json
import logging
import socket
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from threading import Semaphore
from typing import Any

import httpx2
import pytest
from sqlalchemy import text

from tests.databases import Database
from tests.server.recorder.conftest import Recorded, recorder, said
from tests.server.recorder.provider import EVENTS, JSON, Reply, stream, whole
from tests.waiting import wait_until
from threadkeep.http import Owner, RecordedUpstream
from threadkeep.server import requests
from threadkeep.server.recorder.worker import RecordingThread

MESSAGES = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
STREAM = {**MESSAGES, "stream": True}
DEFLATE = {"content-encoding": "deflate"}
PARTS = ["One, ", "two, ", "three."]


def post(recorded: Recorded, body: Any = MESSAGES, **options: Any) -> httpx2.Response:
    return httpx2.post(f"{recorded.url}/v1/messages", json=body, **options)


def test_what_came_before_the_client_left_is_stored(recorded: Recorded) -> None:
    recorded.provider.says(stream("messages", PARTS, hold_after=4))
    with httpx2.stream("POST", f"{recorded.url}/v1/messages", json=STREAM) as answer:
        text = ""
        for chunk in answer.iter_text():
            text += chunk
            if "two, " in text:
                break
    assert recorded.provider.was_left.wait(20)
    recorded.wait_for(1)
    [conversation] = recorded.conversations()
    assert said(conversation) == ["user: Hi", "assistant: One, two, "]
    [response] = conversation.responses()
    assert response.status == "incomplete"
    assert conversation.usage().input_tokens == 11


def test_a_client_that_leaves_before_the_answer_is_a_cancelled_attempt(recorded: Recorded) -> None:
    recorded.provider.says(whole("messages", "Late.", hold_after=0))
    url, body = httpx2.URL(recorded.url), json.dumps(MESSAGES).encode()
    head = f"POST /v1/messages HTTP/1.1\r\nhost: {url.host}\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection((url.host, url.port)) as client:
        client.sendall(head.encode() + body)
        wait_until(lambda: recorded.provider.calls != [], lambda: "the provider was not asked")
    assert recorded.provider.was_left.wait(20)
    recorded.wait_for(1)
    [conversation] = recorded.conversations()
    assert said(conversation) == ["user: Hi"]
    [row] = conversation.usage(by="status")
    assert (row.status, row.attempts) == ("cancelled", 1)


def test_a_body_that_does_not_go_on_is_an_error(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.2)
    url = httpx2.URL(recorded.url)
    with socket.create_connection((url.host, url.port), timeout=20) as connection:
        head = f"POST /v1/messages HTTP/1.1\r\nhost: {url.host}\r\ncontent-length: 100\r\n\r\n"
        connection.sendall(head.encode() + b"{")
        assert connection.recv(10_000).startswith(b"HTTP/1.1 408 ")
    recorded.wait_for(0, unreadable=1)


def test_a_provider_that_breaks_off_breaks_off_for_the_client(recorded: Recorded) -> None:
    reply = stream("messages", PARTS, breaks=True)
    reply.chunks = reply.chunks[:4]
    recorded.provider.says(reply)
    with (
        pytest.raises(httpx2.RemoteProtocolError),
        httpx2.stream("POST", f"{recorded.url}/v1/messages", json=STREAM) as answer,
    ):
        answer.read()
    recorded.wait_for(1)
    [conversation] = recorded.conversations()
    assert said(conversation) == ["user: Hi", "assistant: One, two, "]
    assert [response.status for response in conversation.responses()] == ["incomplete"]


def test_a_provider_that_is_not_there_is_an_error_and_an_attempt(database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    nobody = RecordedUpstream("nobody", "messages", f"http://127.0.0.1:{port}")
    with recorder(database, upstreams=[nobody]) as recorded:
        answer = post(recorded)
        assert (answer.status_code, answer.json()["error"]["type"]) == (502, "api_error")
        recorded.wait_for(1)
        [conversation] = recorded.conversations()
        [row] = conversation.usage(by="status")
        assert (row.status, row.attempts) == ("failed", 1)


def test_a_damaged_answer_goes_through_and_is_counted(recorded: Recorded) -> None:
    recorded.provider.says(Reply(200, JSON, [b'{"type": "message", "content": [{']))
    assert post(recorded).text == '{"type": "message", "content": [{'
    recorded.wait_for(0, unreadable=1)
    [conversation] = recorded.conversations()
    assert (said(conversation), conversation.usage().attempts) == (["user: Hi"], 1)


def test_a_damaged_stream_goes_through_as_far_as_it_is_one(recorded: Recorded) -> None:
    reply = stream("messages", PARTS)
    reply.chunks.insert(4, b"data: {what\n\n")
    recorded.provider.says(reply)
    assert post(recorded, STREAM).content == b"".join(reply.chunks)
    recorded.wait_for(0, unreadable=1)
    [conversation] = recorded.conversations()
    assert said(conversation) == ["user: Hi", "assistant: One, two, "]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 7}', b"\xff"], ids=repr)
def test_a_damaged_request_is_the_providers_matter(recorded: Recorded, body: bytes) -> None:
    recorded.provider.says(Reply(400, JSON, [b"{}"]))
    assert httpx2.post(f"{recorded.url}/v1/messages", content=body).status_code == 400
    wait_until(lambda: sum(recorded.counts.values()) == 1, lambda: str(recorded.counts))
    assert recorded.counts["recorded"] == 0
    assert recorded.conversations() == []
    assert recorded.provider.calls[0].body == body


def test_calls_go_on_while_the_database_is_gone(recorded: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    with recorded.gone_database():
        recorded.provider.says(whole("messages", "Fine."), stream("messages", PARTS))
        with caplog.at_level(logging.WARNING, "threadkeep.server.recorder.worker"):
            assert post(recorded).status_code == 200
            assert post(recorded, STREAM).content.endswith(b'"message_stop"}\n\n')
            recorded.wait_for(0, failed=2)
    assert "A call is not recorded" in caplog.text
    recorded.provider.says(whole("messages", "Fine."))
    post(recorded)
    recorded.wait_for(1, failed=2)
    assert len(recorded.conversations()) == 1


def test_what_waits_is_limited(database: Database) -> None:
    with recorder(database, max_waiting_bytes=400) as recorded:
        recorded.provider.says(whole("messages", "Fine."), whole("messages", "x" * 1000))
        post(recorded)
        recorded.wait_for(1)
        assert post(recorded).json()["content"][0]["text"] == "x" * 1000
        recorded.wait_for(1, dropped=1)
        recorded.provider.says(whole("messages", "Fine."))
        post(recorded, {**MESSAGES, "messages": [{"role": "user", "content": "Again"}]})
        recorded.wait_for(2, dropped=1)


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """A small body that is large when it is decompressed."""
    body = {**MESSAGES, "messages": [{"role": "user", "content": "x" * 50_000_000}]}
    return zlib.compress(json.dumps(body).encode(), 9)


def test_a_request_that_is_too_large_when_decompressed_is_not_recorded(database: Database, bomb: bytes) -> None:
    with recorder(database, max_waiting_bytes=1_000_000) as recorded:
        recorded.provider.says(whole("messages", "Fine."), whole("messages", "Fine."))
        assert httpx2.post(f"{recorded.url}/v1/messages", content=bomb, headers=DEFLATE).is_success
        recorded.wait_for(0, dropped=1)
        assert recorded.provider.calls[0].body == bomb
        post(recorded)
        recorded.wait_for(1, dropped=1)
        recorded.wait_until_idle()


@pytest.mark.parametrize("headers", [JSON, EVENTS], ids=["whole", "stream"])
def test_an_answer_that_is_too_large_when_decompressed_passes_and_is_not_kept(
    database: Database, bomb: bytes, headers: Any
) -> None:
    with recorder(database, max_waiting_bytes=100_000_000, max_answer_bytes=1_000_000) as recorded:
        recorded.provider.says(Reply(200, {**headers, **DEFLATE}, [bomb]), whole("messages", "Fine."))
        with httpx2.stream("POST", f"{recorded.url}/v1/messages", json=MESSAGES) as answer:
            assert b"".join(answer.iter_raw()) == bomb
        recorded.wait_for(1)
        [row] = recorded.conversations()[0].usage(by="status")
        assert row.status == ("failed" if headers is JSON else "incomplete")
        post(recorded)
        recorded.wait_for(2)
        recorded.wait_until_idle()


def test_an_answer_that_cannot_wait_is_an_attempt(database: Database, bomb: bytes) -> None:
    with recorder(database, max_waiting_bytes=1_000_000) as recorded:
        recorded.provider.says(Reply(200, {**JSON, **DEFLATE}, [bomb]))
        assert httpx2.post(f"{recorded.url}/v1/messages", json=MESSAGES).is_success
        recorded.wait_for(0, dropped=1)
        [row] = recorded.conversations()[0].usage(by="status")
        assert (row.status, row.attempts) == ("failed", 1)


@pytest.mark.parametrize("encoding", ["deflate", "Deflate, identity"])
def test_compressed_calls_are_recorded(recorded: Recorded, encoding: str) -> None:
    reply = stream("messages", PARTS)
    compressed = zlib.compress(b"".join(reply.chunks))
    reply.headers["content-encoding"], reply.chunks = encoding, [compressed[:9], compressed[9:]]
    recorded.provider.says(reply)
    body = zlib.compress(json.dumps(STREAM).encode())
    httpx2.post(f"{recorded.url}/v1/messages", content=body, headers={"content-encoding": encoding})
    recorded.wait_for(1)
    assert said(recorded.conversations()[0]) == ["user: Hi", "assistant: One, two, three."]


def test_a_body_with_two_encodings_is_not_recorded(recorded: Recorded) -> None:
    recorded.provider.says(whole("messages", "Fine."))
    body = zlib.compress(zlib.compress(json.dumps(MESSAGES).encode()))
    headers = {"content-encoding": "deflate, deflate"}
    assert httpx2.post(f"{recorded.url}/v1/messages", content=body, headers=headers).is_success
    recorded.wait_for(0, unreadable=1)


def test_what_waits_is_stored_when_the_server_stops(database: Database) -> None:
    with recorder(database) as recorded:
        recorded.provider.says(*[whole("messages", "Fine.") for _ in range(20)])
        for number in range(20):
            post(recorded, {**MESSAGES, "messages": [{"role": "user", "content": f"Question {number}"}]})
        store = recorded.store
        assert recorded.counts["recorded"] <= 20
        recorded.provider.release.set()
    del store
    assert recorded.counts == {"recorded": 20, "failed": 0, "dropped": 0, "unreadable": 0}


def test_others_see_nothing_and_nobody_gets_through(database: Database) -> None:
    keys: dict[str, Owner] = {}

    def who(request: Any) -> Owner | None:
        return keys.get(request.headers.get("authorization", ""))

    with recorder(database, auth=who) as recorded:
        tenant = recorded.tenant
        for user in ("ann", "ben"):
            keys[f"Bearer key-of-{user}"] = Owner(user_id=user, tenant=tenant)
        keys["Bearer key-of-eve"] = Owner(user_id="eve", tenant=tenant, scopes=frozenset({"read"}))
        recorded.provider.says(*[whole("messages", "Fine.") for _ in range(3)])
        session = {"X-Claude-Code-Session-Id": "s1", "Authorization": "Bearer of-the-provider"}
        assert post(recorded, headers={**session, "x-threadkeep-key": "key-of-ann"}).status_code == 200
        assert httpx2.post(f"{recorded.url}/k/key-of-ben/v1/messages", json=MESSAGES, headers=session).is_success
        named = {**session, "x-threadkeep-key": "key-of-ben", "x-threadkeep-user": "ann"}
        assert post(recorded, headers=named).status_code == 403
        assert post(recorded, headers={**named, "x-threadkeep-user": "ben"}).is_success
        assert post(recorded, headers={**session, "x-threadkeep-key": "key-of-eve"}).status_code == 403
        assert post(recorded, headers={"Authorization": "Bearer key-of-ann"}).status_code == 401
        recorded.wait_for(3)
        owners = {user: len(list(recorded.store.for_user(user).list_conversations())) for user in ("ann", "ben", "eve")}
        assert owners == {"ann": 1, "ben": 1, "eve": 0}
        for call in recorded.provider.calls:
            assert call.header("authorization") == "Bearer of-the-provider"
            assert (call.target, "key-of" in str(call.headers)) == ("/v1/messages", False)


def test_a_conversation_of_others_is_not_written_to(database: Database) -> None:
    def who(request: Any) -> Owner:
        return Owner(user_id=request.headers["authorization"].removeprefix("Bearer "), tenant=names[0])

    names: list[str] = []
    with recorder(database, auth=who) as recorded:
        names.append(recorded.tenant)
        theirs = recorded.store.for_user("ann").create_conversation(external_id="secret")
        recorded.provider.says(whole("messages", "Fine."), whole("messages", "Fine."))
        for name in ("secret", theirs.id):
            post(recorded, headers={"x-threadkeep-key": "ben", "x-threadkeep-conversation": name})
        recorded.wait_for(2)  # a name of one's own, and an id of others
        assert recorded.store.get_conversation(theirs.id).transcript() == []
        mine = recorded.store.for_user("ben").list_conversations()
        assert [said(one) for one in mine] == [["user: Hi", "assistant: Fine."]] * 2


@contextmanager
def unwritten_parts(recorded: Recorded) -> Iterator[None]:
    """As long as this lasts, nothing more of streams can be written."""
    engine, names = recorded.database.engine(), ("threadkeep_stream_parts", "threadkeep_gone_parts")
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {names[0]} RENAME TO {names[1]}"))
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.execute(text(f"ALTER TABLE {names[1]} RENAME TO {names[0]}"))


def test_a_stream_waits_for_the_database_within_the_limit(database: Database) -> None:
    """Its client gets all of it; what exceeds the limit is not recorded, and counted."""
    with recorder(database, max_waiting_bytes=50_000) as recorded:
        recorded.provider.says(stream("messages", ["x" * 1_000] * 300, hold_after=3), whole("messages", "Fine."))
        with httpx2.stream("POST", f"{recorded.url}/v1/messages", json=STREAM) as answer:
            chunks = answer.iter_raw()
            received, most = len(next(chunks)), 0
            wait_until(
                lambda: bool(recorded.conversations() and recorded.conversations()[0].responses()), lambda: "no stream"
            )
            with unwritten_parts(recorded):
                recorded.provider.release.set()
                for chunk in chunks:
                    received += len(chunk)
                    most = max(most, recorded.application.state.health()["waiting_bytes"])
        assert received > 300_000
        assert most <= 50_000
        wait_until(lambda: recorded.counts["dropped"] + recorded.counts["failed"] == 1, lambda: str(recorded.counts))
        recorded.wait_until_idle()
        post(recorded)
        wait_until(lambda: recorded.counts["recorded"] == 1, lambda: str(recorded.counts))


def test_a_long_stream_is_recorded_whole_as_it_is_written(database: Database) -> None:
    """Only what is not written yet counts."""
    allowed = Semaphore(20)  # so many chunks are under way at most
    reply = stream("messages", ["x" * 1_000] * 400, may_go_on=lambda: allowed.acquire(blocking=False))
    with recorder(database, max_waiting_bytes=150_000) as recorded:
        recorded.provider.says(reply)
        with httpx2.stream("POST", f"{recorded.url}/v1/messages", json=STREAM, timeout=60) as answer:
            size, received = sum(map(len, reply.chunks)) // len(reply.chunks), 0
            health = recorded.application.state.health
            for chunk in answer.iter_raw():
                wait_until(lambda: health()["waiting_bytes"] < 100_000, lambda: str(health()))
                received, before = received + len(chunk), received
                for _ in range(before // size, received // size):
                    allowed.release()
        recorded.wait_for(1)
        assert said(recorded.conversations()[0])[-1] == "assistant: " + "x" * 400_000
        recorded.wait_until_idle()


def test_what_was_written_waits_no_more_though_nothing_follows(database: Database) -> None:
    """A stream that pauses takes nothing from what others may have waiting."""
    allowed, before, then = Semaphore(3), 3, 40
    reply = stream("messages", ["x" * 1_000] * 60, may_go_on=lambda: allowed.acquire(blocking=False))
    with recorder(database) as recorded:
        recorded.provider.says(reply)
        with httpx2.stream("POST", f"{recorded.url}/v1/messages", json=STREAM) as answer:
            chunks, health = answer.iter_raw(), recorded.application.state.health
            wait_until(lambda: recorded.conversations() and recorded.conversations()[0].responses())
            with unwritten_parts(recorded):
                allowed.release(then - before)
                wait_until(lambda: health()["waiting_bytes"] > 30_000, lambda: str(health()))
            wait_until(lambda: health()["waiting_bytes"] < 5_000, lambda: str(health()))
            allowed.release(len(reply.chunks) - then)
            assert b"message_stop" in b"".join(chunks)
        recorded.wait_for(1)
        assert said(recorded.conversations()[0])[-1] == "assistant: " + "x" * 60_000


def test_calls_beyond_the_limit_pass_unrecorded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordingThread, "__init__", partialmethod(RecordingThread.__init__, max_exchanges=1))
    with recorder(database) as recorded:
        recorded.provider.says(stream("messages", PARTS, hold_after=3), whole("messages", "Fine."))
        with httpx2.stream("POST", f"{recorded.url}/v1/messages", json=STREAM) as answer:
            chunks = answer.iter_raw()
            next(chunks)
            assert post(recorded).is_success
            recorded.wait_for(0, dropped=1)
            recorded.provider.release.set()
            assert b"message_stop" in b"".join(chunks)
        wait_until(lambda: sum(recorded.counts.values()) == 2, lambda: str(recorded.counts))
