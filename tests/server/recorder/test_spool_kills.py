"""A recorder that is killed: whatever a client saw answered is stored by the next one, once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest
import uvicorn

from tests.databases import Database
from tests.ports import free_ports
from tests.processes import forked
from tests.server.recorder.conftest import said
from tests.server.recorder.provider import Provider, serving, stream, whole
from tests.waiting import listens, wait_until
from threadkeep import AsyncStore, Store
from threadkeep.http import Owner, RecordedUpstream, recorder_app, site

pytestmark = pytest.mark.slow

CLIENTS = 4
ENOUGH = 60  # answers after which the recorder is killed


def recorder_process(url: str, tenant: str, direct: str, spool: str, port: int) -> None:
    face = recorder_app(
        AsyncStore(url, tenants=True), [RecordedUpstream("provider", "messages", direct)],
        auth=lambda _: Owner(tenant=tenant), spool=spool,
    )  # fmt: skip
    uvicorn.run(site({"": face}), host="127.0.0.1", port=port, log_level="critical")


@pytest.mark.parametrize("is_stream", [False, True], ids=["plain", "streamed"])
def test_what_clients_saw_answered_is_stored(database: Database, tmp_path: Path, is_stream: bool) -> None:
    tenant, provider, [port], answered = uuid4().hex, Provider(), free_ports(1), list[str]()
    reply = stream("messages", ["Fine."]) if is_stream else whole("messages", "Fine.")
    provider.says(*[reply] * 900)
    with ExitStack() as stack:
        store = stack.enter_context(Store(database.url, tenants=True)).create_tenant(tenant)
        direct = stack.enter_context(serving(provider))
        arguments = recorder_process, database.url, tenant, direct, str(tmp_path), port

        def ask(client: int) -> None:
            with suppress(httpx2.HTTPError), httpx2.Client(base_url=f"http://127.0.0.1:{port}") as http:
                for number in range(200):
                    text = f"Client {client} asks {number}"
                    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}
                    got = http.post("/v1/messages", json={**body, "stream": is_stream}, timeout=60)
                    assert got.content == b"".join(reply.chunks)
                    answered.append(text)

        process = forked(*arguments)
        wait_until(lambda: listens(port), seconds=60)
        with ThreadPoolExecutor(CLIENTS) as clients:
            asked = [clients.submit(ask, client) for client in range(CLIENTS)]
            wait_until(lambda: len(answered) >= ENOUGH, seconds=60)
            process.kill()
            process.join()
        for one in asked:
            one.result()
        assert len(answered) >= ENOUGH
        process = forked(*arguments)
        stack.callback(process.join)
        stack.callback(process.kill)

        def is_done() -> bool:
            return listens(port) and httpx2.get(f"http://127.0.0.1:{port}/healthz").json()[""]["spooled_bytes"] == 0

        wait_until(is_done, lambda: httpx2.get(f"http://127.0.0.1:{port}/healthz").text, seconds=90)
        stored = [said(one) for one in store.list_conversations(limit=1000)]
        questions = [question for question, *_ in stored]
        assert len(questions) == len(set(questions))
        assert {f"user: {text}" for text in answered} <= {
            question for question, *answers in stored if answers == ["assistant: Fine."]
        }
