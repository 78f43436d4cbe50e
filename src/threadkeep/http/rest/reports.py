"""Search and usage."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Final

from starlette.responses import Response

from threadkeep.domain.reports import UsageRow
from threadkeep.errors import InvalidOption
from threadkeep.http.answers import JsonAnswer
from threadkeep.http.openai.objects import list_object
from threadkeep.http.problems import Problem
from threadkeep.http.requests import PageQuery, status_of
from threadkeep.http.rest.bodies import seconds
from threadkeep.http.rest.objects import plain_list
from threadkeep.http.service import Call

MAX_ROWS: Final = 10_000  # of a report
_SUMS: Final = (
    "attempts", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "total_tokens",
)  # fmt: skip


async def search(call: Call) -> Response:
    """Search the texts of conversations; each is found once, with its best match."""
    page, query = PageQuery.of(call.request), call.request.query_params
    if not query.get("q"):
        raise Problem(400, "q is missing: it says what is looked for.", param="q", code="invalid_value")
    try:
        found = await call.store.search_conversations(
            query["q"], user_id=query.get("user_id"), status=status_of(call.request),
            since=_moment(call, "since"), until=_moment(call, "until"), after=page.after, limit=page.limit,
        )  # fmt: skip
    except InvalidOption as error:
        name = "q" if error.argument == "text" else error.argument
        raise InvalidOption(error.message, argument=name, hint=error.hint) from error
    data = [
        {
            "id": one.conversation_id, "object": "search.hit", "conversation_id": one.conversation_id,
            "title": one.title, "hits": one.hits, "snippet": one.best.snippet,
            "marks": [list(mark) for mark in one.best.marks], "position": one.best.position, "type": one.best.type,
            "role": one.best.role, "created_at": seconds(one.best.created_at),
        }
        for one in found
    ]  # fmt: skip
    answer = list_object(data, has_more=found.next is not None)
    return JsonAnswer({**answer, "last_id": found.next or answer["last_id"]})


async def usage(call: Call) -> Response:
    """Sum tokens and costs, grouped by columns."""
    query = call.request.query_params
    by: Any = tuple(name for text in query.getlist("by") for name in text.split(",") if name)
    rows = await call.store.usage(
        by=by, since=_moment(call, "since"), until=_moment(call, "until"), tz=query.get("tz", "UTC"),
        limit=MAX_ROWS + 1,
    )  # fmt: skip
    if len(rows) > MAX_ROWS:
        problem = f"The report has more than {MAX_ROWS:,} rows: ask for a shorter period, or fewer columns."
        raise Problem(400, problem, param="by", code="too_many_rows")
    return JsonAnswer(plain_list([_row(row) for row in rows]))


def _row(row: UsageRow) -> dict[str, Any]:
    keys = {
        name: value.isoformat() if isinstance(value, date | datetime) else value for name, value in row.keys.items()
    }
    sums = {name: getattr(row, name) for name in _SUMS}
    return {**keys, **sums, "cost_usd": None if row.cost_usd is None else str(row.cost_usd)}


def _moment(call: Call, name: str) -> date | datetime | None:
    text = call.request.query_params.get(name)
    if text is None:
        return None
    readers: tuple[Callable[[str], date], ...] = (date.fromisoformat, datetime.fromisoformat)
    for read in readers:
        try:
            return read(text)
        except ValueError:
            continue
    problem = f"{name} must be a date, or a time with its zone, in ISO 8601."
    raise Problem(400, problem, param=name, code="invalid_value")
