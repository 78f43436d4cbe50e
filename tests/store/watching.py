"""Looking at what a store does: the statements that it runs and the rows that it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Table, bindparam, event, func, literal_column, select, union_all

from threadkeep.db.base import PREFIX
from threadkeep.db.models import METADATA


def _count(table: Table) -> Any:
    name = table.name.removeprefix(PREFIX)
    column = table.c.id if name == "tenants" else table.c.tenant_id
    return select(literal_column(f"'{name}'"), func.count()).select_from(table).where(column == bindparam("tenant"))


COUNTS = union_all(*map(_count, METADATA.tables.values()))


class Tables:
    """The rows of one tenant, by the names of tables without their prefix."""

    def __init__(self, connection: Connection, tenant: int) -> None:
        self._connection, self._tenant = connection, tenant

    def counts(self) -> dict[str, int]:
        """How many rows each table has."""
        return dict(self._run(COUNTS, {"tenant": self._tenant}).all())

    def rows(self, name: str, *order: str) -> list[dict[str, Any]]:
        """The rows of a table, in order of its columns."""
        table = METADATA.tables[PREFIX + name]
        statement = (
            select(table).where(table.c.tenant_id == self._tenant).order_by(*(table.c[column] for column in order))
        )
        return [dict(row._mapping) for row in self._run(statement)]

    def _run(self, statement: Any, parameters: dict[str, Any] | None = None) -> Any:
        self._connection.rollback()  # see what others have committed
        return self._connection.execute(statement, parameters)

    def written(self) -> Written:
        """How many rows there are now, to be asked later which were added."""
        return Written(self, self.counts())


class Written:
    """What was written since it was made."""

    def __init__(self, tables: Tables, before: dict[str, int]) -> None:
        self._tables, self._before = tables, before

    def __call__(self) -> dict[str, int]:
        """How many rows each table has more (or less); tables without a change are left out.

        So is the change feed, unless it is the only one: nearly every write adds a row to it.
        """
        now = self._tables.counts()
        written = {name: now[name] - self._before[name] for name in now if now[name] != self._before[name]}
        return {name: count for name, count in written.items() if name != "changes" or len(written) == 1}


@contextmanager
def statements_of(store: Any) -> Iterator[list[str]]:
    """The statements that a store runs in the meantime, without BEGIN and COMMIT."""
    engine = engine_of(store)
    seen: list[str] = []

    def watch(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if not statement.startswith("BEGIN"):
            seen.append(statement)

    event.listen(engine, "before_cursor_execute", watch)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", watch)


def transactions_of(store: Any) -> Any:
    """What runs the transactions of a store or conversation of either face."""
    face = getattr(store, "_wrapped", store)
    return getattr(face, "sync", face).handle.transactions


def engine_of(store: Any) -> Engine:
    """The engine below a store or conversation of either face."""
    engine: Engine = transactions_of(store).engine
    return engine


@contextmanager
def sqlite_steps(connection: Connection, every: int = 100) -> Iterator[list[None]]:
    """A list that grows by one whenever SQLite has run so many instructions."""
    driver: Any = connection.connection.driver_connection
    steps: list[None] = []
    driver.set_progress_handler(lambda: steps.append(None), every)
    try:
        yield steps
    finally:
        driver.set_progress_handler(None, 0)
