"""The dashboard: what was used by day, model, user and conversation; each figure leads to what it counts."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response

from threadkeep.domain import charts, reports
from threadkeep.errors import InvalidOption
from threadkeep.store.reading import spending
from threadkeep.store.reading.spending import ActiveCount, TenantSums
from threadkeep.store.store import Store
from threadkeep.store.usage import statistics
from threadkeep.store.work.validation import time_zone
from threadkeep.viewer.filters import MAX_DAYS, bar_of, day_of, labels_of, period_of
from threadkeep.viewer.pages import View
from threadkeep.viewer.texts import axis_count, axis_duration, axis_money, axis_percent, count, money, query_text

DAYS: Final = 30
FIRST_DAY: Final = date(1970, 1, 1)
LAST_DAY: Final = date(9998, 12, 31)  # days around it have to exist, too, in any time zone
TOP: Final = 10
MAX_TENANTS: Final = 500  # that are listed
_NONE: Final = ActiveCount(0, 0)
MAX_TOOLS: Final = 200
TOOL_CONVERSATIONS: Final = 1_000  # in which calls of functions are counted
FAILED: Final = "failed"
KINDS: Final = ("input", "input from the cache", "output", "reasoning")
CSV_KEYS: Final = (
    "day", "week", "month", "model", "provider", "format", "user_id", "conversation_id", "conversation_status", "title",
    "feedback", "approval", "status",
)  # fmt: skip
CSV_KINDS: Final = ("label:", "property:", "item_label:", "metadata:")  # each with a name behind it
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")  # what spreadsheets would run


class Days(NamedTuple):
    """The days that are shown, both included, and whose days they are."""

    first: date
    last: date
    zone: str

    def bounds(self) -> dict[str, Any]:
        """The days as arguments of `Store.usage`."""
        return {"since": self.first, "until": self.last + timedelta(1), "tz": self.zone}

    def days(self) -> list[date]:
        """All of these days."""
        return [self.first + timedelta(number) for number in range((self.last - self.first).days + 1)]


def added(total: int | None, value: int | None) -> int | None:
    """Return a sum with a value more; None is unknown.

    >>> added(None, None), added(None, 0), added(2, None)
    (None, 0, 2)
    """
    return total if value is None else (total or 0) + value


@dataclass(slots=True)
class Sums:
    """Sums of some calls."""

    calls: int = 0
    failed: int = 0
    input: int = 0
    cached: int | None = None
    output: int = 0
    reasoning: int | None = None
    cost_nano: int | None = None
    costs: int = 0  # the calls of which it is known
    cache_known: int = 0

    def add(self, row: reports.UsageRow) -> None:
        """Count the calls of a row."""
        self.calls += row.attempts
        self.failed += row.attempts if row.status == FAILED else 0
        self.input += row.input_tokens or 0
        self.cached = added(self.cached, row.cached_tokens)
        self.output += row.output_tokens or 0
        self.reasoning = added(self.reasoning, row.reasoning_tokens)
        self.cache_known += row.cache_known_tokens or 0
        self.cost_nano = added(self.cost_nano, row.cost_nano)
        self.costs += row.costs

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.input + self.output

    @property
    def kinds(self) -> tuple[int, int | None, int, int | None]:
        """The tokens by kind, in the order of KINDS; None where no provider reports a kind."""
        plain, said = max(0, self.input - (self.cached or 0)), max(0, self.output - (self.reasoning or 0))
        return plain, self.cached, said, self.reasoning

    @property
    def cache_share(self) -> float | None:
        """The share of the input that came from caches; None if no provider reports it."""
        return min(1.0, (self.cached or 0) / self.cache_known) if self.cache_known else None


@dataclass(slots=True)
class UsageOverview:
    """What the dashboard is made of."""

    period: Days
    found: spending.DayUsage
    users: Sequence[spending.Top]
    conversations: Sequence[spending.Top]
    total: Sums = field(default_factory=Sums)
    days: dict[date, Sums] = field(default_factory=dict)
    models: dict[str | None, Sums] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.days = {day: Sums() for day in self.period.days()}
        for row in self.found.rows:
            for sums in (self.total, self.days.setdefault(row.day, Sums()), self.models.setdefault(row.model, Sums())):
                sums.add(row)


def read_usage(
    store: Store, period: Days, filters: Mapping[str, Any], *, has_conversations: bool = True
) -> UsageOverview:
    """Return what was used in a period, in a few statements; with the conversations that cost most, or without."""
    found = spending.day_usage(store, **period.bounds(), filters=filters)
    users = spending.top_users(store, period.first, period.last, filters, TOP)
    conversations: Sequence[spending.Top] = ()
    if has_conversations:
        conversations = spending.top_conversations(store, period.first, period.last, filters, TOP)
    return UsageOverview(period, found, users, conversations)


def days_of(view: View) -> Days:
    """Return the days in the address; by default, the last ones.

    Raises:
        InvalidOption: they cannot be shown.
    """
    first, last, zone = period_of(view, DAYS)
    for name in ("until", "since"):
        day = day_of(view, name)
        if day is not None and not FIRST_DAY <= day <= LAST_DAY:
            raise InvalidOption(f"must be a day from {FIRST_DAY} to {LAST_DAY}, not {day}.", argument=name)
    last = last or datetime.now(time_zone(zone)).date()
    first = first or last
    if not 0 <= (last - first).days < MAX_DAYS:
        raise InvalidOption(f"must be at most {MAX_DAYS} days before the last one, {last}.", argument="since")
    return Days(first, last, zone)


def filters_of(view: View) -> dict[str, Any]:
    """Return the filters in the address as filters of a report."""
    named = {
        "model": view.query("model"), "user_id": view.query("user"), "provider": view.query("provider"),
        "labels": labels_of(view) or None,
    }  # fmt: skip
    return {name: value for name, value in named.items() if value is not None}


class Links(NamedTuple):
    """Links to the conversations that figures count: the address of the list, and what restricts all figures."""

    base: str | None
    shared: Mapping[str, Any]
    labels: Mapping[str, str]

    @classmethod
    def of(cls, view: View, period: Days) -> Links:
        """Return a page's links; none without access to conversations."""
        base = view.request.scope.get("root_path", "").rstrip("/") if "read" in view.scopes else None
        filters = {name: view.query(name) for name in ("model", "user", "provider")}
        days = {"on": period.first, "through": period.last, "status": "any"}
        return cls(base, {**filters, **days}, labels_of(view))

    def to(self, **query: Any) -> str | None:
        """Return the link of a figure, with what restricts it besides; None for those who may not see them."""
        known = [(name, value) for name, value in {**self.shared, **query}.items() if value is not None]
        known += [("label", f"{name}={value}") for name, value in self.labels.items()]
        return None if self.base is None else f"{self.base}/?{query_text(known)}"


