"""Pages for the administrator of a database with tenants: what each of them used, and the dashboard of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from threadkeep.domain import charts
from threadkeep.store.reading import spending
from threadkeep.store.reading.spending import ActiveCount, TenantSums
from threadkeep.store.store import Store
from threadkeep.viewer import dashboard
from threadkeep.viewer.filters import bar_of
from threadkeep.viewer.pages import View
from threadkeep.viewer.texts import axis_count, axis_money, count, money

MAX_TENANTS: Final = 500  # that are listed
_NONE: Final = ActiveCount(0, 0)


async def tenants_page(view: View) -> Response:
    """Show what all tenants cost, the most expensive ones first."""
    _check_administrator(view)
    period = dashboard.days_of(view)
    tenants, days = await view.read(spending.all_tenants, period.first, period.last, MAX_TENANTS)
    by_day: dict[date, TenantSums] = {row.key: row for row in days}
    rows = [by_day.get(day, TenantSums(day, 0, 0, None, None, None, 0)) for day in period.days()]
    values = {
        "tenants": tenants, "days": days, "most": max((one.cost_nano or 0 for one in tenants), default=0),
        "costs": _chart(rows, [[row.cost_nano or 0] for row in rows], axis_money),
        "calls": _chart(rows, [[row.calls - row.failed, 0, row.failed] for row in rows], axis_count),
        "limit": MAX_TENANTS,
    }  # fmt: skip
    return view.page("tenants.html", bar=bar_of(view, {}, days=dashboard.DAYS), period=period, **values)


def _chart(rows: Sequence[TenantSums], values: Sequence[Sequence[int]], axis: Callable[..., str]) -> charts.Chart:
    drawn = [
        charts.Day(dashboard.short_day(row.key), shown, f"{row.key}: {money(row.cost_nano)}, {count(row.calls)} calls")
        for row, shown in zip(rows, values, strict=True)
    ]
    return charts.columns(drawn, partial(axis, largest=max(map(sum, values), default=0)))


async def tenant_page(view: View) -> Response:
    """Show the dashboard of a tenant, with how many conversations and users it had."""
    _check_administrator(view)
    name, period = view.request.query_params.get("name", ""), dashboard.days_of(view)
    usage, total, days = await view.read(_read_tenant, name, period, dashboard.filters_of(view))
    series = [[days.get(day, _NONE)[place] for day in usage.days] for place in (0, 1)]
    axis = partial(axis_count, largest=max(map(max, series)))
    chart = charts.lines([dashboard.short_day(day) for day in usage.days], series, axis)
    return dashboard.draw(view, usage, ["name"], tenant=name, active=total, active_days=days, active_chart=chart)


def _read_tenant(
    store: Store, name: str, period: dashboard.Days, filters: Mapping[str, Any]
) -> tuple[dashboard.UsageOverview, ActiveCount, Mapping[date, ActiveCount]]:
    spending.check_all_tenants(store)
    tenant = store.for_tenant(name)
    usage = dashboard.read_usage(tenant, period, filters, has_conversations=False)
    return usage, *spending.active_by_day(tenant, period.first, period.last, filters)


def _check_administrator(view: View) -> None:
    """Refuse those who may not see other tenants.

    Raises:
        HTTPException: the owner lacks the scope.
    """
    if "tenants" not in view.permission.owner.scopes:
        raise HTTPException(403, "This needs the scope 'tenants'")
