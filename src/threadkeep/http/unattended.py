"""Answers that nobody waits for: how many of them are in progress at once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from threadkeep.http.problems import Problem
from threadkeep.web.owners import Owner
from threadkeep.web.tallies import Tally

MAX_OF_OWNER: Final = 100  # in progress at once, in each API of a process
MAX_IN_ALL: Final = 1_000
RETRY_SECONDS: Final = 5  # after which somebody who has too many may try again


class Unattended:
    """How many answers models give in the background: those of an owner are counted by its key, or tenant and user."""

    def __init__(self, most: int = MAX_OF_OWNER, in_all: int = MAX_IN_ALL) -> None:
        self._most, self._in_all, self._open = most, in_all, Tally()

    def check(self, owner: Owner) -> None:
        """Raise Problem if there are as many as there may be, of this owner or in all."""
        headers = {"retry-after": str(RETRY_SECONDS)}
        if self._open[owner.name] >= self._most:
            text = "Too many answers are in progress in the background with this key."
            raise Problem(429, text, code="too_many_in_background", headers=headers)
        if self._open.total() >= self._in_all:
            text = "Too many answers are in progress in the background."
            raise Problem(503, text, code="overloaded", type="server_error", headers=headers)

    def one_more(self, owner: Owner) -> AbstractContextManager[None]:
        """Count an answer while it lasts, however many there are."""
        return self._open.one_more(owner.name)
