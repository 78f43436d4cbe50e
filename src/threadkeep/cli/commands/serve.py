"""Commands that serve a database: the APIs, the recorder, the viewer, and tools for MCP clients."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from typer import Option

from threadkeep.cli import serving
from threadkeep.cli.failures import about
from threadkeep.cli.options import OnlyUser, on_target
from threadkeep.cli.output import note
from threadkeep.cli.serving import MAX_PORT, MIB, SPOOL_MIB
from threadkeep.cli.target import Target
from threadkeep.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from starlette.applications import Starlette

    from threadkeep import AsyncStore
    from threadkeep.http import Upstream
    from threadkeep.server.keys import KeysOnceMade
    from threadkeep.server.owners import Owner


DEFAULT_PORT: Final = 4010
Upstreams = Annotated[
    list[str] | None,
    Option("--upstream", metavar="NAME=FORMAT@URL", help="Provider that answers; its key is in NAME_API_KEY."),
]
Models = Annotated[list[str] | None, Option("--model", metavar="PATTERN=NAME", help="Models that an upstream has.")]
Masks = Annotated[
    list[str] | None,
    Option("--mask", metavar="INCLUDE", help="What items lack unless a request includes it; can be repeated."),
]
KeepsUnstored = Annotated[
    Literal["ledger", "keep"], Option("--store-false", help="What is kept of requests with `store: false`.")
]
Rate = Annotated[
    int | None, Option("--rate", metavar="N", min=1, help="Requests a minute for each key; default: any number.")
]
Cors = Annotated[
    list[str] | None,
    Option("--cors", metavar="ORIGIN", help="Site whose pages may call it from a browser; can be repeated."),
]
MaxRequests = Annotated[int, Option("--max-requests", metavar="N", min=1, help="Requests in flight at once.")]
MaxBody = Annotated[int, Option("--max-body", metavar="MIB", min=1, help="Largest body of a request.")]
MaxBodies = Annotated[
    int, Option("--max-bodies", metavar="MIB", min=1, help="Bodies of requests and answers that are under way.")
]
MaxAnswer = Annotated[
    int, Option("--max-answer", metavar="MIB", min=1, help="Longest answer of a provider that is read and stored.")
]
MaxAnswerSeconds = Annotated[
    int, Option("--max-answer-seconds", metavar="N", min=1, help="How long an answer may take, also in the background.")
]
MaxSeconds = Annotated[
    int, Option("--max-seconds", metavar="N", min=1, help="How long a request may take, with its answer.")
]
Views = Annotated[
    list[str] | None,
    Option("--saved-view", metavar="NAME=ADDRESS", help="Link on pages to filters, as Failed=/?errors=1; repeatable."),
]
Log = Annotated[Literal["info", "warning", "error"], Option("--log", help="What is logged; info: every request.")]


@on_target("url", "tenant", "blobs")
def serve(
    target: Target,
    *,
    host: Annotated[str, Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option("--port", metavar="N", min=0, max=MAX_PORT, help="Port; 0: any.")] = DEFAULT_PORT,
    upstream: Upstreams = None,
    model: Models = None,
    mask: Masks = None,
    cors: Cors = None,
    store_false: KeepsUnstored = "ledger",
    prices: serving.OwnPrices = None,
    rate: Rate = None,
    max_requests: MaxRequests = 1_000,
    max_body: MaxBody = 16,
    max_bodies: MaxBodies = 256,
    max_answer: MaxAnswer = 64,
    max_answer_seconds: MaxAnswerSeconds = 3_600,
    max_seconds: MaxSeconds = 1_800,
    spool: serving.SpoolDirectory = None,
    spool_limit: serving.SpoolLimit = SPOOL_MIB,
    log: Log = "warning",
    workers: serving.Workers = None,
    saved_view: Views = None,
) -> None:
    """Serve OpenAI's API, the REST API and pages.

    OpenAI's Conversations and Responses are under /v1, and the first line says what `base_url` of clients must be; the
    REST API is under /api, and pages for browsers under /, with the extra viewer. If the database has keys
    (`threadkeep keys create`), every request needs one; otherwise, only this machine is served. Calls to /record/NAME/
    pass on to that upstream, and are recorded. A missing SQLite file is created. Ctrl+C ends it.
    """
    serving.leave_to_workers(host, port, workers)
    from threadkeep.http import Limits, app, rest_app, site

    store, body = serving.opened_store(target, prices), max_body * MIB
    auth, answering = serving.authentication(target, store, rate), _upstreams(upstream or (), model or ())
    both: Any = {
        "auth": auth, "prefix": "", "upstreams": answering, "max_body_bytes": body,
        "max_answer_bytes": max_answer * MIB, "max_answer_seconds": max_answer_seconds, "cors": cors or (),
    }  # fmt: skip
    openai = app(store, masked=mask or (), store_false=store_false, **both)
    apis = {"/v1": openai, "/api": rest_app(store, **both)}
    pages, token = _pages(target, store, auth, _saved_views(saved_view or ()))
    recorder = _recorder(
        upstream or (), serving.opened_store(target, prices), auth=auth, max_answer_bytes=max_answer * MIB,
        spool=spool, spool_limit=spool_limit * MIB,
    )  # fmt: skip
    limits = Limits(max(body, Limits().max_body_bytes), max_requests, max_seconds, max_bodies * MIB)
    application = site(apis | recorder | pages, store=store, limits=limits, metrics_token=serving.metrics_token())
    has_keys = serving.checked_keys(target, host)  # all else is checked: this creates a database
    with serving.listening_at(host, port) as (listening, url):
        serving.say(f"threadkeep: serving {target.shown_url} at {url}/v1")
        if pages:
            serving.say(f"threadkeep: pages for a browser at {url}/{'' if has_keys else f'?token={token}'}")
        _note_what_is_missing(answering.values())
        serving.run(application, listening, store, limits.max_body_bytes, log)


def _recorder(
    upstreams: Iterable[str], store: AsyncStore, *, spool: Path | None, **options: Any
) -> dict[str, Starlette]:
    """The recorder under its path, if there is a provider whose calls it can pass on."""
    from threadkeep.http import RecordedUpstream, recorder_app

    recorded = [RecordedUpstream.named(text) for text in upstreams]
    if spool is not None and not recorded:
        raise InvalidOption("needs an --upstream whose calls are recorded.", argument="--spool")
    return {"/record": recorder_app(store, recorded, spool=spool, **options)} if recorded else {}


def _saved_views(views: Iterable[str]) -> dict[str, str]:
    """Names and addresses of saved views."""
    pairs = [text.partition("=") for text in views]
    if wrong := next((name for name, equals, _ in pairs if not equals or not name.strip()), None):
        raise InvalidOption(f"must be NAME=ADDRESS, not {wrong!r}.", argument="--saved-view")
    found = {name.strip(): address.strip() for name, _, address in pairs}
    if found:
        from threadkeep.viewer.filters import SavedView

        with about("--saved-view"):
            for name, address in found.items():
                SavedView.of(name, address)
    return found


def _pages(
    target: Target, store: AsyncStore, keys: KeysOnceMade, views: dict[str, str]
) -> tuple[dict[str, Starlette], str]:
    """The viewer under its path, where its extra is installed; and a token.

    Once there are keys, it asks for one. Until then, a browser needs the token in the address.
    """
    try:
        from threadkeep.viewer import app
    except MissingExtra:
        return {}, ""
    token = serving.page_token()
    local = serving.local_caller(target)

    def saved(owner: Owner) -> dict[str, str]:  # they may name users, and are of the tenant that is served
        return views if (owner.tenant, owner.user_id) == (local.tenant, None) else {}

    return {"": app(store, keys=keys, owner=local, token=token, saved_views=saved)}, token


def _upstreams(upstreams: Iterable[str], models: Iterable[str]) -> dict[str, Upstream]:
    """The table of models: what is given with --model; without it, a single upstream has all of them."""
    from threadkeep.http import named_upstream

    known = {made.name: made for made in map(named_upstream, upstreams)}
    table = {}
    for text in models:
        pattern, equals, name = text.rpartition("=")
        if not equals or not pattern or name not in known:
            problem = f"must be PATTERN=NAME, with the name of an --upstream, not {text!r}."
            raise InvalidOption(problem, argument="--model")
        table[pattern] = known[name]
    if known and not table:
        if len(known) > 1:
            raise InvalidOption("must say which of several upstreams has which models.", argument="--model")
        [table["*"]] = known.values()
    return table


def _note_what_is_missing(upstreams: Collection[Upstream]) -> None:
    """Say whom no model answers, and which providers would be asked without a key, those on this machine aside."""
    from threadkeep.server.owners import is_loopback
    from threadkeep.server.upstreams import key_variable

    if not upstreams:
        serving.say("threadkeep: no --upstream is given, so no model answers")
    for one in {one.name: one for one in upstreams}.values():
        address, variable = urlsplit(one.base_url or ""), key_variable(one.name)
        if not os.environ.get(variable) and address.username is None and not is_loopback(address.hostname or ""):
            serving.say(f"threadkeep: {variable} is not set: {one.name} is asked without a key")


RECORDER_PORT = 4011


@on_target("url", "tenant", "blobs")
def record(
    target: Target,
    *,
    upstream: Annotated[
        list[str] | None,
        Option("--upstream", metavar="NAME=FORMAT@URL", help="Provider whose calls are recorded; can be repeated."),
    ] = None,
    host: Annotated[str, Option("--host", metavar="ADDRESS", help="Address to listen on, of this machine.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, Option("--port", metavar="N", min=0, max=MAX_PORT, help="Port; 0: any.")] = RECORDER_PORT,
    max_answer: Annotated[
        int, Option("--max-answer", metavar="MIB", min=1, help="How much of an answer is stored; all of it passes.")
    ] = 64,
    prices: serving.OwnPrices = None,
    spool: serving.SpoolDirectory = None,
    spool_limit: serving.SpoolLimit = SPOOL_MIB,
    workers: serving.Workers = None,
) -> None:
    """Pass calls on to providers, and store them on the way.

    The first lines say what the base URL of clients must be. If the database has keys (`threadkeep keys create`), every
    call needs one, in `x-threadkeep-key` or after /k/ in the base URL; otherwise, only this machine is served. A
    missing SQLite file is created. Ctrl+C ends it.
    """
    from threadkeep.http import Limits, RecordedUpstream, recorder_app, site
    from threadkeep.server.upstreams import shown_url

    if not upstream:
        raise InvalidOption(
            "is required, such as anthropic=messages@https://api.anthropic.com/v1.", argument="--upstream"
        )
    upstreams = [RecordedUpstream.named(text) for text in upstream]

    serving.leave_to_workers(host, port, workers)
    store = serving.opened_store(target)
    recorder = recorder_app(
        serving.opened_store(target, prices), upstreams, auth=serving.authentication(target, store),
        max_answer_bytes=max_answer * MIB, spool=spool, spool_limit=spool_limit * MIB,
    )  # fmt: skip
    limits = Limits()
    application = site({"": recorder}, store=store, limits=limits, metrics_token=serving.metrics_token())
    serving.checked_keys(target, host)
    with serving.listening_at(host, port) as (listening, url):
        for one in upstreams:
            serving.say(f"threadkeep: recording {shown_url(one.url)} in {target.shown_url} at {url}/{one.name}")
        serving.run(application, listening, store, limits.max_body_bytes)


HOST = "127.0.0.1"


@on_target("url", "tenant", "blobs")
def view(
    target: Target,
    *,
    user: OnlyUser = None,
    all_tenants: Annotated[
        bool, Option("--all-tenants", help="Show what all tenants used, in place of conversations.")
    ] = False,
    port: Annotated[int, Option("--port", metavar="N", min=0, max=MAX_PORT, help="Port; 0: any that is free.")] = 0,
    browser: Annotated[bool, Option("--browser/--no-browser", help="Whether to open a browser.")] = True,
    saved_view: Views = None,
) -> None:
    """Open the conversations and their usage in a browser.

    Nothing is changed. Only this machine is served, and only the first browser that opens the address that is printed,
    which contains a new token each time. Ctrl+C ends it.
    """
    from threadkeep import AsyncStore
    from threadkeep.viewer import Owner, app

    token = token_urlsafe(24)
    if all_tenants and (user or target.tenant) is not None:
        raise InvalidOption("--all-tenants is about all tenants: leave --tenant and --user out.")
    with target.store(user=user, all_tenants=all_tenants):
        pass  # the database can be used, and has that tenant
    store = AsyncStore(target.url, tenants=all_tenants or target.tenant is not None, blobs=target.blob_store)
    owner = Owner(user_id=user, tenant=target.tenant)
    if all_tenants:
        owner = Owner(scopes=frozenset({"usage", "tenants"}))
    views = _saved_views(saved_view or ())
    application = app(store, token=token, token_once=True, owner=owner, saved_views=lambda _: views)
    with serving.listening_at(HOST, port) as (listening, url):
        address = f"{url}/{'tenants' if all_tenants else ''}?token={token}"
        note(f"threadkeep: {target.shown_url} at {address}")
        asyncio.run(_served(application, listening, store, address if browser else None))


async def _served(application: Starlette, listening: socket.socket, store: AsyncStore, address: str | None) -> None:
    """Answer requests until interrupted; with an address, open it in a browser first."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=2))
    opening = None if address is None else asyncio.create_task(asyncio.to_thread(_open, address))
    try:
        await server.serve(sockets=[listening])
    finally:
        if opening is not None:
            await opening
        await store.close()


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        note("threadkeep: no browser was found; open the address yourself.")


@on_target("url", "tenant", "blobs")
def mcp(target: Target, *, user: OnlyUser = None) -> None:
    """Let an MCP client read and search conversations.

    It is started by the client, which it talks to on stdin and stdout. Nothing is changed.
    """
    from threadkeep.contrib.mcp import mcp_server

    with target.store(user=user) as store:
        note(f"threadkeep: {target.shown_url} for an MCP client on stdin")
        mcp_server(store).run("stdio")
