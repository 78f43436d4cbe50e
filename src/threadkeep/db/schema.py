"""The database schema and its version: what users (as `threadkeep.schema`) and the command line call.

The revisions are Alembic's and travel with the package. Version numbers are kept in a table of their own, so that
threadkeep shares a database with an application's own Alembic. Objects of its names are threadkeep's where that table
exists.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine, NullPool, create_engine, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from threadkeep.db import backends, models, sessions, types
from threadkeep.db import partitions as raw_body_partitions
from threadkeep.db.base import PREFIX, SEARCH_INDEX
from threadkeep.db.partitions import (
    MOST,
    PARTITIONED,
    checked_partitions,
    make_months,
    partition_names,
    refuse_months,
    refuse_other_number,
)
from threadkeep.errors import InvalidOption, SchemaError, SchemaMissing, SchemaOutOfDate, SchemaTooNew, SchemaUnknown

if TYPE_CHECKING:
    from alembic.config import Config

HEAD: Final = "v0_1_0_a"  # the newest revision; a test holds it against the files
REVISIONS: Final = ("v0_1_0_a",)  # all of them, oldest first
_ONE: Final = RLock()  # environment of Alembic at a time
_REVISION: Final = re.compile(r"v(\d+)_(\d+)_(\d+)_([a-z]+)")

VERSION_TABLE: Final = f"{PREFIX}version"
# Views for people who write SQL
_VIEWS: Final = (
    "usage_by_day", "usage_attempts", "messages_text", "tool_calls", "conversation_facts", "labels", "properties",
    "tags", "turns", "call_approvals", "feedback",
)  # fmt: skip
VIEWS: Final = tuple(f"{PREFIX}{name}" for name in _VIEWS)
# SQLite's full-text index, and the tables that FTS5 keeps for it
_SEARCH_TABLES: Final = (SEARCH_INDEX, *(f"{SEARCH_INDEX}_{name}" for name in ("config", "data", "idx")))
# Everything of threadkeep's that a database may list as a table or view: for the `include_name` of a host's Alembic
_PARTITIONS: Final = (name for table in PARTITIONED for name in partition_names(table, MOST))
TABLES: Final = frozenset(
    {*models.METADATA.tables, VERSION_TABLE, *_SEARCH_TABLES, *VIEWS, *_PARTITIONS, *raw_body_partitions.ALL}
)
_FUNCTIONS: Final = (f"{PREFIX}parts", f"{PREFIX}sum")  # PostgreSQL

# What shares a namespace with our objects: kind and name
_SQLITE_OBJECTS: Final = "SELECT type, name FROM sqlite_master"
# How they were made, without the tables that FTS5 makes for its index
_SQLITE_MADE: Final = (
    "SELECT sql FROM sqlite_master WHERE sql > '' AND name NOT LIKE :index || '\\_%' ESCAPE '\\' ORDER BY rowid"
)
_MYSQL_OBJECTS: Final = """
    SELECT CASE table_type WHEN 'BASE TABLE' THEN 'table' ELSE lower(table_type) END, table_name
    FROM information_schema.tables WHERE table_schema = DATABASE()
    UNION ALL SELECT 'foreign key', constraint_name FROM information_schema.table_constraints
    WHERE constraint_schema = DATABASE() AND constraint_type = 'FOREIGN KEY'
