"""Requests with `store: false`: answered as all others are, and nothing of them is stored but the bill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import openai
import pytest
from sqlalchemy import select

from tests.databases import Database
from tests.server.scripts import Scripted, script
from tests.server.test_creation import TOOL, in_front_of
from threadkeep import AsyncStore, InvalidOption
from threadkeep.db.models import tenants, usage_records
from threadkeep.http import Owner, Upstream, UpstreamError, app
from threadkeep.server.unstored import MAX_ANSWERS, Memories, Memory


def conversations_in(served: Any) -> list[Any]:
    return [*served.call(served.store.list_conversations)]


def bill_of(served: Any, *by: str) -> list[tuple[Any, ...]]:
    rows = served.call(served.store.usage, by=by)
    return [(*(getattr(row, name) for name in by), row.attempts, row.total_tokens) for row in rows]


@pytest.mark.parametrize("stream", [False, True])
def test_only_the_ledger_knows_of_the_answer(served: Any, scripted: Scripted, *, stream: bool) -> None:
    client = in_front_of(served, scripted)
    scripted.will_say("Let me ", "see.", calls=True)
    asked: Any = {"model": scripted.format, "input": "Weather?", "tools": [TOOL], "store": False}
    if stream:
        events: list[Any] = [*client.responses.create(stream=True, **asked)]
        assert events[0].response.store is False
        found = events[-1].response
    else:
        found = client.responses.create(**asked)
    assert (found.status, found.output_text, found.output[-1].type) == ("completed", "Let me see.", "function_call")
    assert (found.store, found.conversation, found.usage.total_tokens) == (False, None, 18)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(found.id)
    assert conversations_in(served) == []
    assert bill_of(served, "provider", "user_id") == [(scripted.upstream.name, "ann", 1, 18)]


def test_the_first_answer_of_a_database_is_in_the_ledger(one: Scripted, tmp_path: Path) -> None:
    """Nothing else has made its tenant by then."""

    async def run() -> list[int]:
        async with AsyncStore(f"sqlite:///{tmp_path}/new.db") as store:
            made = app(store, auth=lambda _: Owner(), prefix="", upstreams={"*": one.upstream})
            transport = httpx2.ASGITransport(app=made)
            async with httpx2.AsyncClient(transport=transport, base_url="http://x") as http:
                asked = {"model": "m", "input": "Weather?", "store": False}
                assert (await http.post("/responses", json=asked)).status_code == 200
            await store.create_conversation()
            return [row.attempts for row in await store.usage(by=("provider",))]

    one.will_say("Sunny.")
    assert asyncio.run(run()) == [1]


def test_a_client_that_sends_its_whole_history_goes_on(served: Any, scripted: Scripted) -> None:
    """With the ids that its items have had here."""
    client = in_front_of(served, scripted)
    scripted.will_say("Let me see.", calls=True)
    history: list[Any] = [{"role": "user", "content": "Weather?"}]
    asked: Any = {"model": scripted.format, "tools": [TOOL], "store": False}
    found = client.responses.create(input=history, **asked)
    history += [item.to_dict() for item in found.output]
    history.append({"type": "function_call_output", "call_id": "call_1", "output": "Rain."})
    scripted.will_say("It rains.")
    assert client.responses.create(input=history, **asked).output_text == "It rains."
    sent = str(scripted.payloads[-1])
    assert [sent.count(text) for text in ("Weather?", "Let me see.", "Rain.")] == [1, 1, 1]
    assert conversations_in(served) == []


def test_it_may_go_on_with_what_is_stored(served: Any, scripted: Scripted) -> None:
    """And does not change that."""
    client = in_front_of(served, scripted)
    scripted.will_say("Sunny.")
    asked: Any = {"model": scripted.format, "instructions": "Be brief."}
    first = client.responses.create(input="Weather?", **asked)
    scripted.will_say("Always.")
    client.responses.create(input="Really?", previous_response_id=first.id, **asked)
    before = [served.call(one.items) for one in conversations_in(served)]
    scripted.will_say("Rain.")
    asked["instructions"] = "Rhyme."
    found = client.responses.create(input="And later?", previous_response_id=first.id, store=False, **asked)
    assert (found.output_text, found.previous_response_id) == ("Rain.", first.id)
    sent = str(scripted.payloads[-1])
    assert [text in sent for text in ("Weather?", "Sunny.", "And later?", "Rhyme.")] == [True] * 4
    assert [text in sent for text in ("Really?", "Always.", "Be brief.")] == [False] * 3
    assert [served.call(one.items) for one in conversations_in(served)] == before


@pytest.mark.parametrize("more", [{"background": True}, {"conversation": True}, {"key": "k"}])
def test_what_needs_a_stored_answer_is_refused(served: Any, one: Scripted, more: dict[str, Any]) -> None:
    client = in_front_of(served, one)
    if "conversation" in more:
        more = {"conversation": client.conversations.create().id}
    if "key" in more:
        more = {"extra_headers": {"Idempotency-Key": "k"}}
    with pytest.raises(openai.BadRequestError, match="needs store: true") as refused:
        client.responses.create(model=one.format, input="Weather?", store=False, **more)
    assert refused.value.param in {"background", "conversation", "Idempotency-Key"}
    assert one.payloads == []


def test_a_failure_is_in_the_ledger_too(served: Any, one: Scripted) -> None:
    client = in_front_of(served, one)
    one.scripts.append([UpstreamError(429, None, "Slow down.")])
    with pytest.raises(openai.RateLimitError, match="Slow down"):
        client.with_options(max_retries=0).responses.create(model=one.format, input="Weather?", store=False)
    assert bill_of(served, "status") == [("failed", 1, None)]
    assert conversations_in(served) == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_user_who_is_erased_before_its_end_has_figures_alone(
    served: Any, one: Scripted, database: Database, *, stream: bool
) -> None:
    """Of what is asked afterwards, the ledger has the name again."""

    async def erases(_payload: Any, _model: str) -> AsyncGenerator[Any]:
        first, *rest = script(one.format, ["Sun", "ny."])
        yield first
        await served.store.erase_user("ann", vacuum=False)
        for event in rest:
            yield event

    client = served.client(upstreams={"gpt": Upstream("erasing", one.format, erases), one.format: one.upstream})
    asked: Any = {"input": "Weather?", "store": False}
    found = client.responses.create(model="gpt", stream=stream, **asked)
    assert not stream or [*found][-1].type == "response.completed"
    assert bill_of(served, "user_id", "provider") == [(None, "erasing", 1, 18)]
    row = usage_records.c
    tenant = select(tenants.c.id).where(tenants.c.name == served.tenant).scalar_subquery()
    with database.engine().connect() as connection:
        assert connection.execute(select(row.usage).where(row.tenant_id == tenant)).all() == [(None,)]
    one.will_say("Sunny.")
    client.responses.create(model=one.format, **asked)
    assert {row[0] for row in bill_of(served, "user_id", "provider")} == {None, "ann"}


def test_nothing_of_it_stays_in_memory(served: Any, one: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    monkeypatch.setattr(Memories, "take", lambda _: memory)
    client = in_front_of(served, one)
    for text in ("Sunny.", "Rainy."):
        one.will_say(text)
        client.responses.create(model=one.format, input="Weather?", store=False)
    assert memory.calls == {}
    assert served.call(memory.store.list_conversations).items == []


def test_a_database_in_memory_has_so_many_answers(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is closed with the last of them, or with the server."""
    closed = list[AsyncStore]()
    close = AsyncStore.close

    async def noted(store: AsyncStore) -> None:
        closed.append(store)
        await close(store)

    monkeypatch.setattr(AsyncStore, "close", noted)
    memories = Memories()
    first, *taken = [memories.take() for _ in range(MAX_ANSWERS + 1)]
    assert len({id(one) for one in (first, *taken)}) == 2
    for one in taken:
        served.call(one.leave)
    assert closed == []
    served.call(first.leave)
    assert closed == [first.store]
    served.call(memories.close)
    assert closed == [first.store, taken[-1].store]


