"""Who and where: the tenant and user whose data a use case may see, and the conversation and branch it works on.

* The row of a conversation, and the lineage of its branches: which ranges of positions each of them is made of.
* Where items are, by id: the position of an item with that id of its own, or that the id was derived from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Connection

from threadkeep.db.driver import LazyRow
from threadkeep.db.queries import conversations, items
from threadkeep.domain import jsontext, rendering
from threadkeep.domain.ids import CONVERSATION_PREFIX, derived_id, place_of, public_id_bytes, public_id_text, short_hash
from threadkeep.errors import DamagedRow, InvalidItem, InvalidOption, NotFound, shown
from threadkeep.store.work.validation import MAX_POSITION

if TYPE_CHECKING:
    from threadkeep.store.media.stores import BlobStore


TENANT_WIDE: Final = 0  # stands for a conversation where an idempotency key belongs to the tenant


class ConfigHashes(NamedTuple):
    """The names of stored session options and of a stored tool set (None: no tools)."""

    config: bytes
    tools: bytes | None


@dataclass(frozen=True, slots=True)
class Scope:
    """A tenant, and one user of it where the store is scoped to a user; `blobs` is where its media are kept, if set.

    `since` is when what is written was begun, such as a request: nothing that names a user who was erased since then.
    """

    tenant: int
    user: str | None = None
    blobs: BlobStore | None = field(default=None, repr=False, compare=False)
    since: datetime | None = field(default=None, compare=False)

    def parameters(self, **values: Any) -> dict[str, Any]:
        """Statement parameters: the tenant, the user of a scoped store, and `values`."""
        if self.user is None:
            return {"tenant": self.tenant, **values}
        return {"tenant": self.tenant, "user": self.user, **values}

    def check_all_users(self, what: str, call: str) -> None:
        """Refuse a call that concerns all users in a store that is for one user only."""
        if self.user is not None:
            problem = f"{what}, and this store is for the user {self.user!r} only."
            raise InvalidOption(problem, hint=f"Call {call} on the store that for_user() was called on.")


@dataclass(frozen=True, slots=True)
class ConversationRef:
    """A conversation, seen by a scope: `key` in the database, `public_id` outside."""

    scope: Scope
    key: int
    public_id: str

    def parameters(self, **values: Any) -> dict[str, Any]:
        """Parameters of statements that name the conversation, and `values`."""
        return {"tenant": self.scope.tenant, "key": self.key, **values}

    def rows_of(self, table: Any) -> list[Any]:
        """Conditions for the rows of the conversation in a table, whose columns are given."""
        return [table.tenant_id == self.scope.tenant, table.conversation_id == self.key]

    def columns(self, **values: Any) -> dict[str, Any]:
        """The columns of such a row that name the conversation, and `values`."""
        return {"tenant_id": self.scope.tenant, "conversation_id": self.key, **values}

    @property
    def public_bytes(self) -> bytes:
        """The public id as its row holds it; nothing is to be checked, because it was made from that."""
        return bytes.fromhex(self.public_id[len(CONVERSATION_PREFIX) :])

    def not_found(self) -> NotFound:
        """The error for a conversation that does not exist (any more), or not for this scope."""
        return conversation_not_found(self.public_id)


@dataclass(frozen=True, slots=True)
class BranchRef(ConversationRef):
    """A branch of a conversation, seen by a scope."""

    branch: int = 0

    def on(self, branch: int) -> BranchRef:
        """Another branch of the same conversation."""
        return self if branch == self.branch else replace(self, branch=branch)


def tenant_not_found() -> NotFound:
    """The error for rows of a tenant that does not exist (any more)."""
    return NotFound("The tenant of this store was deleted, or the connection is to another database.")


def conversation_not_found(id: object) -> NotFound:
    """The error for an id or key under which a scope has no conversation."""
    hint = "Check the id, and that the store has the right database, tenant and user."
    return NotFound(f"There is no conversation {shown(id)}.", hint=hint)


# ---------------------------------------------------------------------------------------------------------------------
# Defaults of arguments, apart from the use cases, which are loaded when they are called

DENIED: Final = "The call was denied."
FEED_LAG: Final = 60.0  # seconds
LEASE_SECONDS: Final = 5.0  # a recorder that died blocks nobody for longer

# Explicit caches
CACHE_THRESHOLD: Final = 20_000  # tokens outside the cache
CACHE_SECONDS: Final = 3_600
CACHE_CLAIM_SECONDS: Final = 120.0

REMOVED: Final = -1  # stands for the branch of a part whose positions were removed
# Removed positions that a statement reads along, at most, so that scattered ones do not take a statement each
READ_ALONG: Final = 1_000
MAX_RANGES: Final = 100  # of a branch with gaps, in one statement


class LineagePart(NamedTuple):
    """A part of a lineage: the positions up to `last` are on a branch, or were removed.

    `known_to`: responses below this number may have been given when what was removed was still there.
    """

    branch: int
    last: int
    known_to: int = 0

    @classmethod
    def of(cls, value: Sequence[int]) -> LineagePart:
        """The part of its stored form."""
        return cls(*value)

    def stored(self) -> list[int]:
        """Its stored form, JSON."""
        return list(self if self.branch == REMOVED else self[:2])


_LAST: Final = attrgetter("last")


class Span(NamedTuple):
    """Positions that are read together: the ones of one branch after one and up to another; `surplus` are removed."""

    branch: int
    after: int
    upto: int
    surplus: int = 0


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a branch is made of: the parts before its own items, and where it ends."""

    parts: tuple[LineagePart, ...]
    head: int

    def ranges(self, branch: int, after: int, upto: int) -> list[tuple[int, int, int]]:
        """The parts as (branch, after, up to), cut to the positions asked for; without what was removed."""
        ranges, start = [], -1
        for number, end, _ in (*self.parts, LineagePart(branch, upto)):
            low, high = max(start, after), min(end, upto)
            if low < high and number != REMOVED:
                ranges.append((number, low, high))
            start = max(start, end)
        return ranges

    def spans(self, branch: int, after: int, upto: int) -> list[Span]:
        """The same in fewer pieces: what was removed in between is read along, and has to be left out with `keeps`."""
        spans: list[Span] = []
        for number, low, high in self.ranges(branch, after, upto):
            last = spans[-1] if spans else Span(REMOVED, low, low)
            surplus = last.surplus + low - last.upto
            if last.branch == number and surplus <= READ_ALONG:
                spans[-1] = Span(number, last.after, high, surplus)
            else:
                spans.append(Span(number, low, high))
        return spans

    def includes(self, branch: int, position: int, item_branch: int) -> bool:
        """Whether the item at a position, stored on `item_branch`, belongs to this one."""
        if not 0 <= position <= self.head or item_branch == REMOVED:
            return False
        return item_branch == self.branch_at(branch, position)

    def branch_at(self, branch: int, position: int) -> int:
        """The branch on which the item at a position is stored."""
        index = bisect_left(self.parts, position, key=_LAST)
        return branch if index == len(self.parts) else self.parts[index].branch

    def keeps(self) -> Callable[[int], bool]:
        """A function that says of positions in the spans whether they were not removed."""
        ends = [part.last for part in self.parts]
        removed = [part.branch == REMOVED for part in self.parts]
        return lambda position: (index := bisect_left(ends, position)) == len(ends) or not removed[index]

    def knew_more(self, response: int, upto: int) -> bool:
        """Whether a response may have been given when something was still there before or at a position."""
        start = -1
        for part in self.parts:
            if part.branch == REMOVED and response < part.known_to and start < upto:
                return True
            start = part.last
        return False

    def upto(self, branch: int, position: int) -> tuple[LineagePart, ...]:
        """The parts of what a new branch shares, up to a position."""
        parts: list[LineagePart] = []
        start = -1
        for number, end, known_to in (*self.parts, LineagePart(branch, position)):
            if start < min(end, position):
                parts.append(LineagePart(number, min(end, position), known_to))
            start = max(start, end)
        return tuple(parts)

    def without(self, branch: int, before: int, position: int, next_response: int) -> tuple[LineagePart, ...]:
        """The parts without the positions behind `before` and up to another."""
        parts = list(self.upto(branch, before))
        gap = LineagePart(REMOVED, position, next_response)
        for part in (gap, *(part for part in self.parts if part.last > position)):
            if parts and part.branch == parts[-1].branch == REMOVED:
                part = part._replace(known_to=max(part.known_to, parts.pop().known_to))  # noqa: PLW2901
            parts.append(part)
        return tuple(parts)


