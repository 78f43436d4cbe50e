"""What happens to sweeps in the tests: others change what they are about, and they are interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Engine


class Interrupted(Exception):
    """Somebody pulled the plug."""


def meanwhile(engine: Engine, change: Callable[[Any], object], sweep: Callable[[], Any]) -> Any:
    """What a sweep says that begins while somebody else's transaction changes what it is about."""
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as connection:
            change(connection)
            done = pool.submit(sweep)
            time.sleep(0.3)
        return done.result(timeout=30)
