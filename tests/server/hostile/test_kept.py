"""What stays in memory of a request: nothing when it has ended, before garbage is collected, and no body meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.databases import Database
from tests.server.hostile.providers import DONE, FACES, Script, World, delta, hostile, sse
from tests.waiting import wait_until
from threadkeep import Rendered
from threadkeep.server.event_streams import EventStream
from threadkeep.server.recorder.exchanges import Exchange
from threadkeep.server.turns import Turn, TurnInput

ANSWER = [sse(delta("Well."), {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}), DONE]
CHAT = {
    "id": "chat",
    "model": "m",
    "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "?"}]}],
}

pytestmark = [pytest.mark.one_face, pytest.mark.timeout(120), pytest.mark.share(3)]


@pytest.fixture(autouse=True)
def without_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@contextmanager
def asked(world: World, face: str) -> Iterator[Any]:
    if face == "chat":
        with httpx2.stream("POST", f"{world.url}/api/chat", json=CHAT, timeout=60) as response:
            yield response
    else:
        with world.asked() as response:
            yield response


def kept(*kinds: type) -> list[Any]:
    return [one for one in gc.get_objects() if isinstance(one, kinds)]


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("face", [*FACES, "chat"])
def test_of_a_stream_that_has_ended_nothing_is_kept(database: Database, face: str, *, leaves: bool) -> None:
    """Neither in cycles of references, which may stay for long where little is made besides."""
    script = Script([sse(delta("Well."))], after="open") if leaves else Script(ANSWER)
    with hostile(database, "rest" if face == "chat" else face, "chat_completion", script) as world:
        with asked(world, face) as response:
            if leaves:
                next(response.iter_raw())
            else:
                assert "Well." in response.read().decode()
        kinds = (EventStream, Exchange) if leaves else (EventStream, Exchange, Turn, TurnInput)
        wait_until(lambda: not kept(*kinds), lambda: kept(*kinds))


@pytest.mark.parametrize("face", ["responses", "rest", "chat"])
def test_while_an_answer_goes_on_its_body_is_not_kept(database: Database, face: str) -> None:
    """Nor what the provider was sent. A page sends all that it shows, and a request what its provider is not sent."""
    with hostile(database, "rest" if face == "chat" else face, "chat_completion", Script(after="open")) as world:
        if face == "responses":
            body: Any = {"model": "m", "input": "Hi", "background": True, "unknown": "x" * 100_000}
            answer = httpx2.post(f"{world.url}/v1/responses", json=body, timeout=60)
        elif face == "rest":
            made = httpx2.post(f"{world.url}/api/conversations", json={"model": "m"}, timeout=60).json()
            path, body = f"/api/conversations/{made['id']}/messages", {"content": "x" * 100_000, "background": True}
            answer = httpx2.post(world.url + path, json=body, timeout=60)
        else:
            with asked(world, face) as answer:
                pass
        assert answer.is_success
        wait_until(lambda: world.provider.calls == 1 and not kept(TurnInput))
        assert kept(Turn), "the answer goes on"
        wait_until(lambda: not any(one.source for one in kept(Rendered)))
        [request] = [one for one in kept(httpx2.Request) if one.url.path.endswith("/chat/completions")]
        assert "content-length" in request.headers
        with pytest.raises(httpx2.RequestNotRead):
            _ = request.content
