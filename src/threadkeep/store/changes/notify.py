"""Waking those who follow the change feed on PostgreSQL: NOTIFY after commits, LISTEN while waiting.

Both have connections and threads of their own, under asyncio too: a write neither waits for them nor fails with them.
What is not told is found by polling.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Engine

from threadkeep.store.forking import Inheritable

CHANNEL: Final = "threadkeep_changes"
GATHERING: Final = 0.05  # seconds between two notifications
CHECKING: Final = 0.5  # seconds after which a listener sees that it was closed
RECONNECTING: Final = 1.0  # seconds, doubled up to …
MOST_RECONNECTING: Final = 30.0
CONNECTING: Final = 10  # seconds
LOG: Final = logging.getLogger("threadkeep.changes")


def _connect(engine: Engine) -> Any:
    import psycopg  # noqa: PLC0415 - an optional driver

    _, options = engine.dialect.create_connect_args(engine.url)
    return psycopg.connect(**{"connect_timeout": CONNECTING, **options}, autocommit=True)


def _shown(error: Exception) -> str:
    return type(error).__name__  # the text of the driver may have a password in it


class Notifier(Inheritable):
    """Tells listeners of commits, many with one notification."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._inherited: list[object] = []
        self._begin()

    def _begin(self) -> None:
        self._connection: Any = None
        self._committed, self._ended = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def notify(self) -> None:
        """Say that something was committed; returns at once."""
        self._committed.set()
        if self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(target=self._run, name="threadkeep-notify", daemon=True)
            with suppress(RuntimeError):  # the interpreter is about to end
                self._thread.start()

    def close(self) -> None:
        """Tell of the last commits, and end."""
        self._ended.set()
        self._committed.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(CONNECTING)

    def give_up(self) -> None:
        """The connection is the parent's; a thread is not inherited."""
        self._inherited.append(self._connection)
        self._begin()

    def _run(self) -> None:
        while True:
            self._committed.wait()
            is_last = self._ended.is_set()
            self._committed.clear()
            self._send()
            if is_last:
                break
            self._ended.wait(GATHERING)
            if self._ended.is_set():
                self._committed.set()
        self._disconnect()

    def _send(self) -> None:
        for _ in range(2):  # the connection may have been lost since the last one
            try:
                if self._connection is None:
                    self._connection = _connect(self._engine)
                self._connection.execute(f"NOTIFY {CHANNEL}")
            except Exception as error:  # noqa: BLE001 - whatever it is: listeners poll
                LOG.warning("Nobody could be notified of changes: %s", _shown(error))
                self._disconnect()
            else:
                return

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


class Listener:
    """Calls a function when something may have been committed, from a thread of its own; reconnects by itself."""

    def __init__(self, engine: Engine, wake: Callable[[], object]) -> None:
        self._engine, self._wake, self._ended = engine, wake, threading.Event()
        self._thread = threading.Thread(target=self._run, name="threadkeep-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; the connection is closed soon after."""
        self._ended.set()

    def _run(self) -> None:
        pause = RECONNECTING
        while not self._ended.is_set():
            try:
                with _connect(self._engine) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    pause = RECONNECTING
                    self._wake()  # what was committed before
                    while not self._ended.is_set():
                        for _ in connection.notifies(timeout=CHECKING, stop_after=1):
                            self._wake()
            except Exception as error:  # noqa: BLE001 - whatever it is: its owner polls
                LOG.warning("Changes are not listened for, and found by polling meanwhile: %s", _shown(error))
                self._ended.wait(pause)
                pause = min(pause * 2, MOST_RECONNECTING)
