"""The recorder as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route, WebSocketRoute

from threadkeep.errors import InvalidOption
from threadkeep.server.limits import BoundedHeads
from threadkeep.server.owners import Authenticate
from threadkeep.server.provider_answers import MAX_ANSWER_BYTES
from threadkeep.server.provider_connections import ProviderClient, ssl_context
from threadkeep.server.recorder.passing import LIMITS, TIMEOUT, Passing
from threadkeep.server.recorder.spool import LIMIT, Spool
from threadkeep.server.recorder.targets import RecordedUpstream
from threadkeep.server.recorder.worker import MAX_WAITING_BYTES, STOP_SECONDS, RecordingThread
from threadkeep.server.request_state import MAX_BODIES_BYTES, BoundedBodies
from threadkeep.server.service import check_limit, check_settings
from threadkeep.store.aio import AsyncStore


def recorder_app(
    store: AsyncStore,
    upstreams: Iterable[RecordedUpstream],
    *,
    auth: Authenticate | None = None,
    max_waiting_bytes: int = MAX_WAITING_BYTES,
    max_answer_bytes: int = MAX_ANSWER_BYTES,
    max_bodies_bytes: int = MAX_BODIES_BYTES,
    stop_seconds: float = STOP_SECONDS,
    spool: str | Path | None = None,
    spool_limit: int = LIMIT,
) -> Starlette:
    """Return an ASGI application that passes calls on to providers, and stores them on the way.

    The first segment of a path names the provider; with a single one, it can be left out. The lifespan of the
    application must be run: it begins to record, and ends when what still waits is stored.

    Args:
        store: the database. Nothing else may use this store: it belongs to the thread that records, and is closed when
            the lifespan ends.
        upstreams: the providers.
        auth: as for `app`. The request that it gets has the key in ``x-threadkeep-key``, or after ``/k/`` in the path,
            as its bearer token; what is for the provider is taken out.
        max_waiting_bytes: how much may wait to be stored. What exceeds it passes, is not recorded, and is counted.
        max_answer_bytes: how much of an answer is stored: a stream as far as it came until then, as incomplete; of
            others, that they were too long. The client gets all of it.
        max_bodies_bytes: as for `app`.
        stop_seconds: how long the end of the lifespan waits for what still waits.
        spool: a directory where calls are kept until they are stored, from before their answers end: also the calls of
            processes that were killed. Processes may share it.
        spool_limit: how many bytes a process may have there.

    Raises:
        InvalidOption: an argument cannot be used.
    """
    check_settings(store)
    check_limit("max_answer_bytes", max_answer_bytes)
    given = list(upstreams)
    table = {upstream.name: upstream for upstream in given}
    if not table or len(table) < len(given):
        problem = "names a provider twice." if table else "must name a provider."
        raise InvalidOption(problem, argument="upstreams")
    check_limit("spool_limit", spool_limit)
    check_limit("max_bodies_bytes", max_bodies_bytes)
    recording = RecordingThread(
        store, max_bytes=max_waiting_bytes, stop_seconds=stop_seconds, max_answer_bytes=max_answer_bytes,
        spool=None if spool is None else Spool(Path(spool), spool_limit),
    )  # fmt: skip
    client = ProviderClient(timeout=TIMEOUT, limits=LIMITS, verify=ssl_context())

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        recording.start()
        async with client:
            try:
                yield
            finally:
                await recording.stop()

    middleware = [Middleware(BoundedHeads), Middleware(BoundedBodies, most=max_bodies_bytes)]
    passing = Passing(table, auth, recording, client)
    routes = [Route("/{path:path}", passing), WebSocketRoute("/{path:path}", passing)]
    made = Starlette(routes=routes, middleware=middleware, lifespan=lifespan)
    made.state.health, made.state.collector, made.state.is_busy = recording.health, recording, recording.is_busy
    return made
