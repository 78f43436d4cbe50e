"""Connections that were lost: others of their pool may be, too, as after a restart of the server."""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError


def invalidate_lost(connection: Connection, error: BaseException) -> None:
    """Invalidate a connection that was lost, and let its pool renew those that are as old when they are taken next.

    SQLAlchemy does so where a statement of its own fails. To dispose of the pool would be more than that: those that
    are in use would no longer count for its limit, and would be left open.
    """
    if not connection.invalidated:
        with suppress(DBAPIError):
            connection.exec_driver_sql("SELECT 1")
    connection.invalidate(error)