async def usage_page(view: View) -> Response:
    """Show what was used in some days."""
    usage = await view.read(read_usage, days_of(view), filters_of(view))
    return draw(view, usage)


def draw(view: View, usage: UsageOverview, keeping: Iterable[str] = (), **values: Any) -> Response:
    """Return the dashboard; `keeping` names parameters of its address that are no filters."""
    period = usage.period
    links = Links.of(view, period)
    days = [(day, sums, links.to(on=day, through=None)) for day, sums in usage.days.items()]
    models = [(name, sums, links.to(model=name)) for name, sums in _ranked(usage.models)]
    users = [(row, links.to(user=row.user_id)) for row in usage.users]
    shares = [sums.cache_share for sums in usage.days.values()]
    cache = charts.lines([short_day(day) for day in usage.days], [shares], axis_percent)
    return view.page(
        "usage.html", bar=bar_of(view, {"provider": False, "tz": True}, keeping, days=DAYS), usage=usage, days=days,
        models=models, users=users, kinds=KINDS, period=period,
        tokens=_token_chart(days), calls=_call_chart(days, links), cache=cache,
        latency=_latency_chart(usage),
        most=max((sums.cost_nano or 0 for _, sums, _ in models), default=0), **values,
    )  # fmt: skip


def _ranked(models: Mapping[str | None, Sums]) -> list[tuple[str | None, Sums]]:
    return sorted(models.items(), key=lambda pair: (-(pair[1].cost_nano or 0), -pair[1].tokens, str(pair[0])))


def short_day(day: date) -> str:
    """Return a day as a label below an axis."""
    return f"{day:%b} {day.day}"


# Charts

DayRow = tuple[date, Sums, str | None]


def _token_chart(days: Iterable[DayRow]) -> charts.Chart:
    drawn = [
        charts.Day(
            short_day(day),
            [value or 0 for value in sums.kinds],
            f"{day}: {count(sums.tokens)} tokens, {money(sums.cost_nano)}",
            link,
        )
        for day, sums, link in days
    ]
    return charts.columns(drawn, partial(axis_count, largest=max((sum(day.values) for day in drawn), default=0)))


def _call_chart(days: Iterable[DayRow], links: Links) -> charts.Chart:
    drawn = []
    for day, sums, link in days:
        words = f"{day}: {count(sums.calls)} calls, {count(sums.failed)} failed"
        href = links.to(on=day, through=None, errors=1) if sums.failed else link
        drawn.append(charts.Day(short_day(day), (sums.calls - sums.failed, 0, sums.failed), words, href))
    return charts.columns(drawn, partial(axis_count, largest=max((sum(day.values) for day in drawn), default=0)))


def _latency_chart(usage: UsageOverview) -> charts.Chart:
    found = [usage.found.by_day.get(day, {}) for day in usage.days]
    series = [[one.get(f"{share}_latency_ms") for one in found] for share in ("p50", "p95")]
    slowest = max((value for values in series for value in values if value is not None), default=0)
    return charts.lines([short_day(day) for day in usage.days], series, partial(axis_duration, largest=slowest))


