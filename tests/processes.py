"""Other processes in tests: started fast, because they are forked from a server that has imported everything."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["threadkeep", "sqlalchemy.dialects.mysql", "psycopg", "pymysql"])


def forked(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A started process; `target` is a function of a module."""
    process = _CONTEXT.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def pipe() -> tuple[Connection, Connection]:
    """A receiving and a sending end."""
    return _CONTEXT.Pipe(duplex=False)
