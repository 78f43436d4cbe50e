"""The values that the store returns, around those of this layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from threadkeep.domain.annotations import Feedback
from threadkeep.domain.items import Item
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import json_copy
from threadkeep.errors import InvalidOption

T = TypeVar("T")


class ItemViews(Protocol):
    """The forms of a stored item that only the store can tell."""

    def canonical(self, item_id: str, /) -> Any:
        """Return the item as OpenAI's clients validate it."""

    def given(self) -> Any:
        """Return the item as it was given."""


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item and its position in a conversation.

    Attributes:
        id: the item's own id, such as one from a provider, or else one derived from its place, with the prefix of its
            type (``msg_``, ``fc_``, ``rs_`` …).
        position: its position, counted across all branches.
        branch: the number of the branch it was added to.
        turn: the wire message or response it came in; None if it was added on its own.
        item: the item itself; `isinstance` and `match` distinguish its classes.
        replayed: whether the write was a repetition of an earlier one with the same idempotency key.
        created_at: when it was stored; aware, in UTC; None on a replay.
        author_id: the application's id of the person or program that wrote it, if given.
        conversation_id: the id of its conversation.
        labels: the application's labels of the item; None unless they were read (`annotations=True`).
        feedback: the feedback on the item; None unless it was read.
    """

    id: str
    position: int
    branch: int
    turn: int | None
    item: Item
    replayed: bool = False
    created_at: datetime | None = None
    author_id: str | None = None
    conversation_id: str = ""
    labels: Mapping[str, str] | None = None
    feedback: Sequence[Feedback] | None = None
    _views: ItemViews | None = field(default=None, repr=False, compare=False)

    def canonical(self) -> JsonObject:
        """Return the item as OpenAI's clients validate it: with all required keys, and `id`.

        Items from other formats, too; types that these clients do not know are returned as they are.
        """
        copied: JsonObject = json_copy(self._known_views.canonical(self.id), "")
        return copied

    def given(self) -> JsonObject:
        """Return the item exactly as the application or the provider gave it, as JSON of Open Responses.

        Null keys, empty lists, shorthands and the order of keys are as they were; `author_id` is left out. Of an item
        that came in another format, this is an object of Open Responses with what is known of it.
        """
        copied: JsonObject = json_copy(self._known_views.given(), "")
        return copied

    @property
    def _known_views(self) -> ItemViews:
        if self._views is None:
            raise InvalidOption("is not from a store, which knows its other forms.", argument="The item")
        return self._views


class StoredAt(NamedTuple):
    """Where a response is stored: its branch, and its number in the conversation."""

    branch: int
    number: int


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of a conversation.

    Attributes:
        number: the branch number; the first branch is 0.
        parent: the branch it was forked from; None for branch 0.
        fork_position: the last position it shares with its parent; None for branch 0.
        head_position: the position of its last item; -1 if it has none.
        is_active: whether `get_conversation` opens it.
        created_at: when it was forked; aware, in UTC.
    """

    number: int
    parent: int | None
    fork_position: int | None
    head_position: int
    is_active: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A stored response: its range of items, and what its request contained.

    Attributes:
        number: its number among the conversation's responses, from 0.
        branch: the branch its items were added to.
        format, model, status, finish_reason, provider_response_id: as reported by the provider.
        input_to: the last position included in the request; -1 if none.
        from_position, to_position: the range of its items; without items, `to_position` is less than `from_position`.
        view: the format and options of the request, if it was recorded.
        created_at: when it was stored; aware, in UTC.
        id: its id: ``resp_``, the digits of the conversation's id, and its number.
        conversation_id: the id of its conversation.
    """

    number: int
    branch: int
    format: str
    model: str | None
    status: str | None
    finish_reason: str | None
    provider_response_id: str | None
    input_to: int
    from_position: int
    to_position: int
    view: JsonObject | None
    created_at: datetime
    id: str = ""
    conversation_id: str = ""


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The result of `sync_request`.

    Attributes:
        matched: how many items of the client's history were already stored.
        appended: how many were new.
        branched_at: the last position at which the histories agree, as for `fork(at=)`; None without a new branch.
        branch: the branch that now has the client's history.
        items: the appended items.
        replayed: whether this was a repetition of an earlier call with the same idempotency key.
    """

    matched: int
    appended: int
    branched_at: int | None = None
    branch: int = field(default=0, compare=False)
    items: Sequence[StoredItem] = field(default=(), compare=False)
    replayed: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """An item or a title that matches a search.

    Attributes:
        conversation_id: the id of its conversation.
        position, branch: where the item is; None for a title.
        type: the type of the item, or ``title``.
        role: the role of a message; None for anything else.
        title, user_id: those of the conversation.
        snippet: an excerpt around the first match, on one line.
        marks: the matches in the snippet, as (start, end) in characters.
        score: how well it matches; only comparable within one search.
        created_at: when the item was stored, or the conversation created; aware, in UTC.
    """

    conversation_id: str
    position: int | None
    branch: int | None
    type: str
    role: str | None
    title: str | None
    user_id: str | None
    snippet: str
    marks: tuple[tuple[int, int], ...]
    score: float
    created_at: datetime


@dataclass(frozen=True)  # without slots: those break Page[int](...) on Python 3.11
class Page(Generic[T]):
    """One page of a listing. Iterate over it, and pass `next` as ``after=`` to get the next page.

    Attributes:
        items: the items on the page.
        next: where the next page begins; None on the last page.
    """

    items: Sequence[T]
    next: str | None = None

    @classmethod
    def of(cls, rows: Sequence[T], limit: int, name: Callable[[T], str]) -> Page[T]:
        """Return a page of at most `limit` rows, of which one more was read; `name` returns the `next` of a row."""
        return cls(rows[:limit], name(rows[limit - 1]) if len(rows) > limit else None)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)
