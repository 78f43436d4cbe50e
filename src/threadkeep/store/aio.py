"""The interface for asyncio: the methods of Store and Conversation as coroutines.

Each method is written once, as blocking code. Here it runs without blocking the event loop: in a greenlet, where
SQLAlchemy's async drivers switch to the loop whenever they wait, or, on SQLite, in a worker thread, which is faster
than a switch for each statement.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from datetime import UTC, datetime
from functools import partial, wraps
from itertools import islice
from threading import Event
from types import TracebackType
from typing import Any, Concatenate, Final, ForwardRef, ParamSpec, Protocol, Self, TypeAlias, TypeVar, overload

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.util import greenlet_spawn

from threadkeep import public as tk  # noqa: F401 - in annotations of the other face
from threadkeep.db import schema
from threadkeep.domain.items import Item
from threadkeep.domain.media import Media
from threadkeep.domain.objects import mismatch
from threadkeep.domain.reports import UsageKey, UsageRow
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.domain.stored import Page
from threadkeep.domain.usage import Price
from threadkeep.errors import InvalidOption
from threadkeep.store import branches, updates
from threadkeep.store.api_keys import ApiKeys
from threadkeep.store.batches import Progress
from threadkeep.store.changes.watching import AsyncChangeWatcher, Feed
from threadkeep.store.conversation import Conversation
from threadkeep.store.defaults import FEED_LAG
from threadkeep.store.engines import async_engine_for, async_host_connection, engine_for, is_sqlite
from threadkeep.store.handle import ConversationAttributes, Handle
from threadkeep.store.history_cache import DEFAULT_BYTES
from threadkeep.store.idempotency import IdempotencyKey, check_repeated
from threadkeep.store.media.by_hash import get_media
from threadkeep.store.media.stores import BlobStore
from threadkeep.store.moving.copying import CopyReport
from threadkeep.store.replicas import replica_reads
from threadkeep.store.store import Store
from threadkeep.store.streaming.beginning import locked, started_at_once, undone
from threadkeep.store.streaming.heartbeat import AsyncHeartbeat
from threadkeep.store.streaming.partial import PartialReader
from threadkeep.store.streaming.recorder import Recorder, RecorderAttributes, note_failure
from threadkeep.store.streaming.writer import StreamWriter
from threadkeep.store.transactions import CANCELLED, HostTransactions, ThreadTransactions, Transactions
from threadkeep.store.validation import MAX_PAGE

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])
Method: TypeAlias = Callable[Concatenate[Any, P], T]
TAKEN: Final = 100  # elements of an iterator, with one switch to the worker thread or greenlet
AsyncMethod: TypeAlias = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


class Runner(Protocol):
    """Runs blocking code without blocking the event loop."""

    async def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function and return its result."""


