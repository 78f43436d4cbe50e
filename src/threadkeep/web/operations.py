"""What those who run a server ask it: whether it lives, whether it can be used, and its figures."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadkeep.domain.jsontext import dumps
from threadkeep.errors import PoolExhausted, SchemaError, ThreadkeepError
from threadkeep.store.aio import AsyncStore, check_ready
from threadkeep.web.observing import Metrics
from threadkeep.web.owners import is_local
from threadkeep.web.refusals import refusal

logger = logging.getLogger(__name__)

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
        """Answer with the figures, to this machine or to whoever has the token."""
        if not self._may_read(request):
            return refusal(401, "The figures are for this machine, or need their token.", "invalid_api_key")
        return Response(self._metrics.text(), media_type=CONTENT_TYPE_LATEST)

    def _may_read(self, request: Request) -> bool:
        if self._token is not None:
            given = request.headers.get("authorization", "").encode()
            return hmac.compare_digest(given, f"Bearer {self._token}".encode())
        return is_local(request)


def _answer(status: int, body: Mapping[str, Any]) -> Response:
    return Response(dumps(body), status, {"cache-control": "no-store"}, "application/json")