"""
_POSTGRESQL_OBJECTS: Final = """
    WITH here AS (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
    SELECT CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'i' THEN 'index'
        WHEN 'I' THEN 'index' WHEN 'S' THEN 'sequence' WHEN 'c' THEN 'type' ELSE 'table' END, relname
    FROM pg_class JOIN here ON here.oid = relnamespace
    UNION ALL SELECT 'type', typname FROM pg_type JOIN here ON here.oid = typnamespace WHERE typrelid = 0
    UNION ALL SELECT 'function', proname FROM pg_proc JOIN here ON here.oid = pronamespace
"""

# What an upgrade of SQLite changes of its connection, and sets again at its end
_SQLITE_SETTINGS: Final = ("foreign_keys", "legacy_alter_table")

_LOCK_NAME: Final = f"{PREFIX}schema"
_LOCK_NUMBER: Final = 7_236_001_954_283  # PostgreSQL's advisory locks have numbers
_LOCK_SECONDS: Final = 300


def migrations_folder() -> Path:
    """Return the folder of the revisions: in the installed package, or else in the checkout."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "migrations"
    return packed if packed.is_dir() else package.parent.parent / "migrations"


def current(engine: Engine | Connection) -> str | None:
    """Return the schema revision of a database, or None if it has no threadkeep tables."""
    if not isinstance(engine, Connection):
        with _checked(engine).connect() as connection:
            return current(connection)
    if not inspect(engine).has_table(VERSION_TABLE):
        return None
    version: str | None = engine.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - a constant
    return version


def check(engine: Engine | Connection, url: str | None = None) -> None:
    """Check that a database has the schema that this version needs; `url` is how messages name it.

    Raises:
        SchemaMissing, SchemaOutOfDate, SchemaTooNew, SchemaUnknown: it does not; the message says what to do.
        SchemaError: tables are missing, as after a downgrade that was interrupted.
    """
    if not isinstance(engine, Connection):
        with _checked(engine).connect() as connection:
            check(connection, url)
            _check_tables(connection)
        return
    version = current(engine)
    if version == HEAD:
        return
    if version is None:
        raise SchemaMissing(HEAD, url)
    raise SchemaOutOfDate(version, HEAD, url) if version in REVISIONS else _unknown(version)


def _unknown(version: str) -> SchemaError:
    """The error for a revision that this version does not know: of a newer release, or of none before."""
    return (SchemaTooNew if _release(version) > _release(HEAD) else SchemaUnknown)(version, HEAD)


def _release(revision: str) -> tuple[int, int, int, str]:
    """The release in the name of a revision, and which of its revisions it is; other names are before all releases."""
    found = _REVISION.fullmatch(revision)
    return (0, 0, 0, "") if found is None else (int(found[1]), int(found[2]), int(found[3]), found[4])


def upgrade(
    engine: Engine, revision: str = "head", *, partitions: int | None = None, monthly_bodies: date | None = None
) -> None:
    """Upgrade a database to the latest schema, or to `revision`. Does nothing if the database is already there.

    With `partitions`, the tables that grow with every item are created with so many partitions each (PostgreSQL): 2 to
    128. With `monthly_bodies`, the table of raw bodies is created with a partition for each month since that date, and
    the next three (PostgreSQL). Later upgrades keep these partitions without the options, and create the coming
    months.

    Several processes may call this at once: one of them upgrades while the others wait. On databases that commit every
    statement separately, an interrupted upgrade is continued.

    Raises:
        SchemaTooNew, SchemaUnknown: the database belongs to a newer release, or to none that can be upgraded.
        SchemaError: the database does not hold all characters, another application has tables, views or other objects
            with names that threadkeep needs (nothing was changed), rows violate a foreign key afterwards (SQLite),
            another upgrade does not finish, or the tables exist with another number of partitions, or without
            partitions by month.
        InvalidOption: partitions are not for this database, or it is no such number or date.
    """
    count = checked_partitions(partitions, _checked(engine).dialect.name)
    first = raw_body_partitions.checked_month(monthly_bodies, engine.dialect.name)
    with _upgrading(engine) as connection:
        sessions.check_encoding(connection)
        _check_names(connection)
        version = current(connection)
        if version is not None and version not in _known():
            raise _unknown(version)
        if version is not None:
            _check_place(connection)
            _check_tables(connection)
            refuse_other_number(connection, count)
            refuse_months(connection, first)
        is_sqlite = connection.dialect.name == "sqlite"
        if revision == "head" and is_sqlite and not connection.execute(text(_SQLITE_OBJECTS)).all():
            set_up(connection)
            return
        _command("upgrade", revision, _config(connection=connection, partitions=count, months=_months_since(first)))
        make_months(connection)


@cache
def _sqlite_statements(head: str) -> tuple[str, ...]:
    """Return the statements that set up an empty SQLite database, where the revisions take five times as long."""
    with _upgrading(create_engine("sqlite://", poolclass=NullPool)) as connection:
        _command("upgrade", head, _config(connection=connection))
        made = connection.execute(text(_SQLITE_MADE), {"index": SEARCH_INDEX}).scalars()
        return (*made, f"INSERT INTO {VERSION_TABLE} VALUES ('{HEAD}')")  # noqa: S608 - constants


def downgrade(engine: Engine, revision: str = "base") -> None:
    """Downgrade a database to an older schema; by default, remove all tables. Data in newer tables is lost.

    Raises:
        SchemaError: rows violate a foreign key afterwards (SQLite), or another upgrade does not finish.
    """
    with _upgrading(engine) as connection:
        if VERSION_TABLE not in inspect(connection).get_table_names():
            return  # whatever is there is not threadkeep's
        if current(connection) is None:  # the first upgrade broke off
            _command("stamp", REVISIONS[0], _config(connection=connection))
        _command("downgrade", revision, _config(connection=connection))
        if current(connection) is None:
            connection.exec_driver_sql(f"DROP TABLE {VERSION_TABLE}")


def upgrade_sql(
    dialect: str, revision: str = "head", *, partitions: int | None = None, monthly_bodies: date | None = None
) -> str:
    """Return the SQL that `upgrade` runs on an empty database (sqlite, postgresql, mysql or mariadb).

    Raises:
        InvalidOption: partitions are not for this database, or it is no such number or date, or no such database.
    """
    if dialect not in backends.NAMES:
        raise InvalidOption(f"There is no SQL for {dialect!r}. Dialects: {', '.join(backends.NAMES)}.")
    output, count = io.StringIO(), checked_partitions(partitions, dialect)
    statements = _months_since(raw_body_partitions.checked_month(monthly_bodies, dialect))
    _command("upgrade", revision, _config(output, dialect=dialect, partitions=count, months=statements), sql=True)
    return output.getvalue()


def _months_since(first: date | None) -> list[str]:
    """The statements that make the partitions of raw bodies, from a month on."""
    if first is None:
        return []
    made = raw_body_partitions.months_until(first, datetime.now(UTC).date())
    return [
        f"CREATE TABLE {raw_body_partitions.DEFAULT} PARTITION OF {raw_body_partitions.BODIES} DEFAULT",
        *map(raw_body_partitions.creation, made),
    ]


def needs_set_up(connection: Connection, url: str | None = None) -> bool:
    """Return whether this is an empty SQLite database, which is set up on opening; `url` is how messages name it.

    Raises:
        SchemaMissing, SchemaOutOfDate, SchemaTooNew, SchemaUnknown: it does not have the schema that this version
            needs.
    """
    sessions.check_encoding(connection)
    try:
        check(connection, url)
    except SchemaMissing:
        if connection.dialect.name != "sqlite":
            raise
        inspector = inspect(connection)
        if not inspector.get_table_names() and not inspector.get_view_names():
            return True
        check(connection, url)  # another process set it up meanwhile, or the tables are another application's
    return False


def set_up(connection: Connection) -> None:
    """Create the tables in an empty SQLite database, as a part of the transaction of the connection."""
    for statement in _sqlite_statements(HEAD):
        connection.exec_driver_sql(statement)


def _known() -> set[str]:
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - Alembic is slow to import and only upgrades need it

    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def _config(output: io.StringIO | None = None, **attributes: Any) -> Config:
    from alembic.config import Config  # noqa: PLC0415 - as above

    config = Config(output_buffer=output, attributes=attributes)
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def _command(name: str, revision: str, config: Config, **options: Any) -> None:
    from alembic import command  # noqa: PLC0415 - as above

    with _alembic_of_host():
        getattr(command, name)(config, revision, **options)


@contextmanager
def _alembic_of_host() -> Iterator[None]:
    """Give `alembic.context` and `alembic.op` back to an application whose env.py or revision calls this library.

    These modules are global: each environment sets their names when it begins, and deletes them at its end. So there
    is one at a time, whichever threads open stores in memory or upgrade databases.
    """
    from alembic import context, op  # noqa: PLC0415 - as above

    with _ONE:
        before = [(vars(module), dict(vars(module))) for module in (context, op)]
        try:
            yield
        finally:
            for names, values in before:
                names.update(values)


def _checked(engine: object) -> Engine:
    """Return the engine to upgrade; raise InvalidOption for anything else."""
    if isinstance(engine, Engine):
        return engine
    raise InvalidOption(
        f"must be an Engine, not a value of type {type(engine).__name__}.", argument="engine",
        hint="Make one with sqlalchemy.create_engine(url), also where the application uses asyncio.",
    )  # fmt: skip


@contextmanager
def _upgrading(engine: Engine) -> Iterator[Connection]:
    """Provide a connection with a transaction that excludes other upgrades."""
    with _checked(engine).connect() as connection:
        if engine.dialect.name == "sqlite":
            with _upgrading_sqlite(connection):
                yield connection
        elif engine.dialect.name in types.MYSQL:
            with _locked_mysql(connection):
                yield connection
                connection.commit()
        else:
            # Engines of a store are in autocommit mode. Who has waited for the lock must see what was done meanwhile.
            connection.execution_options(isolation_level="READ COMMITTED")
            with connection.begin():
                connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK_NUMBER})
                yield connection


