"""The store: creates, finds and reports on conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import partial
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeAlias, TypeVar, Unpack

from sqlalchemy import URL, Connection, Engine, orm

from threadkeep import errors, formats
from threadkeep import public as tk
from threadkeep.db import backends, engines
from threadkeep.domain import ids, jsontext
from threadkeep.domain import session as sessions
from threadkeep.domain.stored import Page
from threadkeep.store.changes import feed, watching
from threadkeep.store.changes import watching as notifications
from threadkeep.store.checking import run as checking
from threadkeep.store.conversation import Conversation, refuses_unknown_names
from threadkeep.store.media import rows, stores
from threadkeep.store.moving import copying, exporting, restoring, usage_files
from threadkeep.store.reading import history, items, lists, rendering, responses
from threadkeep.store.removing import removal, retention
from threadkeep.store.search import query, rebuilding
from threadkeep.store.streaming import recovery
from threadkeep.store.usage import recomputation, reports, rollups, statistics
from threadkeep.store.usage.prices import PriceBook
from threadkeep.store.work import caches, refs, tenants, units
from threadkeep.store.work.handle import DayTrigger, Handle, IndexTrigger, StoreHandle, tenant_missing
from threadkeep.store.work.replicas import ReplicaReads, replica_reads
from threadkeep.store.work.tenants import StoreRoot
from threadkeep.store.work.transactions import EngineTransactions, Transactions
from threadkeep.store.work.validation import MAX_PAGE, MAX_POSITION, identifier, other_user, whole_number
from threadkeep.store.writing import api_keys, conversations, importing

P = ParamSpec("P")
S = TypeVar("S", bound="Store")
T = TypeVar("T")
Status: TypeAlias = Literal["active", "archived"]
OrderBy: TypeAlias = Literal["activity", "created", "title"]


@refuses_unknown_names
class Store:
    """A database of conversations.

    Args:
        url: a database URL (``sqlite:///chat.db``, ``postgresql://…``, ``mysql://…``, ``mariadb://…``), or an Engine.
        tenants: if False, everything belongs to a single tenant. If True, the store only has `for_tenant`,
            `create_tenant` and `delete_tenant`, and each tenant gets its own store.
        memory_bytes: the size limit of the cache of recently read conversations, in bytes of JSON text. When a cached
            conversation is opened again, only new items are read. 0 turns the cache off.
        options_bytes: the same for the cache of session options and tools, which counts what they take once parsed.
        prices: your own prices; the first one that matches a response applies. They take precedence over genai-prices
            (the extra `prices`), but not over costs that the provider reports itself.
        search: if False, new text is not indexed for search. A store opened later with search can still find it.
        notify: on PostgreSQL, tell watchers of commits, and let the watchers of this store listen; others only poll.
        blobs: where media are kept outside of the database, such as ``FolderBlobs("media")``; see `threadkeep.blobs`.
        read_url: a replica of a PostgreSQL or MariaDB server, from which is read; what this store has written is seen.
        group_commit: on SQLite, let threads that write at the same time share a transaction, and so its wait for the
            disk; each gets its own result or error. A writer that is alone waits for nothing.

    Raises:
        InvalidOption, MissingExtra: the URL cannot be used.
        DatabaseUnavailable: there is no connection to the database.
        SchemaError: the tables are missing or belong to another release. In an empty SQLite database, they are created
            automatically. With an Engine, the first call raises these two: nothing is read before.
    """

    def __init__(
        self,
        url: str | URL | Engine,
        *,
        tenants: bool = False,
        memory_bytes: int = caches.DEFAULT_BYTES,
        options_bytes: int = caches.DEFAULT_BYTES,
        prices: Iterable[tk.Price] | None = None,
        search: bool = True,
        notify: bool = False,
        blobs: tk.blobs.BlobStore | None = None,
        read_url: str | URL | Engine | None = None,
        group_commit: bool = True,
    ) -> None:
        engine, is_owned = engines.engine_for(url), not isinstance(url, Engine)
        self.handle = connect(
            engine, tenants, (memory_bytes, options_bytes), prices,
            is_owned=is_owned, search=search, notify=notify, blobs=blobs, reads=replica_reads(read_url, engine),
            group_commit=group_commit,
        )  # fmt: skip
        if is_owned:
            self._open_root()

    def __enter__(self) -> Self:
        self._open_root()
        return self

    def _open_root(self) -> None:
        try:
            self.handle.root.open(self.handle.transactions)
        except BaseException:
            self.close()
            raise

    if not TYPE_CHECKING:  # they refuse it, too

        def __aenter__(self) -> None:
            raise errors.InvalidOption("This is a Store.", hint="Write `with`, or open an AsyncStore.")

        __aexit__ = __aenter__

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that this store opened."""
        self.handle.transactions.close()

    def create_conversation(
        self, *, idempotency_key: str | None = None, user_id: str | None = None, title: str | None = None,
        labels: Mapping[str, str] | None = None, external_id: str | None = None,
        properties: Mapping[str, str] | None = None, created_at: datetime | None = None,
        **options: Unpack[tk.NewOptions],
    ) -> Conversation:  # fmt: skip
        """Create a conversation from session options (`model`, `instructions` …), `input`, `system` and `tools`.

        Raises:
            InvalidOption, InvalidItem: an option cannot be used, or the external_id belongs to another conversation.
            IdempotencyConflict: the key was used before with different content.
        """
        info: conversations.ConversationInfo = {
            "user_id": user_id, "title": title, "labels": labels, "external_id": external_id, "properties": properties,
            "created_at": created_at,
        }  # fmt: skip
        return self.save(sessions.Session(**options), idempotency_key=idempotency_key, **info)

    def import_request(
        self, payload: Any, format: formats.FormatName, *, model: str | None = None, stream: bool | None = None,
        idempotency_key: str | None = None, user_id: str | None = None, title: str | None = None,
        labels: Mapping[str, str] | None = None, external_id: str | None = None,
        properties: Mapping[str, str] | None = None, created_at: datetime | None = None,
        **options: Unpack[tk.ImportOptions],
    ) -> Conversation:  # fmt: skip
        """Create a conversation from a provider request: its settings, tools and history.

        `payload` is a dict, JSON text, or an object from the provider's SDK. `model` and `stream` supply what requests
        in the format do not contain (Gemini, Converse). `options` are session options that override those in the
        request.

        Raises:
            UnknownFormat, CannotParse, InvalidOption, InvalidItem, IdempotencyConflict: nothing was written.
        """
        info: conversations.ConversationInfo = {
            "user_id": user_id, "title": title, "labels": labels, "external_id": external_id, "properties": properties,
            "created_at": created_at,
        }  # fmt: skip
        session = importing.request_session(payload, format, model, stream, options)
        scope = self.handle.new_scope
        new = conversations.new_conversation(session, info, scope, idempotency_key, "import_request")
        return self._create(new, scope)

    def save(
        self, session: tk.Session, *, idempotency_key: str | None = None, **info: Unpack[tk.ConversationInfo]
    ) -> Conversation:
        """Create a conversation from a detached session. Raises the same errors as `create_conversation`."""
        scope = self.handle.new_scope
        return self._create(conversations.new_conversation(session, info, scope, idempotency_key), scope)

    def save_many(
        self,
        sessions: Iterable[tk.Session | tk.NewSession],
        *,
        idempotency_key: str | None = None,
        **info: Unpack[tk.ConversationInfo],
    ) -> list[str]:
        """Create conversations from many sessions, a few hundred per transaction; return their ids.

        A `NewSession` is a session with a user, title, labels, external id or times of its own; `info` is for all.

        With an idempotency key, a repeated call continues where an interrupted one stopped. Transactions that were
        already committed are kept. Raises the same errors as `create_conversation`.
        """
        return importing.save_sessions(self.handle.transactions, self.handle.new_scope, sessions, info, idempotency_key)

    def get_conversation(self, id: str, *, branch: int | None = None) -> Conversation:
        """Open a conversation on its active branch, or on the given one.

        Raises:
            NotFound: this store has no conversation with that id, or the conversation has no such branch.
        """
        return Conversation(self._open(id, None if branch is None else whole_number("branch", branch)))

    def find_conversation(self, *, external_id: str) -> Conversation | None:
        """Return the conversation with the application's own id, or None."""
        place = self.handle.scope, "external_id", identifier("external_id", external_id), self.handle.resources.configs
        found = self.handle.transactions.read_any(lambda connection: history.find_conversation(connection, *place))
        return None if found is None else self._conversation(found)

    def render(
        self, id: str, format: formats.FormatName, *, branch: int | None = None, **view: Unpack[tk.ViewOptions]
    ) -> tk.Rendered:
        """Render the next request of a conversation, as ``get_conversation(id, branch=…).render(format)`` does.

        On SQLite and PostgreSQL, the conversation and its items are read in one statement.

        Raises:
            NotFound: this store has no conversation with that id, or the conversation has no such branch.
            UnknownFormat, InvalidOption, LossError, CannotRender: as for `Conversation.render`.
        """
        if branch is None:
            place = self.handle.resources, self.handle.transactions, self.handle.scope
            rendered = rendering.render_at_once(*place, ids.public_id_bytes(id), format, view)
            if rendered is not None:
                return rendered
        return self.get_conversation(id, branch=branch).render(format, **view)

    def complete_id(self, beginning: str) -> str:
        """Return the id of the only conversation whose id begins like this; ``conv_`` can be left out.

        Raises:
            NotFound: no id begins like this.
            AmbiguousId: several do; the error lists some of them.
        """
        place = self.handle.scope, beginning
        return self.handle.transactions.read_any(lambda connection: history.complete_id(connection, *place))

    def get_item(
        self, id: str, *, annotations: bool = False, media: Literal["inline", "reference"] = "inline"
    ) -> tk.StoredItem:
        """Return the item with an id, from any conversation: the newest one if several items have that id.

        Items of the active branch come before items of other branches. `annotations` and `media` as for
        `Conversation.items`.

        Raises:
            NotFound: this store has no item with that id.
        """
        return items.find_item(self.handle.transactions, self.handle.scope, id, media, annotations=annotations)

    def get_response(self, id: str) -> tk.StoredResponse:
        """Return the response with an id, from any conversation: its own, or the provider's (the newest one with it).

        Raises:
            NotFound: this store has no response with that id.
        """
        return responses.find_response(self.handle.transactions, self.handle.scope, id)

    def delete_response(self, id: str) -> None:
        """Delete a response, given by its own id or the provider's: it is not found any more, and its body is removed.

        Its items stay in the conversation, and its attempts in the ledger.

        Raises:
            NotFound: this store has no response with that id (any more).
            ResponseInProgress: it is in progress; `cancel_response` ends it.
        """
        removal.delete_response(self.handle.transactions, self.handle.scope, id)

    def list_items(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        rating: int | None = None,
        user_id: str | None = None,
        after: str | None = None,
        limit: int = 50,
        media: Literal["inline", "reference"] = "inline",
    ) -> Page[tk.StoredItem]:
        """Return a page of the items that have these labels and this rating, from the newest conversations first.

        They come from all branches of all conversations (with `user_id`, of that user's), with their labels and
        feedback. Items must have all of the labels (at most 16), and the rating from at least one user. `media` as for
        `Conversation.items`.

        Raises:
            InvalidOption: neither labels nor a rating is given, or `after` is not the `next` of a page.
        """
        wanted = {"labels": labels, "rating": rating, "user_id": user_id, "after": after, "limit": limit}
        return items.list_annotated(self.handle.transactions, self.handle.scope, wanted, media)

    def list_conversations(
        self, *, user_id: str | None = None, labels: Mapping[str, str] | None = None, status: Status | None = "active",
        unread_by: str | None = None, order_by: OrderBy = "activity", order: Literal["asc", "desc"] | None = None,
        after: str | None = None, limit: int = 50,
    ) -> Page[Conversation]:  # fmt: skip
        """Return a page of conversations, most recently active first.

        Filter by user, by labels (conversations must have all of them; at most 16), by status (None: any status) and
        by whether that user has something to read (see `Conversation.mark_seen`). `order_by` is "activity", "created"
        (newest first) or "title" (the first ones in the alphabet first); `order` is "desc" or "asc".

        Raises:
            InvalidOption: a filter cannot be used, or `after` is not the `next` of a page in the same order.
        """
        wanted = {
            "user_id": user_id, "labels": labels, "status": status, "unread_by": unread_by, "order_by": order_by,
            "order": order, "after": after, "limit": limit,
        }  # fmt: skip
        handle = self.handle
        page = lists.list_conversations(handle.transactions, handle.scope, handle.resources.configs, wanted)
        return Page([self._conversation(conversation) for conversation in page], page.next)

    def list_summaries(
        self, *, user_id: str | None = None, labels: Mapping[str, str] | None = None, status: Status | None = "active",
        unread_by: str | None = None, seen_by: str | None = None, order_by: OrderBy = "activity",
        order: Literal["asc", "desc"] | None = None, after: str | None = None, limit: int = 50,
    ) -> Page[tk.ConversationSummary]:  # fmt: skip
        """Return a page of what a list shows of conversations: preview, counts, and whether there is something to read.

        `seen_by` is the user whose marks count: by default the one of `unread_by`, or each conversation's own user. A
        page has at most 100 of them. Other arguments and errors as for `list_conversations`.
        """
        wanted = {
            "user_id": user_id, "labels": labels, "status": status, "unread_by": unread_by, "seen_by": seen_by,
            "order_by": order_by, "order": order, "after": after, "limit": limit,
        }  # fmt: skip
        return lists.list_summaries(self.handle.transactions, self.handle.scope, wanted)

    def media(self, hash: str) -> tk.Media:
        """Return media of 8 KiB or more by hash, or by the reference that an item contains with `media="reference"`.

        Raises:
            InvalidOption: `hash` is neither.
            NotFound: neither a conversation nor an upload of this store has such media.
            DamagedRow: their object in the blob store is missing or has changed.
        """
        return rows.get_media(self.handle.transactions, self.handle.scope, hash)

    def upload_media(self, content: bytes, media_type: str | None = None) -> tk.UploadedMedia:
        """Store bytes that an item is to have later, for a day; `media` returns them to the user of this store only.

        Raises:
            InvalidOption, TooLarge: an argument cannot be used, or the database takes no value of this size.
        """
        return rows.upload_media(self.handle.transactions, self.handle.new_scope, content, media_type)

    def copy_conversation(
        self, id: str, *, idempotency_key: str | None = None, **info: Unpack[tk.ConversationInfo]
    ) -> Conversation:
        """Create a conversation with the options, tools, properties and items of another one's active branch.

        It belongs to the same user, whose words are erased with the user; give a `user_id` for another one, None for
        nobody. The copy is created now, unless `created_at` is given; its items keep their times.

        Raises:
            NotFound: this store has no conversation with that id.
        """
        original, scope = self._open(id, is_current=True), self.handle.scope
        source = Conversation(original)
        kept: tk.ConversationInfo = {"user_id": source.user_id, "properties": source.properties}
        copy = importing.copied_conversation(original, kept, info, scope, idempotency_key)
        return self._create(copy, scope)

    def delete_conversation(self, id: str, *, idempotency_key: str | None = None) -> None:
        """Delete a conversation. It disappears at once; its rows are then removed in batches. Its ledger rows are kept.

        Raises:
            NotFound: this store has no conversation with that id.
        """
        handle = self.handle
        retention.delete_conversation(handle.transactions, handle.scope, handle.resources, id, idempotency_key)

    def changes(self, after: str | None = None, *, limit: int = 100, lag: float = refs.FEED_LAG) -> tk.ChangePage:
        """Return what was committed after a cursor: changes of conversations of all users, oldest first.

        `after` is the cursor of a change or page; None starts at the beginning of the feed, and "now" returns the
        cursor of the present. A change may come again, but none is left out. `lag`: only on MySQL and MariaDB, where a
        change may appear so many seconds late (see the page Change feed of the documentation).

        Raises:
            CursorExpired: changes after the cursor were removed by `retain`.
            InvalidOption: `after` is not a cursor of this feed, or the store is limited to one user or transaction.
        """
        return feed.read_changes(self.handle.transactions, self.handle.scope, after, limit, lag)

    def watch(self, after: str | None = None, *, poll: float = 1.0, lag: float = refs.FEED_LAG) -> tk.ChangeWatcher:
        """Return an iterator over changes as they are committed, which looks for new ones every `poll` seconds.

        It never ends by itself: close it, or the store. Outages of the database are waited for. With ``notify=True`` on
        PostgreSQL, it is woken by commits. Arguments and errors as for `changes`.
        """
        read = partial(self.changes, limit=MAX_PAGE, lag=lag)
        return watching.ChangeWatcher(watching.Feed(self.handle.transactions, read, poll), after)

    def purge_deleted(self) -> int:
        """Remove rows left behind by interrupted deletions; return the number of conversations they belonged to.

        Also removes from the blob store what no row names and is older than a day: what was left by writers that were
        killed, and by transactions of callers that were rolled back.
        """
        return retention.purge_deleted(self.handle.transactions, self.handle.scope, self.handle.resources)

    def erase_user(self, user_id: str, *, progress: tk.Progress | None = None, vacuum: bool = True) -> tk.ErasureReport:
        """Remove all content of a user, in bounded transactions. An interrupted call can be repeated.

        This deletes the user's conversations with all that belongs to them (items, responses, raw bodies, media,
        labels, keys, search documents), options and tools that are not used elsewhere, the providers' usage objects and
        error messages. The ledger's figures are kept. On SQLite, the file is rewritten at the end, unless `vacuum` is
        False: see the page Retention, also for what logs and backups keep. `progress`: see `Progress`.

        Raises:
            Conflict: what is committed is removed, but another transaction may still name the user: call it again.
            InvalidOption: the store is limited to another user.
        """
        transactions, scope = self.handle.transactions, self.handle.new_scope
        return retention.erase_user(transactions, scope, self.handle.resources, user_id, progress, vacuum=vacuum)

    def retain(
        self, *, raw_bodies: timedelta | int | None = None, content: timedelta | int | None = None,
        changes: timedelta | int | None = None, dry_run: bool = False, whole_months: bool = False,
        progress: tk.Progress | None = None,
    ) -> tk.RetentionReport:  # fmt: skip
        """Remove content older than the given ages, in bounded transactions. An interrupted call can be repeated.

        `raw_bodies`: the age, in days or as a timedelta, at which raw response bodies are removed. `content`: the time
        without activity after which whole conversations are removed. `changes`: the age, at least an hour, at which
        changes are removed from the change feed. The ledger is kept. With `dry_run`, rows are only counted. With
        `whole_months`, raw bodies stay until all of their month (UTC) are due, so that their partition can be
        dropped. `progress`: see `Progress`. Deletions that were interrupted are finished, as by `purge_deleted`; they
        are not counted.

        Raises:
            InvalidOption: no age is given, or one of them is not a length of time.
        """
        handle, ages = self.handle, {"raw_bodies": raw_bodies, "content": content, "changes": changes}
        return retention.retain(
            handle.transactions, handle.scope, handle.resources, ages, progress,
            dry_run=dry_run, whole_months=whole_months,
        )  # fmt: skip

    def backlog(
        self, *, raw_bodies: timedelta | int | None = None, content: timedelta | int | None = None,
        changes: timedelta | int | None = None, whole_months: bool = False,
    ) -> tk.Backlog:  # fmt: skip
        """Return how much `retain` would have to remove now, given the same ages, and how old the oldest of it is.

        At most 10,000 rows of each kind are looked at: quick in a store of any size. Raises what `retain` raises.
        """
        ages = {"raw_bodies": raw_bodies, "content": content, "changes": changes}
        return retention.find_backlog(self.handle.transactions, self.handle.scope, ages, whole_months=whole_months)

    def export(self, *, conversation_ids: Iterable[str] | None = None) -> Iterator[str]:
        """Return the lines of an export: all conversations of this store, or some, and their rows in the ledger.

        It contains everything that is stored about them and comes back with `import_export`, except for caches at
        providers, the change feed and the search index, which is made again. Memory does not depend on how much it is.

        Raises:
            NotFound: there is no conversation with one of these ids.
        """
        return exporting.export(exporting.ExportSource(self.handle.transactions, self.handle.scope), conversation_ids)

    def import_export(self, lines: Iterable[str | bytes], *, existing: restoring.Existing = "skip") -> tk.ImportReport:
        """Read the lines of an export; ids are kept.

        Each conversation is checked and written in one transaction, short ones with others, so that a call that failed
        can be repeated. One that is there already is left as it is ("skip"), or Conflict is raised ("refuse").

        Raises:
            CannotParse: a line is damaged or missing; the error has its number.
            Conflict: another conversation has an id of the export, or its external_id.
            NotFound: the tenant was deleted.
            InvalidOption, TooLarge: an argument cannot be used, or a row exceeds a limit.
        """
        return restoring.import_export(self.handle.transactions, self.handle.new_scope, lines, existing)

    def copy_to(self, other: Store, *, progress: tk.Progress | None = None) -> tk.CopyReport:
        """Copy what this store has and another one does not have, and then compare both, row by row.

        Both are of a tenant or user each, or of all tenants; the databases can be of different kinds. A repeated call
        continues an interrupted one. What is in both and differs is reported, and left as it is.

        Raises:
            InvalidOption: `other` is not a store, has another scope, or is of the same tenant in the same database.
        """
        if not isinstance(other, Store):
            raise jsontext.mismatch(errors.InvalidOption, "a Store", other, "other")
        ours, theirs = self.handle, other.handle
        if ours.needs_tenant and theirs.needs_tenant:
            ours.root.open()
            theirs.root.open()
            places = (ours.transactions, ours.resources.blobs), (theirs.transactions, theirs.resources.blobs)
            return copying.copy_tenants(*places, progress)
        source = exporting.ExportSource(ours.transactions, ours.scope)
        return copying.copy(source, restoring.ImportTarget(theirs.transactions, theirs.new_scope), progress)

    def export_usage(
        self, place: str | PathLike[str] | stores.FolderBlobs | stores.S3Blobs, *, since: date | None = None,
        progress: tk.Progress | None = None,
    ) -> tk.UsageExportReport:  # fmt: skip
        """Write the ledger and its sums of days as Parquet files to a folder, or ``s3://BUCKET/PREFIX``.

        There is a file for each day and tenant that is over, in two tables, `usage_attempts` and `usage_by_day`. A
        repeated call writes days that are new or have changed; with `since`, it looks at no earlier ones. Memory does
        not depend on how much it is. The store of a database of tenants, without `for_tenant`, exports all of them.

        Raises:
            InvalidOption: an argument cannot be used, or this store is limited to one user.
            MissingExtra: pyarrow or, for a bucket, boto3 is not installed.
        """
        return usage_files.export_usage(self.handle, place, since, progress)

    def backup(self, file: str | PathLike[str], *, progress: tk.Progress | None = None) -> int:
        """Copy the SQLite database, with all tenants, into a new file while it is in use; return its size in bytes.

        Raises:
            InvalidOption: it is another database, the file exists already or cannot be written, or this store is for
                one user only.
        """
        handle = self.handle
        handle.root.open(handle.transactions)
        return exporting.backup(handle.transactions, None if handle.needs_tenant else handle.scope, file, progress)

    def check(self, *, repair: bool = False, progress: tk.Progress | None = None) -> tk.CheckReport:
        """Check that all rows fit together, and return what does not; with `repair`, mend what can be mended.

        Nothing is invented: content that is damaged or missing is only reported. Without `repair`, nothing is written.
        A repaired conversation is checked and mended in one transaction, so the store can be in use.

        Raises:
            InvalidOption: this store is limited to one user.
        """
        handle = self.handle
        return checking.check(handle.transactions, handle.scope, handle.resources, repair=repair, progress=progress)

    def search(
        self, text: str, *, user_id: str | None = None, labels: Mapping[str, str] | None = None,
        status: Literal["active", "archived"] | None = "active", conversation_id: str | None = None,
        type: str | None = None, role: str | None = None, since: date | None = None,
        until: date | None = None, after: str | None = None, limit: int = 20,
    ) -> Page[tk.SearchResult]:  # fmt: skip
        """Search messages, tool calls and their outputs, and titles for all words of a text; best matches first.

        ``"several words"`` matches a phrase, ``wor*`` a prefix, and ``-word`` excludes a word. `user_id`, `labels` and
        `status` filter as in `list_conversations`; `type` is an item type or ``title``; `role` is the role of a
        message; `since` and `until` (exclusive) are UTC dates or aware datetimes. Everything appended so far is found,
        on all branches; of long items, only the beginning is searched. Within the caller's transaction, only text that
        is already indexed is found.

        Raises:
            InvalidOption: the text contains no words, a filter or page cannot be used, or search is off for this store.
            NotFound: `conversation_id` is not the id of a conversation.
            SchemaError: the index is missing or broken.
        """
        scope = self.handle.searched_scope
        found = query.search_query(
            text, user_id=user_id, labels=labels, status=status, conversation_id=conversation_id, type=type, role=role,
            since=since, until=until, after=after, limit=limit,
        )  # fmt: skip
        return query.search(self.handle.transactions, scope, found)

    def search_conversations(
        self, text: str, *, user_id: str | None = None, labels: Mapping[str, str] | None = None,
        status: Status | None = "active", conversation_id: str | None = None, type: str | None = None,
        role: str | None = None, since: date | None = None, until: date | None = None, after: str | None = None,
        limit: int = 20,
    ) -> Page[tk.ConversationMatch]:  # fmt: skip
        """Search like `search`, and return conversations: each once, with its best match and the number of matches.

        The one with the best match comes first. Arguments and errors as for `search`.
        """
        scope = self.handle.searched_scope
        found = query.search_query(
            text, user_id=user_id, labels=labels, status=status, conversation_id=conversation_id, type=type, role=role,
            since=since, until=until, after=after, limit=limit,
        )  # fmt: skip
        return query.search_conversations(self.handle.transactions, scope, found)

    def reindex(self, *, rebuild: bool = False) -> int:
        """Index everything that is not indexed yet; return the number of items and titles with text.

        Items may be missing from the index if they were stored while search was off, by an older release, or in a large
        import. Searches find them anyway, but take longer. `rebuild` discards the index first, in case it is broken:
        searches find less until it is done.

        Raises:
            InvalidOption: this store is limited to one user, or search is off.
        """
        place = self.handle.transactions, self.handle.searched_scope, self.handle.resources
        return rebuilding.reindex(*place, rebuild=rebuild)

    def usage(
        self, /, *, by: Sequence[str] | str = (), since: date | None = None, until: date | None = None, tz: str = "UTC",
        order_by: tk.UsageSum | None = None, limit: int | None = None, percentiles: bool = False,
        **filters: Unpack[tk.UsageFilters],
    ) -> list[tk.UsageRow]:  # fmt: skip
        """Return attempts, tokens and costs, summed.

        `by` names the columns to group by: hour, day, week (its Monday), month (its first day), model, provider,
        format, user_id, conversation_id, status, tool_set, response; what conversations have now: conversation_status,
        title, ``label:NAME`` and ``property:NAME``; and what responses have: feedback (the lowest rating of its items),
        approval (of its calls: denied, or else approved), ``item_label:NAME``, and ``metadata:NAME`` of the options of
        their requests. `since` and `until` (exclusive) are dates or aware datetimes. Dates, days and hours are in the
        time zone `tz`. `filters` are values, or lists of values, of the columns of the ledger, except hour, week and
        month; `day` is a UTC day there. With `labels=`, only conversations count that have all of these (at most 16),
        and are not deleted. `order_by` sorts by a sum, largest first; `limit` makes a top list. `percentiles` adds
        those of latencies and times to the first token. A store for all tenants reports on them, if `by` names tenant.

        Raises:
            InvalidOption: a column, filter, time zone or order cannot be used.
        """
        return reports.usage(
            self.handle, by, filters,
            since=since, until=until, tz=tz, order_by=order_by, limit=limit, percentiles=percentiles,
        )  # fmt: skip

    def spend(
        self, *, user_id: str | None = None, labels: Mapping[str, str] | None = None, since: date | None = None,
        until: date | None = None, tz: str = "UTC",
    ) -> tk.UsageRow:  # fmt: skip
        """Return what a user, the conversations with some labels, or this store has used since a time, as one row.

        For budgets, before each turn: one statement reads sums of days, or an index. It lacks what is being streamed,
        and the cost of `unknown_costs` attempts. Without `user_id` and `labels` it is that of all of the store; with
        both, of that user in such conversations. Name the rarest label first. Arguments as for `usage`.

        Raises:
            InvalidOption: an argument cannot be used.
        """
        filters: tk.UsageFilters = {} if user_id is None else {"user_id": identifier("user_id", user_id)}
        if labels is not None:
            filters["labels"] = labels
        return self.usage(since=since, until=until, tz=tz, **filters)[0]

    def tool_usage(
        self, *, by: Literal["day", "week", "month"] | None = None, since: date | None = None,
        until: date | None = None, tz: str = "UTC", user_id: str | None = None, limit: int | None = None,
        conversations: int | None = None, percentiles: bool = False,
    ) -> list[tk.ToolUsage]:  # fmt: skip
        """Return how often each function was called, unanswered or failed; the most frequently called first.

        `by` gives each period rows of its own; `percentiles` adds how long outputs took. Times are as for `usage`.
        Deleted conversations do not count; `conversations` limits it to so many (up to 100,000) of those active then:
        the last ones or, where `until` is past, the first ones.

        Raises:
            InvalidOption: an argument cannot be used.
        """
        return statistics.tool_usage(
            self.handle.transactions, self.handle.scope,
            by=by, since=since, until=until, tz=tz, user_id=user_id, limit=limit, conversations=conversations,
            percentiles=percentiles,
        )  # fmt: skip

    def statistics(self, *, largest: int = 10) -> tk.Statistics:
        """Return how much is stored: counts, bytes, and the largest conversations.

        Reads every row, so it can be slow; in a store for one user, only the rows of that user.

        Raises:
            InvalidOption: `largest` is not a positive integer.
        """
        return statistics.statistics(self.handle.transactions, self.handle.scope, largest)

    def fill_usage_days(self) -> int:
        """Roll up the days that ended at least an hour ago, a few per transaction; return the number of days.

        Reports are the same without it, but faster with it. Days of at most 25,000 attempts roll themselves up when
        responses are stored; call it once a day if there are more.

        Raises:
            InvalidOption: this store is limited to one user.
        """
        return rollups.roll_up_days(self.handle.transactions, self.handle.scope)

    def reconcile_usage(self) -> tk.ReconciliationReport:
        """Compare the sums of rolled-up days with the ledger and repair any differences; then call `fill_usage_days`.

        Sums differ only if a transaction was open for more than an hour after midnight, a clock was wrong, or ledger
        rows were changed by hand. Raises the same errors as `fill_usage_days`.
        """
        return rollups.reconcile(self.handle.transactions, self.handle.scope)

    def recompute_costs(self, *, since: date | None = None, until: date | None = None) -> tk.RecomputationReport:
        """Compute the costs of the ledger again, with today's list of prices for the time of each call.

        After an update of genai-prices, or with other `prices` of your own. `since` and `until` (exclusive) are dates
        (in UTC) or aware datetimes; without them, all of the ledger. Costs that the provider reported stay, and so do
        those from prices of your own that this store does not have. Rows are changed in small transactions, and days
        that are over are rolled up again; doing it twice changes nothing.

        Raises:
            InvalidOption: this store is limited to one user, or the times are no span.
            MissingExtra: genai-prices is not installed, and there are no prices of your own.
        """
        handle = self.handle
        return recomputation.recompute_costs(handle.transactions, handle.scope, handle.resources.prices, since, until)

    def for_user(self, user_id: str) -> Store:
        """Return this store, limited to the conversations of one user.

        Raises:
            InvalidOption: the store is already limited to another user, or it has tenants and none was chosen.
        """
        user = identifier("user_id", user_id)
        if self.handle.needs_tenant:
            raise tenant_missing()
        if self.handle.user not in {None, user}:
            raise other_user(self.handle.user, user)
        return self._sibling(self.handle.tenant, user)

    def position(self) -> str:
        """Return what readers must have reached to see what was written here: a short text, for `after` and cookies."""
        return self.handle.transactions.position()

    def after(self, token: str | None) -> Store:
        """Return this store for one session, whose reads see what was written up to a `position`, and by itself.

        Raises:
            InvalidOption: it is no position, or one of another kind of database.
        """
        return self._sibling(self.handle.tenant, self.handle.user, self.handle.transactions.after(token))

    @contextmanager
    def begin(self) -> Iterator[UnitOfWork]:
        """Begin a unit of work: one transaction, which is committed at the end of the `with` statement.

        An exception that leaves the statement rolls it back, and so does the database at a deadlock. In a store from
        `within`, or inside a unit of work, it is a savepoint of that transaction.

        Raises:
            UnitOfWorkRolledBack: the database rolled it back; nothing was written. Run it again from its beginning.
        """
        self.handle.root.open(self.handle.transactions)
        with self.handle.transactions.begin() as transactions:
            yield unit_of_work(self.handle, transactions)

    def run_in_transaction(
        self, function: Callable[Concatenate[UnitOfWork, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return what a function makes of a unit of work; it is called again if that is rolled back.

        That happens after a deadlock or a lost connection, also one that was lost during the COMMIT, when it may have
        been written already: pass idempotency keys where that must not happen twice. It is called again, too, when it
        goes on after a call that failed: then each call has a savepoint. In a store from `within`, it is called once.

        For an AsyncStore, too, it is a plain function of the blocking UnitOfWork, run without blocking the event loop.
        """
        if not callable(function):
            raise jsontext.mismatch(errors.InvalidOption, "a function of a unit of work", function, "function")
        self.handle.root.open(self.handle.transactions)
        return self.handle.transactions.run_unit(
            lambda unit: function(unit_of_work(self.handle, unit), *args, **kwargs)
        )

    def within(self, host: Connection | orm.Session | orm.scoped_session[Any]) -> UnitOfWork:
        """Return this store within the caller's transaction. Its methods are all-or-nothing, and never commit.

        It is for that transaction alone: the one that is open, or else the next one. After its end, methods of the
        store, and of what came from it, raise UnitOfWorkEnded.

        Raises:
            InvalidOption: `host` is not a connection or session.
        """
        return unit_on(self.handle, engines.host_connection(host))

    def for_tenant(self, name: str) -> Store:
        """Return the store of a tenant.

        Raises:
            NotFound: there is no tenant with that name.
        """
        self._check_tenants()
        return self._sibling(tenants.get_tenant(self.handle.transactions, name))

    def create_tenant(self, name: str) -> Store:
        """Create a tenant and return its store.

        Raises:
            InvalidOption: there is already a tenant with that name.
        """
        self._check_tenants()
        return self._sibling(tenants.create_tenant(self.handle.transactions, name))

    def delete_tenant(self, name: str) -> None:
        """Delete a tenant with all its conversations and its ledger, in many transactions; it can be repeated.

        Raises:
            NotFound: there is no tenant with that name.
            Conflict: new conversations were created for it during the deletion.
        """
        self._check_tenants()
        transactions = self.handle.transactions
        tenants.delete_tenant(transactions, tenants.get_tenant(transactions, name), self.handle.resources)

    @property
    def keys(self) -> tk.ApiKeys:
        """The keys of the server's API, of this store's tenant and user; with tenants, of all of them."""
        return api_keys.ApiKeys(self.handle)

    def _check_tenants(self) -> None:
        if not self.handle.needs_tenant:
            raise errors.InvalidOption("Tenants are for a store that was opened with tenants=True.")
        self.handle.root.open(self.handle.transactions)

    def _sibling(self, tenant: int | None, user: str | None = None, transactions: Transactions | None = None) -> Store:
        """Return a store on the same database: for one tenant and, if given, one user."""
        handle = self.handle
        handle.transactions.check_open()
        transactions = transactions or handle.transactions
        return from_handle(type(self), replace(handle, tenant=tenant, user=user, transactions=transactions))

    def _create(self, new: conversations.Creation, scope: refs.Scope) -> Conversation:
        place = self.handle.transactions, scope, self.handle.resources.configs
        conversation, is_replayed = conversations.create_conversation(*place, new)
        return self._conversation(conversation, replayed=is_replayed)

    def _open(self, id: str, branch: int | None = None, *, is_current: bool = False, is_locked: bool = False) -> Handle:
        place = self.handle.scope, "public_id", ids.public_id_bytes(id), self.handle.resources.configs, branch
        read = self.handle.transactions.read if is_current else self.handle.transactions.read_any
        found = read(lambda connection: history.open_conversation(connection, *place, is_locked=is_locked))
        return Handle(self.handle.resources, self.handle.transactions, found)

    def _conversation(self, conversation: refs.ConversationState, *, replayed: bool = False) -> Conversation:
        return Conversation(Handle(self.handle.resources, self.handle.transactions, conversation), replayed=replayed)


@refuses_unknown_names
class UnitOfWork(Store):
    """A store inside one transaction, from `Store.begin` or `Store.within`.

    Its methods see what was written before in the transaction, and nothing is committed before its end. Each of them
    happens as a whole or not at all: after an error such as NotFound or HeadConflict, the unit of work can go on.
    What belongs to it (conversations, iterators, this store itself) raises UnitOfWorkEnded after the end. Use it in
    one thread or task at a time.
    """

    @property
    def connection(self) -> Connection:
        """SQLAlchemy's connection in this transaction, for tables of the application; neither commit nor close it.

        Raises:
            UnitOfWorkEnded: the transaction has ended.
        """
        transactions = self.handle.transactions
        assert isinstance(transactions, units.UnitTransactions)  # noqa: S101 - for type checkers
        return transactions.connection

    def open(self, id: str, *, branch: int | None = None) -> Conversation:
        """Open a conversation for writing, on its active branch or on the given one: its other writers wait.

        They wait until the end of the transaction, so what is read from it stays true until then. Open several in the
        order of their ids, so that two units of work do not wait for each other.

        Raises:
            NotFound: this store has no conversation with that id, or the conversation has no such branch.
        """
        number = None if branch is None else whole_number("branch", branch)
        return Conversation(self._open(id, number, is_locked=True))


def connect(
    engine: Engine, tenants: bool, limits: tuple[int, int], prices: Iterable[tk.Price] | None, *,
    is_owned: bool, search: bool, notify: bool, blobs: tk.blobs.BlobStore | None, reads: ReplicaReads | None,
    group_commit: bool,
) -> StoreHandle:  # fmt: skip
    """Prepare a store without running a statement; `StoreRoot.open` opens the database."""
    book, (memory_bytes, options_bytes) = PriceBook(prices), limits

    def end_stream(*blocked: Any) -> None:  # loaded when a stream has to be ended
        recovery.StreamRecovery(book).end(*blocked)

    transactions = EngineTransactions(
        engine, is_owned=is_owned, end_stream=end_stream, reads=reads, group_commit=group_commit,
        notifier=notifications.Notifier(engine) if notify and backends.backend_of(engine).notifies else None,
    )  # fmt: skip
    resources = caches.StoreResources(
        caches.ConfigCache(whole_number("options_bytes", options_bytes, MAX_POSITION)),
        caches.HistoryCache(whole_number("memory_bytes", memory_bytes, MAX_POSITION)), book,
        IndexTrigger() if search else None, DayTrigger(), stores.blob_store(blobs),
    )  # fmt: skip
    shown_url = engines.command_url(engine) if is_owned else None
    root = StoreRoot(engine, transactions, end_stream, has_tenants=tenants, url=shown_url)
    return StoreHandle(root, transactions, resources)


def from_handle(kind: type[S], handle: StoreHandle) -> S:
    """Return a store of a kind on a database that is connected."""
    store = object.__new__(kind)
    store.handle = handle
    return store


def unit_of_work(handle: StoreHandle, transactions: units.UnitTransactions) -> UnitOfWork:
    """Return a store inside a transaction."""
    return from_handle(UnitOfWork, replace(handle, transactions=transactions))


def unit_on(handle: StoreHandle, host: Connection | orm.Session) -> UnitOfWork:
    """Return a store inside the transaction of the application's connection or session."""
    outside = handle.transactions
    return unit_of_work(handle, units.HostTransactions(host, handle.root.end_stream, outside.outside, outside.reads))
