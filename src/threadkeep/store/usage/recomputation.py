"""Costs of the ledger, computed again: with the prices of today's list for the time of each call.

Figures, usage object and terms of a row do not change, so that doing it twice changes nothing. A transaction looks at a
bounded part of a day, and takes back the sums of that day if it changes a cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, bindparam, func, select, update

from threadkeep.db.models import usage_records
from threadkeep.domain import jsontext, reports
from threadkeep.domain.usage import FIGURES, Cost, NormalizedUsage
from threadkeep.errors import MissingExtra
from threadkeep.store.usage import rollups
from threadkeep.store.usage.billing import BillableCall
from threadkeep.store.usage.prices import OWN, REPORTED, PriceBook
from threadkeep.store.work import refs
from threadkeep.store.work.transactions import Transactions
from threadkeep.store.work.validation import span_of

BATCH: Final = 500  # rows in one transaction
_LEDGER: Final[Any] = usage_records.c
_COLUMNS: Final = (
    "id", "occurred_at", "format", "provider", "model", *FIGURES, "usage", "terms", "price", "cost_nano",
)  # fmt: skip


class _Counts(NamedTuple):
    """What was done with some rows."""

    last: int | None  # the id of the last one; None: there were no more
    attempts: int = 0
    changed: int = 0
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Recomputation:
    """Computes costs again, from one moment to another."""

    transactions: Transactions
    scope: refs.Scope
    prices: PriceBook
    since: datetime | None
    until: datetime | None

    def run(self) -> reports.RecomputationReport:
        """Go through the days, the oldest first; roll up those again whose costs have changed."""
        attempts = changed = kept = 0
        after: date | None = None
        while (day := self.transactions.read(partial(self._day_after, after=after))) is not None:
            before = changed
            counts = _Counts(-1)
            while counts.last is not None:
                counts = self.transactions.write(
                    partial(self._batch, day=day, after=counts.last), is_repeatable=True
                )  # fmt: skip
                attempts, changed, kept = attempts + counts.attempts, changed + counts.changed, kept + counts.kept
            if changed > before and day <= reports.last_day(now := datetime.now(UTC)):
                roll_up = partial(rollups.roll_up, tenant=self.scope.tenant, days=[day], now=now)
                self.transactions.write(roll_up, is_repeatable=True)
            after = day
        return reports.RecomputationReport(attempts, changed, kept)

    def _day_after(self, connection: Connection, after: date | None) -> date | None:
        conditions = [_LEDGER.tenant_id == self.scope.tenant]
        if after is not None:
            conditions.append(_LEDGER.day > after)
        elif self.since is not None:
            conditions.append(_LEDGER.day >= self.since.date())
        if self.until is not None:
            conditions.append(_LEDGER.day <= self.until.date())
        day: date | None = connection.execute(select(func.min(_LEDGER.day)).where(*conditions)).scalar()
        return day

    def _batch(self, connection: Connection, day: date, after: int) -> _Counts:
        """Compute the costs of some rows of a day."""
        columns = [_LEDGER[name] for name in _COLUMNS]
        conditions = [_LEDGER.tenant_id == self.scope.tenant]
        if self.since is not None:
            conditions += [_LEDGER.day >= self.since.date(), _LEDGER.occurred_at >= self.since]
        if self.until is not None:
            conditions += [_LEDGER.day <= self.until.date(), _LEDGER.occurred_at < self.until]
        statement = select(*columns).where(*conditions, _LEDGER.day == day, _LEDGER.id > after)
        rows = connection.execute(statement.order_by(_LEDGER.id).limit(BATCH)).all()
        if not rows:
            return _Counts(None)
        changes, kept = self._changes(rows)
        if changes:
            if day != datetime.now(UTC).date():
                rollups.invalidate(connection, self.scope.tenant, day)
            connection.execute(_UPDATE, [{"tenant": self.scope.tenant, **change} for change in changes])
        last = rows[-1].id if len(rows) == BATCH else None
        return _Counts(last, len(rows), len(changes), kept)

    def _changes(self, rows: Sequence[Row[Any]]) -> tuple[list[Mapping[str, Any]], int]:
        """The rows whose cost is another one now, and how many others keep theirs whatever it would be."""
        changes: list[Mapping[str, Any]] = []
        kept = 0
        for row in rows:
            usage = _object(row.usage)
            source = str((_object(row.price) or {}).get("source"))
            cost = None if usage is None else self.prices.cost(_call(row, usage))
            if row.cost_nano is not None and (usage is None or source == REPORTED or self._is_other(source, cost)):
                kept += 1
            elif (None if cost is None else cost.nano) != row.cost_nano:
                nano, price = (None, None) if cost is None else (cost.nano, cost.price)
                changes.append({"key": row.id, "nano": nano, "text": price})
        return changes, kept

    def _is_other(self, source: str, cost: Cost | None) -> bool:
        """Whether a cost comes from prices that this store does not have: the application's own, or the list."""
        if source != OWN:
            return cost is None and not self.prices.has_list
        return cost is None or (_object(cost.price) or {}).get("source") != OWN


_UPDATE: Final = (
    update(usage_records)
    .where(_LEDGER.tenant_id == bindparam("tenant"), _LEDGER.id == bindparam("key"))
    .values(cost_nano=bindparam("nano"), price=bindparam("text"))
)


def recompute_costs(
    transactions: Transactions, scope: refs.Scope, prices: PriceBook, since: date | None, until: date | None
) -> reports.RecomputationReport:
    """Compute costs again; see `Store.recompute_costs`."""
    scope.check_all_users("Costs are recomputed for all users", "it")
    first, end = span_of(since, until, UTC)
    if not prices.has_list and not prices.has_own:
        raise MissingExtra("prices", "Computing costs without prices of your own")
    return Recomputation(transactions, scope, prices, first, end).run()


def _call(row: Row[Any], usage: jsontext.JsonObject) -> BillableCall:
    figures = NormalizedUsage(**{name: getattr(row, name) for name in FIGURES})
    return BillableCall(row.format, row.provider, row.model, figures, usage, _object(row.terms) or {}, row.occurred_at)


def _object(text: str | None) -> jsontext.JsonObject | None:
    """A JSON object of the ledger; None where there is none, or only a part of one."""
    if text is None:
        return None
    try:
        value = jsontext.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
