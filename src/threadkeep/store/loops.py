"""The loop of an agent: the model is asked, tools run, and people decide, in whichever process goes on.

Nothing is kept but what the conversation has: whose turn it is (`next_step`), which calls wait (`pending_calls`), and
what was decided about them (`approve`, `deny`). A loop that ended, or whose process was killed, goes on by being called
again. An output is stored once: of two processes that run the same call, the first one's counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from threadkeep import public as tk
from threadkeep.domain import tool_names
from threadkeep.domain.jsontext import JsonObject, dumps, mismatch
from threadkeep.domain.running import NextStep, PendingCall
from threadkeep.domain.tools import ToolRegistry, source_registry
from threadkeep.errors import IdempotencyConflict, InvalidOption, InvalidToolArguments, did_you_mean, shown
from threadkeep.formats import FormatName
from threadkeep.formats.shared.fields import placed_tools

MAX_ROUNDS: Final = 10
# how types of tools begin with which a model calls functions that are not among the definitions
_BRINGERS: Final = ("tool_search", "computer")
NeedsApproval = Collection[str] | Callable[[PendingCall], bool]


def run_tools(
    conversation: tk.Conversation,
    ask: Callable[[JsonObject], Any] | None,
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
            the loop, and the next one asks again. None: calls run alone, and the model is left to the caller.
        format: of requests and responses.
        tools: the functions that run; default: the default registry. Calls of others that the conversation offers wait;
            where it offers any, a call of one that it does not have gets an output that says so.
        needs_approval: the names of those that run only once they are approved, or a function that tells of a call.
        max_rounds: how often the model is asked at most.

    Returns:
        Whose turn it is: "user" if the model has answered; "tools" if calls wait for a decision, or for outputs of
        somebody else; "model" if the limit was reached, or there is no `ask`.

    Raises:
        InvalidOption: max_rounds is not positive, or needs_approval names a function that is not registered.
    """
    loop, rounds = ToolLoop.of(tools, needs_approval, max_rounds), 0
    while (step := conversation.next_step()) != "user":
        if step == "model":
            if ask is None or rounds == max_rounds:
                break
            rounds += 1
            rendered = conversation.render(format)
            conversation.add_response(ask(rendered.payload), format, rendered=rendered)
            continue
        ready = loop.ready(conversation.pending_calls(), conversation.tools)
        for call in ready:
            output = _output(call, loop)
            try:
                conversation.add_item(output, idempotency_key=key_of(call))
            except IdempotencyConflict:
                conversation = conversation.on_branch(conversation.branch)  # another process has run it
        if not ready:
            break
    return step


async def run_tools_async(
    conversation: tk.AsyncConversation,
    ask: Callable[[JsonObject], Awaitable[Any]] | None,
    format: FormatName,
    *,
    tools: ToolRegistry | None = None,
    needs_approval: NeedsApproval = (),
    max_rounds: int = MAX_ROUNDS,
) -> NextStep:
    """Do the same as `run_tools` in an event loop; `ask` is a coroutine function, and functions of tools may be."""
    loop, rounds = ToolLoop.of(tools, needs_approval, max_rounds), 0
    while (step := await conversation.next_step()) != "user":
        if step == "model":
            if ask is None or rounds == max_rounds:
                break
            rounds += 1
            rendered = await conversation.render(format)
            await conversation.add_response(await ask(rendered.payload), format, rendered=rendered)
            continue
        ready = loop.ready(await conversation.pending_calls(), conversation.tools)
        for call in ready:
            output = await _awaited_output(call, loop)
            try:
                await conversation.add_item(output, idempotency_key=key_of(call))
            except IdempotencyConflict:
                conversation = await conversation.on_branch(conversation.branch)
        if not ready:
            break
    return step


