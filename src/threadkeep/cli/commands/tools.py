"""``threadkeep tools``: how often tools were called, and how that went."""

from __future__ import annotations

from typing import Final

from threadkeep.cli.options import MaxRows, OnlyUser, on_target
from threadkeep.cli.output import Column
from threadkeep.cli.target import Target
from threadkeep.cli.time_options import Since, TimeZone, Until, bounds_of

COLUMNS: Final = (
    Column("name"),
    Column("calls", is_number=True),
    Column("unanswered", is_number=True),
    Column("failed", is_number=True),
)


@on_target()
def tools(
    target: Target,
    *,
    since: Since = None,
    until: Until = None,
    tz: TimeZone = "UTC",
    user: OnlyUser = None,
    limit: MaxRows = None,
) -> None:
    """Print how often tools were called, the most called first.

    A call is unanswered while it has no output, and has failed when its output says so.
    """
    bounds = bounds_of(since, until, tz)
    with target.store() as store:
        records = [tool.to_dict() for tool in store.tool_usage(**bounds, tz=tz, user_id=user, limit=limit)]
    target.report_list("tools", records, COLUMNS, empty="no tool was called")
