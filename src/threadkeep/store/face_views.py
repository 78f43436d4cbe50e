"""What a conversation shows to a model: the methods of both faces for requests, compactions and context caches."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack

from threadkeep.domain.context_caches import CachePlan
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.stored import StoredItem
from threadkeep.domain.wire import Rendered
from threadkeep.store.database import AsyncRunner, SyncRunner
from threadkeep.store.handle_caches import CLAIM_SECONDS, THRESHOLD, TTL_SECONDS, Wish
from threadkeep.store.handle_views import Views
from threadkeep.store.plans import Plan, Work
from threadkeep.store.requests import How, View

T = TypeVar("T")


class SyncViews(Views):
    """Requests, compactions and context caches of a Conversation."""

    _runner: SyncRunner

    def compact(
        self, *, upto: int | None = None, summary: str | None = None, item: Any = None, **how: Unpack[How]
    ) -> StoredItem:
        """Let a summary stand for the items up to a position (None: all), from the next request on; nothing is deleted.

        `item` is a provider's own compaction item, which counts for its own format. A turn is covered whole or not at
        all, and so are calls and their outputs: the item says (`upto`) where it really ends. `transcript` still shows
        everything, `undo_compaction` takes the last one back. Options in `how` as for `user`.

        Raises:
            InvalidOption, InvalidItem: there is nothing to compact, or not one of summary and item.
            NotFound, HeadConflict, ResponseInProgress, IdempotencyConflict: nothing was written.
        """
        return self._run(self._compacting(upto, summary, item, how))

    def undo_compaction(self, **how: Unpack[How]) -> StoredItem:
        """Take the last compaction back; options in `how` as for `user`.

        Raises:
            InvalidOption: there is none.
        """
        return self._run(self._undoing_compaction(how))

    def render(self, format: str, **view: Unpack[View]) -> Rendered:
        """Render the next request for a provider, with its losses and repairs; reads only what is new.

        In `view`: `strict` (raise LossError instead of reporting losses), and what docs/views.md tells: `upto`,
        `window`, `vision`, `reasoning`, `cache`, `dynamic_context`, `dynamic_context_at`, `dialect`, `server_state`.

        Raises:
            UnknownFormat, InvalidOption, NotFound: it cannot be read.
            CannotRender: the provider would refuse any request made of this conversation.
            LossError: `strict` is set and the request is not exact.
        """
        return self._run(self._rendering(format, view))

    def request_payload(self, format: str, **view: Unpack[View]) -> JsonObject:
        """The next request as a dict for the provider's SDK. Options (`strict`, `upto` …) and errors as `render`."""
        return (self.render(format, **view)).payload

    def request_body(self, format: str, **view: Unpack[View]) -> bytes:
        """The next request as JSON, UTF-8: the fast way. Options (`strict`, `upto` …) and errors as `render`."""
        return (self.render(format, **view)).body

    def plan_context_cache(
        self,
        format: str,
        *,
        threshold: int = THRESHOLD,
        ttl: float | timedelta = TTL_SECONDS,
        dynamic_tokens: int = 0,
        lease: float | timedelta = CLAIM_SECONDS,
        **view: Unpack[View],
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
        wish = Wish.of(threshold, ttl, lease, dynamic_tokens)
        return self._run(Work(self._planning_cache(format, wish, view)))

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
        return self._run(self._recording_cache(plan, name, expires_at))

    def _run(self, plan: Plan[T] | Work[T]) -> T:
        return plan.run(self._runner)


class AsyncViews(Views):
    """Requests, compactions and context caches of an AsyncConversation."""

    _runner: AsyncRunner

    async def compact(
        self, *, upto: int | None = None, summary: str | None = None, item: Any = None, **how: Unpack[How]
    ) -> StoredItem:
        """Like `Conversation.compact`."""
        return await self._run(self._compacting(upto, summary, item, how))

    async def undo_compaction(self, **how: Unpack[How]) -> StoredItem:
        """Like `Conversation.undo_compaction`."""
        return await self._run(self._undoing_compaction(how))

    async def render(self, format: str, **view: Unpack[View]) -> Rendered:
        """Like `Conversation.render`."""
        return await self._run(self._rendering(format, view))

    async def request_payload(self, format: str, **view: Unpack[View]) -> JsonObject:
        """Like `Conversation.request_payload`."""
        return (await self.render(format, **view)).payload

    async def request_body(self, format: str, **view: Unpack[View]) -> bytes:
        """Like `Conversation.request_body`."""
        return (await self.render(format, **view)).body

    async def plan_context_cache(
        self,
        format: str,
        *,
        threshold: int = THRESHOLD,
        ttl: float | timedelta = TTL_SECONDS,
        dynamic_tokens: int = 0,
        lease: float | timedelta = CLAIM_SECONDS,
        **view: Unpack[View],
    ) -> CachePlan:
        """Like `Conversation.plan_context_cache`."""
        wish = Wish.of(threshold, ttl, lease, dynamic_tokens)
        return await self._run(Work(self._planning_cache(format, wish, view)))

    async def record_context_cache(
        self, plan: CachePlan, *, name: str | None, expires_at: datetime | str | None = None
    ) -> CachePlan:
        """Like `Conversation.record_context_cache`."""
        return await self._run(self._recording_cache(plan, name, expires_at))

    async def _run(self, plan: Plan[T] | Work[T]) -> T:
        return await plan.run_async(self._runner)
