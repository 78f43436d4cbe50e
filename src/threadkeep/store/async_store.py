"""The store, under asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from sqlalchemy import URL, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session

from threadkeep.db import schema
from threadkeep.domain.cost import Price
from threadkeep.domain.option_types import ImportOptions, NewOptions
from threadkeep.domain.session import Session
from threadkeep.domain.statistics import Statistics
from threadkeep.domain.stored import Page
from threadkeep.domain.usage import Reconciled, ToolUsage, UsageRow
from threadkeep.errors import InvalidOption
from threadkeep.store.actions.opening import Opened
from threadkeep.store.actions.tenants import create_tenant, find_tenant, get_tenant
from threadkeep.store.async_conversation import AsyncConversation
from threadkeep.store.contents import Contents
from threadkeep.store.database import AsyncDatabase, AsyncHostDatabase, AsyncRunner, Database, ThreadedDatabase
from threadkeep.store.engines import async_engine_for, engine_for, is_sqlite
from threadkeep.store.memory import DEFAULT_BYTES
from threadkeep.store.place import MAX_POSITION, Scope, identifier, whole
from threadkeep.store.plans import Plan, Steps, Work
from threadkeep.store.prices import PriceBook
from threadkeep.store.requests import About
from threadkeep.store.search_faces import AsyncSearches
from threadkeep.store.shelf import DEFAULT_TENANT, in_batches, must_be_set_up
from threadkeep.store.sweeping import Erased, Progress, Retained
from threadkeep.store.upkeep import Upkeep

T = TypeVar("T")


class AsyncStore(AsyncSearches):
    """Conversations in a database; the methods of `Store` as coroutines.

    The database is looked at when the first method is awaited, or on ``async with``: errors as `Store`. On SQLite each
    use case runs as a whole in a worker thread; on PostgreSQL and MySQL in an async driver.
    """

    def __init__(
        self,
        url: str | URL | Engine | AsyncEngine,
        *,
        tenants: bool = False,
        memory_bytes: int = DEFAULT_BYTES,
        prices: Iterable[Price] | None = None,
        search: bool = True,
    ) -> None:
        if is_sqlite(url) and not isinstance(url, AsyncEngine):
            database = Database(engine_for(url), is_owned=not isinstance(url, Engine))
            self._runner: AsyncRunner = ThreadedDatabase(database)
        elif isinstance(url, Engine):
            raise InvalidOption("An AsyncStore on PostgreSQL or MySQL takes a URL or an AsyncEngine, not an Engine.")
        else:
            self._runner = AsyncDatabase(async_engine_for(url), is_owned=not isinstance(url, AsyncEngine))
        self._contents = Contents(whole("memory_bytes", memory_bytes, MAX_POSITION), PriceBook(prices))
        self._has_tenants, self._searches = tenants, search
        self._scope_found = None
        self._runner.upkeep = Upkeep() if search else None
        self._parent: AsyncStore | None = None  # of a store that was made of this one before it was ready
        self._user: str | None = None
        self._is_ready = False
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Like `Store.close`."""
        await self._runner.close()

    async def create_conversation(
        self, *, idempotency_key: str | None = None, user_id: str | None = None, title: str | None = None,
        labels: Mapping[str, str] | None = None, external_id: str | None = None, **options: Unpack[NewOptions],
    ) -> AsyncConversation:  # fmt: skip
        """Like `Store.create_conversation`."""
        await self._ready()
        about: About = {"user_id": user_id, "title": title, "labels": labels, "external_id": external_id}
        return await self._created(self._creating(Session(**options), about, idempotency_key))

    async def import_request(
        self, payload: Any, format: str, *, model: str | None = None, stream: bool | None = None,
        idempotency_key: str | None = None, user_id: str | None = None, title: str | None = None,
        labels: Mapping[str, str] | None = None, external_id: str | None = None, **options: Unpack[ImportOptions],
    ) -> AsyncConversation:  # fmt: skip
        """Like `Store.import_request`."""
        await self._ready()
        about: About = {"user_id": user_id, "title": title, "labels": labels, "external_id": external_id}
        plan = self._importing_request(payload, format, (model, stream), about, idempotency_key, options)
        return await self._created(plan)

    async def save(
        self, session: Session, *, idempotency_key: str | None = None, **about: Unpack[About]
    ) -> AsyncConversation:
        """Like `Store.save`."""
        await self._ready()
        return await self._created(self._creating(session, about, idempotency_key))

    async def save_many(
        self, sessions: Iterable[Session], *, idempotency_key: str | None = None, **about: Unpack[About]
    ) -> list[str]:
        """Like `Store.save_many`."""
        await self._ready()
        return [
            made
            for number, batch in enumerate(in_batches(sessions))
            for made in await self._run(self._importing(batch, about, idempotency_key, number))
        ]

    async def get_conversation(self, id: str, *, branch: int | None = None) -> AsyncConversation:
        """Like `Store.get_conversation`."""
        await self._ready()
        return self._handle(await self._run(self._getting(id, branch)))

    async def find_conversation(self, *, external_id: str) -> AsyncConversation | None:
        """Like `Store.find_conversation`."""
        await self._ready()
        found = await self._run(self._finding(external_id))
        return None if found is None else self._handle(found)

    async def list_conversations(
        self,
        *,
        user_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        status: Literal["active", "archived"] | None = "active",
        after: str | None = None,
        limit: int = 50,
    ) -> Page[AsyncConversation]:
        """Like `Store.list_conversations`."""
        await self._ready()
        page = await self._run(self._listing(user_id, labels, status, after, limit))
        return Page([self._handle(found) for found in page], page.next)

    async def copy_conversation(
        self, id: str, *, idempotency_key: str | None = None, **about: Unpack[About]
    ) -> AsyncConversation:
        """Like `Store.copy_conversation`."""
        session = await (await self.get_conversation(id)).session()
        return await self._created(self._copying(id, session, about, idempotency_key))

    async def delete_conversation(self, id: str, *, idempotency_key: str | None = None) -> None:
        """Like `Store.delete_conversation`."""
        await self._ready()
        await self._purge(await self._run(self._hiding(id, idempotency_key)))

    async def purge_deleted(self) -> int:
        """Like `Store.purge_deleted`."""
        await self._ready()
        return await self._follow(self._purging_deleted())

    async def erase_user(self, user_id: str, *, progress: Progress | None = None) -> Erased:
        """Like `Store.erase_user`."""
        await self._ready()
        return await self._follow(self._erasing(user_id, progress, scrubs=self._runner.remembers))

    async def retain(
        self,
        *,
        raw_bodies: timedelta | int | None = None,
        content: timedelta | int | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Retained:
        """Like `Store.retain`."""
        await self._ready()
        return await self._follow(self._retaining(raw_bodies, content, progress, is_dry=dry_run))

    async def usage(
        self,
        *,
        by: Sequence[str] | str = (),
        since: date | None = None,
        until: date | None = None,
        tz: str = "UTC",
        order_by: str | None = None,
        limit: int | None = None,
        **filters: Any,
    ) -> list[UsageRow]:
        """Like `Store.usage`."""
        await self._ready()
        return await self._run(self._reporting(by, since, until, tz, order_by, limit, filters))

    async def tool_usage(
        self,
        *,
        since: date | None = None,
        until: date | None = None,
        tz: str = "UTC",
        user_id: str | None = None,
        limit: int | None = None,
    ) -> list[ToolUsage]:
        """Like `Store.tool_usage`."""
        await self._ready()
        return await self._run(self._counting_calls(since, until, tz, user_id, limit))

    async def statistics(self, *, largest: int = 10) -> Statistics:
        """Like `Store.statistics`."""
        await self._ready()
        return await self._run(self._measuring(largest))

    async def fill_usage_days(self) -> int:
        """Like `Store.fill_usage_days`."""
        await self._ready()
        count = 0
        while filled := await self._run(self._filling()):
            count += filled
        return count

    async def reconcile_usage(self) -> Reconciled:
        """Like `Store.reconcile_usage`."""
        await self._ready()
        mended, day = 0, None
        while True:
            day, count = await self._run(self._mending(day))
            if day is None:
                return Reconciled(filled=await self.fill_usage_days(), mended=mended)
            mended += count

    def for_user(self, user_id: str) -> AsyncStore:
        """Like `Store.for_user`; the database is not asked."""
        self._not_with_tenants()
        if self._scope_found is not None:
            return self._sibling(self._user_scope(user_id), self._runner)
        return self._sibling(None, self._runner, user=identifier("user_id", user_id))

    def within(self, host: AsyncConnection | AsyncSession | async_scoped_session[Any]) -> AsyncStore:
        """Like `Store.within`; the database is not asked."""
        self._not_with_tenants()
        return self._sibling(self._scope_found, AsyncHostDatabase(host))

    async def for_tenant(self, name: str) -> AsyncStore:
        """Like `Store.for_tenant`."""
        await self._ready()
        self._only_with_tenants()
        tenant = await self._runner.read(get_tenant, identifier("tenant", name))
        return self._sibling(Scope(tenant), self._runner)

    async def create_tenant(self, name: str) -> AsyncStore:
        """Like `Store.create_tenant`."""
        await self._ready()
        self._only_with_tenants()
        tenant = await self._runner.write(create_tenant, identifier("tenant", name))
        return self._sibling(Scope(tenant), self._runner)

    async def delete_tenant(self, name: str) -> None:
        """Like `Store.delete_tenant`."""
        store = await self.for_tenant(name)
        await self._follow(store._deleting_tenant())  # noqa: SLF001 - a store of this class

    async def _ready(self) -> None:
        """Look at the database, once: its schema, and the tenant."""
        if self._is_ready:
            return
        async with self._opening:
            if self._is_ready:
                return
            if self._parent is None:
                await self._open()
            elif self._scope_found is None:
                await self._parent._ready()  # noqa: SLF001 - a store of this class
                scope = self._parent._scope  # noqa: SLF001 - as above
                self._scope_found = Scope(scope.tenant, self._user or scope.user)
            self._is_ready = True

    async def _open(self) -> None:
        if await self._runner.read(must_be_set_up) and isinstance(self._runner, ThreadedDatabase):
            await asyncio.to_thread(schema.upgrade, self._runner.database.engine)
        if not self._has_tenants:
            self._scope_found = Scope(await self._default_tenant())

    async def _default_tenant(self) -> int:
        found = await self._runner.read(find_tenant, DEFAULT_TENANT)
        if found is not None:
            return found
        try:
            return await self._runner.write(create_tenant, DEFAULT_TENANT, is_keyed=True)
        except InvalidOption:  # somebody else was faster
            return await self._runner.read(get_tenant, DEFAULT_TENANT)

    async def _purge(self, key: int) -> None:
        await self._follow(self._purging(key))

    async def _follow(self, steps: Steps[T]) -> T:
        return await Work(steps).run_async(self._runner)

    def _sibling(self, scope: Scope | None, runner: AsyncRunner, user: str | None = None) -> AsyncStore:
        made = object.__new__(type(self))
        made._runner, made._contents, made._has_tenants, made._scope_found = runner, self._contents, False, scope
        made._searches = self._searches
        made._parent, made._user, made._is_ready, made._opening = self, user, False, asyncio.Lock()
        return made

    async def _created(self, plan: Plan[tuple[Opened, bool]]) -> AsyncConversation:
        found, is_replayed = await self._run(plan)
        made = self._handle(found)
        made.replayed = is_replayed
        return made

    def _handle(self, found: Opened) -> AsyncConversation:
        return AsyncConversation(found, self._contents, self._runner)

    async def _run(self, plan: Plan[T]) -> T:
        return await plan.run_async(self._runner)
