"""What the commands that serve have in common: who may call, where they listen, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated, Final

from typer import Exit, Option

from threadkeep.cli import workers
from threadkeep.cli.output import note
from threadkeep.cli.target import Target
from threadkeep.errors import InvalidOption, MissingExtra, shown

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from threadkeep import AsyncStore, Price
    from threadkeep.server.connections import Server
    from threadkeep.server.keys import KeysOnceMade
    from threadkeep.server.owners import Owner

DEFAULT_TENANT: Final = "default"  # that of databases without tenants
MAX_PORT: Final = 65_535
MIB: Final = 1024 * 1024  # bytes in the unit of limits
SPOOL_MIB: Final = 1024
OwnPrices = Annotated[
    Path | None, Option("--prices", metavar="FILE", help="Prices of your own: a JSON list of model, input, output …")
]
SpoolDirectory = Annotated[
    Path | None,
    Option("--spool", metavar="DIR", help="Keep recorded calls there until they are stored, kills included."),
]
SpoolLimit = Annotated[
    int, Option("--spool-limit", metavar="MIB", min=1, help="How much each process may have in the spool.")
]
Workers = Annotated[
    int | None, Option("--workers", metavar="N", min=1, help="Processes that serve at the port; SIGHUP replaces them.")
]
THREADS: Final = 64  # for calls of a store on SQLite, and files
STOP_SECONDS: Final = 30  # for which requests in flight may go on when the server is told to end


def checked_keys(target: Target, host: str) -> bool:
    """Whether the database has keys, once it can be used; refuse to serve other machines without."""
    from threadkeep.server.owners import is_loopback

    has_keys = (is_loopback(host) or not target.is_missing) and _has_keys(target)
    if not has_keys and not is_loopback(host):
        problem = (
            f"{host!r} is reached by other machines, and the database has no keys: anybody could read everything. "
            "Make keys with `threadkeep keys create`, or give an address that only this machine reaches: 127.0.0.1."
        )
        raise InvalidOption(problem, argument="--host")
    return has_keys


def _has_keys(target: Target) -> bool:
    """Whether the database has keys; it is created if it is missing."""
    from sqlalchemy.exc import SQLAlchemyError

    with target.store(create=True):
        pass  # it can be used, and has that tenant
    with target.store(all_tenants=target.tenant is None) as store:
        if target.tenant is None:
            # Make the tenant of databases without tenants, which is served as long as no key names another
            with suppress(InvalidOption, SQLAlchemyError):  # it is there, or the database can only be read
                store.create_tenant(DEFAULT_TENANT)
        return store.keys.exist()


def local_caller(target: Target) -> Owner:
    """The owner of requests from this machine while there are no keys."""
    from threadkeep.server.owners import Owner

    return Owner(tenant=target.tenant or DEFAULT_TENANT)


def authentication(target: Target, store: AsyncStore, rate: int | None = None) -> KeysOnceMade:
    """Authentication: by key, or while there are no keys, any request from this machine."""
    from threadkeep.server.keys import KeysOnceMade
    from threadkeep.server.owners import local_owner
    from threadkeep.server.quotas import Rates, SharedRates

    place = workers.inherited()
    rates = None if rate is None else Rates(rate) if place is None else SharedRates(rate, Path(place.folder, "rates"))
    return KeysOnceMade(store, local_owner(local_caller(target)), tenant=target.tenant, rates=rates)


def opened_store(target: Target, prices: Path | None = None) -> AsyncStore:
    """Return a store for a server: of all tenants, as keys say which; `prices` is a file with prices of your own."""
    from threadkeep import AsyncStore

    own = None if prices is None else own_prices(prices)
    with target.checked_parameters():
        return AsyncStore(target.url, tenants=True, blobs=target.blob_store, prices=own)


def own_prices(file: Path) -> list[Price]:
    """Read prices from a file: a JSON list of objects with the fields of `Price`, amounts as texts or numbers.

    Raises:
        InvalidOption: it cannot be read, or has something else; the message says where.
    """
    from threadkeep import Price

    names = {field.name for field in fields(Price)}
    try:
        given = json.loads(file.read_bytes(), parse_float=str)
    except (OSError, ValueError) as error:
        raise InvalidOption(f"cannot be read: {error}.", argument="--prices") from error
    if not isinstance(given, list):
        raise InvalidOption("must have a list of prices.", argument="--prices")
    found = []
    for number, one in enumerate(given):
        if not isinstance(one, dict) or one.keys() - names or not {"model", "input", "output"} <= one.keys():
            keys = ", ".join(sorted(names))
            problem = f"must have objects with model, input and output; entry {number} is {shown(one)}."
            raise InvalidOption(problem, argument="--prices", hint=f"All keys are {keys}.")
        try:
            found.append(Price(**one))
        except InvalidOption as error:
            raise InvalidOption(f"has an entry {number} whose {error}", argument="--prices") from error
    return found


def metrics_token() -> str | None:
    """Return with which token other machines may read the figures; None: they may not."""
    return os.environ.get("THREADKEEP_METRICS_TOKEN") or None


@contextmanager
def listening_at(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """Provide a socket that listens, and its URL; a worker has it from its supervisor."""
    place, family = workers.inherited(), socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, port), family=family) if place is None else socket.socket(fileno=place.listening)
    ) as listening:
        # connections inherit it: asyncio does not set it for these, and an event would wait for what came before
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address = f"[{host}]" if ":" in host else host
        yield listening, f"http://{address}:{listening.getsockname()[1]}"


def leave_to_workers(host: str, port: int, count: int | None) -> None:
    """Where several processes are to serve, and this one is none of them, let them, and exit when they have ended.

    They check everything, and this one loads no more than it needs to supervise them.

    Raises:
        InvalidOption: this system cannot hand on sockets.
    """
    if count is None or workers.inherited() is not None:
        return
    if not hasattr(signal, "SIGHUP"):
        raise InvalidOption("needs a Unix, whose processes can share a socket.", argument="--workers")
    try:
        from threadkeep.server.observing import log_as_json
    except ImportError as error:
        raise MissingExtra("http", "The server") from error

    log_as_json()
    with listening_at(host, port) as (listening, _):
        raise Exit(workers.supervise(listening, count))


def say(text: str) -> None:
    """Print where this process serves, unless another worker does."""
    place = workers.inherited()
    if place is None or place.speaks:
        note(text)


def page_token() -> str:
    """The token for the pages of the viewer, which all workers share."""
    place = workers.inherited()
    return token_urlsafe(24) if place is None else place.token


def run(
    application: Starlette, listening: socket.socket, store: AsyncStore, message: int = 64 * MIB,
    log: str = "warning",
) -> None:  # fmt: skip
    """Serve a site until it is interrupted; then close the store. `message`: the bytes of a message of a WebSocket."""
    from uvicorn.loops.auto import auto_loop_factory

    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
        runner.run(_served(application, listening, store, message, log))


async def _served(
    application: Starlette, listening: socket.socket, store: AsyncStore, message: int, log: str
) -> None:  # fmt: skip
    import logging
    from concurrent.futures import ThreadPoolExecutor

    import uvicorn

    from threadkeep.server import connections
    from threadkeep.server.observing import log_as_json

    log_as_json(getattr(logging, log.upper()))
    # on SQLite, what waits in these is committed together
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    # without its own configuration, uvicorn logs as everything else
    # its headers would stand beside those of providers, whose answers the recorder passes on
    patience = connections.Patience(connections.max_connections())
    config = uvicorn.Config(
        application, http=connections.protocol(patience), ws=connections.socket_protocol(patience),
        ws_max_size=message, ws_per_message_deflate=False, log_config=None, access_log=False,
        timeout_graceful_shutdown=STOP_SECONDS, server_header=False, date_header=False,
    )  # fmt: skip
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.WARNING)
    server = connections.Server(config)
    try:
        async with _as_worker(server, application):
            # several workers share what comes, and the one that is least busy takes the next
            at_once = 1 if workers.inherited() else connections.ACCEPTED_AT_ONCE
            await server.serve(sockets=[listening, *(listening.dup() for _ in range(1, at_once))])
    finally:
        await store.close()


@asynccontextmanager
async def _as_worker(server: Server, application: Starlette) -> AsyncIterator[None]:
    """While a server is one of several processes: share its figures, and say when it serves.

    SIGHUP ends it without ending answers; the end of the supervisor ends it, too.
    """
    place = workers.inherited()
    if place is None:
        yield
        return
    from threadkeep.server.observing import SharedFigures

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, server.drain)

    async def tell() -> None:
        await server.serves.wait()
        with workers.say_ready(place) as life:
            while await loop.sock_recv(life, 1):
                pass
        server.end()

    async with SharedFigures(application.state.metrics, Path(place.folder), place.number):
        telling = asyncio.create_task(tell())
        try:
            yield
        finally:
            telling.cancel()
