"""Usage reports: sums over the ledger, and over rolled-up days if they are enough for the query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Connection, func, select

from threadkeep.db import backends, models, types
from threadkeep.db.queries import usage as statements
from threadkeep.domain import ids, jsontext, sketches
from threadkeep.domain.formats import format_names
from threadkeep.domain.reports import DAY, SUMS, UsageRow, changes_of, gaps_of, last_day, ranges_of
from threadkeep.errors import InvalidOption, did_you_mean, shown
from threadkeep.store.usage import rollups
from threadkeep.store.work import validation
from threadkeep.store.work.handle import Handle, StoreHandle
from threadkeep.store.work.refs import Scope, conversation_keys, get_row
from threadkeep.store.work.transactions import Transactions

MAX_VALUES: Final = 10_000  # statements name them three times, and SQLite takes 32,766 parameters

# A column -> the type of its values, a subclass of that which is not one, and what messages call it
TYPES: Final[Mapping[str, tuple[type, type | tuple[()], str]]] = {
    "day": (date, datetime, "a date"),
    "response": (int, bool, "a whole number"),
}
STATUSES: Final = ("completed", "incomplete", "failed", "in_progress", "cancelled")
STRING: Final = (str, (), "a string")


def filter_values(filters: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of each column, as it holds them; but conversations by the ids that users see."""
    values = {
        name: list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
        for name, value in filters.items()
    }
    count = sum(map(len, values.values()))
    if count > MAX_VALUES:
        most = f"at most {MAX_VALUES:,} values at once"
        raise InvalidOption(f"Usage can be filtered by {most}, not by {count:,} ({', '.join(values)}).")
    return {
        name: [None if one is None else _column_value(name, one) for one in several] for name, several in values.items()
    }


def _column_value(name: str, value: Any) -> Any:
    kind, other, description = TYPES.get(name, STRING)
    if isinstance(value, other) or not isinstance(value, kind):
        raise jsontext.mismatch(InvalidOption, f"{description}, None, or a list of these", value, name)
    if name == "status":
        validation.refuse_misspelt(name, str(value), STATUSES)
    if name == "format":
        validation.refuse_misspelt(name, str(value), format_names())
    if name == "response":
        return validation.whole_number(name, value)
    if name != "tool_set":
        return value
    try:
        return bytes.fromhex(str(value))
    except ValueError as error:
        wanted = "the hash of a tool set, 64 hexadecimal digits"
        raise jsontext.mismatch(InvalidOption, wanted, value, name) from error


GROUPS: Final = (
    *statements.TIMES, *(name for name in statements.COLUMNS if name != "day"), "conversation_status", "title",
    *statements.OF_RESPONSE,
)  # fmt: skip
ORDERS: Final = ("attempts", *(name for name in SUMS if name.endswith(("_tokens", "_nano", "_ms"))))
MAX_RANGES: Final = 40  # of rolled-up days; where they are scattered more than that, the ledger is as fast
_ROLLED_UP_BY: Final = frozenset({*statements.KEYS, "day"})

Ranges = list[tuple[date, date]]
Row = Sequence[Any]


def query_of(
    by: Sequence[str] | str, filters: Mapping[str, Any], since: date | None, until: date | None, tz: str,
    order_by: str | None, limit: int | None, *, percentiles: bool,
) -> UsageQuery:  # fmt: skip
    """What the arguments of `Store.usage` ask for."""
    labels, filters = validation.label_filter(filters.get("labels")), {**filters}
    filters.pop("labels", None)
    return UsageQuery(
        by=validation.column_names(by),
        since=since,
        until=until,
        zone=UTC if tz == "UTC" else validation.time_zone(tz),
        values=filter_values(filters) if filters else {},
        order_by=order_by,
        limit=None if limit is None else validation.whole_number("limit", limit),
        labels=labels,
        percentiles=percentiles,
    )


def usage(
    handle: StoreHandle, by: Sequence[str] | str, filters: Mapping[str, Any], *,
    since: date | None, until: date | None, tz: str, order_by: str | None, limit: int | None, percentiles: bool,
) -> list[UsageRow]:  # fmt: skip
    """Return sums of usage; see `Store.usage`."""
    columns, transactions = validation.column_names(by), handle.transactions
    is_of_all = "tenant" in columns and handle.needs_tenant and handle.user is None
    own = tuple(name for name in columns if name != "tenant") if is_of_all else columns
    query = query_of(own, filters, since, until, tz, order_by, limit, percentiles=percentiles)
    if is_of_all:
        handle.root.open(transactions)
        return _usage_of_tenants(transactions, query, columns.index("tenant"))
    scope = handle.scope
    return transactions.read_any(lambda connection: run_query(connection, scope, query))


