"""Which rows and columns are removed with a user or a conversation, as the columns of the models declare (`db.base`).

`Rows` are found and changed in batches; see `batches`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from threadkeep.db import backends, base, models
from threadkeep.domain.jsontext import JsonObject, loads_stored
from threadkeep.store.work import erasures, pacing, refs

# These are removed with what they belong to: the index of the search, and media
_WITH_OTHERS: Final = {models.search_documents, models.item_blobs, models.uploads}


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table that are deleted, or of which some columns are cleared.

    Attributes:
        table: the table.
        which: the condition that they meet, besides their tenant's; they do not meet it any more afterwards.
        cleared: the columns that are set to NULL; none: the rows are deleted.
        key: the columns by which they are changed: one, or a conversation and a number. By default, those of the
            primary key without the tenant, and without a user.
        name: what they are called for `progress`.
        is_indexed: whether an index leads to them; else all are looked at once, in the order of their key.
    """

    table: sa.Table
    which: sa.ColumnElement[bool]
    cleared: Sequence[sa.Column[Any]] = ()
    key: Sequence[sa.Column[Any]] = ()
    name: str = ""
    is_indexed: bool = True

    @property
    def _key(self) -> Sequence[sa.Column[Any]]:
        users = base.columns_holding(self.table, "user")
        key = [one for one in self.table.primary_key.columns if one.name != "tenant_id" and one not in users]
        return self.key or key

    def find(self, connection: sa.Connection, tenant: int, limit: int, after: Any = None) -> Sequence[Any]:
        """Return the keys of some rows; with `after`, in order, behind one, or from the first one on."""
        key, of_tenant = self._key, self.table.c.tenant_id == tenant
        statement = sa.select(*key).where(of_tenant, self.which).limit(limit)
        if not self.is_indexed:
            statement = statement.order_by(*key)
        if after is not None and len(key) == 1:
            statement = statement.where(key[0] > after)
        elif after is not None:
            (first, second), (conversation, number) = key, after
            statement = statement.where(first >= conversation, sa.or_(first > conversation, second > number))
        rows = connection.execute(statement).all()
        return [row[0] for row in rows] if len(key) == 1 else [(row[0], row[1]) for row in rows]

    def change(self, connection: sa.Connection, tenant: int, pace: pacing.Pace, keys: Sequence[Any]) -> pacing.Done:
        """Delete or clear those rows among these that still meet the condition."""
        key: Any = self._key
        change = sa.update(self.table).values({one.name: None for one in self.cleared})
        statement: Any = (change if self.cleared else sa.delete(self.table)).where(self.which)
        backend = backends.backend_of(connection)

        def change_some(some: Sequence[Any]) -> int:
            if len(key) > 1:
                return backend.change_places(connection, statement, key[1], tenant, some)
            these = statement.where(self.table.c.tenant_id == tenant, key[0].in_(some))
            return int(connection.execute(these).rowcount)

        return pace.change(keys, change_some)

    def count(self, connection: sa.Connection, tenant: int) -> int:
        """Return how many there are."""
        statement = sa.select(sa.func.count()).where(self.table.c.tenant_id == tenant, self.which)
        return int(connection.execute(statement).scalar_one())


# What belongs to a user


def rows_of_user(user: str) -> Iterator[Rows]:
    """What names a user outside of the user's conversations: rows of the user's own, and columns of others' rows.

    Rows that are no part of a conversation also lose their content.
    """
    for table in models.METADATA.sorted_tables:
        if table is models.conversations or table in _WITH_OTHERS:
            continue
        for column in base.columns_holding(table, "user"):
            content = [] if _is_part(table) else base.columns_holding(table, "content")
            cleared = [] if base.OWNER in column.info else [column, *content]
            is_indexed = any(column.name in index.columns for index in table.indexes)
            name = table.name.removeprefix(base.PREFIX).replace("_", " ")
            yield Rows(table, column == user, cleared, name=name, is_indexed=is_indexed)


def counts_of_user(tenant: int, user: str) -> list[sa.Select[Any]]:
    """Statements that count the rows that name a user, for each table."""
    return [
        sa.select(sa.func.count()).select_from(table).where(table.c.tenant_id == tenant, column == user)
        for table in models.METADATA.sorted_tables
        if table is not models.search_documents  # which name no user as such
        for column in base.columns_holding(table, "user")
    ]


