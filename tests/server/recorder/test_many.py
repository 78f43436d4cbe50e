"""Many calls at once, and what those who run the server see of them."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from tests.databases import Database
from tests.server.recorder.conftest import Recorded, recorder, said
from tests.server.recorder.provider import Provider, serving, stream, whole
from tests.server.servers import running
from tests.waiting import wait_until
from threadkeep import AsyncStore
from threadkeep.http import Owner, RecordedUpstream, recorder_app, site

STREAMS = 40
WORDS = [f"{number} " for number in range(10)]


def test_no_stream_of_many_is_lost(recorded: Recorded) -> None:
    replies = [stream("messages", WORDS, pause=0.02) for _ in range(STREAMS)]
    recorded.provider.says(*replies)
    whole_text = b"".join(replies[0].chunks)

    async def ask(client: httpx2.AsyncClient, number: int) -> bytes:
        question = {"role": "user", "content": f"Question {number}"}
        body = {"model": "claude-sonnet-5", "max_tokens": 9, "stream": True, "messages": [question]}
        return (await client.post(f"{recorded.url}/v1/messages", json=body)).content

    async def ask_all() -> list[bytes]:
        async with httpx2.AsyncClient(timeout=60) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(STREAMS)))

    assert asyncio.run(ask_all()) == [whole_text] * STREAMS
    wait_until(lambda: recorded.counts["recorded"] == STREAMS, lambda: str(recorded.counts), seconds=60)
    conversations = recorded.conversations()
    assert {said(one)[0] for one in conversations} == {f"user: Question {number}" for number in range(STREAMS)}
    assert {said(one)[1] for one in conversations} == {f"assistant: {''.join(WORDS)}"}
    assert sum(row.attempts for row in recorded.store.usage(by="provider")) == STREAMS


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_what_was_recorded_is_told(database: Database) -> None:
    provider = Provider()
    with recorder(database) as other, serving(provider) as direct:
        upstream = RecordedUpstream("provider", "messages", direct)
        store = AsyncStore(database.url, tenants=True)
        face = recorder_app(store, [upstream], auth=lambda _: Owner(tenant=other.tenant))
        with running(site({"/record": face})) as url:
            provider.says(whole("messages", "Fine."))
            body = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
            answer = httpx2.post(f"{url}/record/provider/v1/messages", json=body)
            assert answer.headers["request-id"] == "req_1"
            wait_until(lambda: face.state.collector.counters.counts()["recorded"] == 1, lambda: "not recorded")
            told = httpx2.get(f"{url}/healthz").json()["/record"]
            assert {name: told[name] for name in ("recorded", "failed", "dropped")} == {
                "recorded": 1, "failed": 0, "dropped": 0,
            }  # fmt: skip
            assert 'threadkeep_recorder_calls_total{result="recorded"} 1.0' in httpx2.get(f"{url}/metrics").text