@contextmanager
def _upgrading_sqlite(connection: Connection) -> Iterator[None]:
    """Prepare SQLite for batch mode, which copies a table, drops it and gives the copy its name.

    Foreign keys are off, because a cascade would empty the child tables. With `legacy_alter_table`, renaming ignores
    views, which refer to a table that is missing at that moment.
    """
    driver: Any = connection.connection.driver_connection
    isolation, driver.isolation_level = driver.isolation_level, None
    settings = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in _SQLITE_SETTINGS}
    connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
    connection.exec_driver_sql("PRAGMA legacy_alter_table=ON")
    try:
        with connection.begin() if not connection.in_transaction() else connection.get_transaction() as transaction:  # type: ignore[union-attr]
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            attached, before = _attached_by_others(connection), _orphans(connection)
            yield
            _restore(connection, attached)
            if orphans := _orphans(connection) - before:
                transaction.rollback()
                some = sorted(f"{table} (row {row}) to {parent}" for table, row, parent in orphans)[:5]
                problem = "The upgrade was rolled back: it would leave rows without the rows they refer to"
                raise SchemaError(f"{problem}: {', '.join(some)}.")
    finally:
        for name, value in settings.items():
            connection.exec_driver_sql(f"PRAGMA {name}={value}")
        driver.isolation_level = isolation


