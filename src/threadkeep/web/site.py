"""One server of several faces: each is an application of its own, under a path of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from threadkeep.store.aio import AsyncStore
from threadkeep.web.limits import BoundedHeads, Limited, Limits
from threadkeep.web.observing import Metrics, Observed
from threadkeep.web.operations import Operations
from threadkeep.web.refusals import refusal
from threadkeep.web.tracing import RequestIds

_CODES: Final = {404: "not_found", 405: "method_not_allowed", 413: "request_too_large"}


def site(
    faces: Mapping[str, Starlette],
    *,
    store: AsyncStore | None = None,
    limits: Limits | None = None,
    metrics_token: str | None = None,
) -> Starlette:
    """Return the application that has each of the applications under its path; the lifespan runs all of theirs.

    Beside them it has /healthz, /readyz and /metrics. Requests get an id, are logged and counted, and limited.

    A face may have, in its `state`: `health`, a function that returns what /healthz tells of it; `collector`, a
    collector of prometheus-client, whose figures /metrics has; and `stop`, a coroutine function that ends what goes on
    in it. `application.state.stop` of the site calls those of all faces: a server awaits it once it accepts no requests
    any more, so that streams end as they should.

    Args:
        faces: from a path, such as "/v1", to its application; "" is asked where no other path fits.
        store: the database, which /readyz asks.
        limits: what the server does at most.
        metrics_token: with which other machines may read the figures; None: only this machine may.
    """
    metrics = Metrics()
    operations = Operations(faces, store, metrics, metrics_token)
    for face in faces.values():
        if hasattr(face.state, "collector"):
            metrics.registry.register(face.state.collector)

    async def stop() -> None:
        operations.is_stopping = True
        await asyncio.gather(*(face.state.stop() for face in faces.values() if hasattr(face.state, "stop")))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for face in faces.values():
                await stack.enter_async_context(face.router.lifespan_context(face))
            yield
            await stop()

    paths = sorted(faces, key=len, reverse=True)
    middleware = [
        Middleware(RequestIds),
        Middleware(Observed, metrics=metrics, templates=_templates(faces, operations)),
        Middleware(BoundedHeads),
        Middleware(Limited, limits=limits or Limits(), exempt=[route.path for route in operations.routes]),
    ]
    routes = [*operations.routes, *(Mount(path, faces[path]) for path in paths)]
    handlers = {HTTPException: _refused}
    made = Starlette(routes=routes, middleware=middleware, lifespan=lifespan, exception_handlers=handlers)
    made.state.stop = stop
    return made


async def _refused(_request: Request, error: Exception) -> Response:
    """Answer what no face has, or did not answer itself."""
    if not isinstance(error, HTTPException):
        raise error
    found = refusal(error.status_code, f"{error.detail}.", _CODES.get(error.status_code, "invalid_request"))
    found.headers.update(error.headers or {})
    return found


def _templates(faces: Mapping[str, Starlette], operations: Operations) -> dict[Callable[..., Any], str]:
    """The path of each endpoint's route, as it is written: with the names of its parameters."""
    found = {route.endpoint: route.path for route in operations.routes}
    for path, face in faces.items():
        found |= {route.endpoint: path + route.path for route in face.routes if isinstance(route, Route)}
    return found
