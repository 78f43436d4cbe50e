"""Statements on items and their media."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache, lru_cache
from typing import Any, Final

import sqlalchemy as sa

from threadkeep.db.driver import RowReader, Statement
from threadkeep.db.functions import as_bytes, as_committed, as_text
from threadkeep.db.models import blobs, branches, conversations, item_blobs, items, responses, uploads
from threadkeep.db.queries.conversations import itself, of_conversation, of_tenant, visible

# The columns of domain.wire.Entry, in its order; texts are read as bytes where the database can do that.
_ENTRY: Final = ("position", "type", "role", "turn", "seen", "call_id", "origin", "payload", "rest", "codec", "maker")
_TEXTS: Final = frozenset({"payload", "rest"})
_IDS: Final = frozenset({"call_id", "item_id"})

# What a StoredItem has beside the item itself.
_STORED: Final = ("branch", "item_id", "author_id", "created_at", "given")
STORED_READER: Final = RowReader([items.c[name] for name in _STORED])


def _column(name: str) -> Any:
    column = items.c[name]
    if name in _TEXTS:
        return as_bytes(column).label(name)
    return as_text(column).label(name) if name in _IDS else column


# The columns of an entry, in its order, and of an item with everything that a StoredItem has
ENTRY_COLUMNS: Final = tuple(map(_column, _ENTRY))
STORED_COLUMNS: Final = (*ENTRY_COLUMNS, *map(_column, _STORED))


@cache
def entries_of(*, latest: bool = False) -> Statement:
    """The items of one branch after one position and up to another, as the formats read them."""
    statement = sa.select(*ENTRY_COLUMNS).where(*between(items, branch="branch")).order_by(items.c.position)
    return Statement(as_committed(statement) if latest else statement, text_as_bytes=True)


@cache
def page_before(*, scoped: bool) -> Statement:
    """The last items of one branch after one position and up to another, the newest first, with the revision.

    The revision is the conversation's, NULL if the conversation is not visible.
    """
    statement = sa.select(*ENTRY_COLUMNS, revision_of(scoped=scoped)).where(*between(items, branch="branch"))
    return Statement(statement.order_by(items.c.position.desc()).limit(sa.bindparam("limit")), text_as_bytes=True)


def revision_of(*, scoped: bool) -> Any:
    """The revision of the conversation, NULL where that is not visible."""
    return sa.select(conversations.c.revision).where(*itself(scoped=scoped)).scalar_subquery()


@cache
def earlier_with_call_ids() -> sa.Select[Any]:
    """Items between two positions that have one of several call ids: what says which output answers which call."""
    table = items.c
    columns = (table.position, table.type, table.turn, table.seen, table.call_id, table.branch)
    where = [*between(items), table.call_hash.in_(sa.bindparam("hashes", expanding=True))]
    return sa.select(*columns).where(*where).order_by(table.position)


@lru_cache(maxsize=256)
def turns_in(ranges: int, aside: Collection[str]) -> sa.Select[Any]:
    """How many turns begin in some ranges: with a user's message behind another author's, or none.

    Items of the types `aside` have no author. Parameters as of `in_ranges`.
    """
    table = items.c
    said = sa.case((sa.and_(table.type == "message", table.role == "user"), 1), else_=0)
    before = sa.func.lag(said).over(order_by=table.position)
    where = [*of_conversation(items), in_ranges(ranges), table.type.not_in(sorted(aside))]
    each = sa.select(said.label("said"), sa.func.coalesce(before, 0).label("before")).where(*where).subquery()
    return sa.select(sa.func.count()).where(each.c.said == 1, each.c.before == 0)


@cache
def texts_at() -> sa.Select[Any]:
    """The JSON texts of items at some positions, with what is needed to read them."""
    table = items.c
    where = [*of_conversation(items), table.position.in_(sa.bindparam("positions", expanding=True))]
    return sa.select(table.position, table.type, table.origin, table.payload, table.rest, table.codec).where(*where)


@cache
def first_positions() -> sa.Select[Any]:
    """Where each branch's own items begin after a position."""
    where = [*of_conversation(items), items.c.position > sa.bindparam("after")]
    return (
        sa.select(items.c.branch, sa.func.min(items.c.position).label("first")).where(*where).group_by(items.c.branch)
    )


