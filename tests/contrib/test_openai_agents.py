"""Sessions of the OpenAI Agents SDK: its runner with a scripted model, over each kind of database and store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed; make test-peers has it")

from agents import Agent, RunConfig, Runner, RunState, SessionSettings, Usage, function_tool
from agents.memory import Session
from agents.run_context import RunContextWrapper
from agents.testing import ScriptedModel, assistant_message, function_call
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from threadkeep import AsyncStore, InvalidItem, InvalidOption, NotFound, Price, Store
from threadkeep.contrib.openai_agents import ThreadkeepSession, UsageHooks

AnyStore = Store | AsyncStore
pytestmark = pytest.mark.usefixtures("runner")  # the loop of tests that are coroutines
QUESTION: Any = {"role": "user", "content": "Is it raining in Lyon?"}
ANSWER: Any = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "It is.", "annotations": [], "logprobs": []}],
}
ODD: Any = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Lyon"}', "status": None},
    {"call_id": "c1", "output": [{"type": "input_text", "text": "rain"}], "type": "function_call_output"},
    {"type": "item_reference", "id": "msg_9"},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "…"},
    {"type": "a_type_of_tomorrow", "nested": {"list": [1, 2.5, None, True]}},
    {"__enc__": 1, "v": 1, "kid": "hkdf-v1", "payload": "gAAAAA=="},
    {"content": "without a type", "role": "developer"},
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw=="}]},
]  # fmt: skip


def usage(inputs: int, outputs: int, cached: int = 0) -> Usage:
    return Usage(
        requests=1,
        input_tokens=inputs,
        output_tokens=outputs,
        total_tokens=inputs + outputs,
        input_tokens_details=InputTokensDetails(cached_tokens=cached, cache_write_tokens=0),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
    )


@function_tool
def weather(city: str) -> str:
    """What the weather is."""
    return f"rain in {city}"


def weather_agent() -> Agent[Any]:
    """Calls a tool, and then answers; later only answers. Its model has a name, as real ones do."""
    model = ScriptedModel(
        [
            {"output": [function_call("weather", {"city": "Lyon"}, call_id="c1")], "usage": usage(100, 10)},
            {"output": [assistant_message("It is raining.", item_id="msg_1")], "usage": usage(120, 5, 100)},
            {"output": [assistant_message("Until noon.", item_id="msg_2")], "usage": usage(140, 4)},
        ]
    )
    model.model = "gpt-5.4"  # type: ignore[attr-defined]
    return Agent(name="meteorologist", model=model, tools=[weather])


# The protocol


def test_it_is_a_session_of_the_sdk(store: AnyStore) -> None:
    assert isinstance(ThreadkeepSession("s", store), Session)


async def test_items_come_back_exactly_as_they_were_added(store: AnyStore) -> None:
    session = ThreadkeepSession("s", store)
    await session.add_items([QUESTION, ANSWER])
    await session.add_items(ODD)
    read = await ThreadkeepSession("s", store).get_items()
    assert read == [QUESTION, ANSWER, *ODD]
    assert [list(item) for item in read] == [list(item) for item in (QUESTION, ANSWER, *ODD)]


async def test_a_limit_gives_the_newest_items_oldest_first(store: AnyStore) -> None:
    session = ThreadkeepSession("s", store, session_settings={"limit": 2})
    await session.add_items([{"role": "user", "content": str(number)} for number in range(5)])
    assert [item["content"] for item in await session.get_items(3)] == ["2", "3", "4"]  # type: ignore[typeddict-item]
    assert [item["content"] for item in await session.get_items()] == ["3", "4"]  # type: ignore[typeddict-item]
    assert await session.get_items(0) == []
    assert len(await ThreadkeepSession("s", store, session_settings=SessionSettings()).get_items()) == 5


async def test_the_newest_item_is_popped(store: AnyStore) -> None:
    session = ThreadkeepSession("s", store)
    assert await session.pop_item() is None
    await session.add_items([QUESTION, ANSWER])
    assert await session.pop_item() == ANSWER
    assert await session.get_items() == [QUESTION]


async def test_of_concurrent_pops_each_gets_another_item(store: AnyStore) -> None:
    await ThreadkeepSession("s", store).add_items([{"role": "user", "content": str(number)} for number in range(6)])
    popped: Any = await asyncio.gather(*(ThreadkeepSession("s", store).pop_item() for _ in range(8)))
    assert sorted(item["content"] for item in popped if item is not None) == list("012345")
    assert await ThreadkeepSession("s", store).get_items() == []


async def test_concurrent_first_writes_share_one_conversation(store: AnyStore) -> None:
    sessions = [ThreadkeepSession("s", store) for _ in range(5)]
    await asyncio.gather(*(session.add_items([QUESTION]) for session in sessions))
    assert len(await sessions[0].get_items()) == 5
    assert len({(await session.conversation()).id for session in sessions}) == 1


async def test_what_was_cleared_is_gone_and_usage_stays(store: AnyStore) -> None:
    session = ThreadkeepSession("s", store)
    await session.clear_session()  # of a session that does not exist yet
    await Runner.run(weather_agent(), "Rain?", session=session, hooks=UsageHooks(session))
    await session.clear_session()
    assert await session.get_items() == []
    assert (await (await session.conversation()).usage()).attempts == 2


async def test_items_are_stored_all_or_none(store: AnyStore) -> None:
    session = ThreadkeepSession("s", store)
    await session.add_items([QUESTION])
    with pytest.raises(InvalidItem, match=r"items\[1\]"):
        await session.add_items([ANSWER, QUESTION | {"content": object()}])
    assert await session.get_items() == [QUESTION]


async def test_a_cancelled_write_is_finished(store: AnyStore) -> None:
    session = ThreadkeepSession("s", store)
    await session.add_items([QUESTION])
    task = asyncio.create_task(session.add_items([ANSWER]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await session.get_items() == [QUESTION, ANSWER]


# Whose it is


async def test_users_do_not_see_each_others_sessions(store: AnyStore) -> None:
    ann, ben = (ThreadkeepSession("main", store, user_id=user) for user in ("ann", "ben"))
    await ann.add_items([QUESTION])
    assert await ben.get_items() == []
    assert await ben.pop_item() is None
    await ben.clear_session()
    assert list(await ben.search("Lyon")) == []
    await ben.add_items([ANSWER])
    assert await ann.get_items() == [QUESTION]
    assert [found.user_id for found in await ann.search("Lyon")] == ["ann"]
    assert (await ann.conversation()).user_id == "ann"
    assert (await ann.conversation()).external_id == "ann/main"


async def test_users_with_slashes_in_their_names_are_kept_apart(store: AnyStore) -> None:
    await ThreadkeepSession("b/c", store, user_id="a").add_items([QUESTION])
    assert await ThreadkeepSession("c", store, user_id="a/b").get_items() == []
    await ThreadkeepSession("c", store, user_id="a/b").add_items([ANSWER])
    assert await ThreadkeepSession("b/c", store, user_id="a").get_items() == [QUESTION]


@dataclass
class Context:
    user: str


async def test_the_user_can_come_from_the_context_of_the_run(store: AnyStore) -> None:
    session = ThreadkeepSession("main", store, user_id=lambda context: str(context.user))
    for user in ("ann", "ben"):
        hooks = UsageHooks(session)
        result = await Runner.run(weather_agent(), user, session=session, context=Context(user), hooks=hooks)
        await session.record(result)
    items = await ThreadkeepSession("main", store, user_id="ben").get_items()
    assert len(items) == 4
    assert items[0] == {"role": "user", "content": "ben"}
    assert len(await session.get_items(wrapper=RunContextWrapper(Context("ann")))) == 4
    ledger = await (await ThreadkeepSession("main", store, user_id="ann").conversation()).usage()
    assert ledger.attempts == 2
    with pytest.raises(InvalidOption, match="user_id is a function of the context"):
        await session.get_items()


def test_what_is_no_store_or_no_id_is_refused(store: AnyStore) -> None:
    with pytest.raises(InvalidOption, match="store must be a Store or an AsyncStore"):
        ThreadkeepSession("s", "sqlite://")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="session_id"):
        ThreadkeepSession("", store)


# Runs


@pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])
async def test_runs_continue_where_the_last_one_ended(store: AnyStore, *, is_streamed: bool) -> None:
    agent, session = weather_agent(), ThreadkeepSession("s", store)
    for question in ("Is it raining in Lyon?", "How long?"):
        if is_streamed:
            streamed = Runner.run_streamed(agent, question, session=session)
            async for _ in streamed.stream_events():
                pass
        else:
            await Runner.run(agent, question, session=session)
    assert [item.get("type", "message") for item in await session.get_items()] == [
        "message", "function_call", "function_call_output", "message", "message", "message",
    ]  # fmt: skip
    assert isinstance(agent.model, ScriptedModel)
    assert agent.model.last_call is not None
    assert len(agent.model.last_call.input) == 5


async def test_a_run_only_gets_as_many_items_as_its_settings_say(store: AnyStore) -> None:
    agent, session = weather_agent(), ThreadkeepSession("s", store)
    await Runner.run(agent, "Is it raining in Lyon?", session=session)
    await Runner.run(
        agent, "How long?", session=session, run_config=RunConfig(session_settings=SessionSettings(limit=1))
    )
    assert isinstance(agent.model, ScriptedModel)
    assert agent.model.last_call is not None
    assert [item["role"] for item in agent.model.last_call.input] == ["assistant", "user"]  # type: ignore[index,typeddict-item]


async def test_the_conversation_can_be_rendered_for_any_provider(store: AnyStore) -> None:
    session = ThreadkeepSession("s", store, model="claude-sonnet-4-5")
    await Runner.run(weather_agent(), "Is it raining in Lyon?", session=session)
    rendered = await (await session.conversation()).render("messages")
    assert [message["role"] for message in rendered.payload["messages"]] == ["user", "assistant", "user", "assistant"]
    assert rendered.payload["messages"][1]["content"][0]["type"] == "tool_use"
    assert [found.snippet for found in await session.search("raining", limit=1)] != []


async def test_a_session_can_be_of_one_branch(store: AnyStore) -> None:
    session = ThreadkeepSession("s", store)
    await session.add_items([QUESTION, ANSWER])
    fork = await (await session.conversation()).fork(at=0)
    other = ThreadkeepSession("s", store, branch=fork.branch)
    await other.add_items([{"role": "assistant", "content": "It is not."}])
    assert len(await other.get_items()) == 2
    assert await session.get_items() == [QUESTION, ANSWER]
    await (await session.conversation()).set_active_branch(fork.branch)
    assert await session.get_items() == await other.get_items()
    with pytest.raises(NotFound, match="branch"):
        await ThreadkeepSession("s", store, branch=9).get_items()


# The ledger


async def test_hooks_record_the_usage_of_each_response(store: AnyStore) -> None:
    session = ThreadkeepSession("s", store, user_id="ann")
    await Runner.run(weather_agent(), "Rain?", session=session, hooks=UsageHooks(session, provider="openai"))
    (row,) = await (await session.conversation()).usage(by=("model", "provider"))
    assert (row.model, row.provider, row.attempts) == ("gpt-5.4", "openai", 2)
    assert (row.input_tokens, row.cached_tokens, row.output_tokens, row.total_tokens) == (220, 100, 15, 235)


async def test_a_result_is_recorded_once(store: AnyStore) -> None:
    session = ThreadkeepSession("s", store)
    result = await Runner.run(weather_agent(), "Rain?", session=session, hooks=UsageHooks(session))
    await session.record(result)
    await ThreadkeepSession("s", store).record(result)
    assert (await (await session.conversation()).usage()).attempts == 2


async def test_responses_without_ids_are_counted_each(store: AnyStore) -> None:
    step: Any = {"output": [assistant_message("Yes.")], "usage": usage(10, 1), "response_id": None}
    agent, session = Agent(name="agreeing", model=ScriptedModel([step, step])), ThreadkeepSession("s", store)
    for _ in range(2):
        result = await Runner.run(agent, "Yes?", session=session, hooks=UsageHooks(session))
        await session.record(result)
    assert (await (await session.conversation()).usage()).input_tokens == 20


async def test_the_model_can_be_named(store: AnyStore) -> None:
    session = ThreadkeepSession("s", store, model="gpt-5.4-mini")
    steps: Any = [{"output": [assistant_message(text)], "usage": usage(10, 1)} for text in ("Yes.", "No.")]
    agent = Agent(name="plain", model=ScriptedModel(steps))
    await session.record(await Runner.run(agent, "One", session=session))
    await session.record(await Runner.run(agent, "Two", session=session), model="gpt-5.4")
    rows = await (await session.conversation()).usage(by="model")
    assert {row.model for row in rows} == {"gpt-5.4-mini", "gpt-5.4"}


async def test_a_run_that_was_saved_and_read_again_is_counted_once(store: AnyStore) -> None:
    deciding = function_tool(lambda: "done", name_override="send", needs_approval=True)
    steps: Any = [
        {"output": [function_call("send", {}, call_id="c1")], "usage": usage(10, 1), "response_id": "resp_1"},
        {"output": [assistant_message("Sent.")], "usage": usage(20, 2), "response_id": "resp_2"},
    ]
    agent = Agent(name="sending", model=ScriptedModel(steps), tools=[deciding])
    session = ThreadkeepSession("s", store)
    paused = await Runner.run(agent, "Send it", session=session)
    await session.record(paused)
    state = await RunState.from_json(agent, paused.to_state().to_json())
    state.approve(state.get_interruptions()[0])
    await session.record(await Runner.run(agent, state, session=session))
    ledger = await (await session.conversation()).usage()
    assert (ledger.attempts, ledger.input_tokens) == (2, 30)


def test_costs_come_from_the_prices_of_the_store() -> None:
    with Store("sqlite://", prices=[Price("gpt-5.4", input=10, output=100)]) as store:
        session = ThreadkeepSession("s", store)
        asyncio.run(Runner.run(weather_agent(), "Rain?", session=session, hooks=UsageHooks(session)))  # type: ignore[arg-type]
        assert store.usage()[0].cost_usd == Decimal("0.0037")


def test_a_store_serves_runs_in_any_loop(store: AnyStore, face: str) -> None:
    if face == "sync":
        agent, session = weather_agent(), ThreadkeepSession("s", store)
        for question in ("Is it raining in Lyon?", "How long?"):
            Runner.run_sync(agent, question, session=session)
        assert len(asyncio.run(session.get_items())) == 6
