"""PostgreSQL: single statements that commit themselves, several tables in one of them, and plans to be careful with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import ARRAY, URL, Column, Connection, Engine, Select, Table, cast, func, select, text, true
from sqlalchemy import tuple_ as values_of
from sqlalchemy.dialects.postgresql import insert

from threadkeep.db import backends, driver, hosts, models, refusals, sessions
from threadkeep.errors import InvalidOption

BEGIN: Final = driver.Statement(text("BEGIN ISOLATION LEVEL READ COMMITTED"))
# Tables that have twice as many pages as when their rows were counted last, and more than so many. Those of a table
# with partitions are the pages of these: no other process counts the rows of it all.
_PAGES: Final = 16
_GROWN: Final = text(
    "SELECT named.table::text FROM unnest(CAST(:names AS text[])) AS name "
    "CROSS JOIN LATERAL (SELECT to_regclass(name) AS table) named LEFT JOIN pg_inherits ON inhparent = named.table "
    "JOIN pg_class ON oid = coalesce(inhrelid, named.table) GROUP BY named.table "
    "HAVING sum(pg_relation_size(oid)) > 2 * current_setting('block_size')::bigint * greatest(sum(relpages), :pages)"
)
# Whoever writes to a table has this lock until the end; everybody may read that
_WRITERS: Final = text(
    "SELECT virtualtransaction FROM pg_locks WHERE mode = 'RowExclusiveLock' AND pid IS DISTINCT FROM pg_backend_pid() "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND relation IN (SELECT to_regclass(name) FROM unnest(CAST(:names AS text[])) AS name)"
)


class _PostgreSQL(backends.Backend):
    """PostgreSQL, through psycopg.

    Reads need no transaction: in autocommit mode, BEGIN and ROLLBACK are saved.
    """

    name = "postgresql"
    drivers = "psycopg", "psycopg"
    extra = "postgres"
    new_insert = staticmethod(insert)
    packing = "rows"
    host_isolation = "AUTOCOMMIT", None
    writes_together = notifies = True
    locks_what_exists = False

    def checked_url(self, url: URL) -> URL:
        return url.update_query_dict({"client_encoding": "utf8"})  # whatever the role or the environment says

    def engine_options(self, url: URL) -> dict[str, Any]:
        """What reads want; writes say BEGIN.

        What begins a transaction ends it: a connection that comes back needs no rollback, which under asyncio is a hop
        for nothing.
        """
        return super().engine_options(url) | {"isolation_level": "AUTOCOMMIT", "pool_reset_on_return": None}

    def make_engine(self, url: URL, create: Callable[..., Engine]) -> Engine:
        url, threshold = sessions.threshold_of(url)
        options = {"connect_args": threshold} if threshold else {}
        engine = create(hosts.with_attributes(url, hosts.WRITABLE), **self.engine_options(url), **options)
        sessions.watch(engine)
        if not threshold:
            sessions.watch_pooler(engine, is_owned=True)
        if hosts.hosts_of(url):
            hosts.leave_unusable(engine)
        return engine

    def adopt_engine(self, engine: Engine) -> None:
        sessions.watch_pooler(engine, is_owned=False)

    def keeps_connections(self, engine: Engine) -> bool:
        """Asyncio has a loop for each."""
        return not engine.dialect.is_async

    def notification_connection(self, engine: Engine, seconds: int) -> Any:
        import psycopg  # noqa: PLC0415 - an optional driver

        _, options = engine.dialect.create_connect_args(engine.url)
        return psycopg.connect(**{"connect_timeout": seconds, **options}, autocommit=True)

    def begin(self, connection: Connection, *, is_checked: bool) -> None:
        if self.is_autocommitting(connection):
            BEGIN.execute(connection, {})
        else:
            super().begin(connection, is_checked=is_checked)

    def begin_snapshot(self, connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN ISOLATION LEVEL REPEATABLE READ")

    def refuse_writes(self, connection: Connection) -> None:
        connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    def begin_savepoint(self, connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        if self.is_autocommitting(connection) and not driver.info.transaction_status:  # 0: idle
            raise InvalidOption("`within` needs a transaction; this connection is in AUTOCOMMIT mode, which has none.")

    def is_autocommitting(self, connection: Connection) -> bool:
        driver: Any = connection.connection.dbapi_connection
        return connection.dialect.driver in refusals.PSYCOPG and bool(driver.autocommit)

    def open_writers(self, connection: Connection, rows: Sequence[Select[Any]]) -> frozenset[str]:
        """Those that have written to the tables."""
        names = {table.name for counted in rows for table in counted.get_final_froms() if isinstance(table, Table)}
        return frozenset(connection.execute(_WRITERS, {"names": list(names)}).scalars())

    def by_keys(self, statement: Select[Any], key: Column[int], keys: Sequence[int]) -> Select[Any]:
        """For a list of keys, it would look through another index of the tenant wherever that seems to be cheaper.

        Which lists these are differs between its releases, and tables without statistics have more of them. A join with
        a limit can only be carried out key by key; bounds and an order leave the primary key for that.
        """
        named = func.unnest(cast(list(keys), ARRAY(key.type))).table_valued("key", name="named").render_derived()
        row = statement.where(key.between(named.c.key, named.c.key)).order_by(key).limit(1).lateral("row")
        return select(row).select_from(named).join(row, true())

    def are_at(self, columns: Sequence[Column[Any]], places: backends.Places) -> backends.Condition:
        arrays = zip(zip(*places, strict=True), columns, strict=True)
        return values_of(*columns).in_(select(*(func.unnest(cast(list(some), ARRAY(of.type))) for some, of in arrays)))

    def analyze_grown(self, connection: Connection) -> list[str]:
        """Never waits for a lock: a table that is being analyzed, or changed, is left out.

        So are tables that the user does not own.
        """
        grown = connection.execute(_GROWN, {"names": list(models.METADATA.tables), "pages": _PAGES}).scalars().all()
        if grown:
            connection.exec_driver_sql(f"ANALYZE (SKIP_LOCKED) {', '.join(grown)}")
        return list(grown)


BACKEND: Final = _PostgreSQL()
