"""How much is stored (sizes are measured: every row is looked at), and how often tools were called."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from sqlalchemy import ColumnElement, Connection, LargeBinary, Select, cast, func, select

from threadkeep.db.queries import tool_calls
from threadkeep.db.queries.conversations import ACTIVE, ARCHIVED, DELETED
from threadkeep.db.tables import blobs, branches, conversations, items, response_bodies, responses, usage_records
from threadkeep.domain.ids import public_id_text
from threadkeep.domain.reports import LargeConversation, Statistics, ToolUsage
from threadkeep.store.refs import Scope
from threadkeep.store.transactions import Transactions
from threadkeep.store.usage import moment_of
from threadkeep.store.validation import date_or_moment, optional_identifier, page_size, time_zone


def statistics(transactions: Transactions, scope: Scope, largest: int) -> Statistics:
    """What the tenant, or one user of it, holds, and its `largest` conversations."""
    count = page_size(largest, "largest")
    return transactions.read(lambda connection: _measure(connection, scope, count))


def _measure(connection: Connection, scope: Scope, largest: int) -> Statistics:
    table = conversations.c
    counts = connection.execute(select(table.status, func.count()).where(*_visible(scope)).group_by(table.status)).all()
    by_status = {row[0]: row[1] for row in counts}
    sizes = _item_sizes(connection, scope)
    items_stored, item_bytes = connection.execute(select(func.sum(sizes.c.count), func.sum(sizes.c.bytes))).one()
    ledger = select(func.count()).select_from(usage_records).where(usage_records.c.tenant_id == scope.tenant)
    if scope.user is not None:
        ledger = ledger.where(usage_records.c.user_id == scope.user)
    media: Any = (None, None)
    if scope.user is None:
        size = func.coalesce(func.sum(blobs.c.size), 0)
        media = connection.execute(select(func.count(), size).where(blobs.c.tenant_id == scope.tenant)).one()
    return Statistics(
        active=by_status.get(ACTIVE, 0),
        archived=by_status.get(ARCHIVED, 0),
        branches=_integer(connection, _owned(scope, branches, func.count())),
        items=int(items_stored or 0),
        item_bytes=int(item_bytes or 0),
        responses=_integer(connection, _owned(scope, responses, func.count())),
        body_bytes=_integer(connection, _owned(scope, response_bodies, func.sum(func.length(response_bodies.c.body)))),
        media=media[0],
        media_bytes=None if media[1] is None else int(media[1]),
        attempts=_integer(connection, ledger),
        largest=_largest(connection, scope, sizes, largest),
    )


def _visible(scope: Scope) -> list[ColumnElement[bool]]:
    table = conversations.c
    conditions = [table.tenant_id == scope.tenant, table.status != DELETED]
    return conditions if scope.user is None else [*conditions, table.user_id == scope.user]


def _owned(scope: Scope, table: Any, *columns: Any) -> Select[Any]:
    """Columns of rows that belong to conversations which are not deleted."""
    statement = select(*columns).select_from(
        table.join(
            conversations,
            (conversations.c.tenant_id == table.c.tenant_id) & (conversations.c.id == table.c.conversation_id),
        )
    )
    return statement.where(*_visible(scope))


def _item_sizes(connection: Connection, scope: Scope) -> Any:
    """The bytes of each conversation's items."""

    def size(column: Any) -> Any:
        is_sqlite = connection.dialect.name == "sqlite"  # where length() of a text counts characters
        return func.coalesce(func.length(cast(column, LargeBinary)) if is_sqlite else func.octet_length(column), 0)

    total = func.sum(size(items.c.payload) + size(items.c.rest) + size(items.c.given)).label("bytes")
    statement = _owned(scope, items, items.c.conversation_id, func.count().label("count"), total)
    return statement.group_by(items.c.conversation_id).subquery("sizes")


def _integer(connection: Connection, statement: Select[Any]) -> int:
    return int(connection.execute(statement).scalar() or 0)


def _largest(connection: Connection, scope: Scope, sizes: Any, limit: int) -> list[LargeConversation]:
    table = conversations.c
    rows = connection.execute(
        select(table.public_id, table.user_id, table.title, sizes.c.count, sizes.c.bytes)
        .where(table.id == sizes.c.conversation_id, *_visible(scope))
        .order_by(sizes.c.bytes.desc(), table.id)
        .limit(limit)
    )
    return [
        LargeConversation(public_id_text(bytes(row[0])), row.user_id, row.title, row[3], int(row[4])) for row in rows
    ]


def tool_usage(
    transactions: Transactions, scope: Scope, since: date | None, until: date | None, tz: str, user_id: str | None,
    limit: int | None,
) -> list[ToolUsage]:  # fmt: skip
    """Calls by tool, the most called first; those of deleted conversations are gone. See `Store.tool_usage`."""
    zone = time_zone(tz)
    filters: dict[str, Any] = {
        "since": moment_of(date_or_moment("since", since), zone),
        "until": moment_of(date_or_moment("until", until), zone),
        "user_id": optional_identifier("user_id", user_id),
        "limit": None if limit is None else page_size(limit),
    }
    parameters = scope.parameters(**{name: value for name, value in filters.items() if value is not None})

    def read(connection: Connection) -> Sequence[Any]:
        statement = tool_calls.tool_usage(
            connection.dialect.name, scoped=scope.user is not None, since="since" in parameters,
            until="until" in parameters, of_user="user_id" in parameters, limited="limit" in parameters,
        )  # fmt: skip
        return connection.execute(statement, parameters).all()

    return [ToolUsage(row.name, row.calls, row.unanswered, row.failed) for row in transactions.read(read)]