@dataclass(frozen=True, slots=True)
class ToolLoop:
    """What runs in a loop.

    Attributes:
        registry: the functions that run.
        needs_approval: which of their calls run only once they are approved; names as they were registered.
        max_rounds: how often the model is asked at most.
    """

    registry: ToolRegistry
    needs_approval: NeedsApproval = ()
    max_rounds: int = MAX_ROUNDS

    @classmethod
    def of(cls, tools: ToolRegistry | None, needs_approval: NeedsApproval, max_rounds: int) -> ToolLoop:
        """The loop of these arguments; InvalidOption for one that cannot be used."""
        if type(max_rounds) is not int or max_rounds < 1:
            raise InvalidOption("is not a positive number.", argument="max_rounds")
        registry = source_registry(tools)
        return cls(registry, _guarded(registry, needs_approval), max_rounds)

    def runs(self, item: Any) -> bool:
        """Whether an item is a call of a function that runs here."""
        return item.type == "function_call" and self.registry.name_of(item) is not None

    def may_run(self, call: PendingCall) -> bool:
        """Whether a call runs now: of a known function, approved where it has to be; denied ones have an output."""
        return self.runs(call.item) and (call.is_approved or (call.approval is None and not self._is_guarded(call)))

    def misses(self, item: Any, offered: Sequence[JsonObject]) -> bool:
        """Whether an item is a call of a function that is neither registered nor among the tools that are offered.

        Where none are, or one that brings functions of its own, that is not known.
        """
        if item.type != "function_call" or self.runs(item):
            return False
        tools = [tool for _, tool in placed_tools(offered)]
        known = [tool.name for tool in self.registry.definitions] + [str(tool.get("name")) for tool in tools]
        called = str(tool_names.qualified_name({"name": item.name, "namespace": item.namespace}))
        is_open = not tools or any(str(tool.get("type")).startswith(_BRINGERS) for tool in tools)
        return not (is_open or any(called == name or tool_names.stands_for(called, name) for name in known))

    def ready(self, calls: Sequence[PendingCall], offered: Sequence[JsonObject]) -> list[PendingCall]:
        """The calls that get an output now: those that run, and those of functions that there are not."""
        return [
            call for call in calls if self.may_run(call) or (call.approval is None and self.misses(call.item, offered))
        ]

    def asks(self, call: PendingCall) -> bool:
        """Whether a call runs once it is approved, about which nothing was decided yet."""
        return self.runs(call.item) and call.approval is None and self._is_guarded(call)

    def _is_guarded(self, call: PendingCall) -> bool:
        if callable(self.needs_approval):
            return self.needs_approval(call)
        return self.registry.name_of(call) in self.needs_approval


def _guarded(registry: ToolRegistry, needs_approval: Any) -> NeedsApproval:
    """What needs an approval, with names as they were registered; InvalidOption for one that names no function."""
    if callable(needs_approval):
        return needs_approval  # type: ignore[no-any-return]
    if isinstance(needs_approval, str | bytes) or not isinstance(needs_approval, Collection):
        hint = f"Write {{{shown(needs_approval)}}}." if isinstance(needs_approval, str) else None
        expected = "a collection of names, or a function of a call"
        raise mismatch(InvalidOption, expected, needs_approval, "needs_approval", hint)
    known = [tool.name for tool in registry.definitions]
    found = set[str]()
    for name in needs_approval:
        is_text = isinstance(name, str)
        meant = [name] if name in known else [one for one in known if is_text and tool_names.stands_for(name, one)]
        if not meant:
            similar = get_close_matches(name, known, n=1) if is_text else ()
            hint = f"{did_you_mean(similar)}Known names: {', '.join(known) or 'none'}."
            raise InvalidOption(f"names {shown(name)}, which is not registered.", argument="needs_approval", hint=hint)
        found.update(meant)
    return frozenset(found)


def key_of(call: PendingCall) -> str:
    """The idempotency key under which the output of a call is stored."""
    return f"run_tools:{call.position}"


def output_of(call: PendingCall, result: Any) -> JsonObject:
    """The output of a call, as an item, from what its function returned."""
    is_content = isinstance(result, str) or (isinstance(result, list) and all(map(_is_part, result)) and bool(result))
    said = result if is_content else dumps(result).decode()
    return {"type": "function_call_output", "call_id": call.call_id, "output": said}


def failed_output(call: PendingCall, text: str, status: str = "failed") -> JsonObject:
    """The output of a call that gave none, which says why."""
    return {"type": "function_call_output", "call_id": call.call_id, "output": text, "status": status}


def unknown_output(call: PendingCall) -> JsonObject:
    """The output of a call of a function that there is not."""
    return failed_output(call, f"There is no tool named {shown(call.name)}.")


def _output(call: PendingCall, loop: ToolLoop) -> JsonObject:
    """The output of a call; arguments that do not fit are said to the model, and other errors end the loop."""
    if not loop.runs(call.item):
        return unknown_output(call)
    try:
        return output_of(call, loop.registry.invoke(call))
    except InvalidToolArguments as error:
        return failed_output(call, str(error))


async def _awaited_output(call: PendingCall, loop: ToolLoop) -> JsonObject:
    if not loop.runs(call.item):
        return unknown_output(call)
    try:
        return output_of(call, await loop.registry.ainvoke(call))
    except InvalidToolArguments as error:
        return failed_output(call, str(error))


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"].startswith("input_")
