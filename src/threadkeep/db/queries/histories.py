"""Statements that read a conversation and what is new of its items, as of one moment: no item is missed.

Statements that read a conversation and the packed columns of its items: the way that most requests go.

SQLite joins the texts of all items, PostgreSQL returns them in rows. MySQL packs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from threadkeep.db.backends import backend_of
from threadkeep.db.driver import Row, RowReader, Statement
from threadkeep.db.functions import as_committed, byte_size
from threadkeep.db.models import conversations, item, items
from threadkeep.db.queries.conversations import DELETED, itself, of_conversation, of_tenant, visible
from threadkeep.db.queries.items import ENTRY_COLUMNS, in_ranges, is_of_types

HEAD: Final = -1  # in place of a position: the row is that of the conversation


@cache
def history_after(*, scoped: bool) -> Statement:
    """The same with the columns of entries.

    The former stand in a row of their own in front (see `HEAD`), where `turn` and `seen` of items stand: as columns of
    each item they take a sixth of a read.
    """
    where = [*of_conversation(items, branch="branch"), items.c.position > sa.bindparam("after")]
    both = sa.union_all(_head(ENTRY_COLUMNS, scoped=scoped), sa.select(*ENTRY_COLUMNS).where(*where))
    return Statement(both.order_by(sa.literal_column("1")), text_as_bytes=True)


def _head(columns: Sequence[Any], *, scoped: bool) -> sa.Select[Any]:
    """The row of a conversation among item rows, with its revision in `turn` and its next position in `seen`."""
    named = {
        "position": sa.literal_column(str(HEAD)),
        "turn": conversations.c.revision,
        "seen": conversations.c.next_position,
    }
    return sa.select(*(named.get(column.name, sa.null()).label(column.name) for column in columns)).where(
        *itself(scoped=scoped)
    )


@cache
def locked_history_after(*, scoped: bool) -> Statement:
    """The same for MySQL, where each statement that sees what is latest locks: the two are columns of each item.

    One row without any items.
    """
    table = conversations.c
    of_it = sa.and_(items.c.tenant_id == table.tenant_id, items.c.conversation_id == table.id)
    on_branch = sa.and_(of_it, items.c.branch == sa.bindparam("branch"), items.c.position > sa.bindparam("after"))
    joined = conversations.outerjoin(items, on_branch)
    columns = [*ENTRY_COLUMNS, table.revision, table.next_position]
    statement: sa.Select[Any] = sa.select(*columns).select_from(joined).where(*itself(scoped=scoped))
    return Statement(as_committed(statement.order_by(items.c.position)))


@cache
def marks_of(*, scoped: bool) -> Statement:
    """The items of a conversation, on all branches, that requests may need from anywhere; each with its branch.

    The row of the conversation is among them, as above. In no order: SQLite would read the primary key for it. It takes
    the index only for a condition spelled like the index's, and prefers it only for the one on its third column.
    """
    columns = [*ENTRY_COLUMNS, items.c.branch]
    of_types = "type IN ('message', 'compaction', 'compaction_undone')"
    where = [*of_conversation(items), sa.literal_column(f"({item.MARKS})"), sa.literal_column(of_types)]
    both = sa.union_all(_head(columns, scoped=scoped), sa.select(*columns).where(*where))
    return Statement(both, text_as_bytes=True)


@lru_cache(maxsize=256)
def tail_of(types: Collection[str], ranges: int, *, scoped: bool) -> Statement:
    """The items of these types in some ranges behind what the newest response there was shown; and that response.

    The row of the conversation comes first, as above. All items behind that position are looked at, but few are
    returned; with their contents, as long as these have `most` bytes together. Parameters as of `in_ranges`.
    """
    here = [*of_conversation(items), in_ranges(ranges)]
    shown = sa.select(items.c.seen).where(*here, items.c.seen.is_not(None)).order_by(items.c.position.desc()).limit(1)
    behind = items.c.position > sa.func.coalesce(shown.correlate(None).scalar_subquery(), -1)
    wanted = sa.or_(is_of_types(types), items.c.seen.is_not(None))
    both = sa.union_all(_head(ENTRY_COLUMNS, scoped=scoped), sa.select(*_bounded()).where(*here, behind, wanted))
    return Statement(both.order_by(sa.literal_column("1")), text_as_bytes=True)


def _bounded() -> list[Any]:
    """The columns of entries, without contents from where these have more than `most` bytes.

    Outputs that name their tool in place of a call always have them.
    """
    size = sa.func.coalesce(byte_size(items.c.payload), 0) + sa.func.coalesce(byte_size(items.c.rest), 0)
    has_room = sa.or_(
        sa.func.sum(size).over(order_by=items.c.position) <= sa.bindparam("most"), items.c.call_id.is_(None)
    )
    left_out: dict[str, Any] = {"payload": sa.null(), "rest": sa.null(), "codec": 0}
    return [
        sa.case((has_room, column), else_=left_out[column.name]).label(column.name)
        if column.name in left_out
        else column
        for column in ENTRY_COLUMNS
    ]


# What a request needs to know of its conversation.
STATE_COLUMNS: Final = tuple(conversations.c[
    "id", "public_id", "config_hash", "tool_set_hash", "active_branch", "next_position", "head_position", "lineage",
    "revision",
])  # fmt: skip
STATE_READER: Final = RowReader(STATE_COLUMNS)

# of a conversation that is its items on branch 0, none of which was removed
_IS_WHOLE: Final = "active_branch = 0 AND lineage IS NULL"

_NUMBERS: Final = ("next_position", "head_position", "revision")

SEPARATOR: Final = "\n"  # between texts that are joined: JSON text has none, and ids hardly ever
_HASH_DIGITS: Final = 64


class PackedItems(NamedTuple):
    """What was asked for of a conversation, and its items.

    Attributes:
        values: what was asked for; None if the conversation is not visible.
        item_count: how many items there are.
        texts: what `packed`, `payload` and `rest` of these have, each joined, or a value for each item.
        is_joined: whether they are joined.
    """

    values: Row | None
    item_count: int = 0
    texts: tuple[Any, ...] = ()
    is_joined: bool = False


MISSING: Final = PackedItems(None)


def read_packed_history(
    connection: sa.Connection, parameters: Mapping[str, Any], *, scoped: bool
) -> PackedItems | None:
    """Read the revision and next position of a conversation, and its items on one branch after a position.

    None if that takes the columns of entries.
    """
    packing = backend_of(connection).packing
    if packing == "rows":
        rows = packed_history(scoped=scoped).fetch_all(connection, parameters)
        return _of_rows(rows, [int(number) for number in rows[0][1].split(" ")]) if _has_head(rows) else MISSING
    return _joined_items(joined_history(scoped=scoped), connection, parameters, 2) if packing else None


def read_packed_state(connection: sa.Connection, parameters: Mapping[str, Any], *, scoped: bool) -> PackedItems | None:
    """The same with the `STATE_COLUMNS` of the conversation with a public id, if it is its items on branch 0."""
    packing = backend_of(connection).packing
    if packing == "rows":
        rows = packed_state(scoped=scoped).fetch_all(connection, parameters)
        return _of_rows(rows, _state_of(rows[0], parameters["public_id"])) if _has_head(rows) else MISSING
    return _joined_items(joined_state(scoped=scoped), connection, parameters, len(STATE_COLUMNS)) if packing else None


def _has_head(rows: Sequence[Row]) -> bool:
    return bool(rows) and rows[0][0] == HEAD


def _of_rows(rows: Sequence[Row], values: Sequence[Any]) -> PackedItems:
    _, *texts = zip(*rows[1:], strict=True) if len(rows) > 1 else ((),)
    return PackedItems(tuple(values), len(rows) - 1, tuple(texts))


def _joined_items(
    statement: Statement, connection: sa.Connection, parameters: Mapping[str, Any], width: int
) -> PackedItems | None:
    """The only row; None where its texts are longer together than a value of SQLite can be."""
    try:
        rows = statement.fetch_all(connection, parameters)
    except DBAPIError as error:
        if "too big" in str(error.orig):
            return None
        raise
    if not rows or rows[0][0] is None:
        return MISSING
    count, *texts = rows[0][width:]
    return PackedItems(rows[0][:width], count, tuple(texts), is_joined=True)


def _state_of(head: Row, public_id: bytes) -> Row:
    """The `STATE_COLUMNS`, of the row in front of the items."""
    _, numbers, _, digits = head
    key, next_position, head_position, revision = map(int, numbers.split(" "))
    hashes = digits.decode()
    config, tools = bytes.fromhex(hashes[:_HASH_DIGITS]), bytes.fromhex(hashes[_HASH_DIGITS:]) or None
    return key, public_id, config, tools, 0, next_position, head_position, None, revision


# No ORDER BY, which would take a subquery and twice the time: items come in the order of the index.
_TEXTS: Final = f"""count(i.packed), group_concat(i.packed, '{SEPARATOR}'),
CAST(group_concat(i.payload, '{SEPARATOR}') AS BLOB), CAST(group_concat(i.rest, '{SEPARATOR}') AS BLOB)"""
_JOINED: Final = f"""
FROM {conversations.name} c LEFT JOIN {items.name} i INDEXED BY sqlite_autoindex_{items.name}_1
ON i.tenant_id = :tenant AND i.conversation_id = c.id AND i.branch = :branch AND i.position > :after
WHERE c.tenant_id = :tenant AND c.status <> '{DELETED}'"""


@cache
def joined_history(*, scoped: bool) -> Statement:
    """On SQLite: a conversation and its items on one branch after a position, in one row.

    The columns are the revision (NULL if it is not visible) and the next position, the number of items, and what
    `packed`, `payload` and `rest` of these have, joined; the two latter as bytes. To make Python objects of each row
    and column takes several times as long as to read them.
    """
    return Statement(_joined("c.revision, c.next_position", "c.id = :key", scoped=scoped))


@cache
def joined_state(*, scoped: bool) -> Statement:
    """The same of the conversation with a public id, with all of its `STATE_COLUMNS` in front.

    As if it did not exist, where another branch is active or something was removed.
    """
    columns = ", ".join(f"c.{column.name}" for column in STATE_COLUMNS)
    return Statement(_joined(columns, f"c.public_id = :public_id AND {_IS_WHOLE}", scoped=scoped))


def _joined(columns: str, condition: str, *, scoped: bool) -> sa.TextClause:
    statement = f"SELECT {columns}, {_TEXTS} {_JOINED} AND {condition}"
    if not scoped:
        return sa.text(statement)
    return sa.text(f"{statement} AND c.user_id = :user").bindparams(
        sa.bindparam("user", type_=conversations.c.user_id.type)
    )


@cache
def packed_history(*, scoped: bool) -> Statement:
    """On PostgreSQL: a conversation's revision and next position, then its items on one branch after a position.

    The former stand in a row of their own in front (see `HEAD`), in `packed`. One that joins the texts of all items
    takes PostgreSQL longer.
    """
    table = items.c
    numbers = sa.func.concat_ws(" ", conversations.c.revision, conversations.c.next_position)
    head = sa.select(
        sa.literal_column(str(HEAD)).label("position"),
        _varchar(numbers),
        sa.null().label("payload"),
        sa.null().label("rest"),
    ).where(*itself(scoped=scoped))
    where = [*of_conversation(items, branch="branch"), table.position > sa.bindparam("after")]
    rows = sa.select(table.position, _varchar(table.packed), table.payload, table.rest).where(*where)
    return Statement(sa.union_all(head, rows).order_by(sa.literal_column("1")), text_as_bytes=True)


@cache
def packed_state(*, scoped: bool) -> Statement:
    """On PostgreSQL: the same of the conversation with a public id, as `joined_state` says.

    The row in front has its numbers in `packed`: id, next position, head and revision; and the hashes of its options
    and tools in `rest`, in hexadecimal digits and joined.
    """
    table, row = conversations.c, items.c
    where = [*of_tenant(conversations, public_id="public_id"), *visible(scoped=scoped), sa.literal_column(_IS_WHOLE)]
    columns = [table[name] for name in ("id", *_NUMBERS, "config_hash", "tool_set_hash")]
    one = sa.select(*columns).where(*where).cte("one")
    hashes = sa.func.concat(*(sa.func.encode(one.c[name], "hex") for name in ("config_hash", "tool_set_hash")))
    numbers = sa.func.concat_ws(" ", one.c.id, *(one.c[name] for name in _NUMBERS))
    head = sa.select(
        sa.literal_column(str(HEAD)).label("position"), _varchar(numbers), sa.null().label("payload"), hashes
    )
    # No join: a plan that was made while there were hardly any rows would go on to read all items of the tenant for it.
    key = sa.select(one.c.id).scalar_subquery()
    where = [row.tenant_id == sa.bindparam("tenant"), row.conversation_id == key, row.branch == 0]
    rows = sa.select(row.position, _varchar(row.packed), row.payload, row.rest).where(
        *where, row.position > sa.bindparam("after")
    )
    return Statement(sa.union_all(head, rows).order_by(sa.literal_column("1")), text_as_bytes=True)


def _varchar(column: Any) -> Any:
    """Text that is returned as text, where texts come as bytes."""
    return sa.cast(column, sa.String)
