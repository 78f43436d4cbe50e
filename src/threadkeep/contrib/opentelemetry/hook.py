"""The completion hook: takes what any instrumented SDK calls, and stores it in a thread of its own.

The call waits for nothing but the JSON text of what was said. What exceeds the limits is dropped, and counted.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from threading import Condition, Lock, Thread
from typing import Any, Final
from weakref import WeakSet

from opentelemetry._logs import LogRecord
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.trace import Span

from threadkeep.blobs import BlobStore
from threadkeep.contrib.opentelemetry import names, storing
from threadkeep.contrib.opentelemetry.completions import Completion, attributes_of, completion_of
from threadkeep.domain.printing import redact
from threadkeep.store.media.rows import blob_store_at
from threadkeep.store.store import Store

logger = logging.getLogger(__name__)

URL_VARIABLE: Final = "THREADKEEP_URL"
BLOBS_VARIABLE: Final = "THREADKEEP_BLOBS"
TENANT_VARIABLE: Final = "THREADKEEP_TENANT"
USER_VARIABLE: Final = "THREADKEEP_USER"
DEFAULT_URL: Final = "sqlite:///threadkeep.db"
MAX_CALLS: Final = 2_000
MAX_BYTES: Final = 64 * 1024 * 1024
STOP_SECONDS: Final = 10.0
STORED, DUPLICATE, FAILED, DROPPED, UNKNOWN = RESULTS = "stored", "duplicate", "failed", "dropped", "unknown"
FORK_SECONDS: Final = 5.0  # that a fork waits at most for a call that is being stored
_LOG_SECONDS: Final = 10.0  # between two lines in the log about the same


class ThreadkeepCompletionHook:
    """A completion hook of OpenTelemetry that stores the calls of models as conversations.

    Each call goes on with the conversation that `gen_ai.conversation.id` names (its `external_id` here), or else with
    the one whose history it has; otherwise it begins a new one. It never raises, and never waits for the database.

    Args:
        url: the database, as for `Store`; it is opened by the first call.
        tenant: the tenant, which must exist; None: the database has none.
        user_id: whose calls those are that name no user, as the attribute or baggage `user.id` does.
        blobs: where media are kept outside of the database, as for `Store`.
        max_calls, max_bytes: how many calls, and how much JSON text, may wait to be stored.
        stop_seconds: how long the end of the process waits for what still waits.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        tenant: str | None = None,
        user_id: str | None = None,
        blobs: BlobStore | None = None,
        max_calls: int = MAX_CALLS,
        max_bytes: int = MAX_BYTES,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        self._url, self._tenant, self._user_id, self._blobs = url, tenant, user_id, blobs
        self._max_calls, self._max_bytes, self._stop_seconds = max_calls, max_bytes, stop_seconds
        self._begin()
        _hooks.add(self)
        atexit.register(self.close)

    def _begin(self) -> None:
        self._counts: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
        self._waiting: deque[Completion] = deque()
        self._bytes = 0  # of what waits and of what is being stored
        self._is_closed = self._is_busy = False
        self._changed = Condition()  # its lock may be taken again by what runs meanwhile in the same thread
        self._logged: dict[str, float] = {}
        self._thread: Thread | None = None
        self._working = Lock()  # held while a call is being stored
        self._is_paused = False
        self._store: Store | None = None
        self._root: Store | None = None

    # The thread of the call

    def on_completion(
        self,
        *,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        system_instruction: Sequence[Any],
        tool_definitions: Sequence[Any] | None = None,
        span: Span | None = None,
        log_record: LogRecord | None = None,
    ) -> None:
        """Take a call that has just ended; agents and workflows show in the calls that they make."""
        try:
            attributes = attributes_of(span, log_record)
            operation = attributes.get(names.OPERATION)
            if operation is None:
                self._count(UNKNOWN, "calls are not stored: their spans are not recorded, and they have no events")
            elif operation in names.INFERENCES and self._has_room():
                content = {
                    "inputs": inputs, "outputs": outputs, "instructions": system_instruction,
                    "tools": tool_definitions or (),
                }  # fmt: skip
                self._put(completion_of(content, attributes, span, self._user_id))
        except Exception as error:  # noqa: BLE001 - whatever it is, the call goes on
            self._count(FAILED, f"calls are not stored: they cannot be read ({_kind(error)})")

    def counts(self) -> Mapping[str, int]:
        """Return how many calls were stored, were stored before, failed, were dropped, or said too little."""
        with self._changed:
            return dict(self._counts)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all calls so far are stored; return whether they are, after so many seconds at most."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._waiting or self._is_busy), timeout)

    def close(self) -> None:
        """Store what waits, within the limit of time; what is left then is dropped, and calls from now on are."""
        atexit.unregister(self.close)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is None:
            return
        self._thread.join(self._stop_seconds)
        with self._changed:
            left = len(self._waiting) + self._is_busy
            self._waiting.clear()
            self._counts[DROPPED] += left
        if left:
            logger.warning("%d calls are not stored: the process ends.", left)

    def _has_room(self, size: int = 0) -> bool:
        with self._changed:
            is_full = self._is_closed or len(self._waiting) >= self._max_calls or self._bytes + size > self._max_bytes
        if is_full:
            self._count(DROPPED, "calls are not stored: too many of them wait")
        return not is_full

    def _put(self, completion: Completion) -> None:
        if not self._has_room(len(completion.content)):
            return
        with self._changed:
            self._waiting.append(completion)
            self._bytes += len(completion.content)
            if self._thread is None:
                self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        self._thread = Thread(target=self._run, name="threadkeep-otel", daemon=True)
        self._thread.start()
        processes = sys.modules.get("multiprocessing.util")
        if processes is not None and sys.modules["multiprocessing.process"].parent_process() is not None:
            processes.Finalize(None, self.close, exitpriority=0)  # such a child does not do what is to be done at exit

    # Forks: SQLite must not be at work in another thread meanwhile, and what waits is stored by the parent

    def _pause(self) -> None:
        self._is_paused = self._working.acquire(timeout=FORK_SECONDS)

    def _resume(self) -> None:
        if self._is_paused:
            self._working.release()

    # The thread that stores

    def _run(self) -> None:
        with suppress_instrumentation():  # what is done here is no work of the application
            while (completion := self._next()) is not None:
                with self._working:
                    self._keep(completion)
                with self._changed:
                    self._bytes -= len(completion.content)
                    self._is_busy = False
                    self._changed.notify_all()
            if self._root is not None:
                with self._working:
                    self._root.close()

    def _next(self) -> Completion | None:
        """Wait for a call; None when there are no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if not self._waiting:
                return None
            self._is_busy = True
            return self._waiting.popleft()

    def _keep(self, completion: Completion) -> None:
        try:
            store = self._open()
        except Exception as error:  # noqa: BLE001 - the next call tries again
            self._count(FAILED, f"calls are not stored: {redact(f'{_kind(error)}: {error}')}")
            return
        try:
            result = storing.store_completion(store, completion)
        except Exception as error:  # noqa: BLE001 - whatever it is; its message may quote what was said
            self._count(FAILED, f"a call is not stored ({_kind(error)})")
        else:
            with self._changed:
                self._counts[result] += 1

    def _open(self) -> Store:
        """The store, which is opened once."""
        if self._store is None:
            root = self._root or Store(self._url, tenants=self._tenant is not None, blobs=self._blobs)
            self._root = root
            self._store = root if self._tenant is None else root.for_tenant(self._tenant)
        return self._store

    # Both

    def _count(self, name: str, problem: str) -> None:
        """Count a problem, and log it unless that has just been done."""
        with self._changed:
            self._counts[name] += 1
            count, now = self._counts[name], time.monotonic()
            is_new = now - self._logged.get(name, float("-inf")) >= _LOG_SECONDS
            if is_new:
                self._logged[name] = now
        if is_new:
            logger.warning("OpenTelemetry: %s (%d so far).", problem, count)


def _kind(error: BaseException) -> str:
    """The class of an error, with the class of the driver's error inside."""
    inner = getattr(error, "orig", None)
    return type(error).__name__ if inner is None else f"{type(error).__name__} of {type(inner).__name__}"