def range_parameters(ranges: Sequence[tuple[int, int, int]]) -> tuple[int, dict[str, int]]:
    """Parameters of a statement on ranges, with the number that it is made for: one, or `MAX_RANGES`."""
    count = 1 if len(ranges) == 1 else MAX_RANGES
    parameters: dict[str, int] = {}
    for number in range(count):
        branch, after, upto = ranges[min(number, len(ranges) - 1)]
        parameters |= {f"branch_{number}": branch, f"after_{number}": after, f"upto_{number}": upto}
    return count, parameters


def lineage_text(parts: Sequence[LineagePart]) -> str:
    """Parts as a row has them."""
    return jsontext.dumps([part.stored() for part in parts]).decode()


@dataclass(slots=True)
class ConversationState:
    """A conversation as it was read: its row, options and tools, on one branch; no items."""

    scope: Scope
    row: LazyRow
    settings: jsontext.JsonObject
    tools: list[jsontext.JsonObject]
    branch: int
    fork: Lineage | None = None  # of a branch that was forked off
    format_cache: dict[str, Any] = field(default_factory=dict)  # what formats remember of these options and tools
    is_outdated: bool = False  # whether something may have been removed of what was read of its items
    hashes: ConfigHashes = field(init=False)
    _root: Lineage | None = field(init=False, default=None)
    _ref: BranchRef | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        tools = self.row.tool_set_hash
        self.hashes = ConfigHashes(bytes(self.row.config_hash), None if tools is None else bytes(tools))

    @property
    def imported(self) -> rendering.ImportInfo | None:
        """Where the conversation came from, when it was imported."""
        imported = self.settings.get("imported")
        try:
            return None if imported is None else rendering.ImportInfo.from_dict(imported)
        except InvalidOption as error:
            raise DamagedRow("configs", f"hash {self.hashes.config.hex()}", error) from error

    @property
    def lineage(self) -> Lineage:
        """What the branch is made of."""
        lineage = self.fork or self._root
        if lineage is None:
            lineage = self._root = root_lineage(self.row)
        return lineage

    def ref(self) -> BranchRef:
        """Where it is."""
        ref = self._ref
        if ref is None:
            row = self.row
            ref = self._ref = BranchRef(self.scope, row.id, public_id_text(bytes(row.public_id)), self.branch)
        return ref


