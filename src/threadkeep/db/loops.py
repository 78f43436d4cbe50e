"""Connections of asyncio drivers that belong to the event loop in which they were made.

asyncmy's do; psycopg's work in any. A store that outlives its event loop, as with two calls of ``asyncio.run``, makes
new ones in the next: those of the other are given up when one of them is taken from the pool, or the pool is closed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

_LOOP: Final = "threadkeep_loop"


class _GivenUp:
    """Stands for a connection that cannot be closed here."""

    async def ensure_closed(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def watch(engine: Engine) -> None:
    """Use each connection of an engine in its own event loop alone, if its driver requires it."""
    if engine.dialect.driver == "asyncmy" and not event.contains(engine, "checkout", _on_checkout):
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "checkout", _on_checkout)
        event.listen(engine, "close", _on_close)


def _on_connect(connection: Any, record: ConnectionPoolEntry) -> None:  # noqa: ARG001 - SQLAlchemy's hook
    record.info[_LOOP] = asyncio.get_running_loop()


def _on_checkout(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:  # noqa: ARG001 - SQLAlchemy's hook
    if _is_of_another_loop(record):
        raise DisconnectionError("It belongs to another event loop.")


def _on_close(connection: Any, record: ConnectionPoolEntry) -> None:
    """Let the pool close nothing: that needs the loop of the connection, which is asked to if it still runs."""
    if not _is_of_another_loop(record):
        return
    driver, connection._connection = connection.driver_connection, _GivenUp()  # noqa: SLF001 - has no other way
    with suppress(RuntimeError):  # the loop was closed, and its sockets with what held them
        record.info[_LOOP].call_soon_threadsafe(driver.close)


def _is_of_another_loop(record: ConnectionPoolEntry) -> bool:
    loop = record.info.get(_LOOP)
    try:
        return loop is not None and loop is not asyncio.get_running_loop()
    except RuntimeError:  # nothing runs: the pool is collected as garbage
        return False
