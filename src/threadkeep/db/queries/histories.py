"""Statements that read a conversation and what is new of its items, as of one moment: no item is missed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache, lru_cache
from typing import Any, Final

from sqlalchemy import (
    Select,
    String,
    TextClause,
    and_,
    bindparam,
    cast,
    func,
    literal_column,
    null,
    or_,
    select,
    text,
    union_all,
)

from threadkeep.db.driver import RowReader, Statement
from threadkeep.db.queries.conversations import DELETED, itself, of_conversation, of_tenant, visible
from threadkeep.db.queries.items import entry_columns, in_ranges, is_of_types, latest_of
from threadkeep.db.tables import conversations, items
from threadkeep.db.tables.items import MARKS

# What a request needs to know of its conversation.
STATE_COLUMNS: Final = tuple(conversations.c[
    "id", "public_id", "config_hash", "tool_set_hash", "active_branch", "next_position", "head_position", "lineage",
    "revision",
])  # fmt: skip
STATE_READER: Final = RowReader(STATE_COLUMNS)

# of a conversation that is its items on branch 0, none of which was removed
_IS_WHOLE: Final = "active_branch = 0 AND lineage IS NULL"

_NUMBERS: Final = ("next_position", "head_position", "revision")

HEAD: Final = -1  # in place of a position: the row is that of the conversation
SEPARATOR: Final = "\n"  # between texts that are joined: JSON text has none, and ids hardly ever


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


def _joined(columns: str, condition: str, *, scoped: bool) -> TextClause:
    statement = f"SELECT {columns}, {_TEXTS} {_JOINED} AND {condition}"
    if not scoped:
        return text(statement)
    return text(f"{statement} AND c.user_id = :user").bindparams(bindparam("user", type_=conversations.c.user_id.type))


@cache
def packed_history(*, scoped: bool) -> Statement:
    """On PostgreSQL: a conversation's revision and next position, then its items on one branch after a position.

    The former stand in a row of their own in front (see `HEAD`), in `packed`. One that joins the texts of all items
    takes PostgreSQL longer.
    """
    table = items.c
    numbers = func.concat_ws(" ", conversations.c.revision, conversations.c.next_position)
    head = select(
        literal_column(str(HEAD)).label("position"), _varchar(numbers), null().label("payload"), null().label("rest")
    ).where(*itself(scoped=scoped))
    where = [*of_conversation(items, branch="branch"), table.position > bindparam("after")]
    rows = select(table.position, _varchar(table.packed), table.payload, table.rest).where(*where)
    return Statement(union_all(head, rows).order_by(literal_column("1")), text_as_bytes=True)


@cache
def packed_state(*, scoped: bool) -> Statement:
    """On PostgreSQL: the same of the conversation with a public id, as `joined_state` says.

    The row in front has its numbers in `packed`: id, next position, head and revision; and the hashes of its options
    and tools in `rest`, in hexadecimal digits and joined.
    """
    table, row = conversations.c, items.c
    where = [*of_tenant(conversations, public_id="public_id"), *visible(scoped=scoped), literal_column(_IS_WHOLE)]
    columns = [table[name] for name in ("id", *_NUMBERS, "config_hash", "tool_set_hash")]
    one = select(*columns).where(*where).cte("one")
    hashes = func.concat(*(func.encode(one.c[name], "hex") for name in ("config_hash", "tool_set_hash")))
    numbers = func.concat_ws(" ", one.c.id, *(one.c[name] for name in _NUMBERS))
    head = select(literal_column(str(HEAD)).label("position"), _varchar(numbers), null().label("payload"), hashes)
    # No join: a plan that was made while there were hardly any rows would go on to read all items of the tenant for it.
    key = select(one.c.id).scalar_subquery()
    where = [row.tenant_id == bindparam("tenant"), row.conversation_id == key, row.branch == 0]
    rows = select(row.position, _varchar(row.packed), row.payload, row.rest).where(
        *where, row.position > bindparam("after")
    )
    return Statement(union_all(head, rows).order_by(literal_column("1")), text_as_bytes=True)


def _varchar(column: Any) -> Any:
    """Text that is returned as text, where texts come as bytes."""
    return cast(column, String)


@cache
def history_after(dialect: str, *, scoped: bool) -> Statement:
    """The same with the columns of entries.

    The former stand in a row of their own in front (see `HEAD`), where `turn` and `seen` of items stand: as columns of
    each item they take a sixth of a read.
    """
    columns = entry_columns(dialect)
    where = [*of_conversation(items, branch="branch"), items.c.position > bindparam("after")]
    both = union_all(_head(columns, scoped=scoped), select(*columns).where(*where))
    return Statement(both.order_by(literal_column("1")), text_as_bytes=True)


def _head(columns: Sequence[Any], *, scoped: bool) -> Select[Any]:
    """The row of a conversation among those of items, with its revision in `turn` and its next position in `seen`."""
    named = {
        "position": literal_column(str(HEAD)),
        "turn": conversations.c.revision,
        "seen": conversations.c.next_position,
    }
    return select(*(named.get(column.name, null()).label(column.name) for column in columns)).where(
        *itself(scoped=scoped)
    )


@cache
def locked_history_after(dialect: str, *, scoped: bool) -> Statement:
    """The same for MySQL, where each statement that sees what is latest locks: the two are columns of each item.

    One row without any items.
    """
    table = conversations.c
    of_it = and_(items.c.tenant_id == table.tenant_id, items.c.conversation_id == table.id)
    on_branch = and_(of_it, items.c.branch == bindparam("branch"), items.c.position > bindparam("after"))
    joined = conversations.outerjoin(items, on_branch)
    columns = [*entry_columns(dialect), table.revision, table.next_position]
    statement: Select[Any] = select(*columns).select_from(joined).where(*itself(scoped=scoped))
    return Statement(latest_of(statement.order_by(items.c.position), dialect))


@cache
def marks_of(dialect: str, *, scoped: bool) -> Statement:
    """The items of a conversation, on all branches, that requests may need from anywhere; each with its branch.

    The row of the conversation is among them, as above. In no order: SQLite would read the primary key for it. It takes
    the index only for a condition spelled as that of the index, and prefers it only for the one on its third column.
    """
    columns = [*entry_columns(dialect), items.c.branch]
    of_types = "type IN ('message', 'compaction', 'compaction_undone')"
    where = [*of_conversation(items), literal_column(f"({MARKS})"), literal_column(of_types)]
    both = union_all(_head(columns, scoped=scoped), select(*columns).where(*where))
    return Statement(both, text_as_bytes=True)


@lru_cache(maxsize=256)
def tail_of(dialect: str, types: Collection[str], ranges: int, *, scoped: bool) -> Statement:
    """The items of these types in some ranges behind what the newest response there was shown; and that response.

    The row of the conversation comes first, as above. All items behind that position are looked at, but few are
    returned. Parameters as of `in_ranges`.
    """
    here = [*of_conversation(items), in_ranges(ranges)]
    shown = select(items.c.seen).where(*here, items.c.seen.is_not(None)).order_by(items.c.position.desc()).limit(1)
    behind = items.c.position > func.coalesce(shown.correlate(None).scalar_subquery(), -1)
    wanted = or_(is_of_types(types), items.c.seen.is_not(None))
    columns = entry_columns(dialect)
    both = union_all(_head(columns, scoped=scoped), select(*columns).where(*here, behind, wanted))
    return Statement(both.order_by(literal_column("1")), text_as_bytes=True)
