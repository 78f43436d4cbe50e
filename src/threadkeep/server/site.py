"""One server of several faces: each is an application of its own, under a path of its own."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from threadkeep.domain.jsontext import dumps
from threadkeep.errors import PoolExhausted, SchemaError, ThreadkeepError
from threadkeep.server import answers, owners, request_state
from threadkeep.server.limits import BoundedHeads, Limited, Limits
from threadkeep.server.observing import Metrics, Observed, Templates
from threadkeep.store.aio import AsyncStore, check_ready

logger = logging.getLogger(__name__)

_CODES: Final = {404: "not_found", 405: "method_not_allowed", 413: "request_too_large"}


def site(
    faces: Mapping[str, Starlette],
    *,
    store: AsyncStore | None = None,
    limits: Limits | None = None,
    metrics_token: str | None = None,
) -> Starlette:
    """Return the application that has each of the applications under its path; the lifespan runs all of theirs.

    It also has /healthz, /readyz and /metrics. Requests get an id, are logged and counted, and limited.

    A face may have, in its `state`: `health`, a function that returns what /healthz tells of it; `collector`, a
    collector of prometheus-client, whose figures /metrics has; and `stop`, a coroutine function that ends what goes on
    in it; and `is_busy`, a function that returns whether anything does. `application.state.stop` of the site calls the
    first for all faces: a server awaits it once it accepts no requests any more, so that streams end as they should.
    `application.state.is_busy` asks all of them, for a server that waits before.

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

    limits, paths = limits or Limits(), sorted(faces, key=len, reverse=True)
    middleware = [
        Middleware(request_state.RequestIds),
        Middleware(Observed, metrics=metrics, templates=_templates(faces, operations)),
        Middleware(answers.OriginsOfFaces, faces={path: faces[path] for path in paths}),
        Middleware(BoundedHeads),
        Middleware(request_state.BoundedBodies, most=limits.max_bodies_bytes),
        Middleware(Limited, limits=limits, exempt=[route.path for route in operations.routes]),
    ]
    routes = [*operations.routes, *(Mount(path, faces[path]) for path in paths)]
    handlers = {HTTPException: _refused}
    made = Starlette(routes=routes, middleware=middleware, lifespan=lifespan, exception_handlers=handlers)
    made.state.stop, made.state.metrics = stop, metrics
    made.state.is_busy = lambda: any(face.state.is_busy() for face in faces.values() if hasattr(face.state, "is_busy"))
    return made


async def _refused(_request: Request, error: Exception) -> Response:
    """Answer what no face has, or did not answer itself."""
    if not isinstance(error, HTTPException):
        raise error
    found = answers.refusal(error.status_code, f"{error.detail}.", _CODES.get(error.status_code, "invalid_request"))
    found.headers.update(error.headers or {})
    return found


def _templates(faces: Mapping[str, Starlette], operations: Operations) -> Templates:
    """The path of each endpoint's route, as it is written: with the names of its parameters."""
    found: dict[tuple[str, Callable[..., Any]], str] = {("", route.endpoint): route.path for route in operations.routes}
    for path, face in faces.items():
        found |= {(path, route.endpoint): path + route.path for route in face.routes if isinstance(route, Route)}
    return found


# /healthz, /readyz and /metrics

READY_SECONDS: Final = 5.0  # in which the database must answer


class Operations:
    """The endpoints /healthz, /readyz and /metrics.

    Args:
        faces: the applications of the server; `state.health`, where one has it, is a function that returns what
            /healthz tells of it.
        store: the database, which /readyz asks; None for none.
        metrics: the figures.
        metrics_token: with which other machines may read the figures; None: only this machine may.
    """

    def __init__(
        self, faces: Mapping[str, Starlette], store: AsyncStore | None, metrics: Metrics, metrics_token: str | None
    ) -> None:
        self._faces, self._store, self._metrics, self._token = faces, store, metrics, metrics_token
        self.is_stopping = False
        self.routes: Final = [
            Route("/healthz", self.health), Route("/readyz", self.ready), Route("/metrics", self.metrics)
        ]  # fmt: skip

    async def health(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """Answer that the process runs, with what its faces tell."""
        told = {path: face.state.health() for path, face in self._faces.items() if hasattr(face.state, "health")}
        return _answer(200, {"status": "ok", **told})

    async def ready(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """Answer whether requests can be answered: with 503 while the database cannot be used, or the server stops."""
        problem = "stopping" if self.is_stopping else await self._problem()
        if problem is not None:
            return _answer(503, {"status": "unavailable", "problem": problem})
        return _answer(200, {"status": "ok"})

    async def _problem(self) -> str | None:
        if self._store is None:
            return None
        try:
            async with asyncio.timeout(READY_SECONDS):
                await check_ready(self._store)
        except SchemaError:
            return "schema"
        except (SQLAlchemyError, ThreadkeepError, TimeoutError, OSError) as error:
            logger.warning("The database cannot be used.", exc_info=error)
            return "connections" if isinstance(error, PoolExhausted) else "database"
        return None

    async def metrics(self, request: Request) -> Response:
        """Answer with the figures, to this machine or to the holder of the token."""
        if not self._may_read(request):
            return answers.refusal(401, "The figures are for this machine, or need their token.", "invalid_api_key")
        return Response(await self._metrics.of_all(), media_type=CONTENT_TYPE_LATEST)

    def _may_read(self, request: Request) -> bool:
        if self._token is not None:
            given = request.headers.get("authorization", "").encode()
            return hmac.compare_digest(given, f"Bearer {self._token}".encode())
        return owners.is_local(request)


def _answer(status: int, body: Mapping[str, Any]) -> Response:
    return Response(dumps(body), status, {"cache-control": "no-store"}, "application/json")