def _orphans(connection: Connection) -> set[tuple[str, int | None, str]]:
    """Return table, row and parent of rows that refer to no row, in our tables or to them.

    What else the application has in its tables is its own, also where SQLite cannot check it.
    """
    found = set[tuple[str, int | None, str]]()
    for table in inspect(connection).get_table_names():
        name = '"' + table.replace('"', '""') + '"'
        parents = {row.table for row in connection.exec_driver_sql(f"PRAGMA foreign_key_list({name})")}
        if table in TABLES or not TABLES.isdisjoint(parents):
            orphans = connection.exec_driver_sql(f"PRAGMA foreign_key_check({name})").all()
            found |= {(child, row, parent) for child, row, parent, _ in orphans}
    return found


def _attached_by_others(connection: Connection) -> dict[str, tuple[str, str]]:
    """Return the application's own indexes and triggers on our tables: name -> table and SQL."""
    rows = connection.exec_driver_sql(
        "SELECT name, tbl_name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"
    )
    return {name: (table, sql) for name, table, sql in rows if table in TABLES and not name.startswith(PREFIX)}


def _restore(connection: Connection, attached: dict[str, tuple[str, str]]) -> None:
    """Recreate what was lost with a table that was dropped and copied."""
    tables, remaining = set(inspect(connection).get_table_names()), _attached_by_others(connection)
    for name, (table, sql) in attached.items():
        if name not in remaining and table in tables:
            connection.exec_driver_sql(sql)