def find_row(
    connection: Connection, scope: Scope, column: str, value: Any, *, is_locked: bool = False
) -> LazyRow | None:
    """The row of a conversation by id, public_id or external_id; None when this scope has none.

    `is_locked`: it is not changed or hidden before the end of the transaction.
    """
    statement = conversations.conversation_by(column, scoped=scope.user is not None, locked=is_locked)
    rows = statement.fetch_all(connection, scope.parameters(value=value))
    return conversations.CONVERSATION_READER.read(connection, rows)[0] if rows else None


def conversation_keys(connection: Connection, scope: Scope, public_ids: Sequence[str | None]) -> list[int | None]:
    """The keys of conversations; None stands for deleted ones, an unknown id for nothing; NotFound: it is not an id."""
    known = [public_id_bytes(public_id) for public_id in public_ids if public_id is not None]
    rows = [find_row(connection, scope, "public_id", public_id) for public_id in known]
    keys: list[int | None] = [row.id for row in rows if row is not None]
    return [*keys, None] if None in public_ids else keys


def get_row(connection: Connection, ref: ConversationRef, *, is_locked: bool = False) -> LazyRow:
    """The row of a conversation; NotFound when it is gone, or not for this scope. `is_locked` as in `find_row`."""
    row = find_row(connection, ref.scope, "id", ref.key, is_locked=is_locked)
    if row is None:
        raise ref.not_found()
    return row


def get_lineage(connection: Connection, ref: BranchRef, row: LazyRow, *, is_latest: bool = False) -> Lineage:
    """The lineage of a branch of a conversation whose row was read; NotFound when it has no such branch.

    `is_latest`: for work that has locked the row. The caller's transaction may see the past of other rows, on MySQL.
    """
    if ref.branch == 0:
        return root_lineage(row)
    statement = conversations.branch_of(latest=is_latest)
    branch = connection.execute(statement, ref.parameters(number=ref.branch)).one_or_none()
    if branch is None:
        raise branch_not_found(ref)
    return lineage_from(branch)


def lock_lineage(connection: Connection, ref: BranchRef) -> Lineage:
    """The lineage of a branch as it is now; the conversation is locked as by `find_row`."""
    return get_lineage(connection, ref, get_row(connection, ref, is_locked=True), is_latest=True)


def lineage_from(branch: Any) -> Lineage:
    """The lineage that the row of a branch holds."""
    parts = jsontext.loads_stored(branch.lineage, "branches", f"number {branch.number}")
    return Lineage(tuple(map(LineagePart.of, parts)), branch.head_position)


def root_lineage(row: LazyRow) -> Lineage:
    """The lineage of branch 0, which the row of the conversation holds."""
    text = row.lineage
    parts = () if text is None else jsontext.loads_stored(text, "conversations", f"id {row.id}")
    return Lineage(tuple(map(LineagePart.of, parts)), row.head_position)


def branch_not_found(ref: BranchRef) -> NotFound:
    """The error for a branch that a conversation does not have."""
    return NotFound(
        f"The conversation {ref.public_id} has no branch {ref.branch}.", hint="branches() lists the branches it has."
    )


def position_not_found(ref: BranchRef, position: int, head: int) -> NotFound:
    """The error for a position at which a branch has no item."""
    if head < 0:
        return NotFound(f"Branch {ref.branch} of {ref.public_id} has no items.")
    where = f"it ends at {head}" if not 0 <= position <= head else "it is on another branch, or was removed"
    return NotFound(f"Branch {ref.branch} of {ref.public_id} has no item at position {position}; {where}.")