@cache
def stored_items_of(*, descending: bool, scoped: bool, ranges: int = 0) -> Statement:
    """A page of one branch's items between two positions (exclusive, inclusive), with the columns of a StoredItem.

    The last column is the revision of the conversation, NULL where that is not visible. `ranges`: of the items in so
    many ranges, with the parameters of `in_ranges`.
    """
    order = items.c.position.desc() if descending else items.c.position
    where = [*of_conversation(items), in_ranges(ranges)] if ranges else between(items, branch="branch")
    chosen = sa.select(*STORED_COLUMNS, revision_of(scoped=scoped)).where(*where)
    return Statement(chosen.order_by(order).limit(sa.bindparam("limit")), text_as_bytes=True)


@cache
def stored_item_of(*, latest: bool = False) -> Statement:
    """One item by its position; `latest`: see `as_committed`."""
    chosen = sa.select(*STORED_COLUMNS).where(*of_conversation(items, position="position"))
    return Statement(as_committed(chosen) if latest else chosen, text_as_bytes=True)


@cache
def last_said(types: Collection[str], roles: Collection[str]) -> sa.Select[Any]:
    """The last item of a branch in a range that is not of these types and roles.

    With why the response that it is of is incomplete.
    """
    table, answers = items.c, responses.c
    said = [table.type.not_in(types), sa.or_(table.role.is_(None), table.role.not_in(roles))]
    details = sa.select(answers.incomplete_details).where(
        *of_conversation(responses), answers.from_position == table.turn
    )
    newest = details.order_by(answers.number.desc()).limit(1).scalar_subquery().label("incomplete_details")
    found = sa.select(table.position, table.type, table.role, table.seen, table.turn, newest)
    found = found.where(*between(items, branch="branch"), *said)
    return found.order_by(table.position.desc()).limit(1)


@cache
def with_call_id(types: Collection[str]) -> Statement:
    """The items of these types with one call id, on all branches, each with its own; read under the lock."""
    where = [*of_conversation(items, call_hash="hash"), is_of_types(types)]
    statement = sa.select(*ENTRY_COLUMNS, items.c.branch).where(*where).order_by(items.c.position)
    return Statement(as_committed(statement), text_as_bytes=True)


@cache
def entry_at() -> Statement:
    """The item at a position, with its branch; read under the lock."""
    statement = sa.select(*ENTRY_COLUMNS, items.c.branch).where(*of_conversation(items, position="position"))
    return Statement(as_committed(statement), text_as_bytes=True)


@cache
def places_of_id(*, descending: bool) -> sa.Select[Any]:
    """Where a conversation has items with an id of their own, after one position and up to another."""
    order = items.c.position.desc() if descending else items.c.position
    chosen = sa.select(items.c.position, items.c.branch).where(*between(items, item_hash="hash"), items.c.branch >= 0)
    return chosen.order_by(order).limit(sa.bindparam("limit"))


@cache
def first_places_of_ids() -> sa.Select[Any]:
    """Where a conversation first has an item with each of several ids."""
    where = [
        *of_conversation(items),
        items.c.item_hash.in_(sa.bindparam("hashes", expanding=True)),
        items.c.branch >= 0,
    ]
    return sa.select(items.c.item_hash, sa.func.min(items.c.position)).where(*where).group_by(items.c.item_hash)


@cache
def place_at() -> sa.Select[Any]:
    """The type and the branch of the item at a position."""
    where = [*of_conversation(items, position="position"), items.c.branch >= 0]
    return sa.select(items.c.type, items.c.branch).where(*where)


