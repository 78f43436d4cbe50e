"""Handles: an open conversation on one of its branches, with what has been read of it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

from threadkeep import errors
from threadkeep import public as tk
from threadkeep.db.engines import LOCK
from threadkeep.domain import options, printing, reports
from threadkeep.domain import tools as tool_objects
from threadkeep.domain.jsontext import JsonObject, json_copy, loads_stored
from threadkeep.formats.canonical import entries as entry_rows
from threadkeep.store.reading import history
from threadkeep.store.search import index
from threadkeep.store.usage import observing, rollups
from threadkeep.store.work.caches import CachedHistory, HistoryCache, StoreResources
from threadkeep.store.work.refs import BranchRef, Scope

if TYPE_CHECKING:
    from threadkeep.formats.canonical.entries import ItemEntry, Snapshot
    from threadkeep.store.media import cutting
    from threadkeep.store.reading.history import HistoryPage
    from threadkeep.store.usage.ledger import Attempt
    from threadkeep.store.work import tenants
    from threadkeep.store.work.item_rows import ItemRecord
    from threadkeep.store.work.refs import ConversationState
    from threadkeep.store.work.transactions import Transactions

T = TypeVar("T")
_NOT_OPTIONS: Final = frozenset({"response_boundary", "imported"})  # stored among the options


def refusing_others(method: Callable[..., T], known: Callable[[], Mapping[str, Any]]) -> Callable[..., T]:
    """A method that refuses keyword arguments with other names than those that are known."""

    @wraps(method)
    def call(*args: Any, **given: Any) -> T:
        if given and not given.keys() <= known().keys():
            raise options.unknown_option(min(given.keys() - known().keys()), known())
        return method(*args, **given)

    return call


def tenant_missing() -> errors.InvalidOption:
    """The error for a store of which a tenant must be chosen first."""
    hint = "Choose one with for_tenant(name), or create one with create_tenant(name)."
    return errors.InvalidOption("This store has tenants.", hint=hint)


@dataclass(frozen=True, slots=True)
class StoreHandle:
    """A store as use cases see it: how to reach its database, and whose rows it reads and writes.

    `tenant` is None for the default tenant, which is looked up when it is needed, and before a tenant is chosen.
    `since` as in `Scope`.
    """

    root: tenants.StoreRoot
    transactions: Transactions
    resources: StoreResources
    tenant: int | None = None
    user: str | None = None
    since: datetime | None = None

    @property
    def needs_tenant(self) -> bool:
        """Whether it has tenants, and none was chosen."""
        return self.root.has_tenants and self.tenant is None

    @property
    def scope(self) -> Scope:
        """The tenant and user whose data can be accessed; InvalidOption: it needs a tenant."""
        return self.get_scope(create=False)

    @property
    def new_scope(self) -> Scope:
        """The same for writes, which may be the first ones."""
        return self.get_scope(create=True)

    @property
    def searched_scope(self) -> Scope:
        """The same for searches; InvalidOption: search is off."""
        if self.resources.index_trigger is None:
            hint = "Open it without, and everything stored is found."
            raise errors.InvalidOption("This store was opened with search=False.", hint=hint)
        return self.scope

    def get_scope(self, *, create: bool) -> Scope:
        """Return the tenant and user; with `create`, the default tenant is created if there is none."""
        if self.needs_tenant:
            raise tenant_missing()
        tenant = self.tenant or self.root.known_tenant or self.root.default_tenant(self.transactions, create=create)
        return Scope(tenant, self.user, self.resources.blobs, self.since)


class Handle:
    """An open conversation: where it is, how to reach it, and what has been read of it. Used by the use cases."""

    __slots__ = ("_cache", "_marked", "_ref", "conversation", "resources", "transactions")

    def __init__(self, resources: StoreResources, transactions: Transactions, conversation: ConversationState) -> None:
        self.resources, self.transactions, self.conversation = resources, transactions, conversation
        self._ref: BranchRef | None = None
        self._cache: list[HandleCache] = []
        self._marked: list[HandleCache] = []  # the same, read without media

    @property
    def ref(self) -> BranchRef:
        """The conversation and the branch."""
        ref = self._ref
        if ref is None:  # most conversations in a list never need it
            ref = self._ref = self.conversation.ref()
        return ref

    @property
    def cache(self) -> HandleCache:
        """What has been read; if several threads ask at once, the first one creates it."""
        if not self._cache:
            self._cache.append(HandleCache(self.conversation, self._histories, is_kept=self._is_kept))
        return self._cache[0]

    @property
    def marked_cache(self) -> HandleCache:
        """What has been read with marks in place of media, for requests that carry URLs of them."""
        if not self._marked:
            cache = HandleCache(self.cache.conversation, self._histories, is_marked=True, is_kept=self._is_kept)
            self._marked.append(cache)
        return self._marked[0]

    @property
    def _histories(self) -> HistoryCache | None:
        return self.resources.histories if self.transactions.uses_history else None

    @property
    def _is_kept(self) -> bool:
        return self.transactions.commits_itself

    def moved(self, transactions: Transactions) -> Handle:
        """Return a handle that goes on in other transactions: the one of this is committed, with all that was written.

        What was read is kept for others.
        """
        handle = copy(self)
        handle.transactions = transactions
        histories = self.resources.histories if transactions.uses_history else None
        for cache in (*self._cache, *self._marked):
            cache.share(histories, is_kept=transactions.commits_itself)
        return handle

    def on(self, conversation: ConversationState) -> Handle:
        """Return a handle for another conversation or branch of the same store."""
        return Handle(self.resources, self.transactions, conversation)

    def read_snapshot(self, *, is_marked: bool = False, is_current: bool = False) -> Snapshot:
        """Read what is new; return the snapshot that requests are rendered from.

        `is_marked`: without reading media; `is_current`: to write what follows from it, so not from a replica.
        """
        cache, created = self.marked_cache if is_marked else self.cache, self.transactions.created
        if created is not None and not is_marked and created.conversation.ref() == self.ref:
            return self.take_in(cache, created)
        conversation, since = cache.conversation, cache.next_position
        read = self.transactions.read if is_current else self.transactions.read_any
        page = read(
            lambda connection: history.read_history(
                connection, self.ref, self.resources.configs, conversation, since, media=cache.media
            )
        )
        return self.take_in(cache, page)

    def take_in(self, cache: HandleCache, page: HistoryPage) -> Snapshot:
        """Add what was read to that cache of this handle; return the snapshot that requests are rendered from."""
        snapshot = cache.update(page)
        if snapshot is None:
            return self.read_snapshot(is_marked=cache.media == "marked", is_current=True)
        if cache is not self.cache:
            self.cache.know(cache.conversation, cache.head)
        return snapshot

    def after_write(self) -> None:
        """Bring the search index up to date from time to time; called after each write to the conversation."""
        trigger = self.resources.index_trigger
        if trigger is not None:
            self.transactions.after_commit(partial(trigger.after_write, tenant=self.ref.scope.tenant))

    def after_response(
        self, attempt: Attempt, columns: JsonObject, *, is_new: bool = True, is_stream: bool = False
    ) -> None:
        """The same, and roll up days of the ledger from time to time; called after each response that was stored.

        If it `is_new`, observers are called with its row in the ledger and its columns.
        """
        if is_new and self.resources.observers:
            observing.tell(self, attempt, columns, is_stream=is_stream)
        self.after_write()
        self.transactions.after_commit(partial(self.resources.day_trigger.after_response, tenant=self.ref.scope.tenant))


class HandleCache:
    """What has been read of a conversation: row, options, tools and items. Only new items are read again.

    If the revision has changed, everything is read again. Tasks and threads may share a handle: items read by two of
    them are not added twice, and a list of items that was handed out never changes.
    """

    def __init__(
        self, conversation: ConversationState, histories: HistoryCache | None, *, is_marked: bool = False,
        is_kept: bool = True,
    ) -> None:  # fmt: skip
        self.conversation = conversation
        self.media: cutting.MediaForm = "marked" if is_marked else "inline"
        self.head = conversation.lineage.head
        self._key = (conversation.scope.tenant, bytes(conversation.row.public_id), conversation.branch, is_marked)
        self._histories = histories  # none inside the caller's transaction, which may see the past
        self._is_kept = is_kept  # what is read here, for others: not inside a transaction, which may be rolled back
        history = None if histories is None else histories.find(self._key, conversation.row.revision)
        self._size = 0 if history is None else history.size
        self._unmeasured: list[ItemEntry] = []  # written by this handle since it was cached, which `_size` lacks
        self._entries: Sequence[ItemEntry] = [] if history is None else history.entries
        self._new: list[ItemEntry] = []  # after these: written by this handle since they were last read
        self.next_position = 0 if history is None else history.next_position  # everything below it has been read
        # What formats remember about these items; discarded when they are read again. Inside a transaction it is for
        # this handle alone: what was rendered there may never be committed. Values in it are never changed.
        known: dict[str, Any] = {} if history is None else history.format_cache
        self._format_cache = known if is_kept else known.copy()

    def history(self) -> tuple[ConversationState, Sequence[ItemEntry], int]:
        """Return the conversation, the items read so far, and the position below which all items have been read."""
        with LOCK:
            return self.conversation, self._all(), self.next_position

    def update(self, page: HistoryPage) -> Snapshot | None:
        """Add what was read; return the snapshot that requests are rendered from.

        Returns None if it does not follow what is known, which another task has read or changed in the meantime.
        """
        with LOCK:
            before = self.next_position
            if page.since == 0:
                self._replace(page)
            elif page.since > before or page.conversation.row.revision != self.conversation.row.revision:
                return None
            elif page.next_position > before:
                self._new += [entry for entry in page.entries if entry.position >= before]
                self.next_position = page.next_position
            entries = self._all()
            self.head = entries[-1].position if entries else -1
            conversation, format_cache = self.conversation, self._format_cache
            if self._histories is None:
                self._entries, self.next_position, self._format_cache = [], 0, {}
            elif self.next_position != before or not self._size:
                self._keep(page.entries)
        return entry_rows.Snapshot(
            conversation.settings, conversation.tools, entries, page.server_state, conversation.imported,
            format_cache, conversation.format_cache, configured=conversation.hashes,
        )  # fmt: skip

    def share(self, histories: HistoryCache | None, *, is_kept: bool) -> None:
        """Keep for others what was read and written in a transaction that is committed now."""
        with LOCK:
            self._histories, self._is_kept, self._size, self._unmeasured = histories, is_kept, 0, []
            if self.next_position:
                self._keep(self._all())

    def _keep(self, new: Sequence[ItemEntry]) -> None:
        """Keep what is known for others, of which `new` and what was written here was not kept before."""
        histories, conversation = self._histories, self.conversation
        if histories is None or not (self._is_kept and histories.limit) or conversation.is_outdated:
            return
        history = CachedHistory(conversation.row.revision, self._all(), self.next_position, self._format_cache)
        added = [*self._unmeasured, *new] if self._unmeasured else new
        self._size, self._unmeasured = histories.keep(self._key, history, self._size, added), []

    def know(self, conversation: ConversationState, head: int) -> None:
        """Take over what was read of the row, and where the branch ends; items are read again if they may differ."""
        with LOCK:
            self.head = head
            if not self.next_position and not self._new:
                self.conversation = conversation

    def change(self, conversation: ConversationState, known: ConversationState) -> None:
        """Take over the row, options and tools after a change of what was `known`."""
        with LOCK:
            conversation.is_outdated |= self.conversation is not known  # another task has read other items meanwhile
            self.conversation = conversation
            self._format_cache = {}

    def shorten(self, head: int, revision: int) -> None:
        """Take over where the branch ends after something was removed, by a change that made this revision.

        What was read before has another revision, so that it is read again.
        """
        with LOCK:
            if self.conversation.row.revision != revision:
                self.head = head

    def append(
        self, records: Sequence[ItemRecord], first: int, revision: int, turn: int | None = None, seen: int | None = None
    ) -> None:
        """Add items that this handle wrote itself, so that they need not be read."""
        if not records:
            return
        with LOCK:
            self.head = first + len(records) - 1
            is_next = first == self.next_position and first > 0
            if self._histories is not None and is_next and revision == self.conversation.row.revision:
                entries = [record.entry(first + offset, turn, seen) for offset, record in enumerate(records)]
                self._new += entries
                self.next_position = first + len(records)
                self._unmeasured += entries

    def _all(self) -> Sequence[ItemEntry]:
        """Return the items below `next_position`, in a new list if there are new ones."""
        if self._new:
            self._entries, self._new = [*self._entries, *self._new], []
        return self._entries

    def _replace(self, page: HistoryPage) -> None:
        """Replace everything; what another task has read in the meantime is kept, unless the revision has changed."""
        is_older = page.next_position < self.next_position
        if is_older and page.conversation.row.revision == self.conversation.row.revision:
            return
        self.conversation = page.conversation
        self._entries, self._new = page.entries, []
        self.next_position = page.next_position
        self._format_cache = {}
        self._size, self._unmeasured = 0, []


class ConversationAttributes(options.OptionAttributes):
    """The attributes of conversations, which can be read without querying the database.

    Session options are attributes (``conversation.temperature``); change them with `update`. `replayed` is True if an
    earlier call with the same idempotency key created the conversation.
    """

    replayed: bool = False
    handle: Handle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} branch {self.branch}>"

    @property
    def id(self) -> str:
        """The id: ``conv_`` and 32 hexadecimal digits."""
        return self.handle.ref.public_id

    @property
    def branch(self) -> int:
        """The number of the branch."""
        return self.handle.ref.branch

    @property
    def head(self) -> int:
        """The position of the last known item on this branch; -1 if there is none."""
        return self.handle.cache.head

    @property
    def external_id(self) -> str | None:
        """The application's own id."""
        external_id: str | None = self._row.external_id
        return external_id

    @property
    def user_id(self) -> str | None:
        """The user the conversation belongs to."""
        user_id: str | None = self._row.user_id
        return user_id

    @property
    def title(self) -> str | None:
        """The title."""
        title: str | None = self._row.title
        return title

    @property
    def labels(self) -> dict[str, str]:
        """The application's labels; never sent to a provider."""
        text = self._row.labels
        return {} if text is None else loads_stored(text, "conversations", f"public_id {self.id}")

    @property
    def properties(self) -> dict[str, str]:
        """The application's own metadata; never sent to a provider."""
        text = self._row.properties
        return {} if text is None else loads_stored(text, "conversations", f"public_id {self.id}")

    @property
    def status(self) -> str:
        """``active`` or ``archived``."""
        status: str = self._row.status
        return status

    @property
    def created_at(self) -> datetime:
        """The time of creation; aware, in UTC."""
        created_at: datetime = self._row.created_at
        return created_at

    @property
    def last_activity_at(self) -> datetime:
        """The time of the last append known to this object; aware, in UTC."""
        last_activity_at: datetime = self._row.last_activity_at
        return last_activity_at

    @property
    def settings(self) -> JsonObject:
        """A copy of the session options that are set."""
        settings = self.handle.cache.conversation.settings
        return {name: json_copy(value, name) for name, value in settings.items() if name not in _NOT_OPTIONS}

    @property
    def tool_definitions(self) -> list[tk.Tool]:
        """The tools, as `Tool` objects."""
        return tool_objects.tools_from(self.handle.cache.conversation.tools)

    @property
    def tools(self) -> list[JsonObject]:
        """A copy of the tool definitions as dicts, in order."""
        tools = self.handle.cache.conversation.tools
        return [{key: json_copy(value, key) for key, value in tool.items()} for tool in tools]

    @property
    def _row(self) -> Any:
        return self.handle.cache.conversation.row


