"""Removing data in many small transactions: the loops around what finds rows, and what changes some of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from time import monotonic
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, Update, delete, true, update

from threadkeep.db import backends, models
from threadkeep.db.queries.conversations import DELETED
from threadkeep.domain.jsontext import mismatch
from threadkeep.errors import InvalidOption
from threadkeep.store.media import collecting
from threadkeep.store.removing import purging, redaction, rules
from threadkeep.store.streaming.recovery import StreamRecovery
from threadkeep.store.work import connections, refs
from threadkeep.store.work.caches import StoreResources
from threadkeep.store.work.pacing import Breaks, Change, Find, Pace
from threadkeep.store.work.transactions import Transactions

FOUND: Final = 1_000  # rows that are looked for at once
_FIRST_PAUSE: Final = 0.005  # seconds between two looks at who writes
_LONGEST_PAUSE: Final = 0.25
_OPTIONS: Final = "options and tools"  # what progress is told of

T = TypeVar("T")


class Step(Protocol):
    """What a transaction has done with some of the keys that it was given."""

    @property
    def rows(self) -> int:
        """How many of them, from the first one on, need nothing more."""


S = TypeVar("S", bound=Step)

Progress = Callable[[str, int], None]
"""Is called with what is being removed (such as "conversations") and how many of them have been removed so far."""


class Batches:
    """Removes data of a tenant in many transactions; `progress` is called with what was removed and how many.

    What has to be looked for is looked for in transactions that lock nothing.
    """

    def __init__(
        self,
        transactions: Transactions,
        tenant: int,
        resources: StoreResources,
        progress: Progress | None = None,
    ) -> None:
        self._transactions, self._tenant, self._blobs = transactions, tenant, resources.blobs
        # else objects wait for another store, or until the caller's transaction has ended
        self._can_remove_objects = self._blobs is not None and transactions.commits_itself
        self._has_failed = False  # to remove one: the others wait, for each attempt may take long
        if not (progress is None or callable(progress)):
            raise mismatch(InvalidOption, "a function", progress, "progress")
        self._progress = progress or (lambda _what, _count: None)
        self._recovery = StreamRecovery(resources.prices)
        pace = partial(Pace, can_end=transactions.commits_itself)
        self._paces: defaultdict[str, Pace] = defaultdict(pace)  # of each kind of rows
        self._breaks = Breaks() if transactions.commits_itself else None
        self._has_rivals = (
            transactions.commits_itself and transactions.read(backends.backend_of).is_server
        )  # other writers
        self.conversations = 0  # that are purged

    def wait_for_writers(self, rows: Sequence[Select[Any]]) -> bool:
        """Wait until the transactions have ended that have written such rows; return whether they did within a time.

        `rows` are statements as for `Backend.open_writers`.
        """
        if not self._has_rivals:
            return True

        def find(connection: Connection) -> frozenset[str]:
            return backends.backend_of(connection).open_writers(connection, rows)

        pause, end, left = _FIRST_PAUSE, monotonic() + backends.BUSY_SECONDS, self._transactions.read(find)
        while left and monotonic() < end:
            connections.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            left &= self._transactions.read(find)
        return not left

    def find(self, find: Callable[..., T], **which: Any) -> T:
        """Look for rows."""
        return self._transactions.read(partial(find, tenant=self._tenant, **which))

    def write(self, batch: Callable[..., T], what: str, **which: Any) -> T:
        """Run one batch, which changes as many rows as its pace allows; `what` it changes has a pace of its own."""
        pace, begun = self._paces[what], monotonic()

        def work(connection: Connection) -> T:
            pace.begin()
            return batch(connection, pace=pace, tenant=self._tenant, **which)

        result = self._transactions.write(work, is_repeatable=True)
        pace.end()
        if self._breaks is not None:
            connections.sleep(self._breaks.after(monotonic() - begun))
        return result

    @staticmethod
    def _each(find: Callable[[], Sequence[T]]) -> Iterator[Sequence[T]]:
        """What is found, again and again until there is nothing.

        Or the same once more: the caller's transaction may still see rows that others have changed.
        """
        before: Sequence[T] = ()
        while (keys := find()) and keys != before:
            yield keys
            before = keys

    def repeat(self, batch: Callable[..., int], what: str, **which: Any) -> int:
        """Run batches until one has nothing to do; return the sum of their results."""
        total = 0
        while count := self.write(batch, what, **which):
            total += count
            self._progress(what, total)
        return total

    def run(self, rows: rules.Rows, before: int = 0) -> int:
        """Remove rows; return how many there were, and how many had been removed `before`."""
        if not rows.is_indexed:
            return self.change_behind(rows.find, rows.change, rows.name, before)
        for keys in self._each(partial(self.find, rows.find, limit=FOUND)):
            before += self.change_these(rows.change, keys, rows.name, before)
        return before

    def change_behind(self, find: Find, change: Change, what: str, total: int = 0) -> int:
        """Change rows that may still be found afterwards: each of them is looked at once, in the order of their keys.

        `total` is how many were changed before.
        """
        for keys in self._pages(find):
            total += self.change_these(change, keys, what, total)
        return total

    def change_these(self, change: Change, keys: Sequence[Any], what: str, before: int = 0) -> int:
        """Change rows that were found; return how many were changed."""
        changed = 0
        for done in self._steps(change, what, keys):
            changed += done.changed
            self._progress(what, before + changed)
        return changed

    def _steps(self, batch: Callable[..., S], what: str, keys: Sequence[Any], **which: Any) -> Iterator[S]:
        """Run batches until nothing is left to do with these keys; what each of them has done."""
        while keys:
            done = self.write(batch, what, keys=keys, **which)
            keys = keys[done.rows :]
            yield done

    def purge_found(self, which: ColumnElement[bool], clear: Callable[[list[int]], object] | None = None) -> None:
        """Hide conversations, and remove their rows, until none is found; before, `clear` what names them elsewhere."""
        for found in self._each(partial(self.find, purging.find_conversations, which=which)):
            steps = self._steps(purging.hide_conversations, "hidden", found, which=which)
            hidden = [key for done in steps for key in done.keys]
            if clear is not None and hidden:
                clear(hidden)
            self.purge(hidden)

    def has_hidden(self) -> bool:
        """Return whether conversations that are hidden still have rows, because their deletion was interrupted."""
        return bool(self.find(_find_hidden))

    def purge_hidden(self) -> None:
        """Remove the rows of conversations that are hidden."""
        for keys in self._each(partial(self.find, _find_hidden)):
            self.purge(keys)

    def purge(self, keys: Sequence[int]) -> None:
        """Remove the rows of hidden conversations, and media that nothing else has."""
        for done in self._steps(purging.purge_some, "conversations", keys, recovery=self._recovery):
            self.conversations += done.rows
            if done.rows:
                self._progress("conversations", self.conversations)
            self._remove_rest(done.media)

    def _remove_rest(self, media: collecting.LostMedia, *, is_strict: bool = False) -> None:
        """Remove objects that were set aside, and media that were left to what others were removing at the same time.

        Each of the transactions saw what the other one had not committed yet. The last to commit finds them.
        """
        self._remove_objects(media.aside, is_strict=is_strict)
        if media.shared and self._has_rivals:
            left = self.find(collecting.find_unused_of, hashes=list(media.shared))
            for done in self._steps(collecting.remove_unused, "media", left):
                self._remove_objects(done.media.aside, is_strict=is_strict)

    def collect(self, *, is_strict: bool = False) -> None:
        """Remove media, options and tools that are no longer used; `is_strict`: raise the errors of the blob store."""
        self.collect_media(is_strict=is_strict)
        for find, remove in redaction.STEPS:
            self.change_behind(find, remove, _OPTIONS)
        self._collect_tools()

    def _collect_tools(self) -> None:
        """Remove tools that no set names; see `redaction`, which says why they are marked."""
        # Reads of this library see what was committed before them; those of a caller's transaction may not.
        is_locking = False if self._transactions.commits_itself else self.find(redaction.way_to_read)
        if is_locking is None:
            return
        every = rules.Rows(redaction.TOOLS, true(), is_indexed=False)
        tools = {bytes(hash_) for page in self._pages(every.find) for hash_ in page}
        seem_unused, mark = self._without_named(tools, is_locking=is_locking), datetime.now(UTC)
        self._change_tools(update(redaction.TOOLS).values(unused_at=mark), seem_unused)
        unused = self._without_named(seem_unused, is_locking=is_locking)
        remove = partial(redaction.change_definitions, change=delete(redaction.TOOLS), mark=mark)
        self.change_these(remove, sorted(unused), _OPTIONS)
        self._change_tools(update(redaction.TOOLS).values(unused_at=None), seem_unused - unused)

    def _without_named(self, tools: set[bytes], *, is_locking: bool) -> set[bytes]:
        left = set(tools)
        if left:
            for page in self._pages(partial(redaction.find_sets, is_locking=is_locking), key=itemgetter(0)):
                for _, named in page:
                    left -= named
                if not left:
                    break
        return left

    def _pages(self, find: Find, key: Callable[[Any], Any] | None = None) -> Iterator[Sequence[Any]]:
        """What is found, in the order of keys: what `key` returns of it, or itself."""
        after = None
        while page := self.find(find, limit=FOUND, after=after):
            yield page
            after = page[-1] if key is None else key(page[-1])

    def _change_tools(self, change: Update, hashes: set[bytes]) -> None:
        """Set or take away marks, without reporting it."""
        for _ in self._steps(partial(redaction.change_definitions, change=change), "marks", sorted(hashes)):
            pass

    def collect_media(self, *, is_strict: bool = False) -> None:
        """Remove media that are no longer used; `is_strict`: raise the errors of the blob store."""
        self.forget_uploads(is_strict=is_strict)
        self._remove_media(self._unused(is_strict=is_strict), collecting.remove_unused, "media", is_strict=is_strict)

    def _unused(self, *, is_strict: bool) -> Iterator[Sequence[bytes]]:
        """Media that nothing has any more, but for those whose objects have to wait."""
        for page in self._pages(rules.Rows(models.blobs, ~collecting.is_used(), is_indexed=False).find):
            has_all = self._can_remove_objects and (is_strict or not self._has_failed)
            yield page if has_all else self.find(collecting.find_inside, hashes=page)

    def forget_uploads(self, user: str | None = None, *, is_strict: bool = False) -> None:
        """Forget uploads that have expired, or all of a user, with media that nothing else has."""
        if user is None:
            pages = self._each(partial(self.find, collecting.find_expired_uploads, limit=FOUND))
        else:
            uploads = models.uploads
            pages = self._pages(rules.Rows(uploads, uploads.c.user_id == user, is_indexed=False).find)
        self._remove_media(pages, partial(collecting.forget_uploads, user=user), "uploads", is_strict=is_strict)

    def _remove_media(
        self,
        pages: Iterable[Sequence[bytes]],
        remove: Callable[..., collecting.Collected],
        what: str,
        *,
        is_strict: bool,
    ) -> None:
        """Remove what is found; objects after each transaction, until the blob store does not respond."""
        total = 0
        for page in pages:
            for done in self._steps(remove, what, page):
                total += done.changed
                self._remove_rest(done.media, is_strict=is_strict)
                self._progress(what, total)

    def _remove_objects(self, aside: Mapping[bytes, str], *, is_strict: bool = False) -> None:
        """Remove objects of media that were set aside, until the blob store does not respond."""
        if self._can_remove_objects and (is_strict or not self._has_failed):
            scope = refs.Scope(self._tenant, blobs=self._blobs)
            is_done = collecting.remove_set_aside(self._transactions, scope, aside, is_strict=is_strict)
            self._has_failed = not is_done


_find_hidden: Final = partial(purging.find_conversations, which=true(), statuses=[DELETED])