@cache
def conversation_with_id(*, scoped: bool) -> sa.Select[Any]:
    """The newest visible conversation that has an item with an id of its own."""
    joined = items.join(
        conversations,
        (conversations.c.tenant_id == items.c.tenant_id) & (conversations.c.id == items.c.conversation_id),
    )
    where = [*of_tenant(items, item_hash="hash"), items.c.branch >= 0, *visible(scoped=scoped)]
    return (
        sa.select(items.c.conversation_id)
        .select_from(joined)
        .where(*where)
        .order_by(items.c.conversation_id.desc())
        .limit(1)
    )


@cache
def facts_at() -> sa.Select[Any]:
    """Which item is at a position."""
    table = items.c
    columns = (table.branch, table.turn, table.type, table.role)
    return sa.select(*columns).where(*of_conversation(items, position="position"))


@cache
def last_question() -> sa.Select[Any]:
    """The last message of a user on a branch, in a range."""
    table = items.c
    where = [*between(items, branch="branch"), table.type == "message", table.role == "user"]
    return sa.select(table.position).where(*where).order_by(table.position.desc()).limit(1)


@cache
def first_output(types: Collection[str], roles: Collection[str]) -> sa.Select[Any]:
    """The first item on a branch, in a range, that is not of these types and roles."""
    table = items.c
    where = [*between(items, branch="branch"), table.type.not_in(types)]
    where.append(sa.or_(table.role.is_(None), table.role.not_in(roles)))
    return sa.select(table.position).where(*where).order_by(table.position).limit(1)


@cache
def forks() -> sa.Select[Any]:
    """The branches of a conversation: with the first of their own items, and what else follows where they fork off."""
    own, before, behind = items.alias(), items.alias(), items.alias()

    def first(table: sa.FromClause, *where: sa.ColumnElement[bool]) -> sa.ScalarSelect[Any]:
        same = [table.c.tenant_id == sa.bindparam("tenant"), table.c.conversation_id == sa.bindparam("key")]
        found = sa.select(table.c.position).where(*same, *where).order_by(table.c.position).limit(1)
        return found.correlate(branches).scalar_subquery()

    trunk = sa.select(before.c.branch).where(
        before.c.tenant_id == sa.bindparam("tenant"),
        before.c.conversation_id == sa.bindparam("key"),
        before.c.position == branches.c.fork_position,
    )
    on_trunk = behind.c.branch == sa.func.coalesce(trunk.correlate(branches).scalar_subquery(), 0)
    columns = (
        branches,
        first(own, own.c.branch == branches.c.number, own.c.position >= branches.c.from_position).label("first"),
        first(behind, on_trunk, behind.c.position > branches.c.fork_position).label("other"),
    )
    return sa.select(*columns).where(*of_conversation(branches)).order_by(branches.c.number)


@cache
def places() -> sa.Select[Any]:
    """Where the items of a conversation are: branch and position, in order."""
    return sa.select(items.c.branch, items.c.position).where(*of_conversation(items)).order_by(items.c.position)


@cache
def position_of() -> sa.Select[Any]:
    """An item of a branch itself at a position, if there is one."""
    return sa.select(items.c.position).where(*of_conversation(items, branch="branch", position="position"))


@cache
def last_positions() -> sa.Select[Any]:
    """The last positions of a branch itself between two positions (exclusive, inclusive), from the last one on."""
    found = sa.select(items.c.position).where(*between(items, branch="branch")).order_by(items.c.position.desc())
    return as_committed(found.limit(sa.bindparam("limit")))


# Media

_JOINED: Final = item_blobs.join(
    blobs, (blobs.c.tenant_id == item_blobs.c.tenant_id) & (blobs.c.hash == item_blobs.c.hash)
)
_PLACE: Final = (item_blobs.c.position, item_blobs.c.part, item_blobs.c.splice_at, item_blobs.c.hash)
_CONTENT: Final = (blobs.c.content, blobs.c.location)


