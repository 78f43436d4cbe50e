"""What connections need: waiting, errors without parameters, and giving up what a forked process inherited."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import StatementError
from sqlalchemy.util.concurrency import await_only, in_greenlet

P = ParamSpec("P")
T = TypeVar("T")

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


def run_blocking(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that waits for something other than the database, without blocking the event loop."""
    if in_greenlet():
        result: T = await_only(asyncio.to_thread(function, *args, **kwargs))
        return result
    return function(*args, **kwargs)


def hide_parameters(error: BaseException) -> None:
    """Let an error show no parameters of statements: they are what people wrote. The engine may be the host's."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, StatementError):
            cause.hide_parameters = True
            for shown in filter(None, (cause, cause.orig)):
                texts = (_FAILING_ROW.sub("(…)", arg) if isinstance(arg, str) else arg for arg in shown.args)
                shown.args = tuple(texts)
        cause = cause.__cause__ or cause.__context__


def give_up(engine: Engine, *connections: object) -> None:
    """Forget the connections of the process that this one was forked from, without closing them."""
    _INHERITED.extend((*connections, engine.pool))
    engine.dispose(close=False)
