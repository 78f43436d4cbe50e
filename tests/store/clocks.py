"""Hosts whose clocks are wrong."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest

NOW_NS = time.time_ns
SHIFTS = {
    "right": timedelta(0),
    "two minutes ahead": timedelta(minutes=2),
    "two minutes behind": timedelta(minutes=-2),
    "a week ahead": timedelta(days=7),
    "a week behind": timedelta(days=-7),
}


class _Clock(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, datetime)


@contextmanager
def host_clock(shift: timedelta) -> Iterator[None]:
    """What the library does meanwhile happens on a host whose clock is so much ahead."""

    class Shifted(datetime, metaclass=_Clock):
        def __new__(cls, *arguments: Any, **options: Any) -> Any:
            return datetime(*arguments, **options)  # noqa: DTZ001 - as it was called

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return (datetime.now(UTC) + shift).astimezone(tz)

    modules = [module for name, module in sys.modules.items() if name.startswith("threadkeep.")]
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            if vars(module).get("datetime") is datetime:
                patch.setattr(module, "datetime", Shifted)
        patch.setattr("time.time_ns", lambda: NOW_NS() + shift // timedelta(microseconds=1) * 1_000)
        yield
