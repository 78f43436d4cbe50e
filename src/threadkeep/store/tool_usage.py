"""How often tools were called, and how that went."""

from __future__ import annotations

from datetime import date
from typing import Any

from threadkeep.db.queries import tool_calls
from threadkeep.domain.reports import ToolUsage
from threadkeep.store.refs import Scope
from threadkeep.store.transactions import Transactions
from threadkeep.store.usage import moment_of
from threadkeep.store.validation import date_or_moment, optional_identifier, page_size, time_zone


def tool_usage(
    transactions: Transactions,
    scope: Scope,
    *,
    since: date | None = None,
    until: date | None = None,
    tz: str = "UTC",
    user_id: str | None = None,
    limit: int | None = None,
) -> list[ToolUsage]:
    """Calls by tool, the most called first; those of deleted conversations are gone. See `Store.tool_usage`.

    Raises:
        InvalidOption: a filter or the limit cannot be used.
    """
    zone = time_zone(tz)
    filters: dict[str, Any] = {
        "since": moment_of(date_or_moment("since", since), zone),
        "until": moment_of(date_or_moment("until", until), zone),
        "user_id": optional_identifier("user_id", user_id),
        "limit": None if limit is None else page_size(limit),
    }
    parameters = scope.parameters(**{name: value for name, value in filters.items() if value is not None})
    rows = transactions.read(
        lambda connection: connection.execute(
            tool_calls.tool_usage(
                connection.dialect.name,
                scoped=scope.user is not None,
                since="since" in parameters,
                until="until" in parameters,
                of_user="user_id" in parameters,
                limited="limit" in parameters,
            ),
            parameters,
        ).all()
    )
    return [ToolUsage(row.name, row.calls, row.unanswered, row.failed) for row in rows]
