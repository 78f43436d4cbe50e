"""TLS on MariaDB and MySQL: PyMySQL offers it on every connection, and verifies nothing unless the URL says so.

For that it reads all certificates that the machine trusts, every time, which takes 20 to 70 ms of CPU time; to connect
takes 2. The engines of a store do it once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine

if TYPE_CHECKING:
    from ssl import SSLContext


def share_context(engine: Engine) -> None:
    """Let the connections of an engine with PyMySQL that are told nothing of TLS have one context."""
    if engine.dialect.driver == "pymysql":
        dialect: Any = engine.dialect
        dialect.connect = _connection_class()


@cache
def _connection_class() -> Any:
    from pymysql.connections import Connection  # noqa: PLC0415 - an optional driver

    class SharingConnection(Connection):  # type: ignore[misc]  # PyMySQL has no types
        shared: SSLContext | None = None

        def _create_ssl_ctx(self, sslp: Any) -> Any:
            """Return a context for these options; without any, the one of all connections."""
            if sslp:
                return super()._create_ssl_ctx(sslp)
            if SharingConnection.shared is None:
                SharingConnection.shared = super()._create_ssl_ctx(sslp)
            return SharingConnection.shared

    return SharingConnection
