"""A support desk with the OpenAI Agents SDK: sessions of customers, refunds that a person decides, and what it costs.

pip install "threadkeep[agents]"
export OPENAI_API_KEY=…
python agents_sdk.py ann main "Order 17 arrived broken."
python agents_sdk.py ann --usage
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from agents import Agent, Runner, RunState, function_tool

from threadkeep import Store
from threadkeep.contrib.openai_agents import ThreadkeepSession, UsageHooks

MODEL = "gpt-5.4"
PAUSED = "paused_run"  # the state of a run that waits for a decision


@function_tool
def find_order(number: int) -> str:
    """Look up an order."""
    return f"order {number}: one teapot, 30 euros, delivered yesterday"


@function_tool(needs_approval=True)
def refund(number: int, euros: int) -> str:
    """Give money back for an order."""
    return f"{euros} euros of order {number} were given back"


def support_agent(model: Any = MODEL) -> Agent[Any]:
    """The agent; `model` is the name of a model, or a model of the SDK."""
    instructions = "You help customers of a shop for teapots. Look up orders before you promise anything."
    return Agent(name="Support", instructions=instructions, model=model, tools=[find_order, refund])


async def answer(session: ThreadkeepSession, agent: Agent[Any], message: str) -> str:
    """Answer a message. A run that needs a decision is kept beside the conversation, for `decide` in any process."""
    result = await Runner.run(agent, message, session=session, hooks=UsageHooks(session))
    return await outcome(session, result)


async def decide(session: ThreadkeepSession, agent: Agent[Any], *, is_approved: bool) -> str:
    """Continue a run that was paused, after a person has decided about its calls."""
    conversation = await session.conversation()
    paused = await conversation.state(PAUSED)
    if paused is None:
        return "Nothing waits for a decision."
    state = await RunState.from_json(agent, paused.value)
    for call in state.get_interruptions():
        if is_approved:
            state.approve(call)
        else:
            state.reject(call)
    result = await Runner.run(agent, state, session=session, hooks=UsageHooks(session))
    await conversation.delete_state(PAUSED)
    return await outcome(session, result)


async def outcome(session: ThreadkeepSession, result: Any) -> str:
    """The answer, or what is to be decided before there is one."""
    if not result.interruptions:
        return str(result.final_output)
    await (await session.conversation()).set_state(PAUSED, result.to_state().to_json())
    calls = ", ".join(f"{call.name}({call.arguments})" for call in result.interruptions)
    return f"To be decided: {calls}"


def usage_lines(store: Store, customer: str) -> list[str]:
    """What the answers to a customer cost, a line for each model."""
    rows = store.for_user(customer).usage(by="model")
    return [f"{row.model}: {row.attempts} calls, {row.total_tokens} tokens, {row.cost_usd} USD" for row in rows]


async def main(store: Store, customer: str, name: str, words: list[str]) -> None:
    session, agent = ThreadkeepSession(name, store, user_id=customer), support_agent()
    if words in (["--approve"], ["--deny"]):
        print(await decide(session, agent, is_approved=words == ["--approve"]))  # noqa: T201 - a program
    else:
        print(await answer(session, agent, " ".join(words)))  # noqa: T201 - a program


if __name__ == "__main__":
    with Store(os.environ.get("SUPPORT_DATABASE", "sqlite:///support.db")) as opened:
        if sys.argv[2:] == ["--usage"]:
            print(*usage_lines(opened, sys.argv[1]), sep="\n")  # noqa: T201 - a program
        else:
            asyncio.run(main(opened, sys.argv[1], sys.argv[2], sys.argv[3:]))