def attempts_of_others(user: str, conversations: Sequence[int]) -> Rows:
    """The provider's data of attempts from before these conversations were the user's."""
    table, data = models.usage_records.c, base.columns_holding(models.usage_records, "content")
    is_of_other = sa.or_(table.user_id.is_(None), table.user_id != user)
    has_data = sa.or_(*(column.is_not(None) for column in data))
    which = table.conversation_id.in_(conversations) & is_of_other & has_data
    return Rows(models.usage_records, which, data, name="attempts of others")


# What belongs to a conversation


def _is_part(table: sa.Table) -> bool:
    """Whether rows go with their conversation: it is in their key, or a foreign key leads to it."""
    parents = {key.referred_table for key in table.foreign_key_constraints}
    return "conversation_id" in table.primary_key.columns or models.conversations in parents


def _order_of(table: sa.Table) -> sa.Column[Any] | None:
    """The column by which the rows of a conversation are removed: the last number of their key, or else a name."""
    key = [column for column in table.primary_key.columns if column.name not in {"tenant_id", "conversation_id"}]
    if "conversation_id" not in table.primary_key.columns:
        return None  # few, and found by an index
    numbers = [column for column in key if isinstance(column.type, sa.Integer)]
    return (numbers or key)[-1]


# The tables whose rows go with their conversation, children first -> by which column
PARTS: Final = {
    table: _order_of(table)
    for table in reversed(models.METADATA.sorted_tables)
    if _is_part(table) and table not in _WITH_OTHERS
}


def of_conversation(table: sa.Table, tenant: int, key: int) -> list[sa.ColumnElement[bool]]:
    """Conditions for the rows of a conversation."""
    return [table.c.tenant_id == tenant, table.c.conversation_id == key]


# Idempotency keys of a tenant whose conversations are gone


def find_unused_keys(connection: sa.Connection, tenant: int, after: str, limit: int) -> tuple[list[str], str | None]:
    """Look at idempotency keys of the tenant under which conversations were created or deleted, behind a key.

    Returns those whose conversations are gone, and where to go on (None: nowhere).
    """
    table = models.appends.c
    conditions = of_conversation(models.appends, tenant, refs.TENANT_WIDE)
    statement = (
        sa.select(table.key, table.outcome).where(*conditions, table.key > after).order_by(table.key).limit(limit)
    )
    rows = connection.execute(statement).all()
    return _unused(connection, tenant, rows), rows[-1].key if len(rows) == limit else None


def delete_unused_keys(connection: sa.Connection, tenant: int, pace: pacing.Pace, keys: Sequence[str]) -> pacing.Done:
    """Remove the keys whose conversations are gone."""
    table = models.appends.c
    conditions = of_conversation(models.appends, tenant, refs.TENANT_WIDE)

    def remove(some: Sequence[str]) -> int:
        rows = connection.execute(sa.select(table.key, table.outcome).where(*conditions, table.key.in_(some))).all()
        unused = _unused(connection, tenant, rows)
        return connection.execute(sa.delete(models.appends).where(*conditions, table.key.in_(unused))).rowcount

    return pace.change(keys, remove)


def _unused(connection: sa.Connection, tenant: int, rows: Sequence[Any]) -> list[str]:
    outcomes = [(row.key, loads_stored(row.outcome, "appends", f"key {row.key!r}")) for row in rows]
    made = [(key, outcome) for key, outcome in outcomes if outcome["kind"] != erasures.ERASED]
    return [key for key, outcome in made if not _names_conversation(connection, tenant, outcome)]


def _names_conversation(connection: sa.Connection, tenant: int, outcome: JsonObject) -> bool:
    """Return whether the conversation of an outcome still exists."""
    texts = [outcome["public_id"]] if "public_id" in outcome else outcome.get("ids", ())
    public_ids = [bytes.fromhex(text.rpartition("_")[2]) for text in texts]
    table = models.conversations.c
    is_named = table.public_id.in_(public_ids) if public_ids else table.id == outcome.get("conversation_id", 0)
    return (
        connection.execute(sa.select(table.id).where(table.tenant_id == tenant, is_named).limit(1)).first() is not None
    )


# Hiding


# Purging


# The change feed
