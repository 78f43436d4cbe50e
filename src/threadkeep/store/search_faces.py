"""The search, as methods of both stores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import date
from typing import Literal

from threadkeep.domain.stored import Page, SearchResult
from threadkeep.store.database import AsyncRunner, SyncRunner
from threadkeep.store.plans import Work
from threadkeep.store.searching import Wanted, reindexing, searching
from threadkeep.store.shelf import Shelf


class Searches(Shelf):
    """Searching."""

    _runner: SyncRunner

    def search(
        self,
        text: str,
        *,
        user_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        status: Literal["active", "archived"] | None = "active",
        conversation_id: str | None = None,
        type: str | None = None,
        role: str | None = None,
        since: date | None = None,
        until: date | None = None,
        after: str | None = None,
        limit: int = 20,
    ) -> Page[SearchResult]:
        """Messages, calls and outputs of tools, and titles, in which all words of a text are; the best first.

        ``"several words"`` must stand side by side, ``wor*`` is a beginning, ``-word`` must not be there. `user_id`,
        `labels` and `status` are as for `list_conversations`; `type` is that of an item, or ``title``; `role` that of a
        message; `since` and `until` (exclusive) are dates in UTC, or aware datetimes. What was appended up to now is
        found, on all branches, of long items the beginning; in the caller's transaction only what was seen before.

        Raises:
            InvalidOption: there is no word to look for, a filter or page cannot be used, or this store does not search.
            NotFound: `conversation_id` is not the id of any conversation.
            SchemaError: the index is missing or broken.
        """
        wanted: Wanted = {
            "user_id": user_id, "labels": labels, "status": status, "conversation_id": conversation_id,
            "type": type, "role": role, "since": since, "until": until, "after": after, "limit": limit,
        }  # fmt: skip
        steps = searching(self._searched_scope, text, wanted, is_host=not self._runner.remembers)
        return Work(steps).run(self._runner)

    def reindex(self, *, rebuild: bool = False) -> int:
        """Let the search see everything that it has not seen yet; returns how many items and titles it found text in.

        That is what was stored while it was off, by an older release, or in a large import: the next questions see it,
        too, and take longer. `rebuild` forgets everything first, for an index that is broken.

        Raises:
            InvalidOption: this store is for one user, or does not search.
        """
        return Work(reindexing(self._searched_scope, anew=rebuild)).run(self._runner)


class AsyncSearches(Shelf):
    """Searching, without blocking the event loop."""

    _runner: AsyncRunner

    @abstractmethod
    async def _ready(self) -> None:
        """Look at the database, once."""

    async def search(
        self,
        text: str,
        *,
        user_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        status: Literal["active", "archived"] | None = "active",
        conversation_id: str | None = None,
        type: str | None = None,
        role: str | None = None,
        since: date | None = None,
        until: date | None = None,
        after: str | None = None,
        limit: int = 20,
    ) -> Page[SearchResult]:
        """Like `Store.search`."""
        await self._ready()
        wanted: Wanted = {
            "user_id": user_id, "labels": labels, "status": status, "conversation_id": conversation_id,
            "type": type, "role": role, "since": since, "until": until, "after": after, "limit": limit,
        }  # fmt: skip
        steps = searching(self._searched_scope, text, wanted, is_host=not self._runner.remembers)
        return await Work(steps).run_async(self._runner)

    async def reindex(self, *, rebuild: bool = False) -> int:
        """Like `Store.reindex`."""
        await self._ready()
        return await Work(reindexing(self._searched_scope, anew=rebuild)).run_async(self._runner)