async def run_in_greenlet(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a greenlet: whatever SQLAlchemy's drivers await inside it is awaited by the event loop."""
    return await greenlet_spawn(partial(function, *args, **kwargs))


async def run_in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a worker thread; if the task is cancelled, it stops before its next transaction."""
    cancelled, context = Event(), copy_context()
    context.run(CANCELLED.set, cancelled)
    call: Callable[[], T] = partial(function, *args, **kwargs)
    try:
        return await asyncio.get_running_loop().run_in_executor(None, context.run, call)
    except asyncio.CancelledError:
        cancelled.set()
        raise


def like(method: Callable[..., Any]) -> Callable[[C], C]:
    """Like `functools.wraps`, with the names of the asyncio classes in the qualified name and the return annotation."""

    def decorate(call: C) -> C:
        signature: Any = inspect.signature(method)
        result = re.sub(
            r"\b(Store|Conversation|Recorder|ChangeWatcher|Iterator)\b", r"Async\1", signature.return_annotation
        )
        wrapper: Any = wraps(method)(call)
        wrapper.__qualname__ = f"Async{method.__qualname__}"
        wrapper.__signature__ = signature.replace(return_annotation=result)
        if result != signature.return_annotation:
            wrapper.__annotations__ = wrapper.__annotations__ | {"return": ForwardRef(result, module=__name__)}
        return call

    return decorate


def awaited(method: Method[P, T]) -> AsyncMethod[P, T]:
    """Return the method as a coroutine function, with its signature and docstring."""

    @like(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self._call(method, self._sync, *args, **kwargs)
        return result

    return call


@overload
def awaited_face(method: Method[P, Conversation]) -> AsyncMethod[P, AsyncConversation]: ...
@overload
def awaited_face(method: Method[P, Page[Conversation]]) -> AsyncMethod[P, Page[AsyncConversation]]: ...
@overload
def awaited_face(method: Method[P, Store]) -> AsyncMethod[P, AsyncStore]: ...
def awaited_face(method: Method[P, Any]) -> AsyncMethod[P, Any]:
    """Like `awaited`, for methods that return conversations or stores: the coroutine returns the asyncio versions."""

    @like(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self._wrap(await self._call(method, self._sync, *args, **kwargs))

    return call


def recording(method: Method[P, Recorder]) -> Callable[Concatenate[Any, P], AsyncRecorder]:
    """Like `awaited_face`, for the method that creates a recorder, which does not query the database."""

    @like(method)
    def make(self: AsyncConversation, /, *args: P.args, **kwargs: P.kwargs) -> AsyncRecorder:
        return AsyncRecorder(method(self._sync, *args, **kwargs)._writer, self._call)

    return make


def iterated(method: Method[P, Iterator[T]]) -> Callable[Concatenate[Any, P], AsyncIterator[T]]:
    """Like `awaited`, for methods that return an iterator: an async one, which takes some elements at a time."""

    @like(method)
    async def iterate(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        elements = await self._call(method, self._sync, *args, **kwargs)
        while some := await self._run(_take, elements):
            for element in some:
                yield element

    return iterate


def _threaded(store: Store) -> Store:
    """A store on SQLite for code that runs in a greenlet: its statements are run in worker threads."""
    copy = object.__new__(Store)
    copy.__dict__ = {**store.__dict__, "_transactions": ThreadTransactions(store._transactions)}
    return copy


def _take(elements: Iterator[T]) -> list[T]:
    return list(islice(elements, TAKEN))


class AsyncStore:
    """A database of conversations; has the methods of `Store` as coroutines.

    The database is opened by ``async with``, or when the first method is awaited; errors as for `Store`. On SQLite,
    each method runs in a worker thread; on PostgreSQL and MySQL, in an async driver.
    """

    def __init__(
        self,
        url: str | URL | Engine | AsyncEngine,
        *,
        tenants: bool = False,
        memory_bytes: int = DEFAULT_BYTES,
        options_bytes: int = DEFAULT_BYTES,
        prices: Iterable[Price] | None = None,
        search: bool = True,
        notify: bool = False,
        blobs: BlobStore | None = None,
        read_url: str | URL | AsyncEngine | None = None,
    ) -> None:
        self._run: Runner = run_in_greenlet
        if is_sqlite(url):
            self._run, engine = run_in_thread, engine_for(url)
        elif isinstance(url, Engine):
            hint = "Pass a URL or an AsyncEngine, which an AsyncStore on PostgreSQL or MySQL takes."
            raise InvalidOption("is an Engine, which is for a Store.", argument="url", hint=hint)
        else:
            engine = async_engine_for(url).sync_engine
        self._sync = object.__new__(Store)
        is_owned = not isinstance(url, Engine | AsyncEngine)
        self._sync._connect(
            engine, tenants, (memory_bytes, options_bytes), prices,
            is_owned=is_owned, search=search, notify=notify, blobs=blobs,
            reads=replica_reads(read_url, engine, is_async=True),
        )  # fmt: skip
        self._root = self

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that this store opened."""
        if self._sync._transactions.notifier is not None:
            await run_in_thread(self._sync._transactions.notifier.close)  # it waits
        await self._run(self._sync.close)  # not `_call`, which would open a store that could not be opened again

    create_conversation = awaited_face(Store.create_conversation)
    import_request = awaited_face(Store.import_request)
    save = awaited_face(Store.save)
    save_many = awaited(Store.save_many)
    get_conversation = awaited_face(Store.get_conversation)
    get_item = awaited(Store.get_item)
    get_response = awaited(Store.get_response)
    delete_response = awaited(Store.delete_response)
    list_items = awaited(Store.list_items)
    list_conversations = awaited_face(Store.list_conversations)
    list_summaries = awaited(Store.list_summaries)
    media = awaited(Store.media)
    upload_media = awaited(Store.upload_media)
    copy_conversation = awaited_face(Store.copy_conversation)
    render = awaited(Store.render)
    complete_id = awaited(Store.complete_id)
    export = iterated(Store.export)
    import_export = awaited(Store.import_export)
    backup = awaited(Store.backup)
    check = awaited(Store.check)
    delete_conversation = awaited(Store.delete_conversation)
    changes = awaited(Store.changes)
    purge_deleted = awaited(Store.purge_deleted)
    erase_user = awaited(Store.erase_user)
    retain = awaited(Store.retain)
    backlog = awaited(Store.backlog)
    search = awaited(Store.search)
    search_conversations = awaited(Store.search_conversations)
    reindex = awaited(Store.reindex)
    usage = awaited(Store.usage)
    tool_usage = awaited(Store.tool_usage)
    statistics = awaited(Store.statistics)
    fill_usage_days = awaited(Store.fill_usage_days)
    reconcile_usage = awaited(Store.reconcile_usage)
    recompute_costs = awaited(Store.recompute_costs)
    for_tenant = awaited_face(Store.for_tenant)
    position = awaited(Store.position)
    create_tenant = awaited_face(Store.create_tenant)
    delete_tenant = awaited(Store.delete_tenant)

    @like(Store.find_conversation)
    async def find_conversation(self, *, external_id: str) -> AsyncConversation | None:  # noqa: D102 - Store.find_conversation's
        conversation = await self._call(self._sync.find_conversation, external_id=external_id)
        return None if conversation is None else AsyncConversation(conversation, self._run)

    @like(Store.watch)
    def watch(self, after: str | None = None, *, poll: float = 1.0, lag: float = FEED_LAG) -> AsyncChangeWatcher:  # noqa: D102 - Store.watch's
        read = partial(self._call, self._sync.changes, limit=MAX_PAGE, lag=lag)
        return AsyncChangeWatcher(Feed(self._sync._transactions, read, poll), after)

    @like(Store.copy_to)
    async def copy_to(self, other: AsyncStore, *, progress: Progress | None = None) -> CopyReport:  # noqa: D102 - Store.copy_to's
        if not isinstance(other, AsyncStore):
            raise mismatch(InvalidOption, "an AsyncStore", other, "other")
        if not other._sync._root.is_open:
            await other._open()
        if not self._sync._root.is_open:
            await self._open()
        if self._run is other._run:
            return await self._run(self._sync.copy_to, other._sync, progress=progress)
        ours, theirs = (
            store._sync if store._run is run_in_greenlet else _threaded(store._sync) for store in (self, other)
        )
        return await run_in_greenlet(ours.copy_to, theirs, progress=progress)

    @property
    def keys(self) -> AsyncApiKeys:
        """The keys of the server's API; see `Store.keys`."""
        return AsyncApiKeys(self._sync.keys, self._call)

    def for_user(self, user_id: str) -> AsyncStore:
        """Return this store, limited to the conversations of one user. Does not query the database."""
        return self._sibling(self._sync.for_user(user_id))

    def after(self, token: str | None) -> AsyncStore:
        """Return this store for one session; see `Store.after`. Does not query the database."""
        return self._sibling(self._sync.after(token))

    def within(self, host: AsyncConnection | AsyncSession | async_scoped_session[Any]) -> AsyncStore:
        """Return this store within the caller's transaction. Its methods are all-or-nothing, and never commit.

        Raises:
            InvalidOption: `host` is not an asyncio connection or session of SQLAlchemy.
        """
        store = self._sibling(self._sync._within(async_host_connection(host)))
        store._run = run_in_greenlet
        return store

    async def _open(self) -> None:
        """Open the database in the same way as the store that owns the engine."""
        await self._root._run(self._sync._root.open)

    async def _call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not self._sync._root.is_open:
            await self._open()
        return await self._run(function, *args, **kwargs)

    def _sibling(self, sync: Store) -> AsyncStore:
        store = object.__new__(type(self))
        store._sync, store._run, store._root = sync, self._run, self._root
        return store

    def _wrap(self, value: Any) -> Any:
        if isinstance(value, Conversation):
            return AsyncConversation(value, self._run)
        if isinstance(value, Page):
            return Page([AsyncConversation(one, self._run) for one in value.items], value.next)
        return self._sibling(value)


def async_face(store: Store | AsyncStore) -> AsyncStore:
    """Return the asyncio face of a store: of a `Store`, one whose methods run in worker threads.

    It works in any event loop, and closing it closes the store.

    Raises:
        InvalidOption: it is not a store.
    """
    if isinstance(store, AsyncStore):
        return store
    if not isinstance(store, Store):
        raise mismatch(InvalidOption, "a Store or an AsyncStore", store, "store")
    face = object.__new__(AsyncStore)
    face._sync, face._run, face._root = store, run_in_thread, face
    return face


class AsyncApiKeys:
    """The keys of the server's API; has the methods of `ApiKeys` as coroutines."""

    def __init__(self, sync: ApiKeys, run: Runner) -> None:
        self._sync, self._call, self.all_tenants = sync, run, sync.all_tenants

    create = awaited(ApiKeys.create)
    list = awaited(ApiKeys.list)
    revoke = awaited(ApiKeys.revoke)
    find = awaited(ApiKeys.find)
    note_use = awaited(ApiKeys.note_use)
    exist = awaited(ApiKeys.exist)


async def check_ready(store: AsyncStore) -> None:
    """Return if the database can be used now.

    Raises:
        SchemaError: its tables are missing or belong to another release.
        DBAPIError, PoolExhausted: it cannot be reached.
    """
    await store._call(lambda: store._sync._transactions.read(schema.check))


async def own_upload(store: AsyncStore, name: str) -> Media:
    """Return media as `Store.media` does, if the user of this store has uploaded them: not what only an item has."""
    return await on_store(store, lambda inner: get_media(inner._transactions, inner._scope, name, is_own=True))


def partial_reader(conversation: AsyncConversation, number: int) -> Callable[[], Awaitable[Response | None]]:
    """Return what reads how far a response in progress has come, at each call; see `PartialReader.read`."""
    return partial(conversation._call, PartialReader(conversation._handle, number).read)


def put_back(conversation: Conversation, before: Session, given: Session) -> None:
    """Give a conversation the options and tools that it had before, where it still has those it was given since.

    Like the three below, this is for functions that work in the blocking conversation behind an asynchronous one.
    """
    updates.put_back(conversation._handle, before, given)


def check_request(conversation: Conversation, key: str, content: Any) -> bool:
    """Return whether a request with this content had the key in this conversation before.

    Raises:
        IdempotencyConflict: one with other content had it.
    """
    handle, once = conversation._handle, IdempotencyKey.of(key, "request", content)
    if once is None:
        return False
    now = datetime.now(UTC)
    return handle.transactions.write(lambda connection: check_repeated(connection, handle.ref, once, now))


def unused_branch(conversation: Conversation, at: int) -> Conversation | None:
    """Return the conversation on a branch that was forked off there, and on which nothing is; None for none."""
    found = branches.find_unused(conversation._handle, at)
    return None if found is None else Conversation(conversation._handle.on(found))


def active_branch(conversation: Conversation) -> int:
    """Return the branch on which a conversation goes on by itself, as it was when this one was opened."""
    number: int = conversation._handle.conversation.row.active_branch
    return number


class AsyncConversation(ConversationAttributes):
    """A stored conversation; has the methods of `Conversation` as coroutines.

    Created by an AsyncStore.
    """

    def __init__(self, sync: Conversation, run: Runner) -> None:
        self._sync, self._call = sync, run
        self.replayed = sync.replayed

    user = awaited(Conversation.user)
    assistant = awaited(Conversation.assistant)
    system = awaited(Conversation.system)
    developer = awaited(Conversation.developer)
    add_item = awaited(Conversation.add_item)
    add_items = awaited(Conversation.add_items)
    add_function_call_output = awaited(Conversation.add_function_call_output)
    pending_calls = awaited(Conversation.pending_calls)
    next_step = awaited(Conversation.next_step)
    approve = awaited(Conversation.approve)
    deny = awaited(Conversation.deny)
    add_input = awaited(Conversation.add_input)
    sync_request = awaited(Conversation.sync_request)
    add_response = awaited(Conversation.add_response)
    add_turn = awaited(Conversation.add_turn)
    stream_response = recording(Conversation.stream_response)
    cancel_response = awaited(Conversation.cancel_response)
    record_attempt = awaited(Conversation.record_attempt)
    compact = awaited(Conversation.compact)
    undo_compaction = awaited(Conversation.undo_compaction)
    pop = awaited(Conversation.pop)
    remove_item = awaited(Conversation.remove_item)
    clear = awaited(Conversation.clear)
    redact_item = awaited(Conversation.redact_item)
    render = awaited(Conversation.render)
    request_payload = awaited(Conversation.request_payload)
    request_body = awaited(Conversation.request_body)
    plan_context_cache = awaited(Conversation.plan_context_cache)
    record_context_cache = awaited(Conversation.record_context_cache)
    session = awaited(Conversation.session)
    clone_config = awaited(Conversation.clone_config)
    items = awaited(Conversation.items)
    get_item = awaited(Conversation.get_item)
    label_item = awaited(Conversation.label_item)
    set_feedback = awaited(Conversation.set_feedback)
    feedback = awaited(Conversation.feedback)
    mark_seen = awaited(Conversation.mark_seen)
    seen = awaited(Conversation.seen)
    transcript = awaited(Conversation.transcript)
    to_markdown = awaited(Conversation.to_markdown)
    responses = awaited(Conversation.responses)
    get_response = awaited(Conversation.get_response)
    input_items = awaited(Conversation.input_items)
    output_items = awaited(Conversation.output_items)
    response_body = awaited(Conversation.response_body)
    fork = awaited_face(Conversation.fork)
    siblings = awaited(Conversation.siblings)
    edit = awaited_face(Conversation.edit)
    regenerate = awaited_face(Conversation.regenerate)
    on_branch = awaited_face(Conversation.on_branch)
    branches = awaited(Conversation.branches)
    set_active_branch = awaited(Conversation.set_active_branch)
    state = awaited(Conversation.state)
    states = awaited(Conversation.states)
    set_state = awaited(Conversation.set_state)
    delete_state = awaited(Conversation.delete_state)
    update = awaited(Conversation.update)
    json_output = awaited(Conversation.json_output)
    think = awaited(Conversation.think)
    register_tool = awaited(Conversation.register_tool)
    register_tools = awaited(Conversation.register_tools)
    use_tools = awaited(Conversation.use_tools)
    remove_tool = awaited(Conversation.remove_tool)
    clear_tools = awaited(Conversation.clear_tools)
    archive = awaited(Conversation.archive)
    unarchive = awaited(Conversation.unarchive)

    @overload
    async def usage(self, *, by: tuple[()] = ()) -> UsageRow: ...  # type: ignore[overload-overlap]  # () is empty
    @overload
    async def usage(self, *, by: Sequence[UsageKey] | UsageKey) -> list[UsageRow]: ...
    @like(Conversation.usage)
    async def usage(self, *, by: Sequence[UsageKey] | UsageKey = ()) -> UsageRow | list[UsageRow]:  # noqa: D102 - Conversation.usage's
        return await self._call(self._sync.usage, by=by)

    @property
    def _handle(self) -> Handle:  # type: ignore[override]  # read-only here
        return self._sync._handle

    def _wrap(self, value: Conversation) -> AsyncConversation:
        return type(self)(value, self._call)


class AsyncRecorder(RecorderAttributes):
    """Stores a streamed response while it arrives: an async context manager, from `AsyncConversation.stream_response`.

    Like `Recorder`; the end of the response is also stored if the task is cancelled.
    """

    def __init__(self, writer: StreamWriter | Callable[[], StreamWriter], run: Runner) -> None:
        """`writer` may be a function that makes and starts it: then that is done when the recorder is entered."""
        self._make: Callable[[], StreamWriter] | None = None
        if isinstance(writer, StreamWriter):
            self._writer = writer
        else:
            self._make = writer
        self._run = run
        self._lock = asyncio.Lock()
        self._heartbeat: AsyncHeartbeat | None = None

    def _start(self) -> None:
        if self._make is None:
            self._writer.start()
        else:
            self._writer = self._make()

    async def __aenter__(self) -> Self:
        try:
            await uninterrupted(self._run(self._start))
        except asyncio.CancelledError as error:
            # nothing else will: the body of the `with` statement is not entered, and nobody is asked for the response
            await uninterrupted(self._end(error, is_asked=False))
            raise
        if self._writer.is_renewable:
            self._heartbeat = AsyncHeartbeat(self, AsyncRecorder._renew, self._writer.renewal)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer.is_inherited:
            return
        try:
            await uninterrupted(self._end(error))
        except Exception as failure:
            if error is None:
                raise
            note_failure(error, failure)
        finally:
            self._writer.is_left = True

    async def feed(self, event: Any) -> None:
        """Take the provider's next event. Arguments and errors as for `Recorder.feed`."""
        async with self._lock:
            if self._writer.take(event):
                await self._run(self._writer.flush)

    async def cancel(self) -> None:
        """End the response as `cancelled`; what has arrived is kept. Errors as for `Recorder.cancel`."""
        await uninterrupted(self._end(is_cancelled=True))

    async def _end(
        self, error: BaseException | None = None, *, is_cancelled: bool = False, is_asked: bool = True
    ) -> None:
        try:
            async with self._lock:
                await self._run(self._writer.finish, error, is_cancelled=is_cancelled, is_asked=is_asked)
        finally:
            if self._heartbeat is not None:
                await self._heartbeat.end()

    async def _renew(self) -> float | None:
        async with self._lock:
            return await self._run(self._writer.renew)


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Wait for work that must not be cancelled with the task, no matter how often the task is cancelled meanwhile.

    Web frameworks cancel a task again at every await until it has ended. Returns the result of the work.
    """
    task, interruption = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as cancelled:
            interruption = cancelled
    result = task.result()
    if interruption is not None:
        raise interruption
    return result


async def on_store(
    store: AsyncStore, function: Callable[Concatenate[Store, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return what a function makes of the blocking store behind this one, without blocking the event loop.

    So several calls are made with one switch to the worker thread or greenlet.
    """
    return await store._call(function, store._sync, *args, **kwargs)


async def on_conversation(
    conversation: AsyncConversation,
    function: Callable[Concatenate[Conversation, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """The same for what a function makes of the blocking conversation behind this one."""
    return await conversation._call(function, conversation._sync, *args, **kwargs)


def recorder_on(
    face: AsyncStore | AsyncConversation, make: Callable[[Any], Recorder], undo: Callable[[Conversation], None]
) -> AsyncRecorder:
    """Return a recorder that a function makes of the blocking store or conversation behind this one.

    It is made when it is entered, in one transaction with its start: of what the function has stored, nothing stays
    where the response does not begin. A conversation is as it is now, and its other writers wait. The function is not
    interrupted; it is called again after a deadlock or a lost connection.

    `undo` takes back what it has stored, in the transaction in which the response ends with an error: nobody goes on
    with it in between. It is not called any more after `keep_beginning`.
    """

    def start() -> StreamWriter:
        writer = started_at_once(_transactions_of(face), lambda *place: make(_inside(face, *place))._writer)
        if writer.response is None:
            writer.undo = undone(writer, lambda handle: undo(Conversation(handle)))
        return writer

    return AsyncRecorder(start, face._call)


def begun_at(recorder: AsyncRecorder) -> datetime:
    """Return when a response began, as it is stored; of a replayed one, when that did."""
    return recorder._writer.created_at or datetime.now(UTC)


def is_unstored(recorder: AsyncRecorder) -> bool:
    """Return whether the database did not take the end of a response when its recorder was left."""
    writer: StreamWriter | None = getattr(recorder, "_writer", None)  # None before it was entered
    return writer is not None and writer.unstored is not None


async def store_again(recorder: AsyncRecorder) -> None:
    """Try again to store such an end. Errors as when a recorder is left."""
    await uninterrupted(recorder._end())


def give_up(recorder: AsyncRecorder) -> None:
    """Forget such an end: what was stored before it is all that there will be."""
    recorder._writer.give_up()


def partial_items(recorder: AsyncRecorder, first: int) -> list[Item]:
    """Return the items of `partial` from an index on, which costs less than all of them."""
    response = recorder._writer.response
    return recorder._writer.assembler.items_from(first) if response is None else list(response.output[first:])


def unsettled_count(recorder: AsyncRecorder) -> int:
    """Return how many parts, calls or items of the provider's are read for that, since they may still grow."""
    return recorder._writer.assembler.unsettled_count


def has_ended(recorder: AsyncRecorder) -> bool:
    """Return whether the events that have come make a whole response."""
    return recorder._writer.assembler.is_ended or recorder._writer.assembler.error is not None


def is_over(recorder: AsyncRecorder) -> bool:
    """Return whether nothing of a response can follow what has come."""
    return recorder._writer.assembler.is_over


def received_bytes(recorder: AsyncRecorder) -> int:
    """Return how many bytes the events have that have come."""
    return recorder._writer.received_bytes


def has_events(recorder: AsyncRecorder) -> bool:
    """Return whether any event of the provider's was recorded."""
    return recorder._writer.assembler.has_events


def note_error(recorder: AsyncRecorder, error: Mapping[str, Any]) -> None:
    """Let a response end as `failed`, with an error that no event told."""
    recorder._writer.assembler.error = dict(error)


def keep_beginning(recorder: AsyncRecorder) -> None:
    """Let all that was stored with the beginning of a response stay, however that ends."""
    recorder._writer.undo = None


def _transactions_of(face: AsyncStore | AsyncConversation) -> Transactions:
    return face._sync._transactions if isinstance(face, AsyncStore) else face._sync._handle.transactions


def _inside(
    face: AsyncStore | AsyncConversation, connection: Connection, transactions: HostTransactions
) -> Store | Conversation:
    """The blocking store or conversation behind this one, inside a transaction."""
    if isinstance(face, AsyncStore):
        inner = face._sync
        return inner._sibling(inner._tenant, inner._user, transactions)
    return Conversation(locked(face._sync._handle, connection, transactions))


def conversation_on(store: AsyncStore, conversation: Conversation) -> AsyncConversation:
    """Return the asyncio face of a conversation that a function has opened in the blocking store behind this one."""
    return AsyncConversation(conversation, store._call)


async def in_transaction(
    store: AsyncStore, function: Callable[Concatenate[Store, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return what a function makes of the blocking store behind this one, in one transaction: all of it or nothing.

    It runs again after a deadlock or a lost connection.
    """

    def run(inner: Store) -> T:
        def write(connection: Connection) -> T:
            return function(inner.within(connection), *args, **kwargs)

        return inner._transactions.write(write, is_repeatable=True)

    return await on_store(store, run)