@cache
def blobs_of(*, latest: bool = False) -> sa.Select[Any]:
    """The media of items in a range of positions, in the order in which it is put back."""
    statement = _in_order(sa.select(*_PLACE, *_CONTENT).select_from(_JOINED))
    return as_committed(statement) if latest else statement


@cache
def references_of(*, latest: bool = False) -> sa.Select[Any]:
    """The same without the media themselves: where they belong, and their hashes."""
    statement = _in_order(sa.select(*_PLACE))
    return as_committed(statement) if latest else statement


@cache
def contents_of() -> sa.Select[Any]:
    """The media of several hashes."""
    return sa.select(blobs.c.hash, *_CONTENT).where(*_of_hashes())


@cache
def places_of(*, latest: bool = False) -> sa.Select[Any]:
    """Where the media of several hashes are kept."""
    statement = sa.select(blobs.c.hash, blobs.c.location).where(*_of_hashes())
    return as_committed(statement) if latest else statement


@cache
def media_of(*, scoped: bool, own: bool = False) -> sa.Select[Any]:
    """The media of a hash, if an item has them that a branch of a visible conversation has, or as a user's upload.

    `uploaded_type` is what was said with the upload. Uploads count until they expire, in a scoped store its user's.
    With `own`, nothing else than uploads of the user `uploader` counts.
    """
    link, item, owner = item_blobs.c, items.c, conversations.c
    is_item = sa.and_(
        item.tenant_id == link.tenant_id, item.conversation_id == link.conversation_id, item.position == link.position
    )
    is_owner = sa.and_(owner.tenant_id == link.tenant_id, owner.id == link.conversation_id)
    used = item_blobs.join(items, is_item).join(conversations, is_owner)
    is_used = sa.select(link.hash).select_from(used).where(*of_tenant(item_blobs, hash="hash"), item.branch >= 0)
    of_user = {"user_id": "uploader"} if own else {"user_id": "user"} if scoped else {}
    are_uploads = [*of_tenant(uploads, hash="hash", **of_user), uploads.c.expires_at > sa.bindparam("now")]
    uploaded_type = sa.select(uploads.c.media_type).where(*are_uploads).order_by(uploads.c.user_id).limit(1)
    is_uploaded = sa.select(uploads.c.hash).where(*are_uploads).exists()
    columns = (blobs.c.hash, blobs.c.media_type, uploaded_type.scalar_subquery().label("uploaded_type"), blobs.c.size)
    counts = is_uploaded if own else sa.or_(is_uploaded, is_used.where(*visible(scoped=scoped)).exists())
    return sa.select(*columns, *_CONTENT).where(*of_tenant(blobs, hash="hash"), counts)


def _of_hashes() -> list[sa.ColumnElement[bool]]:
    return [*of_tenant(blobs), blobs.c.hash.in_(sa.bindparam("hashes", expanding=True))]


def _in_order(statement: sa.Select[Any]) -> sa.Select[Any]:
    order = (item_blobs.c.position, item_blobs.c.part, item_blobs.c.ordinal)
    return statement.where(*between(item_blobs)).order_by(*order)


def is_of_types(types: Collection[str]) -> sa.ColumnElement[bool]:
    """A condition for items of some types; a `Statement` takes no lists."""
    return sa.or_(*(items.c.type == name for name in sorted(types)))


def in_ranges(count: int) -> sa.ColumnElement[bool]:
    """A condition for items in some ranges, with the parameters branch_0, after_0, upto_0, and so on."""
    table = items.c
    parts = (
        sa.and_(
            table.branch == sa.bindparam(f"branch_{number}"),
            table.position > sa.bindparam(f"after_{number}"),
            table.position <= sa.bindparam(f"upto_{number}"),
        )
        for number in range(count)
    )
    return sa.or_(sa.false(), *parts)


def between(table: sa.Table, **equal: str) -> list[sa.ColumnElement[bool]]:
    """Conditions for rows of a conversation after one position and up to another."""
    position = table.c.position
    return [*of_conversation(table, **equal), position > sa.bindparam("after"), position <= sa.bindparam("upto")]