_BATCH: Final = 100  # items with one id that are looked at in one statement


class ItemPlace(NamedTuple):
    """Where an item is."""

    position: int
    branch: int


def position_of_id(
    connection: Connection, ref: BranchRef, lineage: Lineage, item_id: str, *, is_newest: bool = True
) -> int:
    """The position of an item of a branch; NotFound. Of several items with that id it is the newest, or the oldest."""
    found = find_position(connection, ref, lineage, item_id, is_newest=is_newest)
    if found is None:
        problem = f"Branch {ref.branch} of {ref.public_id} has no item with the id {shown(item_id)}"
        raise NotFound(f"{problem}. Is it on another branch? Name that one.")
    return found


def position_of(connection: Connection, ref: BranchRef, lineage: Lineage, item: int | str) -> int:
    """The position of an item that is given by its position or id."""
    return position_of_id(connection, ref, lineage, item) if isinstance(item, str) else item


def find_position(
    connection: Connection, ref: BranchRef, lineage: Lineage, item_id: str, *, is_newest: bool = True
) -> int | None:
    """Like `position_of_id`; None where the branch has no such item."""

    def first(places: Iterable[ItemPlace]) -> list[int]:
        on_branch = (place.position for place in places if lineage.includes(ref.branch, place.position, place.branch))
        return [position for position in [next(on_branch, None)] if position is not None]

    found = first(_derived(connection, ref, item_id)) + first(_own(connection, ref, item_id, is_newest=is_newest))
    return (max if is_newest else min)(found, default=None)


def newest_position(connection: Connection, ref: ConversationRef, item_id: str) -> int | None:
    """The position of the newest item with an id, on whatever branch it is."""
    places = [*_derived(connection, ref, item_id), next(_own(connection, ref, item_id, is_newest=True), None)]
    return max((place.position for place in places if place is not None), default=None)


def first_positions(connection: Connection, ref: ConversationRef, ids: Iterable[str]) -> dict[str, int]:
    """The position of the first item with each of several ids of their own, on whatever branch it is."""
    hashes = {short_hash(item_id): item_id for item_id in ids}
    if not hashes:
        return {}
    rows = connection.execute(items.first_places_of_ids(), ref.parameters(hashes=[*hashes]))
    return {hashes[bytes(hash_)]: position for hash_, position in rows}


def check_unique_ids(ids: Mapping[int, str]) -> None:
    """Raise InvalidItem for a new item that has the id of one before it; `ids` are by the index of the item.

    OpenAI's API refuses such input, too: "Duplicate item found with id …".
    """
    seen = set[str]()
    for index, item_id in ids.items():
        if item_id in seen:
            raise _known_id(index, item_id, "another new item")
        seen.add(item_id)


def check_new_ids(connection: Connection, ref: BranchRef, lineage: Lineage, ids: Mapping[int, str]) -> None:
    """Raise InvalidItem where an item of a branch has the id of a new one; `ids` are by the index of the new item."""
    known = first_positions(connection, ref, ids.values())
    for index, item_id in ids.items():
        is_candidate = item_id in known or place_of(item_id) is not None
        if is_candidate and find_position(connection, ref, lineage, item_id) is not None:
            raise _known_id(index, item_id, "an item that is there already")


def _known_id(index: int, item_id: str, where: str) -> InvalidItem:
    """The error for an id that is known, in words by which clients of OpenAI recognize it."""
    hint = "Send only new items, or new items without an id."
    text = f"is not new. Duplicate item found with id {item_id[:128]}: {where} has it."
    return InvalidItem(text, argument=f"items[{index}].id", hint=hint)


def _derived(connection: Connection, ref: ConversationRef, item_id: str) -> Iterator[ItemPlace]:
    named = place_of(item_id)
    if named is None or named[0] != ref.public_id or named[1] > MAX_POSITION:
        return
    row = connection.execute(items.place_at(), ref.parameters(position=named[1])).one_or_none()
    if row is not None and derived_id(row.type, *named) == item_id:
        yield ItemPlace(named[1], row.branch)


def _own(connection: Connection, ref: ConversationRef, item_id: str, *, is_newest: bool) -> Iterator[ItemPlace]:
    """The items with an id of their own, from the newest or from the oldest on."""
    statement, after, upto = items.places_of_id(descending=is_newest), -1, MAX_POSITION
    hash_ = short_hash(item_id)
    while True:
        parameters = ref.parameters(hash=hash_, after=after, upto=upto, limit=_BATCH)
        places = [ItemPlace(*row) for row in connection.execute(statement, parameters)]
        yield from places
        if len(places) < _BATCH:
            return
        after, upto = (after, places[-1].position - 1) if is_newest else (places[-1].position, upto)
