"""The ASGI application of the REST API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from threading import Lock
from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.applications import Starlette

from threadkeep.domain.jsontext import dumps
from threadkeep.domain.tools import ToolRegistry
from threadkeep.server import answers, limits, owners, provider_answers, request_state
from threadkeep.server.openai.application import closing_at_end
from threadkeep.server.rest import calls, chats, conversations, media, messages, reports, responses, routing, runs
from threadkeep.server.service import (
    MAX_BODY_BYTES,
    Instructions,
    Service,
    check_instructions,
    check_limit,
    check_settings,
)
from threadkeep.server.upstreams import Upstream
from threadkeep.store import loops
from threadkeep.store.aio import AsyncStore

_ROOMS: Final = (conversations, messages, calls, chats, runs, responses, reports, media)
ROUTES: Final = [route for room in _ROOMS for route in room.router.routes if isinstance(route, routing.BoundedRoute)]
_MAKING: Final = Lock()  # the OpenAPI document


def rest_app(
    store: AsyncStore,
    *,
    auth: owners.Authenticate | None = None,
    prefix: str = "/api",
    max_body_bytes: int = MAX_BODY_BYTES,
    max_bodies_bytes: int = request_state.MAX_BODIES_BYTES,
    upstreams: Mapping[str, Upstream] | None = None,
    max_answer_bytes: int = provider_answers.MAX_ANSWER_BYTES,
    max_answer_seconds: float = provider_answers.ANSWER_SECONDS,
    cors: Collection[str] = (),
    tools: ToolRegistry | None = None,
    needs_approval: loops.NeedsApproval = (),
    max_rounds: int = loops.MAX_ROUNDS,
    instructions: Instructions | None = None,
) -> Starlette:
    """Return an ASGI application with the REST API, for web and mobile applications.

    ``openapi.json`` under the prefix describes it. Other arguments, and how it is mounted, as for `app`.

    Args:
        store: the database; one with tenants if owners have tenants.
        auth: returns the `Owner` of a request, or None; may be a coroutine function. Without it, only
            programs on this machine are answered.
        prefix: the beginning of the paths.
        max_body_bytes: the largest body of a request, in bytes.
        max_bodies_bytes: how many bytes of bodies are under way at once, sent or received; an owner has three quarters
            of them at most. A `site` has one limit for all its applications instead.
        upstreams: who answers: from the name of a model, or a pattern such as ``claude-*``, to its upstream.
        max_answer_bytes: the longest answer of an upstream that is read, in bytes of its events; of a longer one, what
            came until then is stored as incomplete.
        max_answer_seconds: for how long it is read, whether its client waits or not; then, what came is stored as
            incomplete.
        cors: the origins, such as "https://chat.example", whose pages may call it from a browser; "*" for all.
        tools: functions that models call in all chats and threads of AG-UI, and that run here, within the answer:
            ``async`` ones in the event loop, others in threads. `tool_context` says for whom.
        needs_approval: the names of those that run only once they are approved, or a function of a call.
        max_rounds: how often the model is asked for a request at most, if its answers call such functions.
        instructions: what the model is told in all conversations that begin here: a text, or a function (which may be a
            coroutine function) that returns it, or None, for the `Owner` of the request that begins one and the
            client's own id of the chat, which is None where it has none. They are stored with the conversation, and
            clients can neither give nor change any, nor say messages of the roles "system" and "developer". None:
            clients give them.

    Raises:
        InvalidOption: an argument cannot be used.
    """
    check_settings(store, prefix, upstreams)
    check_instructions(instructions)
    check_limit("max_answer_bytes", max_answer_bytes)
    check_limit("max_bodies_bytes", max_bodies_bytes)
    check_limit("max_answer_seconds", max_answer_seconds, "seconds")
    service = Service(
        store, auth, max_body_bytes, upstreams=dict(upstreams or {}), max_answer_bytes=max_answer_bytes,
        max_answer_seconds=max_answer_seconds,
        tools=None if tools is None else loops.ToolLoop.of(tools, needs_approval, max_rounds),
        instructions=instructions,
    )  # fmt: skip

    def describe(request: Request) -> Response:
        """Answer with the OpenAPI document, which is no secret; in a thread, since it takes a while to be made."""
        base = request.scope.get("root_path", "") + prefix
        with _MAKING:  # the first clients may ask at the same time
            text = openapi_text()
        return answers.JsonAnswer(b'{"servers":%b,%b' % (dumps([{"url": base or "/"}]), text[1:]))

    made = FastAPI(
        openapi_url=None,
        redirect_slashes=False,
        routes=[route.at(prefix) for route in ROUTES],
        exception_handlers=dict(routing.ERROR_HANDLERS),
        lifespan=lambda _: closing_at_end(service),
        telemetry={"tracing": False, "metrics": False, "logs": False},  # which would have queries, and texts of errors
    )
    made.add_route(f"{prefix}/openapi.json", describe)
    made.state.service, made.state.stop, made.state.prefix = service, service.close, prefix
    made.state.is_busy = service.is_busy
    limits.bound(made, max_bodies_bytes, cors)
    return made


@cache
def openapi_text() -> bytes:
    """Return the OpenAPI document without its servers, as a JSON text."""
    return dumps(routing.openapi_document(ROUTES))
