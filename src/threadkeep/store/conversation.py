"""A stored conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Self, Unpack, overload

from threadkeep.domain.content import Content
from threadkeep.domain.context_caches import CachePlan
from threadkeep.domain.items import UNSET, ItemInput, Output
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.options import UpdateOptions
from threadkeep.domain.rendering import Rendered, ViewOptions
from threadkeep.domain.reports import UsageKey, UsageRow
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.domain.stored import Branch, Page, StoredItem, StoredResponse, SyncResult
from threadkeep.domain.tools import FunctionTool, Tool, ToolRegistry, source_registry, tools_from
from threadkeep.formats import FormatName
from threadkeep.store import (
    branches,
    compaction,
    importing,
    ledger,
    rendering,
    responses,
    stored_responses,
    updates,
    usage,
)
from threadkeep.store import items as _items
from threadkeep.store.context_caches import planning
from threadkeep.store.handle import ConversationAttributes, Handle
from threadkeep.store.history_sync import sync
from threadkeep.store.ledger import CallInfo
from threadkeep.store.lineage import ConversationState
from threadkeep.store.positions import AppendOptions, OnConflict
from threadkeep.store.rendering import render_options
from threadkeep.store.streaming.recorder import LEASE_SECONDS, Recorder, stream_response


class Conversation(ConversationAttributes):
    """A conversation in the database, pinned to one of its branches.

    Made by a Store. It reads what is new when it renders, and keeps what it has read. It is best to have one handle for
    each thread or task; a shared one may read things twice.
    """

    def __init__(self, handle: Handle, *, replayed: bool = False) -> None:
        self._handle, self.replayed = handle, replayed

    def user(self, content: Content, *, author_id: str | None = None, **options: Unpack[AppendOptions]) -> StoredItem:
        """Append a user message: text, a content part, a dict, or a list of them.

        Options: `idempotency_key` (the same key and content writes once), `expected_head` (the position where the
        branch must end, -1: empty), and `on_conflict` ("raise", "append" or "branch"), for when it ends elsewhere or
        a response is in progress there, which "append" ends.

        Raises:
            InvalidItem, InvalidOption: the content or an option cannot be used.
            NotFound: the conversation was deleted, or belongs to somebody else.
            HeadConflict, ResponseInProgress: it cannot be appended there, and `on_conflict` is "raise".
            IdempotencyConflict: the key was used with other content.
            TooLarge: a value is over a limit. In each case nothing was written.
        """
        return _items.append_message(self._handle, "user", content, options, author_id)

    def assistant(
        self, content: Content, *, author_id: str | None = None, **options: Unpack[AppendOptions]
    ) -> StoredItem:
        """Append an assistant message; a text becomes `output_text`. Options and errors as `user`."""
        return _items.append_message(self._handle, "assistant", content, options, author_id)

    def system(self, content: Content, *, author_id: str | None = None, **options: Unpack[AppendOptions]) -> StoredItem:
        """Append a system message. Options and errors as `user`."""
        return _items.append_message(self._handle, "system", content, options, author_id)

    def developer(
        self, content: Content, *, author_id: str | None = None, **options: Unpack[AppendOptions]
    ) -> StoredItem:
        """Append a developer message. Options and errors as `user`."""
        return _items.append_message(self._handle, "developer", content, options, author_id)

    def add_item(
        self, item: ItemInput, *, author_id: str | None = None, **options: Unpack[AppendOptions]
    ) -> StoredItem:
        """Append an item of any type: a typed item, or a dict of Open Responses. Options and errors as `user`."""
        return _items.append_item(self._handle, item, options, author_id)

    def add_items(
        self, items: Iterable[ItemInput], *, author_id: str | None = None, **options: Unpack[AppendOptions]
    ) -> list[StoredItem]:
        """Append several items, all or none; options and errors as `user`."""
        return _items.append_items(self._handle, items, options, author_id)

    def add_function_call_output(
        self,
        *,
        call_id: str | None,
        output: Output | None = UNSET,
        result: Output | None = UNSET,
        status: str | None = None,
        **options: Unpack[AppendOptions],
    ) -> StoredItem:
        """Append what a called function returned: text or content parts (`result` is another name of `output`).

        Options (`idempotency_key`, `expected_head`, `on_conflict`) and errors as `user`.
        """
        return _items.append_call_output(self._handle, call_id, output, result, status, options)

    def add_input(self, turns: Any, format: FormatName, **options: Unpack[AppendOptions]) -> list[StoredItem]:
        """Append a provider's turns (messages, contents, items): user turns, tool results, as they stand in a request.

        Outputs that do not name their call go to the open calls of the stored history. Options and errors as `user`.
        """
        return importing.add_input(self._handle, turns, format, options)

    def sync_request(self, payload: Any, format: FormatName, **options: Unpack[AppendOptions]) -> SyncResult:
        """Append what is new in the history of a request that a client holds itself; nothing where it only echoes.

        Histories are compared by what their turns say, not by ids, marks, borders or reasoning. Of a history that was
        cut at its beginning only what is new is appended; one that differs goes on a branch of its own, which
        `branch` of the result names (this handle stays). Instructions and settings stay as they are stored.
        Options and errors as `user`.

        Raises:
            UnknownFormat, CannotParse: it is no request.
        """
        return sync.sync_request(self._handle, payload, format, options)

    def add_response(
        self,
        body: Any,
        format: FormatName,
        *,
        rendered: Rendered | None = None,
        idempotency_key: str | None = None,
        expected_head: int | None = None,
        on_conflict: OnConflict = "raise",
        provider: str | None = None,
        latency_ms: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Append a provider's answer in one transaction: items, response, raw body, and a row of the usage ledger.

        `body` is a dict, JSON text, or an object of the provider's SDK; `rendered` is the request it answers. With an
        `idempotency_key` (one for each answer, such as its id) the same answer is stored once. Where the branch does
        not end at `expected_head`, `on_conflict` says what happens: "raise", "append" all the same, or on a new
        "branch".

        Raises:
            ProviderError: the body is an error; its ledger row is written.
            HeadConflict, ResponseInProgress: it cannot be appended there; the ledger row is written.
            UnknownFormat, CannotParse, InvalidItem, NotFound, IdempotencyConflict, TooLarge: nothing was written.
        """
        options = AppendOptions(idempotency_key=idempotency_key, expected_head=expected_head, on_conflict=on_conflict)
        call = CallInfo(provider=provider, latency_ms=latency_ms, headers=headers)
        return responses.add_response(self._handle, body, format, rendered, options, call)

    def stream_response(
        self,
        format: FormatName,
        *,
        rendered: Rendered | None = None,
        idempotency_key: str | None = None,
        expected_head: int | None = None,
        on_conflict: OnConflict = "raise",
        provider: str | None = None,
        latency_ms: float | None = None,
        headers: Mapping[str, str] | None = None,
        lease: float = LEASE_SECONDS,
    ) -> Recorder:
        """A recorder of a streamed answer: a context manager whose `feed` takes each of the provider's events.

        At the end of the `with` statement the response is written like that of `add_response`, with its status
        (`completed`, `incomplete`, `cancelled`, `failed`), and is in `.response`. Latency is measured unless told.
        The recorder renews its lease by itself; when nothing was heard of it for `lease` seconds, the next writer may
        end the response. A branch has one in progress: `on_conflict` says what to do about another one, "append" ends
        that one. Other options as `add_response`.

        Raises:
            ResponseInProgress, HeadConflict, UnknownFormat, InvalidOption, NotFound, IdempotencyConflict: on entering.
        """
        options = AppendOptions(idempotency_key=idempotency_key, expected_head=expected_head, on_conflict=on_conflict)
        call = CallInfo(provider=provider, latency_ms=latency_ms, headers=headers)
        return Recorder(stream_response(self._handle, format, rendered, options, call, lease))

    def record_attempt(
        self,
        format: FormatName,
        *,
        error: Any = None,
        model: str | None = None,
        status: str = "failed",
        provider: str | None = None,
        latency_ms: float | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Write down a call that gave no response (a timeout, say): one row of the usage ledger.

        Raises:
            UnknownFormat, InvalidOption, NotFound, IdempotencyConflict: nothing was written.
        """
        call: CallInfo = {"provider": provider, "latency_ms": latency_ms}
        ledger.add_attempt(self._handle, format, call, error, model, status, idempotency_key)

    def compact(
        self, *, upto: int | None = None, summary: str | None = None, item: Any = None, **options: Unpack[AppendOptions]
    ) -> StoredItem:
        """Let a summary stand for the items up to a position (None: all), from the next request on; nothing is deleted.

        `item` is a provider's own compaction item, which counts for its own format. A turn is covered whole or not at
        all, and so are calls and their outputs: the item says (`upto`) where it really ends. `transcript` still shows
        everything, `undo_compaction` takes the last one back. Options as for `user`.

        Raises:
            InvalidOption, InvalidItem: there is nothing to compact, or not one of summary and item.
            NotFound, HeadConflict, ResponseInProgress, IdempotencyConflict: nothing was written.
        """
        return compaction.compact(self._handle, upto, summary, item, options)

    def undo_compaction(self, **options: Unpack[AppendOptions]) -> StoredItem:
        """Take the last compaction back; options as for `user`.

        Raises:
            InvalidOption: there is none.
        """
        return compaction.undo_compaction(self._handle, options)

    def render(self, format: FormatName, **view: Unpack[ViewOptions]) -> Rendered:
        """Render the next request for a provider, with its losses and repairs; reads only what is new.

        In `view`: `strict` (raise LossError instead of reporting losses), and what docs/views.md tells: `upto`,
        `window`, `vision`, `reasoning`, `cache`, `dynamic_context`, `dynamic_context_at`, `dialect`, `server_state`.

        Raises:
            UnknownFormat, InvalidOption, NotFound: it cannot be read.
            CannotRender: the provider would refuse any request made of this conversation.
            LossError: `strict` is set and the request is not exact.
        """
        return rendering.render(self._handle, format, view)

    def request_payload(self, format: FormatName, **view: Unpack[ViewOptions]) -> JsonObject:
        """The next request as a dict for the provider's SDK. Options (`strict`, `upto` …) and errors as `render`."""
        return rendering.render(self._handle, format, view).payload

    def request_body(self, format: FormatName, **view: Unpack[ViewOptions]) -> bytes:
        """The next request as JSON, UTF-8: the fast way. Options (`strict`, `upto` …) and errors as `render`."""
        return rendering.render(self._handle, format, view).body

    def plan_context_cache(
        self,
        format: FormatName,
        *,
        threshold: int = planning.THRESHOLD,
        ttl: float | timedelta = planning.TTL_SECONDS,
        dynamic_tokens: int = 0,
        lease: float | timedelta = planning.CLAIM_SECONDS,
        **view: Unpack[ViewOptions],
    ) -> CachePlan:
        """What to do about an explicit cache of what requests repeat (Gemini's `cachedContent`): see `CachePlan`.

        A cache is worth its making when `threshold` or more tokens of the newest request stood outside a cache
        (-1: never); it then holds everything but the last turn. `dynamic_tokens` of them were the dynamic context's,
        where you know. All conversations of the tenant that begin alike share a cache, within one `account` (your name
        for a project or key of the provider). Whoever is told to create one has claimed it for `lease` seconds; the
        others wait. `ttl` is how long the cache is to live, in seconds. `view` are options as for `render`, which the
        requests must have, too.

        Raises:
            InvalidOption, UnknownFormat: the provider has no such caches, or an option cannot be used.
            NotFound, CannotRender: there is nothing to cache.
        """
        policy = planning.CachePolicy.of(threshold, ttl, lease, dynamic_tokens)
        return planning.plan_context_cache(self._handle, format, policy, render_options(view))

    def record_context_cache(
        self, plan: CachePlan, *, name: str | None, expires_at: datetime | str | None = None
    ) -> CachePlan:
        """Say what became of a plan to create a cache: its `name`, or None when it could not be created.

        `expires_at` is what the provider says (text or datetime), else the time that was planned. From now on requests
        with `cache="auto"` name the cache. Returns what holds now; delete the names in its `delete` at the provider.

        Raises:
            InvalidOption: it is no such plan, or a value cannot be used.
            NotFound: the conversation is gone.
        """
        return planning.record_context_cache(self._handle, plan, name, expires_at)

    def session(self) -> Session:
        """A detached copy: options, tools and the items of this branch."""
        return rendering.detach(self._handle)

    def clone_config(self) -> Session:
        """A detached session with the same options and tools, without items."""
        return rendering.clone_config(self._handle)

    def items(
        self,
        *,
        before: int | str | None = None,
        after: int | str | None = None,
        limit: int = 100,
        order: Literal["asc", "desc"] = "asc",
    ) -> Page[StoredItem]:
        """A page of this branch's items: those after or before a position (exclusive), oldest or newest first."""
        return _items.list_items(self._handle, before, after, limit, order)

    def get_item(self, position: int) -> StoredItem:
        """The item at a position of this branch.

        Raises:
            NotFound: there is none.
        """
        return _items.get_item(self._handle, position)

    def transcript(self) -> list[StoredItem]:
        """All items of this branch, in order."""
        return _items.list_all_items(self._handle)

    def responses(self, *, after: int | str | None = None, limit: int = 100) -> Page[StoredResponse]:
        """A page of the responses of all branches, oldest first."""
        return stored_responses.list_responses(self._handle, after, limit)

    def response_body(self, number: int) -> bytes:
        """The raw body of a response.

        Raises:
            NotFound: there is none, or it has expired.
        """
        return stored_responses.read_body(self._handle, number)

    @overload
    def usage(self, *, by: tuple[()] = ()) -> UsageRow: ...  # type: ignore[overload-overlap]  # () is empty
    @overload
    def usage(self, *, by: Sequence[UsageKey] | UsageKey) -> list[UsageRow]: ...
    def usage(self, *, by: Sequence[UsageKey] | UsageKey = ()) -> UsageRow | list[UsageRow]:
        """What this conversation used: one UsageRow, or with `by` ("response", "model", "day" …) a list of them."""
        return usage.usage_of_conversation(self._handle, by)

    def fork(self, at: int | None = None, *, before: int | None = None, idempotency_key: str | None = None) -> Self:
        """A handle on a new branch with the items up to and including a position (default: all; -1: none).

        With `before` it has the items before that position, which belongs to an item of this branch.

        Raises:
            NotFound: this branch has no such position.
            InvalidOption: `at` and `before` are both given.
        """
        conversation, is_replayed = branches.fork(self._handle, at, before, idempotency_key)
        return self._on(conversation, replayed=is_replayed)

    def on_branch(self, number: int) -> Self:
        """A handle on another branch.

        Raises:
            NotFound: there is none of that number.
        """
        return self._on(branches.open_branch(self._handle, number))

    def branches(self, *, after: int | str | None = None, limit: int = 100) -> Page[Branch]:
        """A page of the conversation's branches."""
        return branches.list_branches(self._handle, after, limit)

    def set_active_branch(self, number: int, *, idempotency_key: str | None = None) -> None:
        """Make a branch the one that `get_conversation` opens.

        Raises:
            NotFound: there is none of that number.
        """
        updates.set_active_branch(self._handle, number, idempotency_key)

    def update(self, *, idempotency_key: str | None = None, **options: Unpack[UpdateOptions]) -> None:
        """Change session options (None takes one out), `title`, `labels` (all of them), `user_id` or `external_id`.

        Raises:
            InvalidOption: an option is unknown or cannot be used; nothing was written.
        """
        updates.update(self._handle, options, idempotency_key)

    def json_output(
        self,
        schema: Mapping[str, Any],
        *,
        name: str = "response",
        strict: bool | None = None,
        description: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Ask for answers that are JSON of this schema. Errors as `update`."""
        options = {"name": name, "strict": strict, "description": description}
        updates.request_json(self._handle, schema, options, idempotency_key)

    def think(
        self,
        enabled: bool | None = None,
        *,
        effort: str | None = None,
        budget_tokens: int | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Ask for reasoning of an effort or within a budget; ``think(False)`` takes that back. Errors as `update`."""
        options = {"effort": effort, "budget_tokens": budget_tokens}
        updates.think(self._handle, enabled, options, idempotency_key)

    def register_tool(
        self,
        /,
        name: str,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        *,
        idempotency_key: str | None = None,
        **extra: Any,
    ) -> Tool:
        """Offer a function to the model; one of the same name is replaced in its place. Errors as `update`."""
        tool = FunctionTool(name, description, parameters, strict, **extra)
        return updates.add_tools(self._handle, "register_tool", [tool], idempotency_key)[0]

    def register_tools(
        self, tools: ToolRegistry | Iterable[Tool | Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[Tool]:
        """Offer the tools of a registry, or of a list of definitions (functions and built-in tools)."""
        return updates.add_tools(self._handle, "register_tools", tools_from(tools), idempotency_key)

    def use_tools(
        self, *names: str, registry: ToolRegistry | None = None, idempotency_key: str | None = None
    ) -> list[Tool]:
        """Offer tools of a registry (default: the module's own) by name; all of them without names.

        Raises:
            ToolNotFound: the registry has no such tool.
        """
        tools = source_registry(registry).chosen(names)
        return updates.add_tools(self._handle, "use_tools", tools, idempotency_key)

    def remove_tool(self, name: str, *, idempotency_key: str | None = None) -> Tool | None:
        """Offer a tool no longer; returns its definition, None when there was none."""
        return updates.remove_tool(self._handle, name, idempotency_key)

    def clear_tools(self, *, idempotency_key: str | None = None) -> list[Tool]:
        """Offer no tools any more; returns their definitions."""
        return updates.clear_tools(self._handle, idempotency_key)

    def archive(self, *, idempotency_key: str | None = None) -> None:
        """Take the conversation out of the usual listings. It can still be read and appended to."""
        updates.set_status(self._handle, "archived", idempotency_key)

    def unarchive(self, *, idempotency_key: str | None = None) -> None:
        """Take the conversation back into the usual listings."""
        updates.set_status(self._handle, "active", idempotency_key)

    def _on(self, conversation: ConversationState, *, replayed: bool = False) -> Self:
        return type(self)(self._handle.on(conversation), replayed=replayed)