class TestKept:
    """With `store_false="keep"`, the requests of a client's session are one conversation."""

    @pytest.fixture
    def client(self, served: Any, one: Scripted) -> openai.OpenAI:
        made: openai.OpenAI = served.client(upstreams={one.format: one.upstream}, store_false="keep")
        return made

    @pytest.mark.parametrize("said", ["header", "key", "nothing"])
    def test_they_are_found(self, served: Any, one: Scripted, client: openai.OpenAI, said: str) -> None:
        session = str(uuid4())
        more: Any = {
            "header": {"extra_headers": {"session-id": session}}, "key": {"prompt_cache_key": session}, "nothing": {},
        }[said]  # fmt: skip
        history: list[Any] = [{"role": "user", "content": f"Weather in {session}?"}]
        for text in ("Sunny.", "Rainy."):
            one.will_say(text)
            found = client.responses.create(model=one.format, input=history, store=False, **more)
            assert (found.output_text, found.store) == (text, True)
            history += [*(item.to_dict() for item in found.output), {"role": "user", "content": "And now?"}]
        [conversation] = conversations_in(served)
        texts = [item.item.text for item in served.call(conversation.items)]
        assert texts == [f"Weather in {session}?", "Sunny.", "And now?", "Rainy."]
        assert bill_of(served) == [(2, 36)]
        assert client.responses.retrieve(found.id).output_text == "Rainy."

    def test_another_history_is_a_branch(self, served: Any, one: Scripted, client: openai.OpenAI) -> None:
        asked: Any = {"model": one.format, "store": False, "extra_headers": {"session-id": str(uuid4())}}
        history: list[Any] = [{"role": "user", "content": "Weather?"}]
        one.will_say("Sunny.")
        found = client.responses.create(input=history, **asked)
        history += [item.to_dict() for item in found.output]
        for question in ("In Rome?", "In Oslo?"):
            one.will_say("Yes.")
            client.responses.create(input=[*history, {"role": "user", "content": question}], **asked)
        [conversation] = conversations_in(served)
        assert len(served.call(conversation.branches).items) == 2
        assert [item.item.text for item in served.call(conversation.items)][-2:] == ["In Oslo?", "Yes."]

    def test_what_leads_the_input_is_sent_as_it_is_now(self, one: Scripted, client: openai.OpenAI) -> None:
        asked: Any = {"model": one.format, "store": False, "extra_headers": {"session-id": str(uuid4())}}
        for system in ("Be brief.", "Be long."):
            one.will_say("Sunny.")
            history: Any = [{"role": "developer", "content": system}, {"role": "user", "content": "Weather?"}]
            client.responses.create(input=history, instructions="Help.", **asked)
        sent = [payload["messages"][0]["content"] for payload in one.payloads]
        assert sent == ["Help.\n\nBe brief.", "Help.\n\nBe long."]

    def test_a_repeated_request_gets_the_same_answer(self, served: Any, one: Scripted, client: openai.OpenAI) -> None:
        asked: Any = {"model": one.format, "store": False, "extra_headers": {"Idempotency-Key": "k"}}
        one.will_say("Sunny.")
        first, again = (client.responses.create(input="Weather?", **asked) for _ in range(2))
        assert first == again
        assert len(one.payloads) == 1
        assert bill_of(served) == [(1, 18)]

    def test_users_have_sessions_of_their_own(self, served: Any, one: Scripted) -> None:
        for user in ("ann", "bob"):
            client = served.client(user, upstreams={one.format: one.upstream}, store_false="keep")
            one.will_say("Sunny.")
            asked: Any = {"input": "Weather?", "extra_headers": {"session-id": "s"}}
            client.responses.create(model=one.format, store=False, **asked)
        assert {one.user_id for one in conversations_in(served)} == {"ann", "bob"}


def test_only_two_ways_are_known(served: Any) -> None:
    with pytest.raises(InvalidOption, match="'ledger' or 'keep'"):
        served.application(store_false="forget")
