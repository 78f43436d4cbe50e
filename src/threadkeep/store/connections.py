"""Connections: taking one for each transaction, waiting for a server, and giving up what a forked process inherited."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.util.concurrency import await_only, in_greenlet

from threadkeep.errors import PoolExhausted

T = TypeVar("T")

REFUSED_SECONDS: Final = 10.0  # how long to retry a server that has responded before
# How PostgreSQL shows a row that it rejects
_FAILING_ROW: Final = re.compile(r"(?<=Failing row contains )\(.*\)", re.DOTALL)
# What this process inherited when it was forked: kept, because connections that nobody holds are closed
_INHERITED: Final[list[object]] = []


def sleep(seconds: float) -> None:
    """Wait without blocking the event loop."""
    if in_greenlet():
        await_only(asyncio.sleep(seconds))
    else:
        time.sleep(seconds)


@contextmanager
def hidden_parameters() -> Iterator[None]:
    """Errors show no parameters of statements, which are what people wrote; also where the engine is the host's."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, StatementError):
                cause.hide_parameters = True
                for shown in filter(None, (cause, cause.orig)):
                    texts = (_FAILING_ROW.sub("(…)", arg) if isinstance(arg, str) else arg for arg in shown.args)
                    shown.args = tuple(texts)
            cause = cause.__cause__ or cause.__context__
        raise


class Connections:
    """A connection for each transaction.

    On SQLite taking one from SQLAlchemy's pool and giving it back takes longer than a statement: `keeps` keeps it.
    """

    def __init__(self, engine: Engine, *, keeps: bool) -> None:
        self._engine = engine
        self._keeps = keeps
        self._free: deque[Connection] = deque()
        self._has_answered = False

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run work on a connection that nothing else uses meanwhile."""
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self._connect()
        try:
            with hidden_parameters():
                result = work(connection)
            if connection.in_transaction():
                connection.rollback()
        except BaseException:
            connection.close()
            raise
        if self._keeps:
            self._free.append(connection)
        else:
            connection.close()
        return result

    def close(self) -> None:
        """Close the pooled connections."""
        while self._free:
            self._free.pop().close()

    def _connect(self) -> Connection:
        """Return a connection. A server that responded before and now refuses is restarting, so it is retried.

        Raises:
            PoolExhausted: all connections are in use.
        """
        first = time.monotonic()
        while True:
            try:
                connection = self._engine.connect()
            except PoolTimeout as error:
                raise PoolExhausted from error
            except OperationalError:
                if not self._has_answered or time.monotonic() - first > REFUSED_SECONDS:
                    raise
                sleep(random.uniform(0, 0.25))  # noqa: S311 - jitter, no secret
            else:
                self._has_answered = connection.dialect.name != "sqlite"
                return connection


def give_up(engine: Engine, *kept: Connections) -> None:
    """Forget the connections of the process that this one was forked from, without closing them."""
    for connections in kept:
        _INHERITED.append(connections._free)  # noqa: SLF001 - of this module
        connections._free = deque()  # noqa: SLF001
    _INHERITED.append(engine.pool)
    engine.dispose(close=False)
