"""Answers in the background: the client is answered before the provider says anything, whatever that does then."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2
import pytest

from tests.databases import Database
from tests.server.hostile.providers import SSE, Script, World, hostile
from tests.waiting import wait_until

REFUSAL = b'{"error": {"message": "No such model."}}'
JSON = ("content-type: application/json", f"content-length: {len(REFUSAL)}")
FAILING = {
    "refuses": (
        Script([REFUSAL], JSON, "404 Not Found"),
        r"provider answered with status 404 at http://127\.0\.0\.1:\d+/v1/chat/completions\. No such model\.",
    ),
    "resets": (Script(headers=(*SSE, "content-length: 9"), after="reset"), None),
}

pytestmark = pytest.mark.timeout(60)


def post(world: World, **body: Any) -> httpx2.Response:
    asked = {"model": "m", "input": "Hi", "background": True, **body}
    return httpx2.post(f"{world.url}/v1/responses", json=asked, timeout=30)


def read(world: World, id_: str) -> Any:
    return httpx2.get(f"{world.url}/v1/responses/{id_}", timeout=30).json()


def test_a_silent_provider_lets_nobody_wait(database: Database) -> None:
    """The answer is queued, can be read, and cancelling it ends it."""
    with hostile(database, "responses", "chat_completion", Script(after="open")) as world:
        made = post(world).json()
        assert (made["status"], made["output"], made["error"]) == ("queued", [], None)
        assert read(world, made["id"])["status"] in ("queued", "in_progress")
        wait_until(lambda: world.provider.calls == 1)
        cancelled = httpx2.post(f"{world.url}/v1/responses/{made['id']}/cancel", timeout=30).json()
        assert cancelled["status"] == "cancelled"
        assert world.provider.left.wait(20)
        assert read(world, made["id"])["status"] == "cancelled"


def test_a_silent_provider_lets_no_stream_wait(database: Database) -> None:
    with hostile(database, "responses", "chat_completion", Script(after="open")) as world:
        body = {"model": "m", "input": "Hi", "background": True, "stream": True}
        with httpx2.stream("POST", f"{world.url}/v1/responses", json=body, timeout=30) as response:
            lines = response.iter_lines()
            data = (json.loads(line[6:]) for line in lines if line.startswith("data: "))
            begun = [next(data) for _ in range(3)]
            kinds = [event["type"] for event in begun]
            assert kinds == ["response.created", "response.queued", "response.in_progress"]
            httpx2.post(f"{world.url}/v1/responses/{begun[0]['response']['id']}/cancel", timeout=30)
            [last] = data
            assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", FAILING)
def test_what_a_provider_does_not_answer_has_failed(database: Database, kind: str, *, stream: bool) -> None:
    """The response says so, and why; another request finds the conversation free."""
    script, message = FAILING[kind]
    with hostile(database, "responses", "chat_completion", script) as world:
        made = post(world, stream=stream)
        assert made.status_code == 200
        if stream:
            [*_, last] = [json.loads(line[6:]) for line in made.text.splitlines() if line.startswith("data: ")]
            assert last["type"] == "response.failed"
            id_ = last["response"]["id"]
        else:
            assert made.json()["status"] == "queued"
            id_ = made.json()["id"]
        assert world.ended() == ("failed", "")
        found = read(world, id_)
        assert (found["status"], found["output"], found["error"]["code"]) == ("failed", [], "server_error")
        assert message is None or re.fullmatch(message, found["error"]["message"])
        assert found["error"]["message"].startswith("provider ")
        again = post(world, conversation=found["conversation"]["id"])
        assert again.json()["status"] == "queued"
