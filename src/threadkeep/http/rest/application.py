"""The ASGI application of the REST API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import threadkeep
from threadkeep.http.answers import JsonAnswer
from threadkeep.http.openai.application import closing_at_end
from threadkeep.http.problems import HANDLERS
from threadkeep.http.provider_answers import MAX_ANSWER_BYTES
from threadkeep.http.rest.openapi import openapi_document
from threadkeep.http.rest.operations import OPERATIONS
from threadkeep.http.service import MAX_BODY_BYTES, Service, check_limit, check_settings, endpoint
from threadkeep.http.upstreams import Upstream
from threadkeep.store.aio import AsyncStore
from threadkeep.web.cors import allow_origins
from threadkeep.web.limits import BoundedHeads
from threadkeep.web.owners import Authenticate
from threadkeep.web.tracing import RequestIds


def rest_app(
    store: AsyncStore,
    *,
    auth: Authenticate | None = None,
    prefix: str = "/api",
    max_body_bytes: int = MAX_BODY_BYTES,
    upstreams: Mapping[str, Upstream] | None = None,
    max_answer_bytes: int = MAX_ANSWER_BYTES,
    cors: Collection[str] = (),
) -> Starlette:
    """Return an ASGI application with the REST API, for web and mobile applications.

    ``openapi.json`` under the prefix describes it. Other arguments, and how it is mounted, as for `app`.

    Args:
        store: the database; one with tenants if owners have tenants.
        auth: returns the `Owner` of a request, or None for nobody; may be a coroutine function. Without it, only
            programs on this machine are answered.
        prefix: the beginning of the paths.
        max_body_bytes: the largest body of a request, in bytes.
        upstreams: who answers: from the name of a model, or a pattern such as ``claude-*``, to its upstream.
        max_answer_bytes: the longest answer of an upstream that is read, in bytes of its events; of a longer one, what
            came until then is stored as incomplete.
        cors: the origins, such as "https://chat.example", whose pages may call it from a browser; "*" for all.

    Raises:
        InvalidOption: an argument cannot be used.
    """
    check_settings(store, prefix)
    check_limit("max_answer_bytes", max_answer_bytes)
    service = Service(store, auth, max_body_bytes, upstreams=dict(upstreams or {}), max_answer_bytes=max_answer_bytes)
    document: dict[str, Any] = openapi_document(OPERATIONS, threadkeep.__version__)

    async def describe(request: Request) -> Response:
        """Answer with the OpenAPI document, which is no secret."""
        base = request.scope.get("root_path", "") + prefix
        return JsonAnswer({**document, "servers": [{"url": base or "/"}]})

    routes = [Route(f"{prefix}/openapi.json", describe)]
    routes += [Route(prefix + one.path, endpoint(one.scope, one.handler), methods=[one.method]) for one in OPERATIONS]
    made = Starlette(routes=routes, exception_handlers=dict(HANDLERS), lifespan=lambda _: closing_at_end(service))
    made.state.service, made.state.stop = service, service.close
    made.add_middleware(BoundedHeads)
    made.add_middleware(RequestIds)
    allow_origins(made, cors)
    return made
