"""The ASGI application: which handler answers which path."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route, WebSocketRoute

from threadkeep.errors import InvalidOption
from threadkeep.server import limits, objects, owners, problems, provider_answers, request_state, unstored
from threadkeep.server.openai import chat, conversations, creation, items, models, responses, sockets
from threadkeep.server.service import MAX_BODY_BYTES, MAX_ITEMS, Handler, Service, check_limit, check_settings, endpoint
from threadkeep.server.upstreams import Upstream
from threadkeep.store.aio import AsyncStore

# method, path, scope, handler
_ENDPOINTS: Final[tuple[tuple[str, str, owners.Scope, Handler], ...]] = (
    ("POST", "/conversations", "write", conversations.create),
    ("GET", "/conversations", "read", conversations.list_all),
    ("GET", "/conversations/{conversation_id}", "read", conversations.retrieve),
    ("POST", "/conversations/{conversation_id}", "write", conversations.update),
    ("DELETE", "/conversations/{conversation_id}", "write", conversations.delete),
    ("POST", "/conversations/{conversation_id}/items", "write", items.create),
    ("GET", "/conversations/{conversation_id}/items", "read", items.list_all),
    ("GET", "/conversations/{conversation_id}/items/{item_id}", "read", items.retrieve),
    ("DELETE", "/conversations/{conversation_id}/items/{item_id}", "write", items.delete),
    ("POST", "/responses", "write", creation.create),
    ("POST", "/responses/compact", "write", creation.compact),
    ("POST", "/responses/input_tokens", "write", creation.count_input),
    ("POST", "/chat/completions", "write", chat.create),
    ("GET", "/responses/{response_id}", "read", responses.retrieve),
    ("DELETE", "/responses/{response_id}", "write", responses.delete),
    ("POST", "/responses/{response_id}/cancel", "write", responses.cancel),
    ("GET", "/responses/{response_id}/input_items", "read", responses.list_input),
    ("GET", "/models", "read", models.list_all),
    ("GET", "/models/{model:path}", "read", models.retrieve),
)


@asynccontextmanager
async def closing_at_end(service: Service) -> AsyncIterator[None]:
    """End what goes on in the background when the server ends."""
    yield
    await service.close()
    await service.disconnect()


def app(
    store: AsyncStore,
    *,
    auth: owners.Authenticate | None = None,
    prefix: str = "/v1",
    max_body_bytes: int = MAX_BODY_BYTES,
    max_bodies_bytes: int = request_state.MAX_BODIES_BYTES,
    max_items: int = MAX_ITEMS,
    masked: Collection[str] = (),
    upstreams: Mapping[str, Upstream] | None = None,
    max_answer_bytes: int = provider_answers.MAX_ANSWER_BYTES,
    max_answer_seconds: float = provider_answers.ANSWER_SECONDS,
    store_false: unstored.StoreFalse = "ledger",
    cors: Collection[str] = (),
) -> Starlette:
    """Return an ASGI application that serves the conversations of a store to OpenAI's clients.

    Mount it in an application, or give it to a server. The application that opened the store closes it.

    Args:
        store: the database; one with tenants if owners have tenants.
        auth: returns the `Owner` of a request, or None; may be a coroutine function. What belongs to
            others does not exist for an owner. Without it, only programs on this machine are answered.
        prefix: the beginning of the paths: what clients have at the end of their `base_url`.
        max_body_bytes: the largest body of a request, in bytes.
        max_bodies_bytes: how many bytes of bodies are under way at once, sent or received; an owner has three quarters
            of them at most. A `site` has one limit for all its applications instead.
        max_items: how many items one request may bring.
        masked: values of `include`, such as "reasoning.encrypted_content": items lack what these stand for, unless a
            request asks for it.
        upstreams: who answers ``POST /responses``: from the name of a model, or a pattern such as ``claude-*``, to its
            upstream; the first pattern that fits applies. None: no upstream.
        max_answer_bytes: the longest answer of an upstream that is read, in bytes of its events; of a longer one, what
            came until then is stored as incomplete.
        max_answer_seconds: for how long it is read, whether its client waits or not; then, what came is stored as
            incomplete.
        store_false: what is kept of requests with `store: false`: their row in the usage ledger or, with "keep", all,
            as a conversation that is found by the session that a client names in a header or `prompt_cache_key`, or by
            its history.
        cors: the origins, such as "https://chat.example", whose pages may call it from a browser; "*" for all.

    Raises:
        InvalidOption: an argument cannot be used.
    """
    check_settings(store, prefix, upstreams)
    check_limit("max_answer_bytes", max_answer_bytes)
    check_limit("max_bodies_bytes", max_bodies_bytes)
    check_limit("max_answer_seconds", max_answer_seconds, "seconds")
    unstored.check_store_false(store_false)
    if unknown := set(masked) - objects.INCLUDED.keys():
        known = ", ".join(objects.INCLUDED)
        raise InvalidOption(f"cannot be {', '.join(sorted(unknown))}.", argument="masked", hint=f"Known are {known}.")
    routes = [
        Route(prefix + path, endpoint(scope, handler), methods=[method]) for method, path, scope, handler in _ENDPOINTS
    ]
    connecting = WebSocketRoute(f"{prefix}/responses", sockets.connect)
    service = Service(
        store, auth, max_body_bytes, max_items, frozenset(masked), dict(upstreams or {}), max_answer_bytes,
        max_answer_seconds, store_false=store_false,
    )  # fmt: skip
    handlers = {**problems.HANDLERS, HTTPException: models.answer_unserved}
    made = Starlette(
        routes=[*routes, connecting], exception_handlers=handlers, lifespan=lambda _: closing_at_end(service)
    )
    made.router.redirect_slashes = False
    made.state.service, made.state.stop, made.state.prefix = service, service.close, prefix
    made.state.is_busy = service.is_busy
    limits.bound(made, max_bodies_bytes, cors)
    return made
