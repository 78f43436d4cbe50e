"""The store: where conversations are created, found and counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.orm import Session as OrmSession
from sqlalchemy.orm import scoped_session

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
from threadkeep.store.contents import Contents
from threadkeep.store.conversation import Conversation
from threadkeep.store.database import Database, HostDatabase, SyncRunner
from threadkeep.store.engines import engine_for
from threadkeep.store.memory import DEFAULT_BYTES
from threadkeep.store.place import MAX_POSITION, Scope, identifier, whole
from threadkeep.store.plans import Plan, Steps, Work
from threadkeep.store.prices import PriceBook
from threadkeep.store.requests import About
from threadkeep.store.search_faces import Searches
from threadkeep.store.shelf import DEFAULT_TENANT, in_batches, must_be_set_up
from threadkeep.store.sweeping import Erased, Progress, Retained
from threadkeep.store.upkeep import Upkeep

T = TypeVar("T")


class Store(Searches):
    """Conversations in a database.

    Args:
        url: a database URL (``sqlite:///chat.db``, ``postgresql://…``, ``mysql://…``, ``mariadb://…``), or an Engine.
        tenants: False: all is kept for one tenant. True: the store only has `for_tenant`, `create_tenant` and
            `delete_tenant`, and each tenant gets a store of its own.
        memory_bytes: how much JSON text of conversations that were read lately is kept, so that opening one again reads
            only what is new of it; 0 keeps nothing.
        prices: prices of your own; the first that is for an answer counts. They come before those of genai-prices (the
            extra `prices`), and after what a provider itself reports.
        search: False: keep no texts for the search. What is stored meanwhile can be found later, by a store that
            searches.

    Raises:
        InvalidOption, MissingExtra: the URL cannot be used.
        SchemaError: the tables are missing or of another release. An empty SQLite database is set up by itself.
    """

    def __init__(
        self,
        url: str | URL | Engine,
        *,
        tenants: bool = False,
        memory_bytes: int = DEFAULT_BYTES,
        prices: Iterable[Price] | None = None,
        search: bool = True,
    ) -> None:
        database = Database(engine_for(url), is_owned=not isinstance(url, Engine))
        self._runner: SyncRunner = database
        self._contents = Contents(whole("memory_bytes", memory_bytes, MAX_POSITION), PriceBook(prices))
        self._has_tenants, self._searches = tenants, search
        self._scope_found = None
        database.upkeep = Upkeep() if search else None
        try:
            if database.read(must_be_set_up):
                schema.upgrade(database.engine)
            if not tenants:
                self._scope_found = Scope(self._default_tenant())
        except BaseException:
            database.close()
            raise

    def _default_tenant(self) -> int:
        found = self._runner.read(find_tenant, DEFAULT_TENANT)
        if found is not None:
            return found
        try:
            return self._runner.write(create_tenant, DEFAULT_TENANT, is_keyed=True)
        except InvalidOption:  # somebody else was faster
            return self._runner.read(get_tenant, DEFAULT_TENANT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that this store opened."""
        self._runner.close()

    def create_conversation(
        self, *, idempotency_key: str | None = None, user_id: str | None = None, title: str | None = None,
        labels: Mapping[str, str] | None = None, external_id: str | None = None, **options: Unpack[NewOptions],
    ) -> Conversation:  # fmt: skip
        """Create a conversation with session options (`model`, `instructions` …), and `input`, `system` and `tools`.

        Raises:
            InvalidOption, InvalidItem: an option cannot be used, or another conversation has the external_id.
            IdempotencyConflict: the key was used with other content.
        """
        about: About = {"user_id": user_id, "title": title, "labels": labels, "external_id": external_id}
        return self._created(self._creating(Session(**options), about, idempotency_key))

    def import_request(
        self, payload: Any, format: str, *, model: str | None = None, stream: bool | None = None,
        idempotency_key: str | None = None, user_id: str | None = None, title: str | None = None,
        labels: Mapping[str, str] | None = None, external_id: str | None = None, **options: Unpack[ImportOptions],
    ) -> Conversation:  # fmt: skip
        """Create a conversation of a provider's request: its settings, tools and history.

        `payload` is a dict, JSON text, or an object of the provider's SDK; `model` and `stream` say what it does not
        (Gemini, Converse); `options` are session options, set over those of the request.

        Raises:
            UnknownFormat, CannotParse, InvalidOption, InvalidItem, IdempotencyConflict: nothing was written.
        """
        about: About = {"user_id": user_id, "title": title, "labels": labels, "external_id": external_id}
        plan = self._importing_request(payload, format, (model, stream), about, idempotency_key, options)
        return self._created(plan)

    def save(self, session: Session, *, idempotency_key: str | None = None, **about: Unpack[About]) -> Conversation:
        """Create a conversation of a detached session. Errors as `create_conversation`."""
        return self._created(self._creating(session, about, idempotency_key))

    def save_many(
        self, sessions: Iterable[Session], *, idempotency_key: str | None = None, **about: Unpack[About]
    ) -> list[str]:
        """Create conversations of many sessions, a few hundred in each transaction; returns their ids.

        With an idempotency key, a repeated call goes on where an interrupted one ended. What earlier transactions
        wrote stays. Errors as `create_conversation`.
        """
        return [
            made
            for number, batch in enumerate(in_batches(sessions))
            for made in self._run(self._importing(batch, about, idempotency_key, number))
        ]

    def get_conversation(self, id: str, *, branch: int | None = None) -> Conversation:
        """Resume a conversation, on its active branch or another.

        Raises:
            NotFound: there is none of that id here, or it has no such branch.
        """
        return self._handle(self._run(self._getting(id, branch)))

    def find_conversation(self, *, external_id: str) -> Conversation | None:
        """The conversation with the application's own id; None when there is none."""
        found = self._run(self._finding(external_id))
        return None if found is None else self._handle(found)

    def list_conversations(
        self,
        *,
        user_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        status: Literal["active", "archived"] | None = "active",
        after: str | None = None,
        limit: int = 50,
    ) -> Page[Conversation]:
        """A page of conversations, newest activity first; of a user, with all of these labels, of a status (None: any).

        Raises:
            InvalidOption: a filter cannot be used, or `after` is not the `next` of a page.
        """
        page = self._run(self._listing(user_id, labels, status, after, limit))
        return Page([self._handle(found) for found in page], page.next)

    def copy_conversation(self, id: str, *, idempotency_key: str | None = None, **about: Unpack[About]) -> Conversation:
        """A new conversation with the options, tools and items of another one's active branch.

        Raises:
            NotFound: there is none of that id here.
        """
        session = self.get_conversation(id).session()
        return self._created(self._copying(id, session, about, idempotency_key))

    def delete_conversation(self, id: str, *, idempotency_key: str | None = None) -> None:
        """Delete a conversation: it is gone at once, then its rows are removed in batches. Its ledger rows stay.

        Raises:
            NotFound: there is none of that id here.
        """
        self._purge(self._run(self._hiding(id, idempotency_key)))

    def purge_deleted(self) -> int:
        """Remove the rows of deleted conversations that an interrupted deletion left; returns how many there were."""
        return self._follow(self._purging_deleted())

    def erase_user(self, user_id: str, *, progress: Progress | None = None) -> Erased:
        """Remove every trace of a user's content, in bounded transactions; an interrupted call can be repeated.

        Gone are the user's conversations with all that belongs to them (items, responses, raw bodies, media, labels,
        idempotency keys, search documents), options and tools that nothing else uses, the provider's usage objects and
        error texts. The figures of the ledger stay, without the user. On SQLite the files are written anew at the end;
        what stays in logs and backups of servers: docs/retention.md. `progress` is told what is done and how much.

        Raises:
            InvalidOption: the store is for another user.
        """
        return self._follow(self._erasing(user_id, progress, scrubs=self._runner.remembers))

    def retain(
        self,
        *,
        raw_bodies: timedelta | int | None = None,
        content: timedelta | int | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Retained:
        """Remove what is older than it is to be kept, in bounded transactions; an interrupted call can be repeated.

        `raw_bodies`: days (or a timedelta) after which the raw bodies of answers go. `content`: days without activity
        after which whole conversations go. The ledger stays. `dry_run` only counts. `progress` is told what is done.

        Raises:
            InvalidOption: neither is given, or one of them is no length of time.
        """
        return self._follow(self._retaining(raw_bodies, content, progress, is_dry=dry_run))

    def usage(
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
        """What was used: attempts, tokens and costs, summed.

        `by` names any of hour, day, week (its Monday), month (its first day), model, provider, format, user_id,
        conversation_id, status, tool_set (its hash) and response.
        `since` and `until` (exclusive) are dates or aware datetimes; dates, days and hours are those of the time zone
        `tz`. `filters` name values, or lists of values, of the same columns but for times (`day` is a UTC day there).
        `order_by` is a sum, largest first; with `limit` that is a top list.

        Raises:
            InvalidOption: it cannot be grouped, filtered or ordered like that.
        """
        return self._run(self._reporting(by, since, until, tz, order_by, limit, filters))

    def tool_usage(
        self,
        *,
        since: date | None = None,
        until: date | None = None,
        tz: str = "UTC",
        user_id: str | None = None,
        limit: int | None = None,
    ) -> list[ToolUsage]:
        """How often functions were called, the most called first; how many calls are unanswered, and how many failed.

        `since` and `until` (exclusive) are dates in the time zone `tz`, or aware datetimes, of the calls. Calls of
        deleted conversations are gone.

        Raises:
            InvalidOption: it cannot be asked like that.
        """
        return self._run(self._counting_calls(since, until, tz, user_id, limit))

    def statistics(self, *, largest: int = 10) -> Statistics:
        """How much is stored: counts, bytes, and the largest conversations. It looks at every row, which takes long.

        Raises:
            InvalidOption: `largest` is no number from 1 on.
        """
        return self._run(self._measuring(largest))

    def fill_usage_days(self) -> int:
        """Sum up the days that ended an hour ago or earlier, a few in each transaction; returns how many there were.

        Reports say the same without it, and are faster with it: call it once a day.

        Raises:
            InvalidOption: this store is for one user.
        """
        count = 0
        while filled := self._run(self._filling()):
            count += filled
        return count

    def reconcile_usage(self) -> Reconciled:
        """Compare the sums of filled days with the ledger and mend those that differ; then `fill_usage_days`.

        Nothing differs unless a transaction was open for more than an hour after midnight, a clock was wrong, or rows
        of the ledger were changed by hand. Errors as `fill_usage_days`.
        """
        mended, day = 0, None
        while True:
            day, count = self._run(self._mending(day))
            if day is None:
                return Reconciled(filled=self.fill_usage_days(), mended=mended)
            mended += count

    def for_user(self, user_id: str) -> Store:
        """This store, for the conversations of one user only."""
        return self._sibling(self._user_scope(user_id), self._runner)

    def within(self, host: Connection | OrmSession | scoped_session[Any]) -> Store:
        """This store, inside the caller's transaction: each method happens whole or not at all, and none commits.

        Raises:
            InvalidOption: it is no connection and no session.
        """
        return self._sibling(self._scope, HostDatabase(host))

    def for_tenant(self, name: str) -> Store:
        """The store of a tenant.

        Raises:
            NotFound: there is none of that name.
        """
        self._only_with_tenants()
        tenant = self._runner.read(get_tenant, identifier("tenant", name))
        return self._sibling(Scope(tenant), self._runner)

    def create_tenant(self, name: str) -> Store:
        """Make a tenant; returns its store.

        Raises:
            InvalidOption: there is one of that name.
        """
        self._only_with_tenants()
        tenant = self._runner.write(create_tenant, identifier("tenant", name))
        return self._sibling(Scope(tenant), self._runner)

    def delete_tenant(self, name: str) -> None:
        """Delete a tenant with all its conversations and its ledger.

        Raises:
            NotFound: there is none of that name.
            Conflict: somebody goes on making conversations of it.
        """
        self._follow(self.for_tenant(name)._deleting_tenant())  # noqa: SLF001 - a store of this class

    def _purge(self, key: int) -> None:
        self._follow(self._purging(key))

    def _follow(self, steps: Steps[T]) -> T:
        return Work(steps).run(self._runner)

    def _sibling(self, scope: Scope | None, runner: SyncRunner) -> Store:
        made = object.__new__(type(self))
        made._runner, made._contents, made._has_tenants, made._scope_found = runner, self._contents, False, scope
        made._searches = self._searches
        return made

    def _created(self, plan: Plan[tuple[Opened, bool]]) -> Conversation:
        found, is_replayed = self._run(plan)
        made = self._handle(found)
        made.replayed = is_replayed
        return made

    def _handle(self, found: Opened) -> Conversation:
        return Conversation(found, self._contents, self._runner)

    def _run(self, plan: Plan[T]) -> T:
        return plan.run(self._runner)