async def tools_page(view: View) -> Response:
    """Show how often functions were called in some days."""
    period = days_of(view)
    wanted: dict[str, Any] = {"user_id": view.query("user"), "model": view.query("model"), "labels": labels_of(view)}
    tools = await view.read(_tools, {**period.bounds(), **wanted})
    most = max((one.calls for one in tools), default=0)
    values = {"tools": tools, "period": period, "most": most, "conversations": TOOL_CONVERSATIONS}
    return view.page("tools.html", bar=bar_of(view, {"tz": True}, days=DAYS), **values)


def _tools(store: Store, wanted: Mapping[str, Any]) -> Sequence[reports.ToolUsage]:
    return statistics.tool_usage(
        store.handle.transactions, store.handle.scope, by=None, percentiles=True, limit=MAX_TOOLS,
        conversations=TOOL_CONVERSATIONS, **wanted,
    )  # fmt: skip


# CSV


async def usage_csv(view: View) -> Response:
    """Answer with the sums of a period as CSV, by the columns in the address."""
    by = tuple((view.query("by") or "day,model").split(","))
    if unknown := [name for name in by if name not in CSV_KEYS and not name.startswith(CSV_KINDS)]:
        known = ", ".join((*CSV_KEYS, *(f"{kind}NAME" for kind in CSV_KINDS)))
        raise InvalidOption(f"must be some of {known}, not {unknown[0][:40]!r}.", argument="by")
    if "read" not in view.scopes and any(name.startswith(reports.CONTENT_KEYS) for name in by):
        raise HTTPException(403, "Titles and properties need the scope 'read'")
    options: dict[str, Any] = {**days_of(view).bounds(), **filters_of(view)}
    rows = await view.store.usage(by=by, **options)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*by, *reports.ROW_FIGURES])
    for row in rows:
        values = row.to_dict()
        cells = [values[name] for name in (*by, *reports.ROW_FIGURES)]
        # no spreadsheet takes them for formulas
        writer.writerow([f"'{one}" if isinstance(one, str) and one.startswith(_FORMULAS) else one for one in cells])
    headers = {"content-disposition": "attachment; filename=usage.csv"}
    return Response(text.getvalue().encode(errors="backslashreplace"), media_type="text/csv", headers=headers)


# Pages for the administrator of a database with tenants: what each of them used, and the dashboard of one


async def tenants_page(view: View) -> Response:
    """Show what all tenants cost, the most expensive ones first."""
    _check_administrator(view)
    period = days_of(view)
    tenants, days = await view.read(spending.all_tenants, period.first, period.last, MAX_TENANTS)
    by_day: dict[date, TenantSums] = {row.key: row for row in days}
    rows = [by_day.get(day, TenantSums(day, 0, 0, None, None, None, 0)) for day in period.days()]
    values = {
        "tenants": tenants, "days": days, "most": max((one.cost_nano or 0 for one in tenants), default=0),
        "costs": _chart(rows, [[row.cost_nano or 0] for row in rows], axis_money),
        "calls": _chart(rows, [[row.calls - row.failed, 0, row.failed] for row in rows], axis_count),
        "limit": MAX_TENANTS,
    }  # fmt: skip
    return view.page("tenants.html", bar=bar_of(view, {}, days=DAYS), period=period, **values)


def _chart(rows: Sequence[TenantSums], values: Sequence[Sequence[int]], axis: Callable[..., str]) -> charts.Chart:
    drawn = [
        charts.Day(short_day(row.key), shown, f"{row.key}: {money(row.cost_nano)}, {count(row.calls)} calls")
        for row, shown in zip(rows, values, strict=True)
    ]
    return charts.columns(drawn, partial(axis, largest=max(map(sum, values), default=0)))


async def tenant_page(view: View) -> Response:
    """Show the dashboard of a tenant, with how many conversations and users it had."""
    _check_administrator(view)
    name, period = view.request.query_params.get("name", ""), days_of(view)
    usage, total, days = await view.read(_read_tenant, name, period, filters_of(view))
    series = [[days.get(day, _NONE)[place] for day in usage.days] for place in (0, 1)]
    axis = partial(axis_count, largest=max(map(max, series)))
    chart = charts.lines([short_day(day) for day in usage.days], series, axis)
    return draw(view, usage, ["name"], tenant=name, active=total, active_days=days, active_chart=chart)


def _read_tenant(
    store: Store, name: str, period: Days, filters: Mapping[str, Any]
) -> tuple[UsageOverview, ActiveCount, Mapping[date, ActiveCount]]:
    spending.check_all_tenants(store)
    tenant = store.for_tenant(name)
    usage = read_usage(tenant, period, filters, has_conversations=False)
    return usage, *spending.active_by_day(tenant, period.first, period.last, filters)


def _check_administrator(view: View) -> None:
    """Refuse those who may not see other tenants.

    Raises:
        HTTPException: the owner lacks the scope.
    """
    if "tenants" not in view.permission.owner.scopes:
        raise HTTPException(403, "This needs the scope 'tenants'")
