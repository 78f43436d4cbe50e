"""``threadkeep view``: the pages over a database, in a browser on this machine."""

from __future__ import annotations

import asyncio
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated

from typer import Option

from threadkeep.cli.options import OnlyUser, on_target
from threadkeep.cli.output import note
from threadkeep.cli.target import Target

if TYPE_CHECKING:
    import socket

    from starlette.applications import Starlette

    from threadkeep import AsyncStore

HOST = "127.0.0.1"
MAX_PORT = 65_535


@on_target("url", "tenant", "blobs")
def view(
    target: Target,
    *,
    user: OnlyUser = None,
    port: Annotated[int, Option("--port", metavar="N", min=0, max=MAX_PORT, help="Port; 0: any that is free.")] = 0,
    browser: Annotated[bool, Option("--browser/--no-browser", help="Whether to open a browser.")] = True,
) -> None:
    """Open the conversations and their usage in a browser.

    Nothing is changed. Only this machine is served, and only the first browser that opens the address that is printed,
    which contains a new token each time. Ctrl+C ends it.
    """
    from threadkeep import AsyncStore
    from threadkeep.cli.serving import listening_at
    from threadkeep.viewer import Owner, app

    token = token_urlsafe(24)
    with target.store(user=user):
        pass  # the database can be used, and has that tenant
    store = AsyncStore(target.url, tenants=target.tenant is not None, blobs=target.blob_store)
    application = app(store, token=token, token_once=True, owner=Owner(user_id=user, tenant=target.tenant))
    with listening_at(HOST, port) as (listening, url):
        address = f"{url}/?token={token}"
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
