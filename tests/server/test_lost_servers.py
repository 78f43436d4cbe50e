"""Answers in the background whose server is gone: polling, following and cancelling find their end on another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from sqlalchemy import Engine, create_engine

from tests.databases import Database
from tests.server.conftest import MAKERS
from tests.server.killing import COUNT
from tests.server.test_kills import world_of
from tests.store.test_streams import expire
from tests.waiting import wait_until
from threadkeep.store.reading import responses
from threadkeep.store.streaming.recorder import PartialReader

FACES = ["openai", "rest"]
CAME = "Let me"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for what is gone."""
    monkeypatch.setattr(responses, "PATIENCE_SECONDS", 0.01)


@pytest.fixture
def watching(database: Database) -> Iterator[Engine]:
    """An engine for looking past the store."""
    made = create_engine(database.engine().url)
    yield made
    made.dispose()


class Lost:
    """A response in progress whose recorder is not heard of any more, and a client of a server."""

    def __init__(self, served: Any, face: str) -> None:
        self._served, self.face = served, face
        made = MAKERS[face](served._store, auth=served.authenticate, prefix="")
        headers = {"Authorization": "Bearer ann"}
        transport = httpx2.ASGITransport(app=made)
        self._http = httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers, timeout=20)
        served.call(self._begin)

    async def _begin(self) -> None:
        self.conversation = await self._served.store.for_user("ann").create_conversation(model="m", input="Hi")
        self._recorder = self.conversation.stream_response("chat_completion")
        await self._recorder.__aenter__()
        self._recorder.heartbeat._ended.set()
        delta = {"role": "assistant", "content": CAME}
        await self._recorder.feed({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta}]})
        [response] = await self.conversation.responses()
        assert response.status == "in_progress"
        self.id = response.id

    def call(self, method: str, path: str) -> Any:
        return self._served.call(self._http.request, method, path)

    def following(self) -> str:
        """The path of its events."""
        return f"/responses/{self.id}" + {"openai": "?stream=true", "rest": "/events"}[self.face]

    def attempts(self) -> int:
        return int(self._served.call(self.conversation.usage).attempts)


@pytest.fixture
def lost(served: Any, face: str, watching: Engine) -> Lost:
    """One whose lease is over."""
    made = Lost(served, face)
    expire(watching)
    return made


def text_of(response: Any) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("how", ["GET", "cancel"])
def test_who_polls_or_cancels_finds_its_end(lost: Lost, how: str) -> None:
    method, path = {"GET": ("GET", ""), "cancel": ("POST", "/cancel")}[how]
    for _ in range(2):
        answer = lost.call(method, f"/responses/{lost.id}{path}")
        assert (answer.status_code, answer.json()["status"], text_of(answer.json())) == (200, "incomplete", CAME)
    assert lost.attempts() == 1


@pytest.mark.parametrize("face", FACES)
def test_who_follows_gets_its_end(lost: Lost) -> None:
    lines = lost.call("GET", lost.following()).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data:")]
    assert events[-1]["type"] == {"openai": "response.incomplete", "rest": "done"}[lost.face]
    assert (events[-1]["response"]["status"], text_of(events[-1]["response"])) == ("incomplete", CAME)
    assert "".join(event["delta"] for event in events if event["type"].endswith("delta")) == CAME


# what a page or client of a thread asks -> whether anything of the answer in progress is left in what it is answered
THREADS: dict[tuple[str, str], Callable[[Any], bool]] = {
    ("GET", "/chat/{id}"): lambda answer: answer.json()["response_id"] is not None,
    ("GET", "/ag-ui/{id}"): lambda answer: answer.json()["response_id"] is not None,
    ("GET", "/chat/{id}/stream"): lambda answer: answer.status_code != 204,
    ("POST", "/chat/{id}/stop"): lambda answer: answer.json()["stopped"],
    ("POST", "/ag-ui/{id}/stop"): lambda answer: answer.json()["stopped"],
}


@pytest.mark.parametrize("face", ["rest"])
@pytest.mark.parametrize("asked", THREADS, ids=" ".join)
def test_who_loads_or_stops_a_thread_finds_its_end(lost: Lost, asked: tuple[str, str]) -> None:
    method, path = asked
    answer = lost.call(method, path.format(id=lost.conversation.id))
    assert answer.is_success
    assert not THREADS[asked](answer)
    assert CAME in lost.call("GET", f"/chat/{lost.conversation.id}").text
    assert lost.attempts() == 1


@pytest.mark.parametrize("face", FACES)
def test_it_can_be_deleted_and_the_conversation_goes_on(lost: Lost) -> None:
    assert lost.call("DELETE", f"/responses/{lost.id}").status_code in (200, 204)
    assert lost.call("GET", f"/responses/{lost.id}").status_code == 404


@pytest.mark.slow
@pytest.mark.one_face
def test_an_answer_in_the_background_ends_soon_after_its_server_was_killed(database: Database) -> None:
    """Nobody writes to the conversation meanwhile: the next server is only asked what became of it."""
    with world_of(database.url) as (world, store):
        id_ = store.create_conversation().id
        url = f"http://127.0.0.1:{world.ports[1]}/v1/responses"
        body = {"model": "m", "input": COUNT, "background": True, "conversation": id_}
        begun = httpx2.post(url, json=body, timeout=60).json()
        reader = PartialReader(store.get_conversation(id_).handle, 0)
        wait_until(lambda: (partial := reader.read()) is not None and len((partial.text or "").split()) > 2)
        world.kill("server")
        world.start("server")
        answer = httpx2.get(f"{url}/{begun['id']}?stream=true", timeout=60).text
        last = json.loads(answer.strip().splitlines()[-1].removeprefix("data: "))
        assert last["type"] == "response.incomplete"
        assert text_of(last["response"]).startswith("1 2 ")
        found = httpx2.get(f"{url}/{begun['id']}", timeout=60).json()
        assert (found["status"], text_of(found)) == ("incomplete", text_of(last["response"]))
        assert store.get_conversation(id_).usage().attempts == 1
