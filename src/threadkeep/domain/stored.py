"""The values that the store returns.

States and feedback are what an application keeps with a conversation and its items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

from threadkeep import errors
from threadkeep import public as tk
from threadkeep.domain import items
from threadkeep.domain.jsontext import JsonObject, json_copy

BROKEN_OFF: Final = {"reason": "stream_ended"}  # why a response whose stream broke off is incomplete

T = TypeVar("T")


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


ChangeKind = Literal["appended", "changed", "deleted"]
APPENDED: Final = "appended"
CHANGED: Final = "changed"
DELETED: Final = "deleted"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a conversation.

    Attributes:
        id: a number that tells changes apart; the same one if a change comes again.
        kind: ``appended`` for a new conversation, items, or a response without items; ``deleted``; ``changed`` for
            everything else.
        conversation_id: the id of the conversation, which may not exist any more.
        branch: the branch of what was appended, or of a new branch; else None.
        from_position, to_position: the range of what was appended, else None; without items, `to_position` is less than
            `from_position`.
        created_at: when it was written, by the clock of the writer; aware, in UTC. Not in the order of the feed.
        cursor: for `Store.changes`: continues after this change.
    """

    id: int
    kind: ChangeKind
    conversation_id: str
    branch: int | None
    from_position: int | None
    to_position: int | None
    created_at: datetime
    cursor: str

    def to_dict(self) -> dict[str, Any]:
        """Return the change as a dict."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Some changes, in order, and where to continue.

    Attributes:
        changes: the changes; empty if there is nothing new.
        cursor: for the next call; also given if there are no changes.
    """

    changes: Sequence[Change]
    cursor: str

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)


class ItemViews(Protocol):
    """The forms of a stored item that only the store can tell."""

    @property
    def size(self) -> int:
        """The bytes of its texts, from which these forms are made."""

    def canonical(self, item_id: str, /) -> Any:
        """Return the item as OpenAI's clients validate it."""

    def given(self) -> Any:
        """Return the item as it was given."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
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
        siblings: the variants at its place; None unless they were read (`variants=True`).
    """

    id: str
    position: int
    branch: int
    turn: int | None
    _source: tk.Item | JsonObject  # the item, or the object that it is made of on first use
    replayed: bool = False
    created_at: datetime | None = None
    author_id: str | None = None
    conversation_id: str = ""
    labels: Mapping[str, str] | None = None
    feedback: Sequence[tk.Feedback] | None = None
    siblings: tk.Siblings | None = None
    _views: ItemViews | None = None
    _made: tk.Item | None = None

    @property
    def item(self) -> tk.Item:
        """The item itself."""
        if not isinstance(self._source, dict):
            return self._source
        if self._made is not None:
            return self._made
        try:
            made = items.item_from_object(self._source)
        except errors.InvalidItem as error:
            raise errors.DamagedRow("items", f"position {self.position}", error) from error
        object.__setattr__(self, "_made", made)
        return made

    def to_object(self) -> JsonObject:
        """Return the item as a JSON object of Open Responses, with all that is known of it. Read-only."""
        found: JsonObject = self._source if isinstance(self._source, dict) else self._source.to_object()
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredItem):
            return NotImplemented
        return self.item == other.item and all(getattr(self, name) == getattr(other, name) for name in _FACTS)

    def __hash__(self) -> int:
        return hash((self.conversation_id, self.position, self.id))

    def __repr__(self) -> str:
        facts = ((name, getattr(self, name)) for name in ("id", "position", "branch", "turn", "item", *_FACTS[4:]))
        return f"StoredItem({', '.join(f'{name}={value!r}' for name, value in facts)})"

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
            raise errors.InvalidOption("is not from a store, which knows its other forms.", argument="The item")
        return self._views


# attributes of a stored item that are not the item itself
_FACTS: Final = tuple(one.name for one in fields(StoredItem) if not one.name.startswith("_"))


class StoredAt(NamedTuple):
    """Where a response is stored: its branch, and its number in the conversation."""

    branch: int
    number: int


def bytes_of(stored: Iterable[StoredItem]) -> int:
    """Return how many bytes the texts of items that were read have, with their media."""
    return sum(item._views.size for item in stored if item._views is not None)  # noqa: SLF001 - the class above


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
        error: what the provider said about a response that failed, or the error of its recorder; None for others.
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
    error: Any = None


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
class Seen:
    """How far a user has read a conversation.

    Attributes:
        user_id: the user.
        position: the position of the last item that was seen; -1 for none.
        seen_at: when it was marked; aware, in UTC.
    """

    user_id: str
    position: int
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """What a list shows of a conversation.

    Attributes:
        id, external_id, user_id, title, labels, properties, status, created_at, last_activity_at: as of a conversation.
        preview: the beginning of the newest text that a user or model said on the active branch, on one line; None if
            there is none near its end.
        item_count: how many items were appended, on all branches.
        response_count: how many responses, on all branches, including those in progress.
        branch_count: how many branches there are, including the first one.
        seen_at: when the reader last marked it as seen; None for never.
        is_unread: whether something was appended, on any branch, after what the reader has seen; None without a reader.
    """

    id: str
    external_id: str | None
    user_id: str | None
    title: str | None
    labels: Mapping[str, str]
    properties: Mapping[str, str]
    status: str
    created_at: datetime
    last_activity_at: datetime
    preview: str | None
    item_count: int
    response_count: int
    branch_count: int
    seen_at: datetime | None
    is_unread: bool | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """An item or a title that matches a search.

    Attributes:
        conversation_id: the id of its conversation.
        position, branch: where the item is; None for a title.
        type: the type of the item, or ``title``.
        role: the role of a message; None for anything else.
        title, user_id: of the conversation.
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


@dataclass(frozen=True, slots=True)
class ConversationMatch:
    """A conversation that matches a search.

    Attributes:
        conversation_id, title, user_id: of the conversation.
        best: the best of its matches.
        hits: how many items and titles match.
        newest_at: when the newest of them was stored; aware, in UTC.
    """

    conversation_id: str
    title: str | None
    user_id: str | None
    best: SearchResult
    hits: int
    newest_at: datetime


@dataclass(frozen=True, slots=True)
class State:
    """A small named JSON value of a conversation.

    Attributes:
        name: its name.
        value: the JSON value.
        version: starts at 1 and grows with every write, also with a deletion; pass it as `expected_version`.
        updated_at: when it was written; aware, in UTC.
    """

    name: str
    value: Any
    version: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class StateWrite:
    """A state that is only written if it has not changed: a value for `states=` of a method that appends.

    Attributes:
        value: the JSON value.
        expected_version: the version that the state must have (0: it must not exist); None for any.
    """

    value: Any
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """A rating of an item, or a comment on it.

    Attributes:
        position: the position of the item.
        user_id: who gave it; None without a user.
        rating: a number in the application's own scale; None without one.
        comment: a text; None without one.
        updated_at: when it was given, or changed; aware, in UTC.
    """

    position: int
    user_id: str | None
    rating: int | None
    comment: str | None
    updated_at: datetime
