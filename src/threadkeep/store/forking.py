"""Forked processes: a child discards what it inherited.

A connection, or a lock that another thread held, is of no use in a child. Memories change under one lock only, which is
held while a process is forked, so that a child finds them whole.
"""

from __future__ import annotations

import os
from threading import RLock
from typing import Final
from weakref import WeakSet

LOCK: Final = RLock()  # held for moments: never over a statement


class Inheritable:
    """What a child inherits; registered here for as long as it is referenced."""

    __slots__ = ("__weakref__",)

    def __init__(self) -> None:
        with LOCK:
            _known.add(self)

    def before_fork(self) -> None:
        """Called in the process that is about to be forked."""

    def give_up(self) -> None:
        """Called in the child."""


_known: Final[WeakSet[Inheritable]] = WeakSet()


def _before() -> None:
    try:
        for one in list(_known):
            one.before_fork()
    finally:
        LOCK.acquire()


def _in_child() -> None:
    try:
        for one in list(_known):
            one.give_up()
    finally:
        LOCK.release()


if hasattr(os, "register_at_fork"):  # where processes can be forked
    os.register_at_fork(before=_before, after_in_parent=LOCK.release, after_in_child=_in_child)
