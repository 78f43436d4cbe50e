"""Streams that last: how many each owner follows, and that they end with the right to follow them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from tests.server.callers import Caller
from tests.server.conftest import MAKERS
from threadkeep.http import KeyAuthentication, Owner
from threadkeep.server import event_streams
from threadkeep.server import permissions as following
from threadkeep.server.permissions import stream_quota
from threadkeep.server.service import Service
from threadkeep.viewer import app as viewer_app
from threadkeep.viewer import thread

FACES = ["openai", "rest", "viewer"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again after a moment."""
    monkeypatch.setattr(following, "RECHECK_SECONDS", 0.05)
    monkeypatch.setattr(thread, "SECONDS", 0.02)


def served_at(served: Any, face: str, auth: Any) -> Any:
    if face == "viewer":
        return viewer_app(served._store, auth=auth)
    return MAKERS[face](served._store, auth=auth, prefix="")


async def in_progress(store: Any) -> Any:
    """A conversation with a response that somebody records, and the paths at which faces have it."""
    conversation = await store.create_conversation(input="Hi")
    recorder = conversation.stream_response("chat_completion")
    await recorder.__aenter__()
    await recorder.feed({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hello"}}]})
    [response] = await conversation.responses()
    paths = {
        "openai": f"/responses/{response.id}?stream=true", "rest": f"/responses/{response.id}/events",
        "viewer": f"/c/{conversation.id}/tail",
    }  # fmt: skip
    return recorder, paths


@pytest.mark.parametrize("face", FACES)
def test_head_has_the_headers_of_a_stream_and_does_not_follow_it(served: Any, face: str) -> None:
    async def run() -> Caller:
        recorder, paths = await in_progress(served.store.for_user("ann"))
        follower = Caller(served_at(served, face, served.authenticate), paths[face], "ann", "HEAD")
        await follower.answered()
        await recorder.__aexit__(None, None, None)
        return follower

    answer = served.runner.run(run())
    assert (answer.status, answer.text) == (200, "")
    assert answer.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_stream_ends_with_its_key(served: Any, face: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> tuple[int, int]:
        recorder, paths = await in_progress(served.store.for_user("ann"))
        made = await served.store.keys.create(user_id="ann")
        auth = KeyAuthentication(served._store, seconds=0)
        application = served_at(served, face, auth)
        follower = Caller(application, paths[face], made.secret)
        status = await follower.begun()
        if how == "revoked":
            await served.store.keys.revoke(made.key.id)
        else:
            monkeypatch.setattr(auth, "owner", _nobody)  # as when the clock has gone on
        await follower.answered()
        later = Caller(application, paths[face], made.secret)
        refused = await later.begun()
        await later.leave()
        await recorder.__aexit__(None, None, None)
        return status, refused

    assert served.runner.run(run()) == (200, 401)


@pytest.mark.parametrize("face", ["openai", "rest"])
def test_a_revoked_stream_ends_though_its_client_does_not_read(
    served: Any, face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "LAST_SECONDS", 0.1)

    async def run() -> None:
        recorder, paths = await in_progress(served.store.for_user("ann"))
        made = await served.store.keys.create(user_id="ann")
        auth = KeyAuthentication(served._store, seconds=0)
        follower = Caller(served_at(served, face, auth), paths[face], made.secret)
        follower.reads.clear()
        assert await follower.begun() == 200
        await served.store.keys.revoke(made.key.id)
        await asyncio.wait_for(follower.task, 20)
        await recorder.__aexit__(None, None, None)

    served.runner.run(run())


async def _nobody(_secret: str) -> Owner | None:
    return None


@pytest.mark.parametrize("face", FACES)
def test_a_stream_goes_on_as_long_as_its_key_counts(served: Any, face: str) -> None:
    async def run() -> bool:
        recorder, paths = await in_progress(served.store.for_user("ann"))
        made = await served.store.keys.create(user_id="ann")
        asked, was_asked = 0, asyncio.Event()
        keys = KeyAuthentication(served._store, seconds=0)

        async def who(request: Any) -> Owner | None:
            nonlocal asked
            asked += 1
            if asked == 4:
                was_asked.set()
            return await keys(request)

        follower = Caller(served_at(served, face, who), paths[face], made.secret)
        await follower.begun()
        await asyncio.wait_for(was_asked.wait(), 20)
        goes_on = not follower.task.done()
        await follower.leave()
        await recorder.__aexit__(None, None, None)
        return goes_on

    assert served.runner.run(run())


@pytest.mark.parametrize("face", FACES)
def test_each_owner_follows_so_many(served: Any, face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "_streams", stream_quota(2))
    monkeypatch.setattr(Service, "__init__", _with_few_streams(Service.__init__))

    async def run() -> tuple[list[int], int, int, int]:
        store = served.store.for_user("ann")
        recorder, paths = await in_progress(store)
        application = served_at(served, face, served.authenticate)
        followers = [Caller(application, paths[face], "ann") for _ in range(2)]
        statuses = [await one.begun() for one in followers]
        refused = Caller(application, paths[face], "ann")
        await asyncio.wait_for(refused.task, 20)
        other = Caller(application, paths[face], "")  # who sees what all users have
        others = await other.begun()
        await followers[0].leave()
        again = Caller(application, paths[face], "ann")
        status = await again.begun()
        for one in (*followers, other, again):
            await one.leave()
        await recorder.__aexit__(None, None, None)
        return statuses, refused.status, others, status

    assert served.runner.run(run()) == ([200, 200], 204 if face == "viewer" else 429, 200, 200)


def _with_few_streams(init: Any, most: int = 2) -> Any:
    def made(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **{"streams": stream_quota(most), **options})

    return made


def test_a_refusal_of_a_stream_is_one_of_openai(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Service, "__init__", _with_few_streams(Service.__init__, 0))
    conversation = served.call(served.store.for_user("ann").create_conversation, input="Hi")
    body = {"id": "resp_0", "object": "response", "model": "m", "status": "completed", "output": []}
    served.call(conversation.add_response, body, "open_responses")
    answer: httpx2.Response = served.http().get("/responses/resp_0?stream=true")
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_streams")
    assert answer.headers["retry-after"] == "5"
