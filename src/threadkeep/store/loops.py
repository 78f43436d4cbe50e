"""The loop of an agent: the model is asked, tools run, and people decide, in whichever process goes on.

Nothing is kept but what the conversation has: whose turn it is (`next_step`), which calls wait (`pending_calls`), and
what was decided about them (`approve`, `deny`). A loop that ended, or whose process was killed, goes on by being called
again. An output is stored once: of two processes that run the same call, the first one's counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from threadkeep import public as tk
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.running import NextStep, PendingCall
from threadkeep.domain.tools import ToolRegistry, default_registry
from threadkeep.errors import IdempotencyConflict, InvalidOption, InvalidToolArguments
from threadkeep.formats import FormatName

MAX_ROUNDS: Final = 10
NeedsApproval = Collection[str] | Callable[[PendingCall], bool]


def run_tools(
    conversation: tk.Conversation,
    ask: Callable[[JsonObject], Any],
    format: FormatName,
    *,
    tools: ToolRegistry | None = None,
    needs_approval: NeedsApproval = (),
    max_rounds: int = MAX_ROUNDS,
) -> NextStep:
    """Ask the model and run its calls until it has answered, a person has to act, or the limit is reached.

    Args:
        conversation: where it goes on.
        ask: sends the payload of a request to the provider, and returns the body of the response; what it raises ends
            the loop, and the next one asks again.
        format: of requests and responses.
        tools: the functions that run; default: the default registry. Calls of others wait.
        needs_approval: the names of those that run only once they are approved, or a function that tells of a call.
        max_rounds: how often the model is asked at most.

    Returns:
        Whose turn it is: "user" if the model has answered; "tools" if calls wait for a decision, or for outputs of
        somebody else; "model" if the limit was reached.

    Raises:
        InvalidOption: max_rounds is not positive.
    """
    registry, rounds = _registry(tools, max_rounds), 0
    while (step := conversation.next_step()) != "user":
        if step == "model":
            if rounds == max_rounds:
                break
            rounds += 1
            rendered = conversation.render(format)
            conversation.add_response(ask(rendered.payload), format, rendered=rendered)
            continue
        ready = [call for call in conversation.pending_calls() if _may_run(call, registry, needs_approval)]
        for call in ready:
            output = _output(call, lambda call=call: registry.invoke(call))  # type: ignore[misc]
            try:
                conversation.add_item(output, idempotency_key=_key(call))
            except IdempotencyConflict:
                conversation = conversation.on_branch(conversation.branch)  # another process has run it
        if not ready:
            break
    return step


async def run_tools_async(
    conversation: tk.AsyncConversation,
    ask: Callable[[JsonObject], Awaitable[Any]],
    format: FormatName,
    *,
    tools: ToolRegistry | None = None,
    needs_approval: NeedsApproval = (),
    max_rounds: int = MAX_ROUNDS,
) -> NextStep:
    """Do the same as `run_tools` in an event loop; `ask` is a coroutine function, and functions of tools may be."""
    registry, rounds = _registry(tools, max_rounds), 0
    while (step := await conversation.next_step()) != "user":
        if step == "model":
            if rounds == max_rounds:
                break
            rounds += 1
            rendered = await conversation.render(format)
            await conversation.add_response(await ask(rendered.payload), format, rendered=rendered)
            continue
        ready = [call for call in await conversation.pending_calls() if _may_run(call, registry, needs_approval)]
        for call in ready:
            output = await _awaited_output(call, registry)
            try:
                await conversation.add_item(output, idempotency_key=_key(call))
            except IdempotencyConflict:
                conversation = await conversation.on_branch(conversation.branch)
        if not ready:
            break
    return step


def _registry(tools: ToolRegistry | None, max_rounds: int) -> ToolRegistry:
    if type(max_rounds) is not int or max_rounds < 1:
        raise InvalidOption("is not a positive number.", argument="max_rounds")
    return default_registry() if tools is None else tools


def _may_run(call: PendingCall, registry: ToolRegistry, needs_approval: NeedsApproval) -> bool:
    """Whether a call runs: of a function that is known, and approved where it has to be; denied ones have an output."""
    if call.item.type != "function_call" or registry.handler_for(call.name) is None:
        return False
    is_asked = needs_approval(call) if callable(needs_approval) else call.name in needs_approval
    return call.is_approved or (call.approval is None and not is_asked)


def _key(call: PendingCall) -> str:
    return f"run_tools:{call.position}"


def _output(call: PendingCall, run: Callable[[], Any]) -> JsonObject:
    """The output of a call; arguments that do not fit are told to the model, and other errors end the loop."""
    output: JsonObject = {"type": "function_call_output", "call_id": call.call_id}
    try:
        result = run()
    except InvalidToolArguments as error:
        return {**output, "output": str(error), "status": "incomplete"}
    is_content = isinstance(result, str) or (isinstance(result, list) and all(map(_is_part, result)) and bool(result))
    return {**output, "output": result if is_content else dumps(result).decode()}


async def _awaited_output(call: PendingCall, registry: ToolRegistry) -> JsonObject:
    try:
        result = await registry.ainvoke(call)
    except InvalidToolArguments as error:
        failure: InvalidToolArguments = error

        def fail() -> Any:
            raise failure

        return _output(call, fail)
    return _output(call, lambda: result)


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"].startswith("input_")
