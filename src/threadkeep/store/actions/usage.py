"""What was used: sums over the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Final

from sqlalchemy import Connection, Select, func, select

from threadkeep.db.queries.conversations import DELETED
from threadkeep.db.tables import conversations, usage_records
from threadkeep.domain.ids import public_id_bytes, public_id_text
from threadkeep.domain.usage import UsageRow
from threadkeep.errors import InvalidOption
from threadkeep.store.actions.entries import facts_at, facts_of
from threadkeep.store.place import Place, Scope, whole

CHUNK: Final = 500  # keys in one statement

FIGURES: Final = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens",
    "cost_nano",
)  # fmt: skip
# What a report can be grouped and filtered by -> its column
GROUPS: Final = {
    name: usage_records.c[name]
    for name in ("day", "model", "provider", "format", "user_id", "conversation_id", "status", "response")
}
_KINDS: Final = {"day": date, "response": int, "conversation_id": str | int}  # what else than text is looked for


@dataclass(frozen=True, slots=True)
class Question:
    """What to sum: grouped by these columns, over this time and these values."""

    by: tuple[str, ...] = ()
    since: date | datetime | None = None
    until: date | datetime | None = None  # exclusive
    filters: Mapping[str, Any] = field(default_factory=dict)
    order_by: str | None = None
    limit: int | None = None
    conversation: int | None = None  # the key of the only conversation to look at

    def __post_init__(self) -> None:
        for name in (*self.by, *self.filters):
            if name not in GROUPS:
                raise InvalidOption(f"Usage cannot be grouped or filtered by {name!r}; it can by {', '.join(GROUPS)}.")
        if self.order_by is not None and self.order_by not in {*FIGURES, "attempts"}:
            raise InvalidOption(f"order_by is one of attempts, {', '.join(FIGURES)}, not {self.order_by!r}.")
        if self.limit is not None and whole("limit", self.limit) < 1:
            raise InvalidOption(f"limit is a number from 1 on, not {self.limit!r}.")
        for name, value in self.filters.items():
            for one in value if isinstance(value, list | tuple) else [value]:
                if one is not None and not isinstance(one, _KINDS.get(name, str)):
                    raise InvalidOption(f"Usage cannot be filtered by {name}={one!r}.")


def usage(connection: Connection, scope: Scope, question: Question) -> list[UsageRow]:
    """The sums; figures that no record knows are None."""
    wanted = question.filters.get("conversation_id")
    if wanted is not None:
        wanted = wanted if isinstance(wanted, list | tuple) else [wanted]
        keys_wanted = [conversation_key(connection, scope, public_id) for public_id in wanted]
        question = replace(question, filters={**question.filters, "conversation_id": keys_wanted})
    found = connection.execute(_sums(scope, question)).all()
    names = (
        _public_ids(connection, scope, {row.conversation_id for row in found})
        if "conversation_id" in question.by
        else {}
    )
    rows = []
    for row in found:
        keys = {name: getattr(row, name) for name in question.by}
        if "conversation_id" in keys:
            keys["conversation_id"] = names.get(keys["conversation_id"])
        figures = {name: None if (found := getattr(row, name)) is None else int(found) for name in FIGURES}
        rows.append(UsageRow(keys=keys, attempts=row.attempts, **figures))
    return rows


def _sums(scope: Scope, question: Question) -> Select[Any]:
    table = usage_records.c
    groups = [GROUPS[name].label(name) for name in question.by]
    sums = [func.sum(table[name]).label(name) for name in FIGURES]
    statement = select(*groups, func.count().label("attempts"), *sums).where(table.tenant_id == scope.tenant)
    if scope.user is not None:
        statement = statement.where(table.user_id == scope.user)
    if question.conversation is not None:
        statement = statement.where(table.conversation_id == question.conversation)
    for name, value in question.filters.items():
        statement = statement.where(
            GROUPS[name].in_(value) if isinstance(value, list | tuple) else GROUPS[name] == value
        )
    statement = statement.where(*_times(question)).group_by(*(GROUPS[name] for name in question.by))
    if question.order_by is not None:
        column = func.count() if question.order_by == "attempts" else func.sum(table[question.order_by])
        statement = statement.order_by(column.desc(), *groups)
    else:
        statement = statement.order_by(*groups)
    return statement if question.limit is None else statement.limit(whole("limit", question.limit))


def _times(question: Question) -> list[Any]:
    """Bounds as conditions: whole UTC days are compared by day, which the indexes hold."""
    found = []
    for bound, is_since in ((question.since, True), (question.until, False)):
        if bound is None:
            continue
        column = usage_records.c.occurred_at if isinstance(bound, datetime) else usage_records.c.day
        found.append(column >= bound if is_since else column < bound)
    return found


def _public_ids(connection: Connection, scope: Scope, keys: set[int]) -> dict[int, str]:
    """The ids that users see; deleted conversations have none left."""
    ordered, found = sorted(keys), {}
    for start in range(0, len(ordered), CHUNK):
        statement = select(conversations.c.id, conversations.c.public_id).where(
            conversations.c.tenant_id == scope.tenant,
            conversations.c.status != DELETED,
            conversations.c.id.in_(ordered[start : start + CHUNK]),
        )
        found.update({row.id: public_id_text(bytes(row.public_id)) for row in connection.execute(statement)})
    return found


def conversation_key(connection: Connection, scope: Scope, public_id: str) -> int | None:
    """The key of a conversation by the id that users see; None when this scope has none."""
    facts = facts_of(connection, scope, "public_id", public_id_bytes(public_id))
    return None if facts is None else facts.id


def usage_of_conversation(connection: Connection, place: Place, question: Question) -> list[UsageRow]:
    """The sums of one conversation.

    Raises:
        NotFound: it is not there.
    """
    facts_at(connection, place)
    return usage(connection, place.scope, question)