def _usage_of_tenants(transactions: Transactions, query: UsageQuery, place: int) -> list[UsageRow]:
    """The sums of all tenants that have used something; `place` is where the tenant's name stands among the keys.

    The report of each tenant is made by itself, with its own rolled-up days.
    """
    everything = replace(query, order_by=None, limit=None)

    def read(connection: Connection) -> list[UsageRow]:
        table = models.tenants.c
        known = connection.execute(select(table.id, table.name).order_by(table.name)).all()
        return [
            _of_tenant(row, name, place)
            for tenant, name in known
            for row in run_query(connection, Scope(tenant), everything)
            if row.attempts
        ]

    order, rows = query.order_by, transactions.read_any(read)
    rows.sort(key=lambda row: rollups.order_of(row.keys.values()))
    if order is not None:
        rows.sort(key=lambda row: (getattr(row, order) is None, -(getattr(row, order) or 0)))
    return rows[: query.limit]


def _of_tenant(row: UsageRow, tenant: str, place: int) -> UsageRow:
    """A row of a tenant's report, with the tenant among its keys."""
    keys: list[tuple[str, Any]] = [*row.keys.items()]
    keys.insert(place, ("tenant", tenant))
    found = UsageRow(dict(keys), **{name: getattr(row, name) for name in SUMS})
    found.percentiles = row.percentiles
    return found


def usage_of_conversation(handle: Handle, by: Sequence[str] | str = ()) -> UsageRow | list[UsageRow]:
    """Return the usage of a conversation: one row or, with `by`, a list of rows."""
    ref, query = handle.ref, UsageQuery(by=validation.column_names(by), conversation=handle.ref.key)

    def read(connection: Connection) -> list[UsageRow]:
        get_row(connection, ref)
        return run_query(connection, ref.scope, query)

    rows = handle.transactions.read_any(read)
    return rows if by else rows[0]


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """What to sum: columns to group by, a period, and filters."""

    by: tuple[str, ...] = ()
    since: date | datetime | None = None
    until: date | datetime | None = None  # exclusive
    zone: tzinfo = UTC  # of dates and times
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # as `filter_values` makes them
    order_by: str | None = None
    limit: int | None = None
    conversation: int | None = None  # the key of the only conversation to look at
    labels: Mapping[str, str] = field(default_factory=dict)  # that the conversations have
    percentiles: bool = False

    def __post_init__(self) -> None:
        for name in self.by:
            if name.startswith(statements.NAMED):
                validation.identifier("the name behind a colon in by", name.partition(":")[2])
            elif name not in GROUPS:
                problem = f"contains {shown(name)}, which usage cannot be grouped by."
                if name == "tenant":
                    problem = "contains 'tenant', and this store is for one tenant, or for none."
                known = f"{', '.join(GROUPS)}, and {', '.join(f'{kind}NAME' for kind in statements.NAMED)}"
                meant = did_you_mean(get_close_matches(str(name), GROUPS, n=1, cutoff=0.6))
                raise InvalidOption(problem, argument="by", hint=f"{meant}The columns are {known}.")
        validation.span_of(self.since, self.until, self.zone)
        if len(set(self.by)) < len(self.by):
            raise InvalidOption(f"names a column twice: {', '.join(self.by)}.", argument="by")
        if self.order_by is not None and self.order_by not in ORDERS:
            given: object = self.order_by
            word = given if isinstance(given, str) else ""
            hint = did_you_mean(get_close_matches(word, ORDERS, n=1, cutoff=0.55)).strip() or None
            problem = f"must be one of {', '.join(ORDERS)}, not {shown(self.order_by)}."
            raise InvalidOption(problem, argument="order_by", hint=hint)
        if self.limit is not None and self.limit < 1:
            raise InvalidOption(f"must be a number from 1 on, not {shown(self.limit)}.", argument="limit")

    @property
    def is_utc(self) -> bool:
        """Whether its days are UTC days."""
        return self.zone is UTC or not any(name in statements.TIMES for name in self.by)

    def fits_rollups(self, scope: Scope) -> bool:
        """Whether sums of days are enough."""
        return (
            scope.user is None
            and self.conversation is None
            and not self.labels
            and self.is_utc
            and _ROLLED_UP_BY.issuperset(self.values)
            and all(name in statements.KEYS or name in ("day", "week", "month") for name in self.by)
        )


