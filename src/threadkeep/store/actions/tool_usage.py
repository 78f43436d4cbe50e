"""How often tools were called, and how that went."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from typing import Any

from sqlalchemy import Connection

from threadkeep.db.queries import tool_calls
from threadkeep.domain.usage import ToolUsage
from threadkeep.store.actions.usage import moment_of
from threadkeep.store.place import Scope


@dataclass(frozen=True, slots=True)
class ToolQuestion:
    """Which calls to count."""

    since: date | datetime | None
    until: date | datetime | None  # exclusive
    zone: tzinfo
    user_id: str | None
    limit: int | None


def tool_usage(connection: Connection, scope: Scope, question: ToolQuestion) -> list[ToolUsage]:
    """Calls by tool, the most called first; those of deleted conversations are gone."""
    statement = tool_calls.tool_usage(
        connection.dialect.name,
        scoped=scope.is_scoped,
        since=question.since is not None,
        until=question.until is not None,
        of_user=question.user_id is not None,
        limited=question.limit is not None,
    )
    known: dict[str, Any] = {
        "since": moment_of(question.since, question.zone),
        "until": moment_of(question.until, question.zone),
        "user_id": question.user_id,
        "limit": question.limit,
    }
    given = {name: value for name, value in known.items() if value is not None}
    rows = connection.execute(statement, scope.bound(**given))
    return [ToolUsage(row.name, row.calls, row.unanswered, row.failed) for row in rows]