# What a store does by itself after some writes

_LOG: Final = logging.getLogger("threadkeep.usage")
WRITES_PER_BATCH: Final = 128  # to conversations of a tenant, after which the search index catches up


class IndexTrigger:
    """Makes the search index catch up after every so many writes of a store; searches do not depend on it."""

    def __init__(self) -> None:
        self.writes: Counter[int] = Counter()  # by tenant

    def after_write(self, transactions: Transactions, tenant: int) -> None:
        """Count a write, and index a batch if it is time to."""
        self.writes[tenant] += 1
        if self.writes[tenant] % WRITES_PER_BATCH == 0:
            index.catch_up(transactions, tenant)


class DayTrigger:
    """Rolls up days of the ledger, for all tenants of a store.

    The first response that is stored an hour after a day has ended does it.
    """

    def __init__(self) -> None:
        self._day = date.min  # the last one that can be rolled up …
        self._from = self._until = datetime.max.replace(tzinfo=UTC)  # … at these times
        self._known: set[int] = set()  # tenants that were looked at since that day could be rolled up
        self._claimed: dict[int, date] = {}  # tenants -> the day up to which this process has rolled up what it claimed

    def after_response(self, transactions: Transactions, tenant: int) -> None:
        """Do a part of what there is to do, mostly nothing; what fails is logged, for the response is stored."""
        now = datetime.now(UTC)
        if not self._from <= now < self._until:
            # another day is the last one that can be rolled up
            self._day, self._known, self._claimed = reports.last_day(now), set(), {}
            self._from = datetime.combine(self._day + reports.DAY, time(tzinfo=UTC)) + reports.GRACE
            self._until = self._from + reports.DAY
        day = self._day
        after = self._claimed.pop(tenant, None)  # another thread that comes here does not wait
        if after is None and tenant in self._known:
            return
        self._known.add(tenant)
        try:
            if after is None and transactions.read(partial(rollups.is_due, tenant=tenant, last=day)):
                claim = partial(rollups.claim, tenant=tenant, day=day + reports.DAY)
                after = transactions.write(claim, is_repeatable=True)
            if after is not None:
                some = partial(rollups.roll_up_some, tenant=tenant, after=after)
                after = transactions.write(some, is_repeatable=True)
        except Exception as error:  # noqa: BLE001 - whatever it is
            reason = printing.redact(str(getattr(error, "orig", None) or error))
            _LOG.warning("Days of usage could not be rolled up; reports read the ledger instead: %s", reason)
            return
        if after is not None:
            self._claimed[tenant] = after
