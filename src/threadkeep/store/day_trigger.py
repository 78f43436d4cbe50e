"""Days of the ledger that roll themselves up: by whoever stores a response first when a day has been over for an hour.

Reports do not depend on it, and are only faster. It is done after the commit, a bounded part with each response, by one
process for each tenant and day: the one that inserts the row of the first day that cannot be rolled up yet. If that
process ends, the next day's goes on.
"""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, time
from functools import partial
from typing import TYPE_CHECKING, Final

from threadkeep.domain import redaction
from threadkeep.store import day_filling, rollups

if TYPE_CHECKING:
    from threadkeep.store.transactions import Transactions

LOG: Final = logging.getLogger("threadkeep.usage")


class DayTrigger:
    """Rolls up days after responses were stored, for all tenants of a store."""

    def __init__(self) -> None:
        self._day = date.min  # the last one that can be rolled up …
        self._from = self._until = datetime.max.replace(tzinfo=UTC)  # … at these times
        self._known: set[int] = set()  # tenants that were looked at since that day could be rolled up
        self._claimed: dict[int, date] = {}  # tenants -> the day up to which this process has rolled up what it claimed

    def after_response(self, transactions: Transactions, tenant: int) -> None:
        """Do a part of what there is to do, mostly nothing; what fails is logged, for the response is stored."""
        now = datetime.now(UTC)
        if not self._from <= now < self._until:
            self._begin_day(rollups.last_day(now))
        day = self._day
        after = self._claimed.pop(tenant, None)  # another thread that comes here meanwhile does not wait
        if after is None and tenant in self._known:
            return
        self._known.add(tenant)
        try:
            if after is None and transactions.read(partial(day_filling.is_due, tenant=tenant, last=day)):
                after = transactions.write(
                    partial(day_filling.claim, tenant=tenant, day=day + rollups.DAY), is_repeatable=True
                )
            if after is not None:
                after = transactions.write(
                    partial(day_filling.roll_up_some, tenant=tenant, after=after), is_repeatable=True
                )
        except Exception as error:  # noqa: BLE001 - whatever it is
            reason = redaction.redact(str(getattr(error, "orig", None) or error))
            LOG.warning("Days of usage could not be rolled up; reports read the ledger instead: %s", reason)
            return
        if after is not None:
            self._claimed[tenant] = after

    def _begin_day(self, last: date) -> None:
        """Take notice that another day is the last one that can be rolled up."""
        self._day, self._known, self._claimed = last, set(), {}
        self._from = datetime.combine(last + rollups.DAY, time(tzinfo=UTC)) + rollups.GRACE
        self._until = self._from + rollups.DAY
