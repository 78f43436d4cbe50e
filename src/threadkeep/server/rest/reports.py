"""Search, usage, and the erasure of users."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Final

from fastapi import Query, Response
from pydantic import WithJsonSchema

from threadkeep.domain.reports import CONTENT_KEYS, UsageRow
from threadkeep.errors import InvalidOption
from threadkeep.server import answers, pages, problems, requests
from threadkeep.server.rest import deps, models, objects, routing

Words = Annotated[str, Query(min_length=1, description='Words, "phrases", -excluded words, and prefixes*.')]
Columns = Annotated[
    list[str] | None, WithJsonSchema({"type": "string"}),
    Query(
        description="Columns with commas: hour, day, week, month, model, provider, format, user_id, conversation_id, "
        "conversation_status, title, feedback, approval, status, tool_set, response, "
        "tenant, label:NAME, property:NAME, "
        "item_label:NAME, metadata:NAME; they make at most 10,000 rows."
    ),
]  # fmt: skip
Zone = Annotated[str, Query(description="Time zone of days.")]
Percentiles = Annotated[bool, Query(description="Add p50, p95 and p99 of latencies and times to the first token.")]

MAX_ROWS: Final = 10_000  # of a report
_SUMS: Final = (
    "attempts", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "total_tokens",
    "unknown_costs",
)  # fmt: skip

router = routing.api_router()


@router.get("/search", response_model=models.Listed[models.SearchHit])
async def search(
    call: deps.Reading, q: Words, after: deps.After = None, limit: deps.Limit = requests.DEFAULT_LIMIT,
    status: deps.Status = "active", user_id: deps.UserId = None, *, since: deps.Since = None, until: deps.Until = None,
) -> Response:  # fmt: skip
    """Search the texts of conversations; each is found once, with its best match."""
    try:
        found = await call.store.search_conversations(
            q, user_id=user_id, status=status, since=since, until=until, after=after, limit=limit
        )
    except InvalidOption as error:
        name = "q" if error.argument == "text" else error.argument
        raise InvalidOption(error.message, argument=name, hint=error.hint) from error
    data = [
        {
            "id": one.conversation_id, "object": "search.hit", "conversation_id": one.conversation_id,
            "title": one.title, "hits": one.hits, "snippet": one.best.snippet,
            "marks": [list(mark) for mark in one.best.marks], "position": one.best.position, "type": one.best.type,
            "role": one.best.role, "created_at": objects.seconds(one.best.created_at),
        }
        for one in found
    ]  # fmt: skip
    answer = pages.list_object(data, has_more=found.next is not None)
    return answers.JsonAnswer({**answer, "last_id": found.next or answer["last_id"]})


@router.get("/usage", response_model=models.UsageObject)
async def usage(
    call: deps.ReadingUsage, by: Columns = None, since: deps.Since = None, until: deps.Until = None, tz: Zone = "UTC",
    *, percentiles: Percentiles = False,
) -> Response:  # fmt: skip
    """Sum tokens and costs, grouped by columns."""
    columns: Any = tuple(name for text in by or () for name in text.split(",") if name)
    if not call.may_read and (shown := [name for name in columns if name.startswith(CONTENT_KEYS)]):
        problem = f"The key does not allow reports by {shown[0]}: it lacks the scope 'read'."
        raise problems.Problem(403, problem, param="by", code="missing_scope")
    if "tenant" in columns and "tenants" not in call.permission.owner.scopes:
        problem = "The key does not allow reports by tenant: it lacks the scope 'tenants'."
        raise problems.Problem(403, problem, param="by", code="missing_scope")
    rows = await call.store.usage(
        by=columns, since=since, until=until, tz=tz, limit=MAX_ROWS + 1, percentiles=percentiles
    )
    if len(rows) > MAX_ROWS:
        problem = f"The report has more than {MAX_ROWS:,} rows: ask for a shorter period, or fewer columns."
        raise problems.Problem(400, problem, param="by", code="too_many_rows")
    return answers.JsonAnswer({"object": "list", "data": [_row(row) for row in rows]})


@router.delete("/users/{user_id}", response_model=models.Erased)
async def erase_user(call: deps.Writing, user_id: str) -> Response:
    """Erase a user: all conversations with what belongs to them, keys and names; the figures of the ledger stay.

    A request that took too long can be repeated, and goes on.
    """
    if call.user_id not in (None, user_id):
        raise problems.Problem(404, f"User with id '{user_id}' not found.", code="not_found")
    report = await call.store.erase_user(user_id, vacuum=False)
    counts = {name: getattr(report, name) for name in ("conversations", "attempts", "items")}
    return answers.JsonAnswer({"id": user_id, "object": "user.erased", **counts})


def _row(row: UsageRow) -> dict[str, Any]:
    keys = {
        name: value.isoformat() if isinstance(value, date | datetime) else value for name, value in row.keys.items()
    }
    sums = {name: getattr(row, name) for name in _SUMS}
    cost = None if row.cost_usd is None else str(row.cost_usd)
    return {**keys, **sums, "cost_usd": cost, **(row.percentiles or {})}