def run_query(connection: Connection, scope: Scope, query: UsageQuery) -> list[UsageRow]:
    """Return the sums; figures that no record contains are None."""
    report = UsageReport.of_query(connection, scope, query)
    if not query.percentiles:
        return report.rows(connection)
    rows, counted = report.rows_and_durations(connection)
    keys = [tuple(row.keys.values()) for row in rows]
    for row, percentiles in zip(rows, sketches.percentiles_of(counted, keys), strict=True):
        row.percentiles = percentiles
    return rows


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Runs a query: its statements and their parameters."""

    query: UsageQuery
    scope: Scope
    since: datetime | None
    until: datetime | None
    values: Mapping[str, Sequence[Any]]  # by column, as it holds them
    counts_durations: bool = False  # instead of sums
    # What several statements have in common, where it has been read: the rolled-up days, and the ends of the ledger
    ranges: Ranges | None = None
    ends: tuple[date, date] | None = None

    @classmethod
    def of_query(cls, connection: Connection, scope: Scope, query: UsageQuery) -> UsageReport:
        """The report of a query."""
        values = dict(query.values)
        if "conversation_id" in values:
            values["conversation_id"] = conversation_keys(connection, scope, values["conversation_id"])
        since, until = validation.moment_of(query.since, query.zone), validation.moment_of(query.until, query.zone)
        days = values.get("day", ())
        if days and None not in days:
            since = max(validation.moment_of(min(days), UTC), since or validation.EARLIEST)
            until = min(
                validation.moment_of(min(max(days), validation.LAST_DAY) + DAY, UTC), until or validation.LATEST
            )
        return cls(query, scope, since, until, values)

    def rows(self, connection: Connection) -> list[UsageRow]:
        """The sums."""
        by = self.query.by
        return UsageRow.each(by, self.found(connection)) or ([UsageRow(keys={})] if not by else [])

    def rows_and_durations(self, connection: Connection) -> tuple[list[UsageRow], dict[str, list[Row]]]:
        """The sums, and how often each duration occurs, by its name, as `percentiles_of` takes it."""
        query = replace(self.query, order_by=None, limit=None)
        report = self
        if query.fits_rollups(self.scope):
            parameters = self._parameters() | _range_parameters("rolled_up", [self._whole_days])
            report = replace(self, ranges=_rolled_up_ranges(connection, parameters))
        elif not query.is_utc:
            report = replace(self, ends=self._ends(connection))
        durations = replace(report, query=query, counts_durations=True).found(connection)
        counted: dict[str, list[Row]] = {name: [] for name in statements.MEASURES}
        for row in durations:
            counted[statements.MEASURES[row[-1]]].append(row[:-1])
        return report.rows(connection), counted

    def found(self, connection: Connection) -> list[Row]:
        """Keys and figures, from rolled-up days if they are enough."""
        if self.first > self.last:
            return []
        rows = self.from_rollups(connection) if self.query.fits_rollups(self.scope) else None
        return self.from_ledger(connection) if rows is None else rows

    @property
    def first(self) -> date:
        """The first UTC day of which a part is included."""
        return validation.FIRST_DAY if self.since is None else self.since.date()

    @property
    def last(self) -> date:
        """The last UTC day of which a part is included."""
        return validation.LAST_DAY if self.until is None else (self.until - timedelta.resolution).date()

    @property
    def _whole_days(self) -> tuple[date, date]:
        """The first and the last day that may be rolled up, and of which all is included."""
        last = min(self.last - DAY * validation.is_within_day(self.until), last_day(datetime.now(UTC)))
        return self.first + DAY * validation.is_within_day(self.since), last

    def from_ledger(self, connection: Connection) -> list[Row]:
        """The rows, from the ledger alone."""
        parameters = self._parameters()
        key = self._statement_key(offsets=None if self.query.is_utc else self._offsets(connection, parameters))
        if self.since is not None or self.until is not None:
            key = replace(key, ranges=1)
            parameters |= _range_parameters("day", [(self.first, self.last)])
        return self._rows(key, _execute(connection, key, parameters))

    def from_rollups(self, connection: Connection) -> list[Row] | None:
        """The rows, from rolled-up days and for the rest from the ledger; None where none is, or they are scattered.

        Mostly all days between the first and the last one are rolled up, and a statement can find out these two by
        itself. MySQL needs them as parameters: it uses no index for a bound that is a subquery.
        """
        first, last = self._whole_days
        if first > last:
            return None
        parameters = self._parameters() | _range_parameters("rolled_up", [(first, last)])
        if self.ranges is None and backends.backend_of(connection).seeks_by_subquery:
            ends = _range_parameters("day", [(self.first, self.last)])
            key = self._statement_key(spans=True)
            rows = _execute(connection, key, parameters | ends)
            if rows and (self.counts_durations or rows[0][len(key.by)]):
                return self._rows(key, rows)
        ranges = _rolled_up_ranges(connection, parameters) if self.ranges is None else self.ranges
        if not ranges or len(ranges) > MAX_RANGES:
            return None
        rest = gaps_of(ranges, self.first, self.last)
        parameters |= _range_parameters("rolled_up", ranges) | _range_parameters("day", rest)
        parameters["days"] = sum(map(_days_in, ranges))
        return self._from_ranges(connection, self._statement_key(rolled_up=len(ranges), ranges=len(rest)), parameters)

    def _from_ranges(
        self, connection: Connection, key: statements.StatementKey, parameters: dict[str, Any]
    ) -> list[Row] | None:
        """The rows, from ranges of days; None where these are not rolled up any more."""
        rows = _execute(connection, key, parameters)
        if rows and (key.by or self.counts_durations):
            return self._rows(key, rows)
        if self.counts_durations:
            return None
        if not key.by:
            return self._rows(key, rows) if rows[0][-1] else None
        total = replace(key, by=(), order_by=None, is_limited=False)  # nothing was used, or days are not rolled up
        [(attempts, *_, is_rolled_up)] = _execute(connection, total, parameters)
        return [] if is_rolled_up and not attempts else None

    def _rows(self, key: statements.StatementKey, rows: Sequence[Row]) -> list[Row]:
        """The rows of a report, of which there can be many."""
        if "hour" in key.by:
            rows = [_with_hour(row, key) for row in rows]
        if key.is_unordered and not self.counts_durations:  # as the database orders them, so before names are read
            rows = rollups.ordered(rows, len(key.by))
        for index, name in enumerate(key.by):
            reader = _key_reader(name)
            if reader is not None:
                values = {value: reader(value) for value in {*map(itemgetter(index), rows)} - {None}}
                if any(value != read for value, read in values.items()):  # mostly the driver gives it as users see it
                    rows = [(*row[:index], values.get(row[index]), *row[index + 1 :]) for row in rows]
        if key.is_read and not self.counts_durations:
            rows = rollups.joined(rows, len(key.by))
            if (order_by := self.query.order_by) is not None:
                place = len(key.by) + SUMS.index(order_by)
                rows = sorted(rows, key=lambda row: (row[place] is None, -(row[place] or 0)))
            rows = rows[: self.query.limit]
        return list(rows)

    def _statement_key(self, **more: Any) -> statements.StatementKey:
        query = self.query
        return statements.StatementKey(
            by=query.by,
            filters=tuple(
                (name, sum(one is not None for one in values), None in values) for name, values in self.values.items()
            ),
            since=validation.is_within_day(self.since),
            until=validation.is_within_day(self.until),
            is_of_user=self.scope.user is not None,
            is_of_conversation=query.conversation is not None,
            labels=len(query.labels),
            order_by=None if self._is_read else query.order_by,
            is_limited=query.limit is not None and not self._is_read,
            is_read=self._is_read,
            durations=self.counts_durations,
            **more,
        )

    @property
    def _is_read(self) -> bool:
        return any(name.startswith(statements.READ) for name in self.query.by)

    def _parameters(self) -> dict[str, Any]:
        query = self.query
        parameters = self.scope.parameters(
            conversation=query.conversation, since=self.since, until=self.until, limit=query.limit
        )
        for name, values in self.values.items():
            known = [value for value in values if value is not None]
            parameters |= {statements.filter_parameter(name, number): value for number, value in enumerate(known)}
        for number, (label, value) in enumerate(query.labels.items()):
            parameters |= {f"label_{number}": label, f"label_value_{number}": value}
        for number, name in enumerate(query.by):
            if name.startswith(statements.NAMED):
                parameters[statements.named_parameter(number)] = name.partition(":")[2]
        return parameters

    def _ends(self, connection: Connection) -> tuple[date, date]:
        """The first and the last day of the ledger."""
        table = models.usage_records.c
        statement = select(func.min(table.day), func.max(table.day)).where(table.tenant_id == self.scope.tenant)
        first, last = connection.execute(statement).one()
        return first or validation.FIRST_DAY, last or validation.FIRST_DAY

    def _offsets(self, connection: Connection, parameters: dict[str, Any]) -> tuple[int, ...]:
        """How far local time is ahead while there are records; the moments of changes become parameters."""
        first, last = self.ends or self._ends(connection)
        since = max(validation.moment_of(first, UTC), self.since or validation.moment_of(validation.FIRST_DAY, UTC))
        until = min(validation.moment_of(last + DAY, UTC), self.until or validation.moment_of(validation.LAST_DAY, UTC))
        changes, offsets = changes_of(self.query.zone, since, max(since, until))
        parameters |= {f"change_{number}": change for number, change in enumerate(changes)}
        return offsets


def _execute(connection: Connection, key: statements.StatementKey, parameters: Mapping[str, Any]) -> Sequence[Row]:
    """The rows of a report, as they come."""
    return statements.report_statement(key).fetch_all(connection, parameters)


def _rolled_up_ranges(connection: Connection, parameters: Mapping[str, Any]) -> Ranges:
    """The rolled-up days of a range."""
    [(first, last, count)] = statements.rolled_up_span().fetch_all(connection, parameters)
    if not count:
        return []
    span = types.date_of(first), types.date_of(last)
    if _days_in(span) == count:  # no gaps, as nearly always
        return [span]
    days = statements.rolled_up_days().fetch_all(connection, parameters)
    return ranges_of([types.date_of(day) for (day,) in days])


def _days_in(range_: tuple[date, date]) -> int:
    return (range_[1] - range_[0]).days + 1


def _range_parameters(name: str, ranges: Ranges) -> dict[str, date]:
    ends = {f"{name}_from_{number}": start for number, (start, _) in enumerate(ranges)}
    return ends | {f"{name}_to_{number}": end for number, (_, end) in enumerate(ranges)}


def _with_hour(row: Row, key: statements.StatementKey) -> Row:
    """A row with an hour in place of what the database says of it: local time, and where clocks change its offset."""
    index, offsets = key.by.index("hour"), key.offsets or (0,)
    rest = row[index + 1 :] if len(offsets) == 1 else row[index + 2 :]
    ahead = offsets[0] if len(offsets) == 1 else row[index + 1]
    wall = row[index] if isinstance(row[index], datetime) else datetime.fromisoformat(row[index])
    # with its distance from UTC as the zone: times in a zone that clocks show twice would be equal
    return (*row[:index], wall.replace(tzinfo=timezone(timedelta(seconds=ahead)) if ahead else UTC), *rest)


# Keys of rows as users see them


def _text(value: Any) -> str:
    return bytes(value).decode() if isinstance(value, bytes | bytearray | memoryview) else value


def _member(value: Any, *names: str) -> str | None:
    """A text within a JSON text, by the names that lead there; another value as JSON."""
    found = jsontext.loads(_text(value))
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) or found is None else jsontext.dumps(found).decode()


# How the keys of rows are read that are not names; None: as they are
_READERS: Final[Mapping[str, Callable[[Any], Any] | None]] = {
    "hour": None, "day": types.date_of, "week": types.date_of, "month": types.date_of,
    "conversation_id": lambda value: ids.public_id_text(bytes(value)), "tool_set": lambda value: bytes(value).hex(),
    "response": None, "title": _text, "feedback": None,
}  # fmt: skip


def _key_reader(name: str) -> Callable[[Any], Any] | None:
    """How the key of that name is read where it is not NULL; None: as it is."""
    path = name.partition(":")[2:]
    if name.startswith(statements.PROPERTY):
        return lambda text: _member(text, *path)
    if name.startswith(statements.METADATA):
        return lambda text: _member(text, "metadata", *path)
    return _READERS.get(name, types.name_from)