_hooks: Final[WeakSet[ThreadkeepCompletionHook]] = WeakSet()


def _at_fork(method: Callable[[ThreadkeepCompletionHook], None]) -> Callable[[], None]:
    def call() -> None:
        for hook in list(_hooks):
            method(hook)

    return call


if hasattr(os, "register_at_fork"):  # where processes can be forked
    os.register_at_fork(
        before=_at_fork(ThreadkeepCompletionHook._pause),  # noqa: SLF001 - a part of the class
        after_in_parent=_at_fork(ThreadkeepCompletionHook._resume),  # noqa: SLF001
        after_in_child=_at_fork(ThreadkeepCompletionHook._begin),  # noqa: SLF001
    )


@cache
def completion_hook() -> ThreadkeepCompletionHook:
    """Return the hook of this process, as the environment says: the entry point, which each instrumentation loads.

    `THREADKEEP_URL` and `THREADKEEP_BLOBS` are as for the command line, `THREADKEEP_TENANT` names a tenant, and
    `THREADKEEP_USER` the user of calls that name none.
    """
    place = os.environ.get(BLOBS_VARIABLE)
    return ThreadkeepCompletionHook(
        os.environ.get(URL_VARIABLE) or DEFAULT_URL,
        tenant=os.environ.get(TENANT_VARIABLE) or None,
        user_id=os.environ.get(USER_VARIABLE) or None,
        blobs=blob_store_at(place) if place else None,
    )
