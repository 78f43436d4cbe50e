"""Hosts whose clocks are wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest

import threadkeep

NOW_NS = time.time_ns
# All that these tests use: what is loaded later would have the right clock
MODULES = [
    found.name
    for found in walk_packages(threadkeep.__path__, "threadkeep.")
    if "__main__" not in found.name and not found.name.startswith("threadkeep.contrib.")
]
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

    modules = list(map(import_module, MODULES))
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            if vars(module).get("datetime") is datetime:
                patch.setattr(module, "datetime", Shifted)
        patch.setattr("time.time_ns", lambda: NOW_NS() + shift // timedelta(microseconds=1) * 1_000)
        yield
