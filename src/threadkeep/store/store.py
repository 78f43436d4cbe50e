"""The store: where conversations are created, found and counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.orm import Session as OrmSession
from sqlalchemy.orm import scoped_session

from threadkeep.db import schema
from threadkeep.domain.ids import public_id_bytes
from threadkeep.domain.options import ImportOptions, NewOptions
from threadkeep.domain.reports import (
    ReconciliationReport,
    Statistics,
    ToolUsage,
    UsageFilters,
    UsageKey,
    UsageRow,
    UsageSum,
)
from threadkeep.domain.session import Session
from threadkeep.domain.stored import Page, SearchResult
from threadkeep.domain.usage import Price
from threadkeep.errors import InvalidOption
from threadkeep.formats import FormatName
from threadkeep.store import conversations, importing, retention, rollups, statistics, tenants, usage
from threadkeep.store.config_cache import ConfigCache
from threadkeep.store.conversation import Conversation
from threadkeep.store.conversations import ConversationInfo
from threadkeep.store.engines import engine_for, host_connection
from threadkeep.store.handle import Handle, StoreResources
from threadkeep.store.history_cache import DEFAULT_BYTES, HistoryCache
from threadkeep.store.lineage import ConversationState
from threadkeep.store.prices import PriceBook
from threadkeep.store.refs import Scope
from threadkeep.store.retention import ErasureReport, Progress, RetentionReport
from threadkeep.store.search import index, query
from threadkeep.store.search.index import IndexTrigger
from threadkeep.store.search.query import SearchFilters
from threadkeep.store.streaming.recovery import StreamRecovery
from threadkeep.store.transactions import EngineTransactions, HostTransactions, Transactions
from threadkeep.store.validation import MAX_POSITION, identifier, whole_number


class StoreRoot:
    """The database of a store and of those made of it, which is opened once."""

    def __init__(self, engine: Engine, transactions: Transactions, *, has_tenants: bool) -> None:
        self._engine, self._transactions, self._has_tenants = engine, transactions, has_tenants
        self.is_open = False
        self._default_tenant = tenants.NO_TENANT

    def open(self) -> None:
        """Check the schema, or set up an empty SQLite database."""
        if not self.is_open:
            if self._transactions.read(schema.needs_set_up):
                schema.upgrade(self._engine)
            if not self._has_tenants:
                self._default_tenant = tenants.find_default_tenant(self._transactions)
            self.is_open = True

    def default_tenant(self, transactions: Transactions, *, create: bool) -> int:
        """The tenant of a store without tenants; the first call with `create` makes it, so that reads need not write.

        In the caller's transaction it may be made and taken back, so it is not remembered.
        """
        self.open()
        tenant = self._default_tenant or tenants.find_default_tenant(transactions)
        if create and tenant == tenants.NO_TENANT:
            tenant = tenants.create_default_tenant(transactions)
        if transactions.keeps_history:
            self._default_tenant = tenant
        return tenant


class Store:
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
        is_owned = not isinstance(url, Engine)
        self._connect(engine_for(url), tenants, memory_bytes, prices, is_owned=is_owned, search=search)
        try:
            self._root.open()
        except BaseException:
            self.close()
            raise

    def _connect(
        self, engine: Engine, tenants: bool, memory_bytes: int, prices: Iterable[Price] | None, *, is_owned: bool,
        search: bool,
    ) -> None:  # fmt: skip
        """Prepare the store; no statement is run. An AsyncStore opens it later."""
        book = PriceBook(prices)
        self._recovery = StreamRecovery(book)
        self._transactions: Transactions = EngineTransactions(engine, is_owned=is_owned, end_stream=self._recovery.end)
        self._resources = StoreResources(
            ConfigCache(), HistoryCache(whole_number("memory_bytes", memory_bytes, MAX_POSITION)), book,
            IndexTrigger() if search else None,
        )  # fmt: skip
        self._root = StoreRoot(engine, self._transactions, has_tenants=tenants)
        self._has_tenants = tenants
        self._tenant: int | None = None  # None: the default one, which is looked up on opening
        self._user: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that this store opened."""
        self._transactions.close()

    def create_conversation(
        self, *, idempotency_key: str | None = None, user_id: str | None = None, title: str | None = None,
        labels: Mapping[str, str] | None = None, external_id: str | None = None, **options: Unpack[NewOptions],
    ) -> Conversation:  # fmt: skip
        """Create a conversation with session options (`model`, `instructions` …), and `input`, `system` and `tools`.

        Raises:
            InvalidOption, InvalidItem: an option cannot be used, or another conversation has the external_id.
            IdempotencyConflict: the key was used with other content.
        """
        info: ConversationInfo = {"user_id": user_id, "title": title, "labels": labels, "external_id": external_id}
        return self.save(Session(**options), idempotency_key=idempotency_key, **info)

    def import_request(
        self, payload: Any, format: FormatName, *, model: str | None = None, stream: bool | None = None,
        idempotency_key: str | None = None, user_id: str | None = None, title: str | None = None,
        labels: Mapping[str, str] | None = None, external_id: str | None = None, **options: Unpack[ImportOptions],
    ) -> Conversation:  # fmt: skip
        """Create a conversation of a provider's request: its settings, tools and history.

        `payload` is a dict, JSON text, or an object of the provider's SDK; `model` and `stream` say what it does not
        (Gemini, Converse); `options` are session options, set over those of the request.

        Raises:
            UnknownFormat, CannotParse, InvalidOption, InvalidItem, IdempotencyConflict: nothing was written.
        """
        info: ConversationInfo = {"user_id": user_id, "title": title, "labels": labels, "external_id": external_id}
        return self._created(
            importing.import_request(
                self._transactions, self._new_scope, self._resources.configs, payload, format,
                model=model, stream=stream, options=options, info=info, key=idempotency_key,
            )
        )  # fmt: skip

    def save(
        self, session: Session, *, idempotency_key: str | None = None, **info: Unpack[ConversationInfo]
    ) -> Conversation:
        """Create a conversation of a detached session. Errors as `create_conversation`."""
        return self._created(
            importing.save_session(
                self._transactions, self._new_scope, self._resources.configs, session, info, idempotency_key
            )
        )

    def save_many(
        self, sessions: Iterable[Session], *, idempotency_key: str | None = None, **info: Unpack[ConversationInfo]
    ) -> list[str]:
        """Create conversations of many sessions, a few hundred in each transaction; returns their ids.

        With an idempotency key, a repeated call goes on where an interrupted one ended. What earlier transactions
        wrote stays. Errors as `create_conversation`.
        """
        return importing.save_sessions(self._transactions, self._new_scope, sessions, info, idempotency_key)

    def get_conversation(self, id: str, *, branch: int | None = None) -> Conversation:
        """Resume a conversation, on its active branch or another.

        Raises:
            NotFound: there is none of that id here, or it has no such branch.
        """
        number = None if branch is None else whole_number("branch", branch)
        place = self._scope, "public_id", public_id_bytes(id), self._resources.configs, number
        return self._conversation(
            self._transactions.read(lambda connection: conversations.open_conversation(connection, *place))
        )

    def find_conversation(self, *, external_id: str) -> Conversation | None:
        """The conversation with the application's own id; None when there is none."""
        place = self._scope, "external_id", identifier("external_id", external_id), self._resources.configs
        found = self._transactions.read(lambda connection: conversations.find_conversation(connection, *place))
        return None if found is None else self._conversation(found)

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
        wanted = {"user_id": user_id, "labels": labels, "status": status, "after": after, "limit": limit}
        page = conversations.list_conversations(self._transactions, self._scope, self._resources.configs, wanted)
        return Page([self._conversation(conversation) for conversation in page], page.next)

    def copy_conversation(
        self, id: str, *, idempotency_key: str | None = None, **info: Unpack[ConversationInfo]
    ) -> Conversation:
        """A new conversation with the options, tools and items of another one's active branch.

        Raises:
            NotFound: there is none of that id here.
        """
        session = self.get_conversation(id).session()
        return self._created(
            importing.copy_conversation(
                self._transactions, self._scope, self._resources.configs, id, session, info, idempotency_key
            )
        )

    def delete_conversation(self, id: str, *, idempotency_key: str | None = None) -> None:
        """Delete a conversation: it is gone at once, then its rows are removed in batches. Its ledger rows stay.

        Raises:
            NotFound: there is none of that id here.
        """
        retention.delete_conversation(self._transactions, self._scope, self._resources, id, idempotency_key)

    def purge_deleted(self) -> int:
        """Remove the rows of deleted conversations that an interrupted deletion left; returns how many there were."""
        return retention.purge_deleted(self._transactions, self._scope, self._resources)

    def erase_user(self, user_id: str, *, progress: Progress | None = None) -> ErasureReport:
        """Remove every trace of a user's content, in bounded transactions; an interrupted call can be repeated.

        Gone are the user's conversations with all that belongs to them (items, responses, raw bodies, media, labels,
        idempotency keys, search documents), options and tools that nothing else uses, the provider's usage objects and
        error texts. The figures of the ledger stay, without the user. On SQLite the files are written anew at the end;
        what stays in logs and backups of servers: docs/retention.md. `progress` is told what is done and how much.

        Raises:
            InvalidOption: the store is for another user.
        """
        return retention.erase_user(self._transactions, self._scope, self._resources, user_id, progress)

    def retain(
        self,
        *,
        raw_bodies: timedelta | int | None = None,
        content: timedelta | int | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> RetentionReport:
        """Remove what is older than it is to be kept, in bounded transactions; an interrupted call can be repeated.

        `raw_bodies`: days (or a timedelta) after which the raw bodies of answers go. `content`: days without activity
        after which whole conversations go. The ledger stays. `dry_run` only counts. `progress` is told what is done.

        Raises:
            InvalidOption: neither is given, or one of them is no length of time.
        """
        ages = {"raw_bodies": raw_bodies, "content": content}
        return retention.retain(self._transactions, self._scope, self._resources, ages, progress, dry_run=dry_run)

    def search(
        self,
        text: str,
        *,
        user_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        status: Literal["active", "archived"] | None = "active",
        conversation_id: str | None = None,
        type: str | None = None,
        role: str | None = None,
        since: date | None = None,
        until: date | None = None,
        after: str | None = None,
        limit: int = 20,
    ) -> Page[SearchResult]:
        """Messages, calls and outputs of tools, and titles, in which all words of a text are; the best first.

        ``"several words"`` must stand side by side, ``wor*`` is a beginning, ``-word`` must not be there. `user_id`,
        `labels` and `status` are as for `list_conversations`; `type` is that of an item, or ``title``; `role` that of a
        message; `since` and `until` (exclusive) are dates in UTC, or aware datetimes. What was appended up to now is
        found, on all branches, of long items the beginning; in the caller's transaction only what was seen before.

        Raises:
            InvalidOption: there is no word to look for, a filter or page cannot be used, or this store does not search.
            NotFound: `conversation_id` is not the id of any conversation.
            SchemaError: the index is missing or broken.
        """
        filters = SearchFilters(user_id, labels, status, conversation_id, type, role, since, until, after, limit)
        return query.search(self._transactions, self._searched_scope, text, filters)

    def reindex(self, *, rebuild: bool = False) -> int:
        """Let the search see everything that it has not seen yet; returns how many items and titles it found text in.

        That is what was stored while it was off, by an older release, or in a large import: the next questions see it,
        too, and take longer. `rebuild` forgets everything first, for an index that is broken.

        Raises:
            InvalidOption: this store is for one user, or does not search.
        """
        return index.reindex(self._transactions, self._searched_scope, rebuild=rebuild)

    def usage(
        self,
        /,
        *,
        by: Sequence[UsageKey] | UsageKey = (),
        since: date | None = None,
        until: date | None = None,
        tz: str = "UTC",
        order_by: UsageSum | None = None,
        limit: int | None = None,
        **filters: Unpack[UsageFilters],
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
        return usage.usage(
            self._transactions, self._scope, by, filters,
            since=since, until=until, tz=tz, order_by=order_by, limit=limit,
        )  # fmt: skip

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
        return statistics.tool_usage(self._transactions, self._scope, since, until, tz, user_id, limit)

    def statistics(self, *, largest: int = 10) -> Statistics:
        """How much is stored: counts, bytes, and the largest conversations. It looks at every row, which takes long.

        Raises:
            InvalidOption: `largest` is no number from 1 on.
        """
        return statistics.statistics(self._transactions, self._scope, largest)

    def fill_usage_days(self) -> int:
        """Sum up the days that ended an hour ago or earlier, a few in each transaction; returns how many there were.

        Reports say the same without it, and are faster with it: call it once a day.

        Raises:
            InvalidOption: this store is for one user.
        """
        return rollups.roll_up_days(self._transactions, self._scope)

    def reconcile_usage(self) -> ReconciliationReport:
        """Compare the sums of filled days with the ledger and mend those that differ; then `fill_usage_days`.

        Nothing differs unless a transaction was open for more than an hour after midnight, a clock was wrong, or rows
        of the ledger were changed by hand. Errors as `fill_usage_days`.
        """
        return rollups.reconcile(self._transactions, self._scope)

    def for_user(self, user_id: str) -> Store:
        """This store, for the conversations of one user only."""
        user = identifier("user_id", user_id)
        if self._has_tenants:
            raise self._needs_tenant()
        if self._user not in {None, user}:
            raise InvalidOption(f"This store is for the user {self._user!r}, it cannot be for {user!r} as well.")
        return self._sibling(self._tenant, user)

    def within(self, host: Connection | OrmSession | scoped_session[Any]) -> Store:
        """This store, inside the caller's transaction: each method happens whole or not at all, and none commits.

        Raises:
            InvalidOption: it is no connection and no session.
        """
        return self._within(host_connection(host))

    def for_tenant(self, name: str) -> Store:
        """The store of a tenant.

        Raises:
            NotFound: there is none of that name.
        """
        self._check_tenants()
        return self._sibling(tenants.get_tenant(self._transactions, name))

    def create_tenant(self, name: str) -> Store:
        """Make a tenant; returns its store.

        Raises:
            InvalidOption: there is one of that name.
        """
        self._check_tenants()
        return self._sibling(tenants.create_tenant(self._transactions, name))

    def delete_tenant(self, name: str) -> None:
        """Delete a tenant with all its conversations and its ledger.

        Raises:
            NotFound: there is none of that name.
            Conflict: somebody goes on making conversations of it.
        """
        self._check_tenants()
        tenant = tenants.get_tenant(self._transactions, name)
        tenants.delete_tenant(self._transactions, tenant, self._resources)

    @property
    def _scope(self) -> Scope:
        """Whose data this store may see.

        Raises:
            InvalidOption: the store was opened with tenants, and none was chosen.
        """
        return self._get_scope(create=False)

    @property
    def _new_scope(self) -> Scope:
        """The same for what may be the first that is stored."""
        return self._get_scope(create=True)

    def _get_scope(self, *, create: bool) -> Scope:
        if self._has_tenants:
            raise self._needs_tenant()
        tenant = self._tenant
        if tenant is None:
            tenant = self._root.default_tenant(self._transactions, create=create)
        return Scope(tenant, self._user)

    @property
    def _searched_scope(self) -> Scope:
        if self._resources.index_trigger is None:
            raise InvalidOption(
                "This store was opened with search=False.", hint="Open it without, and everything stored is found."
            )
        return self._scope

    def _needs_tenant(self) -> InvalidOption:
        hint = "Choose one with for_tenant(name), or create one with create_tenant(name)."
        return InvalidOption("This store has tenants.", hint=hint)

    def _check_tenants(self) -> None:
        if not self._has_tenants:
            raise InvalidOption("Tenants are for a store that was opened with tenants=True.")
        self._root.open()

    def _within(self, host: Connection | OrmSession) -> Store:
        return self._sibling(self._tenant, self._user, HostTransactions(host, end_stream=self._recovery.end))

    def _sibling(self, tenant: int | None, user: str | None = None, transactions: Transactions | None = None) -> Store:
        """A store over the same database: for one tenant, and one user of it if given."""
        self._transactions.check_open()
        store = object.__new__(type(self))
        store.__dict__ = {
            **self.__dict__, "_has_tenants": False, "_tenant": tenant, "_user": user,
            "_transactions": transactions or self._transactions,
        }  # fmt: skip
        return store

    def _created(self, result: tuple[ConversationState, bool]) -> Conversation:
        conversation, is_replayed = result
        return self._conversation(conversation, replayed=is_replayed)

    def _conversation(self, conversation: ConversationState, *, replayed: bool = False) -> Conversation:
        return Conversation(Handle(self._resources, self._transactions, conversation), replayed=replayed)
