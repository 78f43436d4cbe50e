"""``threadkeep tools``: how often tools were called, and how that went."""

from __future__ import annotations

from typing import Final

import typer

from threadkeep.cli.output import Column, note, print_json, print_table
from threadkeep.cli.place import AsJson, Tenant, Url, opened, place_of
from threadkeep.cli.times import Since, TimeZone, Until, moment
from threadkeep.cli.usage import Limit, User

COLUMNS: Final = (
    Column("name"),
    Column("calls", is_number=True),
    Column("unanswered", is_number=True),
    Column("failed", is_number=True),
)


def tools(
    context: typer.Context,
    *,
    since: Since = None,
    until: Until = None,
    tz: TimeZone = "UTC",
    user: User = None,
    limit: Limit = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Print how often tools were called, the most called first.

    A call is unanswered while it has no output, and has failed when its output says so.
    """
    place = place_of(context, url, tenant, is_json=as_json)
    bounds = {"since": moment("--since", since, tz), "until": moment("--until", until, tz)}
    with opened(place) as store:
        found = store.tool_usage(**bounds, tz=tz, user_id=user, limit=limit)
    if place.is_json:
        print_json({"tools": [one.to_dict() for one in found]})
        return
    print_table(COLUMNS, [[one.name, one.calls, one.unanswered, one.failed] for one in found])
    if not found:
        note(f"threadkeep: no tool was called in {place.shown}")