@contextmanager
def _locked_mysql(connection: Connection) -> Iterator[None]:
    lock = {"name": _LOCK_NAME, "seconds": _LOCK_SECONDS}
    if connection.execute(text("SELECT GET_LOCK(:name, :seconds)"), lock).scalar() != 1:
        raise SchemaError(
            f"Another upgrade has held the lock {_LOCK_NAME!r} for {_LOCK_SECONDS} seconds.", hint="Try again later."
        )
    try:
        yield
    finally:
        try:
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": _LOCK_NAME})
            connection.commit()
        except SQLAlchemyError:
            connection.invalidate()  # the lock goes with the connection


def _check_tables(connection: Connection) -> None:
    """Raise SchemaError if a database that commits each statement was left in the middle of a downgrade."""
    if connection.dialect.name not in types.MYSQL:
        return
    missing = models.METADATA.tables.keys() - inspect(connection).get_table_names()
    if missing and current(connection) == HEAD:
        raise SchemaError(
            f"The database lacks {', '.join(sorted(missing))}: a downgrade was interrupted.",
            hint="Call threadkeep.schema.downgrade(engine) again and then upgrade, or restore a backup.",
        )


def _check_place(connection: Connection) -> None:
    """Raise SchemaError if PostgreSQL finds the tables along its search path, but not where new ones would be."""
    if connection.dialect.name != "postgresql":
        return
    place = "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass(:name)"
    found = connection.execute(text(place), {"name": VERSION_TABLE}).scalar()
    here = connection.execute(text("SELECT quote_ident(current_schema())")).scalar()
    if found is not None and found != here:
        raise SchemaError(
            f"The search_path finds threadkeep's tables in the schema {found}; new ones would be made in {here}.",
            hint=f"Begin the search_path with {found}, or for tables of its own leave that out.",
        )


def _check_names(connection: Connection) -> None:
    """Raise SchemaError if there are objects of another application under names that threadkeep needs."""
    dialect = connection.dialect.name
    servers = {"sqlite": _SQLITE_OBJECTS, "postgresql": _POSTGRESQL_OBJECTS}
    rows = connection.execute(text(servers.get(dialect, _MYSQL_OBJECTS))).all()
    ours = models.METADATA.tables.values()
    # Indexes and constraints have names of the same kind as tables on some databases
    beside: list[Any] = [part for table in ours for part in (*table.indexes, *table.constraints)]
    needed = {*TABLES, *_FUNCTIONS, f"{VERSION_TABLE}_pkc", *(str(part.name) for part in beside)}
    # SQLite, and MySQL on some systems, compare names without their case
    objects = [(kind, name) for kind, name in rows if (name if dialect == "postgresql" else name.lower()) in needed]
    if objects and ("table", VERSION_TABLE) not in objects:
        raise SchemaError(
            "The database has objects of another application under names that threadkeep needs: "
            f"{', '.join(f'{kind} {name}' for kind, name in sorted(objects))}.",
            hint="Rename them, or give threadkeep a database of its own, or on PostgreSQL a schema of its own "
            "(docs/production.md).",
        )


__all__ = ["HEAD", "TABLES", "check", "current", "downgrade", "upgrade", "upgrade_sql"]
