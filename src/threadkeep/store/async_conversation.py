"""A stored conversation, under asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from threadkeep.domain.items import UNSET
from threadkeep.domain.option_types import ChangedOptions
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.domain.stored import Branch, Page, StoredItem, StoredResponse, SyncResult
from threadkeep.domain.tools import FunctionTool, Tool, ToolRegistry, default_registry, tools_from
from threadkeep.domain.usage import UsageRow
from threadkeep.domain.wire import Rendered
from threadkeep.store.actions.opening import Opened
from threadkeep.store.answers import Call
from threadkeep.store.contents import Contents
from threadkeep.store.database import AsyncRunner
from threadkeep.store.face_views import AsyncViews
from threadkeep.store.handle_changes import Changes
from threadkeep.store.handle_reads import Reads
from threadkeep.store.handle_writes import Writes
from threadkeep.store.recorder import AsyncRecorder
from threadkeep.store.recording import LEASE_SECONDS
from threadkeep.store.requests import How, OnConflict

T = TypeVar("T")


class AsyncConversation(Writes, AsyncViews, Reads, Changes):
    """A conversation in the database; the methods of `Conversation` as coroutines, with the same options.

    `how` is `idempotency_key`, `expected_head` and `on_conflict`; `view` is `strict`, `upto` and `server_state`.
    """

    def __init__(self, found: Opened, contents: Contents, runner: AsyncRunner) -> None:
        super().__init__(found, contents)
        self._runner = runner
        self._remembers = runner.remembers

    async def user(self, content: Any, *, author_id: str | None = None, **how: Unpack[How]) -> StoredItem:
        """Like `Conversation.user`."""
        return await self._run(self._saying("user", content, how, author_id))

    async def assistant(self, content: Any, *, author_id: str | None = None, **how: Unpack[How]) -> StoredItem:
        """Like `Conversation.assistant`."""
        return await self._run(self._saying("assistant", content, how, author_id))

    async def system(self, content: Any, *, author_id: str | None = None, **how: Unpack[How]) -> StoredItem:
        """Like `Conversation.system`."""
        return await self._run(self._saying("system", content, how, author_id))

    async def developer(self, content: Any, *, author_id: str | None = None, **how: Unpack[How]) -> StoredItem:
        """Like `Conversation.developer`."""
        return await self._run(self._saying("developer", content, how, author_id))

    async def add_item(self, item: Any, *, author_id: str | None = None, **how: Unpack[How]) -> StoredItem:
        """Like `Conversation.add_item`."""
        return await self._run(self._adding_one(item, how, author_id))

    async def add_items(
        self, items: Iterable[Any], *, author_id: str | None = None, **how: Unpack[How]
    ) -> list[StoredItem]:
        """Like `Conversation.add_items`."""
        return await self._run(self._adding_many(items, how, author_id))

    async def add_function_call_output(
        self,
        *,
        call_id: str | None,
        output: Any = UNSET,
        result: Any = UNSET,
        status: str | None = None,
        **how: Unpack[How],
    ) -> StoredItem:
        """Like `Conversation.add_function_call_output`."""
        return await self._run(self._outputting(call_id, output, result, status, how))

    async def add_input(self, turns: Any, format: str, **how: Unpack[How]) -> list[StoredItem]:
        """Like `Conversation.add_input`."""
        return await self._run(self._inputting(turns, format, how))

    async def sync_request(self, payload: Any, format: str, **how: Unpack[How]) -> SyncResult:
        """Like `Conversation.sync_request`."""
        return await self._run(self._syncing(payload, format, how))

    async def add_response(
        self,
        body: Any,
        format: str,
        *,
        rendered: Rendered | None = None,
        idempotency_key: str | None = None,
        expected_head: int | None = None,
        on_conflict: OnConflict = "raise",
        provider: str | None = None,
        latency_ms: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Like `Conversation.add_response`."""
        how: How = {"idempotency_key": idempotency_key, "expected_head": expected_head, "on_conflict": on_conflict}
        call: Call = {"provider": provider, "latency_ms": latency_ms, "headers": headers}
        return await self._run(self._answering(body, format, rendered, how, call))

    def stream_response(
        self,
        format: str,
        *,
        rendered: Rendered | None = None,
        idempotency_key: str | None = None,
        expected_head: int | None = None,
        on_conflict: OnConflict = "raise",
        provider: str | None = None,
        latency_ms: float | None = None,
        headers: Mapping[str, str] | None = None,
        lease: float = LEASE_SECONDS,
    ) -> AsyncRecorder:
        """Like `Conversation.stream_response`."""
        how: How = {"idempotency_key": idempotency_key, "expected_head": expected_head, "on_conflict": on_conflict}
        call: Call = {"provider": provider, "latency_ms": latency_ms, "headers": headers}
        return AsyncRecorder(self._recording(format, rendered, how, call, lease), self._runner)

    async def record_attempt(
        self,
        format: str,
        *,
        error: Any = None,
        model: str | None = None,
        status: str = "failed",
        provider: str | None = None,
        latency_ms: float | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Like `Conversation.record_attempt`."""
        await self._run(
            self._attempting(
                format, error, model, status, idempotency_key, {"provider": provider, "latency_ms": latency_ms}
            )
        )

    async def session(self) -> Session:
        """Like `Conversation.session`."""
        return await self._run(self._detaching())

    async def clone_config(self) -> Session:
        """Like `Conversation.clone_config`."""
        return await self._run(self._cloning_config())

    async def items(
        self,
        *,
        before: int | str | None = None,
        after: int | str | None = None,
        limit: int = 100,
        order: Literal["asc", "desc"] = "asc",
    ) -> Page[StoredItem]:
        """Like `Conversation.items`."""
        return await self._run(self._listing_items(before, after, limit, order))

    async def get_item(self, position: int) -> StoredItem:
        """Like `Conversation.get_item`."""
        return await self._run(self._getting_item(position))

    async def transcript(self) -> list[StoredItem]:
        """Like `Conversation.transcript`."""
        return await self._run(self._transcribing())

    async def responses(self, *, after: int | str | None = None, limit: int = 100) -> Page[StoredResponse]:
        """Like `Conversation.responses`."""
        return await self._run(self._listing_responses(after, limit))

    async def response_body(self, number: int) -> bytes:
        """Like `Conversation.response_body`."""
        return await self._run(self._reading_body(number))

    @overload
    async def usage(self, *, by: tuple[()] = ()) -> UsageRow: ...  # type: ignore[overload-overlap]  # () is empty
    @overload
    async def usage(self, *, by: Sequence[str] | str) -> list[UsageRow]: ...
    async def usage(self, *, by: Sequence[str] | str = ()) -> UsageRow | list[UsageRow]:
        """Like `Conversation.usage`."""
        return await self._run(self._reporting(by))

    async def fork(self, at: int | None = None, *, idempotency_key: str | None = None) -> Self:
        """Like `Conversation.fork`."""
        found, is_replayed = await self._run(self._forking(at, idempotency_key))
        return self._handle(found, is_replayed=is_replayed)

    async def on_branch(self, number: int) -> Self:
        """Like `Conversation.on_branch`."""
        return self._handle(await self._run(self._opening_branch(number)))

    async def branches(self, *, after: int | str | None = None, limit: int = 100) -> Page[Branch]:
        """Like `Conversation.branches`."""
        return await self._run(self._listing_branches(after, limit))

    async def set_active_branch(self, number: int, *, idempotency_key: str | None = None) -> None:
        """Like `Conversation.set_active_branch`."""
        await self._run(self._activating(number, idempotency_key))

    async def update(self, *, idempotency_key: str | None = None, **options: Unpack[ChangedOptions]) -> None:
        """Like `Conversation.update`."""
        await self._run(self._updating(options, idempotency_key))

    async def json_output(
        self,
        schema: Mapping[str, Any],
        *,
        name: str = "response",
        strict: bool | None = None,
        description: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Like `Conversation.json_output`."""
        await self._run(
            self._asking_json(schema, {"name": name, "strict": strict, "description": description}, idempotency_key)
        )

    async def think(
        self,
        enabled: bool | None = None,
        *,
        effort: str | None = None,
        budget_tokens: int | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Like `Conversation.think`."""
        await self._run(self._thinking(enabled, {"effort": effort, "budget_tokens": budget_tokens}, idempotency_key))

    async def register_tool(
        self,
        name: str,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        *,
        idempotency_key: str | None = None,
        **extra: Any,
    ) -> Tool:
        """Like `Conversation.register_tool`."""
        return (
            await self._run(
                self._registering(
                    "register_tool", [FunctionTool(name, description, parameters, strict, **extra)], idempotency_key
                )
            )
        )[0]

    async def register_tools(
        self, tools: ToolRegistry | Iterable[Any], *, idempotency_key: str | None = None
    ) -> list[Tool]:
        """Like `Conversation.register_tools`."""
        return await self._run(self._registering("register_tools", tools_from(tools), idempotency_key))

    async def use_tools(
        self, *names: str, registry: ToolRegistry | None = None, idempotency_key: str | None = None
    ) -> list[Tool]:
        """Like `Conversation.use_tools`."""
        return await self._run(
            self._registering("use_tools", (registry or default_registry()).chosen(names), idempotency_key)
        )

    async def remove_tool(self, name: str, *, idempotency_key: str | None = None) -> Tool | None:
        """Like `Conversation.remove_tool`."""
        return await self._run(self._removing_tool(name, idempotency_key))

    async def clear_tools(self, *, idempotency_key: str | None = None) -> list[Tool]:
        """Like `Conversation.clear_tools`."""
        return await self._run(self._clearing_tools(idempotency_key))

    async def archive(self, *, idempotency_key: str | None = None) -> None:
        """Like `Conversation.archive`."""
        await self._run(self._archiving("archived", idempotency_key))

    async def unarchive(self, *, idempotency_key: str | None = None) -> None:
        """Like `Conversation.unarchive`."""
        await self._run(self._archiving("active", idempotency_key))

    def _handle(self, found: Opened, *, is_replayed: bool = False) -> Self:
        made = type(self)(found, self._contents, self._runner)
        made.replayed = is_replayed
        return made
