"""The interface for asyncio: the methods of Store and Conversation as coroutines.

Each method is written once, as blocking code. Here it runs without blocking the event loop: in a greenlet, where
SQLAlchemy's async drivers switch to the loop whenever they wait, or, on SQLite, in a worker thread, which is faster
than a switch for each statement.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime
from functools import partial, wraps
from itertools import islice
from threading import Event
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    ForwardRef,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    overload,
)
from weakref import WeakKeyDictionary

from sqlalchemy import URL, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.util import greenlet_spawn

from threadkeep import errors
from threadkeep.db import engines, schema
from threadkeep.domain import jsontext, media, stored
from threadkeep.domain.reports import UsageKey, UsageRow
from threadkeep.domain.usage import Price
from threadkeep.store.changes.watching import AsyncChangeWatcher, Feed
from threadkeep.store.conversation import Conversation, refuses_unknown_names
from threadkeep.store.media.rows import get_media
from threadkeep.store.media.stores import BlobStore
from threadkeep.store.moving.copying import CopyReport
from threadkeep.store.removing.batches import Progress
from threadkeep.store.store import Store, UnitOfWork, connect, from_handle, unit_on
from threadkeep.store.streaming.lifecycle import AsyncHeartbeat
from threadkeep.store.streaming.recorder import Recorder, RecorderAttributes, WholeStreamWriter, note_failure
from threadkeep.store.streaming.writer import StreamWriter, locked, started_at_once, undone
from threadkeep.store.work import (
    caches,
    connections,
    groups,
    handle,
    idempotency,
    refs,
    replicas,
    transactions,
    units,
    validation,
)
from threadkeep.store.writing.api_keys import ApiKeys

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E")
C = TypeVar("C", bound=Callable[..., Any])
Method: TypeAlias = Callable[Concatenate[Any, P], T]
FACES: Final = re.compile(r"\b(Store|UnitOfWork|Conversation|Recorder|ChangeWatcher|Iterator)\b")
POOLED: Final = 5  # connections that pools keep open, at least: those beyond are made and closed each time
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
    submit = partial(asyncio.get_running_loop().run_in_executor, None)
    return await _run_in(submit, partial(function, *args, **kwargs))


class UnitThread:
    """Runs the calls of a unit of work in a thread of its own; after its end, in any worker thread.

    Others that wait for its end, such as writers to the same SQLite file, may occupy all worker threads.
    """

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = ThreadPoolExecutor(1, "threadkeep-unit")

    async def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function and return its result."""
        submit = partial(asyncio.get_running_loop().run_in_executor, self._executor)
        return await _run_in(submit, partial(function, *args, **kwargs))

    def end(self) -> None:
        """End the thread, as soon as it has nothing to do."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)


class CallBatches(Generic[E]):
    """Hands over what comes in one event loop, a batch at a time: all that came while the last one was run.

    Threads that write at the same time wait for each other, and each takes Python's lock from the event loop.
    """

    def __init__(self, run: Callable[[Sequence[E]], asyncio.Future[list[groups.Outcome]]]) -> None:
        self._run = run
        self._waiting: list[tuple[E, asyncio.Future[Any]]] = []
        self._is_running = False

    def submit(self, element: E) -> asyncio.Future[Any]:
        """Return a future of what running an element returns or raises."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((element, done))
        if not self._is_running:
            self._start()
        return done

    def _start(self) -> None:
        some = self._waiting[: groups.MAX_MEMBERS]
        del self._waiting[: len(some)]
        self._is_running = True
        try:
            running = self._run([element for element, _ in some])
        except RuntimeError as error:  # the threads of the loop have ended
            running = asyncio.get_running_loop().create_future()
            running.set_exception(error)
        running.add_done_callback(partial(self._end, [done for _, done in some]))

    def _end(self, waiting: Sequence[asyncio.Future[Any]], running: asyncio.Future[list[groups.Outcome]]) -> None:
        self._is_running = False
        failure = asyncio.CancelledError() if running.cancelled() else running.exception()
        outcomes = [(None, failure)] * len(waiting) if failure is not None else running.result()
        for done, (result, error) in zip(waiting, outcomes, strict=True):
            if not done.done():  # else nobody waits any more
                done.set_result(result) if error is None else done.set_exception(error)
        if self._waiting:
            self._start()


