"""Statements that read a conversation and what is new of its items, as of one moment: no item is missed."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import (
    Select,
    String,
    and_,
    bindparam,
    cast,
    func,
    literal_column,
    null,
    select,
    text,
    union_all,
)

from threadkeep.db.driver import Statement
from threadkeep.db.queries.conversations import DELETED, itself, of_conversation
from threadkeep.db.queries.items import entry_columns, latest_of
from threadkeep.db.tables import conversations, items

HEAD: Final = -1  # in place of a position: the row is that of the conversation
SEPARATOR: Final = "\n"  # between texts that are joined: JSON text has none, and ids hardly ever


# No ORDER BY, which would take a subquery and twice the time: items come in the order of the index.
_JOINED: Final = f"""
SELECT c.revision, c.next_position, count(i.packed), group_concat(i.packed, '{SEPARATOR}'),
CAST(group_concat(i.payload, '{SEPARATOR}') AS BLOB), CAST(group_concat(i.rest, '{SEPARATOR}') AS BLOB)
FROM {conversations.name} c LEFT JOIN {items.name} i INDEXED BY sqlite_autoindex_{items.name}_1
ON i.tenant_id = :tenant AND i.conversation_id = :key AND i.branch = :branch AND i.position > :after
WHERE c.tenant_id = :tenant AND c.id = :key AND c.status <> '{DELETED}'"""  # noqa: S608 - constants


@cache
def joined_history(*, scoped: bool) -> Statement:
    """On SQLite: a conversation and its items on one branch after a position, in one row.

    The columns are the revision (NULL if it is not visible) and the next position, the number of items, and what
    `packed`, `payload` and `rest` of these have, joined; the two latter as bytes. To make Python objects of each row
    and column takes several times as long as to read them.
    """
    return Statement(text(f"{_JOINED} AND c.user_id = :user" if scoped else _JOINED))


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
    named = {
        "position": literal_column(str(HEAD)),
        "turn": conversations.c.revision,
        "seen": conversations.c.next_position,
    }
    head = select(*(named.get(column.name, null()).label(column.name) for column in columns))
    where = [*of_conversation(items, branch="branch"), items.c.position > bindparam("after")]
    both = union_all(head.where(*itself(scoped=scoped)), select(*columns).where(*where))
    return Statement(both.order_by(literal_column("1")), text_as_bytes=True)


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
