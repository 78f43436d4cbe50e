"""Waiting for what other threads, processes and servers do in a moment."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

SECONDS = 20.0
FIRST_PAUSE, MAX_PAUSE = 0.005, 0.05  # to look is not free


def wait_until(
    is_reached: Callable[[], object], problem: Callable[[], object] = lambda: None, *, seconds: float = SECONDS
) -> None:
    """Wait until something is true; if it takes too long, fail with what there is to say about the problem."""
    end, pause = time.monotonic() + seconds, FIRST_PAUSE
    while not is_reached():
        assert time.monotonic() < end, problem()
        time.sleep(pause)
        pause = min(1.5 * pause, MAX_PAUSE)


def listens(port: int) -> bool:
    """Whether a program of this machine accepts connections at a port."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
