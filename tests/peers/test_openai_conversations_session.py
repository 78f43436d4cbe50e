"""The session of the Agents SDK for OpenAI's Conversations, and its runner, against the server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agents import Agent, OpenAIConversationsSession, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from tests.server.recorder.conftest import said
from tests.server.scripts import Scripted
from tests.server.servers import running
from threadkeep import AsyncStore, Store
from threadkeep.http import Owner, app

QUIET = RunConfig(tracing_disabled=True)
ITEMS = 45  # more than twice what one request brings


@function_tool
def look(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}."


def test_a_run_with_tools_and_two_turns_is_kept_on_the_server(tmp_path: Path) -> None:
    url, upstream = f"sqlite:///{tmp_path}/chat.db", Scripted("chat_completion")
    Store(url).close()
    upstream.will_say("Let me see.", calls=True)
    upstream.will_say("It is sunny.")
    upstream.will_say("You are ", "welcome.")
    store = AsyncStore(url)
    application = app(store, auth=lambda _: Owner(), upstreams={"*": upstream.upstream})

    async def talk(base_url: str) -> tuple[str, list[Any]]:
        async with AsyncOpenAI(base_url=base_url, api_key="any", max_retries=0) as client:
            session = OpenAIConversationsSession(openai_client=client)
            model = OpenAIResponsesModel(model="llama", openai_client=client)
            agent = Agent(name="Guide", model=model, tools=[look])
            first = await Runner.run(agent, "Weather in Paris?", session=session, run_config=QUIET)
            assert first.final_output == "It is sunny."
            streamed = Runner.run_streamed(agent, "Thanks!", session=session, run_config=QUIET)
            async for _ in streamed.stream_events():
                pass
            assert streamed.final_output == "You are welcome."
            return await session._get_session_id(), await session.get_items()

    with running(application, store) as address:
        conversation_id, items = asyncio.run(talk(f"{address}/v1"))
    assert len(items) == 7
    assert [len(payload["messages"]) for payload in upstream.payloads] == [1, 3, 5]
    with Store(url) as stored:
        assert said(stored.get_conversation(conversation_id)) == [
            "user: Weather in Paris?", "assistant: Let me see.", 'look({"city":"Paris"})', "= Sunny in Paris.",
            "assistant: It is sunny.", "user: Thanks!", "assistant: You are welcome.",
        ]  # fmt: skip


def test_a_session_reads_and_changes_what_is_stored(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    Store(url).close()
    store = AsyncStore(url)

    async def use(base_url: str) -> None:
        async with AsyncOpenAI(base_url=base_url, api_key="any", max_retries=0) as client:
            session = OpenAIConversationsSession(openai_client=client)
            items: Any = [{"role": "user", "content": f"Line {number}"} for number in range(ITEMS)]
            await session.add_items(items)
            found: Any = await session.get_items()
            assert [item["content"][0]["text"] for item in found] == [f"Line {number}" for number in range(ITEMS)]
            assert len(await session.get_items(limit=3)) == 3
            popped: Any = await session.pop_item()
            assert popped["content"][0]["text"] == f"Line {ITEMS - 1}"
            assert len(await session.get_items()) == ITEMS - 1
            await session.clear_session()
            assert await session.get_items() == []

    with running(app(store, auth=lambda _: Owner()), store) as address:
        asyncio.run(use(f"{address}/v1"))