class StoreRunner:
    """Runs the calls of a store, whose database the first one opens; `opening` does that where `run` is for others."""

    def __init__(self, store: handle.StoreHandle, run: Runner, opening: Runner | None = None) -> None:
        self.run, self._store, self._root, self._opening = run, store, store.root, opening or run
        self._batches: WeakKeyDictionary[asyncio.AbstractEventLoop, CallBatches[Callable[[], Any]]] = (
            WeakKeyDictionary()
        )

    async def together(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Like a call of this, for what writes and waits for nothing else: on SQLite, in one thread with others."""
        await self.open()
        place, loop = self._store.transactions, asyncio.get_running_loop()
        is_grouping = isinstance(place, transactions.EngineTransactions) and place.is_grouping
        if self.run is not run_in_thread or not is_grouping or self._store.resources.blobs is not None:
            return await self.run(function, *args, **kwargs)
        if (batches := self._batches.get(loop)) is None:
            batches = self._batches[loop] = CallBatches(
                lambda calls: loop.run_in_executor(None, groups.run_calls, calls)
            )
        return await _run_in(batches.submit, partial(function, *args, **kwargs))

    async def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Open the database if that was not done; call the function and return its result."""
        await self.open()
        return await self.run(function, *args, **kwargs)

    async def open(self) -> None:
        """Open the database, in the same way as the store that owns the engine."""
        if not self._root.is_open:
            await self._opening(self._root.open)

    def by(self, run: Runner) -> StoreRunner:
        """Return a runner for calls of the same store that run in another way."""
        return StoreRunner(self._store, run, self._opening)


async def _run_in(submit: Callable[[Callable[[], T]], asyncio.Future[T]], call: Callable[[], T]) -> T:
    cancelled, context = Event(), copy_context()
    context.run(transactions.TASK_CANCELLED.set, cancelled)
    try:
        return await submit(partial(context.run, call))
    except asyncio.CancelledError:
        cancelled.set()
        raise


def like(method: Callable[..., Any]) -> Callable[[C], C]:
    """Like `functools.wraps`, with the names of the asyncio classes in the qualified name and the return annotation."""

    def decorate(call: C) -> C:
        signature: Any = inspect.signature(method)
        result = re.sub(
            r"\b(Store|UnitOfWork|Conversation|Recorder|ChangeWatcher|Iterator)\b",
            r"Async\1",
            signature.return_annotation,
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
        result: T = await self.call(method, self.sync, *args, **kwargs)
        return result

    return call


@overload
def awaited_face(method: Method[P, Conversation]) -> AsyncMethod[P, AsyncConversation]: ...
@overload
def awaited_face(method: Method[P, stored.Page[Conversation]]) -> AsyncMethod[P, stored.Page[AsyncConversation]]: ...
@overload
def awaited_face(method: Method[P, Store]) -> AsyncMethod[P, AsyncStore]: ...
def awaited_face(method: Method[P, Any]) -> AsyncMethod[P, Any]:
    """Like `awaited`, for methods that return conversations or stores: the coroutine returns the asyncio versions."""

    @like(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self._wrap(await self.call(method, self.sync, *args, **kwargs))

    return call


def recording(method: Method[P, Recorder]) -> Callable[Concatenate[Any, P], AsyncRecorder]:
    """Like `awaited_face`, for the method that creates a recorder, which does not query the database."""

    @like(method)
    def make(self: AsyncConversation, /, *args: P.args, **kwargs: P.kwargs) -> AsyncRecorder:
        return AsyncRecorder(method(self.sync, *args, **kwargs).writer, self.call)

    return make


def iterated(method: Method[P, Iterator[T]]) -> Callable[Concatenate[Any, P], AsyncIterator[T]]:
    """Like `awaited`, for methods that return an iterator: an async one, which takes some elements at a time."""

    @like(method)
    async def iterate(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        elements = await self.call(method, self.sync, *args, **kwargs)
        while some := await self.call(_take, elements):
            for element in some:
                yield element

    return iterate


def _threaded(store: Store) -> Store:
    """A store on SQLite for code that runs in a greenlet: its statements are run in worker threads."""
    handle = store.handle
    return from_handle(Store, replace(handle, transactions=connections.ThreadTransactions(handle.transactions)))


def _take(elements: Iterator[T]) -> list[T]:
    return list(islice(elements, TAKEN))


@refuses_unknown_names
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
        memory_bytes: int = caches.DEFAULT_BYTES,
        options_bytes: int = caches.DEFAULT_BYTES,
        prices: Iterable[Price] | None = None,
        search: bool = True,
        notify: bool = False,
        blobs: BlobStore | None = None,
        read_url: str | URL | AsyncEngine | None = None,
        group_commit: bool = True,
    ) -> None:
        run: Runner = run_in_greenlet
        if engines.runs_in_threads(url):
            run, engine = run_in_thread, engines.engine_for(url)
        elif isinstance(url, Engine):
            hint = "Pass a URL or an AsyncEngine, which an AsyncStore on PostgreSQL or MySQL takes."
            raise errors.InvalidOption("is an Engine, which is for a Store.", argument="url", hint=hint)
        else:
            engine = engines.async_engine_for(url)
        handle = connect(
            engine, tenants, (memory_bytes, options_bytes), prices,
            is_owned=not isinstance(url, Engine | AsyncEngine), search=search, notify=notify, blobs=blobs,
            reads=replicas.replica_reads(read_url, engine, is_async=True), group_commit=group_commit,
        )  # fmt: skip
        self.sync, self.call = from_handle(Store, handle), StoreRunner(handle, run)

    if not TYPE_CHECKING:  # they refuse it, too

        def __enter__(self) -> None:
            raise errors.InvalidOption("This is an AsyncStore.", hint="Write `async with`, or open a Store.")

        __exit__ = __enter__

    async def __aenter__(self) -> Self:
        await self.call.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that this store opened."""
        if (notifier := self.sync.handle.transactions.notifier) is not None:
            await run_in_thread(notifier.close)  # it waits
        await self.call.run(self.sync.close)  # without opening the store, which could not be opened again

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
    spend = awaited(Store.spend)
    tool_usage = awaited(Store.tool_usage)
    statistics = awaited(Store.statistics)
    export_usage = awaited(Store.export_usage)
    fill_usage_days = awaited(Store.fill_usage_days)
    reconcile_usage = awaited(Store.reconcile_usage)
    recompute_costs = awaited(Store.recompute_costs)
    for_tenant = awaited_face(Store.for_tenant)
    position = awaited(Store.position)
    create_tenant = awaited_face(Store.create_tenant)
    delete_tenant = awaited(Store.delete_tenant)

    @like(Store.find_conversation)
    async def find_conversation(self, *, external_id: str) -> AsyncConversation | None:  # noqa: D102 - Store.find_conversation's
        conversation = await self.call(self.sync.find_conversation, external_id=external_id)
        return None if conversation is None else AsyncConversation(conversation, self.call.run)

    @like(Store.watch)
    def watch(self, after: str | None = None, *, poll: float = 1.0, lag: float = refs.FEED_LAG) -> AsyncChangeWatcher:  # noqa: D102 - Store.watch's
        read = partial(self.call, self.sync.changes, limit=validation.MAX_PAGE, lag=lag)
        return AsyncChangeWatcher(Feed(self.sync.handle.transactions, read, poll), after)

    @like(Store.copy_to)
    async def copy_to(self, other: AsyncStore, *, progress: Progress | None = None) -> CopyReport:  # noqa: D102 - Store.copy_to's
        if not isinstance(other, AsyncStore):
            raise jsontext.mismatch(errors.InvalidOption, "an AsyncStore", other, "other")
        await other.call.open()
        await self.call.open()
        if self.call.run is other.call.run:
            return await self.call(self.sync.copy_to, other.sync, progress=progress)
        ours, theirs = (
            store.sync if store.call.run is run_in_greenlet else _threaded(store.sync) for store in (self, other)
        )
        return await run_in_greenlet(ours.copy_to, theirs, progress=progress)

    @property
    def keys(self) -> AsyncApiKeys:
        """The keys of the server's API; see `Store.keys`."""
        return AsyncApiKeys(self.sync.keys, self.call)

    def for_user(self, user_id: str) -> AsyncStore:
        """Return this store, limited to the conversations of one user. Does not query the database."""
        return self._sibling(self.sync.for_user(user_id))

    def after(self, token: str | None) -> AsyncStore:
        """Return this store for one session; see `Store.after`. Does not query the database."""
        return self._sibling(self.sync.after(token))

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncUnitOfWork]:
        """Begin a unit of work; see `Store.begin`. On SQLite, its calls run in a thread of its own."""
        await self.call.open()
        run = UnitThread() if self.call.run is run_in_thread else self.call.run
        unit = self.sync.begin()
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_exit(lambda *error: uninterrupted(run(unit.__exit__, *error)))
                work = await uninterrupted(run(unit.__enter__))
                yield AsyncUnitOfWork(work, self.call.by(run))
        finally:
            if isinstance(run, UnitThread):
                run.end()

    @like(Store.run_in_transaction)
    async def run_in_transaction(  # noqa: D102 - Store.run_in_transaction's
        self, function: Callable[Concatenate[UnitOfWork, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self.call(self.sync.run_in_transaction, function, *args, **kwargs)

    async def run_sync(self, function: Callable[Concatenate[Store, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a blocking function makes of the blocking store behind this one, without blocking the event loop.

        So several calls take one switch to the worker thread or greenlet. The function must not wait for anything but
        the store. `face_of` makes a conversation or recorder that it returns one for asyncio.
        """
        return await self.call(function, self.sync, *args, **kwargs)

    @overload
    def face_of(self, made: Conversation) -> AsyncConversation: ...
    @overload
    def face_of(self, made: Recorder) -> AsyncRecorder: ...
    def face_of(self, made: Conversation | Recorder) -> AsyncConversation | AsyncRecorder:
        """Return the asyncio face of what a function of `run_sync` or `run_in_transaction` has returned.

        A conversation goes on in transactions of its own, wherever it was opened.
        """
        if isinstance(made, Recorder):
            return AsyncRecorder(made.writer, self.call)
        return AsyncConversation(Conversation(made.handle.moved(self.sync.handle.transactions)), self.call)

    def within(self, host: AsyncConnection | AsyncSession | async_scoped_session[Any]) -> AsyncUnitOfWork:
        """Return this store within the caller's transaction; see `Store.within`.

        Raises:
            InvalidOption: `host` is not an asyncio connection or session of SQLAlchemy.
        """
        sync = self.sync if self.call.run is run_in_greenlet else _threaded(self.sync)
        return AsyncUnitOfWork(unit_on(sync.handle, engines.async_host_connection(host)), self.call.by(run_in_greenlet))

    def _sibling(self, sync: Store) -> AsyncStore:
        store = object.__new__(type(self))
        store.sync, store.call = sync, self.call
        return store

    def _wrap(self, value: Any) -> Any:
        if isinstance(value, Conversation):
            return AsyncConversation(value, self.call.run)
        if isinstance(value, stored.Page):
            return stored.Page([AsyncConversation(one, self.call.run) for one in value.items], value.next)
        return self._sibling(value)


class AsyncUnitOfWork(AsyncStore):
    """A store inside one transaction, from `AsyncStore.begin` or `AsyncStore.within`; see `UnitOfWork`.

    The connection of its transaction, for tables of the application, belongs to the blocking `UnitOfWork`, which
    `run_sync` passes to a function.
    """

    def __init__(self, sync: UnitOfWork, call: StoreRunner) -> None:
        self.sync, self.call = sync, call

    open = awaited_face(UnitOfWork.open)


def async_face(store: Store | AsyncStore) -> AsyncStore:
    """Return the asyncio face of a store: of a `Store`, one whose methods run in worker threads.

    It works in any event loop, and closing it closes the store.

    Raises:
        InvalidOption: it is not a store.
    """
    if isinstance(store, AsyncStore):
        return store
    if not isinstance(store, Store):
        raise jsontext.mismatch(errors.InvalidOption, "a Store or an AsyncStore", store, "store")
    face = object.__new__(AsyncStore)
    face.sync, face.call = store, StoreRunner(store.handle, run_in_thread)
    return face


class AsyncApiKeys:
    """The keys of the server's API; has the methods of `ApiKeys` as coroutines."""

    def __init__(self, sync: ApiKeys, run: Runner) -> None:
        self.sync, self.call, self.all_tenants = sync, run, sync.all_tenants

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
    await store.run_sync(lambda sync: sync.handle.transactions.read(schema.check))


async def own_upload(store: AsyncStore, name: str) -> media.Media:
    """Return media as `Store.media` does, if the user of this store has uploaded them: not what only an item has."""
    return await store.run_sync(lambda sync: get_media(sync.handle.transactions, sync.handle.scope, name, is_own=True))


class AsyncConversation(handle.ConversationAttributes):
    """A stored conversation; has the methods of `Conversation` as coroutines.

    Created by an AsyncStore.
    """

    def __init__(self, sync: Conversation, run: Runner) -> None:
        self.sync, self.call = sync, run
        self.handle, self.replayed = sync.handle, sync.replayed

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
    partial_response = awaited(Conversation.partial_response)
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

    async def run_sync(
        self, function: Callable[Concatenate[Conversation, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return what a function makes of the blocking conversation behind this one; see `AsyncStore.run_sync`."""
        return await self.call(function, self.sync, *args, **kwargs)

    @overload
    async def usage(self, *, by: tuple[()] = ()) -> UsageRow: ...  # type: ignore[overload-overlap]  # () is empty
    @overload
    async def usage(self, *, by: Sequence[UsageKey] | UsageKey) -> list[UsageRow]: ...
    @like(Conversation.usage)
    async def usage(self, *, by: Sequence[UsageKey] | UsageKey = ()) -> UsageRow | list[UsageRow]:  # noqa: D102 - Conversation.usage's
        return await self.call(self.sync.usage, by=by)

    def _wrap(self, value: Conversation) -> AsyncConversation:
        return type(self)(value, self.call)


class AsyncRecorder(RecorderAttributes):
    """Stores a streamed response while it arrives: an async context manager, from `AsyncConversation.stream_response`.

    Like `Recorder`; the end of the response is also stored if the task is cancelled.
    """

    def __init__(self, writer: StreamWriter | Callable[[], StreamWriter], run: Runner) -> None:
        """`writer` may be a function that makes and starts it: then that is done when the recorder is entered."""
        self._make: Callable[[], StreamWriter] | None = None
        if isinstance(writer, StreamWriter):
            self.writer = writer
        else:
            self._make = writer
        self._run = run
        self.lock = asyncio.Lock()
        self.heartbeat: AsyncHeartbeat | None = None

    async def run_sync(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of the writer and return its result; that of a small answer together with others'."""
        is_large = hasattr(self, "writer") and self.writer.received_bytes > connections.LARGE_BYTES
        run = self._run if is_large or not isinstance(self._run, StoreRunner) else self._run.together
        return await run(function, *args, **kwargs)

    def _start(self) -> None:
        if self._make is None:
            self.writer.start()
        else:
            self.writer = self._make()

    async def __aenter__(self) -> Self:
        try:
            await uninterrupted(self.run_sync(self._start))
        except asyncio.CancelledError as error:
            # nothing else will: the body of the `with` statement is not entered, and nobody is asked for the response
            await end_recording(self, error, is_asked=False)
            raise
        if self.writer.is_renewable:
            self.heartbeat = AsyncHeartbeat(self, AsyncRecorder._renew, self.writer.renewal)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.writer.is_inherited:
            return
        try:
            await end_recording(self, error)
        except Exception as failure:
            if error is None:
                raise
            note_failure(error, failure)
        finally:
            self.writer.is_left = True

    async def feed(self, event: Any) -> None:
        """Take the provider's next event. Arguments and errors as for `Recorder.feed`."""
        async with self.lock:
            if self.writer.take(event):
                await self.run_sync(self.writer.flush)

    async def cancel(self) -> None:
        """End the response as `cancelled`; what has arrived is kept. Errors as for `Recorder.cancel`."""
        await end_recording(self, is_cancelled=True)

    async def _renew(self) -> float | None:
        async with self.lock:
            return await self.run_sync(self.writer.renew)


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Wait for work that must not be cancelled with the task, no matter how often the task is cancelled.

    Web frameworks cancel a task again at every await until it has ended. Returns the result of the work.
    """
    task, interruption = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as cancelled:
            interruption = cancelled
    try:
        result = task.result()
        if interruption is not None:
            raise interruption
        return result
    finally:
        del interruption  # which has this frame in its traceback: both would stay until garbage is collected


async def end_recording(
    recorder: AsyncRecorder, error: BaseException | None = None, *, is_cancelled: bool = False, is_asked: bool = True
) -> None:
    """Store the end of a response, or try again, even if the task is cancelled; errors as when a recorder is left."""

    async def end() -> None:
        writer = recorder.writer
        try:
            async with recorder.lock:
                await recorder.run_sync(writer.finish, error, is_cancelled=is_cancelled, is_asked=is_asked)
        finally:
            if recorder.heartbeat is not None:
                await recorder.heartbeat.end()

    await uninterrupted(end())


def recorder_on(
    face: AsyncStore | AsyncConversation, make: Callable[[Any], Recorder], undo: Callable[[Conversation], None]
) -> AsyncRecorder:
    """Return a recorder that a function makes of the blocking store or conversation behind this one.

    It is made when it is entered, in one transaction with its start: of what the function has stored, nothing stays
    where the response does not begin. A conversation is as it is now, and its other writers wait. The function is not
    interrupted; it is called again after a deadlock or a lost connection.

    `undo` takes back what it has stored, in the transaction in which the response ends with an error: nobody goes on
    with it in between. It is not called after `StreamWriter.keep_beginning`.
    """

    def start() -> StreamWriter:
        writer = started_at_once(face.sync.handle.transactions, lambda unit: make(_inside(face, unit)).writer)
        if writer.response is None:
            writer.undo = undone(writer, lambda handle: undo(Conversation(handle)))
        return writer

    return AsyncRecorder(start, face.call)


def begun_at(store: AsyncStore, moment: datetime) -> AsyncStore:
    """Return a store for what was begun at a moment: it writes nothing that names a user who was erased since then.

    What would be written raises `erasures.UserErased`; rows of the ledger are anonymous.
    """
    handle = replace(store.sync.handle, since=moment)
    found = object.__new__(AsyncStore)
    found.sync, found.call = from_handle(Store, handle), store.call
    return found


class UnitBatches:
    """Runs short units of work of one event loop, in one database; on SQLite, those that come meanwhile go together.

    They share a transaction and the switch to the worker thread. Each has its own result or error. On a server, each
    has a transaction of its own, and no more run at once than connections are kept open.
    """

    def __init__(self) -> None:
        self._batches: CallBatches[units.Work[Any]] | None = None
        self._connections = asyncio.Semaphore(POOLED)

    async def run(
        self, store: AsyncStore, function: Callable[Concatenate[Store, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Like `AsyncStore.run_in_transaction`; the function gets the blocking store in a unit of work."""
        place, call = store.sync.handle.transactions, store.call

        def run(unit: units.OwnTransactions) -> T:
            return function(from_handle(Store, replace(store.sync.handle, transactions=unit)), *args, **kwargs)

        if not (isinstance(place, transactions.EngineTransactions) and place.is_grouping):
            async with self._connections:
                return await call(place.run_unit, run, is_short=True)
        if self._batches is None:
            self._batches = CallBatches(lambda works: asyncio.create_task(call(groups.run_units, place, works)))
        result: T = await self._batches.submit(run)
        return result


def note_trace(conversation: Conversation, key: str) -> None:
    """Have a unit of work know by what was stored under a key whether a COMMIT that was not answered has happened."""
    transactions, ref = conversation.handle.transactions, conversation.handle.ref
    if isinstance(transactions, units.OwnTransactions):
        transactions.traces.append(lambda connection: idempotency.is_used(connection, ref, key))


def whole_recorder(conversation: AsyncConversation, format: str, **options: Any) -> AsyncRecorder:
    """Return a recorder for a stream that has come whole: it is stored at its end, in one transaction.

    Arguments as for `WholeStreamWriter.of`.
    """
    make = partial(WholeStreamWriter.of, conversation.sync.handle, format, **options)

    def start() -> StreamWriter:
        writer = make()
        writer.start()
        return writer

    return AsyncRecorder(start, conversation.call)


def is_unstored(recorder: AsyncRecorder) -> bool:
    """Return whether the database did not take the end of a response when its recorder was left."""
    writer: StreamWriter | None = getattr(recorder, "writer", None)  # None before it was entered
    return writer is not None and writer.unstored is not None


def _inside(face: AsyncStore | AsyncConversation, unit: units.UnitTransactions) -> Store | Conversation:
    """The blocking store or conversation behind this one, inside a transaction."""
    if isinstance(face, AsyncStore):
        return from_handle(Store, replace(face.sync.handle, transactions=unit))
    return Conversation(locked(face.sync.handle, unit))
